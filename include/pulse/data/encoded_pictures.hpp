#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/fingerprint.hpp>
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/distinct_captions.hpp>
#include <pulse/data/distinct_pictures.hpp>
#include <pulse/data/draw.hpp>
#include <pulse/data/encoded_table.hpp>
#include <pulse/data/encoding_report.hpp>
#include <pulse/data/prefetcher.hpp>
#include <pulse/model/extent.hpp>

namespace pulse::data {

/// What frozen networks make of pictures and texts, and which networks they are: fingerprints of their weights and, for
/// texts, of the tokenizers.
struct encoded_shapes {
    /// Such as the moments of the autoencoder's posterior: of the pictures of each bucket, or of all.
    std::vector<std::vector<encoded_part>> picture{};
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
    std::uint32_t bucket{}; ///< whose table has the row; 0 where there is one
    std::uint32_t picture_row{};
    std::uint32_t caption_row{};
    int label = -1;
    std::uint32_t index{};
    bool caption_dropped{};
    bool flipped{};
    std::vector<std::string> refused{};

    [[nodiscard]] bool operator==(const encoded_sample&) const = default;
};

/// A picture or a caption that cannot be read, which the message names.
struct unreadable_picture : input_error {
    using input_error::input_error;
};

/// Captioned pictures and their captions, each different one once.
struct distinct_samples {
    distinct_pictures pictures;
    distinct_captions captions;

    /// Reads what is new since the notes of `folder` (see distinct_pictures). Throws unreadable_picture, unless bad
    /// ones are skipped.
    distinct_samples(const captioned_pictures& from, const std::filesystem::path& folder) try :
        pictures{from, folder}, captions{from.index(), from.options().on_bad_picture} {
    } catch (const input_error& fault) { throw unreadable_picture(fault.what()); }
};

/// Captioned pictures that frozen networks have encoded once, in a folder: at(position) is what captioned_pictures::at
/// is, bit for bit, where the networks' answers do not depend on what else is in their batch.
///
/// Each different picture is encoded as it is and, where the options mirror pictures, mirrored; each text once,
/// whatever the number of its pictures. Rows are found by what they are made from: the bytes of the picture, its crop
/// and its encoder, or the text and its encoder. So what is added, changed, removed or renamed is encoded where it is
/// new, and a folder may serve several sets of pictures, sizes and encoders. The tables are `pictures`, one for each
/// bucket, whose last part `sizes` is original height and width and the crop's top and left, and `captions`. What is
/// noise, such as the
/// sample of a posterior, is drawn by whoever reads the moments. The pictures must outlive it.
class encoded_pictures {
public:
    /// Opens what the folder has. Throws input_error for random crops, of which each is another picture, and naming a
    /// file of the folder that is damaged or of another format; unreadable_picture, unless bad ones are skipped, for
    /// one that could not be decoded before.
    encoded_pictures(const captioned_pictures& from, distinct_samples samples, const std::filesystem::path& folder,
                     const encoded_shapes& shapes) :
        from_{from},
        samples_{std::move(samples)}, captions_{folder, caption_layout_of(samples_.captions, shapes)} {
        require_fixed_crops(from);
        sort_places(shapes.picture.size());
        for (std::size_t bucket = 0; bucket != shapes.picture.size(); ++bucket) {
            pictures_.emplace_back(folder, picture_layout_of(bucket, shapes));
        }
        if (from.options().on_bad_picture == bad_picture::skip) { return; }
        for (std::uint32_t i = 0; i != from.size(); ++i) {
            if (std::string why = refusal(i, false); !why.empty()) { throw unreadable_picture(why); }
        }
    }

