#pragma once

#include <cstdint>
#include <vector>

#include <pulse/schedule/schedule.hpp>

namespace pulse {

/// A pass of a stage, for any microbatch.
struct stage_pass {
    pass op{};
    int stage{};

    [[nodiscard]] constexpr bool operator==(const stage_pass&) const = default;
};

/// Durations of one stage and the device that runs it.
struct stage_timing {
    int device{};
    double forward_us{};
    /// Includes the weight gradient when the backward is not split.
    double backward_input_us{};
    /// 0 and unused when the backward is not split.
    double backward_weight_us{};
    /// A forward without the time that recomputation adds; unused where no microbatch has a preview.
    double preview_us{};

    [[nodiscard]] constexpr double duration_us(pass op) const noexcept {
        switch (op) {
        case pass::forward: return forward_us;
        case pass::backward_input: return backward_input_us;
        case pass::backward_weight: return backward_weight_us;
        case pass::preview: return preview_us;
        }
        return 0;
    }
};

/// `after` of a microbatch starts no earlier than `lag_us` past the end of `before` of the same microbatch.
struct dependency {
    stage_pass before{};
    stage_pass after{};
    double lag_us{};
};

/// Bytes held on a device from the start of `begin` until both `end` and `also_end` of the same microbatch have ended.
struct memory_hold {
    int device{};
    stage_pass begin{};
    stage_pass end{};
    stage_pass also_end{};
    std::int64_t bytes{};
};

/// What a scheduler orders: M identical microbatches through S stages. Several backbones on one set of devices form
/// several chains of stages.
struct schedule_problem {
    int devices{1};
    int microbatches{1};
    bool split_backward{true};
    std::vector<stage_timing> stages{};
    /// All dependencies, including the chain F(s) -> F(s+1), F(S-1) -> B(S-1), B(s+1) -> B(s), B(s) -> W(s), where S is
    /// the number of stages of a chain.
    std::vector<dependency> dependencies{};
    std::vector<memory_hold> holds{};
    /// Per device: the most bytes that `holds` may add up to at any instant; empty means unlimited.
    std::vector<std::int64_t> memory_limit_bytes{};
    /// First stages of the further chains, ascending. Of the searches for orders, only list_search accepts them, and
    /// only without memory limits.
    std::vector<int> further_chains{};
    /// The last `previews` microbatches have a preview: P(s) -> P(s+1), P(S-1) -> F(0) are among the dependencies. Of
    /// the searches for orders, only list_search accepts previews.
    int previews{};

    [[nodiscard]] constexpr int passes_per_stage() const noexcept { return split_backward ? 3 : 2; }
    /// The first microbatch that has a pass of this kind.
    [[nodiscard]] constexpr int first_microbatch(pass op) const noexcept {
        return op == pass::preview ? microbatches - previews : 0;
    }
    [[nodiscard]] constexpr bool has(pass op) const noexcept {
        return op == pass::preview ? previews > 0 : split_backward || op != pass::backward_weight;
    }
};

} // namespace pulse
