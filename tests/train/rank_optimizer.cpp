#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <pulse/plan/replica_place.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/threads/transport.hpp>
#include <pulse/train/host_updates.hpp>
#include <pulse/train/loss_scale.hpp>
#include <pulse/train/measure_updates.hpp>
#include <pulse/train/rank_optimizer.hpp>
#include <pulse/tune/step_end.hpp>

namespace {

using namespace pulse;
using namespace pulse::train;

/// A custom rule: subtracts the scaled gradient, and keeps the update that it was passed.
struct sign_rule {
    optimizer_update* told{};
    void operator()(const optimizer_update& now, std::span<float> w, std::span<const float> g, std::span<float>,
                    std::span<float>, std::span<float>) const {
        *told = now;
        for (std::size_t i = 0; i != w.size(); ++i) { w[i] -= static_cast<float>(now.gradient_scale) * g[i]; }
    }
};

rank_parameters<float> parameters_of_layers(std::span<const int> layers, std::int64_t elements) {
    const std::vector<std::int64_t> sizes(layers.size(), elements);
    return {layers, sizes};
}

/// Runs `body(transport)` on one rank and returns the message of the thrown Error.
template <class Error, class Body>
std::string message_on_one_rank(Body body) {
    try {
        threads::run_ranks(1, {}, body);
    } catch (const Error& e) { return e.what(); }
    return "nothing of this type was thrown";
}

} // namespace

TEST_CASE("an update rule of one's own is told the step, its learning rate, the clip and the average's decay") {
    threads::run_ranks(1, {}, [](threads::transport& transport) {
        const std::array<int, 2> layers{conditioning_block, 0};
        auto parameters = parameters_of_layers(layers, 2);
        optimizer_update told;
        rank_optimizer optimizer{1,
                                 2,
                                 parameters,
                                 {.constants = {.beta1 = 0.5}, .clip_norm = 1.0, .average_decay = 0.9},
                                 host_updates{sign_rule{&told}}};
        const std::array<float, 4> gradients{3, 0, 0, 4};
        std::copy(gradients.begin(), gradients.end(), parameters.gradients().begin());
        const std::array<double, 2> losses{0.25, 0.5};
        const step_outcome outcome = optimizer.step(parameters, transport, 7, 0.125, losses, true);
        CHECK(outcome.gradient_norm == 5);
        CHECK(outcome.loss == 0.75);
        CHECK(outcome.stop);
        CHECK(told.step == 7);
        CHECK(told.constants.learning_rate == 0.125);
        CHECK(told.constants.beta1 == 0.5);
        CHECK(told.gradient_scale == doctest::Approx(0.2));
        CHECK(told.average_decay == ema_decay(7, 0.9));
        CHECK(parameters.values()[0] == doctest::Approx(-0.6));
        CHECK(parameters.values()[3] == doctest::Approx(-0.8));
        CHECK(std::ranges::equal(parameters.gradients(), gradients));
    });
}

