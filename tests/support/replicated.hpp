#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <support/pipelined.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/runtime/executor.hpp>
#include <pulse/threads/transport.hpp>

namespace pulse::test {

/// A threads::transport with random delays at its messages, where one rank may fail at a given kind of message.
struct drifting_transport : threads::transport {
    std::mt19937 random;
    int most_delay_us{};
    bool fails{};
    message_kind at{};

    drifting_transport(const threads::transport& plain, int delay_us, unsigned seed) :
        threads::transport{plain}, random{seed + static_cast<unsigned>(plain.rank())}, most_delay_us{delay_us} {}
    void post_send(int peer, message_id message, std::span<message_part> parts) {
        if (fails && message.kind == at) { throw error{"the network is broken"}; }
        drift();
        threads::transport::post_send(peer, message, parts);
    }
    void post_recv(int peer, message_id message, std::span<message_part> parts) {
        drift();
        threads::transport::post_recv(peer, message, parts);
    }

private:
    void drift() {
        if (most_delay_us == 0) { return; }
        std::this_thread::sleep_for(
            std::chrono::microseconds{std::uniform_int_distribution<int>{0, most_delay_us}(random)});
    }
};

/// The results of a run of several replicas.
template <class A>
struct replicated_result {
    /// By replica, then by layer.
    std::vector<std::map<int, std::vector<A>>> gradients{};
    /// Over all ranks.
    traffic_count sent{};
    /// By world rank: its bytes beyond a step's memory and the parameters.
    std::vector<std::int64_t> replica_bytes{};
};

struct replicated_options {
    threads::link_options link{};
    executor_options how{};
    int steps{1};
    int most_delay_us{};
    unsigned drift_seed{1};
    /// The rank that fails at its first send of kind `fails_at`; -1 for none.
    int fails{-1};
    message_kind fails_at{};
};

/// Runs steps of a plan on P D thread ranks; replica r gets the data of seed + r. Gradients are those of the last step.
template <class Model, class Backend, template <class, class, class> class Task = drawn_task>
replicated_result<typename Backend::accumulator> run_replicated(const plan& planned, std::uint64_t seed,
                                                                const replicated_options& options = {}) {
    using T = typename Backend::scalar;
    using A = typename Backend::accumulator;
    const cost_table costs = blank_costs(graph_of<Model>().view(), planned.microbatch_size, sizeof(T));
    replicated_result<A> result;
    result.gradients.resize(static_cast<std::size_t>(planned.data_degree));
    const int world = planned.pipeline_degree * planned.data_degree;
    result.replica_bytes.resize(static_cast<std::size_t>(world));
    std::mutex mutex;
    threads::run_ranks(world, options.link, [&](threads::transport& plain) {
        drifting_transport transport{plain, options.most_delay_us, options.drift_seed};
        transport.fails = options.fails == transport.rank();
        transport.at = options.fails_at;
        Backend math;
        executor<Model, Backend> rank{math, transport, planned, costs, options.how};
        const auto replica = static_cast<std::size_t>(rank.place().replica);
        Task<Model, T, A> task{drawn_data<Model, T, A>{seed + replica, planned.microbatch_size, planned.microbatches}};
        for (const auto& block : rank.parameters().blocks()) {
            const auto drawn = task.data.parameters(block.layer, block.size);
            std::copy(drawn.begin(), drawn.end(), rank.parameters().values_of(block.layer).begin());
        }
        for (const auto& block : rank.parameters().frozen_blocks()) {
            const auto drawn = task.data.frozen_parameters(block.layer, block.size);
            std::copy(drawn.begin(), drawn.end(), rank.parameters().frozen_values_of(block.layer).begin());
        }
        for (int s = 0; s != options.steps; ++s) {
            std::fill(rank.parameters().gradients().begin(), rank.parameters().gradients().end(),
                      std::numeric_limits<A>::quiet_NaN());
            poison(rank.memory());
            rank.step(task);
        }
        const std::lock_guard lock{mutex};
        for (const auto& block : rank.parameters().blocks()) {
            const auto g = rank.parameters().gradients_of(block.layer);
            result.gradients[replica][block.layer] = {g.begin(), g.end()};
        }
        result.sent += transport.sent();
        result.replica_bytes[static_cast<std::size_t>(transport.rank())] = rank.replica_bytes();
        if (task.optimized != options.steps) { throw error{"optimize was not called once a step"}; }
    });
    return result;
}

/// Draws plan::node_replicas for a plan of `replicas` replicas.
template <class Draw>
int drawn_node_replicas(const Draw& draw, int replicas) {
    plan p;
    p.data_degree = replicas;
    do { p.node_replicas = draw(1, std::max(1, replicas / 2)); } while (!p.has_even_groups());
    return p.node_replicas;
}

/// The sum of the replicas' gradients, each computed by a step without a pipeline. Neighbours add in pairs as long as
/// the number of sums is even; the remaining sums add one after the other.
template <class Model, class Backend>
std::map<int, std::vector<typename Backend::accumulator>> added_gradients(const plan& planned, std::uint64_t seed) {
    const auto of_replica = [&](int r) {
        return run_unpipelined<Model, Backend>(planned.microbatch_size, planned.microbatches,
                                               seed + static_cast<std::uint64_t>(r), planned.previews)
            .gradients;
    };
    const auto add = [](auto& to, const auto& from) {
        for (auto& [layer, values] : to) {
            for (std::size_t i = 0; i != values.size(); ++i) { values[i] = values[i] + from.at(layer)[i]; }
        }
    };
    std::vector<std::map<int, std::vector<typename Backend::accumulator>>> sums;
    for (int r = 0; r != planned.data_degree; ++r) { sums.push_back(of_replica(r)); }
    while (sums.size() % 2 == 0) {
        for (std::size_t i = 0; i != sums.size() / 2; ++i) {
            auto one = std::move(sums[2 * i]);
            add(one, sums[2 * i + 1]);
            sums[i] = std::move(one);
        }
        sums.resize(sums.size() / 2);
    }
    for (std::size_t i = 1; i != sums.size(); ++i) { add(sums.front(), sums[i]); }
    return sums.front();
}

} // namespace pulse::test
