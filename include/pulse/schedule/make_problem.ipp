#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/hardware/link.hpp>
#include <pulse/partition/device_speed.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/make_problem.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/stage_memory.hpp>

namespace pulse {

namespace detail {

constexpr void require_valid_cut(const cost_table& costs, const partition& cut, const problem_options& options) {
    const auto fail = [](const char* what) { throw input_error(std::string{"make_problem: "} + what); };
    const int layers = static_cast<int>(costs.layers.size());
    if (cut.devices < 1) { fail("partition.devices is less than 1"); }
    if (cut.stages.empty()) { fail("partition.stages is empty"); }
    int next = 0;
    for (const auto& s : cut.stages) {
        if (s.device < 0 || s.device >= cut.devices) { fail("partition.stages: a device is out of range"); }
        if (s.first_layer != next || s.last_layer < s.first_layer) {
            fail("partition.stages must cover the layers in order, without gaps or empty stages");
        }
        next = s.last_layer + 1;
    }
    if (next != layers) { fail("the partition does not end with the last layer of the cost table"); }
    for (const auto& e : costs.skips) {
        if (e.from < 0 || e.to <= e.from || e.to >= layers) { fail("cost_table.skips must go forward between layers"); }
    }
    if (options.microbatches < 1) { fail("microbatches is less than 1"); }
    if (options.previews < 0 || options.previews > options.microbatches) {
        fail("previews must be from 0 to microbatches");
    }
    check_device_speed(options.device_speed, cut.devices);
    const std::size_t devices = static_cast<std::size_t>(cut.devices);
    const std::size_t limits = options.memory_limit_bytes.size();
    if (limits > 1 && limits != devices) { fail("memory_limit_bytes must have 0, 1 or P values for P devices"); }
    if (!options.links.empty() && options.links.size() != devices * devices) {
        fail("links must be empty or have P x P entries for P devices");
    }
}

} // namespace detail

PULSE_CONSTEXPR schedule_problem make_problem(const cost_table& costs, const partition& cut,
                                              const problem_options& options) {
    detail::require_valid_cut(costs, cut, options);
    const auto& stages = cut.stages;
    const int count = static_cast<int>(stages.size());
    schedule_problem problem{};
    problem.devices = cut.devices;
    problem.microbatches = options.microbatches;
    problem.split_backward = options.split_backward;
    for (const auto& s : stages) {
        stage_timing timing{s.device, 0, 0, 0};
        for (int l = s.first_layer; l <= s.last_layer; ++l) {
            const layer_cost& layer = costs.layers[static_cast<std::size_t>(l)];
            timing.forward_us += layer.forward_us;
            timing.backward_input_us += layer.backward_input_us;
            (options.split_backward ? timing.backward_weight_us : timing.backward_input_us) += layer.backward_weight_us;
        }
        const double speed = detail::speed_of(options.device_speed, s.device);
        timing.forward_us /= speed;
        timing.backward_input_us /= speed;
        timing.backward_weight_us /= speed;
        problem.stages.push_back(timing);
    }
    if (options.previews > 0) {
        problem.previews = options.previews;
        for (auto& timing : problem.stages) { timing.preview_us = timing.forward_us; }
    }
    if (options.recompute == recomputation::skips) {
        const auto readers = detail::first_local_readers(costs, stages);
        const auto once = problem.stages;
        for (std::size_t s = 0; s != readers.size(); ++s) {
            if (readers[s] >= 0) {
                problem.stages[static_cast<std::size_t>(readers[s])].forward_us += once[s].forward_us;
            }
        }
    }

    for (int s = 0; s != count; ++s) {
        stage_timing& timing = problem.stages[static_cast<std::size_t>(s)];
        if (options.recompute.is_whole(s)) { timing.backward_input_us += timing.forward_us; }
    }

    const auto lag = [&](int from, int to, std::int64_t bytes) {
        const int a = stages[static_cast<std::size_t>(from)].device;
        const int b = stages[static_cast<std::size_t>(to)].device;
        if (a == b) { return 0.0; }
        const auto& links = options.links;
        return (links.empty() ? options.link : links[static_cast<std::size_t>(a * cut.devices + b)]).transfer_us(bytes);
    };
    auto& dependencies = problem.dependencies;
    for (int s = 0; s + 1 < count; ++s) {
        const int last_layer = stages[static_cast<std::size_t>(s)].last_layer;
        std::int64_t bytes = costs.layers[static_cast<std::size_t>(last_layer)].sent_bytes() + costs.conditioning_bytes;
        std::int64_t back =
            costs.layers[static_cast<std::size_t>(last_layer)].returned_bytes() + costs.conditioning_gradient_bytes();
        for (const auto& edge : costs.skips) {
            const int from = stage_of(stages, edge.from);
            const int to = stage_of(stages, edge.to);
            const bool relayed = options.routing == skip_routing::relayed && !detail::share_device(stages, from, to);
            if (!relayed || from > s || s >= to) { continue; }
            bytes += edge.bytes;
            back += costs.gradient_bytes(edge);
        }
        dependencies.push_back({{pass::forward, s}, {pass::forward, s + 1}, lag(s, s + 1, bytes)});
        const bool nothing = back == 0 && costs.layers[static_cast<std::size_t>(last_layer)].forward_only();
        dependencies.push_back(
            {{pass::backward_input, s + 1}, {pass::backward_input, s}, nothing ? 0.0 : lag(s + 1, s, back)});
    }
    dependencies.push_back({{pass::forward, count - 1}, {pass::backward_input, count - 1}, 0});
    if (options.split_backward) {
        for (int s = 0; s != count; ++s) {
            dependencies.push_back({{pass::backward_input, s}, {pass::backward_weight, s}, 0});
        }
    }
    if (options.routing == skip_routing::direct) {
        for (const auto& edge : costs.skips) {
            const int from = stage_of(stages, edge.from);
            const int to = stage_of(stages, edge.to);
            if (detail::share_device(stages, from, to)) { continue; }
            dependencies.push_back({{pass::forward, from}, {pass::forward, to}, lag(from, to, edge.bytes)});
            if (costs.layers[static_cast<std::size_t>(edge.from)].forward_only()) { continue; }
            dependencies.push_back(
                {{pass::backward_input, to}, {pass::backward_input, from}, lag(to, from, costs.gradient_bytes(edge))});
        }
    }

    problem.holds = detail::make_holds(costs, stages, options.split_backward, options.routing, options.recompute);
    if (options.previews > 0) {
        std::vector<dependency> preview{};
        for (const auto& d : dependencies) {
            if (d.before.op != pass::forward || d.after.op != pass::forward) { continue; }
            preview.push_back({{pass::preview, d.before.stage}, {pass::preview, d.after.stage}, d.lag_us});
        }
        const auto& predicted = costs.layers.back();
        preview.push_back({{pass::preview, count - 1}, {pass::forward, 0}, lag(count - 1, 0, predicted.output_bytes)});
        dependencies.insert(dependencies.end(), preview.begin(), preview.end());
        detail::add_preview_holds(costs, stages, options.routing, problem.holds);
    }
    problem.memory_limit_bytes = options.memory_limit_bytes;
    if (problem.memory_limit_bytes.size() == 1) {
        problem.memory_limit_bytes.assign(static_cast<std::size_t>(cut.devices), options.memory_limit_bytes.front());
    }
    return problem;
}

} // namespace pulse
