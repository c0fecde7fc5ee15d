#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/layer.hpp>
#include <pulse/model/model.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/runtime/layer_frame.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/runtime/weight_order.hpp>

namespace pulse::encode {

namespace detail {

/// Throws input_error unless `flags` is empty or has one flag per part.
inline void require_one_each(const char* who, const std::vector<bool>& flags, std::size_t parts) {
    if (!flags.empty() && flags.size() != parts) {
        throw input_error{"pulse: " + std::string{who} + ": expects " + std::to_string(parts) +
                          " flags, one per part, not " + std::to_string(flags.size())};
    }
}

/// The values of a parameter as a backend's scalars; read(const parameter&, std::span<float>) writes them in C order.
template <class Scalar, class Read>
[[nodiscard]] std::vector<Scalar> scalars_of(const parameter& which, Read& read) {
    std::vector<float> values(static_cast<std::size_t>(which.elements()));
    read(which, std::span<float>{values});
    std::vector<Scalar> converted;
    converted.reserve(values.size());
    for (const float value : values) { converted.push_back(static_cast<Scalar>(value)); }
    return converted;
}

} // namespace detail

/// Layer L may write its output over its input.
template <class L>
concept works_in_place = requires {
    requires L::math.in_place();
};

/// Memory that a layer of a chain needs, in elements of one sample.
struct chain_link {
    std::int64_t input{};
    std::int64_t output{};
    std::int64_t saved{};
    std::int64_t workspace{};
    std::int64_t statistics{};
    std::int64_t parameters{};
    bool in_place{};
    bool first{};
    bool last{};

    /// Tensors begin at multiples of 64 elements.
    [[nodiscard]] static constexpr std::int64_t aligned(std::int64_t n) noexcept { return (n + 63) / 64 * 64; }
    /// Most that a layer takes of the chain's array; the caller owns the first input and the last output.
    [[nodiscard]] constexpr std::int64_t all() const noexcept {
        return (first ? 0 : aligned(input)) + (last || in_place ? 0 : aligned(output)) + aligned(saved) +
               aligned(workspace);
    }
};

/// Memory that each layer of a model needs at the sizes of a run.
template <any_model Model>
[[nodiscard]] constexpr std::array<chain_link, Model::layer_count> links_of(const resizing& size = {}) {
    const auto graph = uncut_graph_of<Model>(size);
    std::array<chain_link, Model::layer_count> links{};
    for (std::size_t l = 0; l != links.size(); ++l) {
        const layer_node& node = graph.layers[l];
        links[l] = {node.input_elements,
                    node.output_elements,
                    node.saved_elements,
                    node.workspace_elements,
                    node.statistics_elements,
                    node.parameter_elements,
                    false,
                    l == 0,
                    l + 1 == links.size()};
    }
    [&]<std::size_t... I>(std::index_sequence<I...>) {
        ((links[I].in_place =
              works_in_place<typename Model::template layer_at<I>> && !links[I].first && !links[I].last),
         ...);
    }
    (std::make_index_sequence<Model::layer_count>{});
    return links;
}

/// Runs a model without skips and conditioning forward, sample by sample, in the memory that its largest layer needs;
/// whole, or some layers at a time, between which other layers may run on other samples.
///
/// Tensors between layers alternate: one begins at the front of an array, the next ends at its back; a layer's saved
/// tensors and workspace lie between its input and output. Memory is allocated on construction (and by set_size), in
/// the backend's space: for all layers, or for those that run here.
template <any_model Model, backend B>
    requires(Model::skip_count == 0 && !Model::is_conditioned)
class chain {
public:
    using scalar = typename B::scalar;
    using accumulator = typename B::accumulator;
    using space = space_of<B>;

    /// Maximum elements of one sample that tensors between layers, saved tensors and workspace take.
    [[nodiscard]] static constexpr std::int64_t working_elements(const resizing& size = {}) {
        std::int64_t most = 0;
        for (const chain_link& l : links_of<Model>(size)) { most = std::max(most, l.all()); }
        return most;
    }
    [[nodiscard]] static constexpr std::int64_t statistics_elements(const resizing& size = {}) {
        std::int64_t most = 0;
        for (const chain_link& l : links_of<Model>(size)) { most = std::max(most, l.statistics); }
        return most;
    }
    /// Bytes of tensors, statistics and parameters: everything but the backend's scratch. With several sizes, the bytes
    /// that suffice for each of them.
    [[nodiscard]] static constexpr std::int64_t bytes(std::span<const resizing> sizes) {
        std::int64_t working = 0;
        std::int64_t statistics = 0;
        for (const resizing& size : sizes) {
            working = std::max(working, working_elements(size));
            statistics = std::max(statistics, statistics_elements(size));
        }
        return static_cast<std::int64_t>(sizeof(scalar)) * (working + Model::parameter_count()) +
               static_cast<std::int64_t>(sizeof(accumulator)) * statistics;
    }
    [[nodiscard]] static constexpr std::int64_t bytes(const resizing& size = {}) { return bytes({&size, 1}); }

    /// Holds layer l where `layers` is true at l, or all layers if it is empty; at the sizes of a run (resize). Throws
    /// input_error when `layers` has another number of entries.
    explicit chain(B& math, const std::vector<bool>& layers = {}, const resizing& size = {}) : math_{math} {
        detail::require_one_each("chain", layers, Model::layer_count);
        std::int64_t parameters = 0;
        const auto links = links_of<Model>();
        for (std::size_t l = 0; l != Model::layer_count; ++l) {
            if (!layers.empty() && !layers[l]) { continue; }
            begins_[l] = parameters;
            parameters += links[l].parameters;
        }
        parameters_ = scalars(static_cast<std::size_t>(parameters));
        set_size(size);
    }
    chain(const chain&) = delete;
    chain& operator=(const chain&) = delete;

