#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "signature.hpp"

namespace pulse_bench {

/// One training step of a whole model on one device: forward and backward pass of one microbatch by the executor, the
/// gradient's norm clipped, AdamW on weights in float, and an average of the weights.
struct step_request {
    int batch{};
    int rounds{};            ///< steps whose median counts; three before them make the plans and the graphs
    double time_engines_s{}; ///< time for timing engines; 0: the heuristics' first are taken
};

/// Figures of a step, here or by a peer.
struct step_figures {
    std::string failure{}; ///< why there are no figures; "out of memory" where that is all
    double seconds{};
    double spread_percent{};
    std::int64_t bytes{};   ///< peak of the device
    double loss{};          ///< of the first step
    double gradient_norm{}; ///< of the first step, before it is clipped
    std::int64_t parameters{};
    /// Of the first step: loss, norm, parameters, signatures of the prediction and of the conditioning's gradient.
    std::vector<agreed_number> agreed{};
    double flops{};          ///< of products, the backward pass counted as two forward ones
    std::string attention{}; ///< which engine computed each attention, a line each; of pulse only
    std::string engines{};   ///< what timing engines has shown; of pulse only

    [[nodiscard]] bool out_of_memory() const { return failure == "out of memory"; }
};

/// A model whose step can be measured.
struct step_model {
    const char* name;
    step_figures (*measure)(const step_request&);
};

// Each is compiled separately: a whole model takes the compiler some seconds.
[[nodiscard]] step_figures measure_small(const step_request& request);
[[nodiscard]] step_figures measure_sd21(const step_request& request);
[[nodiscard]] step_figures measure_sdxl(const step_request& request);

[[nodiscard]] inline std::vector<step_model> step_models(bool quick) {
    if (quick) { return {{"small", measure_small}}; }
    return {{"sd21", measure_sd21}, {"sdxl", measure_sdxl}};
}

} // namespace pulse_bench
