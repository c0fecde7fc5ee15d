#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pulse/model/parameter.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/runtime/weight_order.hpp>
#include <pulse/train/initial_values.hpp>
#include <pulse/zoo/controlnet.hpp>
#include <pulse/zoo/stable_diffusion.hpp>

using namespace pulse;

TEST_CASE("a ControlNet's copy begins with the locked weights, and its controls with 0") {
    auto owned = whole_model<controlnet_tiny, float>();
    train::initialise_frozen<controlnet_tiny>(owned, 3);
    const std::vector<float> initial = train::initial_values<controlnet_tiny>(owned, 3);
    CHECK(initial == train::with_locked_values<controlnet_tiny>(owned, initial));
    for (float& value : owned.frozen_values()) { value += 1; }
    const std::vector<float> moved = train::with_locked_values<controlnet_tiny>(owned, initial);
    std::size_t at = 0;
    for (const auto& block : owned.blocks()) {
        for (const parameter& one : parameters_of<controlnet_tiny>(block.layer)) {
            CAPTURE(one.name.str());
            const bool added = one.name.view().starts_with("controlnet_");
            for (std::int64_t i = 0; i != one.elements(); ++i, ++at) {
                REQUIRE(moved[at] == (added ? initial[at] : initial[at] + 1));
                if (one.zero) { REQUIRE(initial[at] == 0.0F); }
            }
        }
    }
    CHECK(at == initial.size());
}

namespace {

struct channels_last_space : host_space {
    static constexpr weight_order weights = weight_order::channels_last;
};

/// The values of tensors in the checkpoint's order, moved to their channels-last places.
std::vector<float> turned(const std::vector<parameter>& tensors, std::span<const float> values) {
    std::vector<float> made(values.begin(), values.end());
    std::size_t first = 0;
    for (const parameter& p : tensors) {
        const auto n = static_cast<std::size_t>(p.elements());
        const auto channels = static_cast<std::size_t>(p.rank == 4 ? p.dims[1] : 1);
        const auto taps = static_cast<std::size_t>(p.rank == 4 ? p.dims[2] * p.dims[3] : 1);
        for (std::size_t i = 0; i != n; ++i) {
            made[first + (i / taps / channels * taps + i % taps) * channels + i / taps % channels] = values[first + i];
        }
        first += n;
    }
    return made;
}

} // namespace

TEST_CASE("a channels-last space stores weights in that order, and the host sees the checkpoint's order") {
    auto plain = whole_model<controlnet_tiny, float>();
    auto last = whole_model<controlnet_tiny, float, float, channels_last_space>();
    train::initialise_frozen<controlnet_tiny>(plain, 3);
    train::initialise_frozen<controlnet_tiny>(last, 3);
    REQUIRE(!last.frozen_blocks().empty());
    for (const auto& block : last.frozen_blocks()) {
        const auto wanted = plain.frozen_values_of(block.layer);
        const auto found = last.frozen_values_of(block.layer);
        CHECK(std::vector(found.begin(), found.end()) ==
              turned(frozen_parameters_of<controlnet_tiny>(block.layer), wanted));
        CHECK(last.download_frozen(block) == std::vector(wanted.begin(), wanted.end()));
    }

    std::vector<float> initial = train::initial_values<controlnet_tiny>(last, 4);
    CHECK(train::with_locked_values<controlnet_tiny>(last, initial) ==
          train::with_locked_values<controlnet_tiny>(plain, initial));
    std::size_t convolutions = 0;
    for (const auto& block : last.blocks()) {
        const std::vector<parameter> tensors = parameters_of<controlnet_tiny>(block.layer);
        for (const parameter& p : tensors) { convolutions += p.rank == 4 && p.dims[2] > 1 ? 1 : 0; }
        const auto given = std::span{initial}.subspan(block.first, block.size);
        last.upload(block.layer, given);
        const auto found = last.values_of(block.layer);
        CHECK(std::vector(found.begin(), found.end()) == turned(tensors, given));
    }
    CHECK(convolutions > 5);
    std::vector<float> there(last.values().begin(), last.values().end());
    CHECK(there != initial);
    for (const auto& block : last.blocks()) {
        const auto of_block = [&](std::span<const float> all) {
            const auto part = all.subspan(block.first, block.size);
            return std::vector<float>{part.begin(), part.end()};
        };
        std::vector<float> values = of_block(initial);
        plain.to_space(plain.of(block.layer), std::span{values});
        CHECK(values == of_block(initial));
        last.to_space(block, std::span{values});
        CHECK(values == of_block(there));
        last.to_checkpoint(block, std::span{values});
        CHECK(values == of_block(initial));
    }
    last.to_checkpoint(std::span{there});
    CHECK(there == initial);
}

TEST_CASE("weights and biases of a backbone's convolutions begin with whole packs of 8, on whatever rank they are") {
    std::size_t windows = 0;
    for (int layer = conditioning_block; layer != sd21::part_count; ++layer) {
        std::int64_t at = 0; // within the layer
        bool behind_window = false;
        for (const parameter& p : parameters_of<sd21>(layer)) {
            CAPTURE(p.name.str());
            const bool window = p.rank == 4 && p.dims[2] > 1;
            if (window || behind_window) { CHECK(at % 8 == 0); }
            if (window) { windows += static_cast<std::size_t>(p.elements()); }
            behind_window = window;
            at += p.elements();
        }
        CHECK((at % 8 == 0 || layer + 1 == sd21::part_count));
    }
    CHECK(windows == 541002240);
}
