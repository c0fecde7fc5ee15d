#include <pulse/schedule/fill/joint_justifier.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/fill/fill_schedule.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/schedule/validate_fill.hpp>

#include "instances.hpp"

namespace {

using namespace pulse;
using detail::orders_of;
using pulse::test::chain_problem;
using pulse::test::end_us;
using pulse::test::limited_problem;
using pulse::test::placed;
using pulse::test::up_to;

/// Layers as long as passes and longer, some of no length; sometimes a link, few hosts, or work behind all.
frozen_work coarse_work(std::mt19937& random, int devices) {
    frozen_work out{};
    for (int c = up_to(random, 1, 2); c != 0; --c) {
        out.components.push_back({"f", frozen_use::input, 0, 0, up_to(random, 1, 2), {}});
        out.components.back().name = out.components.back().name + static_cast<unsigned>(c);
        for (int l = up_to(random, 1, 4); l != 0; --l) {
            const std::int64_t made = up_to(random, 0, 3);
            out.components.back().layers.push_back(
                {"layer", 0, 1.0 * up_to(random, 0, 8), 0, made, made + up_to(random, 3, 5)});
        }
    }
    out.samples = up_to(random, 1, 16);
    if (up_to(random, 0, 1) == 0) { out.link = {0.3, 0.01}; }
    for (int d = 0; d != devices && up_to(random, 0, 1) == 0; ++d) { out.after_us.push_back(up_to(random, 0, 5)); }
    if (out.after_us.size() != static_cast<std::size_t>(devices)) { out.after_us.clear(); }
    return out;
}

/// Eight devices with four stages each and as much work as passes, in layers of several passes' length.
struct far_case {
    schedule_problem problem{chain_problem(placed(placement::folded, 8, 2), 8, 8, false, 10, 10, 10, 1)};
    frozen_work work{{{"encoder", frozen_use::input, 0, 0, 1, {}}}, 16, {}, {}};

    far_case() {
        auto& of = work.components[0];
        for (const double length : {1, 14, 14, 2, 11, 14, 2, 11, 14, 2, 4, 4, 4, 4, 4}) {
            of.layers.push_back({"layer", 0, length, 0, 0, 0});
        }
        double busy = 0;
        for (const double b : busy_us(problem)) { busy += b; }
        const double factor = busy / least_work_us(of, work.samples);
        for (auto& l : of.layers) { l.sample_us *= factor; }
    }
};

} // namespace

