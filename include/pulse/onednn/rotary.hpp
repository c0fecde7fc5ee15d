#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/onednn/parallel.hpp>
#include <pulse/runtime/backend.hpp>

namespace pulse::onednn {

/// Cosines and sines of all rotations of one shape, computed once: a constant of the model.
class rotary_table {
public:
    explicit rotary_table(const rotary_shape& shape) : shape_{shape} {
        const int pairs = shape.head_size / 2;
        turns_.reserve(2 * static_cast<std::size_t>(shape.tokens()) * static_cast<std::size_t>(pairs));
        for (int token = 0; token != shape.tokens(); ++token) {
            for (int pair = 0; pair != pairs; ++pair) {
                const double angle = shape.angle(token, pair);
                turns_.push_back(static_cast<float>(std::cos(angle)));
                turns_.push_back(static_cast<float>(std::sin(angle)));
            }
        }
    }

    [[nodiscard]] const rotary_shape& shape() const noexcept { return shape_; }
    [[nodiscard]] std::int64_t bytes() const noexcept {
        return static_cast<std::int64_t>(turns_.capacity() * sizeof(float));
    }

    /// y = x turned by the angles, or with `direction` -1 turned back; y may be x.
    void turn(int threads, int batch, float direction, const float* x, float* y) const {
        const int size = shape_.head_size;
        const float* const turns = turns_.data();
        const std::int64_t tokens = shape_.tokens();
        const int heads = shape_.heads;
        parallel_for(threads, batch * tokens, [=](int, std::int64_t row) {
            const float* const turn = turns + row % tokens * size;
            for (int h = 0; h != heads; ++h) {
                const std::int64_t head = (row * heads + h) * size;
                for (int c = 0; c != size; c += 2) {
                    const float sine = direction * turn[c + 1];
                    const float even = x[head + c];
                    const float odd = x[head + c + 1];
                    y[head + c] = even * turn[c] - odd * sine;
                    y[head + c + 1] = odd * turn[c] + even * sine;
                }
            }
        });
    }

private:
    rotary_shape shape_;
    std::vector<float> turns_{};
};

} // namespace pulse::onednn
