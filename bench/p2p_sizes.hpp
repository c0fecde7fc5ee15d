#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "p2p.hpp"

namespace pulse_bench {

/// 8 bytes, doubled up to `most`.
[[nodiscard]] std::vector<p2p_size> doubling_sizes(std::int64_t most);

/// A backbone of the zoo on a pipeline whose messages are measured.
struct p2p_model {
    std::string name{};
    int microbatch_size{1};
    int pipeline{4};
    int scalar_bytes{2}; ///< of an activation's numbers: 2 or 4
};

/// The messages of a model's plans: the boundaries of the folded plan, and the skips that the sequential one sends;
/// gradients have the same sizes. Every size once, or with `largest_only` the largest of either kind. Throws
/// input_error for an unknown model, infeasible_error where it cannot be cut over so many devices.
[[nodiscard]] std::vector<p2p_size> model_sizes(const p2p_model& of, bool largest_only);

/// Both lists merged, ascending, each number of bytes once with all of its names.
[[nodiscard]] std::vector<p2p_size> joined_sizes(std::vector<p2p_size> a, const std::vector<p2p_size>& b);

} // namespace pulse_bench
