#pragma once

#include <algorithm>
#include <cstdint>

#include <pulse/nn/block.hpp>
#include <pulse/nn/convolution.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/norm.hpp>
#include <pulse/nn/resnet.hpp>
#include <pulse/runtime/layer_frame.hpp>
#include <pulse/runtime/picture_backend.hpp>

namespace pulse::encode {

using nn::elements;

// Forward-only layers that process a picture in strips of rows where they would otherwise keep a second copy of it: the
// input of a 3x3 convolution (a normalised or doubled picture) is made for one strip at a time, with the rows around
// it. Statistics of norms span the whole picture, so the numbers are those of the layers in nn/. diffusers can instead
// cut pictures into overlapping tiles and blend them; tiles have statistics of their own and give other numbers.

/// The input of a 3x3 convolution with padding 1, `rows` rows at a time, in a workspace with a border of one pixel.
struct strips {
    int channels{};
    int height{};
    int width{};
    int rows{}; ///< of a strip; the last may have fewer

    [[nodiscard]] constexpr std::int64_t row() const noexcept { return std::int64_t{channels} * width; }
    [[nodiscard]] constexpr std::int64_t padded_row() const noexcept { return std::int64_t{channels} * (width + 2); }
    [[nodiscard]] constexpr std::int64_t workspace() const noexcept {
        return (std::min(rows, height) + 2) * padded_row();
    }

    /// Writes or adds to y [height][width][out_channels] of one picture. put(first, count, to) writes `count` rows of
    /// its input from `first` on, padded_row() apart. `weight` is followed by the bias.
    template <backend B, class T, class Put>
    void convolve(B& on, int out_channels, const T* weight, T* work, T* y, into how, Put put) const {
        static_assert(picture_backend<B>, "pulse: layers that run strip by strip need a picture_backend");
        on.fill(workspace(), 0.0F, work);
        for (int first = 0; first < height; first += rows) {
            const int count = std::min(rows, height - first);
            const int from = std::max(first - 1, 0);
            const int to = std::min(first + count + 1, height);
            put(from, to - from, work + (from - first + 1) * padded_row() + channels);
            if (to == first + count) { on.fill(padded_row(), 0.0F, work + (count + 1) * padded_row()); }
            const conv2d_shape window{channels, out_channels, count + 2, width + 2, 3, 1, 0, 0};
            on.conv2d(window, 1, work, weight, weight + window.weight_elements(),
                      y + std::int64_t{first} * width * out_channels, how);
        }
    }
};

/// Normalises the input of nn::norm_conv, or of a half of nn::resnet, strip by strip and convolves it.
template <backend B, class T, class A>
void norm_convolve(B& on, const strips& s, const group_norm_shape& norm, int out_channels, const T* x, const T* gamma,
                   const T* beta, const T* weight, A* statistics, T* work, T* y, into how) {
    static_assert(picture_backend<B>, "pulse: layers that run strip by strip need a picture_backend");
    on.group_norm_statistics(norm, 1, x, statistics);
    s.convolve(on, out_channels, weight, work, y, how, [&](int first, int count, T* to) {
        on.group_norm_rows(norm, count, s.width, x + first * s.row(), gamma, beta, statistics, to, s.padded_row());
    });
}

/// nn::resnet in strips, without time embedding and skip. With equal input and output channels it may run in place.
struct strip_resnet {
    nn::resnet core{};
    int rows{};

    [[nodiscard]] constexpr nn::flaw defect() const noexcept {
        return rows <= 0 || core.skip_channels != 0 || core.conditioning != 0 ? nn::flaw::size : core.defect();
    }
    [[nodiscard]] constexpr nn::sample_dims input() const noexcept { return core.input(); }
    [[nodiscard]] constexpr nn::sample_dims output() const noexcept { return core.output(); }
    [[nodiscard]] constexpr bool in_place() const noexcept { return !core.has_shortcut(); }
    [[nodiscard]] constexpr strips of(int channels) const noexcept { return {channels, core.height, core.width, rows}; }

