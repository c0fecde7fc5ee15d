#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/cuda/attention.cuh>

#include <attention_oracle.hpp>
#include <device_array.hpp>

namespace pulse::test {

template <class T>
[[nodiscard]] bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// Operands and results of a case on the device; tensors begin `shift` elements after an aligned address.
template <class T>
class device_case {
public:
    explicit device_case(const attention_case& c, std::size_t shift) :
        c_(c), shift_(shift), q_(shifted(c.q)), k_(shifted(c.k)), v_(shifted(c.v)), dout_(shifted(c.dout)),
        saved_(shifted(c.o)), saved_lse_(c.lse), o_(shift + c.queries()), dq_(shift + c.queries()),
        dk_(shift + c.keys()), dv_(shift + c.keys()), lse_(c.rows()) {}

    /// Calls forward(q, k, v, o, lse) and backward(q, k, v, o, lse, dout, dq, dk, dv) over poisoned results.
    template <class Forward, class Backward>
    void run(const device_queue& queue, Forward forward, Backward backward) {
        for (device_array<T>* array : results()) { array->poison(); }
        lse_.poison();
        forward(at(q_), at(k_), at(v_), at(o_), lse_.data());
        backward(at(q_), at(k_), at(v_), at(saved_), saved_lse_.data(), at(dout_), at(dq_), at(dk_), at(dv_));
        queue.synchronize();
    }
    /// The results, bit by bit.
    [[nodiscard]] std::vector<std::vector<T>> bits() {
        std::vector<std::vector<T>> all;
        for (const device_array<T>* array : results()) {
            const std::vector<T> raw = array->raw();
            all.emplace_back(raw.begin() + static_cast<std::ptrdiff_t>(shift_), raw.end());
        }
        return all;
    }
    void compare() {
        CHECK(worst_of(lse_.download(), c_.lse, c_.lse_bound) < 1.0);
        CHECK(worst_of(behind(o_), c_.o, c_.o_bound) < 1.0);
        CHECK(worst_of(behind(dq_), c_.dq, c_.dq_bound) < 1.0);
        CHECK(worst_of(behind(dk_), c_.dk, c_.dk_bound) < 1.0);
        CHECK(worst_of(behind(dv_), c_.dv, c_.dv_bound) < 1.0);
        for (const device_array<T>* array : results()) { CHECK(array->intact()); }
        CHECK(lse_.intact());
    }

private:
    [[nodiscard]] std::vector<device_array<T>*> results() { return {&o_, &dq_, &dk_, &dv_}; }
    [[nodiscard]] T* at(const device_array<T>& array) const { return array.data() + shift_; }
    [[nodiscard]] std::vector<double> shifted(const std::vector<double>& values) const {
        std::vector<double> all(shift_, 0.0);
        all.insert(all.end(), values.begin(), values.end());
        return all;
    }
    [[nodiscard]] std::vector<double> behind(const device_array<T>& array) const {
        const std::vector<double> values = array.download();
        return {values.begin() + static_cast<std::ptrdiff_t>(shift_), values.end()};
    }

    const attention_case& c_;
    std::size_t shift_;
    device_array<T> q_, k_, v_, dout_, saved_;
    device_array<float> saved_lse_;
    device_array<T> o_, dq_, dk_, dv_;
    device_array<float> lse_;
};

/// Calls both passes twice, which must give the same bits, and compares with the case's results.
template <class P, class Forward, class Backward>
void check_passes(const attention_case& c, std::size_t shift, std::size_t scratch_bytes, Forward forward,
                  Backward backward) {
    using T = typename P::scalar;
    CAPTURE(P::name);
    CAPTURE(c.shape.tokens);
    CAPTURE(c.shape.keys());
    CAPTURE(c.shape.heads);
    CAPTURE(c.shape.head_size);
    CAPTURE(c.batch);
    const device_queue queue(scratch_bytes);
    device_case<T> on_device(c, shift);
    std::vector<std::vector<T>> first;
    for (int turn = 0; turn != 2; ++turn) {
        on_device.run(
            queue, [&](auto... a) { forward(queue.on(), c.shape, c.batch, a...); },
            [&](auto... a) { backward(queue.on(), c.shape, c.batch, a...); });
        if (turn == 0) { first = on_device.bits(); }
    }
    const std::vector<std::vector<T>> second = on_device.bits();
    for (std::size_t i = 0; i != first.size(); ++i) { CHECK(same_bits(first[i], second[i])); }
    on_device.compare();
}

/// check_passes with the kernels that the policy chooses.
template <class P>
void check_by_policy(const attention_case& c, std::size_t shift = 0) {
    check_passes<P>(
        c, shift, cuda::attention_backward_scratch_bytes<P>(c.shape, c.batch),
        [](auto... a) { cuda::attention<P>(a...); }, [](auto... a) { cuda::attention_backward<P>(a...); });
}

/// check_passes with the given kernels.
template <class P>
void check_by_launches(const attention_case& c, const cuda::attention_launches<typename P::scalar>& by,
                       std::size_t shift = 0) {
    using T = typename P::scalar;
    check_passes<P>(
        c, shift, cuda::attention_backward_scratch_bytes_by<T>(by, c.shape, c.batch),
        [&](auto... a) { cuda::attention_by<T>(by, a...); },
        [&](auto... a) { cuda::attention_backward_by<T>(by, a...); });
}

} // namespace pulse::test
