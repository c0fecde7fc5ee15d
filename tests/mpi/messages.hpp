#pragma once

#include <chrono>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include <pulse/mpi/transport.hpp>

#include "world.hpp"

namespace mpi_transport_tests {

using namespace pulse;
using namespace pulse::test;
using clock_type = std::chrono::steady_clock;

inline message_id message(int index, int m = 0) { return {message_kind::boundary, index, microbatch_id{m}}; }

inline message_part part_of(std::vector<std::byte>& bytes, traffic_kind kind = traffic_kind::boundary) {
    return {bytes.data(), bytes.size(), kind, false};
}
inline std::byte value_of(int from, int number, std::size_t i) {
    return static_cast<std::byte>((static_cast<std::size_t>(from * 31 + number * 7) + i * 13 + i / 256) % 251);
}
inline std::vector<std::byte> filled(int from, int number, std::size_t bytes) {
    std::vector<std::byte> all(bytes);
    for (std::size_t i = 0; i != bytes; ++i) { all[i] = value_of(from, number, i); }
    return all;
}
inline double seconds_since(clock_type::time_point start) {
    return std::chrono::duration<double>(clock_type::now() - start).count();
}
/// Room that outlives an error which leaves the body of a rank while a message is under way.
inline message_part room_of(mpi::transport& t, std::size_t bytes) {
    std::byte* const data = t.allocate(bytes);
    std::memset(data, 0, bytes);
    return {data, bytes, traffic_kind::boundary, false};
}
inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

} // namespace mpi_transport_tests
