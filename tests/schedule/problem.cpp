#include <algorithm>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/schedule/baselines/gpipe.hpp>
#include <pulse/schedule/make_problem.hpp>
#include <pulse/schedule/validate.hpp>

#include "instances.hpp"

namespace {

using namespace pulse;

/// Four layers, one per stage, skips 0 -> 3 and 1 -> 2; powers of ten tell the kinds of bytes apart.
constexpr cost_table u_net() {
    cost_table costs{};
    for (int l = 0; l != 4; ++l) {
        layer_cost c{};
        c.forward_us = 1 + l;
        c.backward_input_us = 10 + l;
        c.backward_weight_us = 100 + l;
        c.saved_bytes = 1;
        c.output_bytes = 10;
        c.deferred_bytes = 100;
        costs.layers.push_back(c);
    }
    costs.skips = {{0, 3, 10}, {1, 2, 10}};
    costs.conditioning_bytes = 1000;
    costs.input_bytes = 10000;
    return costs;
}

constexpr partition cut_of(placement kind, int devices, int stages) {
    partition cut{kind, devices, 1, {}};
    for (int s = 0; s != stages; ++s) { cut.stages.push_back({s, device_of(kind, s, devices), s, s}); }
    return cut;
}

std::int64_t held(const schedule_problem& p, stage_pass begin, stage_pass end, stage_pass also) {
    std::int64_t bytes = 0;
    for (const auto& h : p.holds) { bytes += h.begin == begin && h.end == end && h.also_end == also ? h.bytes : 0; }
    return bytes;
}

double lag_between(const schedule_problem& p, stage_pass before, stage_pass after) {
    for (const auto& d : p.dependencies) {
        if (d.before == before && d.after == after) { return d.lag_us; }
    }
    return -1;
}

constexpr stage_pass F(int s) { return {pass::forward, s}; }
constexpr stage_pass B(int s) { return {pass::backward_input, s}; }
constexpr stage_pass W(int s) { return {pass::backward_weight, s}; }

} // namespace

TEST_CASE("times and lags of a folded partition") {
    problem_options options{};
    options.microbatches = 3;
    options.link = {5, 0.001}; // 1 us per byte
    const auto split = make_problem(u_net(), cut_of(placement::folded, 2, 4), options);
    CHECK(split.microbatches == 3);
    CHECK(split.devices == 2);
    CHECK(split.stages[2].device == 1);
    CHECK(split.stages[2].forward_us == 3);
    CHECK(split.stages[2].backward_input_us == 12);
    CHECK(split.stages[2].backward_weight_us == 102);
    CHECK(lag_between(split, F(0), F(1)) == doctest::Approx(5 + 1010));
    CHECK(lag_between(split, F(1), F(2)) == 0);
    CHECK(lag_between(split, B(3), B(2)) == doctest::Approx(5 + 1010));
    CHECK(lag_between(split, F(3), B(3)) == 0);
    CHECK(lag_between(split, B(2), W(2)) == 0);
    options.split_backward = false;
    const auto whole = make_problem(u_net(), cut_of(placement::folded, 2, 4), options);
    CHECK(whole.stages[2].backward_input_us == 114);
    CHECK(whole.stages[2].backward_weight_us == 0);
    CHECK(lag_between(whole, B(2), W(2)) == -1);
    options.links.assign(4, pulse::link{});
    options.links[0 * 2 + 1] = {7, 0};
    const auto linked = make_problem(u_net(), cut_of(placement::folded, 2, 4), options);
    CHECK(lag_between(linked, F(0), F(1)) == 7); // device 0 to 1
    CHECK(lag_between(linked, F(2), F(3)) == 0); // device 1 to 0
    CHECK(lag_between(linked, B(3), B(2)) == 7);
}