    [[nodiscard]] const encoded_table& pictures(std::size_t bucket = 0) const { return pictures_.at(bucket); }
    [[nodiscard]] const encoded_table& captions() const noexcept { return captions_; }
    /// The texts of the rows of captions().
    [[nodiscard]] const std::vector<std::string>& texts() const noexcept { return samples_.captions.texts; }
    [[nodiscard]] bool complete() const noexcept {
        return captions_.complete() &&
               std::all_of(pictures_.begin(), pictures_.end(), [](const encoded_table& of) { return of.complete(); });
    }
    /// Sees what other ranks have written.
    void refresh() {
        for (encoded_table& of_bucket : pictures_) { of_bucket.refresh(); }
        captions_.refresh();
    }
    /// Removes what a killed process had begun, and keeps notes of the pictures that were read; to be called where no
    /// other process writes.
    void tidy() const {
        pictures_.front().remove_leftovers(); // those of all buckets
        captions_.remove_leftovers();
        samples_.pictures.keep_notes();
    }

    /// The values of the parts of one row, in their order.
    using row_values = std::span<const std::span<float>>;

    /// Makes this rank's part of what is not there: `picture(sample, values)` for pictures without captions,
    /// `caption(text, values)` for texts, one at a time, so that nothing depends on what is beside it. Pictures are
    /// decoded ahead by threads. Ranks that share the work have opened the folder before any of them writes. Throws
    /// unreadable_picture, unless bad ones are skipped, and for one that changes meanwhile; what is written by then
    /// stays.
    template <class Picture, class Caption>
        requires std::invocable<Picture&, const picture_sample&, row_values> &&
            std::invocable<Caption&, const std::string&, row_values>
                encoding_report encode(Picture&& picture, Caption&& caption, const encoding_share& share = {}) {
            encoding_report report;
            std::size_t files = 0;
            report.captions = fill(captions_, share_of(captions_, share, files), report.bytes, report.caption_seconds,
                                   [&](std::uint32_t row, row_values values) {
                                       caption(texts()[row], values);
                                       return std::string{};
                                   });

            for (std::size_t bucket = 0; bucket != pictures_.size(); ++bucket) {
                const std::vector<std::uint32_t> rows = share_of(pictures_[bucket], share, files);
                if (rows.empty()) { continue; }
                prefetcher<decoded> ahead{[this, bucket, &rows](std::uint64_t n) {
                                              return n < rows.size() ? decode(bucket, rows[n]) : decoded{};
                                          },
                                          share.ahead};
                double seconds = 0;
                report.pictures +=
                    fill(pictures_[bucket], rows, report.bytes, seconds, [&](std::uint32_t, row_values values) {
                        const decoded found = ahead.next();
                        if (!found.refused.empty()) { return found.refused; }
                        const picture_sample& sample = found.sample;
                        const std::array sizes{sample.original_height, sample.original_width, sample.crop_top,
                                               sample.crop_left};
                        std::copy(sizes.begin(), sizes.end(), values.back().begin());
                        picture(sample, values.first(values.size() - 1));
                        return std::string{};
                    });
                report.picture_seconds += seconds;
            }
            return report;
        }

    /// The sample at a global position, below 2^63, where all is encoded. Throws unreadable_picture where
    /// captioned_pictures::at throws.
    [[nodiscard]] encoded_sample at(std::uint64_t position) const {
        const picture_options& options = from_.options();
        const sample_draw drawn = draw_at(options.seed, position);
        encoded_sample result{.caption_dropped = drawn.caption < options.caption_dropout,
                              .flipped = options.horizontal_flip && drawn.flip};
        for (std::uint32_t after = 0; after != from_.choices_at(position); ++after) {
            const std::uint32_t i = from_.picture_at(position, after);
            if (std::string why = refusal(i, result.flipped); !why.empty()) {
                if (options.on_bad_picture == bad_picture::stop) { throw unreadable_picture(why); }
                result.refused.push_back(std::move(why));
                continue;
            }
            const std::uint32_t place = samples_.pictures.place_of()[i];
            result.bucket = bucket_of(place);
            result.picture_row = row_of(place, result.flipped);
            result.caption_row = result.caption_dropped ? 0 : samples_.captions.row_of[i];
            result.index = i;
            result.label = from_.index().entries[i].label;
            return result;
        }
        throw unreadable_picture("none of " + std::to_string(result.refused.size()) +
                                 " pictures can be read; the first: " + result.refused.front());
    }

private:
    struct decoded {
        picture_sample sample{};
        std::string refused{}; ///< what is wrong, behind the picture's name
    };