    /// Sets the sizes of the runs that follow (resize). Allocates only if no earlier sizes needed as much; in that case
    /// no earlier run may still be in progress on a device.
    void set_size(const resizing& size) {
        size_ = size;
        links_ = links_of<Model>(size);
        std::int64_t working = 0;
        for (std::size_t l = 0; l != Model::layer_count; ++l) {
            if (has(l)) { working = std::max(working, links_[l].all()); }
        }
        const auto take = [](auto& array, std::int64_t elements) {
            const auto n = static_cast<std::size_t>(elements);
            using held = std::remove_reference_t<decltype(array)>;
            if (array.size() >= n) { return; }
            array = held{}; // first, since there may be no room for both
            array = held(n);
        };
        take(working_, working);
        take(statistics_, statistics_elements(size));
    }

    /// Whether the weights of a layer are here.
    [[nodiscard]] bool has(std::size_t layer) const noexcept { return begins_[layer] >= 0; }
    /// The parameters of the layers that are here, one after the other in the order of parameters_of<Model>, weights of
    /// convolutions in the space's order; call B::weights_changed() after filling them.
    [[nodiscard]] std::span<scalar> parameters() noexcept { return {parameters_.data(), parameters_.size()}; }
    /// Fills the parameters: read(const parameter&, std::span<float>) writes the values of one, in C order. No earlier
    /// run may still be in progress on a device.
    template <class Read>
    void load(Read read) {
        scalar* to = parameters_.data();
        for (std::size_t l = 0; l != Model::layer_count; ++l) {
            if (!has(l)) { continue; }
            const std::size_t first = first_part_of<Model>(l);
            for (std::size_t part = first; part != first_part_of<Model>(l + 1); ++part) {
                for (const parameter& p : parameters_of<Model>(static_cast<int>(part))) {
                    std::vector<scalar> values = detail::scalars_of<scalar>(p, read);
                    if constexpr (space::weights != weight_order::checkpoint) {
                        std::vector<window_weight> windows;
                        append_windows({&p, 1}, 0, windows);
                        turn_weights(windows, weight_order::checkpoint, std::span{values});
                    }
                    space::template upload<scalar>(values, to);
                    to += p.elements();
                }
            }
        }
        math_.weights_changed();
    }

    /// Memory that each layer needs, in order.
    [[nodiscard]] const std::array<chain_link, Model::layer_count>& links() const noexcept { return links_; }
    /// Bytes allocated: bytes() if all layers are here.
    [[nodiscard]] std::int64_t used_bytes() const noexcept {
        return static_cast<std::int64_t>((working_.size() + parameters_.size()) * sizeof(scalar) +
                                         statistics_.size() * sizeof(accumulator));
    }

    /// y = model(x) for `samples` samples, both in the backend's space.
    void run(int samples, const scalar* x, scalar* y) {
        for (int s = 0; s < samples; ++s) {
            run_layers(0, Model::layer_count - 1, x + s * links_.front().input, y + s * links_.back().output);
        }
    }
    /// Runs layers `first` to `last` on one sample: reads the first one's input at x, writes the last one's output to
    /// y. The bits are those of run(), however layers are split. Throws error naming a layer that is not here.
    void run_layers(std::size_t first, std::size_t last, const scalar* x, scalar* y) {
        backend_frame<B> frame;
        frame.batch = 1;
        frame.size = size_;
        frame.input = x;
        frame.statistics = statistics_.data();
        scalar* held = nullptr; // the input, if it is in working_
        for (std::size_t l = first; l <= last; ++l) {
            if (!has(l)) { throw error{"pulse: chain: layer " + std::to_string(l) + " is not here"}; }
            const chain_link& now = links_[l];
            frame.parameters = parameters_.data() + begins_[l];
            const bool held_at_front = held != nullptr && held == working_.data();
            std::int64_t at_front = held_at_front ? chain_link::aligned(now.input) : 0;
            if (l == last) {
                frame.output = y;
            } else if (now.in_place && held != nullptr) {
                frame.output = held;
            } else if (held_at_front) {
                frame.output = working_.data() + working_.size() - chain_link::aligned(now.output);
            } else {
                frame.output = working_.data();
                at_front = chain_link::aligned(now.output);
            }
            frame.saved = working_.data() + at_front;
            frame.workspace = frame.saved + chain_link::aligned(now.saved);
            table[l](math_, frame);
            held = frame.output;
            frame.input = held;
        }
    }

private:
    using scalars = typename space::template array<scalar>;

    [[nodiscard]] static constexpr auto passes() {
        return []<std::size_t... I>(std::index_sequence<I...>) {
            return std::array<void (*)(B&, const backend_frame<B>&), sizeof...(I)>{
                &Model::template layer_at<I>::template forward<B>...};
        }
        (std::make_index_sequence<Model::layer_count>{});
    }
    static constexpr auto table = passes();

    B& math_;
    resizing size_{};
    std::array<chain_link, Model::layer_count> links_{};
    /// Offset of each layer's parameters; negative for layers that are not here.
    std::array<std::int64_t, Model::layer_count> begins_ = [] {
        std::array<std::int64_t, Model::layer_count> none{};
        none.fill(-1);
        return none;
    }();
    scalars parameters_{};
    scalars working_{};
    typename space::template array<accumulator> statistics_{};
};

} // namespace pulse::encode
