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

/// What messages call the fields of pictures_options and their values; a program sets the names of its options.
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
    /// A folder with one image for each picture, of the same name, which a ControlNet reads as its hint; empty: the
    /// metadata of `data` name the images.
    std::filesystem::path conditioning{};
    diffusers::model_files networks{}; ///< a pipeline with the frozen networks of the model
    /// Fraction of the pictures held out of training to evaluate the weights; 0: none. `part` selects the part to see;
    /// held-out pictures, even a whole folder, are each seen once per epoch.
    double held_out{};
    data::picture_part part{data::picture_part::trained_on};
    /// Folder for the networks' results, so that each picture and caption is encoded only once; empty: each sample is
    /// encoded.
    std::filesystem::path cache{};
    /// Size of the pictures that the model sees, in pixels; none: the size of its networks. The plan is for this size.
    extent size{};
    /// Several sizes instead: each picture is seen in the one nearest to its shape, and all samples of a step share
    /// one. Empty: all pictures have one size.
    data::bucket_options buckets{};
    /// Whether a model with learned positions may see pictures of sizes other than those it learned them for.
    bool resample_positions{};
    data::caption_options captions{}; ///< if the model reads captions; else folders are its classes
    std::uint64_t seed{};             ///< of order, crop, flip, dropped captions and the noise of the posterior
    bool random_crop{};
    bool horizontal_flip{};
    /// Weight the error by the alpha of the pixels, like --alpha_mask of kohya's sd-scripts; pictures without alpha
    /// count fully.
    bool masked_loss{};
    double caption_dropout{}; ///< probability that a picture is seen without its caption and class
    /// Shuffle the tags of a caption anew each time, after this many that stay in place; none: no shuffling. Not with a
    /// cache, which holds one caption per picture.
    std::optional<int> shuffle_tags_behind{};
    data::bad_picture on_bad_picture{data::bad_picture::stop};
    int threads{1}; ///< of frozen networks on a host backend
    /// Receives one line per skipped picture, and one for the first with damage inside. Any thread may call it, one at
    /// a time.
    std::function<void(const std::string&)> warn{};
    pictures_words words{};
};

} // namespace pulse