TEST_CASE("layers spread over ranks take the step that one rank takes") {
    constexpr int layers = 5;
    constexpr std::size_t elements = 13;
    struct arrays {
        std::vector<float> weights, m, v, average;
        double norm{};
        double loss{};
    };
    const auto value = [](int layer, std::size_t i, std::int64_t step) {
        return static_cast<float>(
            std::sin(1.0 + 3.0 * layer + 0.7 * static_cast<double>(i) + 0.3 * static_cast<double>(step)));
    };
    const auto run = [&](const std::vector<std::vector<int>>& owned) {
        std::array<arrays, layers + 1> all;
        threads::run_ranks(static_cast<int>(owned.size()), {}, [&](threads::transport& transport) {
            const auto& mine = owned[static_cast<std::size_t>(transport.rank())];
            auto parameters = parameters_of_layers(mine, elements);
            rank_optimizer optimizer{
                layers, 2, parameters, {.constants = {.weight_decay = 0.1}, .clip_norm = 0.5, .average_decay = 0.99}};
            std::vector<float> initial(parameters.values().size());
            for (const auto& b : parameters.blocks()) {
                for (std::size_t i = 0; i != b.size; ++i) { initial[b.first + i] = value(b.layer, i, 0); }
            }
            optimizer.start(initial, parameters);
            step_outcome outcome;
            for (std::int64_t step = 1; step != 4; ++step) {
                for (const auto& b : parameters.blocks()) {
                    for (std::size_t i = 0; i != b.size; ++i) {
                        parameters.gradients()[b.first + i] = value(b.layer, i, step);
                    }
                }
                // Losses come from the rank with the last layer.
                const std::vector<double> losses(
                    2, !mine.empty() && mine.back() == layers - 1 ? 0.1 * static_cast<double>(step) : 0.0);
                outcome = optimizer.step(parameters, transport, step, 1e-2, losses, false);
            }
            for (const auto& b : parameters.blocks()) {
                arrays& to = all[static_cast<std::size_t>(b.layer + 1)];
                const auto copy = [&](std::span<float> from) {
                    const auto part = from.subspan(b.first, b.size);
                    return std::vector<float>(part.begin(), part.end());
                };
                to = {copy(parameters.values()), copy(optimizer.first_moment()), copy(optimizer.second_moment()),
                      copy(optimizer.average()), outcome.gradient_norm,          outcome.loss};
            }
        });
        return all;
    };
    const auto want = run({{-1, 0, 1, 2, 3, 4}});
    CHECK(want[0].norm > 1.0); // so that clipping has an effect
    CHECK(want[0].loss == doctest::Approx(0.6));
    for (const std::vector<std::vector<int>>& owned : {std::vector<std::vector<int>>{{-1, 0, 4}, {1, 2, 3}},
                                                       {{-1, 0}, {1, 3}, {2, 4}},
                                                       {{}, {-1, 0, 1, 2}, {3, 4}}}) {
        const auto found = run(owned);
        for (std::size_t l = 0; l != want.size(); ++l) {
            CAPTURE(l);
            CHECK(found[l].weights == want[l].weights);
            CHECK(found[l].m == want[l].m);
            CHECK(found[l].v == want[l].v);
            CHECK(found[l].average == want[l].average);
            CHECK(found[l].norm == want[l].norm);
            CHECK(found[l].loss == want[l].loss);
        }
    }
}

