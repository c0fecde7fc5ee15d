#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <pulse/core/error.hpp>
#include <pulse/model/parameter.hpp>

namespace pulse::nn {

/// The mixing function of SplitMix64 (Steele, Lea and Flood 2014).
[[nodiscard]] constexpr std::uint64_t mixed(std::uint64_t z) noexcept {
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
}

/// Start of the random sequence of one parameter: depends on the seed and the parameter's full name only.
[[nodiscard]] constexpr std::uint64_t sequence_of(std::uint64_t seed, std::string_view name) noexcept {
    std::uint64_t state = mixed(seed + 0x9e3779b97f4a7c15U);
    for (const char c : name) { state = mixed(state ^ static_cast<unsigned char>(c)) + 0x9e3779b97f4a7c15U; }
    return state;
}

/// Element `at` of a sequence, uniform in [-1, 1).
[[nodiscard]] constexpr double uniform(std::uint64_t sequence, std::uint64_t at) noexcept {
    const std::uint64_t bits = mixed(sequence + (at + 1) * 0x9e3779b97f4a7c15U);
    return static_cast<double>(bits >> 11U) * 0x1.0p-52 - 1.0;
}

/// Fills the parameters of one layer as PyTorch's default does: weights and biases of convolutions and linear layers
/// uniform in +-1/sqrt(fan in) (kaiming_uniform with a = sqrt(5)), weights of norms 1, their biases 0. Learned vectors,
/// which are neither and have at least two dimensions (a position embedding), are uniform with standard deviation 0.02.
/// Parameters that are marked as zero are 0.
///
/// `values` is the layer's block, the parameters in order without gaps. The result depends on the seed and the names
/// only, so every partition of a model starts from the same weights. T is any type that a double converts to
/// explicitly. Throws input_error when the sizes disagree or no rule initialises a parameter (parameter_flaw).
template <class T>
void initialise(std::span<const parameter> parameters, std::uint64_t seed, std::span<T> values) {
    std::int64_t total = 0;
    for (const parameter& p : parameters) { total += p.elements(); }
    if (static_cast<std::int64_t>(values.size()) != total) {
        throw input_error("pulse: initialise: " + std::to_string(values.size()) + " values for " +
                          std::to_string(total) + " parameter elements");
    }
    if (const parameter_finding found = inspect(parameters); found.flaw != parameter_flaw::none) {
        throw input_error(
            "pulse: initialise: '" + parameters[found.which].name.str() +
            (found.flaw == parameter_flaw::dims
                 ? "' must have as many positive dims as its rank, and only 0 or 1 after them"
                 : "' has no initialisation rule: it must be a weight, the bias that follows a weight, marked zero, "
                   "or have at least 2 dims"));
    }
    std::size_t begin = 0;
    for (std::size_t i = 0; i != parameters.size(); ++i) {
        const parameter& p = parameters[i];
        const std::span<T> block = values.subspan(begin, static_cast<std::size_t>(p.elements()));
        begin += block.size();
        if (p.zero) {
            for (T& value : block) { value = static_cast<T>(0.0); }
            continue;
        }
        const std::string_view name = p.name.view();
        const bool weight = name.ends_with(".weight");
        const std::uint64_t sequence = sequence_of(seed, name);
        const auto draw = [&](double bound) {
            for (std::size_t n = 0; n != block.size(); ++n) { block[n] = static_cast<T>(bound * uniform(sequence, n)); }
        };
        if (!weight && !name.ends_with(".bias") && p.rank >= 2) {
            draw(0.02 * std::sqrt(3.0));
            continue;
        }
        const parameter& owner = weight ? p : parameters[i - 1];
        if (owner.rank < 2) {
            for (T& value : block) { value = static_cast<T>(weight ? 1.0 : 0.0); }
            continue;
        }
        const double fan_in = static_cast<double>(owner.elements()) / static_cast<double>(owner.dims[0]);
        draw(1.0 / std::sqrt(fan_in));
    }
}

} // namespace pulse::nn
