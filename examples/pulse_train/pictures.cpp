#include "pictures.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/fingerprint.hpp>
#include <pulse/core/text_table.hpp>
#if PULSE_TRAIN_PICTURES
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/check_pictures.hpp>
#include <pulse/data/open_pictures.hpp>
#include <pulse/data/prefetcher.hpp>
#include <pulse/data/text.hpp>
#include <pulse/encode/tokenizer.hpp>
#include <pulse/encode/tokenizer_folder.hpp>

#include "data_report.hpp"
#include "picture_parts.hpp"
#endif

#include "setup.hpp"

namespace pulse_train {

#if PULSE_TRAIN_PICTURES

struct caption_ids::parts {
    std::unique_ptr<const pulse::encode::tokenizer> ids_of;
};

caption_ids::caption_ids(const std::filesystem::path& folder, int tokens, int vocabulary) :
    parts_{std::make_unique<parts>(parts{pulse::encode::read_tokenizer(folder, tokens)})} {
    const std::int32_t needed = parts_->ids_of->vocabulary_size();
    if (needed > vocabulary) {
        throw pulse::input_error{"'" + folder.string() + "' has ids up to " + std::to_string(needed - 1) +
                                 ", the text encoder knows " + std::to_string(vocabulary) + " of them"};
    }
}

text_ids caption_ids::operator()(std::string_view text, std::string_view what) const {
    pulse::encode::encoded_text encoded = (*parts_->ids_of)(text, what);
    return {std::move(encoded.ids), std::move(encoded.mask), encoded.cut};
}

namespace {

constexpr std::string_view column_hint = "; --caption-column NAME is another one";

pulse::data::picture_index open_data(const arguments& a, bool by_class) {
    using pulse::data::folder_names;
    if (by_class && !a.said_of_captions.empty()) {
        throw pulse::input_error{a.said_of_captions + " is for captions, which " + a.model +
                                 " does not read: folders are its classes"};
    }
    try {
        return pulse::data::open_pictures(a.data, {.column = a.caption_column,
                                                   .folders = by_class           ? folder_names::labels
                                                              : a.class_captions ? folder_names::captions
                                                                                 : folder_names::nothing,
                                                   .on_missing = a.on_missing_caption == caption_lacking::stop
                                                                     ? pulse::data::missing_caption::stop
                                                                 : a.on_missing_caption == caption_lacking::empty
                                                                     ? pulse::data::missing_caption::empty
                                                                     : pulse::data::missing_caption::skip});
    } catch (const pulse::data::missing_caption_error& e) {
        throw pulse::input_error{std::string{e.what()} +
                                 "; --captions class takes names of folders as captions, --on-missing-caption empty or "
                                 "skip goes on without"};
    } catch (const pulse::data::caption_field_error& e) {
        throw pulse::input_error{e.what() + std::string{column_hint}};
    }
}

} // namespace

picture_source::picture_source(const arguments& a, int size, int channels, bool by_class) {
    pulse::data::picture_index index = open_data(a, by_class);
    pulse::fingerprint sum;
    std::vector<std::uint64_t> captions;
    for (std::uint32_t i = 0; i != index.size(); ++i) {
        std::string caption;
        try {
            caption = index.caption(i);
        } catch (const pulse::input_error&) {} // it is said where a sample needs it
        captions.push_back(pulse::fingerprint{}.add(caption).value());
        sum.add(index.entries[i].name).add(caption);
        if (index.entries[i].repeats != 1) { sum.add(index.entries[i].repeats); }
    }
    const pulse::data::picture_options options{.height = size,
                                               .width = size,
                                               .channels = channels,
                                               .seed = a.seed,
                                               .random_crop = a.random_crop,
                                               .horizontal_flip = a.flip,
                                               .caption_dropout = a.caption_dropout,
                                               .on_bad_picture = a.skip_bad_pictures ? pulse::data::bad_picture::skip
                                                                                     : pulse::data::bad_picture::stop};
    std::string text = std::to_string(index.entries.size()) + " pictures (" + sum.text() + "), " +
                       (a.random_crop ? "random" : "centre") + " crop, " + (a.flip ? "flip, " : "") +
                       "caption dropout " + exact(a.caption_dropout) +
                       (a.caption_column.empty() ? "" : ", captions of the field '" + a.caption_column + '\'');
    parts_.reset(
        new parts{pulse::data::captioned_pictures{std::move(index), options}, std::move(captions), std::move(text)});
}

captioned_picture picture_source::at(std::uint64_t position) const {
    const pulse::data::captioned_pictures& from = parts_->pictures;
    pulse::data::picture_sample sample = reading_data(from, [&] { return from.at(position); });
    if (sample.damaged) { note_damaged(sample.index); }
    return {.pixels = std::move(sample.pixels),
            .caption = std::move(sample.caption),
            .facts = {sample.original_height, sample.original_width, sample.crop_top, sample.crop_left, sample.label,
                      sample.caption_dropped},
            .name = parts_->pictures.index().name(sample.index),
            .refused = std::move(sample.refused)};
}

captioned_picture picture_source::caption_at(std::uint64_t position) const {
    const pulse::data::captioned_pictures& from = parts_->pictures;
    pulse::data::picture_sample sample = reading_data(from, [&] { return from.caption_at(position); });
    return {.caption = std::move(sample.caption),
            .name = parts_->pictures.index().name(sample.index),
            .refused = std::move(sample.refused)};
}

void picture_source::say_what_is_read() const {
    for (const std::string& line : report_of(parts_->pictures)) { std::printf("%s\n", line.c_str()); }
}

caption_lengths picture_source::lengths(const caption_ids& tokenizer) const {
    // A few thousand captions are too short a task for threads to wait for one another.
    constexpr std::uint64_t piece = 1024;
    struct part {
        std::uint64_t tokens{};
        std::uint64_t longest{};
        std::uint64_t cut{};
        std::uint64_t captions{};
        std::uint64_t unread{};
    };
    const pulse::data::captioned_pictures& pictures = parts_->pictures;
    const std::uint64_t pieces = (pictures.size() + piece - 1) / piece;
    const int threads = static_cast<int>(std::clamp<std::uint64_t>(std::thread::hardware_concurrency(), 1, 16));
    pulse::data::prefetcher<part> counts{
        [&](std::uint64_t n) {
            part sum;
            for (std::uint64_t i = n * piece; i < std::min<std::uint64_t>((n + 1) * piece, pictures.size()); ++i) {
                const auto which = static_cast<std::uint32_t>(i);
                std::string text;
                try {
                    text = pictures.index().caption(which);
                } catch (const pulse::input_error& fault) {
                    if (pictures.options().on_bad_picture == pulse::data::bad_picture::stop) {
                        const bool of_field = dynamic_cast<const pulse::data::caption_field_error*>(&fault) != nullptr;
                        throw pulse::input_error{fault.what() + std::string{of_field ? column_hint : skip_hint}};
                    }
                    ++sum.unread;
                    continue;
                }
                const text_ids ids = tokenizer(text, pictures.index().name(which));
                const auto kept = static_cast<std::uint64_t>(std::count(ids.mask.begin(), ids.mask.end(), 1));
                const std::uint64_t tokens = kept + static_cast<std::uint64_t>(ids.cut);
                sum.tokens += tokens;
                sum.longest = std::max(sum.longest, tokens);
                sum.cut += ids.cut > 0 ? 1U : 0U;
                ++sum.captions;
            }
            return sum;
        },
        {.threads = threads, .ahead = 2 * threads}};
    part all;
    for (std::uint64_t n = 0; n != pieces; ++n) {
        const part one = counts.next();
        all = {all.tokens + one.tokens, std::max(all.longest, one.longest), all.cut + one.cut,
               all.captions + one.captions, all.unread + one.unread};
    }
    if (all.captions == 0) {
        throw pulse::input_error{"no caption can be read, from that of " + pictures.index().name(0) + " on"};
    }
    return {static_cast<double>(all.tokens) / static_cast<double>(all.captions), all.longest, all.cut, all.unread};
}

void picture_source::say(const std::vector<std::string>& refused) const {
    const std::lock_guard lock{parts_->saying};
    for (const std::string& why : refused) {
        if (parts_->said.insert(why).second) { std::fprintf(stderr, "pulse_train: skipped: %s\n", why.c_str()); }
    }
}

void picture_source::check() const {
    const pulse::data::picture_index& index = parts_->pictures.index();
    const pulse::data::pictures_check found = pulse::data::check_pictures(index);
    if (!found.bad.empty()) {
        const bool skipped = parts_->pictures.options().on_bad_picture == pulse::data::bad_picture::skip;
        const std::string& first = found.bad.front().why;
        const std::string count = pulse::grouped(static_cast<std::int64_t>(found.bad.size())) + " of " +
                                  pulse::grouped(found.pictures) + " pictures cannot be read";
        if (found.bad.size() == found.pictures) { throw pulse::input_error{"--data: " + first + "; all " + count}; }
        if (!skipped) {
            throw pulse::input_error{"--data: " + first + "; " + count + ": --on-bad-picture skip leaves such out"};
        }
        std::fprintf(stderr, "pulse_train: %s and are skipped; the first: %s\n", count.c_str(), first.c_str());
    }
    std::printf("pictures: %s\n", found.text().c_str());
}

void picture_source::note_damaged(std::uint32_t picture) const {
    const std::lock_guard lock{parts_->saying};
    if (parts_->damaged.empty()) {
        std::fprintf(stderr, "pulse_train: damaged inside, read as far as it goes: %s; others are counted at the end\n",
                     parts_->pictures.index().name(picture).c_str());
    }
    parts_->damaged.insert(picture);
}

void picture_source::say_damaged() const {
    const std::lock_guard lock{parts_->saying};
    if (parts_->damaged.empty()) { return; }
    const std::string count = pulse::grouped(static_cast<std::int64_t>(parts_->damaged.size()));
    std::fprintf(stderr, "pulse_train: damaged: %s %s read with damage inside\n", count.c_str(),
                 parts_->damaged.size() == 1 ? "picture was" : "pictures were");
}

const std::string& picture_source::text() const noexcept { return parts_->text; }
std::string picture_source::listing() const {
    const pulse::data::picture_index& index = parts_->pictures.index();
    std::string lines;
    for (std::uint32_t i = 0; i != index.size(); ++i) {
        const pulse::data::picture_entry& entry = index.entries[i];
        const bool in_shard = index.layout == pulse::data::picture_layout::shards;
        char caption[18];
        std::snprintf(caption, sizeof caption, "%016" PRIx64 " ", parts_->captions[i]);
        lines +=
            caption + pulse::data::one_line((in_shard ? index.shards[entry.shard] + ": " : "") + entry.name) + '\n';
    }
    return lines;
}
int picture_source::classes() const noexcept { return static_cast<int>(parts_->pictures.index().classes.size()); }

#else

struct caption_ids::parts {};
struct picture_source::parts {};

caption_ids::caption_ids(const std::filesystem::path&, int, int) { refuse_pictures(); }
text_ids caption_ids::operator()(std::string_view, std::string_view) const { refuse_pictures(); }
picture_source::picture_source(const arguments&, int, int, bool) { refuse_pictures(); }
captioned_picture picture_source::at(std::uint64_t) const { refuse_pictures(); }
captioned_picture picture_source::caption_at(std::uint64_t) const { refuse_pictures(); }
void picture_source::say_what_is_read() const { refuse_pictures(); }
caption_lengths picture_source::lengths(const caption_ids&) const { refuse_pictures(); }
void picture_source::say(const std::vector<std::string>&) const { refuse_pictures(); }
void picture_source::check() const { refuse_pictures(); }
void picture_source::say_damaged() const { refuse_pictures(); }
const std::string& picture_source::text() const noexcept { std::abort(); }
std::string picture_source::listing() const { refuse_pictures(); }
int picture_source::classes() const noexcept { std::abort(); }

#endif

void require_classes(const arguments& a, int found, int known) {
    if (found == 0) {
        throw pulse::input_error{"'" + a.data + "' has no folders of classes, which " + a.model + " reads"};
    }
    if (found > known) {
        throw pulse::input_error{"'" + a.data + "' has " + std::to_string(found) + " folders of classes, " + a.model +
                                 " knows " + std::to_string(known)};
    }
}

caption_ids::~caption_ids() = default;
picture_source::~picture_source() = default;

} // namespace pulse_train