TEST_CASE("skips between devices: direct ones are dependencies, relayed ones ride on every boundary between") {
    problem_options options{};
    options.link = {5, 0.001};
    const auto cut = cut_of(placement::sequential, 4, 4);
    const auto direct = make_problem(u_net(), cut, options);
    CHECK(lag_between(direct, F(0), F(3)) == doctest::Approx(15));
    CHECK(lag_between(direct, B(3), B(0)) == doctest::Approx(15));
    CHECK(lag_between(direct, F(0), F(1)) == doctest::Approx(1015));
    options.routing = skip_routing::relayed;
    const auto relayed = make_problem(u_net(), cut, options);
    CHECK(lag_between(relayed, F(0), F(3)) == -1);
    CHECK(lag_between(relayed, F(0), F(1)) == doctest::Approx(1025));
    CHECK(lag_between(relayed, F(1), F(2)) == doctest::Approx(1035));
    CHECK(lag_between(relayed, B(2), B(1)) == doctest::Approx(1035));
    CHECK(held(relayed, F(1), F(1), F(1)) == 10 + 10); // its output in transit and the skip that passes through
    CHECK(held(direct, F(1), F(1), F(1)) == 10);
    CHECK(held(direct, F(3), W(3), W(3)) == 1 + 10 + 10 + 1000); // saved, input, skip, conditioning
}

TEST_CASE("a residual that is open at a cut goes with the activation, and is held with it") {
    cost_table costs = u_net();
    costs.layers[0].open_bytes = 100000; // device 0 to 1
    costs.layers[1].open_bytes = 200000; // at the fold
    problem_options options{};
    options.link = {5, 0.001};
    const auto cut = cut_of(placement::folded, 2, 4);
    const auto plain = make_problem(u_net(), cut, options);
    const auto open = make_problem(costs, cut, options);
    CHECK(lag_between(open, F(0), F(1)) == doctest::Approx(lag_between(plain, F(0), F(1)) + 100000));
    CHECK(lag_between(open, B(1), B(0)) == doctest::Approx(lag_between(plain, B(1), B(0)) + 100000));
    CHECK(lag_between(open, F(1), F(2)) == 0);
    const auto all = [](const schedule_problem& of) {
        std::int64_t sum = 0;
        for (const memory_hold& h : of.holds) { sum += h.bytes; }
        return sum;
    };
    // Sent and received, forward and backward; at the fold there is one buffer per direction.
    CHECK(all(open) - all(plain) == 4 * 100000 + 2 * 200000);
}

TEST_CASE("a stage takes its layers' times over the speed of its device") {
    problem_options options{};
    options.device_speed = {2.0, 0.5};
    const auto p = make_problem(u_net(), cut_of(placement::folded, 2, 4), options);
    CHECK(p.stages[0].forward_us == 0.5);
    CHECK(p.stages[1].forward_us == 4.0);
    CHECK(p.stages[2].backward_input_us == 24.0);
    CHECK(p.stages[3].backward_weight_us == 51.5);
    options.device_speed = {1.0};
    CHECK_THROWS_WITH_AS(static_cast<void>(make_problem(u_net(), cut_of(placement::folded, 2, 4), options)),
                         "device_speed: it must have one value per device (2), not 1", input_error);
    options.device_speed = {1.0, 0.0};
    CHECK_THROWS_WITH_AS(static_cast<void>(make_problem(u_net(), cut_of(placement::folded, 2, 4), options)),
                         "device_speed: device 1: it must be a number above 0", input_error);
}

