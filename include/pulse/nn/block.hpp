#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include <pulse/core/label.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/runtime/layer_frame.hpp>
#include <pulse/tensor/shape.hpp>

namespace pulse::nn {

/// Channels, height and width of an image, or a number of tokens and their features and 0; a plain vector of features
/// has height and width 0, an absent tensor all 0.
using extent = std::array<int, 3>;

[[nodiscard]] constexpr std::int64_t elements(const extent& e) noexcept {
    return std::int64_t{e[0]} * (e[1] == 0 ? 1 : e[1]) * (e[2] == 0 ? 1 : e[2]);
}

/// What makes the numbers of a block unusable; `block` turns each into one sentence when it is compiled.
enum class flaw : std::uint8_t { none, size, window, groups, heads, features };

/// The parameters of one layer, in the order in which they lie in memory.
struct parameter_list {
    std::array<parameter, 16> items{};
    std::size_t count{};

    constexpr void add(const label& name, std::initializer_list<int> dims) {
        parameter& p = items[count++];
        p.name = name;
        for (const int d : dims) { p.dims[static_cast<std::size_t>(p.rank++)] = d; }
    }
    /// `prefix`.weight of the given shape and `prefix`.bias of its first dimension.
    constexpr void add_pair(const label& prefix, std::initializer_list<int> dims) {
        add(prefix + ".weight", dims);
        add(prefix + ".bias", {*dims.begin()});
    }
};

/// Cuts a block of memory into consecutive pieces; `each` is the batch where sizes are per sample.
template <class T>
class slices {
public:
    explicit constexpr slices(T* begin, std::int64_t each = 1) noexcept : next_{begin}, each_{each} {}

    [[nodiscard]] constexpr T* take(std::int64_t count) noexcept {
        T* const piece = next_;
        next_ += each_ * count;
        return piece;
    }

private:
    T* next_;
    std::int64_t each_;
};

template <extent E>
struct shape_of {
    using type = shape<E[0], E[1], E[2]>;
};
template <extent E>
    requires(E[1] == 0)
struct shape_of<E> {
    using type = shape<E[0]>;
};
template <extent E>
    requires(E[1] != 0 && E[2] == 0)
struct shape_of<E> {
    using type = shape<E[0], E[1]>;
};

template <auto Math>
struct skip_face {};
template <auto Math>
    requires(Math.skip_input()[0] != 0)
struct skip_face<Math> {
    using skip_input = typename shape_of<Math.skip_input()>::type;
};

template <auto Math>
struct conditioning_face {};
template <auto Math>
    requires(Math.conditioning_features() != 0)
struct conditioning_face<Math> {
    using conditioning = shape<Math.conditioning_features()>;
};

/// The passes of a layer are those of its mathematics.
template <auto Math>
struct passes_face {
    template <backend B>
    static void forward(B& on, const backend_frame<B>& frame) {
        Math.forward(on, frame);
    }
    template <backend B>
    static void backward_input(B& on, const backend_frame<B>& frame) {
        Math.backward_input(on, frame);
    }
    template <backend B>
    static void backward_weight(B& on, const backend_frame<B>& frame) {
        Math.backward_weight(on, frame);
    }
};

/// Statistics per sample that `Math` keeps: its member statistics_elements(), 0 where it has none.
template <auto Math>
[[nodiscard]] constexpr std::int64_t statistics_of() noexcept {
    if constexpr (requires { Math.statistics_elements(); }) {
        return Math.statistics_elements();
    } else {
        return 0;
    }
}

template <std::size_t Count>
[[nodiscard]] constexpr std::array<parameter, Count> first_of(const parameter_list& list) {
    std::array<parameter, Count> exact{};
    for (std::size_t i = 0; i != Count; ++i) { exact[i] = list.items[i]; }
    return exact;
}

/// The parameters of `Math` under the name `Name`, as an array of exactly their number: data, not code that makes it.
template <label Name, auto Math>
inline constexpr auto parameters_of = first_of<Math.parameters(Name).count>(Math.parameters(Name));

template <auto Math>
struct sound {
    static_assert(Math.defect() != flaw::size, "pulse: every size of a layer is positive");
    static_assert(Math.defect() != flaw::window, "pulse: a convolution's window fits into its padded image");
    static_assert(Math.defect() != flaw::groups, "pulse: the groups of a GroupNorm divide its channels");
    static_assert(Math.defect() != flaw::heads, "pulse: the heads of an attention divide its channels");
    static_assert(Math.defect() != flaw::features,
                  "pulse: a sinusoid has an even number of features, more than twice its shift");
    static constexpr bool value = Math.defect() == flaw::none;
};

/// A layer: a name and the numbers of its mathematics, such as block<"mid", resnet{.in_channels = 64, ...}>.
///
/// The mathematics is a plain value (conv, linear, group_norm, silu, norm_conv, resnet, attention, downsample,
/// upsample): layers of equal numbers share their code whatever their names. No backward pass reads the layer's output.
template <label Name, auto Math>
    requires(sound<Math>::value)
struct block : skip_face<Math>, conditioning_face<Math>, passes_face<Math> {
    static constexpr label name = Name;
    static constexpr auto math = Math;

    using input = typename shape_of<Math.input()>::type;
    using output = typename shape_of<Math.output()>::type;

    static constexpr std::int64_t saved_elements = Math.saved_elements();
    static constexpr std::int64_t statistics_elements = statistics_of<Math>();
    static constexpr std::int64_t deferred_elements = Math.deferred_elements();
    static constexpr std::int64_t workspace_elements = Math.workspace_elements();

    [[nodiscard]] static constexpr auto parameters() { return parameters_of<Name, Math>; }
    [[nodiscard]] static constexpr double forward_flops() { return Math.forward_flops(); }
};

/// A module that computes the conditioning from frame.timesteps [batch]; its numbers are those of `time_embedding`.
template <label Name, auto Math>
    requires(sound<Math>::value)
struct conditioning_block {
    static constexpr label name = Name;
    static constexpr auto math = Math;

    using output = typename shape_of<Math.output()>::type;

    static constexpr std::int64_t saved_elements = Math.saved_elements();
    static constexpr std::int64_t statistics_elements = statistics_of<Math>();
    static constexpr std::int64_t workspace_elements = Math.workspace_elements();

    [[nodiscard]] static constexpr auto parameters() { return parameters_of<Name, Math>; }
    [[nodiscard]] static constexpr double forward_flops() { return Math.forward_flops(); }

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