TEST_SUITE("host") {
    TEST_CASE("joint fill: justification is valid, never later, and says when all ends") {
        std::mt19937 random{1};
        int sooner = 0;
        int reordered = 0;
        for (int round = 0; round != 600; ++round) {
            CAPTURE(round);
            auto problem = limited_problem(random, 4, 2, 5, round);
            problem.memory_limit_bytes.clear();
            const auto passes = list_schedule(problem);
            const auto work = coarse_work(random, problem.devices);
            const auto first = fill_schedule(problem, passes, work, 0.0, {.placements = 1, .reorder_passes = false});
            REQUIRE(orders_of(first.passes) == orders_of(passes));
            std::vector<double> after = work.after_us;
            after.resize(static_cast<std::size_t>(problem.devices), 0.0);
            detail::joint_justifier joint{detail::frame_of(problem, passes, after), work, after};
            auto found = first;
            std::int64_t left = 0;
            const double said = joint.justify(found, end_us(work, first), 5, left);
            REQUIRE_NOTHROW(validate_fill(problem, work, found.passes, found.tasks));
            REQUIRE(said == end_us(work, found));
            REQUIRE(said <= end_us(work, first));
            CHECK(left < 0);
            sooner += said < end_us(work, first) ? 1 : 0;
            reordered += orders_of(found.passes) != orders_of(passes) ? 1 : 0;
        }
        MESSAGE(sooner << " sooner, " << reordered << " with other orders");
        CHECK(sooner > 50);
        CHECK(reordered > 20);
    }

    TEST_CASE("joint fill: a pass that follows a delayed one moves into the gap before it") {
        // Device 0 waits from 4 to 6 for B of microbatch 0, though F of microbatch 1 fits there.
        const auto problem = chain_problem(placed(placement::sequential, 2, 1), 2, 2, false, 2, 1, 1, 0);
        const frozen_work work{{{"f", {}, 0, 0, 1, {{"a", 0, 1, 0, 0, 0}}}}, 1, {}, {}};
        filled_schedule fill{};
        fill.passes.devices = {{{pass::forward, 0, 0, 0, 2},
                                {pass::backward_input, 0, 0, 6, 8},
                                {pass::forward, 0, 1, 8, 10},
                                {pass::backward_input, 0, 1, 14, 16}},
                               {{pass::forward, 1, 0, 2, 4},
                                {pass::backward_input, 1, 0, 4, 6},
                                {pass::forward, 1, 1, 10, 12},
                                {pass::backward_input, 1, 1, 12, 14}}};
        fill.tasks = {{}, {{0, 0, 0, 0, 1, 1, 0, 1}}};
        REQUIRE_NOTHROW(validate_fill(problem, work, fill.passes, fill.tasks));
        const std::vector<double> after{0, 0};
        detail::joint_justifier joint{detail::frame_of(problem, fill.passes, after), work, after};
        std::int64_t left = 100;
        CHECK(joint.justify(fill, 16, 3, left) < 16);
        CHECK_NOTHROW(validate_fill(problem, work, fill.passes, fill.tasks));
        CHECK(fill.passes.devices[0][1].op == pass::forward);
    }

    TEST_CASE("joint fill: other orders of passes never end later, are valid, within memory and the same again") {
        std::mt19937 random{2};
        int sooner = 0;
        int limited = 0;
        for (int round = 0; round != 500; ++round) {
            CAPTURE(round);
            auto problem = limited_problem(random, 6, 2, 8, round);
            for (auto& limit : problem.memory_limit_bytes) { limit += 2 * up_to(random, 8, 20); }
            const auto passes = list_schedule(problem);
            const auto work = coarse_work(random, problem.devices);
            const double bound = lower_bound_us(problem);
            filled_schedule kept{};
            kept = fill_schedule(problem, passes, work, bound, {.placements = 2000, .reorder_passes = false});
            const auto found = fill_schedule(problem, passes, work, bound, {.placements = 2000});
            REQUIRE_NOTHROW(validate_fill(problem, work, found.passes, found.tasks));
            REQUIRE(orders_of(kept.passes) == orders_of(passes));
            REQUIRE(end_us(work, found) <= end_us(work, kept));
            REQUIRE(found == fill_schedule(problem, passes, work, bound, {.placements = 2000}));
            const bool gains = end_us(work, found) < end_us(work, kept);
            sooner += gains ? 1 : 0;
            limited += gains && !problem.memory_limit_bytes.empty() ? 1 : 0;
        }
        MESSAGE(sooner << " sooner, " << limited << " of them within memory limits");
        CHECK(sooner > 5);
        CHECK(limited > 2);
    }

    TEST_CASE("joint fill: passes change their order where that ends sooner") {
        const far_case of{};
        const auto passes = list_schedule(of.problem);
        const double bound = passes.makespan_us();
        const auto kept = fill_schedule(of.problem, passes, of.work, bound, {.reorder_passes = false});
        const auto found = fill_schedule(of.problem, passes, of.work, bound);
        REQUIRE_NOTHROW(validate_fill(of.problem, of.work, found.passes, found.tasks));
        MESSAGE((100 * kept.gap()) << " % with the orders kept, " << (100 * found.gap()) << " % with others");
        CHECK(found.makespan_us() < kept.makespan_us() * (1 - 1e-3));
        CHECK(orders_of(found.passes) != orders_of(passes));
    }
}

TEST_SUITE("constexpr") {
    TEST_CASE("joint fill: passes can change their order when it is compiled") {
        constexpr bool valid = [] {
            schedule_problem problem = chain_problem(placed(placement::folded, 2, 1), 2, 2, false, 2, 2, 2, 1);
            frozen_work work{
                {{"f", frozen_use::input, 0, 0, 1, {{"a", 0, 5, 0, 0, 0}, {"b", 0, 1, 0, 0, 0}}}}, 3, {}, {}};
            auto passes = list_schedule(problem);
            auto kept = fill_schedule(problem, passes, work, 0.0, {.placements = 40, .reorder_passes = false});
            auto found = fill_schedule(problem, passes, work, 0.0, {.placements = 40});
            validate_fill(problem, work, found.passes, found.tasks);
            return found.makespan_us() <= kept.makespan_us() && kept.gap() > 0.01;
        }();
        static_assert(valid);
        CHECK(valid);
    }
}
