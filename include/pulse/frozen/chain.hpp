#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pulse/diffusers/autoencoder.hpp>
#include <pulse/diffusers/model_files.hpp>
#include <pulse/diffusers/weights.hpp>
#include <pulse/encode/chain.hpp>
#include <pulse/frozen/carried.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/profile/frozen_component.hpp>
#include <pulse/zoo/frozen_networks.hpp>

namespace pulse::frozen {

/// The layers of a network to run on one sample.
struct layers_of_chain {
    std::size_t first{};
    std::size_t last{};
    const std::byte* from{}; ///< output of the layer before; unused at the start of the network
    std::byte* to{};         ///< for the last layer's output; unused at the end of the network
};

/// A network that takes one picture or latent at a time, with the weights of a folder. The default extent is that of
/// the network's type.
template <class Network, class Math>
class folder_chain {
    using network = encode::chain<Network, Math>;
    using scalar = typename Math::scalar;
    static constexpr auto scalar_bytes = static_cast<std::int64_t>(sizeof(scalar));

public:
    /// Bytes of a network that runs at these extents.
    [[nodiscard]] static std::int64_t bytes(std::span<const extent> extents) {
        std::vector<resizing> sizes;
        std::int64_t input = 0;
        std::int64_t output = 0;
        for (const extent& to : extents) {
            sizes.push_back(pulse::resize<Network>(to));
            const auto links = encode::links_of<Network>(sizes.back());
            input = std::max(input, links.front().input);
            output = std::max(output, links.back().output);
        }
        return network::bytes(sizes) + (input + output) * scalar_bytes;
    }
    [[nodiscard]] static std::int64_t bytes(const extent& to = {}) { return bytes({&to, 1}); }

    /// With only some layers, or all where `layers` is empty (encode::chain).
    folder_chain(Math& math, const diffusers::weights& from, const std::vector<bool>& layers = {},
                 const extent& to = {}) :
        math_{math},
        network_{math, layers, pulse::resize<Network>(to)} {
        network_.load([&](const parameter& p, std::span<float> values) { from.read(p, 0, values); });
    }
    /// Sets the extent of what follows (encode::chain::set_size).
    void resize(const extent& to) {
        network_.set_size(pulse::resize<Network>(to));
        in_.reserve(static_cast<std::size_t>(network_.links().front().input));
        out_.reserve(static_cast<std::size_t>(network_.links().back().output));
    }
    /// Runs the whole network.
    void run(std::span<const float> x, std::span<float> y) { run_layers({0, layer_count - 1}, x, y); }
    /// Runs some layers: reads x at the start of the network, writes y at its end.
    void run_layers(const layers_of_chain& which, std::span<const float> x, std::span<float> y) {
        const bool ends = which.last + 1 == layer_count;
        if (which.first == 0) { in_.put(math_, x); }
        network_.run_layers(which.first, which.last,
                            which.first == 0 ? in_.there() : reinterpret_cast<const scalar*>(which.from),
                            ends ? out_.there() : reinterpret_cast<scalar*>(which.to));
        if (ends) { out_.get(math_, y); }
    }
    static constexpr std::size_t layer_count = Network::layer_count;
    /// Bytes of a layer's output.
    [[nodiscard]] std::int64_t output_bytes(std::size_t layer) const noexcept {
        return scalar_bytes * network_.links()[layer].output;
    }
    /// This network's layers as those of a frozen component, run at these extents, without times.
    [[nodiscard]] static std::vector<frozen_layer> layers(std::span<const extent> extents) {
        const auto graph = graph_of<Network>();
        std::vector<frozen_layer> all(layer_count);
        std::int64_t working = 0;
        for (const extent& to : extents) {
            const resizing size = pulse::resize<Network>(to);
            working = std::max(working, network::working_elements(size));
            std::size_t next = 0;
            for (const encode::chain_link& l : encode::links_of<Network>(size)) {
                frozen_layer& layer = all[next];
                layer.name = graph.layers[next++].name;
                layer.parameter_bytes = scalar_bytes * l.parameters;
                layer.output_bytes = std::max(layer.output_bytes, scalar_bytes * l.output);
                layer.live_bytes = std::max(layer.live_bytes, scalar_bytes * l.all());
            }
        }
        const std::int64_t always = bytes(extents) - scalar_bytes * (Network::parameter_count() + working);
        for (frozen_layer& layer : all) { layer.live_bytes += always; }
        return all;
    }
    [[nodiscard]] std::int64_t used_bytes() const noexcept {
        return network_.used_bytes() + in_.bytes() + out_.bytes();
    }

private:
    Math& math_;
    network network_;
    carried<Math> in_{static_cast<std::size_t>(network_.links().front().input)};
    carried<Math> out_{static_cast<std::size_t>(network_.links().back().output)};
};

/// A folder's picture encoder: writes the posterior's moments [height][width][2 channels] of a picture
/// [height][width][channels].
template <class Networks, class Math>
class folder_pictures : public folder_chain<typename Networks::encoder, Math> {
public:
    folder_pictures(const diffusers::model_files& from, Math& math, const std::vector<bool>& layers = {},
                    const extent& to = {}) :
        folder_chain<typename Networks::encoder, Math>{
            math, diffusers::open_autoencoder<Networks::picture_config>(from), layers, to} {}
};

/// Pixels as moments without variance: a sample of the posterior equals the picture up to rounding.
template <class Networks, class Math>
    requires(!has_autoencoder<Networks>)
class folder_pictures<Networks, Math> {
public:
    [[nodiscard]] static std::int64_t bytes(std::span<const extent>) noexcept { return 0; }

    folder_pictures(const diffusers::model_files&, Math&, const std::vector<bool>& = {}, const extent& = {}) {}
    void resize(const extent&) noexcept {}

    void run(std::span<const float> picture, std::span<float> moments) {
        constexpr auto channels = static_cast<std::size_t>(Networks::picture_config.latent_channels);
        constexpr float no_variance = -100.0F; // logarithm of the variance
        for (std::size_t pixel = 0; pixel != picture.size() / channels; ++pixel) {
            const std::span<float> of_pixel = moments.subspan(pixel * 2 * channels, 2 * channels);
            std::ranges::copy(picture.subspan(pixel * channels, channels), of_pixel.begin());
            std::ranges::fill(of_pixel.last(channels), no_variance);
        }
    }
    void run_layers(const layers_of_chain&, std::span<const float> picture, std::span<float> moments) {
        run(picture, moments);
    }
    static constexpr std::size_t layer_count = 1;
    [[nodiscard]] std::int64_t output_bytes(std::size_t) const noexcept { return 0; }
    [[nodiscard]] static std::vector<frozen_layer> layers(std::span<const extent>) { return {{.name = "pixels"}}; }
    [[nodiscard]] std::int64_t used_bytes() const noexcept { return 0; }
};

} // namespace pulse::frozen