TEST_CASE("replicas take one step, whether they share their state or not and however the model is cut") {
    constexpr int layers = 4;
    constexpr int replicas = 3;
    constexpr std::size_t microbatches = 2;
    const std::vector<std::size_t> sizes{13, 1, 2, 30, 7}; // of the conditioning module, layer 0, ...
    const auto value = [](int layer, std::size_t i, std::int64_t step) {
        return static_cast<float>(
            std::sin(1.0 + 3.0 * layer + 0.7 * static_cast<double>(i) + 0.3 * static_cast<double>(step)));
    };
    struct outcome {
        /// Weights, moments and average of every layer, from the replicas that own them.
        std::array<std::array<std::vector<float>, 4>, layers + 1> state{};
        double norm{}, loss{};
        std::size_t state_elements{};
        std::int64_t gradient_bytes{};
        [[nodiscard]] bool operator==(const outcome&) const = default;
    };
    const auto run = [&](const std::vector<std::vector<int>>& owned, int d, bool sharded, double clip) {
        outcome made;
        for (std::size_t l = 0; l != sizes.size(); ++l) {
            for (auto& v : made.state[l]) { v.assign(sizes[l], std::nanf("")); }
        }
        std::mutex mutex;
        const rank_grid grid{rank_layout::replicas_inside, static_cast<int>(owned.size()), d};
        threads::run_ranks(grid.size(), {}, [&](threads::transport& transport) {
            const replica_place place = place_of(grid, transport.rank());
            const auto& mine = owned[static_cast<std::size_t>(place.device)];
            std::vector<std::int64_t> elements;
            for (const int l : mine) {
                elements.push_back(static_cast<std::int64_t>(sizes[static_cast<std::size_t>(l + 1)]));
            }
            rank_parameters<float> parameters{mine, elements};
            std::vector<float> initial(parameters.values().size());
            for (const auto& b : parameters.blocks()) {
                for (std::size_t i = 0; i != b.size; ++i) { initial[b.first + i] = value(b.layer, i, 0); }
            }
            const std::size_t of_replica = microbatches * replicas / static_cast<std::size_t>(d);
            rank_optimizer optimizer{layers,
                                     of_replica,
                                     parameters,
                                     {.constants = {.weight_decay = 0.1},
                                      .clip_norm = clip,
                                      .average_decay = 0.99,
                                      .replicas = {place, sharded}}};
            optimizer.start(initial, parameters);
            step_outcome last;
            for (std::int64_t step = 1; step != 4; ++step) {
                std::fill(parameters.gradients().begin(), parameters.gradients().end(), sharded ? std::nanf("") : 0.0F);
                for (const auto& b : parameters.blocks()) {
                    const element_range all{b.first, b.size};
                    const element_range has = sharded ? share_of(all, d, place.replica) : all;
                    for (std::size_t i = has.first; i != has.first + has.size; ++i) {
                        parameters.gradients()[i] = value(b.layer, i - b.first, step);
                    }
                }
                std::vector<double> losses(of_replica);
                for (std::size_t m = 0; m != of_replica && mine.back() == layers - 1; ++m) {
                    losses[m] = 0.1 * static_cast<double>(static_cast<std::size_t>(place.replica) * of_replica + m + 1);
                }
                last = optimizer.step(parameters, transport, step, 1e-2, losses, false);
            }
            const std::lock_guard lock{mutex};
            made.norm = last.gradient_norm;
            made.loss = last.loss;
            made.state_elements = std::max(made.state_elements, optimizer.average().size());
            made.gradient_bytes += transport.sent().gradient;
            std::size_t at = 0;
            for (const train::update_piece& piece : optimizer.pieces()) {
                const element_range& r = piece.range;
                for (std::size_t i = r.first; i != r.first + r.size; ++i, ++at) {
                    for (const auto& b : parameters.blocks()) {
                        if (i < b.first || i >= b.first + b.size) { continue; }
                        auto& to = made.state[static_cast<std::size_t>(b.layer + 1)];
                        to[1][i - b.first] = optimizer.first_moment()[at];
                        to[2][i - b.first] = optimizer.second_moment()[at];
                        to[3][i - b.first] = optimizer.average()[at];
                    }
                }
            }
            // Every replica has all weights, including those whose state others own.
            for (const auto& b : parameters.blocks()) {
                for (std::size_t i = 0; i != b.size; ++i) {
                    float& w = made.state[static_cast<std::size_t>(b.layer + 1)][0][i];
                    REQUIRE((std::isnan(w) || w == parameters.values()[b.first + i]));
                    w = parameters.values()[b.first + i];
                }
            }
        });
        return made;
    };
    const std::vector<std::vector<int>> whole{{-1, 0, 1, 2, 3}};
    const std::vector<std::vector<int>> cut{{-1, 0, 3}, {1, 2}};
    for (const double clip : {0.0, 0.5}) {
        const outcome want = run(whole, replicas, false, clip);
        CHECK(want.gradient_bytes == 0);
        CHECK(want.state_elements == 53);
        const outcome apart = run(cut, replicas, false, clip);
        CHECK(apart.state == want.state);
        for (const auto& ranks : {whole, cut}) {
            const outcome found = run(ranks, replicas, true, clip);
            CHECK(found.state == want.state);
            CHECK(found.norm == want.norm);
            CHECK(found.loss == want.loss);
            CHECK(found.gradient_bytes == 3 * 53 * 4 * (replicas - 1));
            CHECK(found.state_elements <= 53 / replicas + sizes.size());
        }
        // A single replica with the same sums: its squares are added in another order.
        const outcome one = run(whole, 1, false, clip);
        CHECK(one.loss == want.loss);
        CHECK(one.norm == doctest::Approx(want.norm).epsilon(1e-14));
        if (clip == 0) { CHECK(one.state == want.state); }
    }
    CHECK(run(whole, replicas, false, 0.5).norm > 0.5);
}

TEST_CASE("a gradient that is not finite is reported with its layer, and nothing changes") {
    for (const int bad : {conditioning_block, 0, 3}) {
        for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
            const std::string want = bad < 0 ? "conditioning module" : "layer " + std::to_string(bad) + " ";
            std::vector<float> after;
            const std::string text = message_on_one_rank<error>([&](threads::transport& transport) {
                const std::array<int, 3> layers{conditioning_block, 0, 3};
                auto parameters = parameters_of_layers(layers, 2);
                rank_optimizer optimizer{4, 1, parameters, {.clip_norm = 1.0}};
                parameters.gradients_of(bad)[1] = value;
                const std::array<double, 1> losses{};
                try {
                    optimizer.step(parameters, transport, 1, 1e-3, losses, false);
                } catch (...) {
                    after.assign(parameters.values().begin(), parameters.values().end());
                    throw;
                }
            });
            CAPTURE(text);
            CHECK(text.find(want) != std::string::npos);
            CHECK(after == std::vector<float>(6));
        }
    }
    for (const double value :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 1e31}) {
        int told = 0;
        std::mutex mutex;
        threads::run_ranks(2, {}, [&](threads::transport& transport) {
            const std::array<int, 1> layers{transport.rank()};
            auto parameters = parameters_of_layers(layers, 2);
            rank_optimizer optimizer{2, 3, parameters, {.clip_norm = 1.0}};
            // one rank has the losses; every rank learns of the bad one, and the transport stays usable
            const std::array<double, 3> losses{0, transport.rank() == 1 ? value : 0, 0};
            CHECK_THROWS_WITH_AS(optimizer.step(parameters, transport, 1, 1e-3, losses, false),
                                 "the loss of microbatch 1 is not finite: a smaller learning rate may help",
                                 not_finite_error);
            transport.sum({});
            const std::lock_guard lock{mutex};
            ++told;
        });
        CHECK(told == 2);
    }
}

