#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/cuda/backend.cuh>
#include <pulse/cuda/device.cuh>

#include <attention_kernels.hpp>
#include <channels_last_reference.hpp>
#include <compare.hpp>

namespace pulse::test {

/// A backend with its oracle and a source of numbers.
template <class P>
struct backend_trial {
    using T = typename P::scalar;
    using reference = channels_last_reference<double>;

    explicit backend_trial(unsigned seed, const cuda::engine_options& options = {}) : on{options}, draw{seed} {}

    cuda::backend<P> on;
    reference oracle{};
    source draw;

    template <class Value>
    [[nodiscard]] doubles got(const tensor<Value>& t) const {
        on.synchronize();
        return t.download(waiting_);
    }

    /// Calls op(backend, target) on the device and on the oracle, twice for what adds: first on the values, then on
    /// their magnitudes for the bound. op is called as op(backend, numbers, target) where numbers(v) is a pointer to v.
    template <class Out, class Op>
    void check_sums(const std::vector<doubles>& inputs, std::int64_t n, bool adds, double error, int offset, Op op) {
        const doubles before = adds ? draw.template normal<Out>(n) : doubles{};
        std::vector<tensor<T>> here;
        std::vector<const T*> pointers;
        for (const doubles& v : inputs) { here.emplace_back(v, v.empty() ? 0 : offset); }
        for (const tensor<T>& t : here) { pointers.push_back(t.data()); }
        const tensor<Out> result = adds ? tensor<Out>(before, offset) : tensor<Out>(n, offset);
        op(on, pointers, result.data());

        doubles wanted = adds ? before : doubles(static_cast<std::size_t>(n), std::numeric_limits<double>::quiet_NaN());
        doubles size = magnitudes(wanted);
        std::vector<doubles> large;
        std::vector<const double*> plain;
        std::vector<const double*> sizes;
        for (const doubles& v : inputs) { large.push_back(magnitudes(v)); }
        for (std::size_t i = 0; i != inputs.size(); ++i) {
            plain.push_back(inputs[i].empty() ? nullptr : inputs[i].data());
            sizes.push_back(large[i].empty() ? nullptr : large[i].data());
        }
        op(oracle, plain, wanted.data());
        op(oracle, sizes, size.data());
        CHECK(worst_sum<Out>(got(result), wanted, size, error) < 1.0);
        CHECK(result.intact(waiting_));
    }

private:
    device_queue waiting_{};
};

} // namespace pulse::test
