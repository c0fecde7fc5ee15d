#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string_view>
#include <type_traits>

#include <pulse/core/label.hpp>
#include <pulse/model/condition.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// {channels, height, width} of an image, {tokens, features, 0} of tokens, {features, 0, 0} of a plain vector; all 0
/// for an absent tensor.
using sample_dims = std::array<int, 3>;

[[nodiscard]] constexpr std::int64_t elements(const sample_dims& e) noexcept {
    return std::int64_t{e[0]} * (e[1] == 0 ? 1 : e[1]) * (e[2] == 0 ? 1 : e[2]);
}

/// Totals of a layer's description: elements, per sample except for parameters, and what the layer reads.
struct layer_sizes {
    std::size_t parameter_count{};
    std::int64_t factored{}; ///< floats of the factored second moments of parameters
    layer_extents kept{};
    std::int64_t workspace{};
    double forward_flops{};
    sample_dims skip{};
    sample_dims context{};
    condition_set conditions{};
    int conditioning{}; ///< features
    bool timesteps{};
    bool trains_context{};

    [[nodiscard]] constexpr parameter_counts counts() const noexcept {
        return {parameter_count, kept.parameters, factored};
    }
};

/// Collects the single description of a layer, which describe(description&) of its mathematics lists piece by piece. It
/// yields the parameters with their names, all sizes, the FLOPs, and where each piece lies.
///
/// Pieces of a kind are contiguous in the order in which they are described; parameters are described in the
/// checkpoint's order. A name is joined to the layer's name by a dot; an empty name is the layer's, "../x" is x beside
/// the layer, "/x" is x alone.
/// FLOPs are 2 per multiply-accumulate of convolutions, linear layers and the two products of an attention; norms,
/// activations and additions count none. A weight() alone counts none either: flops() adds those of its product.
class description {
public:
    constexpr description() = default;
    /// Also writes the parameters of the layer `name`, which outlives this, starting at `parameters`.
    constexpr description(const label& name, parameter* parameters) noexcept :
        root_{&name}, root_length_{name.view().size()}, next_{parameters} {}

    [[nodiscard]] constexpr const layer_sizes& sizes() const noexcept { return sizes_; }

    // What the layer reads besides its input.

    constexpr void reads_skip(const sample_dims& e) noexcept { sizes_.skip = e; }
    constexpr void reads_context(const sample_dims& e) noexcept { sizes_.context = e; }
    constexpr void reads_conditioning(int features) noexcept { sizes_.conditioning = features; }
    constexpr void reads_timesteps() noexcept { sizes_.timesteps = true; }
    /// A condition of every sample; conditions are read in the order of these calls.
    constexpr void reads(const condition& one) { sizes_.conditions.add(one); }

    // What a conditioning module outputs besides the embedding.

    constexpr void gives_context(const sample_dims& e, bool trained) noexcept {
        sizes_.context = e;
        sizes_.trains_context = trained;
    }

    // Parameters and products.

    /// A parameter `name` [dims] that is neither a weight nor a bias.
    constexpr weight_piece vectors(std::string_view name, std::initializer_list<int> dims) {
        const std::int64_t begin = sizes_.kept.parameters;
        list(name, {}, dims);
        return {begin, sizes_.kept.parameters};
    }
    /// `name`.weight [dims] and, if asked, `name`.bias [first of dims].
    constexpr weight_piece weight(std::string_view name, std::initializer_list<int> dims, bool bias = true) {
        const std::int64_t begin = sizes_.kept.parameters;
        list(name, ".weight", dims);
        const std::int64_t end = sizes_.kept.parameters;
        if (bias) { list(name, ".bias", {*dims.begin()}); }
        return {begin, end};
    }
    /// The weight and the bias that were listed last start at 0.
    constexpr void start_at_zero() noexcept {
        if (next_ != nullptr) { next_[-1].zero = next_[-2].zero = true; }
    }
    /// An affine norm.
    constexpr weight_piece norm(std::string_view name, int channels) { return weight(name, {channels}); }
    /// A linear layer that is applied to `rows` vectors.
    constexpr weight_piece linear(std::string_view name, std::int64_t rows, const linear_shape& s, bool bias = true) {
        product(rows, s.in_features, s.out_features);
        return weight(name, {s.out_features, s.in_features}, bias);
    }
    constexpr weight_piece conv(std::string_view name, const conv2d_shape& s) {
        product(std::int64_t{s.out_height()} * s.out_width(), s.weight_elements(), 1);
        return weight(name, {s.out_channels, s.in_channels, s.kernel, s.kernel});
    }
    /// FLOPs of one sample's forward pass in the layer's own loops.
    constexpr void flops(double count) noexcept { sizes_.forward_flops += count; }
    /// The products of queries with keys and of their weights with values.
    constexpr void attention(const attention_shape& s) noexcept {
        product(std::int64_t{2} * s.tokens, s.keys(), s.width());
    }

