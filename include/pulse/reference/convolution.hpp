#pragma once

#include <cstdint>

#include <pulse/runtime/backend.hpp>

namespace pulse::reference {

/// Convolutions of `reference::backend` as plain loops over one source, or over the concatenation of two.
///
/// Images are [batch][height][width][channels], weights [out][in][ky][kx] with the first source's channels first. The
/// loops state the sum that defines each operation; nothing is reordered, tiled or cached. Sums are computed in A.
template <class T, class A = T>
struct convolution {
    conv2d_shape shape{};
    int second_channels{}; ///< channels of the second source, counted in shape.in_channels

    void forward(int batch, const T* xa, const T* xb, const T* weight, const T* bias, T* y, into how) const {
        for (int b = 0; b != batch; ++b) {
            for (int oy = 0; oy != shape.out_height(); ++oy) {
                for (int ox = 0; ox != shape.out_width(); ++ox) {
                    for (int o = 0; o != shape.out_channels; ++o) {
                        A sum = bias != nullptr ? static_cast<A>(bias[o]) : A{0};
                        for_each_tap(b, oy, ox, [&](std::int64_t pixel, int tap) {
                            const T* w = weight + weight_at(o, 0, tap);
                            const T* a = xa + pixel * first();
                            for (int i = 0; i != first(); ++i) {
                                sum += static_cast<A>(a[i]) * static_cast<A>(w[i * taps()]);
                            }
                            w += std::int64_t{first()} * taps();
                            const T* s = second_channels != 0 ? xb + pixel * second_channels : nullptr;
                            for (int i = 0; i != second_channels; ++i) {
                                sum += static_cast<A>(s[i]) * static_cast<A>(w[i * taps()]);
                            }
                        });
                        T& target = y[out_at(b, oy, ox) + o];
                        target = static_cast<T>(how == into::add ? static_cast<A>(target) + sum : sum);
                    }
                }
            }
        }
    }

    void backward_input(int batch, const T* dy, const T* weight, T* dxa, T* dxb, into how) const {
        const std::int64_t pixels = std::int64_t{batch} * shape.in_height * shape.in_width;
        if (how == into::write) {
            for (std::int64_t n = 0; n != pixels * first(); ++n) { dxa[n] = static_cast<T>(A{0}); }
            for (std::int64_t n = 0; n != pixels * second_channels; ++n) { dxb[n] = static_cast<T>(A{0}); }
        }
        for (int b = 0; b != batch; ++b) {
            for (int oy = 0; oy != shape.out_height(); ++oy) {
                for (int ox = 0; ox != shape.out_width(); ++ox) {
                    for (int o = 0; o != shape.out_channels; ++o) {
                        const A g = static_cast<A>(dy[out_at(b, oy, ox) + o]);
                        for_each_tap(b, oy, ox, [&](std::int64_t pixel, int tap) {
                            const T* w = weight + weight_at(o, 0, tap);
                            T* a = dxa + pixel * first();
                            for (int i = 0; i != first(); ++i) { add(g * static_cast<A>(w[i * taps()]), a[i]); }
                            w += std::int64_t{first()} * taps();
                            T* s = second_channels != 0 ? dxb + pixel * second_channels : nullptr;
                            for (int i = 0; i != second_channels; ++i) { add(g * static_cast<A>(w[i * taps()]), s[i]); }
                        });
                    }
                }
            }
        }
    }

    void backward_weight(int batch, const T* xa, const T* xb, const T* dy, gradient_place<A> weight_gradient,
                         gradient_place<A> bias_gradient) const {
        A* const dweight = weight_gradient.begun(shape.weight_elements());
        A* const dbias = bias_gradient.begun(shape.out_channels);
        for (int b = 0; b != batch; ++b) {
            for (int oy = 0; oy != shape.out_height(); ++oy) {
                for (int ox = 0; ox != shape.out_width(); ++ox) {
                    for (int o = 0; o != shape.out_channels; ++o) {
                        const A g = static_cast<A>(dy[out_at(b, oy, ox) + o]);
                        if (dbias != nullptr) { dbias[o] += g; }
                        for_each_tap(b, oy, ox, [&](std::int64_t pixel, int tap) {
                            A* w = dweight + weight_at(o, 0, tap);
                            const T* a = xa + pixel * first();
                            for (int i = 0; i != first(); ++i) { w[i * taps()] += g * static_cast<A>(a[i]); }
                            w += std::int64_t{first()} * taps();
                            const T* s = second_channels != 0 ? xb + pixel * second_channels : nullptr;
                            for (int i = 0; i != second_channels; ++i) { w[i * taps()] += g * static_cast<A>(s[i]); }
                        });
                    }
                }
            }
        }
    }

private:
    static void add(A value, T& to) noexcept { to = static_cast<T>(static_cast<A>(to) + value); }
    [[nodiscard]] int first() const noexcept { return shape.in_channels - second_channels; }
    [[nodiscard]] int taps() const noexcept { return shape.kernel * shape.kernel; }
    [[nodiscard]] std::int64_t weight_at(int o, int i, int tap) const noexcept {
        return (std::int64_t{o} * shape.in_channels + i) * taps() + tap;
    }
    [[nodiscard]] std::int64_t out_at(int b, int oy, int ox) const noexcept {
        return ((std::int64_t{b} * shape.out_height() + oy) * shape.out_width() + ox) * shape.out_channels;
    }

    /// Calls f(input pixel of the batch, ky * kernel + kx) for each tap of an output pixel that is inside the image.
    template <class F>
    void for_each_tap(int b, int oy, int ox, F f) const {
        for (int ky = 0; ky != shape.kernel; ++ky) {
            const int iy = oy * shape.stride + ky - shape.pad_before;
            if (iy < 0 || iy >= shape.in_height) { continue; }
            for (int kx = 0; kx != shape.kernel; ++kx) {
                const int ix = ox * shape.stride + kx - shape.pad_before;
                if (ix < 0 || ix >= shape.in_width) { continue; }
                f((std::int64_t{b} * shape.in_height + iy) * shape.in_width + ix, ky * shape.kernel + kx);
            }
        }
    }
};

} // namespace pulse::reference
