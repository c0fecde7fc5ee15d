#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <pulse/model/extent.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/model.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/nn/initialise.hpp>
#include <pulse/runtime/layer_frame.hpp>
#include <pulse/runtime/parameters.hpp>

namespace pulse::test {

/// The memory of host backends.
template <class T>
using plain_vector = std::vector<T>;

/// `count` unwritten scalars: NaN, so that a read before a write shows.
template <class T, template <class> class Vector = plain_vector>
[[nodiscard]] Vector<T> poisoned(std::int64_t count) {
    return Vector<T>(static_cast<std::size_t>(count), static_cast<T>(std::numeric_limits<float>::quiet_NaN()));
}

/// Runs a model layer by layer on one backend, one microbatch after the other. A pipeline must equal it bit for bit.
///
/// Sums have a fixed order. The gradient of a layer's output is the input gradient of the next layer, plus the skip
/// gradients of the edges that leave it, in ascending order of the edges. The gradient of the conditioning starts at
/// zero, and the layers add to it from the last to the first. Parameter gradients add over microbatches in call order.
/// Every buffer that a pass must write is poisoned first. `Vector` is memory that backend and host can both access.
template <any_model M, backend B, template <class> class Vector = plain_vector>
class unpipelined {
public:
    using T = typename B::scalar;
    using A = typename B::accumulator;
    static constexpr std::size_t count = M::layer_count;

    /// What one microbatch keeps between its passes.
    struct tape {
        int batch{};
        Vector<T> input, text, conditioning, conditioning_saved, conditioning_gradient, input_gradient;
        Vector<A> timesteps, facts, conditioning_statistics;
        std::array<Vector<A>, count> statistics;
        std::array<Vector<T>, count> output, saved, output_gradient, deferred;
        std::array<Vector<T>, M::skip_count> skip_gradient;
    };

    std::array<Vector<T>, count> parameters, frozen_parameters;
    std::array<Vector<A>, count> gradients;
    Vector<T> conditioning_parameters, frozen_conditioning_parameters;
    Vector<A> conditioning_gradients;
    into mode{into::add}; ///< whether passes add to parameter gradients or write them

    /// Parameters and gradients are zero.
    explicit unpipelined(B& backend, const extent& to = {}) :
        size_{resize<M>(to)}, graph_{uncut_graph_of<M>(size_)}, on_{&backend} {
        for_each_layer([&]<std::size_t I>(index<I>) {
            parameters[I].resize(static_cast<std::size_t>(parameter_elements<layer_at<I>>()));
            frozen_parameters[I].resize(static_cast<std::size_t>(frozen_parameter_elements<layer_at<I>>()));
        });
        if constexpr (M::is_conditioned) {
            using embedder = typename M::conditioning;
            conditioning_parameters.resize(static_cast<std::size_t>(parameter_elements<embedder>()));
            frozen_conditioning_parameters.resize(static_cast<std::size_t>(frozen_parameter_elements<embedder>()));
        }
        clear_gradients();
    }

    /// Draws the parameters from `seed` as pulse::nn::initialise does; gradients are zero.
    unpipelined(B& backend, std::uint64_t seed, const extent& to = {}) : unpipelined{backend, to} {
        for_each_layer([&]<std::size_t I>(index<I>) {
            static constexpr auto list = layer_at<I>::parameters();
            nn::initialise(std::span<const parameter>{list}, seed, std::span<T>{parameters[I]});
            if constexpr (has_frozen_parameters<layer_at<I>>) {
                static constexpr auto frozen = layer_at<I>::frozen_parameters();
                nn::initialise(std::span<const parameter>{frozen}, seed, std::span<T>{frozen_parameters[I]});
            }
        });
        if constexpr (M::is_conditioned) {
            static constexpr auto list = M::conditioning::parameters();
            nn::initialise(std::span<const parameter>{list}, seed, std::span<T>{conditioning_parameters});
            if constexpr (has_frozen_parameters<typename M::conditioning>) {
                static constexpr auto frozen = M::conditioning::frozen_parameters();
                nn::initialise(std::span<const parameter>{frozen}, seed, std::span<T>{frozen_conditioning_parameters});
            }
        }
    }

    /// For a part of a layer, as plans count parts: its range lies behind those of the parts before it.
    [[nodiscard]] std::span<T> parameters_of_part(int part) { return part_in(parameters, part); }
    [[nodiscard]] std::span<A> gradients_of_part(int part) { return part_in(gradients, part); }
    [[nodiscard]] std::span<T> frozen_parameters_of_part(int part) {
        const auto layer = static_cast<std::size_t>(part_places<M>[static_cast<std::size_t>(part)].layer);
        return {frozen_parameters[layer].data(), frozen_parameters[layer].size()};
    }

