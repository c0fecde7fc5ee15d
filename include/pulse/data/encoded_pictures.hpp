#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/fingerprint.hpp>
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/distinct_captions.hpp>
#include <pulse/data/draw.hpp>
#include <pulse/data/encoded_table.hpp>
#include <pulse/data/encoding_report.hpp>
#include <pulse/data/picture_index.hpp>
#include <pulse/data/prefetcher.hpp>
#include <pulse/data/text.hpp>

namespace pulse::data {

/// What frozen networks make of pictures and texts, and which networks they are: fingerprints of their weights and, for
/// texts, of the tokenizers.
struct encoded_shapes {
    std::vector<encoded_part> picture{}; ///< such as the moments of the autoencoder's posterior
    std::vector<encoded_part> caption{}; ///< such as text states and pooled text
    fingerprint picture_encoder{};
    fingerprint text_encoder{};
    std::uint64_t shard_bytes = encoded_layout{}.shard_bytes;
};

/// What one process does of the work that `ranks` share.
struct encoding_share {
    std::uint32_t rank = 0;
    std::uint32_t ranks = 1;
    prefetch_options ahead{}; ///< of the decoding
};

/// A sample's place in what was encoded: what captioned_pictures::at gives, with rows for pixels and caption.
struct encoded_sample {
    std::uint32_t picture_row{};
    std::uint32_t caption_row{};
    int label = -1;
    std::uint32_t index{};
    bool caption_dropped{};
    bool flipped{};
    std::vector<std::string> refused{};

    [[nodiscard]] bool operator==(const encoded_sample&) const = default;
};

/// Stands for the files of pictures: names, sizes and times of change, so that no picture has to be read to know that it
/// is the same. Throws input_error naming a file that is not there.
[[nodiscard]] inline fingerprint fingerprint_of(const picture_index& index) {
    fingerprint all;
    const auto add_file = [&](const std::string& name) {
        const std::filesystem::path path = index.folder / name;
        try {
            all.add(name).add(std::filesystem::file_size(path));
            all.add(std::filesystem::last_write_time(path).time_since_epoch().count());
        } catch (const std::filesystem::filesystem_error& fault) {
            throw input_error('\'' + one_line(path.string()) + "': " + fault.code().message());
        }
    };
    const bool in_shards = index.layout == picture_layout::shards;
    all.add(static_cast<int>(index.layout)).add(index.entries.size());
    for (const std::string& shard : index.shards) { add_file(shard); }
    for (const picture_entry& entry : index.entries) {
        if (in_shards) {
            all.add(entry.name).add(entry.shard).add(entry.picture.offset).add(entry.picture.bytes);
        } else {
            add_file(entry.name);
        }
    }
    return all;
}

/// Captioned pictures that frozen networks have encoded once, in a folder: at(position) is what captioned_pictures::at
/// is, bit for bit, where the networks' answers do not depend on what else is in their batch.
///
/// Each picture is encoded as it is and, where the options mirror pictures, mirrored; each text once, whatever the number
/// of its pictures. The tables are `pictures`, whose last part `sizes` is original height and width and the crop's top and
/// left, and `captions`. What is noise, such as the sample of a posterior, is drawn by whoever reads the moments. The
/// pictures must outlive it.
class encoded_pictures {
public:
    /// Opens what the folder has. Throws input_error for random crops, of which each is another picture, and naming a
    /// file that was made from other pictures, captions, crops or encoders.
    encoded_pictures(const captioned_pictures& from, const std::filesystem::path& folder,
                     const encoded_shapes& shapes) :
        from_{from},
        captions_read_{from.index(), from.options().on_bad_picture}, pictures_{folder, picture_layout_of(from, shapes)},
        captions_{folder, caption_layout_of(captions_read_, shapes)} {}

