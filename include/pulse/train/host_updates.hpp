#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <pulse/model/parameter.hpp>
#include <pulse/plan/optimizer_form.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/optimizer_rule.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/runtime/weight_exchange.hpp>
#include <pulse/train/adafactor.hpp>
#include <pulse/train/adamw.hpp>
#include <pulse/train/clip.hpp>
#include <pulse/train/dynamic_code.hpp>
#include <pulse/train/ema.hpp>

namespace pulse::train {

/// Arrays that an update of consecutive parameters reads and writes, `size` values each, in a backend's memory.
template <class T>
struct update_arrays {
    std::size_t size{};
    const float* gradients{};
    float* weights{}; ///< the weights to update; null: `compute` holds the weights, with `left_over` if kept
    float* first_moment{};
    float* second_moment{};
    float* average{};            ///< null: no average is kept
    T* compute{};                ///< the copy of the weights that passes read; null if `weights` is that copy
    std::uint8_t* first_codes{}; ///< instead of moments, with one scale per moment_block
    std::uint8_t* second_codes{};
    float* first_scales{};
    float* second_scales{};
    T* left_over{};         ///< rounding remainders of `compute`; null: not kept
    std::uint64_t number{}; ///< number of the first parameter in the model
    std::size_t rows{};     ///< of a tensor whose second moments are factored; 0: a vector

    /// Whether they are one tensor with means of rows and columns as second moments, which takes Adafactor's step.
    [[nodiscard]] constexpr bool factored() const noexcept { return first_moment == nullptr && first_codes == nullptr; }
};

/// Memory operations of a rank_optimizer on the host. `Rule` is plain_adamw, onednn::fused_adamw or the user's own;
/// factored moments take Adafactor's step instead. cuda::device_updates is its counterpart, with the same members.
template <optimizer_rule Rule = plain_adamw>
class host_updates {
public:
    using scalar = float;
    using space = host_space;
    /// Whether master weights are kept beside the weights that passes read.
    static constexpr bool keeps_master = false;
    /// Whether passes read bfloat16 values, so that the weights may be kept in another form.
    static constexpr bool rounds_to_bfloat16 = false;
    /// Whether gradients come from a loss that was multiplied by a scale.
    static constexpr bool scales_loss = false;

    host_updates(Rule rule = {}) : rule_{std::move(rule)} {} // NOLINT: a rule converts

    /// Called once, with the gradient ranges that square() sums, the maximum number of losses, and whether moments are
    /// factored.
    void prepare(std::vector<element_range> shares, std::size_t, bool = false) {
        shares_ = std::move(shares);
        squares_.resize(shares_.size());
    }
    /// Sums the squared gradients of each of these ranges.
    void square(const float* gradients, std::size_t first, std::size_t count) {
        for (std::size_t i = first; i != first + count; ++i) {
            squares_[i] = sum_of_squares<float>({gradients + shares_[i].first, shares_[i].size});
        }
    }
    /// Copies the sums of all ranges, and the losses, to host memory; done on return.
    void read(std::span<const double> losses, std::span<double> squares, std::span<double> losses_here) const {
        std::copy(squares_.begin(), squares_.end(), squares.begin());
        std::copy(losses.begin(), losses.end(), losses_here.begin());
    }
    void update(const optimizer_update& now, const update_arrays<float>& a) const {
        const std::span<const float> gradients{a.gradients, a.size};
        const std::span<float> weights{a.weights, a.size};
        const std::span<float> average{a.average, a.average == nullptr ? 0 : a.size};
        if (a.factored()) {
            adafactor_step(adafactor_factors_of(now), weights, gradients,
                           {a.second_moment, factored_elements(a.size, a.rows)}, a.rows);
            ema_update<float>(now.average_decay, weights, average);
        } else if (a.first_codes == nullptr) {
            rule_(now, weights, gradients, {a.first_moment, a.size}, {a.second_moment, a.size}, average);
        } else {
            for_each_moment_block(a.size, [&](std::size_t block, std::size_t first, std::size_t size) {
                std::array<float, moment_block> mean{};
                std::array<float, moment_block> square{};
                const std::span<float> means = std::span{mean}.first(size);
                const std::span<float> squares = std::span{square}.first(size);
                const std::span<std::uint8_t> codes_1{a.first_codes + first, size};
                const std::span<std::uint8_t> codes_2{a.second_codes + first, size};
                decode_block(first_codes, codes_1, a.first_scales[block], means);
                decode_block(second_codes, codes_2, a.second_scales[block], squares);
                rule_(now, weights.subspan(first, size), gradients.subspan(first, size), means, squares,
                      average.empty() ? average : average.subspan(first, size));
                a.first_scales[block] = encode_block(first_codes, means, codes_1);
                a.second_scales[block] = encode_block(second_codes, squares, codes_2);
            });
        }
    }
    template <class T>
    void clear(std::span<T> values) const {
        std::fill(values.begin(), values.end(), T{});
    }
    template <class T>
    void copy(const T* from, T* to, std::size_t n) const {
        std::copy_n(from, n, to);
    }
    /// Makes the copy of the weights that passes read.
    void round(const float* from, float* to, std::size_t n) const { copy(from, to, n); }
    void exchange(weight_exchange& weights, const any_transport& transport) const { weights.run(transport); }
    /// Waits until all of the above is done.
    void wait() const noexcept {}
    /// Bytes of its own buffers in the space.
    [[nodiscard]] std::int64_t bytes() const noexcept { return 0; }

private:
    Rule rule_;
    std::vector<element_range> shares_{};
    std::vector<double> squares_{};
};

/// The memory operations for an optimizer of a backend's parameters: the backend's updates(), else host_updates with
/// its update_rule(), else host_updates with the portable rule.
template <class B>
[[nodiscard]] auto updates_of(const B& math) {
    if constexpr (requires { math.updates(); }) {
        return math.updates();
    } else if constexpr (requires { math.update_rule(); }) {
        return host_updates{math.update_rule()};
    } else {
        return host_updates<>{};
    }
}

} // namespace pulse::train
