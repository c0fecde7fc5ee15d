#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>

namespace pulse {

/// A convolution on channels-last images, per sample. Weights and their gradients are [out][in][ky][kx], as in a
/// checkpoint, or [out][ky][kx][in], depending on the backend's space (space_of<B>::weights).
struct conv2d_shape {
    int in_channels{};
    int out_channels{};
    int in_height{};
    int in_width{};
    int kernel{3};
    int stride{1};
    int pad_before{1}; ///< rows above and columns left
    int pad_after{1};  ///< rows below and columns right

    [[nodiscard]] constexpr int out_height() const noexcept {
        return (in_height + pad_before + pad_after - kernel) / stride + 1;
    }
    [[nodiscard]] constexpr int out_width() const noexcept {
        return (in_width + pad_before + pad_after - kernel) / stride + 1;
    }
    [[nodiscard]] constexpr std::int64_t in_elements() const noexcept {
        return std::int64_t{in_channels} * in_height * in_width;
    }
    [[nodiscard]] constexpr std::int64_t out_elements() const noexcept {
        return std::int64_t{out_channels} * out_height() * out_width();
    }
    [[nodiscard]] constexpr std::int64_t weight_elements() const noexcept {
        return std::int64_t{in_channels} * out_channels * kernel * kernel;
    }
    /// Whether the convolution is a matrix product over all pixels.
    [[nodiscard]] constexpr bool is_product() const noexcept {
        return kernel == 1 && stride == 1 && pad_before == 0 && pad_after == 0;
    }
    /// The same convolution over `channels` input channels.
    [[nodiscard]] constexpr conv2d_shape part(int channels) const noexcept {
        conv2d_shape of = *this;
        of.in_channels = channels;
        return of;
    }
    [[nodiscard]] constexpr bool operator==(const conv2d_shape&) const = default;
};

/// y[rows][out] = x[rows][in] * weight[out][in]^T + bias[out]; rows are given with each call.
struct linear_shape {
    int in_features{};
    int out_features{};

    [[nodiscard]] constexpr bool operator==(const linear_shape&) const = default;
};

/// GroupNorm over channels-last pixels, of one tensor or of the concatenation of two, then SiLU if asked.
struct group_norm_shape {
    int channels{};        ///< of the first source
    int second_channels{}; ///< of the second source; 0 when there is one source
    int groups{};          ///< a group may straddle the two sources
    int pixels{};
    double epsilon{1e-5};
    bool silu{};

    [[nodiscard]] constexpr int all_channels() const noexcept { return channels + second_channels; }
    [[nodiscard]] constexpr bool operator==(const group_norm_shape&) const = default;
};

/// softmax(q k^T / sqrt(head_size)) v for every head; q and o are [batch][tokens][heads * head_size], k and v
/// [batch][keys()][heads * head_size].
struct attention_shape {
    int tokens{};
    int heads{};
    int head_size{};
    int context_tokens{}; ///< tokens of k and v; 0: the queries' own (self-attention)

    [[nodiscard]] constexpr int width() const noexcept { return heads * head_size; }
    [[nodiscard]] constexpr int keys() const noexcept { return context_tokens == 0 ? tokens : context_tokens; }
    [[nodiscard]] constexpr bool operator==(const attention_shape&) const = default;
};

/// LayerNorm over the features of every row, with an affine per feature; rows are given with each call.
struct layer_norm_shape {
    int features{};
    double epsilon{1e-5};

    [[nodiscard]] constexpr bool operator==(const layer_norm_shape&) const = default;
};

/// An image [rows * patch][columns * patch][channels] as tokens [patch][patch][channels], row by row of patches.
struct patch_shape {
    int rows{};    ///< of patches
    int columns{}; ///< of patches
    int patch{};   ///< height and width of a patch
    int channels{};
    int leading{}; ///< tokens before the patches

    [[nodiscard]] constexpr int tokens() const noexcept { return leading + rows * columns; }
    [[nodiscard]] constexpr int features() const noexcept { return patch * patch * channels; }
    [[nodiscard]] constexpr std::int64_t image_elements() const noexcept {
        return std::int64_t{features()} * rows * columns;
    }
    [[nodiscard]] constexpr bool operator==(const patch_shape&) const = default;
};

/// LayerNorm that is modulated per sample: all rows of a sample share one scale and one shift (AdaLN of Peebles and Xie
/// 2022).
struct adaptive_norm_shape {
    int features{};
    int tokens{};          ///< rows of a sample
    std::int64_t stride{}; ///< elements from one sample's scale (shift) to the next one's
    double epsilon{1e-5};