    [[nodiscard]] const encoded_table& pictures() const noexcept { return pictures_; }
    [[nodiscard]] const encoded_table& captions() const noexcept { return captions_; }
    /// The texts of the rows of captions().
    [[nodiscard]] const std::vector<std::string>& texts() const noexcept { return captions_read_.texts; }
    [[nodiscard]] bool complete() const noexcept { return pictures_.complete() && captions_.complete(); }
    /// Sees what other ranks have written.
    void refresh() {
        pictures_.refresh();
        captions_.refresh();
    }
    /// See encoded_table::remove_leftovers.
    void remove_leftovers() const {
        pictures_.remove_leftovers();
        captions_.remove_leftovers();
    }

    /// The values of the parts of one row, in their order.
    using row_values = std::span<const std::span<float>>;

    /// Makes this rank's part of what is not there: `picture(sample, values)` for pictures without captions,
    /// `caption(text, values)` for texts, one at a time, so that nothing depends on what is beside it. Pictures are
    /// decoded ahead by threads. Throws input_error naming a picture that cannot be read, unless bad ones are skipped;
    /// what is written by then stays.
    template <class Picture, class Caption>
        requires std::invocable<Picture&, const picture_sample&, row_values> &&
            std::invocable<Caption&, const std::string&, row_values>
                encoding_report encode(Picture&& picture, Caption&& caption, const encoding_share& share = {}) {
            encoding_report report;
            const auto missing = [&share](const encoded_table& table) {
                std::vector<std::uint32_t> shards;
                for (std::uint32_t shard = share.rank; shard < table.shards(); shard += share.ranks) {
                    if (!table.has(shard)) { shards.push_back(shard); }
                }
                return shards;
            };
            report.captions = fill(captions_, missing(captions_), report.bytes, report.caption_seconds,
                                   [&](std::uint32_t row, row_values values) {
                                       caption(texts()[row], values);
                                       return std::string{};
                                   });

            const std::vector<std::uint32_t> shards = missing(pictures_);
            std::vector<std::uint32_t> rows;
            for (const std::uint32_t shard : shards) {
                for (std::uint32_t i = 0; i != pictures_.rows_in(shard); ++i) {
                    rows.push_back(pictures_.first_row(shard) + i);
                }
            }
            if (rows.empty()) { return report; }
            prefetcher<decoded> ahead{
                [this, &rows](std::uint64_t n) { return n < rows.size() ? decode(rows[n]) : decoded{}; }, share.ahead};
            report.pictures =
                fill(pictures_, shards, report.bytes, report.picture_seconds, [&](std::uint32_t, row_values values) {
                    const decoded found = ahead.next();
                    if (!found.refused.empty()) { return found.refused; }
                    const picture_sample& sample = found.sample;
                    const std::array sizes{sample.original_height, sample.original_width, sample.crop_top,
                                           sample.crop_left};
                    std::copy(sizes.begin(), sizes.end(), values.back().begin());
                    picture(sample, values.first(values.size() - 1));
                    return std::string{};
                });
            return report;
        }

    /// The sample at a global position, below 2^63, where all is encoded. Throws input_error as captioned_pictures::at
    /// does.
    [[nodiscard]] encoded_sample at(std::uint64_t position) const {
        const picture_options& options = from_.options();
        const sample_draw drawn = draw_at(options.seed, position);
        encoded_sample result{.caption_dropped = drawn.caption < options.caption_dropout,
                              .flipped = options.horizontal_flip && drawn.flip};
        for (std::uint32_t after = 0; after != from_.epoch(); ++after) {
            const std::uint32_t i = from_.picture_at(position, after);
            const std::uint32_t row = options.horizontal_flip ? 2 * i + (result.flipped ? 1U : 0U) : i;
            if (const std::string* const why = refusal(i, row)) {
                if (options.on_bad_picture == bad_picture::stop) { throw input_error(*why); }
                result.refused.push_back(*why);
                continue;
            }
            result.picture_row = row;
            result.caption_row = result.caption_dropped ? 0 : captions_read_.row_of[i];
            result.index = i;
            result.label = from_.index().entries[i].label;
            return result;
        }
        throw input_error("none of " + std::to_string(from_.size()) +
                          " pictures can be read; the first: " + result.refused.front());
    }

private:
    struct decoded {
        picture_sample sample{};
        std::string refused{};
    };

