#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/fingerprint.hpp>
#include <pulse/data/encoded_pictures.hpp>
#include <pulse/data/encoding_report.hpp>
#include <pulse/diffusers/model_files.hpp>
#include <pulse/diffusers/single_file.hpp>
#include <pulse/diffusers/weights.hpp>
#include <pulse/frozen/picture_source.hpp>
#include <pulse/frozen/sample_row.hpp>
#include <pulse/io/mapped_file.hpp>

namespace pulse::frozen {

/// The frozen networks' results for captioned pictures, in the cache folder of the pictures' options.
class picture_cache {
public:
    /// What is cached: of a picture the moments of its posterior, of a caption what the model reads of it.
    struct contents {
        std::vector<std::vector<std::int64_t>> moments{}; ///< their extents, per bucket or of all pictures
        sample_row row{};
        std::vector<std::string> picture_components{}; ///< of the pipeline: all that moments depend on
        std::vector<std::string> text_components{};    ///< all that a caption's values depend on
    };
    /// Opens the cache as it is; `pictures` must outlive it. Throws input_error naming the folder and the file: of the
    /// networks, of the pictures where bad ones are not skipped, or a damaged one of the cache.
    picture_cache(const picture_source& pictures, const contents& made) :
        source_{pictures}, row_{made.row}, encoded_{opened(pictures, made)} {}

    [[nodiscard]] bool complete() const { return encoded_.complete(); }
    /// Picks up what other ranks have written.
    void refresh() {
        using_cache(source_, [&] { encoded_.refresh(); });
    }
    /// Removes files that a killed process left unfinished, and keeps notes of what was read of the pictures; only call
    /// it while nothing is written.
    void tidy() const {
        using_cache(source_, [&] { encoded_.tidy(); });
    }

    /// Encodes a rank's share of what is missing: `picture(extent, pixels, moments)` and `text(text, row)`, which
    /// writes what the model reads of a caption and returns whether the text was cut. Throws input_error naming a
    /// picture that cannot be read, unless those are skipped; what was written before stays.
    template <class Picture, class Text>
    [[nodiscard]] data::encoding_report encode(int rank, int ranks, Picture&& picture, Text&& text) {
        using rows = data::encoded_pictures::row_values;
        const std::vector<std::size_t> decided = row_.of_caption();
        std::vector<float> row(row_.elements());
        const auto encode_picture = [&](const data::picture_sample& decoded, rows values) {
            if (decoded.damaged) { source_.note_damaged(decoded.index); }
            picture(source_.pictures().size_of(decoded.index), std::span<const float>{decoded.pixels}, values[0]);
        };
        const auto encode_caption = [&](const std::string& caption, rows values) {
            values[0][0] = text(caption, std::span{row}) ? 1.0F : 0.0F;
            for (std::size_t part = 1; part != values.size(); ++part) {
                std::ranges::copy(row_.of(std::span{row}, decided[part - 1]), values[part].begin());
            }
        };
        return using_cache(source_, [&] {
            return encoded_.encode(
                encode_picture, encode_caption,
                {.rank = static_cast<std::uint32_t>(rank), .ranks = static_cast<std::uint32_t>(ranks)});
        });
    }

    /// Where a sample is in a complete cache. Throws input_error as picture_source::at does. Thread-safe.
    [[nodiscard]] data::encoded_sample at(std::uint64_t position) const {
        return using_cache(source_, [&] { return encoded_.at(position); });
    }
    void read_moments(const data::encoded_sample& one, std::span<float> moments) const {
        encoded_.pictures(one.bucket).read(one.picture_row, 0, moments);
    }
    [[nodiscard]] picture_facts facts(const data::encoded_sample& one) const {
        std::array<float, 4> sizes{};
        encoded_.pictures(one.bucket).read(one.picture_row, 1, sizes);
        const auto whole = [&](std::size_t i) { return static_cast<int>(sizes[i]); };
        return {whole(0), whole(1), whole(2), whole(3), one.label, one.caption_dropped, one.index & 0x7FFFFFFFU};
    }
    /// Writes the part of a sample's row that depends on its caption. Returns whether the text was cut.
    bool read_caption(const data::encoded_sample& one, std::span<float> row) const {
        std::array<float, 1> cut{};
        encoded_.captions().read(one.caption_row, 0, cut);
        std::size_t part = 1;
        for (const std::size_t which : row_.of_caption()) {
            encoded_.captions().read(one.caption_row, part++, row_.of(row, which));
        }
        return cut[0] != 0.0F;
    }

private:
    /// Runs act() and attributes its errors to the cache, except for pictures and captions that cannot be read.
    template <class Act>
    static std::invoke_result_t<const Act&> using_cache(const picture_source& source, const Act& act) {
        try {
            return act();
        } catch (const data::unreadable_picture&) {
            return source.reading([]() -> std::invoke_result_t<const Act&> { throw; });
        } catch (const input_error& fault) { throw input_error{source.options().words.cache + ": " + fault.what()}; }
    }

