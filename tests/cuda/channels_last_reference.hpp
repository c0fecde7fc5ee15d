#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pulse/reference/backend.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/weight_order.hpp>

namespace pulse::test {

/// A convolution's weight, or its gradient, converted from the order `from` to the other order.
template <class T>
[[nodiscard]] std::vector<T> turned(const conv2d_shape& s, const T* weight, weight_order from) {
    const auto n = static_cast<std::size_t>(s.weight_elements());
    const auto channels = static_cast<std::size_t>(s.in_channels);
    const auto taps = static_cast<std::size_t>(s.kernel * s.kernel);
    std::vector<T> made(n);
    for (std::size_t i = 0; i != n; ++i) { // index into [out][in][taps]
        const std::size_t last = (i / taps / channels * taps + i % taps) * channels + i / taps % channels;
        (from == weight_order::checkpoint ? made[last] : made[i]) = weight[from == weight_order::checkpoint ? i : last];
    }
    return made;
}

/// reference::backend with convolution weights in weight_order::channels_last.
template <class T>
class channels_last_reference : public reference::backend<T> {
    using plain = reference::backend<T>;

public:
    void conv2d(const conv2d_shape& s, int batch, const T* x, const T* weight, const T* bias, T* y, into how) {
        plain::conv2d(s, batch, x, there(s, weight).data(), bias, y, how);
    }
    void conv2d_backward_input(const conv2d_shape& s, int batch, const T* dy, const T* weight, T* dx, into how) {
        plain::conv2d_backward_input(s, batch, dy, there(s, weight).data(), dx, how);
    }
    void conv2d_backward_weight(const conv2d_shape& s, int batch, const T* x, const T* dy, gradient_place<T> dweight,
                                gradient_place<T> dbias) {
        with_gradient(s, dweight,
                      [&](gradient_place<T> to) { plain::conv2d_backward_weight(s, batch, x, dy, to, dbias); });
    }
    void conv2d_pair(const conv2d_shape& s, int second, int batch, const T* xa, const T* xb, const T* weight,
                     const T* bias, T* y, into how) {
        plain::conv2d_pair(s, second, batch, xa, xb, there(s, weight).data(), bias, y, how);
    }
    void conv2d_pair_backward_input(const conv2d_shape& s, int second, int batch, const T* dy, const T* weight, T* dxa,
                                    T* dxb, into how) {
        plain::conv2d_pair_backward_input(s, second, batch, dy, there(s, weight).data(), dxa, dxb, how);
    }
    void conv2d_pair_backward_weight(const conv2d_shape& s, int second, int batch, const T* xa, const T* xb,
                                     const T* dy, gradient_place<T> dweight, gradient_place<T> dbias) {
        with_gradient(s, dweight, [&](gradient_place<T> to) {
            plain::conv2d_pair_backward_weight(s, second, batch, xa, xb, dy, to, dbias);
        });
    }

private:
    [[nodiscard]] static std::vector<T> there(const conv2d_shape& s, const T* weight) {
        return turned(s, weight, weight_order::channels_last);
    }
    template <class Add>
    static void with_gradient(const conv2d_shape& s, gradient_place<T> dweight, Add add) {
        std::vector<T> sum = there(s, dweight.to);
        add({sum.data(), dweight.how});
        std::ranges::copy(turned(s, sum.data(), weight_order::checkpoint), dweight.to);
    }
};

} // namespace pulse::test
