#include "picture_cache.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/fingerprint.hpp>
#if PULSE_TRAIN_PICTURES
#include <pulse/data/encoded_pictures.hpp>
#include <pulse/io/mapped_file.hpp>

#include "picture_parts.hpp"
#endif

namespace pulse_train {

#if PULSE_TRAIN_PICTURES

namespace {

/// Stands for the files of components of a diffusers folder. Throws input_error naming one that cannot be read.
pulse::fingerprint files_of(const std::filesystem::path& folder, const std::vector<std::string>& components) {
    std::vector<std::filesystem::path> files;
    for (const std::string& component : components) {
        for (const auto& entry : std::filesystem::directory_iterator{folder / component}) {
            if (entry.is_regular_file()) { files.push_back(entry.path()); }
        }
    }
    std::sort(files.begin(), files.end());
    pulse::fingerprint all;
    for (const std::filesystem::path& file : files) {
        const pulse::io::mapped_file mapped{file};
        const auto bytes = mapped.bytes();
        all.add(file.filename().string());
        all.add(std::string_view{reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }
    return all;
}

/// The name of condition `which` in files of a cache.
std::string part_name(const sample_row& row, std::size_t which) {
    switch (row.wanted.all()[which].kind) {
    case pulse::condition_kind::text_states:
        return row.find(pulse::condition_kind::text_states) == which ? "states" : "states_2";
    case pulse::condition_kind::pooled_text: return "pooled";
    default: return "mask";
    }
}

/// What a cache has of a caption: `cut`, then what the model reads of it.
std::vector<pulse::data::encoded_part> caption_parts(const sample_row& row) {
    std::vector<pulse::data::encoded_part> all{{"cut", {1}}};
    for (const std::size_t which : row.of_caption()) {
        const pulse::condition& one = row.wanted.all()[which];
        all.push_back({part_name(row, which), {one.tokens, one.features}});
    }
    return all;
}

/// `act()`, whose faults are those of --cache, but for pictures and captions that cannot be read.
template <class Act>
decltype(auto) using_cache(const pulse::data::captioned_pictures& pictures, const Act& act) {
    try {
        return act();
    } catch (const pulse::data::unreadable_picture&) {
        return reading_data(pictures, []() -> decltype(act()) { throw; });
    } catch (const pulse::input_error& fault) { throw pulse::input_error{std::string{"--cache: "} + fault.what()}; }
}

pulse::data::encoded_shapes shapes_of(const arguments& a, const picture_cache::contents& made) {
    try {
        return {.picture = {{"moments", made.moments}},
                .caption = caption_parts(made.row),
                .picture_encoder = files_of(a.from, made.picture_components),
                .text_encoder = files_of(a.from, made.text_components)};
    } catch (const pulse::input_error& fault) { throw pulse::input_error{std::string{"--from: "} + fault.what()}; }
}

} // namespace

struct picture_cache::parts {
    const picture_source& source;
    const pulse::data::captioned_pictures& pictures;
    sample_row row;
    pulse::data::encoded_pictures encoded;
};

picture_cache::picture_cache(const picture_source& pictures, const arguments& a, const contents& made) {
    const pulse::data::captioned_pictures& from = pictures.parts_->pictures;
    const pulse::data::encoded_shapes shapes = shapes_of(a, made);
    parts_ = using_cache(from, [&] {
        pulse::data::distinct_samples samples{from, a.cache};
        return std::make_unique<parts>(
            parts{pictures, from, made.row, pulse::data::encoded_pictures{from, std::move(samples), a.cache, shapes}});
    });
}
picture_cache::picture_cache(const picture_cache& other) : parts_{std::make_unique<parts>(*other.parts_)} {}

bool picture_cache::complete() const { return parts_->encoded.complete(); }
void picture_cache::refresh() {
    using_cache(parts_->pictures, [&] { parts_->encoded.refresh(); });
}
void picture_cache::tidy() const {
    using_cache(parts_->pictures, [&] { parts_->encoded.tidy(); });
}

pulse::data::encoding_report picture_cache::encode(int rank, int ranks, const picture_network& picture,
                                                   const text_network& text) {
    using rows = pulse::data::encoded_pictures::row_values;
    const std::vector<std::size_t> decided = parts_->row.of_caption();
    std::vector<float> row(parts_->row.elements());
    const auto encode_picture = [&](const pulse::data::picture_sample& decoded, rows values) {
        if (decoded.damaged) { parts_->source.note_damaged(decoded.index); }
        picture(decoded.pixels, values[0]);
    };
    const auto encode_caption = [&](const std::string& caption, rows values) {
        values[0][0] = text(caption, row) ? 1.0F : 0.0F;
        for (std::size_t part = 1; part != values.size(); ++part) {
            std::ranges::copy(parts_->row.of(std::span{row}, decided[part - 1]), values[part].begin());
        }
    };
    return using_cache(parts_->pictures, [&] {
        return parts_->encoded.encode(
            encode_picture, encode_caption,
            {.rank = static_cast<std::uint32_t>(rank), .ranks = static_cast<std::uint32_t>(ranks)});
    });
}

picture_cache::sample picture_cache::at(std::uint64_t position) const {
    pulse::data::encoded_sample found = using_cache(parts_->pictures, [&] { return parts_->encoded.at(position); });
    return {found.picture_row, found.caption_row, found.label, found.caption_dropped, std::move(found.refused)};
}
void picture_cache::read_moments(const sample& one, std::span<float> moments) const {
    parts_->encoded.pictures().read(one.picture, 0, moments);
}
picture_facts picture_cache::facts(const sample& one) const {
    std::array<float, 4> sizes{};
    parts_->encoded.pictures().read(one.picture, 1, sizes);
    const auto whole = [&](std::size_t i) { return static_cast<int>(sizes[i]); };
    return {whole(0), whole(1), whole(2), whole(3), one.label, one.dropped};
}
bool picture_cache::read_caption(const sample& one, std::span<float> row) const {
    std::array<float, 1> cut{};
    parts_->encoded.captions().read(one.caption, 0, cut);
    std::size_t part = 1;
    for (const std::size_t which : parts_->row.of_caption()) {
        parts_->encoded.captions().read(one.caption, part++, parts_->row.of(row, which));
    }
    return cut[0] != 0.0F;
}

#else

struct picture_cache::parts {};

picture_cache::picture_cache(const picture_source&, const arguments&, const contents&) { refuse_pictures(); }
picture_cache::picture_cache(const picture_cache&) { refuse_pictures(); }
bool picture_cache::complete() const { refuse_pictures(); }
void picture_cache::refresh() { refuse_pictures(); }
void picture_cache::tidy() const { refuse_pictures(); }
pulse::data::encoding_report picture_cache::encode(int, int, const picture_network&, const text_network&) {
    refuse_pictures();
}
picture_cache::sample picture_cache::at(std::uint64_t) const { refuse_pictures(); }
void picture_cache::read_moments(const sample&, std::span<float>) const { refuse_pictures(); }
picture_facts picture_cache::facts(const sample&) const { refuse_pictures(); }
bool picture_cache::read_caption(const sample&, std::span<float>) const { refuse_pictures(); }

#endif

picture_cache::~picture_cache() = default;

} // namespace pulse_train
