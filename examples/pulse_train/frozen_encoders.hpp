#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <pulse/diffusers/autoencoder.hpp>
#include <pulse/diffusers/backbone.hpp>
#include <pulse/diffusers/text_encoder.hpp>
#include <pulse/diffusers/weights.hpp>
#include <pulse/encode/chain.hpp>
#include <pulse/encode/clip_text.hpp>
#include <pulse/encode/text_encoder.hpp>
#include <pulse/encode/text_facts.hpp>
#include <pulse/model/condition.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/profile/frozen_component.hpp>
#include <pulse/runtime/conditions.hpp>
#include <pulse/runtime/space.hpp>

#include "frozen.hpp"
#include "pictures.hpp"
#include "sample_row.hpp"

namespace pulse_train {

/// Returns when a backend has done what it was given, on a device too.
template <class Math>
void wait_for(const Math& math) {
    if constexpr (requires { math.synchronize(); }) { math.synchronize(); }
}

/// Floats of the host become those in memory of a backend, which may be on a device, and the other way round. All that
/// the backend was given is waited for first: networks, passes and what waits for messages are in the order of one
/// stream, so that nothing else reads or writes there then.
template <class Math>
void put_floats(const Math& math, std::span<const float> from, std::byte* to) {
    wait_for(math);
    pulse::space_of<Math>::template upload<float>(from, reinterpret_cast<float*>(to));
}
template <class Math>
void get_floats(const Math& math, const std::byte* from, std::span<float> to) {
    wait_for(math);
    pulse::space_of<Math>::template download<float>(reinterpret_cast<const float*>(from), to);
}

/// Numbers of a backend, which come from the host and go there as floats.
template <class Math>
class carried {
public:
    using scalar = typename Math::scalar;
    using space = pulse::space_of<Math>;

    explicit carried(std::size_t n) : there_(n), scalars_(n) {}

    [[nodiscard]] scalar* there() noexcept { return there_.data(); }
    [[nodiscard]] std::int64_t bytes() const noexcept {
        return static_cast<std::int64_t>(there_.size() * sizeof(scalar));
    }
    /// Waits until the backend has read what was there: a chain that pauses has only begun to.
    void put(const Math& math, std::span<const float> values) {
        wait_for(math);
        std::ranges::transform(values, scalars_.begin(), [](float value) { return static_cast<scalar>(value); });
        space::template upload<scalar>(scalars_, there_.data());
    }
    /// What the backend has made by now.
    void get(const Math& math, std::span<float> values) {
        wait_for(math);
        space::template download<scalar>(there_.data(), scalars_);
        std::ranges::transform(scalars_, values.begin(), [](scalar value) { return static_cast<float>(value); });
    }

private:
    typename space::template array<scalar> there_;
    std::vector<scalar> scalars_;
};

/// A network that runs sample by sample with the weights of a folder's component.
template <class Network, class Math>
void fill(pulse::encode::chain<Network, Math>& network, Math& math, const pulse::diffusers::weights& from) {
    using scalar = typename Math::scalar;
    std::vector<float> values;
    std::vector<scalar> converted;
    scalar* to = network.parameters().data();
    for (const pulse::parameter& p : pulse::diffusers::model_parameters<Network>()) {
        values.resize(static_cast<std::size_t>(p.elements()));
        from.read(p, 0, values);
        converted.clear();
        for (const float value : values) { converted.push_back(static_cast<scalar>(value)); }
        pulse::space_of<Math>::template upload<scalar>(converted, to);
        to += p.elements();
    }
    math.weights_changed();
}

/// A network of pictures or latents, one after another, with the weights of a folder.
template <class Network, class Math>
class frozen_chain {
    using network = pulse::encode::chain<Network, Math>;
    using scalar = typename Math::scalar;
    static constexpr std::int64_t input = Network::template layer_at<0>::input::elements;
    static constexpr std::int64_t output = Network::template layer_at<Network::layer_count - 1>::output::elements;

public:
    static constexpr std::int64_t bytes = network::bytes + (input + output) * static_cast<std::int64_t>(sizeof(scalar));

