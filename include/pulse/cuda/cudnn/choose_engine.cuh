#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime.h>
#include <cudnn.h>

#include <pulse/cuda/cudnn/descriptor.cuh>
#include <pulse/cuda/cudnn/engines.cuh>
#include <pulse/cuda/cudnn/ready_engine.cuh>
#include <pulse/cuda/cudnn/run_time_compiler.cuh>
#include <pulse/cuda/engine_options.cuh>
#include <pulse/cuda/memory.cuh>

namespace pulse::cuda::cudnn {

/// The memory of one bound tensor while a graph's engines are timed.
struct trial_tensor {
    std::int64_t id{};
    std::int64_t bytes{};
};

/// An engine for a graph, or why there is none.
struct choice {
    cudnn::ready_engine made{};
    std::string refusal{}; ///< why the first rejected engine was rejected; empty if none was
    engine_choice* counted{};
};

/// Why a choice has no engine, as a phrase about cuDNN.
[[nodiscard]] inline std::string why_none(const library& dnn, const choice& of) {
    if (!of.refusal.empty()) { return "its first engine was refused: " + of.refusal; }
    if (!compiles_at_run_time({dnn.get(), {}})) { return std::string{"it proposes no engine; "} + compiler_hint; }
    return "it proposes no engine";
}

/// What choices of cuDNN's engines depend on: its version, the kind of device (device_key()) and the workspace limit.
[[nodiscard]] inline std::string choices_hold_for(const std::string& device, const engine_options& options) {
    return "cuDNN " + std::to_string(cudnnGetVersion()) + ", " + device + ", workspace " +
           std::to_string(options.workspace_limit);
}

/// Chooses the engine for a graph on a handle's device, or none if cuDNN has none: the kept one, else the first that
/// can be made within the workspace limit, or, if options ask for timing, the fastest of the first few such: the
/// heuristics' first, then engines that need no compiler before others. Engines that cannot be made ready are skipped.
/// `name` is for a report.
[[nodiscard]] inline choice choose_engine(const library& dnn, cudaStream_t stream, const descriptor& graph,
                                          const engine_rules& rules, const engine_options& options,
                                          const std::string& device, const std::vector<trial_tensor>& tensors,
                                          const std::string& name) {
    const target here{dnn.get(), {}};
    const std::string made_for = choices_hold_for(device, options);
    const std::string what = rules.text() + graph.text();
    if (const auto kept = options.find(made_for, what)) {
        try {
            return {ready_engine{here, kept->text}, {}, kept->counted};
        } catch (const cudnn_error& e) { std::fprintf(stderr, "pulse: ignoring a kept engine: %s\n", e.what()); }
    }
    const engine_trial trial{options};
    const auto wanted = static_cast<std::size_t>(options.next_candidates());
    std::vector<engine_config> engines = engines_for(graph, here, rules);
    if (wanted > 1 && !engines.empty()) {
        std::stable_partition(engines.begin() + 1, engines.end(),
                              [](const engine_config& e) { return !e.run_time_compiled; });
    }
    std::vector<ready_engine> ready;
    std::string refusal;
    for (const engine_config& engine : engines) {
        if (ready.size() == wanted || (!ready.empty() && trial.is_over())) { break; }
        std::string why;
        try {
            ready_engine made{here, engine};
            if (made.workspace_bytes() <= options.workspace_limit) {
                ready.push_back(std::move(made));
                continue;
            }
            why = "it needs " + std::to_string(made.workspace_bytes()) + " bytes of workspace, but the limit is " +
                  std::to_string(options.workspace_limit);
        } catch (const cudnn_error& e) {
            why = e.what();
            if (engine.run_time_compiled) { why += std::string{" ("} + compiler_hint + ")"; }
        }
        if (refusal.empty()) { refusal = std::move(why); }
    }
    if (ready.empty()) { return {{}, std::move(refusal), nullptr}; }
    engine_choice chosen;
    chosen.name = name;
    std::size_t best = 0;
    if (wanted > 1) { chosen.seconds = trial.seconds(); } // rejecting others took time, too
    if (ready.size() > 1) {
        std::int64_t workspace = 0;
        for (const ready_engine& e : ready) { workspace = std::max(workspace, e.workspace_bytes()); }
        const device_memory<std::byte> room{static_cast<std::size_t>(workspace)};
        std::vector<device_memory<std::byte>> memory;
        std::vector<ready_engine::binding> bindings;
        for (const trial_tensor& t : tensors) {
            memory.emplace_back(static_cast<std::size_t>(t.bytes));
            fill_bytes_async(memory.back().data(), 0, memory.back().size(), stream);
            bindings.push_back({t.id, memory.back().data()});
        }
        const fastest_candidate found = fastest(
            stream, ready.size(), [&](std::size_t i) { ready[i].run(dnn.get(), bindings, room.data()); },
            [&] { return trial.is_over(); });
        cuda::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        best = found.index == ready.size() ? 0 : found.index;
        chosen.note_times(found.seconds, found.first_seconds, trial.seconds());
    }
    chosen.engine = ready[best].json();
    return {std::move(ready[best]), {}, options.keep(made_for, what, std::move(chosen))};
}

} // namespace pulse::cuda::cudnn
