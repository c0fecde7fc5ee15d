#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/model/parameter.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/train/initial_values.hpp>
#include <pulse/zoo/controlnet.hpp>

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
