#include "process.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/launch/deadline.hpp>
#include <pulse/launch/endpoint.hpp>
#include <pulse/launch/identity.hpp>
#include <pulse/launch/rendezvous_address.hpp>
#include <pulse/launch/watch.hpp>
#if PULSE_TRAIN_MPI
#include <pulse/mpi/run_rank.hpp>
#include <pulse/mpi/watch_over.hpp>
#endif

#include "run.hpp"
#include "setup.hpp"

namespace pulse_train {

namespace {

[[nodiscard]] std::string name_of_rank(int rank) { return "rank " + std::to_string(rank); }

[[nodiscard]] std::chrono::milliseconds patience(const arguments& a) {
    const double longest_s = std::chrono::duration<double>{pulse::launch::deadline::longest}.count();
    return std::chrono::milliseconds{std::llround(1000 * std::min(a.timeout_s, longest_s))};
}

/// Runs the job as one of the processes.
void train_among(const arguments& a, rank_collectives& others, const std::atomic<bool>& stop) {
    require_same_start(a, others);
    arguments mine = a;
    mine.processes = &others;
    mine.ranks = others.size();
    const int replicas = mine.planning.data_degree.value_or(1);
    if (mine.ranks % replicas != 0) {
        throw pulse::input_error{"--replicas: " + std::to_string(replicas) + " pipelines cannot share " +
                                 std::to_string(mine.ranks) + " processes equally"};
    }
    run_for(mine)(mine, stop);
}

/// A rank's final message and its exit code.
struct last_words {
    int rank{-1};
    int code{EXIT_SUCCESS};

    void say(const std::exception& e, bool of_other) {
        code = exit_code_of(e);
        const std::string what = e.what();
        const std::string me = rank < 0 ? std::string{} : name_of_rank(rank);
        const bool says_who = !of_other && (me.empty() || what.starts_with(me + ":") || what.starts_with(me + ","));
        std::cerr << "pulse_train: " + (says_who ? std::string{} : me + ": ") +
                         (of_other ? "another rank has failed: " : "") + what + '\n'
                  << std::flush;
    }
};

#if PULSE_TRAIN_MPI

/// A rank of MPI_COMM_WORLD.
class mpi_process final : public rank_collectives {
public:
    explicit mpi_process(pulse::mpi::transport& world) : world_{world} {}

    [[nodiscard]] int rank() const override { return world_.rank(); }
    [[nodiscard]] int size() const override { return world_.size(); }
    void sum(std::span<double> values) override { world_.sum(values); }
    [[nodiscard]] std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine) override {
        return world_.gather(mine);
    }
    void broadcast(std::vector<std::byte>& bytes) override { world_.broadcast(bytes); }
    void fail(std::string_view what) noexcept override { world_.fail(what); }
    void leave() override { world_.leave(); }
    [[nodiscard]] int device() const override { return -1; }
    void run(const run_inputs&, const std::function<void(pulse::any_transport)>& body) override { body(world_); }

private:
    pulse::mpi::transport& world_;
};

/// Throws input_error if a launcher unknown to MPI started several processes, each believing it is the only one.
void require_whole_world(int size) {
    if (size != 1) { return; }
    const pulse::launch::rank_identity who = pulse::launch::identify();
    if (who.world_size != 1) {
        throw pulse::input_error{"--transport mpi: " + who.source + " has started " + std::to_string(who.world_size) +
                                 " processes, but MPI sees only this one: start them with the mpirun that belongs to "
                                 "this MPI, or with srun and its --mpi"};
    }
    if (who.source == "single process") {
        std::cerr << "pulse_train: --transport mpi: there is one process; mpirun -n RANKS starts more\n";
    }
}

int run_on_mpi(const arguments& a, const std::atomic<bool>& stop) {
    last_words end;
    const auto report = [&](const std::exception& e) {
        end.say(e, dynamic_cast<const pulse::peer_failed*>(&e) != nullptr);
    };
    // Polled in every wait: MPI itself does not report a killed or stopped process.
    std::unique_ptr<pulse::launch::watch> watch;
    const auto body = [&](pulse::mpi::transport& world) {
        end.rank = world.rank();
        require_whole_world(world.size());
        watch = pulse::mpi::watch_over(world, {.timeout = patience(a)});
        try {
            mpi_process among{world};
            train_among(a, among, stop);
        } catch (const std::exception& e) {
            watch->fail(name_of_rank(end.rank) + ": " + e.what());
            throw;
        }
    };
    const auto failure = [&] { return watch ? watch->failure() : std::nullopt; };
    const int status = pulse::mpi::run_rank({.timeout_s = a.timeout_s, .watch = failure}, body, report);
    return status == EXIT_SUCCESS ? EXIT_SUCCESS : end.code;
}

#else

int run_on_mpi(const arguments&, const std::atomic<bool>&) {
    std::cerr << "pulse_train: --transport mpi: this build has no MPI\n";
    return 2;
}

#endif

device_process_maker& nccl_maker() {
    static device_process_maker maker = nullptr;
    return maker;
}

int run_on_nccl(const arguments& a, const std::atomic<bool>& stop) {
    namespace launch = pulse::launch;
    last_words end;
    try {
        if (nccl_maker() == nullptr) { throw pulse::input_error{"--transport nccl: this build has no NCCL"}; }
        const launch::rank_identity who = launch::identify(a.identity);
        end.rank = who.rank;
        if (who.source == "single process") {
            std::cerr << "pulse_train: --transport nccl: there is one process; torchrun, srun or mpirun start more\n";
        }
        const launch::rendezvous_address place =
            a.store.empty()
                ? launch::find_rendezvous(who)
                : launch::rendezvous_address{launch::read_endpoint(a.store, "--store"), launch::run_id_of()};
        launch::process_group group{who, place, {.timeout = patience(a)}};
        try {
            const std::unique_ptr<rank_collectives> mine = nccl_maker()(a, group);
            train_among(a, *mine, stop);
        } catch (const std::exception& e) {
            group.seen().fail(name_of_rank(who.rank) + ": " + e.what());
            if (group.seen().failed_rank() == who.rank) {
                end.say(e, false);
            } else {
                end.say(pulse::peer_failed{*group.seen().failure()}, true);
            }
        }
    } catch (const std::exception& e) { end.say(e, false); }
    return end.code;
}

} // namespace

int exit_code_of(const std::exception& e) {
    if (dynamic_cast<const pulse::input_error*>(&e) != nullptr ||
        dynamic_cast<const pulse::infeasible_error*>(&e) != nullptr) {
        return 2;
    }
    try {
        std::rethrow_if_nested(e);
    } catch (const std::exception& inner) { return exit_code_of(inner); } catch (...) {
    }
    return 1;
}

void require_alone(const arguments& a) {
    const pulse::launch::rank_identity who = pulse::launch::identify();
    if (who.world_size == 1) { return; }
    const bool host = a.backend == backend_kind::host;
    throw pulse::input_error{"--transport: " + who.source + " has started " + std::to_string(who.world_size) +
                             " processes (this is rank " + std::to_string(who.rank) +
                             "), each of which would train alone and write the same files; with --transport " +
                             (host ? "mpi" : "nccl") + " they train together"};
}

nccl_registration::nccl_registration(device_process_maker maker) { nccl_maker() = maker; }

int run_as_process(const arguments& a, const std::atomic<bool>& stop) {
    return a.transport == transport_kind::mpi ? run_on_mpi(a, stop) : run_on_nccl(a, stop);
}

} // namespace pulse_train
