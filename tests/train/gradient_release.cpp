#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <io/scratch.hpp>
#include <support/block_states.hpp>
#include <support/random_plan.hpp>
#include <support/scaling_math.hpp>
#include <pulse/core/error.hpp>
#include <pulse/plan/optimizer_form.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/runtime/executor.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/threads/transport.hpp>
#include <pulse/train/optimizer_options.hpp>
#include <pulse/train/rank_optimizer.hpp>
#include <pulse/train/saving.hpp>
#include <pulse/train/trainer.hpp>

#include "trainer_runs.hpp"

namespace trainers {
namespace {

const trainer_options unclipped = [] {
    trainer_options options = usual;
    options.clip_norm = 0;
    return options;
}();

const trainer_options clipped_by_last = [] {
    trainer_options options = usual;
    options.clip_by_last_norm = true;
    return options;
}();

planned releasing(int pipeline, int replicas, int microbatches_of_step, unsigned seed, bool sharded = false,
                  const optimizer_form& form = {}) {
    planned made = draw(pipeline, replicas, seed, sharded, form);
    std::mt19937 random{seed};
    plan& p = made.plan;
    p.microbatches = microbatches_of_step;
    p.order = draw_order(p.cut, p.microbatches, p.split_backward, random);
    p.gradient_release = true;
    return made;
}

/// A plan with one microbatch in which every stage's W follows its B.
planned one_after_the_other(int pipeline, int waves) {
    planned made = draw(pipeline, 1, 1);
    plan& p = made.plan;
    std::mt19937 random{7};
    p.cut = draw_cut(made.costs, placement::folded, pipeline, waves, random);
    p.microbatches = 1;
    p.routing = skip_routing::direct;
    p.recompute = recomputation::none;
    p.order.devices.assign(static_cast<std::size_t>(pipeline), {});
    double now_us = 0;
    const auto add = [&](pass op, const stage& s) {
        p.order.devices[static_cast<std::size_t>(s.device)].push_back({op, s.index, 0, now_us, now_us + 1});
        now_us += 1;
    };
    for (const stage& s : p.cut.stages) { add(pass::forward, s); }
    for (std::size_t s = p.cut.stages.size(); s-- > 0;) {
        add(pass::backward_input, p.cut.stages[s]);
        if (p.split_backward) { add(pass::backward_weight, p.cut.stages[s]); }
    }
    p.gradient_release = true;
    return made;
}

template <class Act>
std::string error_of(const Act& act) {
    try {
        act();
    } catch (const error& e) { return e.what(); }
    return {};
}

std::int64_t parameters_of_stage(const planned& made, int stage) {
    return parameter_bytes_of(step_model{made.plan, made.costs}, stage) / 4;
}

} // namespace

TEST_CASE("a plan that releases gradients trains to the bits of one that does not, in the memory that is planned") {
    const optimizer_form forms[]{{},
                                 {.moments = moment_form::dynamic8},
                                 {.moments = moment_form::factored},
                                 {.averages = false},
                                 {.moments = moment_form::factored, .averages = false}};
    int shared = 0;
    int tried = 0;
    unsigned seed = 100;
    for (const optimizer_form& form : forms) {
        for (const int replicas : {1, 2}) {
            for (const int of_step : {1, 3}) {
                planned alone = releasing(1, replicas, of_step, 1, false, form);
                alone.plan.gradient_release = false;
                const trainer_options& options = seed % 8 == 4 ? unclipped : clipped_by_last;
                const trained want = run(alone, 3, options);
                for (const int pipeline : {1, 2, 3, 4}) {
                    const bool sharded = replicas > 1 && !form.is_factored() && pipeline % 2 == 0;
                    const planned made = releasing(pipeline, replicas, of_step, ++seed, sharded, form);
                    CAPTURE(seed);
                    CAPTURE(replicas);
                    CAPTURE(of_step);
                    CAPTURE(pipeline);
                    const std::vector<std::int64_t> bytes = peak_bytes(made);
                    planned keeping = made;
                    keeping.plan.gradient_release = false;
                    const std::vector<std::int64_t> more = peak_bytes(keeping);
                    CHECK((run(
                               made, 3,
                               [&](auto& rank, int step) {
                                   const replica_place& place = rank.runner().place();
                                   const auto device = static_cast<std::size_t>(place.device);
                                   REQUIRE(bytes[device] <= more[device]);
                                   // The last replica has the largest share of state.
                                   if (step > 0 && place.replica + 1 == place.replicas()) {
                                       REQUIRE(rank.bytes() == bytes[device]);
                                   }
                               },
                               options) == want));
                    ++tried;
                    shared += bytes != more ? 1 : 0;
                }
            }
        }
    }
    CHECK(shared > tried / 3);
}

TEST_CASE("of one microbatch, a device has the gradients of its largest stage alone") {
    for (const auto& [pipeline, waves] : {std::pair{1, 1}, {1, 2}, {2, 1}, {2, 2}}) {
        const planned made = one_after_the_other(pipeline, waves);
        planned keeping = made;
        keeping.plan.gradient_release = false;
        const std::vector<std::int64_t> bytes = peak_bytes(made);
        const std::vector<std::int64_t> more = peak_bytes(keeping);
        for (int device = 0; device != pipeline; ++device) {
            std::int64_t all = 0;
            std::int64_t most = 0;
            for (const stage& s : made.plan.cut.stages) {
                if (s.device != device) { continue; }
                const std::int64_t size = parameters_of_stage(made, s.index);
                most = std::max(most, all % 64 + size);
                all += size;
            }
            const auto d = static_cast<std::size_t>(device);
            CHECK(more[d] - bytes[d] == 4 * (all - most));
            CHECK(bytes[d] < more[d]);
        }
        CHECK((run(made, 3, unclipped) == run(keeping, 3, unclipped)));
    }
}

TEST_CASE("a run that releases gradients is resumed by one that does not, and the other way round") {
    const scratch folder;
    const trained want = run(releasing(2, 1, 3, 5), 4, clipped_by_last);
    CHECK((want.layers != run(releasing(2, 1, 3, 5), 4, unclipped).layers));
    for (const bool first : {true, false}) {
        planned before = releasing(2, 1, 3, 6);
        planned behind = releasing(4, 1, 3, 7);
        before.plan.gradient_release = first;
        behind.plan.gradient_release = !first;
        const auto save = [&](auto& rank, int step) {
            if (step == 2) { static_cast<void>(rank.save(folder.path)); }
        };
        const auto resume = [&](auto& rank, int step) {
            if (step == 0) { rank.resume(folder.path); }
        };
        run(before, 2, save, clipped_by_last);
        CHECK((run(behind, 2, resume, clipped_by_last).layers == want.layers));
    }
}

TEST_CASE("clipping by the last norm leaves the first step alone and scales the next by the norm before it") {
    // A norm of 4 halves the next gradient, a norm of 1 is within the limit: scaling by a half loses no bits.
    const float norms[]{4, 1, 4, 4};
    const float scales[]{1, 0.5F, 1, 0.5F};
    const std::vector<int> layers{0};
    const std::vector<std::int64_t> elements{4};
    rank_parameters<float> clipped{layers, elements}, plain{layers, elements};
    train::optimizer_options options{.clip_norm = 2, .clip_by_last_norm = true};
    train::rank_optimizer by_last{1, 1, clipped, options};
    train::rank_optimizer alone{1, 1, plain, {}};
    threads::run_ranks(1, {}, [&](threads::transport& transport) {
        for (int s = 0; s != 4; ++s) {
            clipped.gradients()[1] = norms[s];
            plain.gradients()[1] = norms[s] * scales[s];
            CHECK(by_last.step(clipped, transport, s + 1, 1e-2, {}, false).gradient_norm == norms[s]);
            static_cast<void>(alone.step(plain, transport, s + 1, 1e-2, {}, false));
            CHECK(std::ranges::equal(clipped.values(), plain.values()));
            CHECK(std::ranges::equal(by_last.second_moment(), alone.second_moment()));
        }
    });
    CHECK(plain.values()[1] != 0);
}

TEST_CASE("a trainer that releases gradients refuses what needs all of them before an update") {
    const planned made = releasing(1, 1, 1, 3);
    const auto refused = [&]<class B>(const B*, const trainer_options& options) {
        return error_of([&] {
            threads::run_ranks(1, {}, [&](threads::transport& transport) {
                trainer<net, B> rank{transport, made, options};
            });
        });
    };
    CHECK(refused(static_cast<const math*>(nullptr), usual) ==
          "rank_optimizer: gradient_release needs clip_norm 0 or clip_by_last_norm: the step's own norm is known only "
          "after its gradients are released");
    CHECK(
        refused(static_cast<const scaling_math*>(nullptr), unclipped) ==
        "rank_optimizer: gradient_release cannot be used with loss scaling: a step whose gradients overflow must leave "
        "the weights unchanged");
}

TEST_CASE("a task without update(stage) runs no plan that releases gradients") {
    struct plain_task : sine_task {
        std::vector<double> losses = std::vector<double>(microbatches);
        math* on{};

        [[nodiscard]] work<math> at(int m) { return {m, batch, 0, batch, losses.data() + m, on}; }
        const float* timesteps(int m) { return sine_task::timesteps(at(m)); }
        void input(int m, float* x) { sine_task::input(at(m), {x, 1}); }
        void loss(int, const float*, float*) {}
        void optimize() {}
    };
    const planned made = releasing(1, 1, 1, 3);
    threads::run_ranks(1, {}, [&](threads::transport& transport) {
        math on;
        executor<net, math> ran{on, transport, made};
        plain_task task;
        CHECK(error_of([&] { ran.step(task); }) ==
              "pulse: the plan releases gradients, so the task of this run must have update(stage)");
    });
}

TEST_CASE("gradients that are released and not finite are told on every rank, with what has become of the weights") {
    const planned made = releasing(2, 1, 3, 4);
    threads::run_ranks(2, {}, [&](threads::transport& transport) {
        trainer<net, math> rank{transport, made, unclipped};
        sine_task data;
        rank.step(data);
        const std::vector<train::rank_state> before = read_states(rank);
        data.spoilt = 2 * batch + 3 * batch; // the last microbatch of the second step
        std::string text;
        try {
            rank.step(data);
        } catch (const train::not_finite_error& e) { text = e.what(); }
        CHECK(text == "step 2: the loss of microbatch 2 is not finite: a smaller learning rate may help; the step has "
                      "already changed weights, because it releases gradients");
        const std::string lost =
            "a step that was not finite has changed weights, because the plan releases gradients: to "
            "go on, resume from a checkpoint";
        CHECK(error_of([&] { rank.step(data); }) == lost);
        CHECK(error_of([&] { static_cast<void>(rank.read_state()); }) == lost);
        set_states(rank, before, 1, 4 * batch);
        data.spoilt = sine_task{}.spoilt;
        CHECK(error_of([&] { rank.step(data); }) == "");
    });
}

} // namespace trainers
