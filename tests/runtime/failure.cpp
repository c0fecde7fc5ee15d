#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <support/count_allocations.hpp>
#include <support/pipelined.hpp>
#include <support/random_plan.hpp>
#include <support/toy_model.hpp>
#include <pulse/reference/backend.hpp>

using namespace pulse;
using namespace pulse::test;

namespace {

using model_type = toy_model<1, 18, wiring::nested, true>;
using task_type = drawn_task<model_type, float>;

cost_table costs_of_model() { return blank_costs(graph_of<model_type>().view(), 1, sizeof(float)); }

plan draw_plan(int devices, unsigned seed = 5) {
    std::mt19937 random{seed};
    plan p;
    p.pipeline_degree = devices;
    p.microbatches = 4;
    p.cut = draw_cut(costs_of_model(), placement::folded, devices, 1, random);
    p.order = draw_order(p.cut, p.microbatches, true, random);
    return p;
}

/// The reference backend, which throws after a number of products.
struct failing_math : reference::backend<float> {
    int good_products{-1}; ///< never fails if negative

    void linear(const linear_shape& shape, auto... args) {
        if (good_products == 0) { throw std::runtime_error{"the backend is broken"}; }
        --good_products;
        reference::backend<float>::linear(shape, args...);
    }
};

/// Counts calls of fail: a rank must make one before an exception leaves its step.
struct watched_transport : threads::transport {
    explicit watched_transport(const threads::transport& plain) : threads::transport{plain} {}
    void fail(std::string_view what) noexcept {
        ++fails;
        threads::transport::fail(what);
    }
    int fails{};
};

enum class spot { nowhere, input, timesteps, loss, optimize, sum };

/// A task that runs `act` at one spot of the step; optimize waits for all ranks, as one with clipping does.
struct failing_task : task_type {
    threads::transport& transport;
    spot where;
    std::function<void()> act;

    failing_task(threads::transport& t, int microbatches, spot w, std::function<void()> a) :
        task_type{{1, 1, microbatches}}, transport{t}, where{w}, act{std::move(a)} {}

