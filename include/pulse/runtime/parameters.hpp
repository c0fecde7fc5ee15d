#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/model.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/plan/gradient_places.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/runtime/weight_order.hpp>

namespace pulse {

/// The conditioning module's number as a layer: it comes before layer 0.
inline constexpr int conditioning_block = -1;

/// Where a rank's gradients are stored.
struct gradient_room {
    /// Per layer: offset of its gradients from the position of its values; empty: gradients are laid out as values.
    std::span<const std::ptrdiff_t> shifts{};
    std::size_t size{}; ///< elements in total, if there are shifts
};

/// The parameters of the layers that one rank owns, and their gradients: two contiguous arrays with one block per
/// layer. Layers whose gradients exist at different times of a step may share gradient memory.
///
/// T is the type of the values and A that of the gradients: a backend's scalar and accumulator. Spans are memory of the
/// Space, initially 0, with convolution weights in its order (Space::weights). For another space than the host's, host
/// code writes through upload and upload_frozen, which take the checkpoint's order, and converts what it downloads with
/// to_checkpoint.
/// Layers are numbered as in the model's graph, which counts parts; conditioning_block is the conditioning module,
/// which is owned with layer 0. Frozen weights are stored apart, in blocks of their own without gradients, so that code
/// that iterates over blocks() never meets them.
template <class T, class A = T, class Space = host_space>
class rank_parameters {
public:
    struct block {
        int layer{};
        std::size_t first{};
        std::size_t size{};
        std::ptrdiff_t shift{}; ///< from its first value to its first gradient

        [[nodiscard]] std::size_t first_gradient() const noexcept { return first + static_cast<std::size_t>(shift); }
    };

    /// A non-empty tensor, and its number of rows if it is a matrix (parameter::matrix_rows).
    struct tensor {
        std::size_t first{};
        std::size_t size{};
        std::size_t rows{};
    };

    /// `elements[l]` for each of the rank's `layers`, in ascending order of layer.
    /// `frozen[l]`: the same for weights that are not trained; empty if there are none.
    /// `listed`: the trained parameters of all layers, in order, for optimizers that work per tensor. No tensor counts
    /// as a convolution's weight before set_windows.
    /// `room`: without shifts, gradients are laid out as values.
    rank_parameters(std::span<const int> layers, std::span<const std::int64_t> elements,
                    std::span<const std::int64_t> frozen = {}, std::span<const parameter> listed = {},
                    const gradient_room& room = {}) {
        std::size_t total = 0;
        std::size_t all_frozen = 0;
        for (std::size_t i = 0; i != layers.size(); ++i) {
            blocks_.push_back({layers[i], total, static_cast<std::size_t>(elements[i]),
                               room.shifts.empty() ? std::ptrdiff_t{} : room.shifts[i]});
            total += static_cast<std::size_t>(elements[i]);
            if (frozen.empty() || frozen[i] == 0) { continue; }
            frozen_blocks_.push_back({layers[i], all_frozen, static_cast<std::size_t>(frozen[i])});
            all_frozen += static_cast<std::size_t>(frozen[i]);
        }
        std::size_t at = 0;
        for (const parameter& p : listed) {
            const auto size = static_cast<std::size_t>(p.elements());
            if (size != 0) { tensors_.push_back({at, size, static_cast<std::size_t>(p.matrix_rows())}); }
            at += size;
        }
        values_ = typename Space::template array<T>(total);
        gradients_ = typename Space::template array<A>(room.shifts.empty() ? total : room.size);
        frozen_ = typename Space::template array<T>(all_frozen);
    }

    /// Tells which tensors the blocks hold: trained_in(layer) and frozen_in(layer) list them. Needed if the Space
    /// stores weights in another order than the checkpoint's.
    template <class Trained, class Frozen>
    void set_windows(Trained trained_in, Frozen frozen_in) {
        for (const block& b : blocks_) { append_windows(trained_in(b.layer), b.first, windows_); }
        for (const block& b : frozen_blocks_) { append_windows(frozen_in(b.layer), b.first, frozen_windows_); }
    }

    [[nodiscard]] std::span<const block> blocks() const noexcept { return blocks_; }
    /// Empty if they were not listed.
    [[nodiscard]] std::span<const tensor> tensors() const noexcept { return tensors_; }
    [[nodiscard]] std::span<T> values() noexcept { return {values_.data(), values_.size()}; }
    [[nodiscard]] std::span<const T> values() const noexcept { return {values_.data(), values_.size()}; }
    [[nodiscard]] std::span<A> gradients() noexcept { return {gradients_.data(), gradients_.size()}; }
    [[nodiscard]] std::span<const A> gradients() const noexcept { return {gradients_.data(), gradients_.size()}; }
    /// Blocks of the weights that are not trained, for layers that have any.
    [[nodiscard]] std::span<const block> frozen_blocks() const noexcept { return frozen_blocks_; }
    [[nodiscard]] std::span<T> frozen_values() noexcept { return {frozen_.data(), frozen_.size()}; }
    [[nodiscard]] std::span<const T> frozen_values() const noexcept { return {frozen_.data(), frozen_.size()}; }
    [[nodiscard]] std::int64_t bytes() const noexcept {
        return static_cast<std::int64_t>((values_.size() + frozen_.size()) * sizeof(T) + gradients_.size() * sizeof(A));
    }

