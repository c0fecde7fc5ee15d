#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/linear_batch.hpp>

// Linear layers without biases that read the same input: batched if the backend can and their places are equally
// spaced, else one after the other.

namespace pulse::nn {

/// The weight and the result of one of the layers, or their gradients.
template <class Weight, class Result>
struct linear_place {
    Weight weight{};
    Result result{};
};

namespace detail {

template <class T>
[[nodiscard]] constexpr bool of_one_mode(const T* /*a*/, const T* /*b*/) noexcept {
    return true;
}
template <class A>
[[nodiscard]] constexpr bool of_one_mode(const gradient_place<A>& a, const gradient_place<A>& b) noexcept {
    return a.how == b.how;
}

/// Calls use(first place, count, weight stride, result stride) for each run of layers with equal, positive strides
/// whose gradients are all written or all added to; without `joined` every run has one layer.
template <class Weight, class Result, class Use>
void each_run(std::initializer_list<linear_place<Weight, Result>> all, bool joined, const Use& use) {
    for (const auto* at = all.begin(); at != all.end();) {
        const auto* end = at + 1;
        std::int64_t weights = 0;
        std::int64_t results = 0;
        if (joined && end != all.end()) {
            weights = end->weight - at->weight;
            results = end->result - at->result;
            const auto follows = [&] {
                return of_one_mode(end->weight, at->weight) && end->weight - end[-1].weight == weights &&
                       end->result - end[-1].result == results;
            };
            while (weights > 0 && results > 0 && end != all.end() && follows()) { ++end; }
        }
        use(*at, static_cast<int>(end - at), weights, results);
        at = end;
    }
}

} // namespace detail

/// Each result = x weight^T.
template <backend B>
void linear_batch(B& on, const linear_shape& s, std::int64_t rows, const typename B::scalar* x,
                  std::initializer_list<linear_place<const typename B::scalar*, typename B::scalar*>> all) {
    detail::each_run(all, batches_linear<B>,
                     [&](const auto& first, int count, std::int64_t weights, std::int64_t results) {
                         if constexpr (batches_linear<B>) {
                             if (count > 1) {
                                 return on.linear_batch({s, count, weights, results}, rows, x, first.weight,
                                                        first.result, into::write);
                             }
                         }
                         on.linear(s, rows, x, first.weight, nullptr, first.result, into::write);
                     });
}

/// Each weight's gradient = or += (the result's gradient)^T x.
template <backend B>
void linear_batch_backward_weight(
    B& on, const linear_shape& s, std::int64_t rows, const typename B::scalar* x,
    std::initializer_list<linear_place<gradient_place<typename B::accumulator>, const typename B::scalar*>> all) {
    detail::each_run(all, batches_linear<B>,
                     [&](const auto& first, int count, std::int64_t weights, std::int64_t results) {
                         if constexpr (batches_linear<B>) {
                             if (count > 1) {
                                 return on.linear_batch_backward_weight({s, count, weights, results}, rows, x,
                                                                        first.result, first.weight);
                             }
                         }
                         on.linear_backward_weight(s, rows, x, first.result, first.weight, nullptr);
                     });
}

} // namespace pulse::nn
