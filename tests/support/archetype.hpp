#pragma once

#include <array>
#include <cstdint>

#include <pulse/core/label.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/tensor/shape.hpp>

/// Minimal types that satisfy the model concepts; tests build models of them and break one rule at a time.
namespace archetype {

template <pulse::label Name, class Input, class Output = Input>
struct layer {
    static constexpr pulse::label name = Name;
    using input = Input;
    using output = Output;
    [[nodiscard]] static constexpr std::array<pulse::parameter, 2> parameters() {
        return {pulse::parameter{Name + ".weight", {2, 3}, 2}, pulse::parameter{Name + ".bias", {2}, 1}};
    }
    [[nodiscard]] static constexpr double forward_flops() { return 24.0; }
    static constexpr std::int64_t saved_elements = 5;
    static constexpr std::int64_t deferred_elements = 7;
    static constexpr std::int64_t workspace_elements = 11;
};

/// Concatenates a skip of shape `Skip`.
template <pulse::label Name, class Input, class Skip, class Output = Input>
struct joining_layer : layer<Name, Input, Output> {
    using skip_input = Skip;
};

/// Reads conditioning of shape `Conditioning`.
template <pulse::label Name, class Input, class Conditioning, class Output = Input>
struct conditioned_layer : layer<Name, Input, Output> {
    using conditioning = Conditioning;
};

/// Reads text states of shape `Context`.
template <pulse::label Name, class Input, class Context, class Output = Input>
struct attending_layer : layer<Name, Input, Output> {
    using context = Context;
};

/// Makes conditioning of shape `Output`.
template <pulse::label Name, class Output>
struct module {
    static constexpr pulse::label name = Name;
    using output = Output;
    [[nodiscard]] static constexpr std::array<pulse::parameter, 1> parameters() {
        return {pulse::parameter{Name + ".weight", {10, 10}, 2}};
    }
    [[nodiscard]] static constexpr double forward_flops() { return 200.0; }
    static constexpr std::int64_t saved_elements = 13;
    static constexpr std::int64_t statistics_elements = 19;
    static constexpr std::int64_t workspace_elements = 17;
};

/// Gives text states of shape `Context` too.
template <pulse::label Name, class Output, class Context>
struct module_with_text : module<Name, Output> {
    using context = Context;
};

} // namespace archetype