    // What the passes leave: every piece has room for `count` elements per sample.

    /// Left by forward for the backward passes.
    constexpr void save(std::int64_t count, std::same_as<saved_piece> auto&... pieces) noexcept {
        (place(sizes_.kept.saved, count, pieces), ...);
    }
    /// The same in accumulators: statistics of norms and attentions.
    constexpr void statistics(std::int64_t count, std::same_as<statistics_piece> auto&... pieces) noexcept {
        (place(sizes_.kept.statistics, count, pieces), ...);
    }
    /// Left by backward_input for backward_weight.
    constexpr void defer(std::int64_t count, std::same_as<deferred_piece> auto&... pieces) noexcept {
        (place(sizes_.kept.deferred, count, pieces), ...);
    }
    /// Workspace of one pass.
    constexpr void work(std::int64_t count, std::same_as<workspace_piece> auto&... pieces) noexcept {
        (place(working_, count, pieces), ...);
        sizes_.workspace = std::max(sizes_.workspace, working_);
    }
    /// Later work() starts again at `from` or else at the beginning: for another pass, or a later point of this one.
    constexpr void work_again(workspace_piece from = {}) noexcept { working_ = from.begin; }

    /// Describes a layer inside this one; returns its pieces, which lie in the frame of this one.
    template <class Math>
    constexpr auto part(std::string_view name, const Math& math) {
        const std::int64_t working = working_;
        const label* const root = root_;
        const std::size_t root_length = root_length_;
        label inner{};
        if (next_ != nullptr) {
            root_length_ = write_name(inner, name, {});
            root_ = &inner;
        }
        work_again();
        const auto pieces = math.describe(*this);
        root_ = root;
        root_length_ = root_length;
        working_ = working;
        return pieces;
    }

private:
    constexpr void list(std::string_view name, std::string_view suffix, std::initializer_list<int> dims) {
        parameter shape{};
        for (const int d : dims) { shape.dims[static_cast<std::size_t>(shape.rank++)] = d; }
        sizes_.kept.parameters += shape.elements();
        sizes_.factored += factored_elements(shape.elements(), shape.matrix_rows());
        ++sizes_.parameter_count;
        if (next_ == nullptr) { return; }
        write_name(next_->name, name, suffix);
        next_->dims = shape.dims;
        next_->rank = shape.rank;
        ++next_;
    }
    /// Writes the full name of the layer's `name`, plus `suffix`, into an empty label; returns its length. The layer's
    /// name is copied at once: a loop over its characters would take most of the compile time.
    constexpr std::size_t write_name(label& to, std::string_view name, std::string_view suffix) const {
        std::size_t at = 0;
        if (name.starts_with('/')) {
            name.remove_prefix(1);
        } else {
            to = *root_;
            at = root_length_;
            if (name.starts_with("../")) {
                name.remove_prefix(3);
                while (at != 0 && to.chars[at - 1] != '.') { to.chars[--at] = '\0'; }
            } else if (at != 0 && !name.empty()) {
                to.chars[at++] = '.';
            }
        }
        for (const std::string_view text : {name, suffix}) {
            if (at + text.size() >= label::capacity) {
                throw std::length_error("pulse: a name has more than 95 characters");
            }
            for (const char c : text) { to.chars[at++] = c; }
        }
        return at;
    }
    constexpr void product(std::int64_t rows, std::int64_t in, std::int64_t out) noexcept {
        // In floating point, because an attention over the pixels of the largest image has more than 2^63.
        sizes_.forward_flops += 2.0 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
    }
    template <class Piece>
    static constexpr void place(std::int64_t& end, std::int64_t count, Piece& piece) noexcept {
        piece.begin = end;
        end += count;
    }

    layer_sizes sizes_{};
    std::int64_t working_{};
    const label* root_{};
    std::size_t root_length_{};
    parameter* next_{};
};

/// Mathematics in parts that run one after the other; a plan may cut a layer between them. Math::whole is Math, so that
/// parts that derive from it do not count as in parts themselves.
///
/// parts() is their number; use_part(k, use) calls use(name, math) with the name that prefixes part k's parameters and
/// with its mathematics. open() is the residual that is open between any two parts and crosses a cut there, {} if each
/// part reads only the output of the previous one. It is the layer's input or, if makes_residual(), what the first part
/// writes and the last adds to. Only the first part reads a skip.
template <class Math>
concept in_parts = std::same_as<typename std::remove_cvref_t<Math>::whole, std::remove_cvref_t<Math>>;

/// Pieces of mathematics in parts: none, since each part has its own.
struct no_pieces {};

