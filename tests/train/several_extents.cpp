#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <nn/small_text.hpp>
#include <support/block_states.hpp>
#include <support/wave_training.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/threads/transport.hpp>
#include <pulse/train/trainer.hpp>
#include <pulse/tune/plan_for.hpp>
#include <pulse/zoo/ddpm.hpp>
#include <pulse/zoo/stable_diffusion.hpp>

using namespace pulse;
using namespace pulse::test;

namespace {

constexpr int batch = 12;

/// Steps of three extents, ordered so that each extent follows each, including itself.
struct mixed_task : wave_task {
    [[nodiscard]] static std::size_t extent_at(std::uint64_t first) {
        constexpr std::size_t order[]{0, 1, 1, 2, 0, 2, 2, 1, 0, 0};
        return order[first / batch % std::size(order)];
    }
};

[[nodiscard]] plan_request asked(int pipeline, int data, bool split, std::vector<extent_share> extents) {
    return {.devices = pipeline * data,
            .global_batch = batch,
            .device = cpu_core,
            .extents = std::move(extents),
            .pipeline_degree = pipeline,
            .data_degree = data,
            .waves = 1,
            .microbatch_size = 2,
            .placement = placement::folded,
            .split_backward = split,
            .seconds = 0.0};
}

/// Losses of all steps and weights of each layer, from one trainer per extent; the trainers pass on their state.
template <class Model>
trained trained_in_turn(const std::vector<extent_share>& extents, int steps) {
    trained all;
    threads::run_ranks(1, {}, [&](threads::transport& alone) {
        std::vector<std::unique_ptr<trainer<Model, wave_math>>> each;
        for (const extent_share& one : extents) {
            plan_request of_one = asked(1, 1, false, {});
            of_one.split_backward.reset();
            of_one.extent = one.extent;
            each.push_back(std::make_unique<trainer<Model, wave_math>>(
                alone, plan_for<Model, wave_math>(of_one),
                trainer_options{.seed = 3, .learning_rate = {.peak = 1e-2}}));
        }
        wave_task data;
        auto state = read_states(*each.front());
        for (int s = 0; s != steps; ++s) {
            const auto first = static_cast<std::uint64_t>(s) * batch;
            auto& now = *each[mixed_task::extent_at(first)];
            set_states(now, state, s, first);
            all.losses.push_back(now.step(data).loss);
            state = read_states(now);
            auto& owned = now.runner().parameters();
            for (const auto& b : owned.blocks()) {
                all.weights[b.layer].assign(owned.values_of(b.layer).begin(), owned.values_of(b.layer).end());
            }
        }
    });
    return all;
}

/// The same from a single trainer on the ranks of a plan, within the planned memory.
template <class Model>
trained trained_together(const planned& made, int steps) {
    const std::vector<std::int64_t> planned_bytes = peak_bytes(made);
    trained all;
    std::mutex mutex;
    threads::run_ranks(made.plan.pipeline_degree * made.plan.data_degree, {}, [&](threads::transport& transport) {
        trainer<Model, wave_math> rank{transport, made, {.seed = 3, .learning_rate = {.peak = 1e-2}}};
        mixed_task data;
        std::vector<double> losses;
        for (int s = 0; s != steps; ++s) { losses.push_back(rank.step(data).loss); }
        const std::lock_guard lock{mutex};
        auto& owned = rank.runner().parameters();
        for (const auto& b : owned.blocks()) {
            all.weights[b.layer].assign(owned.values_of(b.layer).begin(), owned.values_of(b.layer).end());
        }
        all.losses = losses;
        CHECK(rank.bytes() == planned_bytes[static_cast<std::size_t>(rank.runner().place().device)]);
    });
    return all;
}

template <class Model>
void check_mixed(const std::vector<extent_share>& extents, std::initializer_list<int> degrees) {
    const trained want = trained_in_turn<Model>(extents, 9);
    for (const int ranks : degrees) {
        for (const bool split : {false, true}) {
            if (ranks == 1 && split) { continue; }
            CAPTURE(ranks);
            CAPTURE(split);
            plan_request request = asked(ranks, 1, split, extents);
            if (ranks == 1) { request.split_backward.reset(); }
            const trained found = trained_together<Model>(plan_for<Model, wave_math>(request), 9);
            CHECK((found == want));
        }
    }
}

} // namespace

TEST_CASE("steps of several extents have the bits of a trainer for each, on folded ranks in the planned memory") {
    check_mixed<sd_tiny>({{{4, 12}, 1}, {{8, 8}, 2}, {{12, 4}, 1}}, {1, 2});
    check_mixed<small_projected>({{{4, 4}, 1}, {{2, 6}, 1}, {{6, 2}, 1}}, {2});
    check_mixed<ddpm_tiny>({{{14, 2}, 1}, {{4, 4}, 1}, {{2, 12}, 3}}, {2, 3});
}

TEST_CASE("replicas run steps of several extents with the bits of each other plan of as many replicas") {
    const std::vector<extent_share> extents{{{4, 8}, 1}, {{8, 8}, 1}, {{8, 4}, 1}};
    const trained one = trained_together<ddpm_tiny>(plan_for<ddpm_tiny, wave_math>(asked(1, 2, false, extents)), 6);
    const trained two = trained_together<ddpm_tiny>(plan_for<ddpm_tiny, wave_math>(asked(2, 2, true, extents)), 6);
    CHECK(one.losses == two.losses);
    CHECK(one.losses.back() != one.losses.front());
}