    [[nodiscard]] static data::encoded_pictures opened(const picture_source& source, const contents& made) {
        const pictures_options& o = source.options();
        if (o.shuffle_tags_behind) {
            throw input_error{o.words.cache +
                              ": cannot be combined with tag shuffling: the cache holds one caption per picture"};
        }
        const data::encoded_shapes shapes = [&]() -> data::encoded_shapes {
            try {
                std::vector<std::vector<data::encoded_part>> of_buckets;
                for (const std::vector<std::int64_t>& dims : made.moments) {
                    of_buckets.push_back({{"moments", dims}});
                }
                return {.picture = std::move(of_buckets),
                        .caption = caption_parts(made.row),
                        .picture_encoder = files_of(o.networks, made.picture_components),
                        .text_encoder = files_of(o.networks, made.text_components)};
            } catch (const input_error& fault) { throw input_error{o.words.networks + ": " + fault.what()}; }
        }();
        return using_cache(source, [&] {
            data::distinct_samples samples{source.pictures(), o.cache};
            return data::encoded_pictures{source.pictures(), std::move(samples), o.cache, shapes};
        });
    }
    /// Fingerprint of the files of a pipeline's components. Throws input_error naming one that cannot be read.
    [[nodiscard]] static fingerprint files_of(const diffusers::model_files& from,
                                              const std::vector<std::string>& components) {
        std::vector<std::filesystem::path> files;
        fingerprint all;
        for (const std::string& component : components) {
            const bool apart = diffusers::weights_are_apart(from, component);
            for (const auto& entry : std::filesystem::directory_iterator{from.folder / component}) {
                const bool counts = apart ? diffusers::goes_with_weights(entry) : entry.is_regular_file();
                if (counts) { files.push_back(entry.path()); }
            }
            if (!apart) { continue; }
            const diffusers::weights stored{from, component};
            for (const auto& [name, tensor] : stored.tensors()) {
                all.add(name).add(tensor.entry->type.name);
                for (const std::int64_t extent : tensor.entry->dims) { all.add(extent); }
                all.add(std::string_view{reinterpret_cast<const char*>(tensor.bytes().data()), tensor.bytes().size()});
            }
        }
        std::sort(files.begin(), files.end());
        for (const std::filesystem::path& file : files) {
            const io::mapped_file mapped{file};
            const auto bytes = mapped.bytes();
            all.add(file.filename().string());
            all.add(std::string_view{reinterpret_cast<const char*>(bytes.data()), bytes.size()});
        }
        return all;
    }
    /// Name of condition `which` in the cache's files.
    [[nodiscard]] static std::string part_name(const sample_row& row, std::size_t which) {
        switch (row.wanted.all()[which].kind) {
        case condition_kind::text_states: return row.find(condition_kind::text_states) == which ? "states" : "states_2";
        case condition_kind::pooled_text: return "pooled";
        default: return "mask";
        }
    }
    /// What the cache holds of a caption: `cut`, then what the model reads of it.
    [[nodiscard]] static std::vector<data::encoded_part> caption_parts(const sample_row& row) {
        std::vector<data::encoded_part> all{{"cut", {1}}};
        for (const std::size_t which : row.of_caption()) {
            const condition& one = row.wanted.all()[which];
            all.push_back({part_name(row, which), {one.tokens, one.features}});
        }
        return all;
    }

    const picture_source& source_;
    sample_row row_;
    data::encoded_pictures encoded_;
};

} // namespace pulse::frozen
