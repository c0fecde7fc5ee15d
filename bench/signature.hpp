#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <pulse/nn/initialise.hpp>

namespace pulse_bench {

/// Number i of the sequence `sequence`, uniform in [-1, 1): both sides of a comparison make their tensors of these.
[[nodiscard]] inline float drawn(std::uint64_t sequence, std::int64_t i) {
    return static_cast<float>(pulse::nn::uniform(sequence, static_cast<std::uint64_t>(i)));
}

/// The numbers by which two sides compare a tensor: its length, and its products with four drawn vectors of variance 1.
/// If tensors differ by a tenth of their length, so do their products, roughly.
class signature {
public:
    void add(double value) {
        squares_ += value * value;
        sums_[at_] += value;
        at_ = at_ + 1 == period ? 0 : at_ + 1;
    }
    [[nodiscard]] std::vector<double> values() const {
        std::vector<double> made{std::sqrt(squares_)};
        for (int probe = 0; probe != 4; ++probe) {
            const std::uint64_t sequence = pulse::nn::sequence_of(1, "probe " + std::to_string(probe));
            double product = 0;
            for (std::size_t i = 0; i != period; ++i) {
                product +=
                    std::sqrt(3.0) * sums_[i] * static_cast<double>(drawn(sequence, static_cast<std::int64_t>(i)));
            }
            made.push_back(product);
        }
        return made;
    }

private:
    static constexpr std::size_t period = 10007; // of the drawn vectors
    std::vector<double> sums_ = std::vector<double>(period);
    double squares_{};
    std::size_t at_{};
};

/// A number that the other side must find within a tolerance.
struct agreed_number {
    double value{};
    double tolerance{};
};

/// Appends a signature whose numbers may differ by `tolerance` times the tensor's length.
inline void append_signature(std::vector<agreed_number>& to, const signature& from, double tolerance) {
    const std::vector<double> values = from.values();
    for (const double value : values) { to.push_back({value, tolerance * values.front()}); }
}

} // namespace pulse_bench
