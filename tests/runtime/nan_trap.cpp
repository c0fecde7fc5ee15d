#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <support/drawn_cases.hpp>
#include <support/pipelined.hpp>
#include <support/random_plan.hpp>
#include <support/toy_model.hpp>
#include <pulse/reference/backend.hpp>

using namespace pulse;
using namespace pulse::test;

namespace watched_values {

namespace {

using model_type = toy_model<1, 18, wiring::nested, true>;
constexpr int microbatches = 3;
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

/// The reference backend, except that the layer with `bad_weights` gets a NaN input gradient.
struct watched_math : reference::backend<float> {
    const float* bad_weights{};

    void linear_backward_input(const linear_shape& shape, std::int64_t rows, const float* dy, const float* weight,
                               float* dx, into how) {
        reference::backend<float>::linear_backward_input(shape, rows, dy, weight, dx, how);
        if (weight == bad_weights) { *dx = not_a_number; }
    }
};

cost_table costs_of_model() { return blank_costs(graph_of<model_type>().view(), 2, sizeof(float)); }

std::optional<plan> draw_plan(int devices, unsigned seed) {
    std::mt19937 random{seed};
    plan p;
    p.pipeline_degree = devices;
    p.microbatches = microbatches;
    p.microbatch_size = 2;
    p.split_backward = seed % 2 == 0;
    p.recompute = seed % 3 == 0 ? recomputation::stages : recomputation::none;
    p.cut = draw_cut(costs_of_model(), placement::folded, devices, 1, random);
    if (p.cut.stages.empty()) { return std::nullopt; }
    p.order = draw_order(p.cut, p.microbatches, p.split_backward, random);
    return p;
}

/// What is NaN in a step: an input, a layer's weight, the gradient of a loss, or a layer's input gradient.
struct spoilt {
    int input{-1};
    int layer{conditioning_block - 1};
    int gradient{-1};
    int backward{-1};
};

struct spoilt_task : drawn_task<model_type, float> {
    spoilt what;

    spoilt_task(const drawn_data<model_type, float>& from, const spoilt& wrong) :
        drawn_task<model_type, float>{from}, what{wrong} {}
    void input(int m, float* x) const {
        drawn_task<model_type, float>::input(m, x);
        if (m == what.input) { x[1] = not_a_number; }
    }
    void loss(int m, const float* y, float* dy) {
        drawn_task<model_type, float>::loss(m, y, dy);
        if (m == what.gradient) { dy[1] = not_a_number; }
    }
};

/// What the ranks report of a step, whether all agree, and the gradients of the step.
struct finding {
    std::optional<value_fault> fault{};
    std::string text{};
    bool agreed{true};
    std::vector<std::vector<float>> gradients = std::vector<std::vector<float>>(model_type::part_count);
};

finding run(const plan& planned, const spoilt& wrong, bool watched) {
    finding found;
    std::mutex mutex;
    bool first = true;
    threads::run_ranks(planned.pipeline_degree, {}, [&](threads::transport& transport) {
        watched_math backend;
        executor<model_type, watched_math> rank{backend, transport, planned, costs_of_model()};
        spoilt_task task{{7, planned.microbatch_size, planned.microbatches}, wrong};
        for (const auto& block : rank.parameters().blocks()) {
            const auto drawn = task.data.parameters(block.layer, block.size);
            const auto values = rank.parameters().values_of(block.layer);
            std::copy(drawn.begin(), drawn.end(), values.begin());
            if (block.layer == wrong.layer) { values.front() = not_a_number; }
        }
        for (const auto& block : rank.parameters().blocks()) {
            if (block.layer == wrong.backward) {
                backend.bad_weights = rank.parameters().values_of(block.layer).data();
            }
        }
        rank.watch_values(watched);
        rank.step(task);
        const auto earliest = earliest_fault(transport, rank.first_fault());
        const std::lock_guard lock{mutex};
        if (first) { found.fault = earliest; }
        first = false;
        found.agreed = found.agreed && found.fault == earliest;
        for (const auto& block : rank.parameters().blocks()) {
            const int layer = block.layer;
            if (layer < 0) { continue; }
            const auto g = rank.parameters().gradients_of(block.layer);
            found.gradients[static_cast<std::size_t>(layer)] = {g.begin(), g.end()};
        }
    });
    if (found.fault) { found.text = to_text(*found.fault, graph_of<model_type>().view()); }
    return found;
}

} // namespace

TEST_CASE("the first tensor that is not finite is found, and is the same however the model is cut") {
    constexpr auto graph = graph_of<model_type>();
    int plans = 0;
    for (unsigned seed = 0; plans != drawn_cases(24); ++seed) {
        const auto planned = draw_plan(1 + static_cast<int>(seed % 4), seed);
        if (!planned) { continue; }
        ++plans;
        INFO("seed " << seed);
        const auto stage_of_layer = [&](int l) { return stage_of(planned->cut.stages, l); };

        const finding none = run(*planned, {}, true);
        CHECK(!none.fault);
        CHECK(none.gradients == run(*planned, {}, false).gradients); // watching changes nothing

        const finding input = run(*planned, {.input = 2}, true);
        CHECK(input.agreed);
        CHECK(input.fault == value_fault{value_fault::place::output, value_fault::model_input, 0, 2});
        CHECK(input.text == "the model's input (stage 0, microbatch 2) is the first that is not finite");

        const int l = static_cast<int>(seed) % static_cast<int>(model_type::part_count);
        const finding weight = run(*planned, {.layer = l}, true);
        CHECK(weight.agreed);
        CHECK(weight.fault == value_fault{value_fault::place::output, l, stage_of_layer(l), 0});
        CHECK(weight.text.find("'" + graph.layers[static_cast<std::size_t>(l)].name.str() + "'") != std::string::npos);

        const finding conditioning = run(*planned, {.layer = conditioning_block}, true);
        CHECK(conditioning.text == "the conditioning (stage 0, microbatch 0) is the first that is not finite");

        const int last = static_cast<int>(model_type::part_count) - 1;
        const finding loss = run(*planned, {.gradient = 1}, true);
        CHECK(loss.fault == value_fault{value_fault::place::loss_gradient, last, stage_of_layer(last), 1});

        const int b = 1 + l % last;
        const finding backward = run(*planned, {.backward = b}, true);
        CHECK(backward.fault == value_fault{value_fault::place::input_gradient, b, stage_of_layer(b), 0});

        CHECK(!run(*planned, {.input = 2}, false).fault); // not watched
    }
}

} // namespace watched_values