TEST_CASE("holds of a folded partition follow the table") {
    const auto p = make_problem(u_net(), cut_of(placement::folded, 2, 4), {});
    CHECK(held(p, F(0), W(0), W(0)) == 1 + 10000 + 1000); // saved, input of the model, conditioning
    CHECK(held(p, F(0), W(0), W(3)) == 10);               // the skip tensor 0 -> 3
    CHECK(held(p, B(3), B(0), B(0)) == 10);               // its gradient
    CHECK(held(p, F(1), W(1), W(2)) == 10 + 1000); // output 1, read by stage 2 here, and a skip; conditioning of 1, 2
    CHECK(held(p, B(2), B(1), B(1)) == 10 + 1000); // gradients of the skip and of the conditioning
    CHECK(held(p, B(2), W(1), W(1)) == 10);        // gradient of stage 1's output, computed by stage 2 on this device
    CHECK(held(p, B(3), W(3), W(3)) == 110);       // deferred, gradient of the output
    CHECK(held(p, F(3), B(3), B(3)) == 10);        // output of the model until its loss is computed
    CHECK(held(p, B(1), B(1), B(1)) == 10);        // gradient in transit to stage 0
    problem_options options{};
    options.split_backward = false;
    const auto whole = make_problem(u_net(), cut_of(placement::folded, 2, 4), options);
    CHECK(held(whole, F(0), B(0), B(0)) == 1 + 10000 + 1000 + 10); // B(3) ends before B(0): the skip is held until then
}

TEST_CASE("recomputed: the forward runs again before the first reader, and is held from there") {
    problem_options options{};
    options.recompute = recomputation::skips;
    const auto p = make_problem(u_net(), cut_of(placement::folded, 2, 4), options);
    CHECK(p.stages[0].forward_us == 1);
    CHECK(p.stages[3].forward_us == 4 + 1);
    CHECK(p.stages[2].forward_us == 3 + 2);
    CHECK(held(p, F(0), W(0), W(0)) == 10000 + 1000); // the inputs needed to run again stay
    CHECK(held(p, F(3), W(0), W(0)) == 1);
    CHECK(held(p, F(3), W(0), W(3)) == 10);
    CHECK(held(p, F(0), F(0), F(0)) == 1 + 10);
    // in a pipeline full of microbatches, device 0 holds the skip only from its reader on
    options.microbatches = 4;
    const auto many = make_problem(u_net(), cut_of(placement::folded, 2, 4), options);
    options.recompute = recomputation::none;
    const auto kept = make_problem(u_net(), cut_of(placement::folded, 2, 4), options);
    const auto after_encoders = [](const schedule_problem& problem) {
        return detail::hold_levels(problem, gpipe(problem).devices[0], 0)[3];
    };
    CHECK(after_encoders(kept) == 4 * (1 + 10 + 11000));
    CHECK(after_encoders(many) == 4 * 11000 + (1 + 10));
}

TEST_CASE("stages: every forward runs again before its backward, and only what it needs is held in between") {
    for (const bool split : {true, false}) {
        problem_options options{};
        options.split_backward = split;
        const auto cut = cut_of(placement::folded, 2, 4);
        const auto kept = make_problem(u_net(), cut, options);
        options.recompute = recomputation::stages;
        const auto p = make_problem(u_net(), cut, options);
        for (std::size_t s = 0; s != 4; ++s) {
            CHECK(p.stages[s].forward_us == kept.stages[s].forward_us);
            CHECK(p.stages[s].backward_input_us == kept.stages[s].backward_input_us + kept.stages[s].forward_us);
            CHECK(p.stages[s].backward_weight_us == kept.stages[s].backward_weight_us);
        }
        const auto last = [&](int s) { return split ? W(s) : B(s); };
        CHECK(held(p, F(0), last(0), last(0)) ==
              1000 + (split ? 0 : 10)); // conditioning; unsplit, the skip ends there too
        CHECK(held(p, B(0), last(0), last(0)) ==
              held(kept, B(0), last(0), last(0)) + 1 + 10000); // saved, model's input
        CHECK(held(p, F(0), F(0), F(0)) == held(kept, F(0), F(0), F(0)) + 1 + 10000);
        CHECK(held(p, F(1), last(1), last(2)) == held(kept, F(1), last(1), last(2))); // input of stage 2 and skip
        CHECK(held(p, F(3), F(3), F(3)) == 1 + 10);                                   // saved, output
    }
}

