#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/mpi/transport.hpp>
#include <pulse/runtime/measure_links.hpp>

#include "world.hpp"

#include "messages.hpp"
#include "world.hpp"

namespace mpi_transport_tests {

namespace {

/// Every rank sends `count` messages of two parts to the next and receives as many from the one before, and waits for
/// them last to first; sizes(n) gives the bytes of the parts of message n.
template <class Sizes>
std::string ring(int count, const mpi::options& how, Sizes sizes) {
    return error_of(
        [&](mpi::transport& t) {
            const int next = (t.rank() + 1) % t.size();
            const int before = (t.rank() + t.size() - 1) % t.size();
            std::vector<std::vector<std::byte>> out, in;
            std::vector<message_part> out_parts, in_parts;
            std::int64_t bytes[2]{};
            for (int n = 0; n != count; ++n) {
                const auto two = sizes(n);
                for (std::size_t p = 0; p != 2; ++p) {
                    out.push_back(filled(t.rank(), 2 * n + static_cast<int>(p), two[p]));
                    in.emplace_back(two[p], std::byte{0xFF});
                    bytes[p] += static_cast<std::int64_t>(two[p]);
                }
            }
            for (std::size_t i = 0; i != out.size(); ++i) {
                const traffic_kind kind = i % 2 == 0 ? traffic_kind::boundary : traffic_kind::skip;
                out_parts.push_back(part_of(out[i], kind));
                in_parts.push_back(part_of(in[i], kind));
            }
            for (int n = 0; n != count; ++n) {
                const auto at = static_cast<std::size_t>(2 * n);
                t.post_send(next, message(n), std::span{out_parts}.subspan(at, 2));
                t.post_recv(before, message(n), std::span{in_parts}.subspan(at, 2));
            }
            for (int n = count; n-- != 0;) {
                t.wait_recv(before, message(n));
                t.wait_send(next, message(n));
                for (int p = 0; p != 2; ++p) {
                    const std::vector<std::byte>& got = in[static_cast<std::size_t>(2 * n + p)];
                    if (got != filled(before, 2 * n + p, got.size())) { throw error{"a message brought wrong bytes"}; }
                }
            }
            const traffic_count sent = t.sent();
            if (sent.boundary != bytes[0] || sent.skip != bytes[1] || sent.gradient != 0 || sent.messages != count ||
                sent.handed_over != 0) {
                throw error{"the transport counted wrong"};
            }
        },
        how);
}

} // namespace

TEST_CASE("many messages of any size are in flight at once and are waited for in any order") {
    CHECK(ring(200, {}, [](int n) {
              return std::vector<std::size_t>{static_cast<std::size_t>(n % 50), static_cast<std::size_t>(n)};
          }) == "");
    // beyond what MPI sends before the receiver asks for it
    CHECK(ring(20, {}, [](int n) { return std::vector<std::size_t>{static_cast<std::size_t>(n) * 30000, 1}; }) == "");
    // parts that are cut in pieces, and none at all
    CHECK(ring(10, {.chunk_bytes = 1000}, [](int n) {
              return std::vector<std::size_t>{static_cast<std::size_t>(n) * 500, 12345};
          }) == "");
}

// Two parts and two copies of over 2 GiB: run by hand, with --no-skip.
TEST_CASE("a part may have more than INT_MAX bytes" * doctest::skip()) {
    CHECK(error_of([](mpi::transport& t) {
              if (t.rank() > 1) { return; }
              const std::size_t bytes = static_cast<std::size_t>(std::numeric_limits<int>::max()) + 12345;
              std::vector<std::byte> all = filled(t.rank(), 1, t.rank() == 0 ? bytes : 0);
              all.resize(bytes);
              message_part part = part_of(all);
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

TEST_CASE("a receive has arrived when waiting for it takes no time, and asking lets it go on") {
    CHECK(error_of([](mpi::transport& t) {
              std::vector<std::byte> bytes = filled(t.rank(), 0, 300000);
              message_part part = part_of(bytes);
              if (t.rank() == 0) {
                  t.post_recv(1, message(0), {&part, 1});
                  if (t.arrived(1, message(0))) { throw error{"it arrived before it was sent"}; }
              }
              t.sum({});
              if (t.rank() == 1) {
                  t.post_send(0, message(0), {&part, 1});
                  t.wait_send(0, message(0));
              }
              if (t.rank() == 0) {
                  while (!t.arrived(1, message(0))) {}
                  t.wait_recv(1, message(0));
                  if (bytes != filled(1, 0, bytes.size())) { throw error{"a message brought wrong bytes"}; }
              }
          }) == "");
}

TEST_CASE("a rank that has posted a receive takes the message while it waits for another rank") {
    if (world_size() < 3) { return; }
    CHECK(error_of(
              [](mpi::transport& t) {
                  // More than MPI sends before the receiver asks for it.
                  message_part large = room_of(t, 1 << 20), small = room_of(t, 8);
                  if (t.rank() == 0) {
                      t.post_send(1, message(0), {&large, 1});
                      t.wait_send(1, message(0));
                      t.post_send(2, message(1), {&small, 1});
                      t.wait_send(2, message(1));
                  } else if (t.rank() == 1) {
                      t.post_recv(0, message(0), {&large, 1});
                      t.post_recv(2, message(2), {&small, 1});
                      t.wait_recv(2, message(2));
                      t.wait_recv(0, message(0));
                  } else if (t.rank() == 2) {
                      t.post_recv(0, message(1), {&small, 1});
                      t.wait_recv(0, message(1));
                      t.post_send(1, message(2), {&small, 1});
                      t.wait_send(1, message(2));
                  }
              },
              {.timeout_s = 20}) == "");
}

TEST_CASE("a sum is the same on every rank, in rank order") {
    CHECK(error_of([](mpi::transport& t) {
              for (int round = 0; round != 50; ++round) {
                  std::vector<double> v{0.1 * (t.rank() + 1), static_cast<double>(round)};
                  v.resize(static_cast<std::size_t>(2 + round % 3));
                  t.sum(v);
                  double want = 0;
                  for (int r = 0; r != t.size(); ++r) { want += 0.1 * (r + 1); }
                  if (v[0] != want || v[1] != t.size() * round) { throw error{"a sum is wrong"}; }
                  t.sum({});
              }
          }) == "");
}

TEST_CASE("a gather brings the bytes of every rank to rank 0, a broadcast those of rank 0 to every rank") {
    CHECK(error_of(
              [](mpi::transport& t) {
                  for (int round = 0; round != 20; ++round) {
                      const auto bytes_of = [&](int r) {
                          return filled(r, round, static_cast<std::size_t>(r * 700 + round % 2));
                      };
                      std::vector<std::byte> mine = bytes_of(t.rank());
                      const std::vector<std::vector<std::byte>> all = t.gather(mine);
                      if (all.size() != (t.rank() == 0 ? static_cast<std::size_t>(t.size()) : 0U)) {
                          throw error{"a gather has the wrong number of parts"};
                      }
                      for (std::size_t r = 0; r != all.size(); ++r) {
                          if (all[r] != bytes_of(static_cast<int>(r))) { throw error{"a gathered part is wrong"}; }
                      }
                      t.broadcast(mine);
                      if (mine != bytes_of(0)) { throw error{"a broadcast brought the wrong bytes"}; }
                  }
              },
              {.chunk_bytes = 500}) == "");
}

TEST_CASE("what a rank posted before it returned still arrives, and what nobody takes is in nobody's way") {
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{1000000}}) {
        std::vector<std::byte> room; // it outlives the rank's part in the run
        CHECK(error_of([&](mpi::transport& t) {
                  room = filled(t.rank(), 0, bytes);
                  message_part part = part_of(room);
                  if (t.rank() == 0) { t.post_send(1, message(0), {&part, 1}); }
                  if (t.rank() == 1) {
                      std::this_thread::sleep_for(std::chrono::milliseconds{5});
                      t.post_recv(0, message(0), {&part, 1});
                      t.wait_recv(0, message(0));
                      if (room != filled(0, 0, bytes)) { throw error{"a message brought wrong bytes"}; }
                  }
              }) == "");
        std::vector<std::byte> lost(bytes), never(bytes);
        CHECK(error_of([&](mpi::transport& t) {
                  message_part out = part_of(lost);
                  message_part in = part_of(never);
                  t.post_send((t.rank() + 1) % t.size(), message(0), {&out, 1});
                  if (t.rank() == 0) { t.post_recv(1, message(5), {&in, 1}); }
              }) == "");
    }
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
        // Ranks may be more than cores here.
        CHECK(seconds_since(start) < 20);
        CHECK(found.memory_bytes == 1000);
        CHECK(found.devices() == world_size());
        CHECK(found.nodes == (two_machines ? 2 : 1));
        CHECK((found.intra_node.bandwidth_gb_per_s > 0) == (found.devices_per_node > 1));
        CHECK((found.inter_node.bandwidth_gb_per_s > 0) == two_machines);
    }
}

} // namespace mpi_transport_tests
