#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <pulse/core/label.hpp>
#include <pulse/model/layer.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/tensor/shape.hpp>

namespace pulse::nn {

/// Two linear layers with SiLU between them: silu(x W1 + b1) W2 + b2 on `rows` vectors. Parameters: linear_1, linear_2.
struct mlp_embedding {
    int rows{1};
    int features{};
    int hidden{};
    int width{};

    [[nodiscard]] constexpr flaw defect() const noexcept {
        return rows <= 0 || features <= 0 || hidden <= 0 || width <= 0 ? flaw::size : flaw::none;
    }
    template <class Description>
    constexpr void describe(Description& d, const label& name) const {
        d.within(name);
        describe_into(d, "linear_1", "linear_2");
        d.keep(std::int64_t{rows} * features);
        d.keep(std::int64_t{rows} * hidden);
        d.keep(std::int64_t{rows} * hidden);
    }
    template <class Description>
    constexpr void describe_into(Description& d, std::string_view first, std::string_view second) const {
        d.linear(first, rows, features, hidden);
        d.linear(second, rows, hidden, width);
    }
};

/// One module that makes conditioning and describes itself but has no passes yet. A module has no input that a plan
/// counts, so it saves all that eager autograd keeps.
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
/// Where a text encoder outside of the model gives the text states, no module makes them and they are relayed all the same.
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

} // namespace pulse::nn
