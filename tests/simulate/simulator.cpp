#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

#include <plan/random_plan.hpp>
#include <pulse/core/error.hpp>
#include <pulse/partition/traffic.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/plan/layout.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/simulate/duration.hpp>
#include <pulse/simulate/simulator.hpp>

using doctest::Approx;
using pulse_test::planned_model;
using pulse_test::random_plans;

namespace {

using programs = std::vector<pulse::program>;

pulse::simulation_options random_options(random_plans& make, int ranks) {
    pulse::simulation_options o{};
    const auto line = [&] {
        return pulse::link{make.between(0, 20) * 0.5, make.coin() ? 0.0 : make.between(1, 200) * 1e-3};
    };
    o.between_ranks = line();
    o.between_replicas = line();
    o.optimizer_us = make.between(0, 10);
    for (int pair = 0; pair != ranks * ranks && make.engine()() % 2 == 0; ++pair) {
        o.links.assign(static_cast<std::size_t>(ranks * ranks), o.between_ranks);
        for (auto& one : o.links) { one = line(); }
        break;
    }
    return o;
}

/// Sum over tensor sizes: the bytes of tensors of that size in the rank's message with the most of them.
std::int64_t bytes_of_largest_sends(const pulse::step_model& model, const pulse::program& of_rank) {
    std::map<std::int64_t, std::int64_t> most{};
    for (const auto& one : of_rank.instructions) {
        const auto* s = std::get_if<pulse::op::send>(&one);
        if (s == nullptr) { continue; }
        std::map<std::int64_t, std::int64_t> here{};
        for (const auto& part : model.parts(s->message, of_rank.device)) {
            here[model.bytes(part)] += model.bytes(part);
        }
        for (const auto& [bytes, sum] : here) { most[bytes] = std::max(most[bytes], sum); }
    }
    std::int64_t sum = 0;
    for (const auto& [bytes, all] : most) { sum += all; }
    return sum;
}

/// The simulator's rules as equations over the end times of all instructions, iterated to a fixed point: slow, without
/// clocks or queues. Returns when each instruction of each rank ends.
std::vector<std::vector<double>> solve(const pulse::plan& planned, const pulse::step_model& model, const programs& all,
                                       const pulse::simulation_options& options) {
    struct transfer {
        double left{}, arrived{};
    };
    std::map<pulse::message_id, transfer> transfers{};
    std::map<std::pair<int, int>, std::vector<pulse::message_id>> wires{};
    std::map<pulse::message_id, std::pair<std::size_t, std::size_t>> posted{}; // instruction of send, of recv
    std::vector<std::vector<double>> end{};
    for (const auto& p : all) {
        end.emplace_back(p.instructions.size(), 0.0);
        for (std::size_t i = 0; i != p.instructions.size(); ++i) {
            if (const auto* s = std::get_if<pulse::op::send>(&p.instructions[i])) {
                wires[{p.device, pulse::index_of(s->peer)}].push_back(s->message);
                posted[s->message].first = i;
            } else if (const auto* v = std::get_if<pulse::op::recv>(&p.instructions[i])) {
                posted[v->message].second = i;
            }
        }
    }
    const auto has = [](const std::vector<pulse::buffer_id>& parts, const pulse::buffer_id& b) {
        return std::find(parts.begin(), parts.end(), b) != parts.end();
    };
    for (bool changed = true; changed;) {
        changed = false;
        for (const auto& [pair, messages] : wires) {
            double free = 0;
            for (const auto& m : messages) {
                const auto from = static_cast<std::size_t>(pair.first);
                const auto to = static_cast<std::size_t>(pair.second);
                std::int64_t bytes = 0;
                for (const auto& part : model.parts(m, pair.second)) { bytes += model.bytes(part); }
                const pulse::link& line =
                    options.links.empty() ? options.between_ranks : options.links[from * all.size() + to];
                const double start = std::max({end[from][posted[m].first], end[to][posted[m].second], free});
                const double wire =
                    line.bandwidth_gb_per_s > 0 ? static_cast<double>(bytes) / 1e3 / line.bandwidth_gb_per_s : 0;
                free = start + wire;
                transfers[m] = {free, free + line.latency_us};
            }
        }
        for (std::size_t r = 0; r != all.size(); ++r) {
            const auto& code = all[r].instructions;
            const int device = static_cast<int>(r);
            double reduced = 0;
            double now = 0;
            std::set<int> begun{}; // stages
            for (std::size_t i = 0; i != code.size(); ++i) {
                // Earlier messages of this rank that carry a buffer touched by i.
                std::vector<std::pair<pulse::buffer_id, bool>> touched{};
                for (const auto& a : model.accesses(device, code[i])) {
                    touched.emplace_back(a.buffer, a.mode != pulse::access::read);
                }
                if (const auto* f = std::get_if<pulse::op::release>(&code[i])) {
                    touched.emplace_back(f->buffer, true);
                }
                for (std::size_t k = 0; k != i; ++k) {
                    const auto* s = std::get_if<pulse::op::send>(&code[k]);
                    const auto* v = std::get_if<pulse::op::recv>(&code[k]);
                    if (s == nullptr && v == nullptr) { continue; }
                    const auto& message = s != nullptr ? s->message : v->message;
                    const auto parts = model.parts(message, device);
                    for (const auto& [buffer, changes] : touched) {
                        if (!has(parts, buffer)) { continue; }
                        if (v != nullptr) { now = std::max(now, transfers[message].arrived); }
                        if (s != nullptr && changes) { now = std::max(now, transfers[message].left); }
                    }
                }
                const auto* b = std::get_if<pulse::op::backward_input>(&code[i]);
                if (b != nullptr && planned.gradient_release && begun.insert(pulse::index_of(b->stage)).second) {
                    now = std::max(now, reduced);
                }
                now += pulse::duration_us(model, static_cast<int>(r), code[i]);
                if (const auto* a = std::get_if<pulse::op::all_reduce>(&code[i])) {
                    const int d = planned.data_degree;
                    std::int64_t bytes = 0;
                    for (int l = 0; l != model.layer_count(); ++l) {
                        bytes +=
                            model.stage_of_layer(l) == pulse::index_of(a->stage) ? model.layer(l).parameter_bytes : 0;
                    }
                    if (bytes > 0) {
                        reduced = std::max(reduced, now) +
                                  2 * (d - 1) * options.between_replicas.transfer_us((bytes + d - 1) / d);
                    }
                }
                if (std::holds_alternative<pulse::op::optimizer_step>(code[i])) {
                    now = std::max(now, reduced) + options.optimizer_us;
                }
                changed = changed || end[r][i] < now;
                end[r][i] = std::max(end[r][i], now);
                now = end[r][i];
            }
        }
    }
    return end;
}

} // namespace

