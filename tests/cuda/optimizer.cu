#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <pulse/cuda/device_updates.cuh>
#include <pulse/cuda/thread_transport.cuh>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/threads/transport.hpp>
#include <pulse/train/rank_optimizer.hpp>

#include <device_array.hpp>
#include <optimizer_trial.hpp>

namespace cuda = pulse::cuda;
namespace train = pulse::train;
using pulse::conditioning_block;
using pulse::test::device_array;

namespace pulse::test::optimizer_trial {

TEST_CASE_TEMPLATE("replicas on devices take one step, whether they share their state or not", Precision, cuda::bf16,
                   cuda::fp16, cuda::fp32) {
    const std::vector<std::vector<int>> whole{{-1, 0, 1, 2, 3, 4}};
    const std::vector<std::vector<int>> cut{{-1, 0, 4}, {1, 2, 3}};
    for (const int replicas : {2, 3}) {
        const replicated_steps want = replicated_run<Precision>(whole, replicas, false);
        CHECK(want.gradient_bytes == 0);
        CHECK(want.norm > options.clip_norm);
        CHECK(want.loss == doctest::Approx(replicas * 0.75 + replicas * (replicas - 1) / 2));
        for (const auto& owned : {whole, cut}) {
            const replicated_steps found = replicated_run<Precision>(owned, replicas, true);
            for (std::size_t l = 0; l != want.all.size(); ++l) {
                CAPTURE(l);
                CHECK(found.all[l] == want.all[l]);
            }
            CHECK(found.norm == want.norm);
            CHECK(found.loss == want.loss);
            CHECK(found.gradient_bytes == steps * (replicas - 1) * (layer_count + 1) *
                                              static_cast<std::int64_t>(elements) *
                                              static_cast<std::int64_t>(sizeof(typename Precision::scalar)));
        }
        // Equal gradients have equal norms, up to the order in which squares are added.
        const replicated_steps one = replicated_run<Precision>(whole, 1, false);
        CHECK(one.norm == doctest::Approx(want.norm).epsilon(1e-12));
    }
}

TEST_CASE_TEMPLATE("the device's optimizer takes the host's steps, however layers are spread", Precision, cuda::bf16,
                   cuda::fp16, cuda::fp32) {
    const auto want = host_run();
    CHECK(want[0].norm > 1.0); // so that clipping has an effect
    const auto alone = device_run<Precision>({{-1, 0, 1, 2, 3, 4}});
    for (std::size_t l = 0; l != want.size(); ++l) {
        CAPTURE(l);
        CHECK(alone[l].norm == doctest::Approx(want[l].norm).epsilon(1e-13));
        CHECK(alone[l].loss == doctest::Approx(want[l].loss).epsilon(1e-14));
        for (std::size_t i = 0; i < elements; ++i) {
            const auto near = [&](float found, float wanted, double unit) {
                CHECK(std::abs(static_cast<double>(found) - static_cast<double>(wanted)) <=
                      static_cast<double>(steps) * (0x1p-22 * std::abs(static_cast<double>(wanted)) + unit));
            };
            near(alone[l].weights[i], want[l].weights[i], 0x1p-20 * 1e-2);
            near(alone[l].m[i], want[l].m[i], 0x1p-24);
            near(alone[l].v[i], want[l].v[i], 0x1p-34);
            near(alone[l].average[i], want[l].average[i], 0x1p-22);
            const double copy =
                static_cast<double>(cuda::to_float(cuda::from_float<typename Precision::scalar>(alone[l].weights[i])));
            CHECK(alone[l].compute[i] == copy);
        }
    }
    for (const std::vector<std::vector<int>>& owned :
         {std::vector<std::vector<int>>{{-1, 0, 4}, {1, 2, 3}}, {{}, {-1, 0, 1, 2}, {3, 4}}}) {
        const auto found = device_run<Precision>(owned);
        for (std::size_t l = 0; l != want.size(); ++l) {
            CAPTURE(l);
            CHECK(found[l].weights == alone[l].weights);
            CHECK(found[l].m == alone[l].m);
            CHECK(found[l].v == alone[l].v);
            CHECK(found[l].average == alone[l].average);
            CHECK(found[l].norm == alone[l].norm);
            CHECK(found[l].loss == alone[l].loss);
        }
    }
}

TEST_CASE("without loss scaling, what is not finite is reported by name, and nothing changes") {
    for (const int bad : {conditioning_block, 0, 3}) {
        for (const float spoilt : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
            std::vector<double> after;
            const std::string text = message_on_one_rank<pulse::error>([&](pulse::threads::transport& transport) {
                const cuda::stream stream;
                some_parameters<__nv_bfloat16> parameters({conditioning_block, 0, 3}, 2);
                cuda::rank_optimizer<> optimizer(4, 1, parameters, {}, stream.get());
                optimizer.start(std::vector<float>(6, 0.5F), parameters);
                std::vector<float> gradients(6, 1.0F);
                gradients[bad < 0 ? 1 : bad == 0 ? 2 : 5] = spoilt;
                parameters.set_gradients(gradients);
                try {
                    optimizer.step(parameters, transport, 1, 1e-3, {}, false);
                } catch (...) {
                    after = parameters.read_values(stream.get());
                    throw;
                }
            });
            CAPTURE(text);
            CHECK(text.find(bad < 0 ? "conditioning module" : "layer " + std::to_string(bad) + " ") !=
                  std::string::npos);
            CHECK(after == std::vector<double>(6, 0.5));
        }
    }
    const std::string text = message_on_one_rank<pulse::error>([&](pulse::threads::transport& transport) {
        const cuda::stream stream;
        some_parameters<float> parameters({0}, 2);
        cuda::rank_optimizer<cuda::fp32> optimizer(1, 2, parameters, {}, stream.get());
        optimizer.start(std::vector<float>(2, 0.5F), parameters);
        parameters.set_gradients({1, 1});
        const device_array<double> losses(std::vector<double>{0.5, std::nan("")});
        optimizer.step(parameters, transport, 1, 1e-3, {losses.data(), 2}, false);
    });
    CHECK(text.find("the loss of microbatch 1 is not finite") != std::string::npos);
}

TEST_CASE("with loss scaling, an overflow leaves a step out on every rank and halves the scale") {
    for (const int spoilt_rank : {0, 1}) {
        pulse::threads::run_ranks(2, {}, [&](pulse::threads::transport& transport) {
            const cuda::stream stream;
            some_parameters<__half> parameters({transport.rank()}, 3);
            train::optimizer_options scaled;
            scaled.scaling = {.initial = 1024, .growth = 4, .backoff = 0.5, .interval = 2};
            cuda::rank_optimizer<cuda::fp16> optimizer(2, 1, parameters, scaled, stream.get());
            optimizer.start(std::vector<float>(3, 0.5F), parameters);
            const auto step = [&](std::int64_t at, bool overflow) {
                std::vector<float> gradients(3, static_cast<float>(0.25 * optimizer.loss_scale()));
                if (overflow && transport.rank() == spoilt_rank) {
                    gradients[1] = std::numeric_limits<float>::infinity();
                }
                stream.synchronize();
                parameters.set_gradients(gradients);
                return optimizer.step(parameters, transport, at, 1e-2, {}, false);
            };
            CHECK(optimizer.loss_scale() == 1024);
            const train::step_outcome left_out = step(1, true);
            CHECK(left_out.skipped);
            CHECK(left_out.loss_scale == 512);
            CHECK(parameters.read_values(stream.get()) == std::vector<double>(3, 0.5));

            // the next step is Adam's first: every weight moves by the learning rate and its decay
            const train::step_outcome first = step(2, false);
            CHECK_FALSE(first.skipped);
            CHECK(first.gradient_norm == doctest::Approx(0.25 * std::sqrt(6.0)));
            for (const float w : read(optimizer.weights(parameters), stream.get())) {
                CHECK(w == doctest::Approx(0.5 * (1 - 1e-4) - 1e-2).epsilon(1e-6));
            }
            CHECK(first.loss_scale == 512);
            CHECK(step(3, false).loss_scale == 2048); // two good steps in a row
            CHECK(optimizer.scaler().now() == train::loss_scaler::state{2048, 0, 1});
        });
    }
}

TEST_CASE("loss scales out of range are refused, and one that cannot help ends the training") {
    const auto refuses = [](const train::loss_scaling& o) {
        CHECK_THROWS_AS(train::loss_scaler{o}, pulse::input_error);
    };
    refuses({.initial = 0});
    refuses({.initial = std::numeric_limits<double>::infinity()});
    refuses({.growth = 0.5});
    refuses({.backoff = 1});
    refuses({.backoff = 0});
    refuses({.interval = 0});
    train::loss_scaler scaler(train::loss_scaling{.initial = 1});
    for (int i = 0; i < 24; ++i) { scaler.update(false); }
    CHECK(scaler.scale() == 0x1p-24);
    CHECK_THROWS_AS(scaler.update(false), pulse::error);
    train::loss_scaler resumed(train::loss_scaling{});
    resumed.resume({8, 1999, 5});
    resumed.update(true);
    CHECK(resumed.now() == train::loss_scaler::state{16, 0, 5});
    train::loss_scaler interrupted(train::loss_scaling{.initial = 8, .interval = 2});
    interrupted.update(true);
    interrupted.update(false); // counting good steps starts over
    interrupted.update(true);
    CHECK(interrupted.now() == train::loss_scaler::state{4, 1, 1});
    train::loss_scaler off;
    off.update(false);
    CHECK(off.scale() == 1);
    off.resume({8, 3, 2}); // of a run with loss scaling: kept for one that continues from here and scales again
    CHECK(off.scale() == 1);
    CHECK(off.now() == train::loss_scaler::state{8, 3, 2});
    train::loss_scaler again(train::loss_scaling{.initial = 64});
    again.resume({}); // of a run without loss scaling
    CHECK(again.scale() == 64);
}

TEST_CASE("sizes that the device's optimizer was not made for are refused before anything is exchanged") {
    const cuda::stream stream;
    some_parameters<__nv_bfloat16> parameters({0, 3}, 4);
    some_parameters<__nv_bfloat16> fewer({0}, 4);
    CHECK_THROWS_WITH_AS(cuda::rank_optimizer<>(3, 1, parameters, {}, stream.get()),
                         "rank_optimizer: parameters belong to layer 3, but the model's layers are 0 to 2",
                         pulse::input_error);
    CHECK_THROWS_AS(cuda::rank_optimizer<>(0, 1, parameters, {}, stream.get()), pulse::input_error);
    CHECK_THROWS_AS(cuda::rank_optimizer<>(4, 1, parameters, {.clip_norm = -1}, stream.get()), pulse::input_error);
    CHECK_THROWS_AS(cuda::rank_optimizer<>(4, 1, parameters, {.constants = {.beta1 = 1}}, stream.get()),
                    pulse::input_error);
    cuda::rank_optimizer<> optimizer(4, 1, parameters, {}, stream.get());
    CHECK_THROWS_WITH_AS(optimizer.start(std::vector<float>(9), parameters),
                         "rank_optimizer: number of initial weights must be 8, not 9", pulse::input_error);
    const auto step = [&](auto& given, std::int64_t at) {
        return message_on_one_rank<pulse::input_error>(
            [&](pulse::threads::transport& transport) { optimizer.step(given, transport, at, 1e-3, {}, false); });
    };
    CHECK(step(fewer, 1).find("number of parameters must be 8, not 4") != std::string::npos);
    CHECK(step(parameters, 0).find("step must be at least 1, not 0") != std::string::npos);
}

} // namespace pulse::test::optimizer_trial
