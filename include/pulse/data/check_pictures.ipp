#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <future>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/core/text_table.hpp>
#include <pulse/data/check_pictures.hpp>
#include <pulse/data/decode.hpp>
#include <pulse/data/file.hpp>
#include <pulse/data/picture_index.hpp>
#include <pulse/data/stored_picture.hpp>
#include <pulse/data/webp.hpp>
#include <pulse/model/extent.hpp>

namespace pulse::data {

namespace detail {

/// What the header of one picture says; `why` is empty if it is good.
struct header_check {
    std::size_t format{};
    picture_size size{};
    int orientation = 1;
    std::string why{};
};

/// Reads the beginning of a picture, and more of it until that is enough.
[[nodiscard]] inline header_check check_header(const picture_index& index, std::uint32_t i, bool upright,
                                               const picture_limits& limits) {
    header_check found;
    try {
        const picture_entry& entry = index.entries.at(i);
        const bool in_shard = index.layout == picture_layout::shards;
        const input_file file{index.folder / (in_shard ? index.shards[entry.shard] : entry.name), index.name(i)};
        const std::uint64_t offset = in_shard ? entry.picture.offset : 0;
        const std::uint64_t all = in_shard ? entry.picture.bytes : file.size();
        for (std::uint64_t bytes = std::min<std::uint64_t>(all, 1U << 16U);; bytes = std::min(all, 16 * bytes)) {
            // A file above the limit is refused here as it is by decoding.
            const std::string begin =
                file.text(offset, all > limits.most_file_bytes ? all : bytes, limits.most_file_bytes);
            try {
                const picture_format& format = format_of(begin);
                const std::span there{reinterpret_cast<const std::uint8_t*>(begin.data()), begin.size()};
                found.format = static_cast<std::size_t>(&format - picture_formats.data());
                found.size = format.size(there);
                if (upright && format.orientation != nullptr) {
                    if (format.orientation == webp_orientation && bytes != all) { continue; }
                    found.orientation = format.orientation(there);
                }
            } catch (const input_error& fault) {
                if (bytes != all) { continue; }
                throw input_error(index.name(i) + ": " + fault.what());
            }
            break;
        }
        try {
            require_within(found.size, limits);
        } catch (const input_error& fault) { throw input_error(index.name(i) + ": " + fault.what()); }
    } catch (const input_error& fault) { found.why = fault.what(); }
    return found;
}

/// Swaps height and width of a picture that is stored on its side.
[[nodiscard]] inline picture_size upright(const header_check& found) noexcept {
    return found.orientation >= 5 ? picture_size{found.size.height, found.size.width} : found.size;
}

} // namespace detail

PULSE_PICTURES_INLINE extent upright_size(const picture_index& index, std::uint32_t i, const picture_limits& limits) {
    const detail::header_check found = detail::check_header(index, i, true, limits);
    if (!found.why.empty()) { throw input_error(found.why); }
    const picture_size upright = detail::upright(found);
    return {static_cast<int>(upright.height), static_cast<int>(upright.width)};
}

PULSE_PICTURES_INLINE pictures_check check_pictures(const picture_index& index, int threads,
                                                    const picture_limits& limits, bool upright) {
    std::vector<detail::header_check> headers(index.size());
    std::atomic<std::uint32_t> next = 0;
    std::vector<std::future<void>> done(static_cast<std::size_t>(std::max(threads, 1)));
    for (std::future<void>& one : done) {
        one = std::async(std::launch::async, [&] {
            for (std::uint32_t i = next++; i < headers.size(); i = next++) {
                headers[i] = detail::check_header(index, i, upright, limits);
            }
        });
    }
    for (std::future<void>& one : done) { one.get(); }
    pictures_check result{.pictures = index.size()};
    if (upright) { result.sizes.resize(index.size()); }
    // Compares pixels, then width, so that the order of files does not matter.
    const auto less = [](const picture_size& a, const picture_size& b) {
        const auto key = [](const picture_size& size) {
            return std::pair{std::uint64_t{size.width} * size.height, size.width};
        };
        return key(a) < key(b);
    };
    bool any = false;
    for (std::uint32_t i = 0; i != index.size(); ++i) {
        detail::header_check& found = headers[i];
        if (!found.why.empty()) {
            result.bad.push_back({i, std::move(found.why)});
            continue;
        }
        if (upright) { result.sizes[i] = detail::upright(found); }
        ++result.by_format[found.format];
        result.least = any ? std::min(result.least, found.size, less) : found.size;
        result.most = any ? std::max(result.most, found.size, less) : found.size;
        any = true;
    }
    return result;
}

} // namespace pulse::data