    frozen_chain(Math& math, const pulse::diffusers::weights& from) : math_{math}, network_{math} {
        fill(network_, math, from);
    }
    /// As the network's layers say.
    void run(std::span<const float> x, std::span<float> y) { run_layers(0, layer_count - 1, x, nullptr, nullptr, y); }
    /// Layers `first` to `last`: x is read where the network begins, else what the layer before has left at `from`; what
    /// the last one gives goes into y where the network ends, else to `to`.
    void run_layers(std::size_t first, std::size_t last, std::span<const float> x, const std::byte* from, std::byte* to,
                    std::span<float> y) {
        const bool ends = last + 1 == layer_count;
        if (first == 0) { in_.put(math_, x); }
        network_.run_layers(first, last, first == 0 ? in_.there() : reinterpret_cast<const scalar*>(from),
                            ends ? out_.there() : reinterpret_cast<scalar*>(to));
        if (ends) { out_.get(math_, y); }
    }
    static constexpr std::size_t layer_count = Network::layer_count;
    /// Of what a layer leaves for the next.
    [[nodiscard]] static constexpr std::int64_t output_bytes(std::size_t layer) noexcept {
        return static_cast<std::int64_t>(sizeof(scalar)) * pulse::encode::chain_links<Network>[layer].output;
    }
    /// The layers of a frozen component that is this network, without times.
    [[nodiscard]] static std::vector<pulse::frozen_layer> layers() {
        constexpr auto size = static_cast<std::int64_t>(sizeof(scalar));
        constexpr auto graph = pulse::graph_of<Network>();
        std::vector<pulse::frozen_layer> all;
        for (const pulse::encode::chain_link& l : pulse::encode::chain_links<Network>) {
            all.push_back(
                {.name = graph.layers[all.size()].name,
                 .parameter_bytes = size * l.parameters,
                 .output_bytes = output_bytes(all.size()),
                 .live_bytes = bytes - size * (Network::parameter_count() + network::working_elements - l.all())});
        }
        return all;
    }
    [[nodiscard]] std::int64_t used_bytes() const noexcept {
        return network_.used_bytes() + in_.bytes() + out_.bytes();
    }

private:
    Math& math_;
    network network_;
    carried<Math> in_{static_cast<std::size_t>(input)};
    carried<Math> out_{static_cast<std::size_t>(output)};
};

/// Where a component has its weights from, and what it computes with.
template <class Component, class Math>
struct frozen_place {
    const std::filesystem::path& folder;
    Math& math;
};

/// A text encoder of a folder with its tokenizer, one text at a time: what a text gives depends on no other.
template <class Component, class Math>
class frozen_text {
public:
    using network = typename Component::network;
    static constexpr int tokens = network::tokens;
    static constexpr int features = static_cast<int>(network::states::elements) / tokens;
    static constexpr int pooled_features = [] {
        if constexpr (network::pools) { return static_cast<int>(network::pooled::elements); }
        return 0;
    }();
    static constexpr std::int64_t bytes =
        pulse::encode::text_encoder<network, Math>::bytes(1) +
        static_cast<std::int64_t>(sizeof(typename Math::scalar)) * (network::states::elements + pooled_features) +
        static_cast<std::int64_t>(sizeof(typename Math::accumulator)) *
            pulse::encode::text_facts{network::tokens}.elements(1);

    static constexpr std::int64_t parameter_bytes =
        static_cast<std::int64_t>(sizeof(typename Math::scalar)) * network::live_parameter_elements;

    /// Throws input_error unless the folder has all that is needed.
    static void require(const std::filesystem::path& folder) {
        static_cast<void>(tokenizer_of(folder));
        static_cast<void>(weights_of(folder));
    }
    explicit frozen_text(const frozen_place<Component, Math>& from) :
        math_{from.math}, ids_of_{tokenizer_of(from.folder)}, encoder_{from.math, 1} {
        const pulse::diffusers::weights values_of = weights_of(from.folder);
        encoder_.load([&](const pulse::parameter& p, std::span<float> values) { values_of.read(p, 0, values); });
    }

    /// Makes states(), pooled() and mask() those of a text; messages call it `what`. Whether it was cut.
    bool run(std::string_view text, std::string_view what) {
        text_ids ids = ids_of_(text, what);
        // Pipelines give CLIP no mask: padding is a part of the text there.
        constexpr bool masked =
            !std::is_same_v<std::remove_cvref_t<decltype(network::config)>, pulse::encode::clip_text_config>;
        const auto facts = pulse::encode::text_facts_of<network, accumulator>(
            1, ids.ids, masked ? std::span<const std::int32_t>{ids.mask} : std::span<const std::int32_t>{});
        space::template upload<accumulator>(facts, facts_.data());
        encoder_.run(1, facts_.data(), states_there_.there(), pooled_there_.there());
        states_there_.get(math_, states_);
        pooled_there_.get(math_, pooled_);
        mask_ = std::move(ids.mask);
        return ids.cut;
    }
    [[nodiscard]] std::span<const float> states() const noexcept { return states_; } ///< [tokens][features]
    [[nodiscard]] std::span<const float> pooled() const noexcept { return pooled_; }
    [[nodiscard]] std::span<const std::int32_t> mask() const noexcept { return mask_; }
    [[nodiscard]] std::int64_t used_bytes() const noexcept {
        return encoder_.used_bytes() + states_there_.bytes() + pooled_there_.bytes() +
               static_cast<std::int64_t>(facts_.size() * sizeof(accumulator));
    }

private:
    using space = pulse::space_of<Math>;
    using accumulator = typename Math::accumulator;

