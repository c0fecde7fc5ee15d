#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>

namespace pulse::train {

/// Noise level of a sample, x = signal x0 + sigma eps, with the network's time and the answer that it should give.
struct noise_level {
    double signal{1};
    double sigma{};
    double time{}; ///< as the network reads it
    /// The network should answer target_image x0 + target_noise eps, which must not be a multiple of x.
    double target_image{};
    double target_noise{1};
};

namespace detail {

/// out = p x + q y, element by element; `out` may be x or y.
template <std::floating_point T>
void combine(double p, const T* x, double q, const T* y, std::span<T> out) noexcept {
    const T p_t = static_cast<T>(p);
    const T q_t = static_cast<T>(q);
    for (std::size_t i = 0; i != out.size(); ++i) { out[i] = p_t * x[i] + q_t * y[i]; }
}

/// Bound on what a self-conditioned model is shown of an image: where x is almost all noise, the implied image is
/// arbitrary.
inline constexpr float most_implied = 8.0F;

/// out = the channels of each pixel of x, followed by those of another image, clamped to [-most, most].
template <std::floating_point T>
void put_beside(std::size_t channels, std::span<const T> x, std::span<const T> other, std::span<T> out,
                T most = most_implied) noexcept {
    for (std::size_t e = 0; e != x.size(); ++e) {
        const std::size_t place = e + e / channels * channels;
        out[place] = x[e];
        out[place + channels] = std::clamp(other[e], -most, most);
    }
}

} // namespace detail

/// Noisy x of one sample at level `at`; here and below, all spans have the same size.
template <std::floating_point T>
void add_noise(const noise_level& at, std::span<const T> x0, std::span<const T> noise, std::span<T> x) noexcept {
    detail::combine(at.signal, x0.data(), at.sigma, noise.data(), x);
}
/// The answer that the network should give at level `at`.
template <std::floating_point T>
void training_target(const noise_level& at, std::span<const T> x0, std::span<const T> noise,
                     std::span<T> target) noexcept {
    detail::combine(at.target_noise, noise.data(), at.target_image, x0.data(), target);
}
/// The image and the noise that an answer to x implies.
template <std::floating_point T>
void read_answer(const noise_level& at, std::span<const T> x, std::span<const T> answer, std::span<T> x0,
                 std::span<T> noise) noexcept {
    const double both = at.signal * at.target_noise - at.sigma * at.target_image;
    detail::combine(at.target_noise / both, x.data(), -at.sigma / both, answer.data(), x0);
    detail::combine(at.signal / both, answer.data(), -at.target_image / both, x.data(), noise);
}

} // namespace pulse::train
