#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/mpi/transport.hpp>

#include "world.hpp"

#include "messages.hpp"
#include "world.hpp"

namespace mpi_transport_tests {

TEST_CASE("ranks that disagree about a message are told so, and so is everyone else") {
    // small messages leave at once, large ones when the receiver asks for them
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{1000000}}) {
        CAPTURE(bytes);
        const auto mismatch = [&](message_id other, std::size_t received, int parts) {
            return error_of([&](mpi::transport& t) {
                std::vector<message_part> all(static_cast<std::size_t>(t.rank() == 0 ? 1 : parts),
                                              {t.allocate(bytes * 2), t.rank() == 0 ? bytes : received, {}, false});
                if (t.rank() == 0) {
                    t.post_send(1, message(0), all);
                    t.wait_send(1, message(0));
                    t.post_send(1, message(0), all);
                }
                if (t.rank() == 1) {
                    t.post_recv(0, other, all);
                    t.post_recv(0, message(0), all);
                    t.wait_recv(0, other);
                }
                t.sum({});
            });
        };
        const std::string name = mismatch(message(1), bytes, 1);
        CHECK(contains(name, "disagree about the next message"));
        CHECK(contains(name, "rank 1 expects boundary 1 of microbatch 0, rank 0 sends boundary 0 of microbatch 0"));
        CHECK(contains(mismatch(message(0), bytes * 2, 1), "disagree about the size"));
        CHECK(contains(mismatch(message(0), bytes / 2, 1), "disagree about the size"));
        CHECK(contains(mismatch(message(0), bytes / 2, 2), "disagree about the size"));
    }
    CHECK(contains(error_of([](mpi::transport& t) {
                       std::vector<std::byte> bytes(1);
                       if (t.rank() == 1) { t.broadcast(bytes); }
                       if (t.rank() != 1) { t.sum({}); }
                       t.sum({});
                   }),
                   "disagree about the"));
    CHECK(contains(
        error_of([](mpi::transport& t) {
            std::vector<double> values(t.rank() == 1 ? 2U : 1U);
            t.sum(values);
        }),
        "disagree about the size of a message between them: rank 0 expects a sum (collective operation 1) of 8 bytes "
        "in 1 parts, rank 1 sends 16 in 1"));
    CHECK(contains(error_of([](mpi::transport& t) {
                       if (t.rank() == 0) { t.wait_send(1, message(0)); }
                       t.sum({});
                   }),
                   "never posted"));
}

TEST_CASE("an error on one rank ends every wait of all with its text") {
    const auto start = clock_type::now();
    for (int who = 0; who != world_size(); ++who) {
        for (int where = 0; where != 5; ++where) {
            CHECK(error_of([&](mpi::transport& t) {
                      message_part part = room_of(t, 1000000);
                      std::vector<std::byte> room(1000000);
                      const int other = t.rank() == 0 ? 1 : 0;
                      if (t.rank() == who) {
                          // something is under way with it when it fails
                          t.post_recv(other, message(1), {&part, 1});
                          std::this_thread::sleep_for(std::chrono::milliseconds{2});
                          throw error{"rank " + std::to_string(who) + " has no wish to go on"};
                      }
                      if (where == 0) { t.sum({}); }
                      if (where == 1) { static_cast<void>(t.gather(room)); }
                      if (where == 2) { t.broadcast(room); }
                      if (where == 3) {
                          t.post_recv(who, message(0), {&part, 1});
                          t.wait_recv(who, message(0));
                      }
                      if (where == 4) {
                          t.post_send(who, message(0), {&part, 1});
                          t.wait_send(who, message(0));
                      }
                      t.sum({});
                  }) == "rank " + std::to_string(who) + " has no wish to go on");
        }
    }
    CHECK(seconds_since(start) < 60);
}

TEST_CASE("a rank that says it has failed and returns makes the run fail") {
    CHECK(error_of([](mpi::transport& t) {
              if (t.rank() == 1) { t.fail("rank 1 gave up"); }
          }) == "rank 1 gave up");
    CHECK(error_of([](mpi::transport& t) {
              if (t.rank() == 1) { t.fail(""); }
          }) == "a rank failed");
    const std::string lengthy(5000, 'x');
    const std::string told = error_of([&](mpi::transport& t) {
        if (t.rank() == 1) { throw error{lengthy}; }
    });
    CHECK(lengthy.starts_with(told));
    CHECK(told.size() >= mpi::closing_note::longest_text);
}

TEST_CASE("a wait ends after its time with an error that names rank, peer and message") {
    // Rank 0 waits for what no other rank has begun; they return when its wait has ended.
    const auto late = [](auto wait) {
        return error_of(
            [&](mpi::transport& t) {
                message_part part = room_of(t, 1000000);
                if (t.rank() != 0) {
                    MPI_Barrier(MPI_COMM_WORLD);
                    t.sum({});
                    return;
                }
                try {
                    wait(t, part);
                } catch (...) {
                    MPI_Barrier(MPI_COMM_WORLD);
                    throw;
                }
                MPI_Barrier(MPI_COMM_WORLD);
            },
            {.timeout_s = 0.3});
    };
    const std::string received = late([](mpi::transport& t, message_part& part) {
        t.post_recv(1, message(3, 2), {&part, 1});
        t.wait_recv(1, message(3, 2));
    });
    CHECK(contains(received, "rank 0 waited 0."));
    CHECK(contains(received, " s for boundary 3 of microbatch 2 from rank 1"));
    const std::string sent = late([](mpi::transport& t, message_part& part) {
        t.post_send(1, message(3, 2), {&part, 1});
        t.wait_send(1, message(3, 2));
    });
    CHECK(contains(sent, " s for rank 1 to take boundary 3 of microbatch 2"));
    const std::string summed = late([](mpi::transport& t, message_part&) { t.sum({}); });
    CHECK(contains(summed, " s for a sum (collective operation 1) from rank 1"));
}

TEST_CASE("a rank that returns leaves nobody waiting for what it never posts") {
    for (int where = 0; where != 5; ++where) {
        CAPTURE(where);
        const std::string text = error_of([&](mpi::transport& t) {
            message_part part = room_of(t, 1000000);
            if (t.rank() == 1) { return; }
            if (where == 0) {
                t.sum({});
            } else if (where == 1) {
                t.post_recv(1, message(0), {&part, 1});
                t.wait_recv(1, message(0));
            } else if (where == 2) {
                t.post_send(1, message(0), {&part, 1});
                t.wait_send(1, message(0));
            } else if (where == 3) {
                t.post_recv(1, message(0), {&part, 1});
                while (!t.arrived(1, message(0))) {}
                t.wait_recv(1, message(0));
            } else {
                static_cast<void>(t.gather(std::vector<std::byte>(1000000)));
                t.sum({});
            }
        });
        CHECK(contains(text, "rank 1 has returned"));
    }
}

TEST_CASE("what watches the run ends every wait") {
    CHECK(error_of(
              [](mpi::transport& t) {
                  message_part part = room_of(t, 8);
                  t.post_recv(0, message(0), {&part, 1});
                  t.wait_recv(0, message(0));
              },
              {.watch = [] { return std::optional<std::string>{"rank 7 was killed"}; }}) == "rank 7 was killed");
}

} // namespace mpi_transport_tests
