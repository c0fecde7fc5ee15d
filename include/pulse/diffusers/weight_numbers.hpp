#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/io/half.hpp>
#include <pulse/io/safetensors_header.hpp>

namespace pulse::diffusers {

/// How weights are written.
struct weights_format {
    io::element_type type{io::f32}; ///< F32 or F16
    /// Maximum bytes of a shard of a folder, unless a single tensor is larger; 0: one file, which every diffusers
    /// reads.
    std::uint64_t shard_bytes{};
};

/// Passes all values of a tensor (by its index in the list) to `put`, piece by piece and in order.
using tensor_values = std::function<void(std::size_t tensor, const std::function<void(std::span<const float>)>& put)>;

namespace detail {

/// Passes the values of one tensor, as bytes of F32 or F16, to `write`. Throws input_error, which begins with `place`,
/// if they are not `bytes` long or one does not fit the type.
template <class Write>
void write_numbers(const tensor_values& values, std::size_t tensor, io::element_type type, std::uint64_t bytes,
                   const std::string& place, const Write& write) {
    std::uint64_t written = 0;
    std::vector<std::uint16_t> halves;
    values(tensor, [&](std::span<const float> piece) {
        if (type == io::f32) {
            write(std::as_bytes(piece));
            written += piece.size_bytes();
            return;
        }
        halves.clear();
        for (const float value : piece) {
            halves.push_back(io::half_of_float(value));
            if (std::isfinite(value) && !std::isfinite(io::float_of_half(halves.back()))) {
                throw input_error(place + " has " + std::to_string(value) + ", which F16 cannot hold");
            }
        }
        write(std::as_bytes(std::span{std::as_const(halves)}));
        written += halves.size() * sizeof(std::uint16_t);
    });
    if (written != bytes) {
        throw input_error(place + " has " + std::to_string(written) + " bytes, but its shape needs " +
                          std::to_string(bytes));
    }
}

} // namespace detail

} // namespace pulse::diffusers
