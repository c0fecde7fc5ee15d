#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pulse/model/condition.hpp>
#include <pulse/profile/frozen_component.hpp>
#include <pulse/runtime/conditions.hpp>
#include <pulse/runtime/space.hpp>

#include "arguments.hpp"
#include "frozen.hpp"
#include "frozen_encoders.hpp"
#include "posterior_source.hpp"
#include "sample_row.hpp"

namespace pulse_train {

/// The frozen networks of a model as the components that frozen tasks of a plan run: pictures give their latents, layer by
/// layer; all else that the backbone reads of a sample is made at once, and behind it whether its caption was cut.
template <class Model, class Math>
struct frozen_tasks {
    using frozen = frozen_networks<Model>;
    using text_encoders = caption_encoder<Model, Math>;
    using picture_encoder = frozen_pictures<frozen, Math>;

    static constexpr int of_pictures = 0;
    static constexpr int of_conditions = 1;
    static constexpr std::size_t row_elements = sample_row{pulse::conditions_read_by<Model>()}.elements();
    /// Bytes of results, which are floats.
    static constexpr auto latent_bytes = static_cast<std::int64_t>(posterior_source<frozen>::elements * sizeof(float));
    static constexpr auto condition_bytes = static_cast<std::int64_t>((row_elements + 1) * sizeof(float));

    /// Without times.
    [[nodiscard]] static std::vector<pulse::frozen_component> components() {
        // Kernels may depend on the batch: one sample a call gives the bits of encoding before each step.
        return {{.name = "pictures",
                 .feeds = pulse::frozen_use::input,
                 .input_bytes = static_cast<std::int64_t>(pixels * sizeof(float)),
                 .result_bytes = latent_bytes,
                 .max_chunk = 1,
                 .layers = picture_encoder::layers()},
                {.name = "conditions",
                 .feeds = pulse::frozen_use::context,
                 .result_bytes = condition_bytes,
                 .max_chunk = 1,
                 .layers = {{.name = "conditions",
                             .parameter_bytes = text_encoders::parameter_bytes,
                             .live_bytes = text_encoders::bytes - text_encoders::parameter_bytes}}}};
    }
    /// With what they take where `math` computes.
    [[nodiscard]] static std::vector<pulse::frozen_component> measured(const arguments& a, Math math) {
        std::vector<pulse::frozen_component> all = components();
        {
            picture_encoder network{a.from, math};
            const std::vector<float> picture(pixels);
            std::vector<float> moments(2 * posterior_source<frozen>::elements);
            using scalar = typename Math::scalar;
            typename pulse::space_of<Math>::template array<scalar> from;
            for (std::size_t l = 0; l != picture_encoder::layer_count; ++l) {
                decltype(from) to(static_cast<std::size_t>(picture_encoder::output_bytes(l)) / sizeof(scalar));
                measure(math, all[of_pictures].layers[l], [&] {
                    network.run_layers(l, l, picture, reinterpret_cast<const std::byte*>(from.data()),
                                       reinterpret_cast<std::byte*>(to.data()), moments);
                });
                from = std::move(to);
            }
        }
        text_encoders texts{a.from, math};
        std::vector<float> of_sample(row_elements);
        measure(math, all[of_conditions].layers.front(),
                [&] { static_cast<void>(texts.run("a caption", "a caption", of_sample)); });
        return all;
    }

private:
    static constexpr auto pixels =
        static_cast<std::size_t>(frozen::picture_config.sample_size) *
        static_cast<std::size_t>(frozen::picture_config.sample_size * frozen::picture_config.in_channels);

    template <class Run>
    static void measure(const Math& math, pulse::frozen_layer& layer, const Run& run) {
        for (int i = 0; i != 3; ++i) { // the first is a warm-up
            const auto began = std::chrono::steady_clock::now();
            run();
            wait_for(math);
            const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - began;
            layer.sample_us = i < 2 ? took.count() : std::min(layer.sample_us, took.count());
        }
    }
};

} // namespace pulse_train
