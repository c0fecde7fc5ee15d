#include <pulse/frozen/plan_for.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/data/aspect_buckets.hpp>
#include <pulse/data/bucket_order.hpp>
#include <pulse/frozen/options.hpp>
#include <pulse/frozen/picture_source.hpp>
#include <pulse/frozen/pictures.hpp>
#include <pulse/frozen/pictures_task.hpp>
#include <pulse/frozen/tasks.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/io/png.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/onednn/backend.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/plan/kept_by.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/planned.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/analytic_frozen.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/profile/frozen_component.hpp>
#include <pulse/runtime/executor.hpp>
#include <pulse/threads/transport.hpp>
#include <pulse/tune/frozen_mode.hpp>
#include <pulse/tune/plan_for.hpp>
#include <pulse/tune/plan_request.hpp>
#include <pulse/tune/tuning.hpp>
#include <pulse/zoo/frozen_graphs.hpp>
#include <pulse/zoo/frozen_networks.hpp>
#include <pulse/zoo/sdxl.hpp>
#include <pulse/zoo/stable_diffusion.hpp>

#include <data/pictures.hpp>
#include <io/scratch.hpp>

namespace {

using namespace pulse;
using on_cpu = onednn::backend;
using task = pictures_task<sd_tiny, on_cpu>;

[[nodiscard]] plan_request asked(frozen_mode mode) {
    return {.devices = 2, .global_batch = 8, .device = cpu_core, .pipeline_degree = 2, .frozen = mode, .seconds = 0};
}

[[nodiscard]] bool has_tasks(const tuning& found) {
    return std::ranges::any_of(found.plan.frozen_tasks, [](const auto& of_device) { return !of_device.empty(); });
}

[[nodiscard]] std::int64_t most_memory(const tuning& found) {
    return std::ranges::max(found.plan.predicted.peak_memory_bytes);
}

[[nodiscard]] std::string refusal(const plan_request& request, const pictures_options& options) {
    try {
        static_cast<void>(plan_for<sd_tiny, on_cpu>(request, options));
    } catch (const error& e) { return e.what(); }
    return {};
}

} // namespace

TEST_CASE("plans for pictures have the frozen networks as tasks, beside the stages that read them, or nowhere") {
    for (const frozen_mode mode : {frozen_mode::tuned, frozen_mode::bubbles, frozen_mode::first}) {
        CAPTURE(std::string{name_of(mode)});
        const tuning found = plan_for<sd_tiny, on_cpu>(asked(mode), pictures_options{});
        CHECK(has_tasks(found));
        CHECK(found.kept == kept_by<sd_tiny, on_cpu>());
        CHECK(task::tasks::fits(found.costs.frozen, {frozen::extents_of<sd_tiny>({})}));
    }
    const tuning before = plan_for<sd_tiny, on_cpu>(asked(frozen_mode::none), pictures_options{});
    CHECK_FALSE(has_tasks(before));
    CHECK(before.kept.beside_first_stage == task::first_stage_bytes({frozen::extents_of<sd_tiny>({})}));
    CHECK(before.kept.beside_last_stage == task::last_stage_bytes({frozen::extents_of<sd_tiny>({})}));
    CHECK(before.assumptions.back() ==
          "frozen networks encode before each step, which the step's time does not include");

    for (const frozen_mode mode : {frozen_mode::tuned, frozen_mode::none}) {
        const tuning cached = plan_for<sd_tiny, on_cpu>(asked(mode), pictures_options{.cache = "cache"});
        CHECK_FALSE(has_tasks(cached));
        CHECK(cached.kept == kept_by<sd_tiny, on_cpu>());
        CHECK(most_memory(cached) < most_memory(before));
    }
    CHECK(refusal(asked(frozen_mode::bubbles), {.cache = "cache"}) ==
          "frozen bubbles: cannot be combined with cache, with which steps encode nothing");
    CHECK(refusal({.devices = 2, .global_batch = 8}, {}) == "device: must be given when there are no measured costs");
}

