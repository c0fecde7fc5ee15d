#include "picture.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <pulse/plan/lower.hpp>
#include <pulse/plan/print.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/simulate/simulator.hpp>

#include "../instruction_event.hpp"

namespace pulse_plan {

namespace {

/// "encode kl_f8, layers 0 to 3, samples 8 to 11".
std::string title_of(const pulse::frozen_task& t, const pulse::cost_table& costs) {
    const auto range = [](int first, int last) { return std::to_string(first) + " to " + std::to_string(last); };
    return "encode " + costs.frozen[static_cast<std::size_t>(t.component)].name.str() + ", layers " +
           range(t.first_layer, t.last_layer) + ", samples " + range(t.first_sample, t.first_sample + t.samples - 1);
}

std::vector<pictures::timeline_event> events_of(const pulse::simulation& ran,
                                                const std::vector<pulse::program>& programs,
                                                const pulse::tuning& found) {
    std::vector<pictures::timeline_event> events;
    for (std::size_t r = 0; r != ran.ranks.size(); ++r) {
        for (const pulse::simulated_pass& p : ran.ranks[r]) {
            const pulse::instruction& what = programs[r].instructions[static_cast<std::size_t>(p.instruction)];
            auto e = pulse_examples::event_of(what);
            if (!e) { continue; }
            if (const auto* task = std::get_if<pulse::op::encode>(&what)) {
                e->name = title_of(found.plan.frozen_tasks[r][static_cast<std::size_t>(task->task)], found.costs);
            }
            e->rank = static_cast<int>(r);
            e->start_us = p.start_us;
            e->end_us = p.end_us;
            events.push_back(*std::move(e));
        }
    }
    std::int64_t flow = 0;
    for (const pulse::simulated_transfer& t : ran.transfers) {
        pictures::timeline_event e;
        e.flow = ++flow;
        if (!pulse::is_of_frozen_task(t.message.kind)) { e.microbatch = pulse::data_of(t.message.microbatch); }
        e.bytes = t.boundary_bytes + t.skip_bytes;
        e.start_us = t.start_us;
        e.rank = t.from;
        e.lane = 1;
        e.kind = 'S';
        e.end_us = t.left_us;
        e.name = "send " + pulse::to_text(t.message) + " to rank " + std::to_string(t.to);
        events.push_back(e);
        e.rank = t.to;
        e.lane = 2;
        e.kind = 'V';
        e.end_us = t.arrived_us;
        e.name = "receive " + pulse::to_text(t.message) + " from rank " + std::to_string(t.from);
        events.push_back(std::move(e));
    }
    return events;
}

std::vector<pictures::trace_counter> counters_of(const pulse::simulation& ran) {
    std::vector<pictures::trace_counter> counters;
    for (std::size_t r = 0; r != ran.memory.size(); ++r) {
        const pulse::memory_timeline& memory = ran.memory[r];
        const auto add = [&](const char* name, double time_us, std::int64_t bytes) {
            counters.push_back({static_cast<int>(r), name, time_us, static_cast<double>(bytes)});
        };
        add("weights", 0, memory.weight_bytes);
        add("gradients", 0, memory.gradient_bytes);
        add("optimizer", 0, memory.optimizer_bytes);
        add("workspace", 0, memory.workspace_bytes);
        add("activations", 0, 0);
        add("skips", 0, 0);
        for (const pulse::memory_sample& sample : memory.samples) {
            add("activations", sample.time_us, sample.activation_bytes);
            add("skips", sample.time_us, sample.skip_bytes);
        }
    }
    return counters;
}

} // namespace

simulated_step simulate_step(const pulse::tuning& found) {
    const pulse::step_model model{found.plan, found.costs};
    const std::vector<pulse::program> programs = pulse::lower(found.plan, model);
    const pulse::simulation ran = pulse::simulate(found.plan, model, programs, found.world);
    return {events_of(ran, programs, found), counters_of(ran)};
}

} // namespace pulse_plan