    [[nodiscard]] constexpr bool operator==(const adaptive_norm_shape&) const = default;
};

/// Rotary position embedding of a row-major grid of tokens (Su et al. 2021, in two dimensions as in Hunyuan-DiT).
///
/// In each head, features 2p and 2p + 1 are rotated together by an angle: the first head_size / 4 pairs by the token's
/// column, the others by its row. Positions cover 0 to `span` on the longer axis, whatever the grid's size. On the
/// shorter axis they cover the proportional range, centred and rounded to whole positions (diffusers'
/// get_resize_crop_region_for_grid and get_2d_rotary_pos_embed).
struct rotary_shape {
    int rows{};
    int columns{};
    int heads{};
    int head_size{}; ///< divisible by 4
    double span{};

    [[nodiscard]] constexpr int tokens() const noexcept { return rows * columns; }
    [[nodiscard]] constexpr int width() const noexcept { return heads * head_size; }
    /// The position of row or column 0.
    [[nodiscard]] double first(bool by_column) const noexcept {
        return std::nearbyint((span - extent(by_column)) / 2.0);
    }
    /// Distance between neighbours. As in diffusers, the last position is the end of the axis times (count - 1) /
    /// count, where the end includes the crop's offset.
    [[nodiscard]] double step(bool by_column) const noexcept {
        const int count = by_column ? columns : rows;
        const double begin = first(by_column);
        if (begin == 0.0 || count == 1) { return extent(by_column) / count; }
        return ((begin + extent(by_column)) * (count - 1) / count - begin) / (count - 1);
    }
    /// position * 10000^(-4 i / head_size), where i is the pair's index in its half.
    [[nodiscard]] double angle(int token, int pair) const noexcept {
        const int half = head_size / 4;
        const bool by_column = pair < half;
        const double position = first(by_column) + step(by_column) * (by_column ? token % columns : token / columns);
        const int i = by_column ? pair : pair - half;
        return position * std::exp(-std::log(10000.0) * 4.0 * i / head_size);
    }
    [[nodiscard]] constexpr bool operator==(const rotary_shape&) const = default;

private:
    /// Length of an axis in positions.
    [[nodiscard]] double extent(bool by_column) const noexcept {
        const int count = by_column ? columns : rows;
        const int longer = columns > rows ? columns : rows;
        return count == longer ? span : std::nearbyint(span / longer * count);
    }
};

/// Resamples the learned vectors of a grid of from_rows x from_columns tokens to another grid by bicubic interpolation,
/// as PyTorch's interpolate does without align_corners and antialiasing. The `leading` vectors before both grids are
/// copied unchanged.
struct resample_shape {
    int from_rows{};
    int from_columns{};
    int rows{};
    int columns{};
    int features{};
    int leading{};

    [[nodiscard]] constexpr int from_tokens() const noexcept { return leading + from_rows * from_columns; }
    [[nodiscard]] constexpr int tokens() const noexcept { return leading + rows * columns; }
    [[nodiscard]] constexpr bool sound() const noexcept {
        return from_rows > 0 && from_columns > 0 && rows > 0 && columns > 0 && features > 0 && leading >= 0;
    }
    /// Calls f(token of the first grid, weight) for each of the 16 taps of token `to` of the other grid (Keys 1981,
    /// a = -3/4). Taps beyond an end of an axis are clamped to the entry at that end.
    template <class F>
    void each_tap(int to, F&& f) const {
        if (to < leading) { return f(to, 1.0); }
        const double row = place(from_rows, (to - leading) / columns, rows);
        const double column = place(from_columns, (to - leading) % columns, columns);
        for (int r = -1; r != 3; ++r) {
            const int from_row = std::clamp(static_cast<int>(std::floor(row)) + r, 0, from_rows - 1);
            for (int c = -1; c != 3; ++c) {
                const int from_column = std::clamp(static_cast<int>(std::floor(column)) + c, 0, from_columns - 1);
                f(leading + from_row * from_columns + from_column,
                  weight(row - std::floor(row) - r) * weight(column - std::floor(column) - c));
            }
        }
    }
    [[nodiscard]] constexpr bool operator==(const resample_shape&) const = default;

private:
    /// Position of entry `to`, of `more`, on an axis of `count` entries.
    [[nodiscard]] static double place(int count, int to, int more) noexcept { return (to + 0.5) * count / more - 0.5; }
    [[nodiscard]] static double weight(double distance) noexcept {
        const double x = std::abs(distance);
        return x <= 1 ? (1.25 * x - 2.25) * x * x + 1 : ((-0.75 * x + 3.75) * x - 6) * x + 3;
    }
};

/// A table of `entries` learned vectors.
struct embedding_shape {
    int entries{};
    int features{};

