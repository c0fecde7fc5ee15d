#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include <nn/whole_trial.hpp>
#include <support/check_both.hpp>
#include <support/locked_models.hpp>
#include <pulse/profile/analytic.hpp>

using namespace pulse;

TEST_CASE("gradients of what is trained beside, before and behind locked layers equal finite differences") {
    test::whole_trial<test::control_unet>{}.check(3);
    test::whole_trial<test::encoder_locked_unet>{}.check(3);
}

TEST_CASE("a locked layer counts as weights without gradients, one that runs forward only saves nothing") {
    using plain = nn::block<"r", test::control_parts::residual(4, 0, 8, 6)>;
    using locked = nn::locked<plain>;
    using forward_only = nn::forward_only<plain>;
    CHECK_BOTH(parameter_elements<locked>() == 0);
    CHECK_BOTH(frozen_parameter_elements<locked>() == parameter_elements<plain>());
    CHECK_BOTH(locked::saved_elements == plain::saved_elements);
    CHECK_BOTH(locked::deferred_elements == 0);
    CHECK_BOTH(!is_forward_only<locked>());
    CHECK_BOTH(is_forward_only<forward_only>());
    CHECK_BOTH(frozen_parameter_elements<forward_only>() == parameter_elements<plain>());
    CHECK_BOTH(node_of<forward_only>().saved_bytes(3, 4) == 0);
}

TEST_CASE("costs of locked layers: no W where no weight is trained, no B where no gradient goes back") {
    const auto graph = uncut_graph_of<test::encoder_locked_unet>();
    // Slow at arithmetic, so that only FLOPs count.
    const device slow{.name = label{"slow"}, .memory_gb_per_s = 1e9, .tflops_32 = 1e-3};
    const cost_table costs = analytic_costs(graph.view(), slow, 1, 4);
    const auto at = [&](std::size_t l) -> const layer_cost& { return costs.layers[l]; };
    for (const std::size_t l : {0U, 1U}) {
        CHECK(at(l).backward_input_us == 0.0);
        CHECK(at(l).backward_weight_us == 0.0);
        CHECK(at(l).gradient_bytes() == 0);
        CHECK(at(l).parameter_bytes == 0);
        CHECK(at(l).frozen_parameter_bytes > 0);
    }
    CHECK(at(2).backward_weight_us == doctest::Approx(at(2).forward_us));
    CHECK(at(3).backward_input_us == doctest::Approx(at(3).forward_us));
    CHECK(at(3).backward_weight_us == 0.0);
    for (const skip_cost& edge : costs.skips) { CHECK(costs.gradient_bytes(edge) == 0); }

    const auto control = uncut_graph_of<test::control_unet>();
    const cost_table all = analytic_costs(control.view(), slow, 1, 4);
    // Forward, the copy and the locked layer do the same work; backward, only the copy does any.
    const layer_cost& mid = all.layers[4];
    CHECK(mid.backward_input_us == doctest::Approx(mid.forward_us / 2));
    CHECK(mid.backward_weight_us == doctest::Approx(mid.forward_us / 2));
    CHECK(mid.gradient_bytes() == mid.output_bytes / 2);
    for (const skip_cost& edge : all.skips) { CHECK(all.gradient_bytes(edge) == edge.bytes / 2); }
}
