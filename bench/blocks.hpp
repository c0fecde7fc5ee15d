#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "signature.hpp"

namespace pulse_bench {

/// What bench_blocks measures.
struct block_options {
    std::vector<int> batches{1, 4, 16};
    std::vector<std::string> only{}; ///< operations whose name contains one of these; empty: all
    int rounds{11};                  ///< timings, whose median counts
    bool quick{};                    ///< one small shape of each operation; the figures mean nothing
    bool operations{true};
    bool layers{true};

    [[nodiscard]] bool wants(const std::string& operation) const {
        return only.empty() || std::ranges::any_of(only, [&](const std::string& text) {
                   return operation.find(text) != std::string::npos;
               });
    }
};

/// One layer of a UNet: a ResNet block if text_features is 0, else a transformer of one block.
struct block_layer {
    std::string operation{};
    int side{}; ///< of the image
    int channels{};
    int skip{};          ///< channels of the skip
    int conditioning{};  ///< features of the conditioning
    int text_features{}; ///< of each text state
    int tokens{77};      ///< text states
    int head_size{64};

    [[nodiscard]] bool is_transformer() const { return text_features != 0; }
    [[nodiscard]] std::string text() const {
        const std::string image = std::to_string(side) + "x" + std::to_string(side) + "x" + std::to_string(channels);
        return image + (skip != 0 ? "+" + std::to_string(skip) : "") +
               (is_transformer() ? " text " + std::to_string(text_features) : "");
    }
};

/// Blocks of Stable Diffusion 2.1 (images of 96x96) and SDXL (128x128), several levels of each.
[[nodiscard]] inline std::vector<block_layer> layers_of(bool quick) {
    const auto resnet = [](const char* name, int side, int channels, int skip, int conditioning = 1280) {
        return block_layer{name, side, channels, skip, conditioning, 0};
    };
    const auto transformer = [](const char* name, int side, int channels, int text) {
        return block_layer{name, side, channels, 0, 0, text};
    };
    if (quick) { return {resnet("resnet", 4, 32, 32, 64), {"transformer", 4, 32, 0, 0, 48, 7, 16}}; }
    return {resnet("resnet sd21", 96, 320, 0),
            resnet("resnet sd21", 48, 640, 640),
            resnet("resnet sd21", 24, 1280, 1280),
            resnet("resnet sdxl", 128, 320, 320),
            resnet("resnet sdxl", 64, 640, 0),
            resnet("resnet sdxl", 32, 1280, 1280),
            transformer("transformer sd21", 96, 320, 1024),
            transformer("transformer sd21", 48, 640, 1024),
            transformer("transformer sd21", 24, 1280, 1024),
            transformer("transformer sdxl", 64, 640, 2048),
            transformer("transformer sdxl", 32, 1280, 2048)};
}

/// One operation at one shape, or the forward and backward pass of one layer.
struct block_row {
    std::string operation{};
    std::string shape{};
    int batch{};
    double seconds{};         ///< of one run, inputs not in the cache
    double spread_percent{};  ///< half the distance between the quartiles
    double bytes{};           ///< that the operation must move at least
    double flops{};           ///< of its products; 0: bound by memory
    double library_seconds{}; ///< of cuDNN or cuBLASLt called alone; 0: not a single call of theirs
    std::int64_t checked{};
    std::int64_t wrong{};                ///< of the checked numbers
    std::vector<agreed_number> agreed{}; ///< of a layer: signatures of output, inputs' and weights' gradients
    std::string failure{};               ///< why a layer has no figures
};

struct block_report {
    std::string device{};
    int driver{};              ///< CUDA version of the driver, 1000 major + 10 minor
    double bytes_per_second{}; ///< read and written, of a large copy on the device
    double flops_per_second{}; ///< of a large product in bfloat16
    std::vector<block_row> rows{};
    std::vector<block_row> layers{}; ///< the wanted ones of layers_of, for each batch
    std::string attention{};         ///< which engine computed each attention, a line each
};

/// Whether there is a device to measure.
[[nodiscard]] bool has_device();

/// Measures the operations of the CUDA backend in bfloat16 and the layers made of them. Throws where a CUDA call fails;
/// only a layer may run out of memory, which its row says.
[[nodiscard]] block_report measure_blocks(const block_options& options);

} // namespace pulse_bench