    struct pieces {
        weight_piece norm1, conv1, norm2, conv2, shortcut;
        statistics_piece statistics;
        workspace_piece hidden, strip;
    };
    constexpr pieces describe(nn::description& d) const {
        pieces p{};
        p.norm1 = d.norm("norm1", core.in_channels);
        p.conv1 = d.conv("conv1", core.conv1().window());
        if (core.has_shortcut()) { p.shortcut = d.conv("conv_shortcut", core.shortcut().window()); }
        p.norm2 = d.norm("norm2", core.out_channels);
        p.conv2 = d.conv("conv2", core.conv2().window());
        d.statistics(2 * std::int64_t{core.groups}, p.statistics);
        d.work(elements(output()), p.hidden);
        d.work(std::max(of(core.in_channels).workspace(), of(core.out_channels).workspace()), p.strip);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        for (int b = 0; b != f.batch; ++b) {
            const auto* const x = f.input + b * elements(input());
            auto* const y = f.output + b * elements(output());
            norm_convolve(on, of(core.in_channels), core.norm1(), core.out_channels, x, f[p.norm1], f.bias(p.norm1),
                          f[p.conv1], f[p.statistics], f[p.strip], f[p.hidden], into::write);
            if (core.has_shortcut()) {
                core.shortcut().apply(on, 1, x, f[p.shortcut], y, into::write);
            } else if (x != y) {
                on.copy(elements(output()), x, y);
            }
            const auto* const hidden = f[p.hidden];
            norm_convolve(on, of(core.out_channels), core.norm2(), core.out_channels, hidden, f[p.norm2],
                          f.bias(p.norm2), f[p.conv2], f[p.statistics], f[p.strip], y, into::add);
        }
    }
};

/// nn::norm_conv in strips.
struct strip_norm_conv {
    nn::norm_conv core{};
    int rows{};

    [[nodiscard]] constexpr nn::flaw defect() const noexcept { return rows <= 0 ? nn::flaw::size : core.defect(); }
    [[nodiscard]] constexpr nn::sample_dims input() const noexcept { return core.input(); }
    [[nodiscard]] constexpr nn::sample_dims output() const noexcept { return core.output(); }
    [[nodiscard]] constexpr strips cut() const noexcept { return {core.in_channels, core.height, core.width, rows}; }

    struct pieces {
        weight_piece norm, conv;
        statistics_piece statistics;
        workspace_piece strip;
    };
    constexpr pieces describe(nn::description& d) const {
        pieces p{};
        p.norm = d.norm("../conv_norm_out", core.in_channels);
        p.conv = d.conv("", core.core().window());
        d.statistics(2 * std::int64_t{core.groups}, p.statistics);
        d.work(cut().workspace(), p.strip);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        for (int b = 0; b != f.batch; ++b) {
            norm_convolve(on, cut(), core.norm().norm(), core.out_channels, f.input + b * elements(input()), f[p.norm],
                          f.bias(p.norm), f[p.conv], f[p.statistics], f[p.strip], f.output + b * elements(output()),
                          into::write);
        }
    }
};

/// nn::upsample in strips.
struct strip_upsample {
    nn::upsample core{};
    int rows{};

    [[nodiscard]] constexpr nn::flaw defect() const noexcept { return rows <= 0 ? nn::flaw::size : core.defect(); }
    [[nodiscard]] constexpr nn::sample_dims input() const noexcept { return core.input(); }
    [[nodiscard]] constexpr nn::sample_dims output() const noexcept { return core.output(); }
    [[nodiscard]] constexpr strips cut() const noexcept {
        return {core.channels, 2 * core.height, 2 * core.width, rows};
    }

    struct pieces {
        weight_piece conv;
        workspace_piece strip;
        workspace_piece doubled; ///< rows of a strip and around it, starting with an even one
    };
    constexpr pieces describe(nn::description& d) const {
        pieces p{};
        p.conv = d.conv("conv", core.core().window());
        d.work(cut().workspace(), p.strip);
        d.work(std::min(rows + 4, cut().height) * cut().row(), p.doubled);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t row = cut().row();
        for (int b = 0; b != f.batch; ++b) {
            const auto* const x = f.input + b * elements(input());
            cut().convolve(on, core.channels, f[p.conv], f[p.strip], f.output + b * elements(output()), into::write,
                           [&](int first, int count, auto* to) {
                               const int source = first / 2;
                               on.upsample_nearest(1, (first + count + 1) / 2 - source, core.width, core.channels,
                                                   x + source * row / 2, f[p.doubled]);
                               on.copy_rows(count, row, f[p.doubled] + first % 2 * row, row, to, cut().padded_row());
                           });
        }
    }
};

} // namespace pulse::encode
