#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <nn/small_uvit.hpp>
#include <nn/whole_trial.hpp>
#include <support/check_both.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/runtime/forward_runner.hpp>

using namespace pulse;

TEST_CASE("whole U-ViT: every parameter tensor's gradient equals finite differences") {
    test::whole_trial<test::small_uvit>{}.check(2);
    test::whole_trial<test::crooked_uvit>{}.check(3);
}

TEST_CASE("a U-ViT without a pipeline samples what it trains") {
    using model = test::small_uvit;
    test::whole_trial<model> t;
    forward_runner<model, reference::backend<double>> runner{t.backend, t.batch};
    t.run.give(runner.parameters());
    std::vector<double> output(t.weights.size());
    runner.run(t.batch, t.input.data(), t.timesteps.data(), output.data());
    const auto tape = t.run.forward(t.batch, t.input, t.timesteps);
    CHECK(output == t.run.output(tape));
}

TEST_CASE("a U-ViT relays no conditioning, and its output depends on the time") {
    using model = test::small_uvit;
    CHECK_BOTH(!model::is_conditioned);
    CHECK_BOTH(graph_of<model>().conditioning_elements == 0);
    CHECK_BOTH(reads_timesteps<model::layer_at<0>>);
    CHECK_BOTH(!reads_timesteps<model::layer_at<1>>);
    test::whole_trial<model> t;
    const auto at_time = [&](std::vector<double> times) {
        const auto tape = t.run.forward(t.batch, t.input, std::move(times));
        return t.run.output(tape);
    };
    const std::vector<double> first = at_time({3.0, 11.0});
    const std::vector<double> second = at_time({3.0, 12.0});
    const auto half = static_cast<std::ptrdiff_t>(first.size() / 2);
    CHECK(std::equal(first.begin(), first.begin() + half, second.begin()));
    CHECK(!std::equal(first.begin() + half, first.end(), second.begin() + half));
}
