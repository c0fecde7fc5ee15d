#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/check_pictures.hpp>
#include <pulse/data/conditioning.hpp>
#include <pulse/data/decode.hpp>
#include <pulse/data/file.hpp>
#include <pulse/data/folder_files.hpp>
#include <pulse/data/picture_index.hpp>
#include <pulse/data/picture_names.hpp>
#include <pulse/data/stored_picture.hpp>
#include <pulse/data/text.hpp>
#include <pulse/io/png.hpp>
#include <pulse/model/extent.hpp>

namespace pulse::data {

namespace detail {

/// Throws input_error naming the first picture for which `has(i)` is false and the number of such pictures.
template <class Has>
void require_conditioning_images(const picture_index& index, const std::string& where, const Has& has) {
    std::uint32_t lacking = 0;
    std::uint32_t first = 0;
    for (std::uint32_t i = index.size(); i-- != 0;) {
        if (has(i)) { continue; }
        ++lacking;
        first = i;
    }
    if (lacking != 0) {
        throw input_error(index.name(first) + " has no conditioning image" + where + "; " + std::to_string(lacking) +
                          " of " + std::to_string(index.size()) + " pictures have none");
    }
}

/// Whether two sizes have one shape, where a side of either may be rounded by a pixel.
[[nodiscard]] constexpr bool same_shape(const extent& a, const extent& b) noexcept {
    // Divided by a side of one size: the pixels by which a side of the other differs from what that shape implies.
    const std::int64_t difference = std::int64_t{a.height} * b.width - std::int64_t{b.height} * a.width;
    return (difference < 0 ? -difference : difference) <= std::max({a.height, a.width, b.height, b.width});
}

} // namespace detail

PULSE_PICTURES_INLINE std::string conditioning_name(const picture_index& index, std::uint32_t i) {
    return '\'' + one_line((index.conditioning_folder / index.entries.at(i).conditioning).string()) + '\'';
}

namespace detail {

/// Throws input_error naming the conditioning image of picture `i` unless it has the shape of the picture; both sizes
/// are upright.
inline void require_shape(const picture_index& index, std::uint32_t i, const extent& image, const extent& picture) {
    if (same_shape(image, picture)) { return; }
    const auto side_by_side = [](const extent& size) {
        return std::to_string(size.width) + " x " + std::to_string(size.height) + " pixels";
    };
    throw input_error(conditioning_name(index, i) + ": " + side_by_side(image) + " do not have the shape of " +
                      index.name(i) + ", which has " + side_by_side(picture));
}

} // namespace detail

PULSE_PICTURES_INLINE void require_conditioning(const picture_index& index) {
    detail::require_conditioning_images(index, ": the metadata name none, and no folder of them is given",
                                        [&](std::uint32_t i) { return !index.entries[i].conditioning.empty(); });
}

PULSE_PICTURES_INLINE void take_conditioning(picture_index& index, const std::filesystem::path& folder) {
    const auto shown = [](const std::filesystem::path& path) { return '\'' + one_line(path.string()) + '\''; };
    if (index.layout == picture_layout::shards) {
        throw input_error(shown(index.folder) + " holds shards: conditioning images in " + shown(folder) +
                          " are found by file name, but these pictures are not files");
    }
    const folder_files files{folder};
    std::map<std::string_view, std::vector<std::string>> by_stem;
    for (const std::string& name : files.pictures) { by_stem[split_ending(name).stem].push_back(name); }
    std::vector<std::string> taken(index.size());
    for (std::uint32_t i = 0; i != index.size(); ++i) {
        const auto found = by_stem.find(split_ending(index.entries[i].name).stem);
        if (found == by_stem.end()) { continue; }
        const std::vector<std::string>& names = found->second;
        if (names.size() != 1) {
            throw input_error(index.name(i) + " has two conditioning images, " + shown(folder / names[0]) + " and " +
                              shown(folder / names[1]) + ": it is not clear which one is meant");
        }
        taken[i] = names.front();
    }
    detail::require_conditioning_images(index, " in " + shown(folder),
                                        [&](std::uint32_t i) { return !taken[i].empty(); });
    for (std::uint32_t i = 0; i != index.size(); ++i) { index.entries[i].conditioning = std::move(taken[i]); }
    index.conditioning_folder = folder;
}

PULSE_PICTURES_INLINE void check_conditioning(const picture_index& index, std::span<const picture_size> pictures) {
    require_conditioning(index);
    picture_index images{.folder = index.conditioning_folder, .layout = picture_layout::sidecars};
    for (const picture_entry& entry : index.entries) { images.entries.push_back({.name = entry.conditioning}); }
    const pictures_check found =
        check_pictures(images, static_cast<int>(std::thread::hardware_concurrency()), {}, true);
    if (!found.bad.empty()) {
        throw input_error(found.bad.front().why + "; " + std::to_string(found.bad.size()) + " of " +
                          std::to_string(index.size()) + " conditioning images cannot be read");
    }
    const auto of = [](const picture_size& size) {
        return extent{static_cast<int>(size.height), static_cast<int>(size.width)};
    };
    for (std::uint32_t i = 0; i != index.size(); ++i) {
        if (pictures[i] != picture_size{}) { detail::require_shape(index, i, of(found.sizes[i]), of(pictures[i])); }
    }
}

PULSE_PICTURES_INLINE std::vector<float> conditioning_of(const captioned_pictures& of, std::uint32_t i,
                                                         std::uint64_t position, const extent& original,
                                                         const extent& size) {
    const extent seen = of.size_of(i);
    const int scale = size.height / seen.height;
    if (scale < 1 || size != extent{scale * seen.height, scale * seen.width}) {
        throw error("pictures: the size of conditioning images must be a multiple of the pictures' size");
    }
    const picture_entry& entry = of.index().entries.at(i);
    if (entry.conditioning.empty()) { throw input_error(of.index().name(i) + " has no conditioning image"); }
    const picture_limits& limits = of.options().limits;
    const std::string name = conditioning_name(of.index(), i);
    const input_file file{of.index().conditioning_folder / entry.conditioning};
    const io::picture stored = decode_picture(file.text(0, file.size(), limits.most_file_bytes), name, limits);
    detail::require_shape(of.index(), i, {stored.height, stored.width}, original);
    return of.seen_over(i, position, stored, original, scale);
}

PULSE_PICTURES_INLINE std::vector<float> read_conditioning(const std::filesystem::path& path, const extent& size) {
    const picture_limits limits;
    const input_file file{path};
    const io::picture stored = decode_picture(file.text(0, file.size(), limits.most_file_bytes), file.name(), limits);
    try {
        return detail::cropped(stored, detail::cover(stored.height, stored.width, size, false, {}), false, 0.0F);
    } catch (const input_error& fault) { throw input_error(file.name() + ": " + fault.what()); }
}

} // namespace pulse::data