    /// Throws error if this rank does not own `layer`.
    [[nodiscard]] const block& of(int layer) const {
        const auto at = std::lower_bound(blocks_.begin(), blocks_.end(), layer,
                                         [](const block& b, int number) { return b.layer < number; });
        if (at != blocks_.end() && at->layer == layer) { return *at; }
        throw error{"pulse: this rank does not own layer " + std::to_string(layer)};
    }
    [[nodiscard]] std::span<T> values_of(int layer) { return slice(values(), of(layer)); }
    [[nodiscard]] std::span<A> gradients_of(int layer) {
        const block& b = of(layer);
        return gradients().subspan(b.first_gradient(), b.size);
    }
    /// Empty if all weights of the layer are trained.
    [[nodiscard]] std::span<T> frozen_values_of(int layer) {
        for (const block& b : frozen_blocks_) {
            if (b.layer == layer) { return slice(frozen_values(), b); }
        }
        return {};
    }

    /// Converts host values of one block from the checkpoint's order to the Space's. `factored`: the values are means
    /// of rows, then of columns, of each of its tensors (moment_form::factored).
    void to_space(const block& of, std::span<float> values, bool factored = false) const {
        turn_block(of, weight_order::checkpoint, values, factored);
    }
    /// The inverse.
    void to_checkpoint(const block& of, std::span<float> values, bool factored = false) const {
        turn_block(of, Space::weights, values, factored);
    }
    /// Converts host values of all blocks, such as downloaded gradients, from the Space's order to the checkpoint's.
    template <class Each>
    void to_checkpoint(std::span<Each> all) const {
        turn_weights(windows_, Space::weights, all);
    }
    /// Sets a layer's values from host values in the checkpoint's order. Throws error if their number is wrong.
    void upload(int layer, std::span<const T> from) { put(windows_, of(layer), from, values_.data()); }
    /// The same for weights that are not trained, in one of frozen_blocks().
    void upload_frozen(const block& to, std::span<const T> from) { put(frozen_windows_, to, from, frozen_.data()); }
    /// A host copy of them, in the checkpoint's order.
    [[nodiscard]] std::vector<T> download_frozen(const block& from) const {
        std::vector<T> values(from.size);
        Space::template download<T>(frozen_.data() + from.first, values);
        turn_weights(frozen_windows_, Space::weights, std::span{values}, from.first);
        return values;
    }

private:
    void turn_block(const block& of, weight_order from, std::span<float> values, bool factored) const {
        factored ? turn_weights(column_windows(of), from, values) : turn_weights(windows_, from, values, of.first);
    }
    /// Finds the column means of each window weight among the moments of a block; they are ordered like one of its
    /// rows.
    [[nodiscard]] std::vector<window_weight> column_windows(const block& of) const {
        std::vector<window_weight> found;
        std::size_t at = 0;
        for (const tensor& t : tensors_) {
            if (t.first < of.first || t.first >= of.first + of.size) { continue; }
            const auto window = std::ranges::find(windows_, t.first, &window_weight::first);
            if (window != windows_.end()) {
                found.push_back({at + t.rows, t.size / t.rows, window->channels, window->taps});
            }
            at += factored_elements(t.size, t.rows);
        }
        return found;
    }
    static void put(std::span<const window_weight> windows, const block& to, std::span<const T> from, T* all) {
        if (from.size() != to.size) {
            throw error{"pulse: layer " + std::to_string(to.layer) + " has " + std::to_string(to.size) +
                        " parameters, not " + std::to_string(from.size())};
        }
        std::vector<T> turned;
        if (!windows.empty()) {
            turned.assign(from.begin(), from.end());
            turn_weights(windows, weight_order::checkpoint, std::span{turned}, to.first);
            from = turned;
        }
        Space::template upload<T>(from, all + to.first);
    }
    template <class Each>
    [[nodiscard]] static std::span<Each> slice(std::span<Each> all, const block& b) {
        return all.subspan(b.first, b.size);
    }