    /// Copies this model's parameters, except those that it does not train, to a rank.
    template <class Parameters>
    void give(Parameters& to) {
        for (const auto& block : to.blocks()) {
            const bool conditions = block.layer == conditioning_block;
            const std::span<T> from = conditions
                                          ? std::span<T>{conditioning_parameters.data(), conditioning_parameters.size()}
                                          : parameters_of_part(block.layer);
            std::ranges::copy(from, to.values_of(block.layer).begin());
        }
    }

    void clear_gradients() {
        for (std::size_t l = 0; l != count; ++l) { gradients[l].assign(parameters[l].size(), A{0}); }
        conditioning_gradients.assign(conditioning_parameters.size(), A{0});
    }

    /// `input` is [batch][first layer's input], `timesteps` [batch] (empty without conditioning); `text` and `facts`
    /// are what the model reads of them, see layer_frame.
    [[nodiscard]] tape forward(int batch, Vector<T> input, Vector<A> timesteps = {}, Vector<T> text = {},
                               Vector<A> facts = {}) {
        tape t;
        t.batch = batch;
        t.input = std::move(input);
        t.timesteps = std::move(timesteps);
        t.text = std::move(text);
        t.facts = std::move(facts);
        if constexpr (M::is_conditioned) {
            using embedder = typename M::conditioning;
            t.conditioning = poisoned<T, Vector>(batch * graph_.conditioning_elements);
            t.conditioning_saved = poisoned<T, Vector>(batch * embedder::saved_elements);
            t.conditioning_statistics = poisoned<A, Vector>(batch * statistics_elements<embedder>());
            auto workspace = poisoned<T, Vector>(batch * embedder::workspace_elements);
            backend_frame<B> frame;
            frame.batch = batch;
            frame.timesteps = t.timesteps.data();
            frame.text = t.text.data();
            frame.facts = t.facts.data();
            frame.parameters = conditioning_parameters.data();
            frame.frozen_parameters = frozen_conditioning_parameters.data();
            frame.output = t.conditioning.data();
            frame.saved = t.conditioning_saved.data();
            frame.statistics = t.conditioning_statistics.data();
            frame.workspace = workspace.data();
            embedder::forward(*on_, frame);
        }
        for_each_layer([&]<std::size_t I>(index<I>) {
            t.output[I] = poisoned<T, Vector>(batch * graph_.layers[I].output_elements);
            t.saved[I] = poisoned<T, Vector>(batch * graph_.layers[I].saved_elements);
            t.statistics[I] = poisoned<A, Vector>(batch * graph_.layers[I].statistics_elements);
            auto workspace = poisoned<T, Vector>(batch * graph_.layers[I].workspace_elements);
            layer_at<I>::forward(*on_, frame_of(I, t, workspace));
        });
        return t;
    }

    /// Runs every layer's backward_input, last to first; `gradient` is that of the model's output. `to_input` also
    /// computes the gradient of the model's input.
    void backward_input(tape& t, Vector<T> gradient, bool to_input = false) {
        t.conditioning_gradient.assign(t.conditioning.size(), static_cast<T>(A{0}));
        t.input_gradient = to_input ? poisoned<T, Vector>(static_cast<std::int64_t>(t.input.size())) : Vector<T>{};
        Vector<T> from_next = std::move(gradient);
        for_each_layer_backwards([&]<std::size_t I>(index<I>) {
            if constexpr (!is_forward_only<layer_at<I>>()) {
                t.output_gradient[I] = std::move(from_next);
                for (std::size_t e = 0; e != M::skip_count; ++e) {
                    if (graph_.skips[e].from == static_cast<int>(I)) {
                        on_->add(t.batch * gradient_elements(I), t.skip_gradient[e].data(),
                                 t.output_gradient[I].data());
                    }
                }
                const bool wanted = I != 0 && gradient_elements(I - 1) != 0;
                from_next = poisoned<T, Vector>(wanted ? t.batch * gradient_elements(I - 1) : 0);
                t.deferred[I] = poisoned<T, Vector>(t.batch * graph_.layers[I].deferred_elements);
                auto workspace = poisoned<T, Vector>(t.batch * graph_.layers[I].workspace_elements);
                backend_frame<B> frame = frame_of(I, t, workspace);
                frame.input_gradient = wanted               ? from_next.data()
                                       : I == 0 && to_input ? t.input_gradient.data()
                                                            : nullptr;
                if (const int edge = edge_into(I); edge >= 0) {
                    auto& skip_gradient = t.skip_gradient[static_cast<std::size_t>(edge)];
                    skip_gradient =
                        poisoned<T, Vector>(t.batch * graph_.skips[static_cast<std::size_t>(edge)].elements);
                    frame.skip_gradient = skip_gradient.data();
                }
                layer_at<I>::backward_input(*on_, frame);
            }
        });
    }

