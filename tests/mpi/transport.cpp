#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/mpi/transport.hpp>
#include <pulse/runtime/measure_links.hpp>

#include "messages.hpp"
#include "world.hpp"

namespace mpi_transport_tests {

TEST_CASE("messages and collectives of MPI keep the laws of transports") {
    const mpi_ranks<> these{};
    CHECK(these.error_of([&](auto& t) { keep_messages(these, t); }) == "");
    const mpi_ranks<700> in_pieces{{}, {.chunk_bytes = 1000}};
    CHECK(in_pieces.error_of([&](auto& t) { keep_messages(in_pieces, t); }) == "");
}

// Two parts, and two copies of them, of over 2 GiB: run by hand, with --no-skip.
TEST_CASE("a part may have more than INT_MAX bytes" * doctest::skip()) {
    CHECK(error_of([](mpi::transport& t) {
              if (t.rank() > 1) { return; }
              const std::size_t bytes = static_cast<std::size_t>(std::numeric_limits<int>::max()) + 12345;
              std::vector<std::byte> all = filled(t.rank(), 1, t.rank() == 0 ? bytes : 0);
              all.resize(bytes);
              message_part part{all.data(), bytes, traffic_kind::boundary, false};
              if (t.rank() == 0) {
                  t.post_send(1, message(0), {&part, 1});
                  t.wait_send(1, message(0));
                  if (t.sent().boundary != static_cast<std::int64_t>(bytes)) { throw error{"wrong count"}; }
              } else {
                  t.post_recv(0, message(0), {&part, 1});
                  t.wait_recv(0, message(0));
                  for (std::size_t i = 0; i != bytes; ++i) {
                      if (all[i] != value_of(0, 1, i)) { throw error{"a message brought wrong bytes"}; }
                  }
              }
          }) == "");
}

TEST_CASE("with synchronous sends a post returns when the other side has posted") {
    CHECK(error_of(
              [](mpi::transport& t) {
                  message_part part = room_of(t, 8);
                  if (t.rank() > 1) { return; }
                  for (const bool send : {true, false}) {
                      const bool mine = (t.rank() == 0) == send;
                      // A busy machine may begin one wait late, but not every one.
                      double longest_s = 0;
                      for (int i = 0; i != 8; ++i) {
                          const auto start = clock_type::now();
                          if (t.rank() == 1) { std::this_thread::sleep_for(std::chrono::milliseconds{20}); }
                          mine ? t.post_send(1 - t.rank(), message(i), {&part, 1})
                               : t.post_recv(1 - t.rank(), message(i), {&part, 1});
                          longest_s = std::max(longest_s, seconds_since(start));
                          mine ? t.wait_send(1 - t.rank(), message(i)) : t.wait_recv(1 - t.rank(), message(i));
                      }
                      if (t.rank() == 0 && longest_s < 0.01) { throw error{"a post did not wait"}; }
                  }
              },
              {.synchronous = true}) == "");
}

TEST_CASE("options that cannot be, and a rank that is not there, are refused") {
    for (const mpi::options& how :
         {mpi::options{.timeout_s = 0}, mpi::options{.closing_s = -1}, mpi::options{.chunk_bytes = 0},
          mpi::options{.chunk_bytes = std::size_t{1} << 31}}) {
        CHECK_THROWS_AS((mpi::transport{session_here(), how}), input_error);
    }
    CHECK(contains(error_of([](mpi::transport& t) { t.wait_send(t.size(), message(0)); }), "no link"));
}

TEST_CASE("all processes measure one cluster, of the machines that they say, in the time that they are given") {
    for (const bool two_machines : {false, true}) {
        cluster found{};
        const auto start = clock_type::now();
        const std::string error = error_of([&](mpi::transport& t) {
            const bool second = two_machines && t.rank() >= t.size() / 2;
            found = measure_links(t, {.machine = second ? "second" : "first",
                                      .memory_bytes = 1000 + t.rank(),
                                      .device = std::to_string(t.rank()),
                                      .seconds = 0.3});
            double figures[]{found.intra_node.latency_us, found.intra_node.bandwidth_gb_per_s,
                             found.inter_node.latency_us, found.inter_node.bandwidth_gb_per_s};
            const auto mine = std::to_array(figures);
            t.sum(figures);
            for (std::size_t i = 0; i != mine.size(); ++i) { CHECK(figures[i] == doctest::Approx(mine[i] * t.size())); }
        });
        CHECK(error.empty());
        // There may be more ranks than cores.
        CHECK(seconds_since(start) < 20);
        CHECK(found.memory_bytes == 1000);
        CHECK(found.devices() == world_size());
        CHECK(found.nodes == (two_machines ? 2 : 1));
        CHECK((found.intra_node.bandwidth_gb_per_s > 0) == (found.devices_per_node > 1));
        CHECK((found.inter_node.bandwidth_gb_per_s > 0) == two_machines);
    }
}

} // namespace mpi_transport_tests
