#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include <pulse/core/label.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// What the parts of a layer add up to, per sample.
struct layer_sums {
    std::size_t parameters{};
    std::int64_t parameter_elements{};
    double flops{};
    /// What eager autograd keeps for the backward pass, the layer's input and skip input included.
    std::int64_t kept{};
    /// Outputs of all products with weights: their gradients are what the weight gradients need.
    std::int64_t products{};
    std::int64_t last_product{};
    std::int64_t widest{};
};

/// Collects what a layer consists of: its parameters with their names, its FLOPs and what its forward pass keeps.
///
/// Room for the names of `Count` parameters; with Count 0 it only adds up. FLOPs are 2 per multiply-accumulate of
/// convolutions, linear layers and the two products of an attention; norms, activations and additions count none.
template <std::size_t Count>
class layer_description {
public:
    /// Names of what follows begin with `root` and a dot; an empty root adds nothing.
    constexpr void within(const label& root) noexcept {
        if constexpr (Count != 0) { root_ = root; }
    }
    constexpr void parameter(std::string_view name, std::initializer_list<int> dims) {
        std::int64_t elements = 1;
        for (const int d : dims) { elements *= d; }
        sums_.parameter_elements += elements;
        if constexpr (Count != 0) {
            pulse::parameter& p = parameters_[sums_.parameters];
            p.name = root_.empty() ? root_ : root_ + ".";
            p.name = p.name + name;
            for (const int d : dims) { p.dims[static_cast<std::size_t>(p.rank++)] = d; }
        }
        ++sums_.parameters;
    }
    /// `name`.weight [dims] and `name`.bias [first of dims], without the bias if not asked.
    constexpr void weight(std::string_view name, std::initializer_list<int> dims, bool bias = true) {
        const label full{name};
        parameter((full + ".weight").view(), dims);
        if (bias) { parameter((full + ".bias").view(), {*dims.begin()}); }
    }
    /// An affine norm of so many channels.
    constexpr void norm(std::string_view name, int channels) { weight(name, {channels}); }
    /// `rows` vectors of `in` features become vectors of `out` features.
    constexpr void linear(std::string_view name, std::int64_t rows, int in, int out, bool bias = true) {
        weight(name, {out, in}, bias);
        product(rows, in, out);
    }
    /// A square convolution of so many pixels of output.
    constexpr void conv(std::string_view name, std::int64_t pixels, int in, int out, int kernel) {
        weight(name, {out, in, kernel, kernel});
        product(pixels, in * kernel * kernel, out);
    }
    /// The products of queries with keys and of their weights with values; `width` is all heads together.
    constexpr void attention(std::int64_t queries, std::int64_t keys, int width) noexcept {
        sums_.flops += 4.0 * static_cast<double>(queries * keys * width);
    }
    /// A tensor that is kept for the backward pass.
    constexpr void keep(std::int64_t elements) noexcept {
        sums_.kept += elements;
        sums_.widest = std::max(sums_.widest, elements);
    }

    [[nodiscard]] constexpr const layer_sums& sums() const noexcept { return sums_; }
    [[nodiscard]] constexpr const std::array<pulse::parameter, Count>& parameters() const noexcept {
        return parameters_;
    }

private:
    constexpr void product(std::int64_t rows, int in, int out) noexcept {
        sums_.flops += 2.0 * static_cast<double>(rows * in * out);
        sums_.last_product = rows * out;
        sums_.products += sums_.last_product;
    }

    label root_{};
    layer_sums sums_{};
    std::array<pulse::parameter, Count> parameters_{};
};

/// The sums of `Math`, made once for all layers of equal numbers.
template <auto Math>
inline constexpr layer_sums sums_of = [] {
    layer_description<0> all{};
    Math.describe(all, label{});
    return all.sums();
}();

template <label Name, auto Math>
inline constexpr auto described_parameters = [] {
    layer_description<sums_of<Math>.parameters> all{};
    Math.describe(all, Name);
    return all.parameters();
}();

template <auto Math>
struct residual_face {};
template <auto Math>
    requires(Math.residual_input()[0] != 0)
struct residual_face<Math> {
    using residual_input = typename shape_of<Math.residual_input()>::type;
};

template <auto Math>
struct context_face {};
template <auto Math>
    requires(Math.context()[0] != 0)
struct context_face<Math> {
    using context = typename shape_of<Math.context()>::type;
};

/// A layer that describes itself but has no passes yet: planning needs no more. See described_block for one that runs.
///
/// `Math` is a plain value like those of `block`, whose member describe(layer_description&, const label& name) lists
/// its parts in the checkpoint's order. What it saves is what eager autograd keeps besides the inputs, without
/// statistics; backward_input leaves the gradient of every product's output but the last, whose gradient is the
/// output's; workspace is an estimate: the widest tensor and the input again.
template <label Name, auto Math>
    requires(sound<Math>::value)
struct described : skip_face<Math>, conditioning_face<Math>, residual_face<Math>, context_face<Math> {
    static constexpr label name = Name;
    static constexpr auto math = Math;

    using input = typename shape_of<Math.input()>::type;
    using output = typename shape_of<Math.output()>::type;

    static constexpr std::int64_t saved_elements =
        sums_of<Math>.kept - elements(Math.input()) - elements(Math.skip_input());
    static constexpr std::int64_t deferred_elements = sums_of<Math>.products - sums_of<Math>.last_product;
    static constexpr std::int64_t workspace_elements = sums_of<Math>.widest + elements(Math.input());

    [[nodiscard]] static constexpr auto parameters() { return described_parameters<Name, Math>; }
    [[nodiscard]] static constexpr double forward_flops() { return sums_of<Math>.flops; }
};

/// Facts of a sample that `Math` reads: its member fact_elements(), 0 where it has none.
template <auto Math>
[[nodiscard]] constexpr std::int64_t facts_of() noexcept {
    if constexpr (requires { Math.fact_elements(); }) {
        return Math.fact_elements();
    } else {
        return 0;
    }
}

/// A layer that describes itself and has passes: `Math` also has saved_elements(), deferred_elements(),
/// workspace_elements(), forward, backward_input and backward_weight, as those of `block`, and statistics_elements()
/// where it keeps statistics.
template <label Name, auto Math>
    requires(sound<Math>::value)
struct described_block : described<Name, Math>, passes_face<Math> {
    static constexpr std::int64_t saved_elements = Math.saved_elements();
    static constexpr std::int64_t statistics_elements = statistics_of<Math>();
    static constexpr std::int64_t deferred_elements = Math.deferred_elements();
    static constexpr std::int64_t workspace_elements = Math.workspace_elements();
    static constexpr bool reads_timesteps = requires { Math.timestep_features(); };
    static constexpr std::int64_t fact_elements = facts_of<Math>();
};

} // namespace pulse::nn
