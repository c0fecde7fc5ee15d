#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include <pulse/data/aspect_buckets.hpp>
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/held_out.hpp>
#include <pulse/data/open_pictures.hpp>
#include <pulse/diffusers/model_files.hpp>
#include <pulse/model/extent.hpp>

namespace pulse {

/// What messages call the fields of pictures_options and their values: a program says its options.
struct pictures_words {
    std::string data{"data"};
    std::string conditioning{"conditioning"};
    std::string size{"size"};
    std::string buckets{"buckets"};
    std::string resample_positions{"resample_positions"};
    std::string held_out{"held_out"};
    std::string networks{"networks"};
    std::string cache{"cache"};
    std::string skip_bad_pictures{"on_bad_picture = skip"};
    std::string other_column{"captions.column"};
    std::string folder_captions{"captions.folders = captions"};
    std::string other_on_missing{"captions.on_missing = empty or skip"};
};

/// Which captioned pictures a model is trained on, and how it sees them.
struct pictures_options {
    std::filesystem::path data{}; ///< a folder of pictures, as data::open_pictures reads it
    /// A folder with an image of the name of each picture, which a ControlNet reads as its hint; empty: the metadata of
    /// `data` name them.
    std::filesystem::path conditioning{};
    diffusers::model_files networks{}; ///< a pipeline with the frozen networks of the model
    /// Share of the pictures that are held out of training, for the weights to be judged by; 0: none. Which part these
    /// are: of what is held out, a whole folder too, each picture is seen once in an epoch.
    double held_out{};
    data::picture_part part{data::picture_part::trained_on};
    /// Where what they make is kept, so that each picture and caption is encoded once; empty: it is encoded for each
    /// sample.
    std::filesystem::path cache{};
    /// Of the pictures that the model sees, in pixels; none: those that its networks are made for. The plan is for it.
    extent size{};
    /// Several sizes instead, of which each picture is seen in that nearest to its own shape, and each step has one;
    /// nothing: all are of one size.
    data::bucket_options buckets{};
    /// Whether a model that has learned positions may see pictures of other sizes than it has learned them for.
    bool resample_positions{};
    data::caption_options captions{}; ///< where the model reads them: else folders are its classes
    std::uint64_t seed{};             ///< of order, crop, flip, dropped captions and the noise of the posterior
    bool random_crop{};
    bool horizontal_flip{};
    /// Whether errors count by the alpha of the pixels under them, as kohya's sd-scripts --alpha_mask has it; where
    /// pictures have none, wholly.
    bool masked_loss{};
    double caption_dropout{}; ///< probability that a picture is seen without its caption and class
    /// The tags of a caption are seen in another order each time, behind so many that stay; none: as they are. Not with
    /// a cache, which has one caption of each picture.
    std::optional<int> shuffle_tags_behind{};
    data::bad_picture on_bad_picture{data::bad_picture::stop};
    int threads{1}; ///< of frozen networks on the host
    /// Is given a line for each picture that is skipped, and for the first that is damaged inside; any thread may call
    /// it, one at a time.
    std::function<void(const std::string&)> warn{};
    pictures_words words{};
};

} // namespace pulse