TEST_CASE("a plan of several extents has one cut, a valid order for each, and no extent slower than the shared order") {
    const std::vector<extent_share> extents{{{8, 24}, 1}, {{16, 16}, 5}, {{24, 8}, 2}};
    plan_request request = asked(2, 1, true, extents);
    const tuning found = plan_for<sd_tiny, wave_math>(request);
    REQUIRE(found.extents() == 3);
    CHECK(found.share == 1.0 / 8);
    std::size_t e = 0;
    double shares = 0;
    found.each_extent([&](const extent& to, const plan& made, const cost_table& costs, double share) {
        CHECK(to == extents[e++].extent);
        CHECK(made.cut == found.plan.cut);
        CHECK(made.microbatches == found.plan.microbatches);
        const auto graph = graph_of<sd_tiny>(resize<sd_tiny>(to));
        CHECK(costs == analytic_costs(graph.view(), cpu_core, 2, sizeof(float)));
        const step_model model{made, costs};
        CHECK(check(made, model, lower(made, model)).ok());
        CHECK(made.predicted.step_us >= made.predicted.lower_bound_us * (1 - 1e-9));
        shares += share;
    });
    CHECK(shares == doctest::Approx(1));
    // The memory for all extents has room for each, and is less than the sum of their needs.
    const std::vector<std::int64_t> all = peak_bytes(found);
    for (const std::size_t d : {0U, 1U}) {
        std::int64_t most = 0;
        std::int64_t sum = 0;
        found.each_extent([&](const extent&, const plan& made, const cost_table& costs, double) {
            const std::int64_t own = peak_bytes(made, costs, found.kept)[d];
            most = std::max(most, own);
            sum += own;
        });
        CHECK(all[d] >= most);
        CHECK(all[d] < sum);
    }
    // A limit that one extent alone fits in may be too low for all.
    request.memory_limit_bytes = *std::max_element(all.begin(), all.end());
    const tuning fitting = plan_for<sd_tiny, wave_math>(request);
    for (const std::int64_t bytes : peak_bytes(fitting)) { CHECK(bytes <= request.memory_limit_bytes); }
    request.memory_limit_bytes = 1 << 20;
    CHECK_THROWS_AS(static_cast<void>(plan_for<sd_tiny, wave_math>(request)), infeasible_error);
}

TEST_CASE("mean costs have the mean of times by share and the greatest of all bytes") {
    const auto costs_at = [](const extent& to) {
        const auto graph = graph_of<ddpm_tiny>(resize<ddpm_tiny>(to));
        return analytic_costs(graph.view(), cpu_core, 2, sizeof(float));
    };
    const std::vector<cost_table> each{costs_at({4, 4}), costs_at({8, 8})};
    const cost_table mean = mean_costs(each, {{{4, 4}, 3}, {{8, 8}, 1}});
    for (std::size_t l = 0; l != mean.layers.size(); ++l) {
        const auto of = [&](std::size_t e) { return each[e].layers[l]; };
        CHECK(mean.layers[l].forward_us == doctest::Approx(0.75 * of(0).forward_us + 0.25 * of(1).forward_us));
        CHECK(mean.layers[l].backward_weight_us ==
              doctest::Approx(0.75 * of(0).backward_weight_us + 0.25 * of(1).backward_weight_us));
        CHECK(mean.layers[l].output_bytes == std::max(of(0).output_bytes, of(1).output_bytes));
        CHECK(mean.layers[l].workspace_bytes == std::max(of(0).workspace_bytes, of(1).workspace_bytes));
    }
    CHECK(mean_costs({each[0]}, {{{4, 4}, 2}}) == each[0]);
    CHECK_THROWS_AS(static_cast<void>(mean_costs({each[0], {}}, {{{4, 4}, 1}, {{8, 8}, 1}})), input_error);
}

TEST_CASE("several extents are refused where a part of the run knows of one") {
    const std::vector<extent_share> extents{{{8, 8}, 1}, {{4, 4}, 1}};
    const auto refused = [](const plan_request& request, const std::string& part) {
        try {
            static_cast<void>(plan_for<ddpm_tiny, wave_math>(request));
            FAIL("it is planned");
        } catch (const input_error& e) {
            CHECK_MESSAGE(std::string{e.what()}.find(part) != std::string::npos, e.what());
        }
    };
    refused(asked(2, 1, true, {{{8, 8}, 1}, {{4, 5}, 1}}), "4 x 5");
    refused(asked(2, 1, true, {{{8, 8}, 1}, {{4, 4}, 0}}), "share above 0");
    refused(asked(2, 1, true, {{{}, 1}}), "a height");
    const plan_request request = asked(2, 1, true, extents);
    const tuning found = plan_for<ddpm_tiny, wave_math>(request);
    CHECK_THROWS_AS(static_cast<void>(plan_for(found.costs, request)), input_error);
    threads::run_ranks(2, {}, [&](threads::transport& transport) {
        trainer<ddpm_tiny, wave_math> rank{transport, found};
        wave_task blind; // it does not name its extent
        CHECK_THROWS_AS(static_cast<void>(rank.step(blind)), input_error);
        mixed_task wild; // it asks for a third extent in its fourth step
        for (int s = 0; s != 3; ++s) { static_cast<void>(rank.step(wild)); }
        CHECK_THROWS_AS(static_cast<void>(rank.step(wild)), input_error);
        planned crooked = found;
        crooked.others.front().plan = plan_for<ddpm_tiny, wave_math>(asked(2, 1, false, {{{4, 4}, 1}})).plan;
        crooked.others.front().plan.microbatches = 2;
        CHECK_THROWS_AS((trainer<ddpm_tiny, wave_math>{transport, crooked}), input_error);
    });
}