    [[nodiscard]] constexpr bool operator==(const embedding_shape&) const = default;
};

/// Whether an operation writes its result or adds to what is there.
enum class into : std::uint8_t { write, add };

/// Where an operation stores a parameter's gradient, and whether it overwrites it or adds to it.
///
/// Null if no gradient is wanted. A bare pointer is added to.
template <class A>
struct gradient_place {
    A* to{};
    into how{into::add};

    constexpr gradient_place() noexcept = default;
    constexpr gradient_place(A* place, into mode = into::add) noexcept : to{place}, how{mode} {} // NOLINT: it converts

    [[nodiscard]] constexpr bool wanted() const noexcept { return to != nullptr; }
    [[nodiscard]] constexpr bool adds() const noexcept { return how == into::add; }
    /// For later operations of the same pass: the place has been written, so they add.
    [[nodiscard]] constexpr gradient_place again() const noexcept { return {to, into::add}; }
    /// For host code that adds term by term: sets the n values to 0 if they are to be written.
    [[nodiscard]] constexpr A* begun(std::int64_t n) const noexcept {
        if (wanted() && !adds()) { std::fill_n(to, n, A{}); }
        return to;
    }
    /// Null stays null.
    friend constexpr gradient_place operator+(const gradient_place& from, std::int64_t elements) noexcept {
        return {from.wanted() ? from.to + elements : nullptr, from.how};
    }
    friend constexpr std::int64_t operator-(const gradient_place& a, const gradient_place& b) noexcept {
        return a.to - b.to;
    }
};

/// The operations that layers are written with, on contiguous channels-last tensors.
///
/// B satisfies backend if, with `using scalar` and `using accumulator`, it has every member below. Activations, the
/// parameters that operations read, and their gradients are scalars, of any type. Statistics (of norms, and an
/// attention's logarithms of sums), parameter gradients and timesteps are accumulators: a floating-point type of 4
/// bytes, or of the scalar's size if that is larger. `batch` is the microbatch size. Parameter gradients are written or
/// added to as their gradient_place says; writing gives the same bits as adding to 0, except for the sign of 0. The
/// first microbatch of a step writes, the others add in the order in which they run. What is written is never read, and
/// all of it is written. A null bias or bias gradient means none. Buffers never alias unless stated. Every operation is
/// deterministic: the same inputs and number of threads give the same bits.
///
/// - conv2d, conv2d_backward_input, conv2d_backward_weight
/// - linear, linear_backward_input, linear_backward_weight
/// - group_norm: writes y [batch][pixels][all channels] and statistics [batch][groups][2] (mean, 1/sqrt(var + eps));
///   group_norm_backward: needs the sources and statistics; computes dgamma and dbeta; always writes the second
///   source's gradient. The input gradient and the affine gradients share sums, so they are one operation; here and in
///   the norms below, dgamma and dbeta are both null where the affine is not trained.
/// - attention: writes o and the logarithm of each row's sum of exponentials, lse [batch][heads][tokens];
///   attention_backward: writes dq, dk, dv.
/// - layer_norm: writes y and statistics [rows][2] (mean, 1/sqrt(var + eps)); layer_norm_backward computes dgamma and
///   dbeta, whose sums it also needs for the input gradient.
/// - gelu: y = x * Phi(x) with the normal distribution Phi, the exact form of Hendrycks and Gimpel 2016 (torch's
///   default; gelu_tanh is Hunyuan-DiT's); gelu_backward: dx from x and dy; y may be x, dx may be dy.
/// - geglu: y[rows][features] = value * gelu(gate) of x [rows][2 * features], values before gates (Shazeer 2020);
///   geglu_backward writes dx from x and dy.
/// - silu: y = x * sigmoid(x); silu_backward: dx from x and dy; y may be x, dx may be dy.
/// - add: y += x; copy: y = x; fill: y = value, given as a float or wider type. Over n elements.
/// - sum_rows: y[c] = or += the sum over rows of x[row][c], into accumulators: the gradient of a vector that was added
///   to all rows. The sum of no rows is 0.
/// - copy_rows: copies `rows` runs of n elements from x to y, each with its own row stride in elements.
/// - patches_to_image: [tokens][features] -> image, without the leading tokens; image_to_patches is its transpose and
///   writes 0 into the leading tokens.
/// - add_per_sample: y[b][p][c] += t[b][c]; sum_pixels: t[b][c] = sum over p of y[b][p][c].
/// - add_resampled: y[b] += x [from_tokens][features] on the other grid, [tokens][features], see resample_shape;
///   resampled_sums is its transpose: dx = or += in accumulators, with samples in ascending order.
/// - upsample_nearest: [h][w][c] -> [2h][2w][c]; upsample_nearest_backward is its transpose.
/// - sinusoid: e[b] = (sin, cos) pairs of timestep t[b], like diffusers' Timesteps; flip puts cosines first, and
///   `shift` is its downscale_freq_shift.
/// - adaptive_norm: y[b][t] = (xhat gamma + beta) (1 + scale[b]) + shift[b] with xhat = (x - mean) / sqrt(var + eps)
///   over the features of a row; it writes statistics [batch][tokens][2] (mean, 1/sqrt(var + eps)). Gamma and beta may
///   both be null (1 and 0), and scale may be null (0). adaptive_norm_backward writes dx or adds to it, computes dgamma
///   and dbeta, and writes dscale[b] = sum over t of dy (xhat gamma + beta) and dshift[b] = sum over t of dy, with the
///   strides of scale and shift; the gradients of null tensors are null.
/// - gelu_tanh: y = x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2, GELU's approximation; gelu_tanh_backward: dx from
///   x and dy; y may be x, dx may be dy.
/// - rotary: the pair (a, b) of each head becomes (a cos - b sin, b cos + a sin) of its angle, see rotary_shape, for x
///   and y [batch][tokens][heads * head_size]; rotary_backward rotates dy back; y may be x, dx may be dy.
/// - embedding: y[r] = table[indices[r]], where indices are whole numbers stored as accumulators;
///   embedding_backward_weight: dtable[indices[r]] += dy[r], in ascending order of r; if it writes, other rows
///   become 0. Host backends throw input_error for an index out of range; a device does not check.
/// - replace_padding: rows of y [batch][tokens][features] whose mask [batch][tokens] is 0 become padding[token], the
///   others stay; replace_padding_backward: dx = dy where the mask is not 0, else 0 (dx may be dy), and dpadding[token]
///   = or += dy of the rows whose mask is 0, with samples in ascending order.
/// - scale: y = factor * x over n elements, the factor given as a float or wider type; y may be x.
/// - weights_changed(): parameters were written since the last pass, so cached reordered weights are stale.
///
/// The backend owns its scratch and sizes it when it first meets a shape (warm-up); `scratch_bytes()` returns its size.
template <class B>
concept backend = requires(B& b, const typename B::scalar* x, typename B::scalar* y, const typename B::accumulator* a,
                           typename B::accumulator* sums, gradient_place<typename B::accumulator> gradient,
                           const conv2d_shape& conv, const linear_shape& lin, const group_norm_shape& norm,
                           const attention_shape& att, const layer_norm_shape& row_norm,
                           const adaptive_norm_shape& modulated, const rotary_shape& turn, const embedding_shape& table,
                           const resample_shape& grids, const patch_shape& patches, int batch, std::int64_t rows,
                           std::int64_t n, float value, into how, double shift, bool flip) {
    requires std::floating_point<typename B::accumulator>;
    requires sizeof(typename B::accumulator) == (sizeof(typename B::scalar) < 4 ? 4 : sizeof(typename B::scalar));
    // x, weight, bias, y (y += with into::add)
    b.conv2d(conv, batch, x, x, x, y, how);
    // dy, weight, dx
    b.conv2d_backward_input(conv, batch, x, x, y, how);
    // x, dy, dweight, dbias
    b.conv2d_backward_weight(conv, batch, x, x, gradient, gradient);
    // The same over the concatenation of two inputs along channels: conv.in_channels counts both, the integer after
    // conv is the second's share; weight as in conv2d, with the channels of a before those of b.
    // xa, xb, weight, bias, y / dy, weight, dxa, dxb / xa, xb, dy, dweight, dbias
    b.conv2d_pair(conv, batch, batch, x, x, x, x, y, how);
    b.conv2d_pair_backward_input(conv, batch, batch, x, x, y, y, how);
    b.conv2d_pair_backward_weight(conv, batch, batch, x, x, x, gradient, gradient);
    // x, weight, bias, y / dy, weight, dx / x, dy, dweight, dbias
    b.linear(lin, rows, x, x, x, y, how);
    b.linear_backward_input(lin, rows, x, x, y, how);
    b.linear_backward_weight(lin, rows, x, x, gradient, gradient);
    // xa, xb, gamma, beta, y, statistics
    b.group_norm(norm, batch, x, x, x, x, y, sums);
    // xa, xb, gamma, beta, statistics, dy, dxa (written or added to), dxb, dgamma, dbeta
    b.group_norm_backward(norm, batch, x, x, x, x, a, x, y, y, gradient, gradient, how);
    // q, k, v, o, lse / q, k, v, o, lse, do, dq, dk, dv
    b.attention(att, batch, x, x, x, y, sums);
    b.attention_backward(att, batch, x, x, x, x, a, x, y, y, y);
    // x, gamma, beta, y, statistics / x, gamma, statistics, dy, dx (written or added to), dgamma, dbeta
    b.layer_norm(row_norm, rows, x, x, x, y, sums);
    b.layer_norm_backward(row_norm, rows, x, x, a, x, y, gradient, gradient, how);
    b.gelu(n, x, y);
    b.gelu_backward(n, x, x, y, how);
    // rows, features of y, x, y / x, dy, dx
    b.geglu(rows, batch, x, y);
    b.geglu_backward(rows, batch, x, x, y);
    b.silu(n, x, y);
    b.silu_backward(n, x, x, y, how);
    b.add(n, x, y);
    b.copy(n, x, y);
    b.fill(n, value, y);
    // rows, features, x, y
    b.sum_rows(rows, n, x, gradient);
    // rows, elements of each, x and its stride, y and its stride
    b.copy_rows(rows, n, x, n, y, n);
    b.patches_to_image(patches, batch, x, y);
    b.image_to_patches(patches, batch, x, y);
    // pixels, channels, t, y / y, t
    b.add_per_sample(batch, batch, batch, x, y);
    b.sum_pixels(batch, batch, batch, x, y);
    // x, y / dy, dx
    b.add_resampled(grids, batch, x, y);
    b.resampled_sums(grids, batch, x, gradient);
    // height, width, channels
    b.upsample_nearest(batch, batch, batch, batch, x, y);
    b.upsample_nearest_backward(batch, batch, batch, batch, x, y);
    // features, timesteps, e
    b.sinusoid(batch, batch, flip, shift, a, y);
    // x, gamma, beta, scale, shift, y, statistics
    b.adaptive_norm(modulated, batch, x, x, x, x, x, y, sums);
    // x, gamma, beta, scale, statistics, dy, dx (written or added to), dgamma, dbeta, dscale, dshift
    b.adaptive_norm_backward(modulated, batch, x, x, x, x, a, x, y, gradient, gradient, y, y, how);
    b.gelu_tanh(n, x, y);
    b.gelu_tanh_backward(n, x, x, y, how);
    b.rotary(turn, batch, x, y);
    b.rotary_backward(turn, batch, x, y);
    // indices, table, y / indices, dy, dtable
    b.embedding(table, rows, a, x, y);
    b.embedding_backward_weight(table, rows, a, x, gradient);
    // tokens, features, mask, padding, y / mask, dy, dx, dpadding
    b.replace_padding(batch, batch, batch, a, x, y);
    b.replace_padding_backward(batch, batch, batch, a, x, y, gradient);
    // factor, x, y
    b.scale(n, value, x, y);
    b.weights_changed();
    { b.scratch_bytes() } -> std::convertible_to<std::int64_t>;
};

} // namespace pulse