TEST_CASE("selective: stages that run again have the times and holds of stages, the others those of none") {
    for (const bool split : {true, false}) {
        problem_options options{};
        options.split_backward = split;
        const auto cut = cut_of(placement::folded, 2, 4);
        const auto made = [&](const stage_recomputation& recompute) {
            options.recompute = recompute;
            return make_problem(u_net(), cut, options);
        };
        const auto same = [](const schedule_problem& a, const schedule_problem& b) {
            for (std::size_t s = 0; s != a.stages.size(); ++s) {
                CHECK(a.stages[s].forward_us == b.stages[s].forward_us);
                CHECK(a.stages[s].backward_input_us == b.stages[s].backward_input_us);
            }
            REQUIRE(a.holds.size() == b.holds.size());
            for (std::size_t h = 0; h != a.holds.size(); ++h) {
                CHECK(a.holds[h].begin == b.holds[h].begin);
                CHECK(a.holds[h].end == b.holds[h].end);
                CHECK(a.holds[h].also_end == b.holds[h].also_end);
                CHECK(a.holds[h].bytes == b.holds[h].bytes);
            }
        };
        const auto none = made(recomputation::none);
        const auto all = made(recomputation::stages);
        same(made(stage_recomputation{{1, 1, 1, 1}}), all);
        same(made(stage_recomputation{{0, 0, 0, 0}}), none);
        const auto mixed = made(stage_recomputation{{0, 1, 0, 1}});
        for (const int s : {0, 1, 2, 3}) {
            const auto& like = s % 2 == 1 ? all : none;
            const auto last = split ? W(s) : B(s);
            const auto at = static_cast<std::size_t>(s);
            CHECK(mixed.stages[at].backward_input_us == like.stages[at].backward_input_us);
            CHECK(held(mixed, F(s), F(s), F(s)) == held(like, F(s), F(s), F(s)));
            CHECK(held(mixed, F(s), last, last) == held(like, F(s), last, last));
            CHECK(held(mixed, B(s), last, last) == held(like, B(s), last, last));
        }
    }
}

TEST_CASE("tables, cuts and options that do not fit together are refused by name") {
    const auto refuses = [](const cost_table& costs, const partition& cut, const problem_options& options,
                            const char* words) {
        CHECK_THROWS_WITH_AS((void)make_problem(costs, cut, options), doctest::Contains(words), input_error);
    };
    const auto costs = u_net();
    const auto cut = cut_of(placement::folded, 2, 4);
    auto bad_cut = cut;
    bad_cut.stages[1].device = 2;
    refuses(costs, bad_cut, {}, "partition.stages: a device is out of range");
    bad_cut = cut;
    bad_cut.stages.pop_back();
    refuses(costs, bad_cut, {}, "last layer");
    bad_cut = cut;
    bad_cut.stages[2].first_layer = 3;
    refuses(costs, bad_cut, {}, "cover the layers");
    auto bad_costs = costs;
    bad_costs.skips[0].to = 4;
    refuses(bad_costs, cut, {}, "skip");
    problem_options bad{};
    bad.microbatches = 0;
    refuses(costs, cut, bad, "microbatches");
    bad = {};
    bad.memory_limit_bytes = {1, 2, 3};
    refuses(costs, cut, bad, "memory_limit_bytes");
    bad = {};
    bad.links.resize(3);
    refuses(costs, cut, bad, "links");
    problem_options one{};
    one.memory_limit_bytes = {77};
    CHECK(make_problem(costs, cut, one).memory_limit_bytes == std::vector<std::int64_t>{77, 77});
}

TEST_CASE("a problem in constant evaluation") {
    static_assert(make_problem(u_net(), cut_of(placement::folded, 2, 4)).stages[3].forward_us == 4);
    static_assert(is_valid(make_problem(u_net(), cut_of(placement::folded, 2, 4)),
                           gpipe(make_problem(u_net(), cut_of(placement::folded, 2, 4)))));
    CHECK(make_problem(u_net(), cut_of(placement::folded, 2, 4)).dependencies.size() == 11);
}
