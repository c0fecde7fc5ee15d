#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "p2p.hpp"

namespace pulse_bench {

/// 8 bytes and its doubles, up to `most`.
[[nodiscard]] std::vector<p2p_size> doubling_sizes(std::int64_t most);

/// A backbone of the zoo on a pipeline, for its messages.
struct p2p_model {
    std::string name{};
    int microbatch_size{1};
    int pipeline{4};
    int scalar_bytes{2}; ///< of an activation's numbers: 2 or 4
};

/// The messages of a model's plans of so many devices: what the boundaries of the folded plan carry, and the skips that
/// the sequential one sends; gradients have the same sizes. Every size once, or with `largest_only` the largest of
/// either. Throws input_error where there is no such model, infeasible_error where it cannot be cut so.
[[nodiscard]] std::vector<p2p_size> model_sizes(const p2p_model& of, bool largest_only);

/// Both, ascending, each number of bytes once; a name stays with it.
[[nodiscard]] std::vector<p2p_size> joined_sizes(std::vector<p2p_size> a, const std::vector<p2p_size>& b);

} // namespace pulse_bench