    [[nodiscard]] static caption_ids tokenizer_of(const std::filesystem::path& folder) {
        return {folder / Component::tokenizer.view(), tokens, network::vocabulary};
    }
    [[nodiscard]] static pulse::diffusers::weights weights_of(const std::filesystem::path& folder) {
        return pulse::diffusers::open_text_encoder<network>(folder, Component::component.view());
    }

    Math& math_;
    caption_ids ids_of_;
    pulse::encode::text_encoder<network, Math> encoder_;
    typename space::template array<accumulator> facts_ = typename space::template array<accumulator>(
        static_cast<std::size_t>(pulse::encode::text_facts{network::tokens}.elements(1)));
    carried<Math> states_there_{static_cast<std::size_t>(network::states::elements)};
    carried<Math> pooled_there_{static_cast<std::size_t>(pooled_features)};
    std::vector<float> states_ = std::vector<float>(static_cast<std::size_t>(network::states::elements));
    std::vector<float> pooled_ = std::vector<float>(static_cast<std::size_t>(pooled_features));
    std::vector<std::int32_t> mask_{};
};

/// The text encoders of a folder, which make of a caption all that the model reads of it.
template <class Model, class Math, class Texts = typename frozen_networks<Model>::texts>
class caption_encoder;

template <class Model, class Math, class... Texts>
class caption_encoder<Model, Math, std::tuple<Texts...>> {
    static constexpr sample_row row{pulse::conditions_read_by<Model>()};
    static constexpr std::size_t state_tensors = row.count(pulse::condition_kind::text_states);

    /// The condition to which the states of a text encoder belong, and the first of its features there.
    struct states_place {
        std::size_t which{};
        int column{};
    };
    [[nodiscard]] static constexpr auto places() {
        std::array<states_place, sizeof...(Texts)> all{};
        std::array<int, sizeof...(Texts)> features{frozen_text<Texts, Math>::features...};
        int column = 0;
        for (std::size_t i = 0; i != all.size(); ++i) {
            const bool apart = std::cmp_less(i, state_tensors); // nvcc refuses a plain comparison with 0
            if (apart) { column = 0; }
            all[i] = {row.find(pulse::condition_kind::text_states, apart ? i : state_tensors - 1), column};
            column += features[i];
        }
        return all;
    }
    /// Whether every number that a caption decides is one that the encoders give.
    [[nodiscard]] static constexpr bool fits() {
        std::int64_t wanted = 0;
        for (const pulse::condition& one : row.wanted.all()) {
            if (one.kind == pulse::condition_kind::text_mask) {
                if (one.features != 1 || one.tokens != (0 + ... + frozen_text<Texts, Math>::tokens)) { return false; }
            } else if (is_of_caption(one.kind)) {
                wanted += one.elements();
            }
        }
        [[maybe_unused]] const bool pools = row.count(pulse::condition_kind::pooled_text) == 1;
        std::int64_t given = 0;
        ((given += frozen_text<Texts, Math>::network::states::elements +
                   (pools ? frozen_text<Texts, Math>::pooled_features : 0)),
         ...);
        return wanted == given;
    }
    static_assert(fits(), "the text encoders give what the backbone reads");

public:
    static constexpr std::int64_t bytes = (std::int64_t{0} + ... + frozen_text<Texts, Math>::bytes);
    static constexpr std::int64_t parameter_bytes = (std::int64_t{0} + ... + frozen_text<Texts, Math>::parameter_bytes);
    /// The components that all depends on.
    static std::vector<std::string> components() {
        std::vector<std::string> all;
        ((all.push_back(Texts::component.str()), all.push_back(Texts::tokenizer.str())), ...);
        return all;
    }
    /// Throws input_error unless the folder has all that is needed.
    static void require([[maybe_unused]] const std::filesystem::path& folder) {
        (frozen_text<Texts, Math>::require(folder), ...);
    }

    caption_encoder([[maybe_unused]] const std::filesystem::path& folder, [[maybe_unused]] Math& math) :
        networks_{frozen_place<Texts, Math>{folder, math}...} {}

