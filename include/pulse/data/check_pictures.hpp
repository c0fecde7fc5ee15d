#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/core/text_table.hpp>
#include <pulse/data/decode.hpp>
#include <pulse/data/picture_index.hpp>
#include <pulse/data/stored_picture.hpp>
#include <pulse/model/extent.hpp>

namespace pulse::data {

/// Result of checking the headers of all pictures.
struct pictures_check {
    struct refused {
        std::uint32_t index{}; ///< of the picture
        std::string why{};     ///< its name and what is wrong
    };

    std::uint32_t pictures{};
    picture_size least{}; ///< of good pictures, as stored; ordered by number of pixels, then width
    picture_size most{};
    std::array<std::uint32_t, picture_formats.size()> by_format{};
    std::vector<refused> bad{};        ///< in the order of the index
    std::vector<picture_size> sizes{}; ///< of each picture, upright, if asked for; 0 x 0 for bad ones

    /// For example "1,024 of 640x427 to 4032x3024; 1,000 JPEG, 24 PNG".
    [[nodiscard]] std::string text() const {
        const auto side_by_side = [](const picture_size& size) {
            return std::to_string(size.width) + 'x' + std::to_string(size.height);
        };
        std::string all = grouped(pictures - static_cast<std::int64_t>(bad.size())) + " of " + side_by_side(least);
        if (least != most) { all += " to " + side_by_side(most); }
        const char* between = "; ";
        for (std::size_t i = 0; i != by_format.size(); ++i) {
            if (by_format[i] == 0) { continue; }
            all += between + grouped(by_format[i]) + ' ' + std::string{picture_formats[i].name};
            between = ", ";
        }
        return all;
    }
};

/// Upright height and width of picture `i` from its header. Throws input_error naming it.
[[nodiscard]] PULSE_PICTURES_INLINE extent upright_size(const picture_index& index, std::uint32_t i,
                                                        const picture_limits& limits = {});

/// Checks format, size and limits in the headers of all pictures with several threads, so that most bad files are found
/// before they cost a run. Damage after a header is found only by decoding. With `upright`, the result has the upright
/// size of each picture.
[[nodiscard]] PULSE_PICTURES_INLINE pictures_check
check_pictures(const picture_index& index, int threads = static_cast<int>(std::thread::hardware_concurrency()),
               const picture_limits& limits = {}, bool upright = false);

} // namespace pulse::data

#ifndef PULSE_SEPARATE_PICTURES
#include <pulse/data/check_pictures.ipp> // IWYU pragma: keep
#endif
