#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/schedule/baselines/baseline.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/memory_guard.hpp>
#include <pulse/schedule/validate.hpp>

#include "instances.hpp"

namespace {

using namespace pulse;
using detail::index_problem;
using detail::profile_memory;

bool is_defined(const test::instance& drawn, schedule_method method) {
    const auto& cut = drawn.cut;
    return unmet_need(method, cut.kind, cut.waves, drawn.options.split_backward).empty() &&
           (method != schedule_method::interleaved || drawn.options.microbatches >= cut.devices);
}

/// Whether F, B and W of every stage and microbatch occur once; counted here, independently of the validator.
bool has_each_once(const schedule_problem& problem, const schedule& timed) {
    std::map<std::vector<int>, int> seen;
    std::size_t count = 0;
    for (const auto& passes : timed.devices) {
        for (const auto& p : passes) {
            ++seen[{static_cast<int>(p.op), p.stage, p.microbatch}];
            ++count;
        }
    }
    const auto total =
        problem.stages.size() * static_cast<std::size_t>(problem.passes_per_stage() * problem.microbatches);
    return seen.size() == total && count == total;
}

std::string refusal(const schedule_problem& problem, schedule_method method) {
    try {
        static_cast<void>(baseline_schedule(problem, method));
    } catch (const input_error& e) { return e.what(); }
    return "nothing was thrown";
}

} // namespace

TEST_CASE(
    "every baseline is a schedule of every random uneven problem on which it is defined, and refuses the others") {
    std::mt19937 random{31};
    std::map<schedule_method, int> made;
    std::map<schedule_method, int> refused;
    for (int i = 0; i != 900; ++i) {
        const auto drawn = test::random_instance(random, 5, 2, 12);
        const auto problem = make_problem(drawn.costs, drawn.cut, drawn.options);
        const double bound = lower_bound_us(problem);
        for (const auto method : baseline_methods) {
            INFO("case " << i << ", " << name_of(method) << ", P " << drawn.cut.devices << ", M "
                         << problem.microbatches);
            if (!is_defined(drawn, method)) {
                // a sequential placement is also an interleaved one with one chunk; one device fits every placement
                const auto why = refusal(problem, method);
                if (why == "nothing was thrown") {
                    CHECK((drawn.cut.devices == 1 || method == schedule_method::interleaved));
                } else {
                    ++refused[method];
                }
                continue;
            }
            const auto timed = baseline_schedule(problem, method);
            REQUIRE(describe(find_violation(problem, timed)) == "");
            REQUIRE(has_each_once(problem, timed));
            REQUIRE(timed.makespan_us() >= bound * (1 - 1e-9));
            REQUIRE(baseline_schedule(problem, method) == timed);
            ++made[method];
        }
    }
    for (const auto method : baseline_methods) {
        CAPTURE(name_of(method));
        CHECK(made[method] > 30);
        if (method != schedule_method::gpipe) { CHECK(refused[method] > 100); }
    }
}

TEST_CASE("a baseline keeps a memory limit or says that it cannot; those that adapt do") {
    std::mt19937 random{32};
    std::map<schedule_method, int> unchanged;
    std::map<schedule_method, int> refused;
    std::map<schedule_method, int> adapted;
    for (int i = 0; i != 400; ++i) {
        const auto drawn = test::random_instance(random, 4, 2, 9);
        auto problem = make_problem(drawn.costs, drawn.cut, drawn.options);
        const auto alone = profile_memory(problem, index_problem(problem)).peak_from;
        for (const auto method : baseline_methods) {
            if (!is_defined(drawn, method)) { continue; }
            problem.memory_limit_bytes.clear();
            const auto free = baseline_schedule(problem, method);
            const auto peaks = peak_holds(problem, free);
            problem.memory_limit_bytes = peaks;
            INFO("case " << i << ", " << name_of(method));
            CHECK(baseline_schedule(problem, method).makespan_us() <= free.makespan_us());
            for (const int percent : {90, 70, 40}) {
                bool has_room = true;
                bool same = true;
                for (std::size_t d = 0; d != peaks.size(); ++d) {
                    problem.memory_limit_bytes[d] = peaks[d] * percent / 100;
                    has_room = has_room && alone[d].front() <= problem.memory_limit_bytes[d];
                    same = same && peaks[d] <= problem.memory_limit_bytes[d];
                }
                try {
                    const auto timed = baseline_schedule(problem, method);
                    REQUIRE(describe(find_violation(problem, timed)) == "");
                    if (same) {
                        ++unchanged[method];
                    } else {
                        ++adapted[method];
                    }
                } catch (const infeasible_error&) {
                    CHECK(!same);
                    ++refused[method];
                    // ZB-H1 can always run one microbatch after the other
                    if (method == schedule_method::zb_h1) { CHECK(!has_room); }
                }
            }
        }
    }
    for (const auto method : baseline_methods) {
        CAPTURE(name_of(method));
        CHECK(refused[method] > 10);
        // these choose among several orders; the others have only one
        const bool adapts = method == schedule_method::zb_h1 || method == schedule_method::hanayo;
        if (adapts) {
            CHECK(adapted[method] > 5);
        } else if (method != schedule_method::zb_v) {
            CHECK(adapted[method] == 0);
        }
    }
}

