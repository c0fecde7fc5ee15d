#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <io/scratch.hpp>
#include <support/random_plan.hpp>
#include <support/scaling_math.hpp>
#include <support/toy_model.hpp>
#include <support/wave.hpp>
#include <pulse/hardware/clusters.hpp>
#include <pulse/plan/kept_by.hpp>
#include <pulse/plan/optimizer_form.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/threads/transport.hpp>
#include <pulse/train/cascade_trainer.hpp>
#include <pulse/train/saving.hpp>
#include <pulse/train/trainer.hpp>
#include <pulse/tune/cascade_plan.hpp>

namespace cascade_trainers {

namespace {

using namespace pulse;
using namespace pulse::test;

using one_net = toy_model<1, 18, wiring::nested, true>;
using other_net = toy_model<2, 18, wiring::crossing, false>;
using math = reference::backend<float>;

constexpr int batch = 2;
constexpr int microbatches = 3;
constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();

/// Samples the wave at a different place for each backbone. It may spoil a sample, and multiply its loss.
struct wave_task {
    std::uint64_t shift{};
    std::uint64_t spoilt = none;
    float factor = 1;
    std::vector<float> times = std::vector<float>(microbatches * batch);

    template <class B>
    [[nodiscard]] work<B> shifted(work<B> at) const {
        at.first_sample += shift;
        return at;
    }
    template <class B>
    [[nodiscard]] const float* timesteps(const work<B>& at) {
        float* const mine = times.data() + at.microbatch * batch;
        for (int s = 0; s != batch; ++s) { mine[s] = static_cast<float>(at.first_sample) + static_cast<float>(s); }
        return mine;
    }
    template <class B>
    void input(const work<B>& at, std::span<float> x) const {
        wave{}.input(shifted(at), x);
        if (at.first_sample == spoilt) { x[1] = std::numeric_limits<float>::quiet_NaN(); }
    }
    template <class B>
    void loss(const work<B>& at, std::span<const float> y, std::span<float> dy) const {
        wave{}.loss(shifted(at), y, dy);
        for (float& d : dy) { d *= factor; }
    }
};
wave_task task_of(bool second, float factor = 1) { return {.shift = second ? 500U : 0U, .factor = factor}; }

/// The results of one backbone, independent of the plan: weights, moments and average of every layer, and the steps.
struct trained {
    std::map<int, std::vector<std::vector<float>>> layers{};
    std::vector<std::vector<double>> steps{};
    [[nodiscard]] bool operator==(const trained&) const = default;