    [[nodiscard]] static encoded_layout picture_layout_of(const captioned_pictures& from,
                                                          const encoded_shapes& shapes) {
        const picture_options& options = from.options();
        if (options.random_crop) {
            throw input_error("pictures: random crops cannot be encoded once: each is another picture");
        }
        fingerprint crop;
        crop.add(options.height).add(options.width).add(options.channels).add(options.horizontal_flip);
        encoded_layout layout{.name = "pictures",
                              .rows = from.size() * (options.horizontal_flip ? 2U : 1U),
                              .parts = shapes.picture,
                              .made_from = {{"pictures", fingerprint_of(from.index())},
                                            {"crop", crop},
                                            {"encoder of pictures", shapes.picture_encoder}},
                              .shard_bytes = shapes.shard_bytes};
        layout.parts.push_back({"sizes", {4}});
        return layout;
    }
    [[nodiscard]] static encoded_layout caption_layout_of(const distinct_captions& captions,
                                                          const encoded_shapes& shapes) {
        return {.name = "captions",
                .rows = static_cast<std::uint32_t>(captions.texts.size()),
                .parts = shapes.caption,
                .made_from = {{"captions", captions.made_of()}, {"encoder of texts", shapes.text_encoder}},
                .shard_bytes = shapes.shard_bytes};
    }

    [[nodiscard]] const std::string* refusal(std::uint32_t i, std::uint32_t row) const {
        const auto of_caption = captions_read_.refused.find(i);
        return of_caption != captions_read_.refused.end() ? &of_caption->second : pictures_.refusal(row);
    }

    [[nodiscard]] decoded decode(std::uint32_t row) const {
        const bool both = from_.options().horizontal_flip;
        const std::uint32_t i = both ? row / 2 : row;
        try {
            return {.sample = from_.picture(i, {.flip = both && row % 2 == 1})};
        } catch (const input_error& fault) {
            if (from_.options().on_bad_picture == bad_picture::stop) { throw; }
            return {.refused = fault.what()};
        }
    }

    /// Rows of these shards, made one after the other by `make(row, values)`, which says why where it cannot.
    template <class Make>
    static std::uint64_t fill(encoded_table& table, const std::vector<std::uint32_t>& shards, std::uint64_t& bytes,
                              double& seconds, const Make& make) {
        const auto begin = std::chrono::steady_clock::now();
        std::uint64_t made = 0;
        for (const std::uint32_t shard : shards) {
            std::vector<std::vector<float>> values;
            for (const encoded_part& part : table.layout().parts) {
                values.emplace_back(part.elements() * table.rows_in(shard));
            }
            std::map<std::uint32_t, std::string> refused;
            std::vector<std::span<float>> row(values.size());
            for (std::uint32_t i = 0; i != table.rows_in(shard); ++i) {
                for (std::size_t p = 0; p != values.size(); ++p) {
                    const std::size_t elements = table.layout().parts[p].elements();
                    row[p] = std::span{values[p]}.subspan(i * elements, elements);
                }
                std::string why = make(table.first_row(shard) + i, row);
                if (!why.empty()) { refused.emplace(table.first_row(shard) + i, std::move(why)); }
            }
            table.write(shard, values, refused);
            made += table.rows_in(shard);
            bytes += table.layout().row_bytes() * table.rows_in(shard);
        }
        seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        return made;
    }

    const captioned_pictures& from_;
    distinct_captions captions_read_;
    encoded_table pictures_;
    encoded_table captions_;
};

} // namespace pulse::data
