#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <pulse/core/label.hpp>
#include <pulse/model/layer.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>
#include <pulse/tensor/shape.hpp>

namespace pulse::nn {

/// One module that makes conditioning and describes itself: its parameters, FLOPs and what eager autograd keeps. Its
/// passes are those of all modules together (conditioning_passes).
template <label Name, auto Math>
    requires(sound<Math>::value)
struct described_module {
    static constexpr label name = Name;
    static constexpr auto math = Math;
    static constexpr std::int64_t saved_elements = sums_of<Math>.kept;
    static constexpr std::int64_t workspace_elements = sums_of<Math>.widest;
    [[nodiscard]] static constexpr auto parameters() { return described_parameters<Name, Math>; }
    [[nodiscard]] static constexpr double forward_flops() { return sums_of<Math>.flops; }
};

template <class... Modules>
struct module_list {};

template <class... Modules>
inline constexpr auto parameters_of_modules = [] {
    std::array<parameter, (std::size_t{0} + ... + Modules::parameters().size())> all{};
    std::size_t count = 0;
    const auto append = [&](const auto& some) {
        for (const parameter& p : some) { all[count++] = p; }
    };
    (append(Modules::parameters()), ...);
    return all;
}();

/// All modules that make a model's conditioning, as its one conditioner: together they give the embedding that blocks
/// read as conditioning, of the shape Output, and with Context the text states that blocks attend to.
///
/// Where a text encoder outside of the model gives the text states, no module makes them and they are relayed all the
/// same.
template <class Output, class Context, class... Modules>
struct conditioning_modules {
    static constexpr label name{"conditioning"};
    using output = Output;
    using context = Context;
    using modules = module_list<Modules...>;

    static constexpr std::int64_t saved_elements = (std::int64_t{0} + ... + Modules::saved_elements);
    static constexpr std::int64_t statistics_elements = (std::int64_t{0} + ... + pulse::statistics_elements<Modules>());
    static constexpr std::int64_t workspace_elements =
        std::max({std::int64_t{0}, std::int64_t{Modules::workspace_elements}...});
    [[nodiscard]] static constexpr auto parameters() { return parameters_of_modules<Modules...>; }
    [[nodiscard]] static constexpr double forward_flops() { return (0.0 + ... + Modules::forward_flops()); }
};

/// The same with passes: those of `Math`, a plain value whose parameters are those of all modules, one after the other.
///
/// Math has output(), text_elements(), fact_elements(), trains_context(), saved_elements(), statistics_elements(),
/// workspace_elements(), forward and backward_weight, see conditions_on.
template <auto Math, class Context, class... Modules>
    requires(sound<Math>::value)
struct conditioning_passes : conditioning_modules<typename shape_of<Math.output()>::type, Context, Modules...> {
    static constexpr std::int64_t text_elements = Math.text_elements();
    static constexpr std::int64_t fact_elements = Math.fact_elements();
    static constexpr bool trains_context = Math.trains_context();
    static constexpr std::int64_t saved_elements = Math.saved_elements();
    static constexpr std::int64_t statistics_elements = Math.statistics_elements();
    static constexpr std::int64_t workspace_elements = Math.workspace_elements();

    template <backend B>
    static void forward(B& on, const backend_frame<B>& frame) {
        Math.forward(on, frame);
    }
    template <backend B>
    static void backward_weight(B& on, const backend_frame<B>& frame) {
        Math.backward_weight(on, frame);
    }
};

} // namespace pulse::nn
