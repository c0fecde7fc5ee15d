#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <support/random_frozen.hpp>
#include <pulse/core/label.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/profile/frozen_component.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse_test {

/// A plan with the costs that it was made for.
struct planned_model {
    pulse::cost_table costs{};
    pulse::plan planned{};
};

class random_plans {
public:
    /// `scattered`: stages on random devices with any skips, which no placement has but a plan may.
    explicit random_plans(std::uint32_t seed, bool scattered = false) : random_(seed), scattered_(scattered) {}

    [[nodiscard]] planned_model operator()() {
        planned_model made{};
        pulse::plan& p = made.planned;
        p.model = pulse::label{std::string_view{"random"}};
        p.pipeline_degree = between(1, 4);
        p.data_degree = between(1, 2);
        p.microbatches = between(1, 5);
        p.microbatch_size = between(1, 3);
        p.split_backward = coin();
        p.routing = coin() ? pulse::skip_routing::relayed : pulse::skip_routing::direct;
        p.recompute = static_cast<pulse::recomputation>(between(0, 3));
        p.spare_sends = between(0, 3);
        const auto kind = static_cast<pulse::placement>(between(0, 2));
        const int waves = kind == pulse::placement::sequential ? 1 : between(1, 2);
        p.cut = cut(kind, p.pipeline_degree, waves);
        if (p.recompute.kind == pulse::recomputation::selective) {
            std::mt19937 of_stages{random_}; // separate, so that kinds with flags and without draw the same plans
            for (std::size_t s = 0; s != p.cut.stages.size(); ++s) {
                p.recompute.stages.push_back(of_stages() % 2 == 0);
            }
        }
        made.costs = costs(p.cut);
        made.costs.microbatch_size = p.microbatch_size;
        p.order = order(p, made.costs);
        return made;
    }

    /// Draws frozen components and their tasks.
    void add_frozen_work(planned_model& to) {
        for (unsigned c = 0, count = coin() ? 2 : 1; c != count; ++c) {
            pulse::frozen_component one{};
            one.name = pulse::label{std::string_view{"frozen"}} + c;
            one.feeds = static_cast<pulse::frozen_use>(between(0, 3));
            one.result_bytes = 4 * between(1, 50);
            one.max_chunk = to.planned.microbatches * to.planned.microbatch_size;
            for (unsigned l = 0, layers = static_cast<unsigned>(between(1, 5)); l != layers; ++l) {
                one.layers.push_back({pulse::label{std::string_view{"f"}} + l, between(0, 3) * 1.0, between(1, 4) * 1.0,
                                      4 * between(0, 9), 4 * between(1, 60), 4 * between(1, 90)});
            }
            to.costs.frozen.push_back(one);
        }
        pulse::test::draw_frozen_tasks(to.planned, to.costs, random_);
    }

    [[nodiscard]] int between(int low, int high) { return std::uniform_int_distribution<int>{low, high}(random_); }
    [[nodiscard]] bool coin() { return between(0, 1) == 1; }
    [[nodiscard]] std::mt19937& engine() { return random_; }

private:
    std::mt19937 random_;
    bool scattered_;

    [[nodiscard]] pulse::partition cut(pulse::placement kind, int devices, int waves) {
        pulse::partition made{kind, devices, waves, {}};
        int next = 0;
        for (int s = 0; s != pulse::stage_count(kind, devices, waves); ++s) {
            const int last = next + between(0, 3);
            made.stages.push_back(
                {s, scattered_ ? between(0, devices - 1) : pulse::device_of(kind, s, devices), next, last});
            next = last + 1;
        }
        return made;
    }

