#include <algorithm>
#include <cstdint>
#include <random>
#include <stop_token>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/prove/certify.hpp>
#include <pulse/schedule/prove/scaled_times.hpp>
#include <pulse/schedule/time_grain.hpp>

#include "brute_solver.hpp"
#include "every_schedule.hpp"
#include "hard_problem.hpp"
#include "small_problems.hpp"

namespace certify_tests {

using namespace pulse;
using detail::raised_to_grain;
using detail::scaled_times;
using detail::time_grain_us;

namespace {

/// The least makespan of all schedules no longer than `known`; 0 if there are too many to try.
double least_makespan(const schedule_problem& problem, double known) {
    double best = known;
    test::every_schedule all{problem, known * (1 + 1e-9), 60000,
                             [&](const schedule& timed) { best = std::min(best, timed.makespan_us()); }};
    return all.walk() ? best : 0;
}

bool same(const certificate& a, const certificate& b) {
    return a.best == b.best && a.lower_bound_us == b.lower_bound_us && a.nodes == b.nodes && a.closed == b.closed;
}

/// Lengthens every duration of `problem` by up to 4e-8 of itself: then times have no common measure, and makespans
/// differ by less than an integer program solver can resolve.
void jitter(schedule_problem& problem, std::mt19937& random) {
    const auto more = [&] { return 1 + std::uniform_int_distribution<int>{0, 4}(random)*1e-8; };
    for (auto& s : problem.stages) {
        s.forward_us *= more();
        s.backward_input_us *= more();
        s.backward_weight_us *= more();
    }
}

} // namespace

TEST_CASE("a certificate's bound is never above the optimum; without a limit it meets it") {
    struct setting {
        double scale;
        bool jittered;
        int rounds;
    };
    for (const setting& at :
         {setting{1, false, 100}, setting{1e-4, false, 50}, setting{1e6, false, 50}, setting{1, true, 100}}) {
        CAPTURE(at.scale);
        CAPTURE(at.jittered);
        std::mt19937 random{31};
        int proved = 0;
        int better = 0;
        int raised = 0;
        int programs = 0;
        for (int round = 0; round != at.rounds; ++round) {
            auto problem = scaled_times(test::small_problem(random, 20), at.scale);
            if (at.jittered) { jitter(problem, random); }
            const auto incumbent = gpipe(problem);
            const bool fits = is_valid(problem, incumbent);
            const auto known = fits ? incumbent : list_schedule(problem, {list_effort::one, 0, 0, 0});
            const double best = least_makespan(problem, list_search(problem).makespan_us);
            if (best == 0) { continue; }
            const auto bound = bound_schedule(problem);
            test::brute_solver brute{};
            silent_solver silent{};

            for (const std::int64_t nodes : {1, 4, 16}) {
                search_limit limit{};
                limit.nodes = nodes;
                const auto some = certify(problem, bound, known, brute, limit, {8, 50, 400});
                CHECK(some.lower_bound_us <= best * (1 + 1e-12));
                CHECK(some.makespan_us >= best * (1 - 1e-12));
                CHECK(some.makespan_us <= known.makespan_us());
                CHECK(describe(find_violation(problem, some.best)) == "");
                CHECK(some.best.makespan_us() == some.makespan_us);
                CHECK(some.nodes <= nodes + 2);
                if (nodes == 4) { CHECK(same(some, certify(problem, bound, known, brute, limit, {8, 50, 400}))); }
            }
            search_limit limit{};
            limit.nodes = 30000;
            for (const bool with_solver : {false, true}) {
                const auto all = with_solver ? certify(problem, bound, known, brute, limit, {12, 50, 400})
                                             : certify(problem, bound, known, silent, limit);
                REQUIRE(all.closed);
                CHECK(all.makespan_us <= best * (1 + 1e-9));
                CHECK(all.makespan_us >= best * (1 - 1e-12));
                CHECK(all.lower_bound_us <= best * (1 + 1e-12));
                CHECK(synthesis{all.best, all.makespan_us, all.lower_bound_us, 0, 0, true}.proved());
                if (time_grain_us(problem) > 0) { CHECK(all.lower_bound_us == all.makespan_us); }
                CHECK(describe(find_violation(problem, all.best)) == "");
                programs += with_solver ? static_cast<int>(all.programs) : 0;
                better += all.makespan_us < known.makespan_us() * (1 - 1e-6) ? 1 : 0;
                raised += all.lower_bound_us > bound.makespan_us * (1 + 1e-6) ? 1 : 0;
            }
            ++proved;
        }
        MESSAGE(proved << " proved, " << better << " times better than what was known, " << raised
                       << " times above the bound, " << programs << " programs");
        CHECK(proved > at.rounds / 2);
        CHECK(better > at.rounds / 8);
        CHECK(raised > at.rounds / 16);
        CHECK(programs > 2);
    }
}

TEST_CASE("a certificate is the same at every scale of times") {
    std::mt19937 random{41};
    int nodes = 0;
    for (int round = 0; round != 30; ++round) {
        const auto problem = round % 2 == 0 ? hard_problem(random) : test::small_problem(random, 20);
        const auto known = list_schedule(problem, {list_effort::one, 0, 0, 0});
        const auto bound = bound_schedule(problem);
        search_limit limit{};
        limit.nodes = 60;
        test::brute_solver brute{};
        const auto one = certify(problem, bound, known, brute, limit, {8, 50, 400});
        nodes += static_cast<int>(one.nodes);
        for (const double scale : {0x1p-30, 0x1p30}) {
            // The grain of times is searched for in microseconds.
            if (time_grain_us(problem) != time_grain_us(scaled_times(problem, scale)) / scale) { continue; }
            const auto other = certify(scaled_times(problem, scale), scaled_times(bound, scale),
                                       scaled_times(known, scale), brute, limit, {8, 50, 400});
            CHECK(other.best == scaled_times(one.best, scale));
            CHECK(other.lower_bound_us == one.lower_bound_us * scale);
            CHECK(other.nodes == one.nodes);
            CHECK(other.closed == one.closed);
        }
    }
    CHECK(nodes > 100);
}

TEST_CASE("every limit ends a certification") {
    std::mt19937 random{43};
    int open = 0;
    for (int round = 0; round != 30; ++round) {
        const double scales[] = {1e-10, 1e-4, 1, 1e6};
        const auto problem = scaled_times(hard_problem(random), scales[round % 4] / 3);
        const auto known = list_schedule(problem, {list_effort::one, 0, 0, 0});
        const auto bound = bound_schedule(problem);
        silent_solver solver{};
        search_limit limit{};
        limit.nodes = 100;
        const auto some = certify(problem, bound, known, solver, limit);
        CHECK(some.nodes <= 100);
        CHECK((some.closed || some.nodes == 100));
        open += some.closed ? 0 : 1;

        // A limit that is reached before anything is tried leaves everything unchanged.
        const auto untouched = [&](const certificate& none) {
            CHECK(none.nodes == 0);
            CHECK(none.programs == 0);
            CHECK(none.makespan_us <= known.makespan_us());
            CHECK(none.lower_bound_us == doctest::Approx(bound.makespan_us).epsilon(1e-9).scale(0));
        };
        limit = {};
        limit.seconds = 0;
        untouched(certify(problem, bound, known, solver, limit));
        limit = {};
        limit.nodes = 0;
        untouched(certify(problem, bound, known, solver, limit));
        std::stop_source stop{};
        stop.request_stop();
        limit = {};
        limit.stop = stop.get_token();
        untouched(certify(problem, bound, known, solver, limit));
    }
    CHECK(open > 0);
}

TEST_CASE("windows alone settle some problems before the first node") {
    std::mt19937 random{47};
    int raised = 0;
    int settled = 0;
    int stopped = 0;
    int left_open = 0;
    for (int round = 0; round != 150; ++round) {
        const auto problem = round < 120 ? test::small_problem(random, 20) : hard_problem(random, 4);
        const auto known = list_search(problem).order;
        const auto bound = bound_schedule(problem);
        silent_solver solver{};
        search_limit limit{};
        limit.nodes = 1;
        const auto one = certify(problem, bound, known, solver, limit);
        CHECK(one.nodes <= 1);
        if (bound.makespan_us > known.makespan_us() * (1 - 1e-9)) { continue; }
        raised += one.lower_bound_us > bound.makespan_us * (1 + 1e-9) ? 1 : 0;
        settled += one.closed && one.nodes == 0 ? 1 : 0;
        left_open += one.lower_bound_us > bound.makespan_us * (1 + 1e-9) && !one.closed ? 1 : 0;

        std::stop_source stop{};
        limit = {};
        limit.stop = stop.get_token();
        int after = 0;
        (void)certify(problem, bound, known, solver, limit, {}, [&](const synthesis_progress&) {
            after += stop.stop_requested() ? 1 : 0;
            stop.request_stop();
        });
        CHECK(after == 0);
        stopped += stop.stop_requested() ? 1 : 0;
        CHECK(certify(problem, bound, known, solver, limit).lower_bound_us <= bound.makespan_us * (1 + 1e-12));
    }
    MESSAGE(raised << " raised, " << settled << " settled, " << left_open << " left open, " << stopped << " stopped");
    CHECK(raised > 5);
    CHECK(settled > 5);
    CHECK(left_open > 2);
    CHECK(stopped > 10);
}

TEST_CASE("a search that outgrows its first nodes goes on, until it is over or its limit is reached") {
    std::mt19937 random{61};
    std::int64_t most = 0;
    int closed = 0;
    for (int round = 0; round != 9; ++round) {
        const auto problem = round < 6 ? hard_problem(random, 11) : hard_problem(random, 5, 3);
        const auto known = list_search(problem).order;
        silent_solver silent{};
        search_limit limit{};
        limit.nodes = 6000;
        const auto all = certify(problem, bound_schedule(problem), known, silent, limit);
        CHECK((all.closed || all.nodes >= limit.nodes));
        closed += all.closed ? 1 : 0;
        most = std::max(most, all.nodes);
    }
    MESSAGE(closed << " closed, " << most << " nodes");
    CHECK(closed > 7);
    CHECK(most > 1000);
}

TEST_CASE("progress never falls back, and a stop request leaves what was known") {
    auto problem = test::chain_problem({0, 1, 1, 0}, 2, 6, false, 3, 2, 4, 0.6, 1);
    problem.stages[1].forward_us = 3.5;
    problem.memory_limit_bytes = {4, 4};
    const auto known = list_schedule(problem, {list_effort::one, 0, 0, 0});
    const auto bound = bound_schedule(problem);
    test::brute_solver solver{};
    search_limit limit{};
    limit.nodes = 400;
    double best = known.makespan_us();
    double lower = 0;
    int calls = 0;
    const auto all = certify(problem, bound, known, solver, limit, {4, 20, 400}, [&](const synthesis_progress& p) {
        CHECK(p.makespan_us <= best);
        CHECK(p.lower_bound_us >= lower);
        CHECK(p.lower_bound_us <= p.makespan_us);
        best = p.makespan_us;
        lower = p.lower_bound_us;
        ++calls;
    });
    CHECK(calls > 0);
    CHECK(all.makespan_us == best);
    CHECK(all.lower_bound_us == lower);

    std::stop_source stop{};
    stop.request_stop();
    limit.stop = stop.get_token();
    const auto none = certify(problem, bound, known, solver, limit);
    CHECK(none.best == known);
    CHECK(none.lower_bound_us >= bound.makespan_us - 1e-9);

    auto broken = known;
    broken.devices[0].pop_back();
    CHECK_THROWS_WITH_AS((void)certify(problem, bound, broken, solver, {}), doctest::Contains("missing"), input_error);
    broken = known;
    for (auto& p : broken.devices[1]) { // before their dependencies
        p.start_us -= 1;
        p.end_us -= 1;
    }
    CHECK_THROWS_AS((void)certify(problem, bound, broken, solver, {}), input_error);
}

TEST_CASE("the grain of times divides them all") {
    auto problem = test::chain_problem({0, 1, 1, 0}, 2, 2, true, 6, 9, 15, 3);
    CHECK(time_grain_us(problem) == 3);
    problem.stages[2].backward_weight_us = 7.5;
    CHECK(time_grain_us(problem) == 1.5);
    problem.dependencies[1].lag_us = 0.1;
    CHECK(time_grain_us(problem) == 0);
    problem.dependencies[1].lag_us = 3;
    problem.split_backward = false; // W is then no separate pass
    problem.stages[2].backward_weight_us = 0.1;
    CHECK(time_grain_us(problem) == 3);
    problem.stages[2].backward_input_us = 10.5;
    CHECK(time_grain_us(problem) == 1.5);
    problem.stages[2].forward_us = 6.75;
    CHECK(time_grain_us(problem) == 0.75);
    CHECK(raised_to_grain(7, 3) == 9);
    CHECK(raised_to_grain(9 + 1e-10, 3) == 9);
    CHECK(raised_to_grain(9, 3) == 9);
    CHECK(raised_to_grain(7.25, 0) == 7.25);
    CHECK(time_grain_us(test::chain_problem({0}, 1, 1, true, 0, 0, 0)) == 0);
}

} // namespace certify_tests
