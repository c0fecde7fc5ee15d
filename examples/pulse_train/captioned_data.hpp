#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/data/encoding_report.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/conditions.hpp>

#include "arguments.hpp"
#include "frozen.hpp"
#include "frozen_tasks.hpp"
#include "picture_cache.hpp"
#include "pictures.hpp"
#include "sample_row.hpp"

namespace pulse_train {

/// Captioned pictures of --data and what frozen networks of --from make of them, as a model on a side reads them.
template <class Model, class Side>
class captioned_data {
    using frozen_math = typename Side::frozen_math;
    using frozen = frozen_networks<Model>;
    using tasks = frozen_tasks<Model, frozen_math>;
    using text_encoders = typename tasks::text_encoders;
    using picture_encoder = typename tasks::picture_encoder;
    static constexpr sample_row row{pulse::conditions_read_by<Model>(), frozen::no_class};

public:
    /// The pictures of --data in the size that is encoded; the rank that leads says what is read. Checks all that a
    /// rank will read of --from, so that nothing is measured, planned or written before it is refused.
    [[nodiscard]] static std::unique_ptr<const picture_source> open(const arguments& a) {
        try {
            text_encoders::require(a);
            picture_encoder::require(a);
        } catch (const pulse::input_error& e) { throw pulse::input_error{std::string{"--from: "} + e.what()}; }
        try {
            auto found = std::make_unique<const picture_source>(a, frozen::picture_config.sample_size,
                                                                frozen::picture_config.in_channels, row.classes() != 0);
            if constexpr (row.classes() != 0) { require_classes(a, found->classes(), row.classes()); }
            const bool leads = a.processes == nullptr || a.processes->rank() == 0;
            if (leads) { found->say_what_is_read(); }
            if (leads && text_encoders::count != 0) {
                std::printf("captions: %s\n", text_encoders::lengths(a.from, *found).c_str());
            }
            std::fflush(stdout);
            return found;
        } catch (const pulse::input_error& e) { throw pulse::input_error{std::string{"--data: "} + e.what()}; }
    }
    /// What --cache has of them.
    [[nodiscard]] static std::unique_ptr<picture_cache> open_cache(const arguments& a, const picture_source& pictures) {
        constexpr auto size = std::int64_t{frozen::picture_config.latent_size()};
        return std::make_unique<picture_cache>(
            pictures, a,
            picture_cache::contents{.moments = {size, size, 2 * std::int64_t{frozen::picture_config.latent_channels}},
                                    .row = row,
                                    .picture_components = picture_encoder::components(),
                                    .text_components = text_encoders::components()});
    }
    /// A rank's share of what the cache does not have.
    [[nodiscard]] static pulse::data::encoding_report encode_once(const arguments& a, const pulse::any_transport& among,
                                                                  picture_cache& cache) {
        frozen_math on = Side::make_frozen_math(a, among);
        text_encoders texts{a.from, on};
        picture_encoder pictures{a.from, on};
        return cache.encode(
            among.rank(), among.size(),
            [&](std::span<const float> pixels, std::span<float> moments) { pictures.run(pixels, moments); },
            [&](const std::string& text, std::span<float> of_sample) {
                return texts.run(text, "a caption", of_sample);
            });
    }
};

} // namespace pulse_train
