#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>

#include <pulse/host/reference.hpp>
#include <support/pipelined.hpp>
#include <support/random_plan.hpp>
#include <support/toy_model.hpp>

using namespace pulse;
using namespace pulse::test;

namespace {

using model_type = toy_model<1, 18, wiring::nested, true>;
using math = host::reference_backend<float>;

plan draw_plan(int devices) {
    std::mt19937 random{5};
    plan p;
    p.pipeline_degree = devices;
    p.microbatches = 4;
    const cost_table costs = blank_costs(graph_of<model_type>().view(), 1, sizeof(float));
    p.cut = draw_cut(costs, placement::folded, devices, 1, random);
    p.order = draw_order(p.cut, p.microbatches, true, random);
    return p;
}

/// Throws when microbatch 2 reaches the loss.
struct failing_task : drawn_task<model_type, float> {
    using drawn_task::drawn_task;
    void loss(int m, const float* y, float* dy) {
        if (m == 2) { throw std::runtime_error{"the loss is not a number"}; }
        drawn_task::loss(m, y, dy);
    }
};

template <class Task>
void run(const plan& p, const cost_table& costs) {
    host::run_ranks(p.pipeline_degree, {}, [&](host::thread_transport& transport) {
        math backend;
        executor<model_type, math, host::thread_transport> rank{backend, transport, p, costs};
        Task task{{1, p.microbatch_size, p.microbatches}};
        rank.step(task);
    });
}

} // namespace

TEST_CASE("a rank that throws stops every rank at once, with its error and its place") {
    const plan p = draw_plan(4);
    const cost_table costs = blank_costs(graph_of<model_type>().view(), 1, sizeof(float));
    const auto start = std::chrono::steady_clock::now();
    std::string text;
    try {
        run<failing_task>(p, costs);
    } catch (const error& e) {
        text = e.what();
    }
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds{1});
    INFO(text);
    CHECK(text.find("rank 0") != std::string::npos);
    CHECK(text.find("the loss is not a number") != std::string::npos);
    CHECK(text.find("instruction") != std::string::npos);
}

TEST_CASE("a rank that fails before its first step stops the others too") {
    const plan p = draw_plan(4);
    const cost_table costs = blank_costs(graph_of<model_type>().view(), 1, sizeof(float));
    CHECK_THROWS_WITH_AS(host::run_ranks(4, {},
                                         [&](host::thread_transport& transport) {
                                             if (transport.rank() == 3) { throw input_error{"rank 3 has no data"}; }
                                             math backend;
                                             executor<model_type, math, host::thread_transport> rank{backend, transport, p, costs};
                                             drawn_task<model_type, float> task{{1, 1, p.microbatches}};
                                             rank.step(task);
                                         }),
                         "rank 3 has no data", input_error);
}

TEST_CASE("an executor refuses a plan that is not for it") {
    const plan p = draw_plan(2);
    const cost_table costs = blank_costs(graph_of<model_type>().view(), 1, sizeof(float));
    const auto refuse = [](const plan& planned, const cost_table& sizes, int ranks) {
        std::string text;
        try {
            host::run_ranks(ranks, {}, [&](host::thread_transport& transport) {
                math backend;
                executor<model_type, math, host::thread_transport> rank{backend, transport, planned, sizes};
            });
        } catch (const input_error& e) {
            text = e.what();
        }
        return text;
    };
    CHECK(refuse(p, costs, 2).empty());
    CHECK(refuse(p, costs, 3).find("ranks") != std::string::npos);
    plan other = p;
    other.skips = skip_policy::recomputed;
    CHECK(refuse(other, costs, 2).find("keeps skips") != std::string::npos);
    other = p;
    other.microbatch_size = 2;
    CHECK(refuse(other, costs, 2).find("microbatch size") != std::string::npos);
    other = p;
    other.data_degree = 2;
    CHECK(refuse(other, costs, 2).find("data_degree") != std::string::npos);
    cost_table fewer = costs;
    fewer.layers.pop_back();
    CHECK_FALSE(refuse(p, fewer, 2).empty());
}