/// Describes a layer. The output of each part but the last is saved, and its gradient deferred.
template <class Math>
constexpr auto describe(description& all, const Math& math) {
    if constexpr (in_parts<Math>) {
        for (int k = 0; k != math.parts(); ++k) {
            math.use_part(k, [&](std::string_view name, const auto& part) {
                static_cast<void>(all.part(name, part));
                if (k + 1 == math.parts()) { return; }
                saved_piece image;
                deferred_piece gradient;
                all.save(elements(part.output()), image);
                all.defer(elements(part.output()), gradient);
            });
        }
        return no_pieces{};
    } else {
        return math.describe(all);
    }
}

/// The result of describing a layer: where its pieces lie and their totals.
template <class Pieces>
struct layer_layout {
    Pieces pieces;
    layer_sizes sizes;
};

template <class Math>
[[nodiscard]] constexpr auto layout_of(const Math& math) {
    description all;
    const auto pieces = describe(all, math);
    return layer_layout<std::remove_const_t<decltype(pieces)>>{pieces, all.sizes()};
}

/// Whether the mathematics has a height and a width, or rows and columns of tokens, or wraps one that has, and nothing
/// else in it depends on them.
template <class Math>
[[nodiscard]] consteval bool has_extent() {
    if constexpr (
        requires(Math & math) {
            math.height = 1;
            math.width = 1;
        } ||
        requires(Math & math) {
            math.rows = 1;
            math.columns = 1;
        }) {
        return true;
    } else if constexpr (requires(const Math& math) { math.core.height; }) {
        return has_extent<decltype(Math::core)>();
    } else if constexpr (
        requires(const Math& math) { math.embed.height; } || requires(const Math& math) { math.embed.rows; }) {
        return has_extent<decltype(Math::embed)>();
    } else {
        return false;
    }
}
template <class Math>
inline constexpr bool is_resizable = has_extent<std::remove_cvref_t<Math>>();

/// The mathematics at the sizes of a run, if it has an extent.
template <class Math>
[[nodiscard]] constexpr Math resized(Math math, [[maybe_unused]] const resizing& by) noexcept {
    if constexpr (!is_resizable<Math>) {
        return math;
    } else if constexpr (requires { math.height = 1; }) {
        math.height = by.height(math.height);
        math.width = by.width(math.width);
    } else if constexpr (requires {
                             math.rows = 1;
                             math.columns = 1;
                         }) {
        math.rows = by.height(math.rows);
        math.columns = by.width(math.columns);
    } else if constexpr (requires { math.core.height; }) {
        math.core = resized(math.core, by);
    } else {
        math.embed = resized(math.embed, by);
    }
    return math;
}

/// The layout of `Math`, computed once for all layers of equal mathematics: data, not code that makes it.
template <auto Math>
inline constexpr auto layout = layout_of(Math);

/// Costs of a layer of this mathematics.
template <class Math>
[[nodiscard]] constexpr layer_node node_of(const label& name, const Math& math) {
    const layer_sizes sizes = layout_of(math).sizes;
    return {.name = name,
            .input_elements = elements(math.input()),
            .output_elements = elements(math.output()),
            .parameter_elements = sizes.kept.parameters,
            .saved_elements = sizes.kept.saved,
            .deferred_elements = sizes.kept.deferred,
            .workspace_elements = sizes.workspace,
            .forward_flops = sizes.forward_flops,
            .statistics_elements = sizes.kept.statistics,
            .factored_elements = sizes.factored};
}

/// Number of parts of a layer of this mathematics.
template <class Math>
[[nodiscard]] constexpr int parts_of([[maybe_unused]] const Math& math) {
    if constexpr (in_parts<Math>) {
        return math.parts();
    } else {
        return 1;
    }
}
/// Costs of part k. If there are several parts, it is named <layer>#<k>.
template <class Math>
[[nodiscard]] constexpr layer_node part_of(const label& name, const Math& math, [[maybe_unused]] int k) {
    if constexpr (in_parts<Math>) {
        layer_node node{};
        math.use_part(k, [&](std::string_view, const auto& part) {
            node = node_of(name + "#" + static_cast<unsigned>(k), part);
        });
        if (k + 1 != math.parts()) { node.open_elements = elements(math.open()); }
        return node;
    } else {
        return node_of(name, math);
    }
}

/// The parameters of `Math` under the name `Name`.
template <label Name, auto Math>
inline constexpr counted_parameters<layout<Math>.sizes.counts()> parameters_of = [] {
    counted_parameters<layout<Math>.sizes.counts()> all{};
    description listed{Name, all.data()};
    static_cast<void>(describe(listed, Math));
    return all;
}();

} // namespace pulse::nn