TEST_CASE("sizes that the optimizer was not made for are refused before anything is exchanged") {
    const std::array<int, 2> layers{0, 3};
    const auto step = [&](std::size_t microbatches, std::size_t model_layers, std::size_t losses,
                          std::size_t parameters, std::int64_t at) {
        return message_on_one_rank<input_error>([&](threads::transport& transport) {
            auto mine = parameters_of_layers(layers, 4);
            auto made_for = parameters_of_layers(layers, static_cast<std::int64_t>(parameters / 2));
            rank_optimizer optimizer{model_layers, microbatches, made_for, {.clip_norm = 1.0}};
            const std::vector<double> shares(losses);
            optimizer.step(mine, transport, at, 1e-3, shares, false);
        });
    };
    const auto has = [](const std::string& text, const char* part) {
        CAPTURE(text);
        CHECK(text.find(part) != std::string::npos);
    };
    has(step(2, 4, 3, 8, 1), "number of losses must be 2, not 3");
    has(step(2, 4, 1, 8, 1), "number of losses must be 2, not 1");
    has(step(2, 4, 2, 6, 1), "number of parameters must be 6, not 8");
    has(step(2, 3, 2, 8, 1), "layer 3, but the model's layers are 0 to 2");
    has(step(2, 4, 2, 8, 0), "step must be at least 1, not 0");
    has(step(2, 4, 2, 8, 1), "nothing of this type");

    auto parameters = parameters_of_layers(layers, 4);
    rank_optimizer optimizer{4, 1, parameters, {}};
    const std::vector<float> nine(9);
    CHECK_THROWS_WITH_AS(optimizer.start(nine, parameters),
                         "rank_optimizer: number of initial weights must be 8, not 9", input_error);
    const auto refuses = [&](const adamw_constants& c, double clip, double decay) {
        const optimizer_options o{.constants = c, .clip_norm = clip, .average_decay = decay};
        CHECK_THROWS_AS(rank_optimizer(4, 1, parameters, o), input_error);
    };
    refuses({.beta1 = 1.0}, 1, 0.9);
    refuses({.beta2 = -0.1}, 1, 0.9);
    refuses({.epsilon = 0}, 1, 0.9);
    refuses({.weight_decay = -1}, 1, 0.9);
    refuses({}, -1, 0.9);
    refuses({}, std::nan(""), 0.9);
    refuses({}, 1, 1.5);
    CHECK_THROWS_AS(rank_optimizer(0, 1, parameters, optimizer_options{}), input_error);
    CHECK_THROWS_AS(rank_optimizer(4, 0, parameters, optimizer_options{}), input_error);
}

TEST_CASE("the measured rate of an update rule is that by which a plan counts the time that the rule takes") {
    struct slow_rule {
        void operator()(const optimizer_update&, std::span<float>, std::span<const float>, std::span<float>,
                        std::span<float>, std::span<float>) const {
            std::this_thread::sleep_for(std::chrono::milliseconds{20});
        }
    };
    parameter_memory kept = adamw_memory(4);
    for (const int state : {12, 4}) {
        kept.state_bytes = state;
        const double rate = measured_update_rate(host_updates{slow_rule{}}, kept, 1000);
        CHECK(optimizer_us(4 * 1000, kept, rate) >= 20'000);
        CHECK(optimizer_us(4 * 1000, kept, rate) < 200'000);
    }
}

TEST_CASE("a loss scale grows again, whatever interval the run had that is resumed") {
    for (const std::int64_t kept : {0, 1, 2, 3, 9}) {
        loss_scaler scaler{{.initial = 8, .interval = 3}};
        scaler.resume({8, kept, 0});
        for (int step = 0; step != 3; ++step) { scaler.update(true); }
        CHECK(scaler.scale() == 16);
    }
}

TEST_CASE("a loss scale that is resumed is that of the resumed run, whatever steps came before") {
    for (const loss_scaler::state& kept : {loss_scaler::state{}, loss_scaler::state{32, 1, 2}}) {
        loss_scaler fresh{{.initial = 8}};
        loss_scaler used{{.initial = 8}};
        used.update(false);
        used.update(true);
        for (loss_scaler* one : {&fresh, &used}) { one->resume(kept); }
        CHECK((used.now() == fresh.now()));
    }
}
