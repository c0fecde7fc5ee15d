#include <doctest/doctest.h>

#include <cstddef>
#include <random>

#include <nn/small_text.hpp>
#include <support/drawn_cases.hpp>
#include <support/pipelined.hpp>
#include <support/random_plan.hpp>
#include <support/tallying_backend.hpp>
#include <support/unpipelined.hpp>
#include <pulse/zoo/ddpm.hpp>

using namespace pulse;
using namespace pulse::test;

namespace {

using tallying = tallying_backend<float>;

template <class Model>
pulse::test::tally of_unpipelined(int microbatches) {
    tallying backend;
    unpipelined<Model, tallying> whole{backend};
    const drawn_task<Model, float> task{{5, 1, microbatches}};
    for (std::size_t m = 0; m != task.inputs.size(); ++m) {
        auto tape = whole.forward(1, task.inputs[m], task.times[m], task.texts[m], task.known[m]);
        whole.backward(tape, task.targets[m]);
    }
    return backend.seen;
}

/// Counts the operations of a step on one device.
template <class Model>
pulse::test::tally of_plan(const plan& planned) {
    const cost_table costs = blank_costs(graph_of<Model>().view(), planned.microbatch_size, sizeof(float));
    pulse::test::tally found;
    threads::run_ranks(1, {}, [&](threads::transport& transport) {
        tallying backend;
        executor<Model, tallying> rank{backend, transport, planned, costs};
        drawn_task<Model, float> task{{5, planned.microbatch_size, planned.microbatches}};
        backend.seen = {};
        rank.step(task);
        found = backend.seen;
    });
    return found;
}

/// Tries every way to cut a model in two on one device: a cut that leaves no residual open costs nothing, any other a
/// copy of the residual and one of its gradient.
template <class Model>
void check_cuts(bool split) {
    constexpr int microbatches = 2;
    const pulse::test::tally whole = of_unpipelined<Model>(microbatches);
    REQUIRE(whole.at("conv2d") > 0);
    const auto graph = graph_of<Model>();
    std::mt19937 random{3};
    int open = 0;
    for (int cut = 1; cut != static_cast<int>(Model::part_count); ++cut) {
        plan p;
        p.microbatches = microbatches;
        p.split_backward = split;
        p.cut = {placement::folded, 1, 1, {{0, 0, 0, cut - 1}, {1, 0, cut, static_cast<int>(Model::part_count) - 1}}};
        p.order = draw_order(p.cut, microbatches, split, random);
        pulse::test::tally found = of_plan<Model>(p);
        INFO("cut before " << graph.layers[static_cast<std::size_t>(cut)].name.str());
        if (graph.layers[static_cast<std::size_t>(cut) - 1].open_elements != 0) {
            ++open;
            found["copy"] -= 2 * microbatches;
        }
        CHECK(found == whole);
    }
    CHECK(open > 4);
}

} // namespace

TEST_CASE("parts of a layer on one device run as the whole does, and a cut between them costs its copies alone") {
    check_cuts<ddpm_tiny>(false);
    check_cuts<small_sdxl>(true);
    if (!all_cases) { return; }
    check_cuts<ddpm_tiny>(true);
    check_cuts<small_sdxl>(false);
}
