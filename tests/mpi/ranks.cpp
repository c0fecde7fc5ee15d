#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/launch/identity.hpp>
#include <pulse/mpi/ranks.hpp>
#include <pulse/onednn/backend.hpp>
#include <pulse/planner.hpp>
#include <pulse/pulse.hpp>

// The README's trainer on pulse::ranks::mpi. Every process checks the result of its own run.

namespace {

struct net : pulse::unet<pulse::unet_config{.name = "net", .sample_size = 8, .block_out_channels = {32, 64}}> {};
using backend = pulse::onednn::backend;

struct my_task {
    std::vector<float> times = std::vector<float>(64, 500.0F);
    const float* timesteps(const auto&) { return times.data(); }
    void input(const auto& at, std::span<float> x) {
        for (std::size_t i = 0; i != x.size(); ++i) { x[i] = std::sin(0.1F * static_cast<float>(i + at.first_sample)); }
    }
    void loss(const auto& at, std::span<const float> y, std::span<float> dy) {
        for (std::size_t i = 0; i != y.size(); ++i) {
            dy[i] = y[i] - 0.5F;
            *at.loss += 0.5 * dy[i] * dy[i];
        }
    }
};

struct trained {
    std::vector<double> losses{};
    std::map<int, std::vector<float>> parameters{}; // by layer

    [[nodiscard]] bool operator==(const trained&) const = default;
};

/// The final results of the run's ranks that are in this process.
template <class Ranks>
std::map<int, trained> train(const pulse::planned& plan, const Ranks& ranks) {
    std::map<int, trained> all;
    std::mutex mutex;
    pulse::run(plan, ranks, [&](pulse::rank& self) {
        pulse::trainer<net, backend> train{self, plan, {.seed = 1, .learning_rate = {1e-3}}};
        my_task task;
        trained mine;
        for (int i = 0; i != 3; ++i) { mine.losses.push_back(train.step(task).loss); }
        auto& parameters = train.runner().parameters();
        for (const auto& block : parameters.blocks()) {
            const std::span<const float> values = parameters.values_of(block.layer);
            mine.parameters[block.layer].assign(values.begin(), values.end());
        }
        const std::lock_guard lock{mutex};
        all[self.rank()] = std::move(mine);
    });
    return all;
}

/// Whether the run throws an error with this text.
template <class Body>
bool throws(const pulse::planned& plan, std::string_view text, const Body& body) {
    try {
        pulse::run(plan, pulse::ranks::mpi{{.timeout_s = 60}}, body);
    } catch (const std::exception& e) {
        if (std::string_view{e.what()}.find(text) != std::string_view::npos) { return true; }
        std::fprintf(stderr, "it says: %s\n", e.what());
    }
    return false;
}

pulse::planned plan_of(int batch) {
    // A plan without a timed search is the same in every process.
    return pulse::plan_for<net, backend>(
        {.devices = 4, .global_batch = batch, .device = pulse::cpu_core, .seconds = 0});
}

bool is_right(std::string_view what) {
    const auto plan = plan_of(8);
    if (what == "trains") {
        const auto by_processes = train(plan, pulse::ranks::mpi{});
        const auto by_threads = train(plan, pulse::ranks::threads{});
        return by_processes.size() == 1 && by_threads.size() == 4 &&
               by_processes.begin()->second == by_threads.at(by_processes.begin()->first) &&
               !by_processes.begin()->second.parameters.empty();
    }
    if (what == "wrong_number") {
        return throws(plan, "the plan is for 4 ranks, but MPI has 3", [](pulse::rank&) {});
    }
    if (what == "other_plans") {
        const int rank = pulse::launch::identify().rank;
        return throws(plan_of(rank == 2 ? 16 : 8), "rank 2 has a different plan than rank 0", [](pulse::rank&) {});
    }
    return throws(plan, "rank 1 has enough", [](pulse::rank& self) {
        if (self.rank() == 1) { throw std::runtime_error{"rank 1 has enough"}; }
        self.sum({});
    });
}

} // namespace

int main(int argc, char** argv) {
    if (argc == 2 && is_right(argv[1])) { return EXIT_SUCCESS; }
    std::fputs("wrong\n", stderr);
    return EXIT_FAILURE;
}
