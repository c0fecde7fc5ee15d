#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include <pulse/cuda/kernels/weight_order.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/queue.cuh>
#include <pulse/cuda/scratch.cuh>

namespace pulse::cuda {

/// Weights of convolutions in cuDNN's order, aligned to 256 bytes, made when they are first asked for after a change.
///
/// A captured program makes each weight that it reads once again, at its first use, so that a replay sees weights that
/// changed after the capture.
template <class T>
class packed_weights {
public:
    /// A block of the weight that begins at `weight`, in cuDNN's order. Valid until the next change.
    const T* find(const queue& on, const weight_block& block, const T* weight) {
        const unsigned long long capture = capture_of(on.stream);
        place& p = place_of(on, block, weight);
        if (capture != 0 ? p.capture == capture : p.epoch == epoch_) { return p.values.data(); }
        pack_weight(on, block, weight, p.values.data());
        if (capture != 0) {
            p.capture = capture;
            p.replayed = true;
        } else {
            p.epoch = epoch_;
        }
        return p.values.data();
    }
    /// A vector, such as a bias, under the same rules.
    const T* find_vector(const queue& on, int n, const T* values) { return find(on, {1, n, 0, n, 1}, values); }

    /// Weights were written, or moved to other memory.
    void changed() noexcept { ++epoch_; }
    [[nodiscard]] std::int64_t bytes() const noexcept {
        std::int64_t sum = 0;
        for (const place& p : places_) { sum += static_cast<std::int64_t>(p.values.bytes()); }
        return sum;
    }

private:
    struct place {
        const T* source{};
        weight_block block{};
        std::int64_t epoch{-1};
        unsigned long long capture{}; ///< the last capture that made it
        bool replayed{};              ///< a captured program may write it, so it stays this weight's
        device_memory<T> values{};
    };

    place& place_of(const queue& on, const weight_block& block, const T* weight) {
        for (place& p : places_) {
            if (p.source == weight && p.block == block) { return p; }
        }
        // A place of an older epoch serves another weight of its size, so that weights that move take no more memory.
        const auto n = static_cast<std::size_t>(block.elements());
        auto free = std::find_if(places_.begin(), places_.end(), [&](const place& p) {
            return p.epoch != epoch_ && !p.replayed && p.values.size() == n;
        });
        if (free == places_.end()) {
            require_not_captured(on.stream, "a weight has to be reordered for the first time");
            place made{};
            made.values = device_memory<T>{n};
            places_.push_back(std::move(made));
            free = std::prev(places_.end());
        }
        free->source = weight;
        free->block = block;
        free->epoch = -1;
        free->capture = 0;
        return *free;
    }

    std::int64_t epoch_{};
    std::vector<place> places_{};
};

} // namespace pulse::cuda