TEST_CASE("ZB-H1 holds no more than the device of 1F1B that holds most") {
    std::mt19937 random{33};
    int seen = 0;
    for (int i = 0; i != 1500; ++i) {
        const auto drawn = test::random_instance(random, 5, 1, 12);
        if (!is_defined(drawn, schedule_method::zb_h1)) { continue; }
        const auto problem = make_problem(drawn.costs, drawn.cut, drawn.options);
        const auto allowed = peak_holds(problem, one_f_one_b(problem));
        for (const auto peak : peak_holds(problem, zb_h1(problem))) {
            CHECK(peak <= *std::max_element(allowed.begin(), allowed.end()));
        }
        ++seen;
    }
    CHECK(seen > 50);
}

TEST_CASE("a refusal says which order needs what of the problem") {
    const auto folded = test::chain_problem(test::placed(placement::folded, 2, 1), 2, 4, true, 1, 1, 1);
    const auto waves = test::chain_problem(test::placed(placement::folded, 2, 2), 2, 4, true, 1, 1, 1);
    const auto whole = test::chain_problem(test::placed(placement::folded, 2, 1), 2, 4, false, 1, 1, 1);
    const auto sequential = test::chain_problem(test::placed(placement::sequential, 2, 1), 2, 4, true, 1, 1, 1);
    const auto unsplit = test::chain_problem(test::placed(placement::sequential, 2, 1), 2, 4, false, 1, 1, 1);
    const auto has = [](const std::string& text, const std::string& part) {
        return text.find(part) != std::string::npos;
    };
    using m = schedule_method;
    CHECK(has(refusal(folded, m::interleaved),
              "interleaved needs the interleaved placement; the problem has 4 stages on 2 devices"));
    CHECK(has(refusal(folded, m::zb_h1), "zb-h1 needs one stage on each device: the sequential placement"));
    CHECK(has(refusal(unsplit, m::zb_h1), "zb-h1 needs a split backward"));
    CHECK(has(refusal(sequential, m::zb_v), "zb-v needs the folded placement"));
    CHECK(has(refusal(waves, m::zb_v), "zb-v needs one wave"));
    CHECK(has(refusal(whole, m::zb_v), "zb-v needs a split backward"));
    CHECK(has(refusal(waves, m::dualpipe_v), "dualpipe-v needs one wave"));
    CHECK(has(refusal(whole, m::dualpipe_v), "dualpipe-v needs a split backward"));
    CHECK(has(refusal(sequential, m::hanayo), "hanayo needs the folded placement"));
    CHECK(has(refusal(folded, m::list), "list: it is not a published method"));
}

TEST_CASE("devices may come in any order along the stages") {
    // folded over devices 2, 0, 1: same times as over 0, 1, 2
    const std::vector<int> names{2, 0, 1};
    for (const auto kind : {placement::folded, placement::sequential, placement::interleaved}) {
        auto places = test::placed(kind, 3, kind == placement::sequential ? 1 : kind == placement::folded ? 1 : 2);
        const auto plain = test::chain_problem(places, 3, 7, true, 2, 3, 2, 0.5);
        for (int& d : places) { d = names[static_cast<std::size_t>(d)]; }
        const auto renamed = test::chain_problem(places, 3, 7, true, 2, 3, 2, 0.5);
        for (const auto method : baseline_methods) {
            if (!unmet_need(method, kind, kind == placement::interleaved ? 2 : 1, true).empty()) { continue; }
            CAPTURE(name_of(method));
            const auto timed = baseline_schedule(renamed, method);
            CHECK(describe(find_violation(renamed, timed)) == "");
            CHECK(timed.makespan_us() == baseline_schedule(plain, method).makespan_us());
        }
    }
}