    [[nodiscard]] static std::vector<encoded_part> with_sizes(std::vector<encoded_part> parts) {
        parts.push_back({"sizes", {4}});
        return parts;
    }
    /// Begins the keys of rows that an encoder makes.
    [[nodiscard]] static wide_fingerprint made_by(const fingerprint& encoder, const std::vector<encoded_part>& parts) {
        wide_fingerprint all;
        all.add(encoder.value()).add(parts.size());
        for (const encoded_part& part : parts) {
            all.add(part.name).add(part.dims.size());
            for (const std::int64_t extent : part.dims) { all.add(extent); }
        }
        return all;
    }
    static void require_fixed_crops(const captioned_pictures& from) {
        if (!from.options().random_crop) { return; }
        throw input_error("pictures: random crops cannot be encoded once: each is another picture");
    }
    [[nodiscard]] std::uint32_t bucket_of(std::uint32_t place) const { return bucket_[place]; }
    /// Numbers the places of each bucket. Equal pictures are of one size, and so in one bucket; one of them may have
    /// come to be readable behind the others.
    void sort_places(std::size_t buckets) {
        places_.resize(buckets);
        const std::vector<std::uint32_t>& of_picture = from_.buckets().of_picture;
        bucket_.resize(samples_.pictures.bytes().size(), static_cast<std::uint32_t>(of_picture.empty() ? 0 : buckets));
        for (std::uint32_t i = 0; i != of_picture.size(); ++i) {
            if (of_picture[i] != buckets) { bucket_[samples_.pictures.place_of()[i]] = of_picture[i]; }
        }
        for (std::uint32_t place = 0; place != bucket_.size(); ++place) {
            const std::uint32_t bucket = bucket_of(place);
            number_.push_back(bucket < buckets ? static_cast<std::uint32_t>(places_[bucket].size()) : 0);
            if (bucket < buckets) { places_[bucket].push_back(place); }
        }
    }
    /// In the table of its bucket.
    [[nodiscard]] std::uint32_t row_of(std::uint32_t place, bool flipped) const {
        const std::uint32_t n = number_[place];
        return from_.options().horizontal_flip ? 2 * n + (flipped ? 1U : 0U) : n;
    }
    [[nodiscard]] encoded_layout picture_layout_of(std::size_t bucket, const encoded_shapes& shapes) const {
        const picture_options& options = from_.options();
        encoded_layout layout{
            .name = "pictures", .parts = with_sizes(shapes.picture[bucket]), .shard_bytes = shapes.shard_bytes};
        const extent size =
            from_.buckets().sizes.empty() ? extent{options.height, options.width} : from_.buckets().sizes[bucket];
        wide_fingerprint made = made_by(shapes.picture_encoder, layout.parts);
        made.add(size.height).add(size.width).add(options.channels);
        for (const std::uint32_t place : places_[bucket]) {
            for (const bool mirrored : {false, true}) {
                if (mirrored && !options.horizontal_flip) { continue; }
                const std::string bytes = samples_.pictures.bytes()[place].text();
                layout.keys.push_back(wide_fingerprint{made}.add(mirrored).add(bytes));
            }
        }
        return layout;
    }
    [[nodiscard]] static encoded_layout caption_layout_of(const distinct_captions& captions,
                                                          const encoded_shapes& shapes) {
        encoded_layout layout{.name = "captions", .parts = shapes.caption, .shard_bytes = shapes.shard_bytes};
        const wide_fingerprint made = made_by(shapes.text_encoder, layout.parts);
        for (const std::string& text : captions.texts) { layout.keys.push_back(wide_fingerprint{made}.add(text)); }
        return layout;
    }