TEST_CASE("a memory limit counts the frozen networks, and tasks that it has no room for run before each step") {
    const pictures_options each_step{};
    const pictures_options cached{.cache = "cache"};
    const auto request = [](frozen_mode mode, std::int64_t limit) {
        plan_request made = asked(mode);
        made.memory_limit_bytes = limit;
        return made;
    };
    const auto least = [&](frozen_mode mode, const pictures_options& options) {
        std::int64_t below = 0;
        std::int64_t enough = 2 << 20;
        while (enough - below > 1 << 12) {
            const std::int64_t middle = (below + enough) / 2;
            (refusal(request(mode, middle), options).empty() ? enough : below) = middle;
        }
        return enough;
    };
    const std::int64_t alone = least(frozen_mode::none, cached);
    const std::int64_t before = least(frozen_mode::none, each_step);
    const std::int64_t tasks = least(frozen_mode::bubbles, each_step);
    CHECK(alone < before);
    REQUIRE(before < tasks);
    CHECK(has_tasks(plan_for<sd_tiny, on_cpu>(request(frozen_mode::tuned, tasks), each_step)));
    const tuning found = plan_for<sd_tiny, on_cpu>(request(frozen_mode::tuned, before), each_step);
    CHECK_FALSE(has_tasks(found));
    CHECK(found.kept.beside_first_stage == task::first_stage_bytes({frozen::extents_of<sd_tiny>({})}));
    CHECK(found.assumptions.back().find("the step's time does not include; as tasks: ") != std::string::npos);
    for (const frozen_mode mode : {frozen_mode::bubbles, frozen_mode::first}) {
        CHECK_THROWS_AS(static_cast<void>(plan_for<sd_tiny, on_cpu>(request(mode, before), each_step)),
                        infeasible_error);
    }
    CHECK_THROWS_AS(static_cast<void>(plan_for<sd_tiny, on_cpu>(request(frozen_mode::tuned, alone), each_step)),
                    infeasible_error);
}

TEST_CASE("what tasks are estimated to take is what their networks take, layers behind the states too") {
    const auto all = frozen::tasks<sdxl_tiny, on_cpu>::estimated(cpu_core, {frozen::extents_of<sdxl_tiny>({})});
    const auto compare = [](const frozen_component& task, const frozen_graph& network) {
        const frozen_component whole = analytic_frozen(network, cpu_core, static_cast<int>(sizeof(float)));
        CHECK(whole.layers.size() >= task.layers.size());
        CHECK(task.duration_us(1) == doctest::Approx(whole.duration_us(1)).epsilon(1e-12));
        CHECK(task.duration_us(1) > 0);
    };
    using networks = frozen::networks_of<sdxl_tiny>;
    compare(all.front(), frozen_autoencoder<networks::encoder>());
    std::size_t next = 1;
    networks::each_text(
        [&]<class Component>(const Component*) { compare(all[next++], frozen_text<typename Component::network>()); });
    CHECK(next == all.size());
}

TEST_CASE("pictures of another size are planned at its latents' extent, with networks that are as large as it asks") {
    constexpr extent pixels{16, 40};
    const frozen::picture_extents sizes = frozen::extents_of<sd_tiny>(pixels);
    CHECK(sizes == frozen::picture_extents{pixels, {8, 20}});
    const tuning wide = plan_for<sd_tiny, on_cpu>(asked(frozen_mode::bubbles), {.size = pixels});
    CHECK(wide.extent == sizes.latents);
    CHECK(wide.costs.layers.front().forward_us > 0);
    CHECK(task::tasks::fits(wide.costs.frozen, {sizes}));
    CHECK_FALSE(task::tasks::fits(wide.costs.frozen, {frozen::extents_of<sd_tiny>({})}));
    const tuning usual = plan_for<sd_tiny, on_cpu>(asked(frozen_mode::bubbles), pictures_options{});
    CHECK(usual.extent == extent{});
    CHECK(most_memory(usual) < most_memory(wide));
    CHECK(task::last_stage_bytes({frozen::extents_of<sd_tiny>({})}) < task::last_stage_bytes({sizes}));
    CHECK(
        refusal(asked(frozen_mode::none), {.size = {16, 18}}) ==
        "model sd_tiny cannot read 16 x 18: its height must be a multiple of 4 (16), its width of 4 (16 or 20), up to "
        "32768");
    plan_request other = asked(frozen_mode::none);
    other.extent = {8, 8};
    CHECK(refusal(other, {.size = pixels}) == "extent: must be that of the pictures, which size determines");
}

