#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

#include <plan/random_plan.hpp>
#include <pulse/core/error.hpp>
#include <pulse/plan/fingerprint.hpp>
#include <pulse/plan/gradient_places.hpp>
#include <pulse/plan/json.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/planned.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/simulate/simulator.hpp>

namespace {

using namespace pulse;

/// One device and four stages of one layer each with the given parameter counts and pass order: "F0" and so on.
struct four_stages {
    cost_table costs{};
    plan made{};

    four_stages(const std::vector<std::int64_t>& parameters, const std::vector<std::pair<pass, int>>& order,
                int microbatches = 1) {
        costs.model = label{"four"};
        costs.microbatch_size = 1;
        made.microbatches = microbatches;
        made.gradient_release = true;
        made.split_backward = std::any_of(
            order.begin(), order.end(), [](const std::pair<pass, int>& p) { return p.first == pass::backward_weight; });
        made.cut = {placement::folded, 1, 2, {}};
        for (int s = 0; s != 4; ++s) {
            layer_cost layer{};
            layer.name = label{"l"} + static_cast<unsigned>(s);
            layer.parameter_bytes = 4 * parameters[static_cast<std::size_t>(s)];
            layer.saved_bytes = layer.output_bytes = 4;
            costs.layers.push_back(layer);
            made.cut.stages.push_back({s, 0, s, s});
        }
        made.order.devices.resize(1);
        double now_us = 0;
        std::vector<int> done(16, 0);
        for (const auto& [op, stage] : order) {
            int& m = done[static_cast<std::size_t>(static_cast<int>(op) * 4 + stage)];
            made.order.devices[0].push_back({op, stage, m++, now_us, now_us + 1});
            now_us += 1;
        }
    }
    [[nodiscard]] gradient_places places() const {
        const step_model model{made, costs};
        const std::vector<program> programs = lower(made, model);
        return place_gradients(model, adamw_memory(4), {programs.data()});
    }
};

constexpr std::pair<pass, int> F(int stage) { return {pass::forward, stage}; }
constexpr std::pair<pass, int> B(int stage) { return {pass::backward_input, stage}; }
constexpr std::pair<pass, int> W(int stage) { return {pass::backward_weight, stage}; }

const std::vector<std::int64_t> sizes{640, 100, 1000, 200}; // offsets 0, 640, 740, 1740

std::int64_t bytes_of(const four_stages& of) { return peak_bytes(of.made, of.costs, adamw_memory(4)).front(); }

} // namespace

TEST_CASE("stages whose gradients live one after the other need the space of the largest, plus alignment") {
    const four_stages apart{sizes, {F(0), F(1), F(2), F(3), B(3), B(2), B(1), B(0)}};
    // 740 is a multiple of 64 plus 36, 1740 a multiple plus 12.
    CHECK((apart.places() == gradient_places{{0, -640, 36 - 740, 12 - 1740}, 36 + 1000}));
    four_stages keeping = apart;
    keeping.made.gradient_release = false;
    CHECK((keeping.places() == gradient_places{{0, 0, 0, 0}, 1940}));
    CHECK(bytes_of(keeping) - bytes_of(apart) == 4 * (1940 - 1036));
}

TEST_CASE("weight passes that come later keep gradients apart, each as far in front as it fits") {
    // 3 and 2 are alive together, as are 1 and 0.
    const four_stages some{sizes, {F(0), F(1), F(2), F(3), B(3), B(2), W(3), W(2), B(1), B(0), W(1), W(0)}};
    // The largest, 2, gets 36 to 1036; 3 follows it, at a multiple of 64 plus 12; 1 follows 0.
    CHECK((some.places() == gradient_places{{0, 0, 36 - 740, 1036 - 1740}, 1236}));
    // 1 overlaps in time with 0 and 2, which do not overlap: placed first, it leaves them one place.
    const four_stages middle{{100, 1000, 200, 640},
                             {F(0), F(1), F(2), F(3), B(3), W(3), B(2), B(1), W(2), B(0), W(1), W(0)}};
    CHECK((middle.places() == gradient_places{{1088, 36 - 100, 1036 - 1100, 20 - 1300}, 1236}));
    // All are alive together.
    const four_stages all{sizes, {F(0), F(1), F(2), F(3), B(3), B(2), B(1), B(0), W(3), W(2), W(1), W(0)}};
    CHECK((all.places() == gradient_places{{0, 0, 0, 0}, 1940}));
    four_stages keeping = all;
    keeping.made.gradient_release = false;
    CHECK(bytes_of(keeping) == bytes_of(all));
}

TEST_CASE("of several extents, gradients that meet in the steps of any have places of their own") {
    const four_stages one{sizes, {F(0), F(1), F(2), F(3), B(3), W(3), B(2), W(2), B(1), W(1), B(0), W(0)}};
    const four_stages other{sizes, {F(0), F(1), F(2), F(3), B(3), B(2), W(3), W(2), B(1), W(1), B(0), W(0)}};
    const step_model model{one.made, one.costs};
    const std::vector<program> first = lower(one.made, model);
    const std::vector<program> second = lower(other.made, step_model{other.made, other.costs});
    const gradient_places both = place_gradients(model, adamw_memory(4), {first.data(), second.data()});
    CHECK(both.elements == 1236);
    planned run{one.made, one.costs, adamw_memory(4), {}, {1, 1}, {{{{1, 2}, 0.5, other.made}, other.costs}}, 0.5};
    CHECK(peak_bytes(run).front() == bytes_of(other));
    four_stages keeping = other;
    keeping.made.gradient_release = false;
    CHECK(bytes_of(keeping) - bytes_of(other) == 4 * (1940 - 1236));
}