    /// Runs every layer's backward_weight, last to first, then the conditioning module's.
    void backward_weight(tape& t) {
        for_each_layer_backwards([&]<std::size_t I>(index<I>) {
            if constexpr (!is_forward_only<layer_at<I>>()) {
                auto workspace = poisoned<T, Vector>(t.batch * graph_.layers[I].workspace_elements);
                layer_at<I>::backward_weight(*on_, frame_of(I, t, workspace));
            }
        });
        if constexpr (M::is_conditioned) {
            using embedder = typename M::conditioning;
            auto workspace = poisoned<T, Vector>(t.batch * embedder::workspace_elements);
            backend_frame<B> frame;
            frame.batch = t.batch;
            frame.timesteps = t.timesteps.data();
            frame.text = t.text.data();
            frame.facts = t.facts.data();
            frame.parameters = conditioning_parameters.data();
            frame.frozen_parameters = frozen_conditioning_parameters.data();
            frame.saved = t.conditioning_saved.data();
            frame.statistics = t.conditioning_statistics.data();
            frame.output_gradient = t.conditioning_gradient.data();
            frame.parameter_gradients = conditioning_gradients.data();
            frame.gradients = mode;
            frame.workspace = workspace.data();
            embedder::backward_weight(*on_, frame);
        }
    }

    void backward(tape& t, Vector<T> gradient) {
        backward_input(t, std::move(gradient));
        backward_weight(t);
    }

    [[nodiscard]] static const Vector<T>& output(const tape& t) { return t.output[count - 1]; }

private:
    template <class Each>
    [[nodiscard]] static std::span<Each> part_in(std::array<Vector<Each>, count>& layers, int part) {
        const part_place place = part_places<M>[static_cast<std::size_t>(part)];
        Vector<Each>& whole = layers[static_cast<std::size_t>(place.layer)];
        if (place.parts == 1) { return {whole.data(), whole.size()}; }
        const auto elements_of = [](int p) {
            std::size_t sum = 0;
            for (const parameter& one : parameters_of<M>(p)) { sum += static_cast<std::size_t>(one.elements()); }
            return sum;
        };
        std::size_t begin = 0;
        for (int p = part - place.part; p != part; ++p) { begin += elements_of(p); }
        return {whole.data() + begin, elements_of(part)};
    }

    template <std::size_t I>
    using layer_at = typename M::template layer_at<I>;
    template <std::size_t I>
    using index = std::integral_constant<std::size_t, I>;

    template <class F>
    static void for_each_layer(F f) {
        [&]<std::size_t... I>(std::index_sequence<I...>) { (f(index<I>{}), ...); }
        (std::make_index_sequence<count>{});
    }
    template <class F>
    static void for_each_layer_backwards(F f) {
        for_each_layer([&]<std::size_t I>(index<I>) { f(index<count - 1 - I>{}); });
    }

    /// Elements of a layer's output that have a gradient.
    [[nodiscard]] std::int64_t gradient_elements(std::size_t layer) const {
        return graph_.layers[layer].output_elements - graph_.layers[layer].frozen_output_elements;
    }
    /// The edge whose target is the layer, or -1.
    [[nodiscard]] int edge_into(std::size_t layer) const {
        for (std::size_t e = 0; e != M::skip_count; ++e) {
            if (graph_.skips[e].to == static_cast<int>(layer)) { return static_cast<int>(e); }
        }
        return -1;
    }

    /// All pointers except the gradients that backward_input writes.
    [[nodiscard]] backend_frame<B> frame_of(std::size_t l, tape& t, Vector<T>& workspace) {
        backend_frame<B> frame;
        frame.batch = t.batch;
        frame.size = size_;
        frame.input = l == 0 ? t.input.data() : t.output[l - 1].data();
        if (const int edge = edge_into(l); edge >= 0) {
            frame.skip = t.output[static_cast<std::size_t>(graph_.skips[static_cast<std::size_t>(edge)].from)].data();
        }
        frame.conditioning = t.conditioning.data();
        frame.parameters = parameters[l].data();
        frame.frozen_parameters = frozen_parameters[l].data();
        frame.output = t.output[l].data();
        frame.saved = t.saved[l].data();
        frame.statistics = t.statistics[l].data();
        frame.output_gradient = t.output_gradient[l].data();
        frame.conditioning_gradient = t.conditioning_gradient.data();
        if constexpr (reads_context<typename M::conditioning>) {
            const std::int64_t embeddings = t.batch * M::conditioning::output::elements;
            frame.context = t.conditioning.data() + embeddings;
            // There is no gradient before the backward pass.
            if (trains_context<typename M::conditioning> && !t.conditioning_gradient.empty()) {
                frame.context_gradient = t.conditioning_gradient.data() + embeddings;
            }
        }
        frame.deferred = t.deferred[l].data();
        frame.parameter_gradients = gradients[l].data();
        frame.gradients = mode;
        frame.workspace = workspace.data();
        if (l == 0) {
            frame.timesteps = t.timesteps.data();
            frame.facts = t.facts.data();
        }
        return frame;
    }

    resizing size_;
    static_graph<M::layer_count, M::skip_count> graph_;
    B* on_;
};

} // namespace pulse::test