    /// Writes what a text decides of a sample's row; messages call it `what`. Whether a network takes less of it.
    bool run([[maybe_unused]] std::string_view text, [[maybe_unused]] std::string_view what,
             [[maybe_unused]] std::span<float> of_sample) {
        bool cut = false;
        [[maybe_unused]] int tokens_before = 0;
        [[maybe_unused]] const auto one = [&](auto& network, const states_place& to) {
            cut |= network.run(text, what);
            const pulse::condition& states = row.wanted.all()[to.which];
            put(network.states(), static_cast<std::size_t>(network.features),
                row.of(of_sample, to.which).subspan(static_cast<std::size_t>(to.column)),
                static_cast<std::size_t>(states.features));
            if constexpr (row.count(pulse::condition_kind::pooled_text) != 0) {
                std::ranges::copy(network.pooled(),
                                  row.of(of_sample, row.find(pulse::condition_kind::pooled_text)).begin());
            }
            if constexpr (row.count(pulse::condition_kind::text_mask) != 0) {
                std::ranges::copy(network.mask(),
                                  row.of(of_sample, row.find(pulse::condition_kind::text_mask)).begin() +
                                      tokens_before);
            }
            tokens_before += network.tokens;
        };
        [&]<std::size_t... I>(std::index_sequence<I...>) {
            [[maybe_unused]] constexpr auto to = places();
            (one(std::get<I>(networks_), to[I]), ...);
        }
        (std::index_sequence_for<Texts...>{});
        return cut;
    }
    [[nodiscard]] std::int64_t used_bytes() const noexcept {
        return std::apply([](const auto&... each) { return (std::int64_t{0} + ... + each.used_bytes()); }, networks_);
    }

private:
    /// Rows of `width` numbers into rows of `pitch`.
    static void put(std::span<const float> from, std::size_t width, std::span<float> to, std::size_t pitch) {
        for (std::size_t i = 0; i * width != from.size(); ++i) {
            std::ranges::copy(from.subspan(i * width, width), to.begin() + static_cast<std::ptrdiff_t>(i * pitch));
        }
    }

    std::tuple<frozen_text<Texts, Math>...> networks_;
};

/// The encoder of pictures of a folder: writes the moments [height][width][2 channels] of the posterior of a picture
/// [size][size][channels].
template <class Frozen, class Math>
class frozen_pictures : public frozen_chain<typename Frozen::encoder, Math> {
public:
    /// The components that moments depend on.
    static std::vector<std::string> components() { return {"vae"}; }
    /// Throws input_error unless the folder has all that is needed.
    static void require(const std::filesystem::path& folder) {
        static_cast<void>(pulse::diffusers::open_autoencoder<Frozen::picture_config>(folder));
    }
    frozen_pictures(const std::filesystem::path& folder, Math& math) :
        frozen_chain<typename Frozen::encoder, Math>{
            math, pulse::diffusers::open_autoencoder<Frozen::picture_config>(folder)} {}
};

/// Pixels are moments without variance: the posterior's sample is the picture to the last bits.
template <class Frozen, class Math>
    requires(!has_autoencoder<Frozen>)
class frozen_pictures<Frozen, Math> {
public:
    static constexpr std::int64_t bytes = 0;

    static std::vector<std::string> components() { return {}; }
    static void require(const std::filesystem::path&) {}
    frozen_pictures(const std::filesystem::path&, Math&) {}

    void run(std::span<const float> picture, std::span<float> moments) {
        constexpr auto channels = static_cast<std::size_t>(Frozen::picture_config.latent_channels);
        constexpr float no_variance = -100.0F; // as a logarithm
        for (std::size_t pixel = 0; pixel != picture.size() / channels; ++pixel) {
            const std::span<float> of_pixel = moments.subspan(pixel * 2 * channels, 2 * channels);
            std::ranges::copy(picture.subspan(pixel * channels, channels), of_pixel.begin());
            std::ranges::fill(of_pixel.last(channels), no_variance);
        }
    }
    void run_layers(std::size_t, std::size_t, std::span<const float> picture, const std::byte*, std::byte*,
                    std::span<float> moments) {
        run(picture, moments);
    }
    static constexpr std::size_t layer_count = 1;
    [[nodiscard]] static constexpr std::int64_t output_bytes(std::size_t) noexcept { return 0; }
    [[nodiscard]] static std::vector<pulse::frozen_layer> layers() { return {{.name = "pixels"}}; }
    [[nodiscard]] std::int64_t used_bytes() const noexcept { return bytes; }
};

} // namespace pulse_train