    std::vector<block> blocks_;
    std::vector<tensor> tensors_;
    typename Space::template array<T> values_;
    typename Space::template array<A> gradients_;
    std::vector<block> frozen_blocks_;
    typename Space::template array<T> frozen_;
    std::vector<window_weight> windows_{}; ///< weights in another order than the checkpoint's
    std::vector<window_weight> frozen_windows_{};
};

namespace detail {

/// Calls take with a null pointer to the layer that contains part `layer` of the Model, or to its conditioning module.
template <class Model, class Take>
void with_owner(int layer, const Take& take) {
    if constexpr (Model::is_conditioned) {
        if (layer == conditioning_block) { return take(static_cast<const typename Model::conditioning*>(nullptr)); }
    }
    const int in_model = layer < 0 ? layer : part_places<Model>[static_cast<std::size_t>(layer)].layer;
    [&]<std::size_t... I>(std::index_sequence<I...>) {
        static_cast<void>(((static_cast<int>(I) == in_model &&
                            (take(static_cast<const typename Model::template layer_at<I>*>(nullptr)), true)) ||
                           ...));
    }
    (std::make_index_sequence<Model::layer_count>{});
}

} // namespace detail

/// Names and shapes of the trained parameters of a layer, or of a part of one, in the order of its block.
template <class Model>
[[nodiscard]] std::vector<parameter> parameters_of(int layer) {
    std::vector<parameter> found;
    detail::with_owner<Model>(layer, [&]<class Owner>(const Owner*) {
        // Static: building a parameter list where it is read costs the compiler seconds.
        static constexpr decltype(Owner::parameters()) all = Owner::parameters();
        auto first = all.begin();
        auto last = all.end();
        if constexpr (runs_in_parts<Owner>) {
            const int part = part_places<Model>[static_cast<std::size_t>(layer)].part;
            for (int k = 0; k != part; ++k) { first += static_cast<std::ptrdiff_t>(Owner::parameters_in(k)); }
            last = first + static_cast<std::ptrdiff_t>(Owner::parameters_in(part));
        }
        found.assign(first, last);
    });
    return found;
}

/// The same for the weights of a layer that are not trained.
template <class Model>
[[nodiscard]] std::vector<parameter> frozen_parameters_of(int layer) {
    std::vector<parameter> found;
    detail::with_owner<Model>(layer, [&]<class Owner>(const Owner*) {
        if constexpr (has_frozen_parameters<Owner>) {
            static constexpr decltype(Owner::frozen_parameters()) all = Owner::frozen_parameters();
            found.assign(all.begin(), all.end());
        }
    });
    return found;
}

namespace detail {

/// `shift_of(layer)`, if given, is rank_parameters::block::shift among `gradients` elements.
template <class Model, class T, class A, class Space, class Owned, class Shift = std::nullptr_t>
[[nodiscard]] rank_parameters<T, A, Space> parameters_where(Owned owned, std::size_t gradients = 0,
                                                            [[maybe_unused]] Shift shift_of = {}) {
    const auto& parts = graph_of_type<Model>.layers;
    std::vector<int> layers;
    std::vector<std::int64_t> elements;
    std::vector<std::int64_t> frozen;
    std::vector<parameter> listed;
    std::vector<std::ptrdiff_t> shifts;
    const auto list = [&](int layer) {
        if constexpr (!std::same_as<Shift, std::nullptr_t>) { shifts.push_back(shift_of(std::max(layer, 0))); }
        const std::vector<parameter> own = parameters_of<Model>(layer);
        listed.insert(listed.end(), own.begin(), own.end());
    };
    for (int l = 0; l != static_cast<int>(parts.size()); ++l) {
        if (!owned(l)) { continue; }
        std::int64_t trained = parts[static_cast<std::size_t>(l)].parameter_elements;
        std::int64_t unchanged = parts[static_cast<std::size_t>(l)].frozen_parameter_elements;
        if constexpr (Model::is_conditioned) {
            if (l == 0) { // the graph counts its parameters there
                layers.push_back(conditioning_block);
                list(conditioning_block);
                elements.push_back(parameter_elements<typename Model::conditioning>());
                frozen.push_back(frozen_parameter_elements<typename Model::conditioning>());
                trained -= elements.back();
                unchanged -= frozen.back();
            }
        }
        layers.push_back(l);
        list(l);
        elements.push_back(trained);
        frozen.push_back(unchanged);
    }
    rank_parameters<T, A, Space> made{layers, elements, frozen, listed, {shifts, gradients}};
    if constexpr (Space::weights != weight_order::checkpoint) {
        made.set_windows(parameters_of<Model>, frozen_parameters_of<Model>);
    }
    return made;
}

} // namespace detail

/// The parameters of a rank that runs backend B.
template <class B>
using backend_parameters = rank_parameters<typename B::scalar, typename B::accumulator, space_of<B>>;

namespace detail {

/// Storage for the parameters of the layers that `rank` runs under a plan; the conditioning module belongs to layer 0.
template <class Model, class T, class A = T, class Space = host_space>
[[nodiscard]] rank_parameters<T, A, Space> owned_parameters(const step_model& model, int rank,
                                                            const gradient_places& gradients) {
    return parameters_where<Model, T, A, Space>(
        [&](int l) { return model.device_of_stage(model.stage_of_layer(l)) == rank; },
        static_cast<std::size_t>(gradients.elements),
        [&](int l) {
            return static_cast<std::ptrdiff_t>(gradients.shifts[static_cast<std::size_t>(model.stage_of_layer(l))]);
        });
}

} // namespace detail

/// Storage for the parameters of all layers.
template <class Model, class T, class A = T, class Space = host_space>
[[nodiscard]] rank_parameters<T, A, Space> whole_model() {
    return detail::parameters_where<Model, T, A, Space>([](int) { return true; });
}

} // namespace pulse