TEST_CASE("the simulator solves the equations of the executor's rules") {
    random_plans make{51};
    for (int i = 0; i != 250; ++i) {
        planned_model c = make();
        if (c.planned.microbatches > 3) { continue; }
        if (i % 2 == 1) { make.add_frozen_work(c); }
        if (i % 3 == 1) {
            c.planned.gradient_release = true;
            for (auto& layer : c.costs.layers) { layer.parameter_bytes = 4 * make.between(0, 2000); }
        }
        const pulse::step_model model{c.planned, c.costs};
        const programs all = pulse::lower(c.planned, model);
        const auto options = random_options(make, c.planned.pipeline_degree);
        const pulse::simulation made = pulse::simulate(c.planned, model, all, options);
        const auto end = solve(c.planned, model, all, options);
        CAPTURE(i);
        double last = 0;
        for (std::size_t r = 0; r != all.size(); ++r) {
            last = std::max(last, end[r].back());
            for (const auto& p : made.ranks[r]) {
                CHECK(p.end_us == Approx(end[r][static_cast<std::size_t>(p.instruction)]).epsilon(1e-9));
            }
        }
        CHECK(made.step_us == Approx(last).epsilon(1e-9));
    }
}

TEST_CASE("passes of a rank do not overlap, messages of a link do not overlap, and all are there once") {
    random_plans make{52};
    for (int i = 0; i != 300; ++i) {
        planned_model c = make();
        if (i % 2 == 1) { make.add_frozen_work(c); }
        const pulse::step_model model{c.planned, c.costs};
        const programs all = pulse::lower(c.planned, model);
        const auto options = random_options(make, c.planned.pipeline_degree);
        const pulse::simulation made = pulse::simulate(c.planned, model, all, options);
        CAPTURE(i);
        double busy = 0;
        for (std::size_t r = 0; r != all.size(); ++r) {
            const auto& passes = made.ranks[r];
            CHECK(passes.size() == static_cast<std::size_t>(std::count_if(
                                       all[r].instructions.begin(), all[r].instructions.end(), pulse::is_compute)));
            for (std::size_t k = 0; k != passes.size(); ++k) {
                busy += passes[k].end_us - passes[k].start_us;
                CHECK(passes[k].end_us <= made.step_us);
                if (k > 0) { CHECK(passes[k].start_us >= passes[k - 1].end_us - 1e-9); }
            }
            busy += options.optimizer_us;
        }
        CHECK(made.bubble_ratio == Approx(1 - busy / made.step_us / c.planned.pipeline_degree));
        CHECK(made.bubble_ratio >= -1e-12);
        CHECK(made.transfers.size() == model.messages({}).size() * static_cast<std::size_t>(c.planned.microbatches) +
                                           model.frozen().messages().size());
        for (std::size_t k = 1; k < made.transfers.size(); ++k) {
            const auto& before = made.transfers[k - 1];
            const auto& t = made.transfers[k];
            CHECK(t.left_us <= t.arrived_us);
            if (t.from == before.from && t.to == before.to) { CHECK(t.start_us >= before.left_us); }
        }
    }
}

