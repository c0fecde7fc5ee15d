#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/schedule/baselines/gpipe.hpp>
#include <pulse/schedule/baselines/one_f_one_b.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/validate.hpp>

#include "instances.hpp"

namespace {

using namespace pulse;

/// Peak bytes of a single microbatch on every device: a schedule of M = 1 in the order F.., then B and W.
std::vector<std::int64_t> alone_needs(schedule_problem problem) {
    problem.microbatches = 1;
    problem.memory_limit_bytes = {};
    return peak_holds(problem, gpipe(problem));
}

list_options quick() { return {list_effort::rules, 1, 1, 5}; }

constexpr schedule_problem small(bool split) {
    auto problem = test::chain_problem(test::placed(placement::folded, 2, 1), 2, 4, split, 1, 1, 1, 0.25);
    problem.memory_limit_bytes = {4, 4};
    return problem;
}

} // namespace

TEST_CASE("every random problem ends in a valid schedule above its bound, or in a stated infeasibility") {
    std::mt19937 random{42};
    const auto up_to = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    int scheduled = 0;
    int limited = 0;
    int infeasible = 0;
    std::array<int, 3> recomputed{}; // the kinds that `random_instance` draws
    int direct = 0;
    constexpr int rounds = PULSE_TEST_SANITIZED ? 450 : 1500; // sanitized rounds are slow
    for (int round = 0; round != rounds; ++round) {
        const auto instance = test::random_instance(random, 4, 2, 12);
        auto problem = make_problem(instance.costs, instance.cut, instance.options);
        const auto needs = alone_needs(problem);
        bool fits = true;
        if (round % 3 != 0) {
            const int tenths = up_to(0, 3) == 0 ? up_to(7, 10) : up_to(10, 30);
            for (const auto need : needs) {
                problem.memory_limit_bytes.push_back(need * tenths / 10);
                fits = fits && need * tenths / 10 >= need;
            }
        }
        if (!fits) {
            std::string text{};
            try {
                (void)list_schedule(problem, quick());
            } catch (const infeasible_error& e) { text = e.what(); }
            bool named = false;
            for (std::size_t d = 0; d != needs.size(); ++d) {
                named = named || (needs[d] > problem.memory_limit_bytes[d] &&
                                  text == "device " + std::to_string(d) + " needs " + std::to_string(needs[d]) +
                                              " bytes for a single microbatch but has only " +
                                              std::to_string(problem.memory_limit_bytes[d]));
            }
            CHECK_MESSAGE(named, text);
            ++infeasible;
            continue;
        }
        const auto found = list_search(problem, quick());
        CHECK(describe(find_violation(problem, found.order)) == "");
        CHECK(found.makespan_us == found.order.makespan_us());
        CHECK(found.lower_bound_us == lower_bound_us(problem));
        CHECK(found.makespan_us >= found.lower_bound_us * (1 - 1e-12));
        ++scheduled;
        limited += problem.memory_limit_bytes.empty() ? 0 : 1;
        ++recomputed[static_cast<std::size_t>(instance.options.recompute.kind)];
        const auto chain = 2 * problem.stages.size() - 1 + (problem.split_backward ? problem.stages.size() : 0);
        direct += problem.dependencies.size() > chain ? 1 : 0;
        if (problem.memory_limit_bytes.empty()) { CHECK(found.makespan_us <= gpipe(problem).makespan_us() + 1e-9); }
    }
    CHECK(scheduled > rounds * 9 / 15);
    CHECK(limited > rounds / 3);
    CHECK(infeasible > rounds / 15);
    for (const int of_kind : recomputed) { CHECK(of_kind > rounds / 5); }
    CHECK(direct > rounds / 15);
}

TEST_CASE("no worse than GPipe and 1F1B with the memory that they take") {
    std::mt19937 random{7};
    std::uniform_real_distribution<double> uneven{0.7, 1.3};
    for (const int devices : {1, 2, 4}) {
        for (const int microbatches : {1, 2, 4, 8}) {
            for (const bool split : {false, true}) {
                for (const double lag : {0.0, 0.05, 0.2}) {
                    for (const bool even : {true, false}) {
                        auto problem = test::chain_problem(test::placed(placement::sequential, devices, 1), devices,
                                                           microbatches, split, 1, 1, 1, lag);
                        for (auto& s : problem.stages) {
                            if (even) { break; }
                            s.forward_us *= uneven(random);
                            s.backward_input_us *= uneven(random);
                            s.backward_weight_us *= uneven(random);
                        }
                        for (const auto& baseline : {gpipe(problem), one_f_one_b(problem)}) {
                            auto same = problem;
                            same.memory_limit_bytes = peak_holds(problem, baseline);
                            const auto found = list_search(same);
                            REQUIRE(describe(find_violation(same, found.order)) == "");
                            CHECK(found.makespan_us <= baseline.makespan_us() + 1e-9);
                        }
                    }
                }
            }
        }
    }
}

TEST_CASE("rounding never makes one stage on one device hold more than 1F1B does") {
    std::mt19937 random{341812};
    std::uniform_int_distribution<int> thousandths{100'000, 999'999};
    for (int round = 0; round != 200; ++round) {
        const int microbatches = 2 + round % 15;
        const double forward = thousandths(random) / 1000.0;
        const double backward = thousandths(random) / 1000.0;
        const auto problem = test::chain_problem(test::placed(placement::sequential, 1, 1), 1, microbatches, false,
                                                 forward, backward, 0);
        const auto held = peak_holds(problem, list_schedule(problem));
        const auto least = peak_holds(problem, one_f_one_b(problem));
        CAPTURE(forward);
        CAPTURE(backward);
        CAPTURE(microbatches);
        CHECK(held[0] <= least[0]);
    }
}

TEST_CASE("the same problem gives the same schedule") {
    std::mt19937 random{9};
    for (int round = 0; round != 20; ++round) {
        const auto instance = test::random_instance(random, 4, 2, 6);
        const auto problem = make_problem(instance.costs, instance.cut, instance.options);
        CHECK(list_schedule(problem, quick()) == list_schedule(problem, quick()));
    }
}

TEST_CASE("a split folded pipeline without lags or limits leaves only the start skew") {
    for (const int devices : {2, 4}) {
        for (const int microbatches : {2 * devices, 4 * devices}) {
            const auto problem =
                test::chain_problem(test::placed(placement::folded, devices, 1), devices, microbatches, true, 1, 1, 1);
            const auto found = list_search(problem);
            // device P-1 starts P-1 forwards late and has work until the end
            CHECK(found.lower_bound_us == doctest::Approx(6.0 * microbatches + devices - 1));
            CHECK(found.gap() == doctest::Approx(0));
        }
    }
}

TEST_CASE("schedules in constant evaluation") {
    constexpr list_options one{list_effort::one, 0, 0, 0};
    static_assert(is_valid(small(true), list_schedule(small(true), one)));
    static_assert(is_valid(small(false), list_schedule(small(false), one)));
    static_assert(list_search(small(true), one).gap() >= 0);
    static_assert(lower_bound_us(small(true)) >= 25.25);
    CHECK(is_valid(small(true), list_schedule(small(true), one)));
}
