#include "pictures.hpp"

#include <cstdlib>
#include <utility>

#include <pulse/core/error.hpp>
#include <pulse/core/fingerprint.hpp>
#if PULSE_TRAIN_PICTURES
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/open_pictures.hpp>
#include <pulse/encode/tokenizer.hpp>
#include <pulse/encode/tokenizer_folder.hpp>
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
    return {std::move(encoded.ids), encoded.cut > 0};
}

struct picture_source::parts {
    pulse::data::captioned_pictures pictures;
    std::string text{};
};

picture_source::picture_source(const arguments& a, int size) {
    pulse::data::picture_index index = pulse::data::open_pictures(a.data);
    pulse::fingerprint sum;
    for (const pulse::data::picture_entry& entry : index.entries) { sum.add(entry.name).add(entry.text); }
    const pulse::data::picture_options options{.height = size,
                                               .width = size,
                                               .seed = a.seed,
                                               .random_crop = a.random_crop,
                                               .horizontal_flip = a.flip,
                                               .caption_dropout = a.caption_dropout,
                                               .on_bad_picture = a.skip_bad_pictures ? pulse::data::bad_picture::skip
                                                                                     : pulse::data::bad_picture::stop};
    std::string text = std::to_string(index.entries.size()) + " pictures (" + sum.text() + "), " +
                       (a.random_crop ? "random" : "centre") + " crop, " + (a.flip ? "flip, " : "") +
                       "caption dropout " + exact(a.caption_dropout) + ", bad ones " +
                       (a.skip_bad_pictures ? "skipped" : "stop");
    parts_ =
        std::make_unique<parts>(parts{pulse::data::captioned_pictures{std::move(index), options}, std::move(text)});
}

captioned_picture picture_source::at(std::uint64_t position) const {
    pulse::data::picture_sample sample = parts_->pictures.at(position);
    return {std::move(sample.pixels), std::move(sample.caption), parts_->pictures.index().name(sample.index),
            std::move(sample.refused)};
}

const std::string& picture_source::text() const noexcept { return parts_->text; }

#else

struct caption_ids::parts {};
struct picture_source::parts {};

namespace {

[[noreturn]] void refuse_pictures() {
    throw pulse::input_error{"this build reads no captioned pictures: pulse::data and pulse::encode are left out"};
}

} // namespace

caption_ids::caption_ids(const std::filesystem::path&, int, int) { refuse_pictures(); }
text_ids caption_ids::operator()(std::string_view, std::string_view) const { refuse_pictures(); }
picture_source::picture_source(const arguments&, int) { refuse_pictures(); }
captioned_picture picture_source::at(std::uint64_t) const { refuse_pictures(); }
const std::string& picture_source::text() const noexcept { std::abort(); }

#endif

caption_ids::~caption_ids() = default;
picture_source::~picture_source() = default;

} // namespace pulse_train
