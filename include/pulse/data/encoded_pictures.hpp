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

/// Shapes of what frozen networks make of pictures and texts, with fingerprints of the networks' weights and, for
/// texts, of the tokenizers.
struct encoded_shapes {
    /// Such as the moments of the autoencoder's posterior: one entry per bucket, or one for all pictures.
    std::vector<std::vector<encoded_part>> picture{};
    std::vector<encoded_part> caption{}; ///< such as text states and pooled text
    fingerprint picture_encoder{};
    fingerprint text_encoder{};
    std::uint64_t shard_bytes = encoded_layout{}.shard_bytes;
};

/// Which share of the encoding one process does.
struct encoding_share {
    std::uint32_t rank = 0;
    std::uint32_t ranks = 1;
    prefetch_options ahead{}; ///< for decoding
};

/// A sample's place in the encoded tables: what captioned_pictures::at gives, with rows for pixels and caption.
struct encoded_sample {
    std::uint32_t bucket{}; ///< whose table has the row; 0 if there is only one
    std::uint32_t picture_row{};
    std::uint32_t caption_row{};
    int label = -1;
    std::uint32_t index{};
    bool caption_dropped{};
    bool flipped{};
    std::vector<std::string> refused{};

    [[nodiscard]] bool operator==(const encoded_sample&) const = default;
};

/// A picture or caption cannot be read; the message names it.
struct unreadable_picture : input_error {
    using input_error::input_error;
};

/// Captioned pictures and their captions, each distinct one once.
struct distinct_samples {
    distinct_pictures pictures;
    distinct_captions captions;

    /// Reads the pictures that the notes in `folder` do not cover (see distinct_pictures). Throws unreadable_picture,
    /// unless bad ones are skipped.
    distinct_samples(const captioned_pictures& from, const std::filesystem::path& folder) try :
        pictures{from, folder}, captions{from.index(), from.options().on_bad_picture} {
    } catch (const input_error& fault) { throw unreadable_picture(fault.what()); }
};

/// Captioned pictures that frozen networks have encoded once, in a folder: at(position) equals captioned_pictures::at
/// bit for bit if a network's result does not depend on the rest of its batch.
///
/// Each distinct picture is encoded as it is and, where the options mirror pictures, mirrored; each distinct text is
/// encoded once. Rows are keyed by what they are made from: the bytes of the picture, its crop and its encoder, or the
/// text and its encoder. So only what is new is encoded when pictures are added, changed, removed or renamed, and one
/// folder may serve several sets of pictures, sizes and encoders. The tables are `captions` and, for each bucket,
/// `pictures`, whose last part `sizes` holds original height and width and the crop's top and left. Noise, such as the
/// sample of a posterior, is drawn by whoever reads the moments. The pictures must outlive this object.
class encoded_pictures {
public:
    /// Opens what the folder has. Throws input_error for random crops, each of which is another picture, and naming a
    /// file of the folder that is damaged or of another format; throws unreadable_picture, unless bad ones are skipped,
    /// for a picture that an earlier run could not decode.
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
    /// The text of each row of captions().
    [[nodiscard]] const std::vector<std::string>& texts() const noexcept { return samples_.captions.texts; }
    [[nodiscard]] bool complete() const noexcept {
        return captions_.complete() &&
               std::all_of(pictures_.begin(), pictures_.end(), [](const encoded_table& of) { return of.complete(); });
    }
    /// Opens what other ranks have written.
    void refresh() {
        for (encoded_table& of_bucket : pictures_) { of_bucket.refresh(); }
        captions_.refresh();
    }
    /// Removes unfinished files of a killed process and keeps notes of the pictures that were read. Call it only while
    /// no other process writes.
    void tidy() const {
        pictures_.front().remove_leftovers(); // covers all buckets
        captions_.remove_leftovers();
        samples_.pictures.keep_notes();
    }

    /// The values of the parts of one row, in order.
    using row_values = std::span<const std::span<float>>;

    /// Encodes this rank's share of the missing rows, one at a time so that no result depends on a batch:
    /// `picture(sample, values)` for pictures without captions, `caption(text, values)` for texts. Threads decode
    /// pictures ahead. Ranks that share the work must all open the folder before any of them writes. Throws
    /// unreadable_picture, unless bad ones are skipped, and input_error for a picture that changes meanwhile; rows
    /// written by then stay.
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

    /// The sample at a global position, below 2^63, once everything is encoded. Throws unreadable_picture where
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
        std::string refused{}; ///< what is wrong, to append to the picture's name
    };

    [[nodiscard]] static std::vector<encoded_part> with_sizes(std::vector<encoded_part> parts) {
        parts.push_back({"sizes", {4}});
        return parts;
    }
    /// Prefix of the keys of an encoder's rows.
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
        throw input_error("pictures: random crops cannot be encoded once: each is a different picture");
    }
    [[nodiscard]] std::uint32_t bucket_of(std::uint32_t place) const { return bucket_[place]; }
    /// Numbers the places of each bucket. Equal pictures have one size and so one bucket, but a copy that could not be
    /// read when buckets were made has none, and one that cannot be read since then has no place.
    void sort_places(std::size_t buckets) {
        places_.resize(buckets);
        const std::vector<std::uint32_t>& of_picture = from_.buckets().of_picture;
        bucket_.resize(samples_.pictures.bytes().size(), static_cast<std::uint32_t>(of_picture.empty() ? 0 : buckets));
        for (std::uint32_t i = 0; i != of_picture.size(); ++i) {
            if (of_picture[i] == buckets || samples_.pictures.refused().contains(i)) { continue; }
            bucket_[samples_.pictures.place_of()[i]] = of_picture[i];
        }
        for (std::uint32_t place = 0; place != bucket_.size(); ++place) {
            const std::uint32_t bucket = bucket_of(place);
            number_.push_back(bucket < buckets ? static_cast<std::uint32_t>(places_[bucket].size()) : 0);
            if (bucket < buckets) { places_[bucket].push_back(place); }
        }
    }
    /// Row in the table of its bucket.
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

    /// Why picture `i`, whose row is present, or its caption cannot be read; empty where both can.
    [[nodiscard]] std::string refusal(std::uint32_t i, bool flipped) const {
        for (const auto* const refused : {&samples_.captions.refused, &samples_.pictures.refused()}) {
            if (const auto found = refused->find(i); found != refused->end()) { return found->second; }
        }
        const std::uint32_t place = samples_.pictures.place_of()[i];
        const std::string* const why = pictures_[bucket_of(place)].refusal(row_of(place, flipped));
        return why == nullptr ? std::string{} : from_.index().name(i) + *why;
    }

    /// The missing rows that a rank makes: whole files, round-robin after the `files` of earlier tables; adds to
    /// `files`.
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
        // The row's key is made from the bytes that were read before.
        if (bytes != samples_.pictures.bytes()[place]) {
            throw input_error(name + " has changed since the run began, or differs from the notes of the folder "
                                     "(*.notes, which may be removed)");
        }
        return result;
    }

    /// Makes rows one after the other with `make(row, values)`, which returns why a row cannot be made, or nothing.
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
    std::vector<std::uint32_t> bucket_{};              ///< of each distinct picture; number of buckets: in none
    std::vector<std::vector<std::uint32_t>> places_{}; ///< distinct pictures by bucket
    std::vector<std::uint32_t> number_{};              ///< index of each place among those of its bucket
    std::vector<encoded_table> pictures_{};            ///< by bucket
    encoded_table captions_;
};

} // namespace pulse::data
