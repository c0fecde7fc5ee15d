#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

#include <plan/random_plan.hpp>
#include <pulse/core/error.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/plan/layout.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/make_problem.hpp>
#include <pulse/simulate/simulator.hpp>

#include "contended.hpp"

namespace shared_link_tests {

using doctest::Approx;
using pulse_test::planned_model;

TEST_CASE("a shared link carries one message at a time, and what goes forwards comes back") {
    random_plans make{62};
    for (int i = 0; i != 200; ++i) {
        planned_model c = make();
        for (auto& l : c.costs.layers) { l.parameter_bytes = make.between(0, 50) * 8; }
        const pulse::step_model model{c.planned, c.costs};
        const auto options = contended(make, c.planned.pipeline_degree);
        const auto ranks = static_cast<std::size_t>(c.planned.pipeline_degree);
        const pulse::simulation made = pulse::simulate(c.planned, model, pulse::lower(c.planned, model), options);
        int links = 0;
        for (const auto* routes : {&options.routes, &options.replica_routes}) {
            for (const auto& route : *routes) { links = std::max({links, route.first + 1, route.second + 1}); }
        }
        std::vector<std::vector<std::pair<double, double>>> taken(static_cast<std::size_t>(links));
        std::int64_t boundary[2] = {0, 0}; // forward, backward
        std::int64_t skip[2] = {0, 0};
        for (const auto& t : made.transfers) {
            const auto pair = static_cast<std::size_t>(t.from) * ranks + static_cast<std::size_t>(t.to);
            const auto route = options.routes[pair];
            for (const int shared : std::set<int>{route.first, route.second}) {
                if (shared < 0) { continue; }
                taken[static_cast<std::size_t>(shared)].emplace_back(t.start_us, t.left_us);
            }
            const std::size_t way = pulse::step_model::is_backward(t.message) ? 1 : 0;
            boundary[way] += t.boundary_bytes;
            skip[way] += t.skip_bytes;
        }
        // Time of the rings as if they ran alone.
        std::vector<double> ring_us(taken.size());
        for (std::size_t r = 0; r != ranks && !options.replica_routes.empty(); ++r) {
            for (const int shared : std::set<int>{options.replica_routes[r].first, options.replica_routes[r].second}) {
                if (shared < 0) { continue; }
                const double wire_us =
                    static_cast<double>(made.gradient_bytes[r]) / 1e3 / options.between_replicas.bandwidth_gb_per_s;
                ring_us[static_cast<std::size_t>(shared)] += wire_us;
            }
        }
        for (std::size_t k = 0; k != taken.size(); ++k) {
            std::sort(taken[k].begin(), taken[k].end());
            double busy = 0;
            for (std::size_t n = 0; n != taken[k].size(); ++n) {
                if (n > 0) { CHECK(taken[k][n].first >= taken[k][n - 1].second); }
                busy += taken[k][n].second - taken[k][n].first;
            }
            CHECK(busy + ring_us[k] <= made.step_us * (1 + 1e-9));
        }
        // Forward bytes come back as gradients, except conditioning that needs none.
        std::int64_t frozen = 0;
        for (const auto& t : made.transfers) {
            frozen += t.message.kind == pulse::message_kind::boundary ? c.costs.frozen_conditioning_bytes : 0;
        }
        CHECK(boundary[0] == boundary[1] + frozen);
        CHECK(skip[0] == skip[1]);
        CHECK(boundary[0] + boundary[1] == made.boundary_bytes);
        CHECK(skip[0] + skip[1] == made.skip_bytes);
    }
}

TEST_CASE("no simulated step is shorter than the bound of its problem") {
    random_plans make{63};
    double closest = std::numeric_limits<double>::infinity();
    for (int i = 0; i != 300; ++i) {
        planned_model c = make();
        c.planned.data_degree = make.between(1, 4);
        const pulse::step_model model{c.planned, c.costs};
        auto options = contended(make, c.planned.pipeline_degree);
        draw_replicas(make, options, c.planned.pipeline_degree, c.planned.data_degree);
        if (make.coin()) { options.routes.clear(); }
        options.optimizer_us = 0;
        options.device_optimizer_us.clear();
        pulse::problem_options ask{};
        ask.microbatches = c.planned.microbatches;
        ask.split_backward = c.planned.split_backward;
        ask.routing = c.planned.routing;
        ask.recompute = c.planned.recompute;
        ask.links = options.links;
        ask.device_speed = options.device_speed;
        const pulse::simulation made = pulse::simulate(c.planned, model, pulse::lower(c.planned, model), options);
        auto problem = pulse::make_problem(c.costs, c.planned.cut, ask);
        if (c.planned.recompute != pulse::recomputation::none) {
            // The problem makes a recompute wait with its pass, the simulator does not: the bound is that without
            // recomputation.
            ask.recompute = pulse::recomputation::none;
            problem = pulse::make_problem(c.costs, c.planned.cut, ask);
        }
        const double bound = pulse::lower_bound_us(problem);
        CAPTURE(i);
        CHECK(made.step_us >= bound * (1 - 1e-12));
        closest = std::min(closest, made.step_us / bound);
    }
    MESSAGE("closest to its bound: " << closest);
    CHECK(closest < 1.01);
}

TEST_CASE("memory over time peaks where check and the layout say, and is given back") {
    random_plans make{64};
    bool skips_wait = false;
    for (int i = 0; i != 300; ++i) {
        planned_model c = make();
        for (auto& l : c.costs.layers) { l.parameter_bytes = make.between(0, 50) * 8; }
        const pulse::step_model model{c.planned, c.costs};
        const programs all = pulse::lower(c.planned, model);
        auto options = contended(make, c.planned.pipeline_degree);
        options.kept.scratch = {.library_bytes = 1000, .copies_of_weights = 1};
        const pulse::simulation made = pulse::simulate(c.planned, model, all, options);
        const auto checked = pulse::check(c.planned, model, all).live_peak_bytes;
        std::int64_t sent = 0;
        std::int64_t parameters = 0;
        for (std::size_t r = 0; r != all.size(); ++r) {
            const pulse::memory_timeline& m = made.memory[r];
            const pulse::memory_layout layout = pulse::lay_out(model, all[r]);
            CHECK(m.live_peak_bytes() == checked[r]);
            CHECK(m.live_peak_bytes() == layout.live_peak_bytes);
            const std::int64_t scratch = pulse::scratch_bytes_on(model, all[r].device, options.kept);
            CHECK(m.workspace_bytes == layout.workspace_bytes + scratch);
            CHECK(m.peak_bytes() == m.weight_bytes * 5 + m.replica_bytes + m.workspace_bytes + checked[r]);
            CHECK((m.replica_bytes > 0) == (c.planned.data_degree > 1));
            double before = 0;
            for (const auto& s : m.samples) {
                CHECK(s.time_us >= before);
                CHECK(s.activation_bytes >= 0);
                CHECK(s.skip_bytes >= 0);
                before = s.time_us;
                skips_wait = skips_wait || s.skip_bytes > 0;
                if (c.costs.skips.empty()) { CHECK(s.skip_bytes == 0); }
            }
            CHECK(before <= made.step_us);
            CHECK(m.samples.back().activation_bytes + m.samples.back().skip_bytes == 0);
            parameters += m.weight_bytes;
            sent += made.gradient_bytes[r];
        }
        std::int64_t expected = 0;
        for (const auto& l : c.costs.layers) { expected += l.parameter_bytes; }
        CHECK(parameters == expected);
        // Every replica sends 2 (D - 1) / D of its gradients, each message rounded up.
        CHECK(sent >= 2 * expected * (c.planned.data_degree - 1) / c.planned.data_degree);
        if (c.planned.data_degree == 1) { CHECK(sent == 0); }
    }
    CHECK(skips_wait);
}

TEST_CASE("a reduction costs what its rounds cost: nothing for one replica, the formula on links of its own, more on "
          "others'") {
    random_plans make{66};
    int alone = 0;
    int reduced = 0;
    int delayed_messages = 0;
    int delayed_reductions = 0;
    for (int i = 0; i != 200; ++i) {
        planned_model c = make();
        c.planned.data_degree = make.between(1, 4);
        for (auto& l : c.costs.layers) { l.parameter_bytes = make.between(1, 50) * 8; }
        const pulse::step_model model{c.planned, c.costs};
        const programs all = pulse::lower(c.planned, model);
        const auto ranks = static_cast<std::size_t>(c.planned.pipeline_degree);
        const int d = c.planned.data_degree;
        auto apart = contended(make, c.planned.pipeline_degree);
        apart.replica_routes.clear();
        apart.optimizer_us = 0;
        draw_replicas(make, apart, c.planned.pipeline_degree, d);
        apart.device_optimizer_us.clear();
        const pulse::simulation made = pulse::simulate(c.planned, model, all, apart);
        CAPTURE(i);
        if (d == 1) {
            pulse::simulation_options plain = apart;
            plain.replica_rounds.clear();
            plain.between_replicas = {};
            plain.kept = {.scalar_bytes = apart.kept.scalar_bytes};
            const pulse::simulation before = pulse::simulate(c.planned, model, all, plain);
            CHECK(made.step_us == before.step_us);
            CHECK(made.ranks == before.ranks);
            CHECK(made.replica_bytes == 0);
            ++alone;
            continue;
        }
        // Passes run as without replicas; then reductions run one after the other, each once its stage is over.
        double last = 0;
        for (std::size_t r = 0; r != ranks; ++r) {
            double free = 0;
            double own_end = 0;
            std::int64_t weights = 0;
            std::vector<pulse::replica_round> rounds(static_cast<std::size_t>(d - 1), {apart.between_replicas});
            if (!apart.replica_rounds.empty()) { rounds = apart.replica_rounds[r]; }
            for (const auto& p : made.ranks[r]) {
                own_end = std::max(own_end, p.end_us);
                const auto next = static_cast<std::size_t>(p.instruction) + 1;
                for (std::size_t k = next; k != all[r].instructions.size(); ++k) {
                    if (pulse::is_compute(all[r].instructions[k])) { break; }
                    const auto* sum = std::get_if<pulse::op::all_reduce>(&all[r].instructions[k]);
                    if (sum == nullptr) { continue; }
                    std::int64_t bytes = 0;
                    for (int l = 0; l != model.layer_count(); ++l) {
                        bytes +=
                            model.stage_of_layer(l) == pulse::index_of(sum->stage) ? model.layer(l).parameter_bytes : 0;
                    }
                    weights += bytes;
                    bytes *= apart.kept.scalar_bytes == 2 ? 2 : 1;
                    free = std::max(free, p.end_us);
                    for (const auto& round : rounds) {
                        const double once =
                            round.line.transfer_us(round.messages * round.shares * ((bytes + d - 1) / d));
                        free += apart.kept.sharded ? once : 2 * once;
                    }
                }
            }
            // The optimizer waits for messages in flight.
            for (const auto& t : made.transfers) {
                if (t.from == static_cast<int>(r)) { own_end = std::max(own_end, t.left_us); }
            }
            double end = std::max(own_end, free);
            for (const auto& round : rounds) {
                const std::int64_t share = apart.kept.sharded ? (weights + d - 1) / d : 0;
                if (share != 0) { end += round.line.transfer_us(round.messages * round.shares * share); }
            }
            last = std::max(last, end);
        }
        CHECK(made.step_us == Approx(last));
        ++reduced;
        // On the links of the pipeline's messages the two wait for each other.
        auto shared = apart;
        shared.replica_routes.assign(ranks, {0, -1});
        shared.routes.assign(ranks * ranks, {0, -1});
        for (auto& of_rank : shared.replica_rounds) {
            for (auto& round : of_rank) { round.shared = true; }
        }
        auto without = shared;
        without.replica_routes.clear();
        const pulse::simulation both = pulse::simulate(c.planned, model, all, shared);
        const pulse::simulation alone_on_it = pulse::simulate(c.planned, model, all, without);
        CHECK(both.replica_bytes == made.replica_bytes);
        CHECK(both.boundary_bytes == made.boundary_bytes);
        double arrived[2] = {0, 0};
        for (const auto& t : both.transfers) { arrived[0] += t.arrived_us; }
        for (const auto& t : alone_on_it.transfers) { arrived[1] += t.arrived_us; }
        delayed_messages += arrived[0] > arrived[1] + 1e-6 ? 1 : 0;
        delayed_reductions += both.step_us > alone_on_it.step_us + 1e-6 ? 1 : 0;
    }
    MESSAGE("alone " << alone << ", reduced " << reduced << ", messages delayed in " << delayed_messages
                     << ", steps in " << delayed_reductions);
    CHECK(alone > 20);
    CHECK(reduced > 50);
    CHECK(delayed_messages > 20);
    CHECK(delayed_reductions > 20);
}

TEST_CASE("options that do not fit the ranks are refused") {
    random_plans make{65};
    const planned_model c = make();
    const pulse::step_model model{c.planned, c.costs};
    const programs all = pulse::lower(c.planned, model);
    const auto refuses = [&](const auto& change, const char* words) {
        pulse::simulation_options o{};
        change(o);
        CHECK_THROWS_WITH_AS((void)pulse::simulate(c.planned, model, all, o), doctest::Contains(words),
                             pulse::input_error);
    };
    refuses([](auto& o) { o.links.resize(99); }, "links");
    refuses([](auto& o) { o.routes.resize(99); }, "routes");
    refuses([&](auto& o) { o.routes.assign(all.size() * all.size(), {-2, 0}); }, "routes");
    refuses([](auto& o) { o.replica_routes.resize(99); }, "replica_routes");
    refuses([&](auto& o) { o.replica_routes.assign(all.size(), {0, -2}); }, "replica_routes");
    refuses([](auto& o) { o.device_speed.resize(99, 1.0); }, "device_speed");
    refuses([&](auto& o) { o.device_speed.assign(all.size(), 0.0); }, "device_speed");
    refuses([](auto& o) { o.device_optimizer_us.resize(99); }, "device_optimizer_us");
    refuses([](auto& o) { o.replica_rounds.resize(99); }, "replica_rounds");
    refuses([&](auto& o) { o.replica_rounds.assign(all.size(), std::vector<pulse::replica_round>(9)); },
            "replica_rounds");
    refuses([](auto& o) { o.kept.state_bytes = -1; }, "state_bytes");
    refuses([](auto& o) { o.kept.scalar_bytes = 0; }, "scalar_bytes");
    refuses([](auto& o) { o.kept.gradient_bytes = 0; }, "gradient_bytes");
    refuses([](auto& o) { o.kept.conditioning_parameters = -1; }, "conditioning_parameters");
}

} // namespace shared_link_tests