TEST_CASE(
    "gradients that are there at one time never share memory, over random plans, and what is planned is simulated") {
    pulse_test::random_plans draw{91};
    int shared = 0;
    for (int i = 0; i != 200; ++i) {
        pulse_test::planned_model c = draw();
        c.planned.gradient_release = true;
        for (layer_cost& layer : c.costs.layers) { layer.parameter_bytes = draw.between(0, 400); }
        CAPTURE(i);
        const step_model model{c.planned, c.costs};
        const std::vector<program> programs = lower(c.planned, model);
        const parameter_memory kept = adamw_memory(1);
        const std::vector<std::int64_t> peaks = peak_bytes(c.planned, model, programs, kept);
        const simulation ran = simulate(c.planned, model, programs, {.kept = kept});
        for (const program& of_rank : programs) {
            const gradient_places places = place_gradients(model, kept, {&of_rank});
            std::vector<std::int64_t> first(static_cast<std::size_t>(model.stage_count()), -1);
            std::int64_t all = 0;
            for (int s = 0; s != model.stage_count(); ++s) {
                if (model.device_of_stage(s) != of_rank.device) { continue; }
                first[static_cast<std::size_t>(s)] = all + places.shifts[static_cast<std::size_t>(s)];
                REQUIRE(places.shifts[static_cast<std::size_t>(s)] % 64 == 0);
                all += parameter_bytes_of(model, s);
            }
            CHECK(places.elements <= all);
            CHECK(places.elements >= least_gradients_on(model, of_rank.device, kept));
            shared += places.elements < all ? 1 : 0;
            CHECK(ran.memory[static_cast<std::size_t>(of_rank.device)].gradient_bytes == 4 * places.elements);
            // The owner of every element while the program runs; -1 for none.
            std::vector<int> owner(static_cast<std::size_t>(places.elements), -1);
            std::vector<int> left(first.size(), 0);
            const auto is_end = [&](const instruction& what, int s) {
                if (const auto* sum = std::get_if<op::all_reduce>(&what)) { return index_of(sum->stage) == s; }
                if (c.planned.data_degree > 1) { return false; }
                const auto* b = std::get_if<op::backward_input>(&what);
                const auto* w = std::get_if<op::backward_weight>(&what);
                const bool makes =
                    w != nullptr ? index_of(w->stage) == s : b != nullptr && b->with_weight && index_of(b->stage) == s;
                return makes && ++left[static_cast<std::size_t>(s)] == c.planned.microbatches;
            };
            bool good = true;
            for (const instruction& what : of_rank.instructions) {
                if (const auto* b = std::get_if<op::backward_input>(&what)) {
                    const int s = index_of(b->stage);
                    for (std::int64_t k = 0; k != parameter_bytes_of(model, s); ++k) {
                        int& mine = owner.at(static_cast<std::size_t>(first[static_cast<std::size_t>(s)] + k));
                        good = good && (mine == -1 || mine == s);
                        mine = s;
                    }
                }
                for (int s = 0; s != model.stage_count(); ++s) {
                    if (first[static_cast<std::size_t>(s)] < 0 || !is_end(what, s)) { continue; }
                    std::replace(owner.begin(), owner.end(), s, -1);
                }
            }
            CHECK(good);
            CHECK(std::count(owner.begin(), owner.end(), -1) == places.elements);
        }
        c.planned.gradient_release = false;
        const std::vector<std::int64_t> without = peak_bytes(c.planned, c.costs, kept);
        for (std::size_t d = 0; d != peaks.size(); ++d) {
            CHECK(without[d] - peaks[d] == 4 * (parameter_bytes_on(model, static_cast<int>(d)) -
                                                place_gradients(model, kept, {&programs[d]}).elements));
        }
    }
    CHECK(shared > 20);
}

TEST_CASE("a plan's file says that gradients are released, and only then; no cascade's does") {
    pulse_test::random_plans draw{92};
    for (int i = 0; i != 20; ++i) {
        plan p = draw().planned;
        CHECK(print_plan(p).find("gradient_release") == std::string::npos);
        const auto before = fingerprint_of(p);
        p.gradient_release = true;
        CHECK(print_plan(p).find("\n \"gradient_release\": true,\n") != std::string::npos);
        CHECK(parse_plan(print_plan(p)) == p);
        CHECK(fingerprint_of(p) != before);
    }
    four_stages cascade{sizes, {F(0), F(1), F(2), F(3), B(3), B(2), B(1), B(0)}};
    cascade.made.cut.waves = 1;
    cascade.made.further_chains = {2};
    try {
        (void)print_plan(cascade.made);
        FAIL("it was printed");
    } catch (const input_error& e) {
        CHECK(std::string{e.what()} == "plan: further_chains must be absent when gradient_release is set");
    }
}