    void at(spot here, int m = 2) const {
        if (here == where && m == 2) { act(); }
    }
    const float* timesteps(int m) const {
        at(spot::timesteps, m);
        return task_type::timesteps(m);
    }
    void input(int m, float* x) const {
        at(spot::input, m);
        task_type::input(m, x);
    }
    void loss(int m, const float* y, float* dy) {
        at(spot::loss, m);
        task_type::loss(m, y, dy);
    }
    void optimize() {
        at(spot::optimize);
        transport.sum({});
        at(spot::sum);
        transport.sum({});
        task_type::optimize();
    }
};

struct outcome {
    std::string text{};    ///< of a std::exception from run_ranks
    int number{};          ///< of an int thrown from run_ranks
    int stopped_by_peer{}; ///< ranks that left their step with peer_failed
    int left_quietly{};    ///< ranks that left their step with an exception without calling fail
};

/// Runs one step; rank `bad` acts at the spot, or its backend breaks after some products.
outcome run_with(const plan& p, const threads::link_options& link, int bad, spot where, std::function<void()> act,
                 int good_products = -1) {
    outcome seen;
    std::atomic<int> stopped{0};
    std::atomic<int> quiet{0};
    const cost_table costs = costs_of_model();
    const auto body = [&](threads::transport& plain) {
        failing_math math;
        watched_transport transport{plain};
        const bool is_bad = plain.rank() == bad;
        if (is_bad) { math.good_products = good_products; }
        failing_task task{plain, p.microbatches, is_bad ? where : spot::nowhere, act};
        executor<model_type, failing_math> rank{math, transport, p, costs};
        const auto left = [&] { quiet += transport.fails == 1 ? 0 : 1; };
        try {
            rank.step(task);
        } catch (const peer_failed&) {
            refuse_allocations(false);
            ++stopped;
            left();
            throw;
        } catch (...) {
            refuse_allocations(false);
            left();
            throw;
        }
    };
    try {
        threads::run_ranks(p.pipeline_degree, link, body);
    } catch (const std::exception& e) { seen.text = e.what(); } catch (int number) {
        seen.number = number;
    }
    seen.stopped_by_peer = stopped;
    seen.left_quietly = quiet;
    return seen;
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

void throw_error() { throw std::runtime_error{"the loss is not a number"}; }

} // namespace

TEST_CASE("a rank that throws anywhere in a step stops every rank, with its error and its place") {
    const plan p = draw_plan(4);
    for (const bool blocking : {false, true}) {
        const threads::link_options link{.blocking = blocking};
        CHECK(run_with(p, link, 0, spot::nowhere, throw_error).text.empty());
        for (const auto& [where, bad] :
             {std::pair{spot::input, 0}, std::pair{spot::timesteps, 0}, std::pair{spot::loss, 0},
              std::pair{spot::optimize, 2}, std::pair{spot::sum, 3}}) {
            const outcome seen = run_with(p, link, bad, where, throw_error);
            INFO(seen.text);
            CHECK(seen.text.starts_with("rank " + std::to_string(bad) + ", instruction "));
            CHECK(contains(seen.text, "the loss is not a number"));
            CHECK(seen.stopped_by_peer == 3);
            CHECK(seen.left_quietly == 0);
        }
    }
}

TEST_CASE("an exception that is no std::exception stops every rank and comes out as it is") {
    for (const spot where : {spot::input, spot::loss, spot::optimize}) {
        const outcome seen = run_with(draw_plan(4), {}, 0, where, [] { throw 42; });
        CHECK(seen.number == 42);
        CHECK(seen.stopped_by_peer == 3);
        CHECK(seen.left_quietly == 0);
    }
}

TEST_CASE("a rank that has no memory left for the text of its error still stops the others") {
    struct long_exception : std::exception {
        const char* what() const noexcept override { return "a text that is longer than any string keeps in itself"; }
    };
    const outcome seen = run_with(draw_plan(4), {}, 0, spot::loss, [] {
        refuse_allocations(true);
        throw long_exception{};
    });
    CHECK(seen.text == long_exception{}.what());
    CHECK(seen.stopped_by_peer == 3);
    CHECK(seen.left_quietly == 0);
}

TEST_CASE("whichever product of whichever rank fails, all ranks stop and its error is thrown") {
    std::mt19937 random{17};
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    int failed = 0;
    for (int repeat = 0; repeat != 60; ++repeat) {
        const int ranks = draw(2, 4);
        const int bad = draw(0, ranks - 1);
        const outcome seen = run_with(draw_plan(ranks, static_cast<unsigned>(random())), {.blocking = repeat % 2 == 0},
                                      bad, spot::nowhere, {}, draw(0, 40));
        if (seen.text.empty()) { continue; } // the rank has fewer products
        ++failed;
        INFO(seen.text);
        REQUIRE(seen.text.starts_with("rank " + std::to_string(bad) + ", instruction "));
        REQUIRE(contains(seen.text, "the backend is broken"));
        REQUIRE(seen.stopped_by_peer == ranks - 1);
        REQUIRE(seen.left_quietly == 0);
    }
    CHECK(failed > 30);
}

TEST_CASE("a rank that fails before its first step stops the others too") {
    const plan p = draw_plan(4);
    const cost_table costs = costs_of_model();
    const auto body = [&](threads::transport& transport) {
        if (transport.rank() == 3) { throw input_error{"rank 3 has no data"}; }
        failing_math math;
        executor<model_type, failing_math> rank{math, transport, p, costs};
        task_type task{{1, 1, p.microbatches}};
        rank.step(task);
    };
    CHECK_THROWS_WITH_AS(threads::run_ranks(4, {}, body), "rank 3 has no data", input_error);
}

TEST_CASE("a rank that does not come to the step is named by those that wait for it") {
    const plan p = draw_plan(4);
    const cost_table costs = costs_of_model();
    std::string text;
    try {
        threads::run_ranks(4, {}, [&](threads::transport& transport) {
            if (transport.rank() == 2) { return; }
            failing_math math;
            executor<model_type, failing_math> rank{math, transport, p, costs};
            task_type task{{1, 1, p.microbatches}};
            rank.step(task);
        });
    } catch (const error& e) { text = e.what(); }
    INFO(text);
    CHECK(contains(text, "rank 2 has returned"));
}

namespace {

/// The error of making an executor of model_type from a plan and a cost table, or "".
std::string refusal(const plan& planned, const cost_table& costs, int ranks) {
    try {
        threads::run_ranks(ranks, {}, [&](threads::transport& transport) {
            failing_math math;
            executor<model_type, failing_math> rank{math, transport, planned, costs};
        });
    } catch (const input_error& e) { return e.what(); }
    return {};
}

} // namespace

TEST_CASE("an executor refuses a plan that is not for it") {
    const plan p = draw_plan(2);
    const cost_table costs = costs_of_model();
    CHECK(refusal(p, costs, 2).empty());
    CHECK(contains(refusal(p, costs, 3), "ranks"));
    plan other = p;
    other.microbatch_size = 2;
    CHECK(contains(refusal(other, costs, 2), "microbatch_size"));
    other.microbatch_size = 0;
    CHECK(contains(refusal(other, costs, 2), "microbatch_size"));
    other = p;
    other.data_degree = 2;
    CHECK(contains(refusal(other, costs, 2), "data_degree"));
    other = p;
    other.node_replicas = 2;
    CHECK(refusal(other, costs, 2) ==
          "pulse: plan: node_replicas must be 1 or a power of two below data_degree that divides it");
}

TEST_CASE("an executor refuses costs whose bytes are not the model's, by field") {
    const plan p = draw_plan(2);
    const cost_table costs = costs_of_model();
    const auto refused = [&](auto change) {
        cost_table other = costs;
        change(other);
        return refusal(p, other, 2);
    };
    for (const std::int64_t wrong : {std::int64_t{0}, std::int64_t{-4}, std::int64_t{1} << 20}) {
        for (const std::size_t l : {std::size_t{0}, std::size_t{3}, costs.layers.size() - 1}) {
            const std::string at = "layers[" + std::to_string(l) + "].";
            CHECK(contains(refused([&](cost_table& c) { c.layers[l].saved_bytes = wrong; }), at + "saved_bytes"));
            CHECK(contains(refused([&](cost_table& c) { c.layers[l].deferred_bytes = wrong; }), at + "deferred_bytes"));
            CHECK(
                contains(refused([&](cost_table& c) { c.layers[l].workspace_bytes = wrong; }), at + "workspace_bytes"));
            CHECK(contains(refused([&](cost_table& c) { c.layers[l].output_bytes = wrong; }), at + "output_bytes"));
        }
        if (wrong != 0) {
            CHECK(contains(refused([&](cost_table& c) { c.layers[3].factored_elements = wrong; }),
                           "layers[3].factored_elements"));
        }
        CHECK(contains(refused([&](cost_table& c) { c.input_bytes = wrong; }), "input_bytes"));
        CHECK(contains(refused([&](cost_table& c) { c.conditioning_bytes = wrong; }), "conditioning_bytes"));
        CHECK(contains(refused([&](cost_table& c) { c.skips[1].bytes = wrong; }), "skips[1].bytes"));
    }
    CHECK(contains(refused([](cost_table& c) { c.frozen_conditioning_bytes = 4; }), "frozen_conditioning_bytes"));
    CHECK(contains(refused([](cost_table& c) { ++c.skips[1].from; }), "skips[1].from"));
    CHECK(contains(refused([](cost_table& c) { --c.skips[1].to; }), "skips[1].to"));
    CHECK(contains(refused([](cost_table& c) { c.skips.pop_back(); }), "number of skips"));
    CHECK(contains(refused([](cost_table& c) { c.skips.push_back(c.skips[0]); }), "number of skips"));
    CHECK(contains(refused([](cost_table& c) { c.layers.pop_back(); }), "number of layers"));
    CHECK(contains(refused([](cost_table& c) { c.layers.push_back(c.layers.back()); }), "number of layers"));
    CHECK(contains(refused([](cost_table& c) { c.microbatch_size = 2; }), "microbatch_size"));
    CHECK(refused([](cost_table& c) { c.layers[3].forward_us = 7; }).empty());

    // One more layer in the costs and in the plan's last stage: the two fit each other, but not the model.
    cost_table longer = costs;
    longer.layers.push_back(longer.layers.back());
    plan also = p;
    ++also.cut.stages.back().last_layer;
    CHECK(contains(refusal(also, longer, 2), "number of layers"));
}
