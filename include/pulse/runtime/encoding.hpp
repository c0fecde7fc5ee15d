#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <pulse/plan/frozen_flow.hpp>
#include <pulse/schedule/frozen_work.hpp>

namespace pulse {

/// Values of consecutive samples, stored one after the other in memory of the backend's space.
struct encoding_piece {
    int first_sample{};
    int samples{};
    std::byte* data{};
};

/// The address of a sample of `bytes` bytes in the piece that holds it.
[[nodiscard]] inline std::byte* sample_in(std::span<const encoding_piece> pieces, int sample,
                                          std::int64_t bytes) noexcept {
    auto at = pieces.begin();
    while (sample < at->first_sample || sample >= at->first_sample + at->samples) { ++at; }
    return at->data + (sample - at->first_sample) * bytes;
}

/// One call of a frozen task: layers `what.first_layer` to `what.last_layer` of its component.
struct encoding {
    frozen_task what{};
    /// Whether the samples belong to the next step rather than to the one about to begin.
    bool for_next_step{};
    /// Inputs, if the task continues chains of others: their activations, covering its samples; empty for layer 0.
    std::span<const encoding_piece> from{};
    /// Where to write its outputs: one piece for its results, or one for each task that continues.
    std::span<const encoding_piece> to{};
};

/// Results of frozen tasks for the samples of a step, on a rank that reads them.
class encoded_results {
public:
    encoded_results(const frozen_flow& flow, int device, const std::byte* room) noexcept :
        flow_{&flow}, device_{device}, room_{room} {}

    [[nodiscard]] bool has(int component) const noexcept { return flow_->room_offset(device_, component) >= 0; }
    /// A component's result that the rank reads, for sample `sample` of the replica's step; the next sample's follows
    /// it.
    [[nodiscard]] const std::byte* of(int component, int sample) const noexcept {
        return room_ + flow_->room_offset(device_, component) + sample * flow_->sample_bytes(component);
    }

private:
    const frozen_flow* flow_;
    int device_;
    const std::byte* room_;
};

/// An executor's task that runs frozen tasks: `encode(call)` performs the call, and `encoded(results)` is called before
/// each step with the results for it, which stay valid until the step ends.
template <class T>
concept encodes = requires(T& t, const encoding& call, const encoded_results& results) {
    t.encode(call);
    t.encoded(results);
};

} // namespace pulse