TEST_CASE("tasks for pictures of several sizes take the mean time, in the memory of each") {
    using tasks = frozen::tasks<sdxl_tiny, on_cpu>;
    const frozen::picture_extents high = frozen::extents_of<sdxl_tiny>({64, 16});
    const frozen::picture_extents square = frozen::extents_of<sdxl_tiny>({24, 24});
    const auto each = [](const frozen::picture_extents& one) { return tasks::estimated(cpu_core, {one}); };
    const auto of_high = each(high);
    const auto of_square = each(square);
    const auto mean = tasks::estimated(cpu_core, {high, square}, {0.25, 0.75});
    CHECK(tasks::fits(mean, {square, high}));
    REQUIRE(of_high.front() != of_square.front());
    for (std::size_t c = 0; c != mean.size(); ++c) {
        CHECK(mean[c].result_bytes == std::max(of_high[c].result_bytes, of_square[c].result_bytes));
        CHECK(mean[c].input_bytes == std::max(of_high[c].input_bytes, of_square[c].input_bytes));
        for (std::size_t l = 0; l != mean[c].layers.size(); ++l) {
            const frozen_layer& a = of_high[c].layers[l];
            const frozen_layer& b = of_square[c].layers[l];
            CHECK(mean[c].layers[l].sample_us == doctest::Approx(0.25 * a.sample_us + 0.75 * b.sample_us));
            CHECK(mean[c].layers[l].call_us == doctest::Approx(0.25 * a.call_us + 0.75 * b.call_us));
            CHECK(mean[c].layers[l].live_bytes >= std::max(a.live_bytes, b.live_bytes));
            CHECK(mean[c].layers[l].parameter_bytes == a.parameter_bytes);
        }
    }
    const std::vector<extent_share> extents{{high.latents, 1}, {square.latents, 3}};
    plan_request request = asked(frozen_mode::bubbles);
    request.extents = extents;
    request.device = cpu_core;
    const tuning found = plan_for<sdxl_tiny, on_cpu>(request, mean);
    REQUIRE(has_tasks(found));
    std::int64_t most = 0;
    found.each_extent([&](const extent&, const plan& made, const cost_table& costs, double) {
        CHECK(costs.frozen == mean);
        CHECK(made.frozen_tasks == found.plan.frozen_tasks);
        CHECK(made.predicted.step_us >= made.predicted.lower_bound_us * (1 - 1e-9));
        const step_model model{made, costs};
        CHECK(check(made, model, lower(made, model)).ok());
        most = std::max(most, std::ranges::max(peak_bytes(made, costs, found.kept)));
    });
    CHECK(found.plan.predicted.step_us != found.others.front().plan.predicted.step_us);
    CHECK(most_memory(found) >= most);
    CHECK(peak_bytes(found) == found.plan.predicted.peak_memory_bytes);

    // Ranks could not tell what a step must encode for a step of another extent.
    planned other = found;
    std::swap(other.others.front().plan.frozen_tasks.front(), other.others.front().plan.frozen_tasks.back());
    threads::run_ranks(2, {}, [&](threads::transport& transport) {
        on_cpu math{1};
        CHECK_THROWS_WITH_AS((executor<sdxl_tiny, on_cpu>{math, transport, other}), doctest::Contains("frozen tasks"),
                             input_error);
    });
}

TEST_CASE("pictures in buckets are planned at the extents that they have, for the steps of an epoch") {
    const test::scratch folder;
    const auto put = [&](const std::string& name, int width, int height) {
        test::put(folder.path / (name + ".png"), io::encode_png(test::some_picture(width, height)));
        test::put(folder.path / (name + ".txt"), "a cat");
    };
    for (int i = 0; i != 9; ++i) { put("square" + std::to_string(i), 20, 20); }
    for (int i = 0; i != 3; ++i) { put("wide" + std::to_string(i), 40, 20); }
    put("high", 10, 44);
    pictures_options options{.data = folder.path,
                             .networks = folder.path / "none",
                             .buckets = {.area = {16, 16}, .step = 4, .least = 8, .most = 32}};
    CHECK(refusal(asked(frozen_mode::none), options).find("buckets: the steps per bucket depend on the pictures") !=
          std::string::npos);

    // A source knows the shapes without the networks.
    const frozen::picture_source source{
        options, {.size = {16, 16}, .buckets = data::bucket_sizes(options.buckets), .channels = 3}};
    CHECK(source.pictures().buckets().sizes == std::vector<extent>{{12, 20}, {16, 16}, {32, 8}});
    CHECK(source.text().find("buckets of 16 x 16 pixels by 4, 8 to 32 a side") != std::string::npos);
    const data::bucket_order order = source.pictures().order_of(4);
    CHECK(order.steps() == 5);
    const std::string said = source.bucket_report(4);
    for (const char* words : {"16 x 16", "an epoch has 5 steps", "7 samples fill"}) {
        CHECK_MESSAGE(said.find(words) != std::string::npos, said);
    }
    // Another shape changes the order.
    test::put(folder.path / "high.png", io::encode_png(test::some_picture(20, 20)));
    const frozen::picture_source other{
        options, {.size = {16, 16}, .buckets = data::bucket_sizes(options.buckets), .channels = 3}};
    CHECK(other.text() != source.text());
    options.buckets.step = 6; // 16 x 16 has a half step
    CHECK_THROWS_WITH_AS((void)pictures<sd_tiny>{options}, doctest::Contains("buckets: "), input_error);
    options.buckets.step = 4;
    options.size = {16, 16};
    CHECK_THROWS_WITH_AS((void)pictures<sd_tiny>{options}, doctest::Contains("size: "), input_error);
}
