#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include <pulse/core/error.hpp>
#include <pulse/core/label.hpp>
#include <pulse/model/layer.hpp>
#include <pulse/model/rules.hpp>
#include <pulse/model/skip.hpp>

namespace pulse {

namespace detail {

template <std::size_t I, class T>
struct indexed {
    using type = T;
};
template <class Indices, class... T>
struct indexed_pack;
template <std::size_t... I, class... T>
struct indexed_pack<std::index_sequence<I...>, T...> : indexed<I, T>... {};

/// Overload resolution finds the I-th type at once: no recursion over the pack.
template <std::size_t I, class T>
indexed<I, T> select(const indexed<I, T>*);

} // namespace detail

struct layers_tag {};

/// The layers of a model, in the order in which they run.
template <class... L>
struct layers : layers_tag {
    static constexpr std::size_t count = sizeof...(L);
    static constexpr std::size_t parts = static_cast<std::size_t>((0 + ... + pulse::part_count<L>()));

    template <std::size_t I>
        requires(I < sizeof...(L))
    using at = typename decltype(detail::select<I>(
        static_cast<const detail::indexed_pack<std::make_index_sequence<sizeof...(L)>, L...>*>(nullptr)))::type;

    [[nodiscard]] static consteval bool explain() { return (explain_layer<L>() && ...); }
    [[nodiscard]] static constexpr std::array<layer_facts, sizeof...(L)> facts() noexcept { return {facts_of<L>()...}; }
    [[nodiscard]] static constexpr std::int64_t parameter_count() {
        return (std::int64_t{0} + ... + parameter_elements<L>());
    }
};

template <class T>
inline constexpr bool is_skips = false;
template <class... S>
inline constexpr bool is_skips<skips<S...>> = true;

namespace detail {

template <class Layers, class Skips, class Conditioning>
[[nodiscard]] consteval model_finding finding_of() {
    shape_facts conditioning{};
    shape_facts context{};
    if constexpr (conditioner<Conditioning>) {
        conditioning = facts_of_shape<typename Conditioning::output>();
        if constexpr (reads_context<Conditioning>) { context = facts_of_shape<typename Conditioning::context>(); }
    }
    const auto facts = Layers::facts();
    return inspect_model(facts, Skips::ends, conditioning, context, trains_context<Conditioning>);
}

/// Whether the parts fit together; if not, compilation stops with the first broken rule, in words.
template <class Layers, class Skips, class Conditioning>
[[nodiscard]] consteval bool explain_parts() {
    if constexpr (!std::derived_from<Layers, layers_tag>) {
        static_assert(std::derived_from<Layers, layers_tag>,
                      "pulse: the second argument of a model must be layers<...>");
        return false;
    } else if constexpr (!is_skips<Skips>) {
        static_assert(is_skips<Skips>, "pulse: the third argument of a model must be skips<skip<...>, ...>");
        return false;
    } else if constexpr (!(Layers::explain() && explain_conditioner<Conditioning>())) {
        return false;
    } else {
        constexpr model_finding found = finding_of<Layers, Skips, Conditioning>();
        return explain_model<found.broken, found.subject, found.object>();
    }
}

/// First base of a model, so that the compiler checks the parts before it complains about members.
template <class Layers, class Skips, class Conditioning>
struct explained {
    static_assert(explain_parts<Layers, Skips, Conditioning>(), "pulse: this is not a model; the error above says why");
};

} // namespace detail

struct model_tag {};

/// A model whose parts are known to fit. Types generated from a checked config derive from this and not from model,
/// because checking the parts takes most of such a type's compile time.
template <label Name, class Layers, class Skips = skips<>, class Conditioning = unconditioned>
struct fitting_model : model_tag {
    static constexpr label name = Name;
    using layer_list = Layers;
    using skip_list = Skips;
    using conditioning = Conditioning;

    static constexpr std::size_t layer_count = Layers::count;
    /// Parts of all layers together; a plan numbers these as its layers.
    static constexpr std::size_t part_count = Layers::parts;
    static constexpr std::size_t skip_count = Skips::count;
    static constexpr bool is_conditioned = !std::same_as<Conditioning, unconditioned>;

    template <std::size_t I>
    using layer_at = typename Layers::template at<I>;

    /// Position of a layer. Throws input_error when the model has no layer of that name.
    [[nodiscard]] static constexpr std::size_t index_of(const label& layer_name) {
        const auto facts = Layers::facts();
        const std::size_t at = find_layer(facts, layer_name);
        if (at == layer_count) {
            throw input_error(
                std::string{"pulse: model "}.append(Name.view()).append(" has no layer ").append(layer_name.view()));
        }
        return at;
    }

    /// Scalars in all parameters, the conditioning module's included.
    [[nodiscard]] static constexpr std::int64_t parameter_count() {
        std::int64_t total = Layers::parameter_count();
        if constexpr (is_conditioned) { total += parameter_elements<Conditioning>(); }
        return total;
    }
};

/// A model as a type: layers in the order in which they run, skip edges, and the conditioning module.
///
/// A user derives a named struct, so that symbols and messages stay short:
/// `struct tiny : pulse::model<"tiny", pulse::layers<a, b, c>, pulse::skips<pulse::skip<"a", "c">>> {};`
///
/// Checked at compile time: every L is a layer; names are unique; neighbours agree on the shape between them; every
/// skip edge names two layers, the source before the target, and carries what the target concatenates or adds; every
/// layer with a skip_input has one skip edge; the model provides the conditioning and context its layers read, in the
/// same shape.
template <label Name, class Layers, class Skips = skips<>, class Conditioning = unconditioned>
struct model : detail::explained<Layers, Skips, Conditioning>, fitting_model<Name, Layers, Skips, Conditioning> {};

namespace detail {

/// Stops compilation where a model is only declared, before errors about its members appear.
template <class M>
[[nodiscard]] consteval bool is_defined() {
    if constexpr (!std::is_class_v<M>) {
        return true;
    } else {
        static_assert(
            requires { sizeof(M); }, "pulse: this model is only declared here: include the header that defines it");
        return requires { sizeof(M); };
    }
}

} // namespace detail

/// A pulse::model or fitting_model, or a struct that derives from one.
template <class M>
concept any_model = detail::is_defined<M>() && std::derived_from<M, model_tag>;

} // namespace pulse