    /// Why picture `i`, whose row is there, or its caption cannot be read; empty where they can.
    [[nodiscard]] std::string refusal(std::uint32_t i, bool flipped) const {
        for (const auto* const refused : {&samples_.captions.refused, &samples_.pictures.refused()}) {
            if (const auto found = refused->find(i); found != refused->end()) { return found->second; }
        }
        const std::uint32_t place = samples_.pictures.place_of()[i];
        const std::string* const why = pictures_[bucket_of(place)].refusal(row_of(place, flipped));
        return why == nullptr ? std::string{} : from_.index().name(i) + *why;
    }

    /// What a rank makes of the rows that are missing: whole files in turn, behind `files` of other tables, which grow.
    [[nodiscard]] static std::vector<std::uint32_t> share_of(const encoded_table& table, const encoding_share& share,
                                                             std::size_t& files) {
        const std::vector<std::uint32_t> missing = table.missing();
        const std::size_t rows = table.layout().rows_of_shard();
        std::vector<std::uint32_t> mine;
        for (std::size_t i = 0; i != missing.size(); ++i) {
            if ((files + i / rows) % share.ranks == share.rank) { mine.push_back(missing[i]); }
        }
        files += (missing.size() + rows - 1) / rows;
        return mine;
    }

    [[nodiscard]] decoded decode(std::size_t bucket, std::uint32_t row) const {
        const bool both = from_.options().horizontal_flip;
        const std::uint32_t place = places_[bucket][both ? row / 2 : row];
        const std::uint32_t i = samples_.pictures.first(place);
        const std::string name = from_.index().name(i);
        decoded result;
        wide_fingerprint bytes;
        try {
            try {
                result.sample = from_.picture(i, {.flip = both && row % 2 == 1});
            } catch (const input_error& fault) {
                if (from_.options().on_bad_picture == bad_picture::stop) { throw; }
                const std::string why = fault.what();
                result.refused = why.starts_with(name) ? why.substr(name.size()) : ": " + why;
            }
            bytes = distinct_pictures::bytes_of(from_, i);
        } catch (const input_error& fault) { throw unreadable_picture(fault.what()); }
        // A row is kept under the bytes that were read before.
        if (bytes != samples_.pictures.bytes()[place]) {
            throw input_error(name + " has changed since the run began, or is not what the notes of the folder say "
                                     "(*.notes, which may be removed)");
        }
        return result;
    }

    /// Rows made one after the other by `make(row, values)`, which says why where it cannot.
    template <class Make>
    static std::uint64_t fill(encoded_table& table, std::span<const std::uint32_t> rows, std::uint64_t& bytes,
                              double& seconds, const Make& make) {
        const auto begin = std::chrono::steady_clock::now();
        for (std::size_t first = 0; first < rows.size(); first += table.layout().rows_of_shard()) {
            const auto of_shard = rows.subspan(first, std::min(table.layout().rows_of_shard(), rows.size() - first));
            std::vector<std::vector<float>> values;
            for (const encoded_part& part : table.layout().parts) {
                values.emplace_back(part.elements() * of_shard.size());
            }
            std::map<std::uint32_t, std::string> refused;
            std::vector<std::span<float>> row(values.size());
            for (std::size_t i = 0; i != of_shard.size(); ++i) {
                for (std::size_t p = 0; p != values.size(); ++p) {
                    const std::size_t elements = table.layout().parts[p].elements();
                    row[p] = std::span{values[p]}.subspan(i * elements, elements);
                }
                std::string why = make(of_shard[i], row);
                if (!why.empty()) { refused.emplace(of_shard[i], std::move(why)); }
            }
            table.write(of_shard, values, refused);
            bytes += table.layout().row_bytes() * of_shard.size();
        }
        seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        return rows.size();
    }

    const captioned_pictures& from_;
    distinct_samples samples_;
    std::vector<std::uint32_t> bucket_{};              ///< of each distinct picture; their number: in none
    std::vector<std::vector<std::uint32_t>> places_{}; ///< of distinct pictures, by bucket
    std::vector<std::uint32_t> number_{};              ///< of each place among those of its bucket
    std::vector<encoded_table> pictures_{};            ///< by bucket
    encoded_table captions_;
};

} // namespace pulse::data
