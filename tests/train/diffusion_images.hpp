#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pulse/train/diffusion_task.hpp>

namespace diffusion_tests {

using namespace pulse;
using namespace pulse::train;

inline constexpr int side = 4;
inline constexpr std::size_t elements = side * side;

/// The parts of a work item that the task reads.
struct microbatch_of {
    int microbatch{};
    double* loss{};
};

inline image_dataset images() {
    std::vector<std::uint8_t> pixels(7 * elements);
    for (std::size_t i = 0; i != pixels.size(); ++i) { pixels[i] = static_cast<std::uint8_t>(i * 37 % 256); }
    return {side, side, 1, std::move(pixels), {.seed = 3}};
}

} // namespace diffusion_tests