TEST_CASE("traffic is what the partition predicts, and live bytes are what check counts") {
    random_plans make{53};
    for (int i = 0; i != 300; ++i) {
        const planned_model c = make();
        const pulse::step_model model{c.planned, c.costs};
        const programs all = pulse::lower(c.planned, model);
        const pulse::simulation made = pulse::simulate(c.planned, model, all);
        const pulse::traffic expected = pulse::traffic_of(c.planned.cut, c.costs, c.planned.routing);
        CHECK(made.boundary_bytes == expected.boundary() * c.planned.microbatches);
        CHECK(made.skip_bytes == expected.skip() * c.planned.microbatches);
        const auto checked = pulse::check(c.planned, model, all).live_peak_bytes;
        REQUIRE(made.memory.size() == checked.size());
        for (std::size_t r = 0; r != checked.size(); ++r) { CHECK(made.memory[r].live_peak_bytes() == checked[r]); }
    }
}

TEST_CASE("slower links never shorten a step, and no step is shorter than its schedule") {
    random_plans make{54};
    double planned_us = 0;
    double simulated_us = 0;
    for (int i = 0; i != 300; ++i) {
        planned_model c = make();
        c.planned.recompute = pulse::recomputation::none;
        const pulse::step_model model{c.planned, c.costs};
        const programs all = pulse::lower(c.planned, model);
        const double free_us = pulse::simulate(c.planned, model, all).step_us;
        CHECK(free_us >= c.planned.order.makespan_us() - 1e-6);
        planned_us += c.planned.order.makespan_us();
        simulated_us += free_us;
        std::vector<double> narrower(4, free_us); // by latency, at the previous bandwidth
        for (const double bandwidth : {1.0, 0.1, 0.01}) {
            double before = free_us;
            for (std::size_t k = 0; k != narrower.size(); ++k) {
                const double now = pulse::simulate(c.planned, model, all,
                                                   {.between_ranks = {5.0 * static_cast<double>(k), bandwidth},
                                                    .links = {},
                                                    .between_replicas = {},
                                                    .optimizer_us = 0})
                                       .step_us;
                CHECK(now >= before - 1e-6);
                CHECK(now >= narrower[k] - 1e-6);
                before = narrower[k] = now;
            }
        }
    }
    MESSAGE("step over schedule with free links: " << simulated_us / planned_us);
    CHECK(simulated_us <= 1.05 * planned_us);
}

