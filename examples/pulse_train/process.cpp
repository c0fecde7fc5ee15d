#include "process.hpp"

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include <pulse/core/error.hpp>
#if PULSE_TRAIN_MPI
#include <pulse/launch/watch.hpp>
#include <pulse/mpi/run_rank.hpp>
#include <pulse/mpi/watch_over.hpp>
#endif

#include "rank_transport.hpp"
#include "run.hpp"

namespace pulse_train {

#if PULSE_TRAIN_MPI

int run_as_process(const arguments& a, const std::atomic<bool>& stop) {
    int rank = -1;
    int code = EXIT_SUCCESS;
    const auto report = [&](const std::exception& e) {
        const bool by_input = dynamic_cast<const pulse::input_error*>(&e) != nullptr ||
                              dynamic_cast<const pulse::infeasible_error*>(&e) != nullptr;
        code = by_input ? 2 : 1;
        const std::string who = rank < 0 ? std::string{} : "rank " + std::to_string(rank) + ": ";
        const bool other = dynamic_cast<const pulse::peer_failed*>(&e) != nullptr;
        std::cerr << "pulse_train: " + who + (other ? "another rank has failed: " : "") + e.what() + '\n' << std::flush;
    };
    // It is asked in every wait: MPI itself does not tell when a process is killed or stopped.
    std::unique_ptr<pulse::launch::watch> watch;
    const auto train = [&](pulse::mpi::transport& world) {
        transport_of<pulse::mpi::transport> among{world};
        arguments mine = a;
        mine.processes = &among;
        mine.ranks = world.size();
        if (mine.plan_file.empty() && mine.ranks % mine.replicas != 0) {
            throw pulse::input_error{"--replicas: " + std::to_string(mine.replicas) + " pipelines cannot share " +
                                     std::to_string(mine.ranks) + " processes equally"};
        }
        run_for(mine)(mine, stop);
    };
    const auto body = [&](pulse::mpi::transport& world) {
        rank = world.rank();
        const std::chrono::milliseconds patience{std::llround(1000 * a.timeout_s)};
        watch = pulse::mpi::watch_over(world, {.timeout = patience});
        try {
            train(world);
        } catch (const std::exception& e) {
            watch->fail("rank " + std::to_string(rank) + ": " + e.what());
            throw;
        }
    };
    const auto failure = [&] { return watch ? watch->failure() : std::nullopt; };
    const int status = pulse::mpi::run_rank({.timeout_s = a.timeout_s, .watch = failure}, body, report);
    return status == EXIT_SUCCESS ? EXIT_SUCCESS : code;
}

#else

int run_as_process(const arguments&, const std::atomic<bool>&) {
    std::cerr << "pulse_train: --transport mpi: this build has no MPI\n";
    return 2;
}

#endif

} // namespace pulse_train
