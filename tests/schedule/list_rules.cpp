#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/construct/list_engine.hpp>
#include <pulse/schedule/construct/list_rules.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/memory_guard.hpp>
#include <pulse/schedule/problem.hpp>

#include "instances.hpp"

namespace {

namespace list_rules_test {

using namespace pulse;

/// The passes of device 0 under a rule, as letters: "FBWFBW".
std::string passes_under(const detail::list_rule& rule, const schedule_problem& problem) {
    const auto index = detail::index_problem(problem, detail::taken_chains::several);
    const auto memory = detail::profile_memory(problem, index);
    const auto bound = bound_schedule(problem);
    const detail::rule_keys keys{index, bound.head};
    const auto run = detail::run_list(index, memory, keys.of(keys.base(rule)), bound.tail, rule.limits());
    std::string out{};
    for (const int instance : run.order.front()) { out += letter_of(index.pass_of(instance / index.microbatches).op); }
    return out;
}

} // namespace list_rules_test

} // namespace

TEST_CASE("no rule is tried twice, every weight has several values, and the one rule of little effort is the first") {
    using namespace pulse;
    for (const bool previews : {false, true}) {
        const auto rules = detail::list_rules(list_effort::rules, previews);
        for (std::size_t i = 0; i != rules.size(); ++i) {
            CAPTURE(i);
            CHECK(std::find(rules.begin(), rules.begin() + static_cast<std::ptrdiff_t>(i), rules[i]) ==
                  rules.begin() + static_cast<std::ptrdiff_t>(i));
        }
        CHECK(detail::list_rules(list_effort::one, previews).front() == rules.front());
        const auto varies = [&](double detail::list_rule::*weight) {
            return std::any_of(rules.begin(), rules.end(),
                               [&](const auto& rule) { return rule.*weight != rules.front().*weight; });
        };
        // All weights: a new one breaks this binding, as a reminder to check below that it varies.
        [[maybe_unused]] const auto& [forward, early, late, ahead, delay] = rules.front();
        CHECK(varies(&detail::list_rule::forward));
        CHECK(varies(&detail::list_rule::early));
        CHECK(varies(&detail::list_rule::late));
        CHECK(varies(&detail::list_rule::delay));
        CHECK(varies(&detail::list_rule::ahead) == previews);
    }
}

TEST_CASE("late says how long W may wait, early how soon B runs") {
    using namespace list_rules_test;
    const auto problem = test::chain_problem({0}, 1, 3, true, 1, 2, 1);
    CHECK(passes_under({.early = 0, .late = 0}, problem) == "FBWFBWFBW");
    CHECK(passes_under({.early = 0, .late = 1}, problem) == "FBFBWFBWW");
    CHECK(passes_under({.early = 1, .late = 1e6}, problem) == "FBFBFBWWW");
    CHECK(passes_under({.early = -1, .late = 1e6}, problem) == "FFBFBBWWW");
    CHECK(passes_under({.early = -1e6, .late = 1e6}, problem) == "FFFBBBWWW");
}

TEST_CASE("forward says whether a deeper stage is more urgent than the next microbatch") {
    using namespace list_rules_test;
    const auto problem = test::chain_problem({0, 0}, 1, 2, false, 1, 1, 0);
    CHECK(passes_under({.forward = -1}, problem) == "FFBBFFBB");
    CHECK(passes_under({.forward = 1e6}, problem) == "FFFBBFBB");
}

TEST_CASE("ahead says how early previews run") {
    using namespace list_rules_test;
    auto problem = test::chain_problem({0}, 1, 3, false, 1, 1, 0);
    problem.previews = 2;
    problem.stages.front().preview_us = 1;
    problem.dependencies.push_back({{pass::preview, 0}, {pass::forward, 0}, 0});
    CHECK(passes_under({.ahead = 0}, problem) == "FBPFBPFB");
    CHECK(passes_under({.ahead = 1}, problem) == "PFBPFBFB");
    CHECK(passes_under({.ahead = 1e6}, problem) == "PPFBFBFB");
}

TEST_CASE("delay says how long a device waits for a more urgent pass") {
    using namespace list_rules_test;
    const auto problem = test::chain_problem({0, 1}, 2, 2, true, 1, 1, 2, 0.25);
    // The second B is ready 1 after the first W, which takes 2.
    CHECK(passes_under({.early = 1, .late = 1e6, .delay = 0}, problem) == "FFBWBW");
    CHECK(passes_under({.early = 1, .late = 1e6, .delay = 0.49}, problem) == "FFBWBW");
    CHECK(passes_under({.early = 1, .late = 1e6, .delay = 0.51}, problem) == "FFBBWW");
}
