#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <thread>

#include <pulse/mpi/transport.hpp>

#include "messages.hpp"
#include "world.hpp"

namespace mpi_transport_tests {

TEST_CASE("processes that fail, return or disagree end a run as the laws of transports say") {
    const auto start = clock_type::now();
    const mpi_ranks<> these{};
    check_failing(these);
    check_failed(these);
    check_leaving(these);
    check_left_messages(these);
    check_unlike_collectives(these);
    check_unlike_messages(these,
                          "disagree about the next message between them: rank 1 expects boundary 1 of microbatch 0, "
                          "rank 0 sends boundary 0 of microbatch 0",
                          "disagree about the size");
    CHECK(seconds_since(start) < 60);
}

TEST_CASE("a text that is too long for a note is cut") {
    const std::string lengthy(5000, 'x');
    const std::string told = error_of([&](mpi::transport& t) {
        if (t.rank() == 1) { throw error{lengthy}; }
    });
    CHECK(lengthy.starts_with(told));
    CHECK(told.size() >= mpi::closing_note::longest_text);
}

TEST_CASE("a wait ends after its time with an error that names rank, peer and message") {
    // Rank 0 waits for what no other rank has begun; the others return once its wait has ended.
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

TEST_CASE("a wait without a limit waits for a rank that comes late") {
    for (const double for_ever : {std::numeric_limits<double>::infinity(), 1e300}) {
        CHECK(error_of(
                  [](mpi::transport& t) {
                      if (t.rank() == 0) { std::this_thread::sleep_for(std::chrono::milliseconds{50}); }
                      t.sum({});
                  },
                  {.timeout_s = for_ever}) == "");
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
