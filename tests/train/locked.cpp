#include <doctest/doctest.h>

#include <initializer_list>
#include <vector>

#include <support/locked_models.hpp>
#include <support/sized_model.hpp>
#include <support/wave_training.hpp>
#include <pulse/partition/traffic.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/simulate/simulator.hpp>
#include <pulse/zoo/controlnet.hpp>

using namespace pulse;
using namespace pulse::test;

namespace {

/// controlnet_tiny with a quarter of the pixels.
struct controlnet_of_small_hints : controlnet<with_size(sd_tiny::config, 4)> {};

template <class Model>
void check_model(std::initializer_list<int> degrees) {
    const measured want = train_on<Model>(plan_on<Model>(1, false), 4);
    CHECK(want.result.losses.back() < want.result.losses.front());
    for (const auto& frozen : want.result.frozen) {
        const auto& layer = frozen.first;
        const auto& values = frozen.second;
        CAPTURE(layer);
        std::vector<float> initial(values.size());
        nn::initialise<float>(frozen_parameters_of<Model>(layer), 3, initial);
        CHECK(values == initial);
    }
    for (const int ranks : degrees) {
        for (const bool split : {false, true}) {
            CAPTURE(ranks);
            CAPTURE(split);
            const tuning made = plan_on<Model>(ranks, split);
            const step_model steps{made.plan, made.costs};
            const simulation simulated = simulate(made.plan, steps, lower(made.plan, steps), made.world);
            CHECK(made.plan.predicted.lower_bound_us > 0.0);
            CHECK(simulated.step_us >= made.plan.predicted.lower_bound_us * (1 - 1e-9));
            CHECK(made.plan.predicted.peak_memory_bytes == peak_bytes(made.plan, made.costs, made.kept));
            const measured found = train_on<Model>(made, 4);
            CHECK((found.result == want.result));
            CHECK(found.sent.skip == 0);
            CHECK(found.sent.boundary ==
                  made.plan.microbatches * 4 * traffic_of(made.plan.cut, made.costs, {}).boundary());
        }
    }
}

} // namespace

TEST_CASE("a ControlNet is planned, trained on folded ranks to the bits of one rank, and its locked weights stay") {
    check_model<test::control_unet>({2, 3});
}

TEST_CASE("a UNet whose encoder is locked is trained on folded ranks to the bits of one rank") {
    check_model<test::encoder_locked_unet>({2});
}

TEST_CASE("a ControlNet that reads text, time and a hint is trained on folded ranks to the bits of one rank") {
    check_model<controlnet_of_small_hints>({2, 4});
}
