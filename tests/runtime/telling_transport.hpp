#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <support/pipelined.hpp>

namespace replicated_pipelines {

using namespace pulse;
using namespace pulse::test;

/// Thread ranks that record which messages are posted together, and which memory was allocated.
struct telling_transport : threads::transport {
    struct tensor {
        const std::byte* data{};
        std::size_t bytes{};

        [[nodiscard]] bool inside(const tensor& o) const { return data >= o.data && data + bytes <= o.data + o.bytes; }
        [[nodiscard]] bool overlaps(const tensor& o) const { return data < o.data + o.bytes && o.data < data + bytes; }
    };
    struct posted {
        bool sends{};
        int peer{};
        message_id message{};
        std::vector<tensor> tensors{};
    };
    std::vector<std::vector<posted>> groups{};
    std::vector<tensor> blocks{};

    explicit telling_transport(const threads::transport& plain) : threads::transport{plain} {}
    void post_together(std::span<const message_post> all) {
        groups.emplace_back();
        for (const message_post& p : all) {
            posted& now = groups.back().emplace_back(posted{p.sends, p.peer, p.message, {}});
            for (const message_part& part : p.parts) { now.tensors.push_back({part.data, part.bytes}); }
        }
        for (const message_post& p : all) {
            p.sends ? post_send(p.peer, p.message, p.parts) : post_recv(p.peer, p.message, p.parts);
        }
    }
    [[nodiscard]] std::byte* allocate(std::size_t bytes) {
        std::byte* const data = threads::transport::allocate(bytes);
        blocks.push_back({data, bytes});
        return data;
    }
};

/// The groups of posts of a rank's step, and the memory that it allocated.
struct told {
    std::vector<std::vector<telling_transport::posted>> groups{};
    std::vector<telling_transport::tensor> blocks{};
};
template <class Model, class Backend>
std::vector<told> tell_step(const plan& p, const executor_options& how) {
    const cost_table costs = blank_costs(graph_of<Model>().view(), p.microbatch_size, sizeof(float));
    std::vector<told> of_ranks(static_cast<std::size_t>(p.pipeline_degree * p.data_degree));
    threads::run_ranks(static_cast<int>(of_ranks.size()), {}, [&](threads::transport& plain) {
        telling_transport transport{plain};
        Backend backend;
        executor<Model, Backend> rank{backend, transport, p, costs, how};
        drawn_task<Model, float> task{{3, p.microbatch_size, p.microbatches}};
        rank.step(task);
        of_ranks[static_cast<std::size_t>(transport.rank())] = {transport.groups, transport.blocks};
    });
    return of_ranks;
}

} // namespace replicated_pipelines