TEST_CASE("more slots for what is on its way never lengthen a step, and take no more than they are") {
    random_plans make{56};
    int shorter = 0;
    for (int i = 0; i != 200; ++i) {
        planned_model c = make();
        const pulse::step_model model{c.planned, c.costs};
        auto options = random_options(make, c.planned.pipeline_degree);
        double before_us = std::numeric_limits<double>::infinity();
        std::vector<std::int64_t> blocking{};
        std::vector<std::int64_t> one_send{}; // by tensor size: the most in one message of the rank
        CAPTURE(i);
        for (const int spare : {0, 1, 2, 4, 1000}) {
            c.planned.spare_sends = spare;
            const programs all = pulse::lower(c.planned, model);
            REQUIRE(pulse::check(c.planned, model, all).ok());
            const double now_us = pulse::simulate(c.planned, model, all, options).step_us;
            CHECK(now_us <= before_us + 1e-9 * now_us);
            shorter += spare > 0 && now_us < before_us - 1e-6 ? 1 : 0;
            before_us = now_us;
            for (std::size_t r = 0; r != all.size(); ++r) {
                const auto slots = pulse::lay_out(model, all[r]).slot_bytes;
                const std::int64_t sum = std::accumulate(slots.begin(), slots.end(), std::int64_t{0});
                if (spare == 0) {
                    blocking.push_back(sum);
                    one_send.push_back(bytes_of_largest_sends(model, all[r]));
                }
                CHECK(sum >= blocking[r]);
                CHECK(sum <= blocking[r] + spare * one_send[r]);
            }
        }
    }
    CHECK(shorter > 20);
}

TEST_CASE("two stages on two ranks, by hand") {
    // F 10, B 20 (unsplit, W 0) each; messages of 1000 bytes at 0.1 GB/s: 10 us on the wire, 3 us of latency.
    planned_model c{};
    c.planned.pipeline_degree = 2;
    c.planned.split_backward = false;
    c.planned.cut = {pulse::placement::sequential, 2, 1, {{0, 0, 0, 0}, {1, 1, 1, 1}}};
    c.costs.layers.resize(2);
    for (auto& l : c.costs.layers) {
        l.output_bytes = 1000;
        l.forward_us = 10;
        l.backward_input_us = 20;
    }
    c.planned.order.devices = {{{pulse::pass::forward, 0, 0, 0, 1}, {pulse::pass::backward_input, 0, 0, 3, 4}},
                               {{pulse::pass::forward, 1, 0, 1, 2}, {pulse::pass::backward_input, 1, 0, 2, 3}}};
    const pulse::step_model model{c.planned, c.costs};
    const programs all = pulse::lower(c.planned, model);
    const pulse::simulation made = pulse::simulate(
        c.planned, model, all, {.between_ranks = {3, 0.1}, .links = {}, .between_replicas = {}, .optimizer_us = 5});
    REQUIRE(made.transfers.size() == 2);
    CHECK(made.transfers[0].start_us == Approx(10));
    CHECK(made.transfers[0].left_us == Approx(20));
    CHECK(made.transfers[0].arrived_us == Approx(23));
    CHECK(made.ranks[1][0].start_us == Approx(23));
    CHECK(made.ranks[1][1].end_us == Approx(53));
    CHECK(made.ranks[0][1].start_us == Approx(66));
    CHECK(made.step_us == Approx(91));
    CHECK(made.bubble_ratio == Approx(1 - 70.0 / 182));
    CHECK(made.boundary_bytes == 2000);
}

TEST_CASE("programs that disagree are refused") {
    random_plans make{55};
    int refused = 0;
    for (int i = 0; i != 200; ++i) {
        const planned_model c = make();
        const pulse::step_model model{c.planned, c.costs};
        programs all = pulse::lower(c.planned, model);
        for (auto& p : all) {
            const auto found = std::find_if(p.instructions.begin(), p.instructions.end(), [](const auto& one) {
                return std::holds_alternative<pulse::op::recv>(one);
            });
            if (found == p.instructions.end()) { continue; }
            p.instructions.erase(found);
            CHECK_THROWS_AS((void)pulse::simulate(c.planned, model, all), pulse::input_error);
            ++refused;
            break;
        }
    }
    CHECK(refused > 50);
}
