#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/cuda/kernels/diffusion.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/train/dataset.hpp>

namespace pulse::cuda {

/// A data set's images as bytes on the calling thread's device; tasks of several ranks of a device may share them.
///
/// The data set, which must outlive this, keeps the training order and the choice of mirrored images.
class device_images {
public:
    /// Copies all images. Throws input_error when an image has more elements than a kernel can index.
    explicit device_images(const train::image_dataset& data) : data_{data}, pixels_{data.pixels().size()} {
        if (data.elements() > static_cast<std::size_t>(std::numeric_limits<int>::max() / 2)) {
            throw input_error{"device_images: an image must have fewer than 2^30 elements, not " +
                              std::to_string(data.elements())};
        }
        const int padding = data.options().padding;
        layout_ = {data.height() - 2 * padding, data.width() - 2 * padding, data.channels(), padding};
        upload<std::uint8_t>(data.pixels().data(), pixels_.data(), pixels_.size());
    }

    [[nodiscard]] const train::image_dataset& data() const noexcept { return data_; }
    [[nodiscard]] const image_layout& layout() const noexcept { return layout_; }
    [[nodiscard]] const std::uint8_t* pixels() const noexcept { return pixels_.data(); }
    [[nodiscard]] std::int64_t bytes() const noexcept { return static_cast<std::int64_t>(pixels_.bytes()); }

private:
    const train::image_dataset& data_;
    device_memory<std::uint8_t> pixels_;
    image_layout layout_;
};

} // namespace pulse::cuda