    /// Skips between any layers, also several from or into one layer; under a folded placement within one device, and
    /// only from layers where no residual is open.
    [[nodiscard]] pulse::cost_table costs(const pulse::partition& cut) {
        pulse::cost_table made{};
        made.model = pulse::label{std::string_view{"random"}};
        const int layers = cut.stages.back().last_layer + 1;
        for (int l = 0; l != layers; ++l) {
            pulse::layer_cost c{};
            c.name = pulse::label{std::string_view{"layer"}} + static_cast<unsigned>(l);
            c.forward_us = between(1, 20);
            c.backward_input_us = between(1, 20);
            c.backward_weight_us = between(1, 20);
            c.saved_bytes = bytes();
            c.output_bytes = bytes() + 4;
            c.deferred_bytes = bytes();
            c.workspace_bytes = bytes();
            if (l + 1 != layers && between(0, 2) == 0) { c.open_bytes = bytes(); }
            made.layers.push_back(c);
        }
        const int edges = between(0, layers);
        for (int e = 0; e != edges && layers > 1; ++e) {
            const int from = between(0, layers - 2);
            const int to = between(from + 1, layers - 1);
            const auto device = [&](int l) {
                return cut.stages[static_cast<std::size_t>(pulse::stage_of(cut.stages, l))].device;
            };
            const bool local = device(from) == device(to);
            if (!scattered_ && cut.kind == pulse::placement::folded && !local) { continue; }
            if (made.layers[static_cast<std::size_t>(from)].open_bytes != 0) { continue; }
            made.skips.push_back({from, to, made.layers[static_cast<std::size_t>(from)].output_bytes});
        }
        made.conditioning_bytes = coin() ? 4 * between(1, 64) : 0;
        // None, some or all of it needs no gradient.
        const int parts = static_cast<int>(made.conditioning_bytes / 4);
        made.frozen_conditioning_bytes = 4 * (coin() ? 0 : coin() ? between(0, parts) : parts);
        made.input_bytes = 4 * between(1, 200);
        return made;
    }
    [[nodiscard]] std::int64_t bytes() { return between(0, 4) == 0 ? 0 : 4 * between(0, 300); }

    /// Any order that the dependencies allow: repeatedly picks a random ready pass, which starts as early as it can.
    [[nodiscard]] pulse::schedule order(const pulse::plan& p, const pulse::cost_table& costs) {
        const int stages = static_cast<int>(p.cut.stages.size());
        const int kinds = p.split_backward ? 3 : 2;
        const auto index = [&](int op, int s, int m) {
            return static_cast<std::size_t>((op * stages + s) * p.microbatches + m);
        };
        std::vector<double> end(static_cast<std::size_t>(kinds * stages * p.microbatches), -1.0);
        const auto ready_at = [&](int op, int s, int m) {
            const auto after = [&](int before_op, int before_s) { return end[index(before_op, before_s, m)]; };
            if (op == 0) { return s == 0 ? 0.0 : after(0, s - 1); }
            if (op == 1) { return s + 1 == stages ? after(0, s) : after(1, s + 1); }
            return after(1, s);
        };
        pulse::schedule made{};
        made.devices.resize(static_cast<std::size_t>(p.cut.devices));
        std::vector<double> free(made.devices.size(), 0.0);
        const bool eager = coin(); // the earliest first, as schedulers do, or any
        while (true) {
            std::vector<pulse::timed_pass> ready{};
            for (int op = 0; op != kinds; ++op) {
                for (int s = 0; s != stages; ++s) {
                    for (int m = 0; m != p.microbatches; ++m) {
                        if (end[index(op, s, m)] >= 0 || ready_at(op, s, m) < 0) { continue; }
                        const pulse::stage& of = p.cut.stages[static_cast<std::size_t>(s)];
                        const double start = std::max(ready_at(op, s, m), free[static_cast<std::size_t>(of.device)]);
                        double duration = 0;
                        for (int l = of.first_layer; l <= of.last_layer; ++l) {
                            const auto& c = costs.layers[static_cast<std::size_t>(l)];
                            duration += op == 0 ? c.forward_us : op == 1 ? c.backward_input_us : c.backward_weight_us;
                            duration += op == 1 && !p.split_backward ? c.backward_weight_us : 0;
                        }
                        ready.push_back({static_cast<pulse::pass>(op), s, m, start, start + duration});
                    }
                }
            }
            if (ready.empty()) { break; }
            std::shuffle(ready.begin(), ready.end(), random_);
            const auto next =
                !eager ? ready.begin() : std::min_element(ready.begin(), ready.end(), [](const auto& a, const auto& b) {
                    return a.start_us < b.start_us;
                });
            const auto d = static_cast<std::size_t>(p.cut.stages[static_cast<std::size_t>(next->stage)].device);
            end[index(static_cast<int>(next->op), next->stage, next->microbatch)] = next->end_us;
            free[d] = next->end_us;
            made.devices[d].push_back(*next);
        }
        return made;
    }
};

} // namespace pulse_test