    template <class Parameters>
    void keep(const Parameters& owned, const train::rank_state& now) {
        const bool factored = now.first_moment.empty();
        std::size_t mean = 0;
        for (const auto& block : owned.blocks()) {
            const auto add = [&](const std::vector<float>& all, std::size_t at, std::size_t size) {
                const auto first = all.begin() + static_cast<std::ptrdiff_t>(at);
                layers[block.layer].emplace_back(first, first + static_cast<std::ptrdiff_t>(size));
            };
            add(now.weights, block.first, block.size);
            add(now.average, block.first, block.size);
            if (!factored) {
                add(now.first_moment, block.first, block.size);
                add(now.second_moment, block.first, block.size);
                continue;
            }
            std::size_t means = 0;
            for (const auto& t : owned.tensors()) {
                const bool inside = t.first >= block.first && t.first < block.first + block.size;
                if (inside) { means += factored_elements(t.size, t.rows); }
            }
            add(now.second_moment, mean, means);
            mean += means;
        }
        REQUIRE((!factored || mean == now.second_moment.size()));
    }
    [[nodiscard]] trained from(std::size_t step) const {
        return {layers, {steps.begin() + static_cast<std::ptrdiff_t>(step), steps.end()}};
    }
};
std::vector<double> numbers_of(const train::step_outcome& o) {
    return {o.loss, o.gradient_norm, o.skipped ? 1.0 : 0.0, o.loss_scale};
}

const trainer_options usual{
    .seed = 3, .learning_rate = {.peak = 1e-2, .warmup_steps = 2}, .clip_norm = 0.05, .average_decay = 0.9};

template <class Model>
[[nodiscard]] cost_table costs_of() {
    return blank_costs(graph_of<Model>().view(), batch, sizeof(float));
}
template <class Model>
[[nodiscard]] planned lone_plan(const optimizer_form& form = {}) {
    std::mt19937 random{1};
    planned made;
    made.costs = costs_of<Model>();
    made.kept = kept_by<Model, math>(false, form);
    made.plan.split_backward = false;
    made.plan.microbatches = microbatches;
    made.plan.microbatch_size = batch;
    made.plan.cut = draw_cut(made.costs, placement::sequential, 1, 1, random);
    made.plan.order = draw_order(made.plan.cut, microbatches, false, random);
    return made;
}
template <class Model, class B = math>
[[nodiscard]] trained train_alone(bool second, int steps, const trainer_options& options = usual,
                                  const optimizer_form& form = {}, float factor = 1) {
    trained all;
    threads::run_ranks(1, {}, [&](threads::transport& transport) {
        trainer<Model, B> rank{transport, lone_plan<Model>(form), options};
        wave_task data = task_of(second, factor);
        for (int s = 0; s != steps; ++s) { all.steps.push_back(numbers_of(rank.step(data))); }
        all.keep(rank.runner().parameters(), rank.read_state());
    });
    return all;
}

/// The times of a layer's passes are random, so that cuts and orders differ.
template <class First = one_net, class Second = other_net>
[[nodiscard]] planned draw(int ranks, unsigned seed, const optimizer_form& form = {}) {
    std::mt19937 random{seed};
    const auto timed = [&](cost_table costs) {
        std::uniform_real_distribution<> time{1.0, 9.0};
        for (layer_cost& layer : costs.layers) {
            layer.forward_us = time(random);
            layer.backward_input_us = time(random);
            layer.backward_weight_us = time(random);
        }
        return costs;
    };
    tune_candidate c;
    c.pipeline_degree = ranks;
    c.microbatches = microbatches;
    c.microbatch_size = batch;
    c.split_backward = seed % 2 == 1;
    c.routing = static_cast<skip_routing>(seed / 2 % 2);
    c.recompute = static_cast<recomputation>(seed % 3);
    candidate_options options;
    options.kept = kept_by<cascade<First, Second>, math>(false, form);
    const cost_table first = timed(costs_of<First>());
    return plan_cascade(first, timed(costs_of<Second>()), c, one_node(ranks, pulse::link{}), options);
}

struct both {
    trained first{};
    trained second{};
    [[nodiscard]] bool operator==(const both&) const = default;
    [[nodiscard]] both from(std::size_t step) const { return {first.from(step), second.from(step)}; }
};
template <class B = math>
[[nodiscard]] both train_each(int steps, const trainer_options& options = usual, const optimizer_form& form = {},
                              float factor = 1) {
    return {train_alone<one_net, B>(false, steps, options, form),
            train_alone<other_net, B>(true, steps, options, form, factor)};
}

template <class B = math>
using cascade_of = cascade_trainer<one_net, other_net, B>;

/// `each(trainer, step)` is called before every step, and once after the last.
template <class B = math, class Each>
[[nodiscard]] both run(const planned& made, int steps, const Each& each, const trainer_options& options = usual,
                       float factor = 1) {
    both all;
    std::mutex mutex;
    threads::run_ranks(made.plan.pipeline_degree, {}, [&](threads::transport& transport) {
        cascade_of<B> rank{transport, made, options};
        wave_task first = task_of(false);
        wave_task second = task_of(true, factor);
        both mine;
        for (int s = 0; s != steps; ++s) {
            each(rank, s);
            const auto done = rank.step(first, second, s == 1 && transport.rank() == 0);
            REQUIRE(done.stop == (s == 1));
            mine.first.steps.push_back(numbers_of(done.first));
            mine.second.steps.push_back(numbers_of(done.second));
        }
        each(rank, steps);
        const auto now = std::pair{rank.first().read_state(), rank.second().read_state()};
        const std::lock_guard lock{mutex};
        REQUIRE((all.first.steps.empty() || all.first.steps == mine.first.steps));
        REQUIRE((all.second.steps.empty() || all.second.steps == mine.second.steps));
        all.first.steps = mine.first.steps;
        all.second.steps = mine.second.steps;
        all.first.keep(rank.first().parameters(), now.first);
        all.second.keep(rank.second().parameters(), now.second);
    });
    return all;
}

constexpr auto nothing = [](auto&, int) {};

/// Removes the stage's number, which depends on the plan, from the text.
std::string without_stage(std::string text) {
    const std::size_t at = text.find("(stage ");
    return at == std::string::npos ? text : text.erase(at + 1, text.find(", ", at) - at - 1);
}

/// The error that every rank of a cascade gets in its second step, which must change nothing.
template <class Spoil>
std::vector<std::string> told(const planned& made, const both& want, const Spoil& spoil) {
    std::vector<std::string> said;
    std::mutex mutex;
    both all;
    threads::run_ranks(made.plan.pipeline_degree, {}, [&](threads::transport& transport) {
        cascade_of<> rank{transport, made, usual};
        wave_task first = task_of(false);
        wave_task second = task_of(true);
        static_cast<void>(rank.step(first, second));
        wave_task bad_first = first;
        wave_task bad_second = second;
        spoil(bad_first, bad_second);
        std::string text;
        try {
            static_cast<void>(rank.step(bad_first, bad_second));
        } catch (const train::not_finite_error& e) { text = e.what(); }
        const auto now = std::pair{rank.first().read_state(), rank.second().read_state()};
        static_cast<void>(rank.step(first, second));
        const auto after = std::pair{rank.first().read_state(), rank.second().read_state()};
        const std::lock_guard lock{mutex};
        said.push_back(text);
        REQUIRE(now.first.weights != after.first.weights);
        all.first.keep(rank.first().parameters(), after.first);
        all.second.keep(rank.second().parameters(), after.second);
    });
    CHECK((all.first.layers == want.first.layers));
    CHECK((all.second.layers == want.second.layers));
    return said;
}

} // namespace

TEST_CASE("both backbones of a cascade train as trainers of each alone, bit for bit, over drawn plans") {
    for (const moment_form moments : {moment_form::float32, moment_form::dynamic8, moment_form::factored}) {
        const optimizer_form form{.moments = moments, .averages = moments != moment_form::dynamic8};
        const both want = train_each(4, usual, form);
        CHECK(want.first.steps.back()[0] < want.first.steps.front()[0]);
        CHECK(want.second.steps.back()[0] < want.second.steps.front()[0]);
        for (unsigned seed = 0; seed != 18; ++seed) {
            CAPTURE(seed);
            const planned made = draw(1 + static_cast<int>(seed / 6), seed, form);
            const std::vector<std::int64_t> bytes = peak_bytes(made);
            const both found = run(made, 4, [&](auto& rank, int step) {
                if (step == 1) {
                    REQUIRE(rank.bytes() == bytes[static_cast<std::size_t>(rank.runner().place().device)]);
                }
                REQUIRE(rank.steps() == step);
                REQUIRE(rank.step_samples() == batch * microbatches);
                REQUIRE(rank.samples() == static_cast<std::uint64_t>(step) * batch * microbatches);
            });
            CHECK((found == want));
        }
    }
}

TEST_CASE("an evaluation of a cascade gives the losses of the step that would follow, and changes nothing") {
    const both want = train_each(3);
    for (unsigned seed = 0; seed != 9; ++seed) {
        CAPTURE(seed);
        std::mutex mutex;
        const both found = run(draw(1 + static_cast<int>(seed % 3), seed + 20), 3, [&](auto& rank, int step) {
            wave_task first = task_of(false);
            wave_task second = task_of(true);
            const auto later = rank.evaluate(first, second, 36);
            const auto next = rank.evaluate(first, second, rank.samples());
            const std::lock_guard lock{mutex};
            REQUIRE(later.first != next.first);
            REQUIRE(later.second != next.second);
            if (step == 3) { return; }
            REQUIRE(next.first == want.first.steps[static_cast<std::size_t>(step)][0]);
            REQUIRE(next.second == want.second.steps[static_cast<std::size_t>(step)][0]);
        });
        CHECK((found == want));
    }
}

TEST_CASE("a cascade that is resumed goes on bit for bit under another plan, and from no other run's checkpoint") {
    const both want = train_each(4);
    const scratch folder;
    const scratch lone;
    const auto save = [&](auto& rank, int step) {
        if (step == 2) { rank.save(folder.path); }
    };
    static_cast<void>(run(draw(2, 40), 3, save));
    const auto resume = [&](auto& rank, int step) {
        if (step == 0) { rank.resume(folder.path); }
        REQUIRE(rank.steps() == step + 2);
        REQUIRE(rank.samples() == static_cast<std::uint64_t>(step + 2) * batch * microbatches);
    };
    for (const int ranks : {1, 2, 3}) {
        CAPTURE(ranks);
        CHECK((run(draw(ranks, 41), 2, resume) == want.from(2)));
    }
    const optimizer_form factored{.moments = moment_form::factored};
    const both means = train_each(4, usual, factored);
    static_cast<void>(run(draw(2, 43, factored), 3, save));
    for (const int ranks : {1, 3}) { CHECK((run(draw(ranks, 41, factored), 2, resume) == means.from(2))); }
    trainer_options other = usual;
    other.config = {{"data", "other"}};
    CHECK_THROWS_WITH_AS(static_cast<void>(run(draw(1, 41), 1, resume, other)),
                         doctest::Contains("its run had data unset"), input_error);

    const auto refused = [](const auto& act, const char* what) {
        CHECK_THROWS_WITH_AS(threads::run_ranks(1, {}, act), doctest::Contains(what), input_error);
    };
    refused(
        [&](threads::transport& transport) {
            trainer<one_net, math> rank{transport, lone_plan<one_net>(), usual};
            rank.save(lone.path);
            rank.resume(folder.path);
        },
        "tensor 'condition.weight' is missing");
    refused(
        [&](threads::transport& transport) {
            cascade_of<> rank{transport, draw(1, 42), usual};
            rank.resume(lone.path);
        },
        "tensor 'first.condition.weight' is missing");
    refused(
        [&](threads::transport& transport) {
            cascade_trainer<one_net, one_net, math> rank{transport, draw<one_net, one_net>(1, 42), usual};
            rank.resume(folder.path);
        },
        "tensor 'second.");
}

TEST_CASE("each backbone of a cascade has a loss scale of its own, which leaves out its own steps, and is kept") {
    trainer_options scaled = usual;
    scaled.loss_scale = {.initial = 0x1p100};
    constexpr float loud = 0x1p36F; // beyond any float with that scale
    const both want = train_each<scaling_math>(16, scaled, {}, loud);
    const auto skips = [](const trained& of) {
        return std::count_if(of.steps.begin(), of.steps.end(), [](const auto& step) { return step[2] != 0; });
    };
    CHECK(skips(want.first) == 0);
    CHECK(skips(want.second) > 2);
    CHECK(skips(want.second) < 14);
    CHECK((run<scaling_math>(draw(2, 50), 16, nothing, scaled, loud) == want));

    const scratch folder;
    const auto save = [&](auto& rank, int step) {
        if (step == 3) { rank.save(folder.path); }
    };
    const auto resume = [&](auto& rank, int step) {
        if (step != 0) { return; }
        rank.resume(folder.path);
        REQUIRE(rank.first().loss_scale().now().skipped_steps == 0);
        REQUIRE(rank.first().loss_scale().now().good_steps == 3);
        REQUIRE(rank.second().loss_scale().now().skipped_steps == 3);
    };
    static_cast<void>(run<scaling_math>(draw(3, 51), 3, save, scaled, loud));
    CHECK((run<scaling_math>(draw(2, 52), 13, resume, scaled, loud) == want.from(3)));
}

TEST_CASE("what is not finite in one backbone of a cascade is named on every rank, and neither has changed") {
    const both want = train_each(2);
    constexpr std::uint64_t sample = (microbatches + 1) * batch; // of microbatch 1 of step 2
    for (unsigned seed = 60; seed != 66; ++seed) {
        CAPTURE(seed);
        const planned made = draw(1 + static_cast<int>(seed % 3), seed);
        const std::string loss = "the loss of microbatch 1 is not finite: a smaller learning rate may help";
        const std::string input = "; the model's input (, microbatch 1) is the first that is not finite";
        const auto check = [&](const std::vector<std::string>& said, const std::string& text) {
            CHECK(said.size() == static_cast<std::size_t>(made.plan.pipeline_degree));
            for (const std::string& s : said) { CHECK(without_stage(s) == "step 2: " + text); }
        };
        const std::string first = "first backbone 'toy': " + loss;
        const std::string second = "second backbone 'toy': " + loss;
        check(told(made, want, [&](wave_task&, wave_task& b) { b.spoilt = sample; }), second + input);
        check(told(made, want, [&](wave_task& a, wave_task&) { a.spoilt = sample; }), first + input);
        check(told(made, want, [&](wave_task& a, wave_task& b) { a.spoilt = b.spoilt = sample; }),
              first + input + "; " + second);
    }
}

TEST_CASE("a layer of a cascade's second backbone is named as in a trainer of it alone") {
    const auto spoil = [](auto& part) {
        train::rank_state now = part.read_state();
        for (const auto& block : part.parameters().blocks()) {
            if (block.layer == 7) { now.weights[block.first] = std::numeric_limits<float>::infinity(); }
        }
        part.start(now.weights);
    };
    std::string want;
    threads::run_ranks(1, {}, [&](threads::transport& transport) {
        trainer<other_net, math> rank{transport, lone_plan<other_net>(), usual};
        train::rank_state now = rank.read_state();
        now.weights[rank.runner().parameters().of(7).first] = std::numeric_limits<float>::infinity();
        rank.start(now.weights);
        wave_task data = task_of(true);
        try {
            static_cast<void>(rank.step(data));
        } catch (const train::not_finite_error& e) { want = without_stage(e.what()); }
    });
    CHECK(want.find("the output of layer 'l7'") != std::string::npos);
    want.insert(std::string{"step 1: "}.size(), "second backbone 'toy': ");
    for (unsigned seed = 70; seed != 73; ++seed) {
        const planned made = draw(1 + static_cast<int>(seed % 3), seed);
        threads::run_ranks(made.plan.pipeline_degree, {}, [&](threads::transport& transport) {
            cascade_of<> rank{transport, made, usual};
            spoil(rank.second());
            wave_task first = task_of(false);
            wave_task second = task_of(true);
            std::string text;
            try {
                static_cast<void>(rank.step(first, second));
            } catch (const train::not_finite_error& e) { text = without_stage(e.what()); }
            REQUIRE(text == want);
        });
    }
}

} // namespace cascade_trainers
