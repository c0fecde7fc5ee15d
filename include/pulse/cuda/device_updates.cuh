#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <cuda_runtime.h>

#include <pulse/cuda/device.cuh>
#include <pulse/cuda/event.cuh>
#include <pulse/cuda/kernels/adafactor.cuh>
#include <pulse/cuda/kernels/adamw.cuh>
#include <pulse/cuda/kernels/adamw_blocks.cuh>
#include <pulse/cuda/kernels/convert.cuh>
#include <pulse/cuda/kernels/sum_of_squares.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/precision.cuh>
#include <pulse/cuda/queue.cuh>
#include <pulse/cuda/space.cuh>
#include <pulse/plan/replica_place.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/optimizer_rule.hpp>
#include <pulse/runtime/weight_exchange.hpp>
#include <pulse/train/rank_optimizer.hpp>

namespace pulse::cuda {

/// The memory operations of a rank_optimizer on a device: the counterpart of train::host_updates.
///
/// If the scalar is not float, master weights are kept as well. All work is enqueued on one stream, which must be the
/// backend's; of a step's operations, only read() waits for it.
template <class Precision = bf16>
class device_updates {
public:
    using scalar = typename Precision::scalar;
    using space = device_space;
    static constexpr bool keeps_master = !std::is_same_v<scalar, float>;
    static constexpr bool scales_loss = Precision::scales_loss;
    static constexpr bool rounds_to_bfloat16 = std::is_same_v<scalar, __nv_bfloat16>;

    device_updates(cudaStream_t stream) : on_{stream, 0, nullptr} {} // NOLINT: a stream converts

    void prepare(const std::vector<element_range>& shares, std::size_t losses, bool factored = false) {
        std::vector<value_chunk> chunks;
        first_of_share_ = {0};
        for (const element_range& r : shares) {
            append_chunks(chunks, static_cast<std::int64_t>(r.first), static_cast<std::int64_t>(r.size));
            first_of_share_.push_back(static_cast<std::int32_t>(chunks.size()));
        }
        chunks_ = uploaded(chunks);
        first_chunk_ = uploaded(first_of_share_);
        squares_ = device_memory<double>{shares.size()};
        parts_ = device_memory<double>{factored ? std::size_t{update_parts} : 0};
        host_sums_ = pinned_memory<double>{shares.size() + losses};
        chunk_squares_ = device_memory<double>{chunks.size()};
        on_ = {on_.stream, properties_of(current_device()).multiprocessors, nullptr};
    }
    void square(const float* gradients, std::size_t first, std::size_t count) {
        const std::int32_t from = first_of_share_[first];
        chunk_squares<float>(on_, gradients, first_of_share_[first + count] - from, chunks_.data() + from,
                             chunk_squares_.data() + from);
    }
    /// The only operation of a step that waits.
    void read(std::span<const double> losses, std::span<double> squares, std::span<double> losses_here) {
        sum_chunks(on_, chunk_squares_.data(), static_cast<int>(squares.size()), first_chunk_.data(), squares_.data());
        copy(static_cast<const double*>(squares_.data()), host_sums_.data(), squares.size());
        copy(losses.data(), host_sums_.data() + squares.size(), losses.size());
        wait();
        std::copy_n(host_sums_.data(), squares.size(), squares.begin());
        std::copy_n(host_sums_.data() + squares.size(), losses.size(), losses_here.begin());
    }
    void update(const optimizer_update& now, const train::update_arrays<scalar>& a) const {
        if (a.factored()) {
            adafactor<scalar>(on_, now, a, parts_.data());
            return;
        }
        if (a.first_codes != nullptr || a.weights == nullptr) {
            adamw_blocks<scalar>(on_, now, a);
            return;
        }
        adamw<scalar>(on_, now, a);
    }
    template <class T>
    void clear(std::span<T> values) const {
        fill_bytes_async(values.data(), 0, values.size(), on_.stream);
    }
    template <class T>
    void copy(const T* from, T* to, std::size_t n) const {
        if (n != 0) { copy_async<T>(to, from, n, on_.stream); }
    }
    void round(const float* from, scalar* to, std::size_t n) const {
        if constexpr (keeps_master) {
            convert<float, scalar>(on_, static_cast<std::int64_t>(n), from, to);
        } else {
            copy(from, to, n);
        }
    }
    /// Runs after the work already in the stream; work enqueued later runs after it.
    void exchange(weight_exchange& weights, const any_transport& transport) const {
        reduction_order order{*this, transport};
        order.follow();
        weights.run(transport);
        order.lead();
    }
    void wait() const { check(cudaStreamSynchronize(on_.stream), "cudaStreamSynchronize"); }
    [[nodiscard]] std::int64_t bytes() const noexcept {
        return static_cast<std::int64_t>(chunks_.bytes() + first_chunk_.bytes() + squares_.bytes() + parts_.bytes() +
                                         chunk_squares_.bytes());
    }
    [[nodiscard]] cudaStream_t stream() const noexcept { return on_.stream; }

private:
    template <class Each>
    [[nodiscard]] static device_memory<Each> uploaded(const std::vector<Each>& values) {
        device_memory<Each> there{values.size()};
        upload<Each>(values.data(), there.data(), values.size());
        return there;
    }

    queue on_;
    std::vector<std::int32_t> first_of_share_{}; ///< index of each share's first chunk
    device_memory<value_chunk> chunks_{};
    device_memory<std::int32_t> first_chunk_{};
    device_memory<double> squares_{};
    device_memory<double> parts_{};
    device_memory<double> chunk_squares_{};
    pinned_memory<double> host_sums_{};
};

/// The optimizer of the parameters that a rank owns, on its device; constructed from the backend's stream.
template <class Precision = bf16>
using rank_optimizer = train::rank_optimizer<device_updates<Precision>>;

} // namespace pulse::cuda
