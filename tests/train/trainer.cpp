#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <io/scratch.hpp>
#include <support/scaling_math.hpp>
#include <support/toy_model.hpp>
#include <pulse/plan/optimizer_form.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/threads/transport.hpp>
#include <pulse/train/saving.hpp>
#include <pulse/train/trainer.hpp>

#include "trainer_runs.hpp"

namespace trainers {

TEST_CASE("a trainer on one rank is a trainer on four, bit for bit, over random plans") {
    const trained want = run(draw(1, 1, 1), 4);
    CHECK(want.losses.back() < want.losses.front());
    CHECK(want.norms.front() > usual.clip_norm);
    for (unsigned seed = 2; seed != 22; ++seed) {
        CAPTURE(seed);
        CHECK((run(draw(seed % 4 == 0 ? 2 : 4, 1, seed), 4) == want));
    }
}

TEST_CASE("replicas have samples of their own, and sharing their state changes no bit") {
    const trained want = run(draw(1, 2, 1), 3);
    CHECK(want.losses != run(draw(1, 1, 1), 3).losses);
    for (unsigned seed = 2; seed != 8; ++seed) {
        CAPTURE(seed);
        CHECK((run(draw(2, 2, seed, seed % 2 == 0), 3) == want));
    }
}

TEST_CASE("replicas of a node that sum first change no bit, in the memory that is planned, and when they are resumed") {
    const trained want = run(draw(1, 4, 1), 4);
    const scratch folder;
    for (unsigned seed = 2; seed != 7; ++seed) {
        CAPTURE(seed);
        planned made = draw(seed % 2 == 0 ? 1 : 2, 4, seed, seed % 3 != 0);
        made.plan.node_replicas = 2;
        const std::vector<std::int64_t> bytes = peak_bytes(made);
        CHECK((run(made, 4, [&](auto& rank, int step) {
                   const replica_place& place = rank.runner().place();
                   if (step == 1 && place.replica == 3) {
                       REQUIRE(rank.bytes() == bytes[static_cast<std::size_t>(place.device)]);
                   }
                   if (step == 2 && seed == 4) { rank.save(folder.path); }
               }) == want));
    }
    const auto resume = [&](auto& rank, int step) {
        if (step == 0) { rank.resume(folder.path); }
    };
    planned made = draw(2, 4, 8);
    for (made.plan.node_replicas = 1; made.plan.node_replicas != 3; ++made.plan.node_replicas) {
        CHECK((run(made, 2, resume).layers == want.layers));
    }
}

TEST_CASE("an evaluation gives the loss of the step that would follow, and changes nothing") {
    for (const int replicas : {1, 2}) {
        const trained want = run(draw(1, replicas, 1), 3);
        for (unsigned seed = 2; seed != 14; ++seed) {
            CAPTURE(replicas);
            CAPTURE(seed);
            std::mutex mutex;
            std::vector<std::vector<double>> evaluated;
            const trained found =
                run(draw(seed % 4 == 0 ? 4 : 2, replicas, seed, seed % 2 == 0), 3, [&](auto& rank, int step) {
                    sine_task data;
                    std::vector<double> losses{rank.evaluate(data, 36)};
                    REQUIRE(losses.back() == rank.evaluate(data, 36));
                    if (step < 3) { losses.push_back(rank.evaluate(data, rank.samples())); }
                    const std::lock_guard lock{mutex};
                    evaluated.resize(4);
                    auto& of_step = evaluated[static_cast<std::size_t>(step)];
                    REQUIRE((of_step.empty() || of_step == losses));
                    of_step = losses;
                });
            CHECK((found == want));
            for (std::size_t s = 0; s != 3; ++s) { CHECK(evaluated[s][1] == want.losses[s]); }
            CHECK(evaluated[3][0] != evaluated[0][0]);
        }
    }
}

TEST_CASE("a trainer that is resumed goes on bit for bit, on any number of ranks, sharded or not") {
    for (const bool sharded : {false, true}) {
        const scratch folder;
        const trained want = run(draw(2, 2, 5, sharded), 4);
        const auto save = [&](auto& rank, int step) {
            if (step == 2) { rank.save(folder.path); }
        };
        CHECK(
            (run(draw(1, 2, 6, sharded), 3, save).losses == std::vector(want.losses.begin(), want.losses.begin() + 3)));
        const auto resume = [&](auto& rank, int step) {
            if (step == 0) { rank.resume(folder.path); }
            REQUIRE(rank.steps() == step + 2);
            REQUIRE(rank.samples() == static_cast<std::uint64_t>(step + 2) * batch * microbatches * 2);
        };
        for (const int ranks : {1, 2, 4}) {
            CAPTURE(ranks);
            const trained found = run(draw(ranks, 2, 7, !sharded), 2, resume);
            CHECK((found.layers == want.layers));
            CHECK(found.losses == std::vector(want.losses.begin() + 2, want.losses.end()));
        }
        trainer_options other = usual;
        other.config = {{"data", "other"}};
        CHECK_THROWS_AS(run(draw(1, 2, 7), 1, resume, other), input_error);
    }
}

TEST_CASE(
    "moments in 8 bits train to the same bits on any plan, in the memory that is planned, and when they are resumed") {
    for (const bool averages : {true, false}) {
        CAPTURE(averages);
        const optimizer_form form{.moments = moment_form::dynamic8, .averages = averages};
        const trained plain = run(draw(1, 1, 1), 4);
        const trained want = run(draw(1, 1, 1, false, form), 4);
        CHECK(want.losses.back() < want.losses.front());
        CHECK(want.losses != plain.losses);
        CHECK(want.losses.back() == doctest::Approx(plain.losses.back()).epsilon(0.02));
        const trained replicated = run(draw(1, 2, 1, false, form), 4);
        const scratch folder;
        for (unsigned seed = 2; seed != 8; ++seed) {
            CAPTURE(seed);
            const int replicas = 1 + static_cast<int>(seed % 2);
            const planned made = draw(seed % 4 < 2 ? 2 : 4, replicas, seed, seed % 3 == 0, form);
            const std::vector<std::int64_t> bytes = peak_bytes(made);
            const trained found = run(made, 4, [&](auto& rank, int step) {
                const replica_place& place = rank.runner().place();
                if (step == 1 && place.replica == replicas - 1) {
                    REQUIRE(rank.bytes() == bytes[static_cast<std::size_t>(place.device)]);
                }
                if (step == 2 && seed == 3) { rank.save(folder.path); }
            });
            CHECK((found == (replicas == 1 ? want : replicated)));
        }
        const auto resume = [&](auto& rank, int step) {
            if (step == 0) { rank.resume(folder.path); }
        };
        CHECK((run(draw(2, 2, 9, true, form), 2, resume).layers == replicated.layers));
        // A run may continue from a checkpoint of any other form.
        const trained converted = run(draw(2, 2, 9), 2, resume);
        CHECK(converted.losses[0] == replicated.losses[2]);
        CHECK(converted.layers != replicated.layers);
        if (!averages) {
            for (const auto& [layer, parts] : want.layers) { CHECK(parts[1] == parts[0]); }
        }
    }
    CHECK_THROWS_WITH_AS(draw(1, 1, 1, false, {.weights = weight_form::kahan}),
                         "optimizer: weights: kahan and stochastic need values narrower than a float", input_error);
}

TEST_CASE("factored moments train to the same bits on any plan, in the memory that is planned, and when resumed") {
    for (const bool averages : {true, false}) {
        CAPTURE(averages);
        const optimizer_form form{.moments = moment_form::factored, .averages = averages};
        const trained want = run(draw(1, 1, 1, false, form), 4);
        CHECK(want.losses.back() < want.losses.front());
        CHECK(want.losses != run(draw(1, 1, 1), 4).losses);
        const trained replicated = run(draw(1, 2, 1, false, form), 4);
        const scratch folder;
        for (unsigned seed = 2; seed != 8; ++seed) {
            CAPTURE(seed);
            const int replicas = 1 + static_cast<int>(seed % 2);
            const planned made = draw(seed % 4 < 2 ? 2 : 4, replicas, seed, false, form);
            const std::vector<std::int64_t> bytes = peak_bytes(made);
            const trained found = run(made, 4, [&](auto& rank, int step) {
                const replica_place& place = rank.runner().place();
                if (step == 1) { REQUIRE(rank.bytes() == bytes[static_cast<std::size_t>(place.device)]); }
                if (step == 2 && seed == 3) { rank.save(folder.path); }
            });
            CHECK((found == (replicas == 1 ? want : replicated)));
        }
        const auto resume = [&](auto& rank, int step) {
            if (step == 0) { rank.resume(folder.path); }
        };
        for (const int ranks : {1, 2, 4}) {
            CHECK((run(draw(ranks, 2, 9, false, form), 2, resume).layers == replicated.layers));
        }
        CHECK((run(draw(2, 2, 9), 2, resume).losses[0] == replicated.losses[2]));
    }
    CHECK_THROWS_AS(run(draw(1, 2, 1, true, {.moments = moment_form::factored}), 1), input_error);
    planned made = draw(1, 1, 1, false, {.moments = moment_form::factored});
    made.costs.layers[1].factored_elements = 0;
    CHECK_THROWS_WITH_AS(run(made, 1), doctest::Contains(": factored_elements is missing, but adafactor needs it"),
                         input_error);
}

namespace {

/// Means of the rows and columns of second moments `v`, tensor by tensor, divided by `correction`.
std::vector<double> means_of(const trainer<net, math>& rank, const std::vector<float>& v, double correction) {
    std::vector<double> all;
    std::size_t at = 0;
    for (const auto& block : rank.runner().parameters().blocks()) {
        for (const parameter& p : parameters_of<net>(block.layer)) {
            const auto n = static_cast<std::size_t>(p.elements());
            const auto rows = static_cast<std::size_t>(p.matrix_rows());
            const std::size_t columns = rows == 0 ? n : n / rows;
            const std::size_t first = all.size();
            all.resize(first + rows + columns);
            for (std::size_t i = 0; i != n; ++i, ++at) {
                const double x = static_cast<double>(v[at]) / correction;
                if (rows != 0) { all[first + i / columns] += x / static_cast<double>(columns); }
                all[first + rows + i % columns] += x / (rows == 0 ? 1.0 : static_cast<double>(rows));
            }
        }
    }
    return all;
}
void require_near(const std::vector<float>& found, const std::vector<double>& want) {
    REQUIRE(found.size() == want.size());
    for (std::size_t i = 0; i != want.size(); ++i) {
        REQUIRE(std::abs(static_cast<double>(found[i]) - want[i]) <= 1e-5 * want[i]);
    }
}
/// Factor by which AdamW's second moments are too small after `updates` updates from 0.
double correction_after(std::int64_t updates) { return 1 - std::pow(usual.adamw.beta2, static_cast<double>(updates)); }

} // namespace

TEST_CASE("moments go from AdamW's to Adafactor's without their bias, and back as the product of their means") {
    const optimizer_form factored{.moments = moment_form::factored};
    for (const auto& from :
         {std::pair{moment_form::float32, false}, {moment_form::float32, true}, {moment_form::dynamic8, false}}) {
        // Copies: clang 14 cannot capture structured bindings.
        const moment_form moments = from.first;
        const bool sharded = from.second;
        CAPTURE(static_cast<int>(moments));
        CAPTURE(sharded);
        const optimizer_form form{.moments = moments};
        const scratch begun;
        const scratch changed;
        const scratch back;
        run(draw(2, 2, 2, sharded, form), 2, [&](auto& rank, int step) {
            if (step == 2) { rank.save(begun.path); }
        });
        train::rank_state adamw;
        run(draw(1, 1, 1), 0, [&](auto& rank, int) {
            rank.resume(begun.path);
            adamw = rank.read_state();
        });
        CHECK(std::ranges::any_of(adamw.first_moment, [](float x) { return x != 0; }));
        train::rank_state means;
        run(draw(1, 1, 1, false, factored), 3, [&](auto& rank, int step) {
            if (step == 0) {
                rank.resume(begun.path);
                means = rank.read_state();
                require_near(means.second_moment, means_of(rank, adamw.second_moment, correction_after(2)));
                CHECK(means.weights == adamw.weights);
                CHECK(means.average == adamw.average);
            }
            if (step == 3) {
                rank.save(changed.path);
                means = rank.read_state();
            }
        });
        run(draw(1, 1, 1), 0, [&](auto& rank, int) {
            rank.resume(changed.path);
            const train::rank_state product = rank.read_state();
            const std::vector<double> again = means_of(rank, product.second_moment, correction_after(5));
            require_near(means.second_moment, again);
            CHECK(std::ranges::all_of(product.first_moment, [](float x) { return x == 0; }));
            CHECK(product.weights == means.weights);
            CHECK(product.average == means.average);
            rank.save(back.path);
        });
        const auto resume_from = [](const scratch& folder) {
            return [&](auto& rank, int) { rank.resume(folder.path); };
        };
        CHECK((run(draw(1, 1, 1, false, form), 0, resume_from(changed)).layers ==
               run(draw(1, 1, 1, false, form), 0, resume_from(back)).layers));
    }
}

TEST_CASE("the state of another block, or of moments in another form, is refused before anything changes") {
    for (const moment_form moments : {moment_form::float32, moment_form::factored}) {
        run(draw(1, 1, 1, false, {.moments = moments}), 1, [&](auto& rank, int step) {
            if (step != 1) { return; }
            const auto& block = rank.runner().parameters().blocks().back();
            const train::rank_state before = rank.read_state(block);
            for (const auto part : train::rank_state_parts) {
                train::rank_state other = before;
                for (float& weight : other.weights) { weight += 1; }
                (other.*part).push_back(0);
                CHECK_THROWS_WITH_AS(rank.set_state(other, block), doctest::Contains("rank_optimizer: "), input_error);
            }
            train::rank_state other = before;
            std::swap(other.first_moment, other.second_moment);
            if (moments == moment_form::factored) { CHECK_THROWS_AS(rank.set_state(other, block), input_error); }
            const train::rank_state after = rank.read_state(block);
            CHECK(after.weights == before.weights);
            CHECK(after.second_moment == before.second_moment);
            CHECK(after.average == before.average);
        });
    }
}

TEST_CASE("skipped steps do not count in the bias correction of moments that are converted to Adafactor's") {
    trainer_options scaled = usual;
    scaled.loss_scale = {.initial = 0x1p136}; // beyond any float
    const scratch folder;
    std::int64_t updates = 0;
    const auto save = [&](auto& rank, int step) {
        if (step != 20) { return; }
        rank.save(folder.path);
        updates = 20 - rank.loss_scale().now().skipped_steps;
    };
    run<scaling_math>(draw(1, 1, 4), 20, save, scaled);
    REQUIRE(updates > 0);
    REQUIRE(updates < 20);
    std::vector<float> adamw;
    run(draw(1, 1, 1), 0, [&](auto& rank, int) {
        rank.resume(folder.path);
        adamw = rank.read_state().second_moment;
    });
    run(draw(1, 1, 1, false, {.moments = moment_form::factored}), 0, [&](auto& rank, int) {
        rank.resume(folder.path);
        require_near(rank.read_state().second_moment, means_of(rank, adamw, correction_after(updates)));
    });
}

TEST_CASE("a scaled loss trains to the same bits, and a scale that overflows leaves steps out until it does not") {
    const trained want = run(draw(1, 1, 1), 3);
    trainer_options scaled = usual;
    scaled.loss_scale = {.initial = 0x1p20}; // powers of two round nothing
    CHECK((run<scaling_math>(draw(2, 1, 4), 3, scaled) == want));

    scaled.loss_scale = {.initial = 0x1p136}; // beyond any float
    const scratch folder;
    double kept = 0;
    const auto look = [&](auto& rank, int step) {
        if (step != 20) { return; }
        rank.save(folder.path);
        const auto now = rank.loss_scale().now();
        REQUIRE(now.skipped_steps > 0);
        REQUIRE(now.skipped_steps < 20);
        REQUIRE(now.scale == std::ldexp(1.0, 136 - static_cast<int>(now.skipped_steps)));
        if (rank.ranks().leads()) { kept = now.scale; }
    };
    const trained run_over = run<scaling_math>(draw(2, 1, 4), 20, look, scaled);
    CHECK(std::isinf(run_over.norms.front()));
    CHECK(std::isfinite(run_over.norms.back()));
    // Also without scaling: the scale is kept for a later run that scales.
    const auto unscaled = [&](auto& rank, int) {
        rank.resume(folder.path);
        REQUIRE(rank.loss_scale().now().scale == kept);
        REQUIRE(rank.loss_scale().scale() == 1);
    };
    run(draw(4, 1, 9), 0, unscaled);
}

TEST_CASE("what is not finite is named on every rank, and training goes on from before that step") {
    const trained want = run(draw(1, 1, 1), 3);
    for (unsigned seed = 30; seed != 36; ++seed) {
        CAPTURE(seed);
        const planned made = draw(static_cast<int>(seed % 3) + 2, 1, seed);
        trained all;
        std::mutex mutex;
        int told = 0;
        threads::run_ranks(made.plan.pipeline_degree, {}, [&](threads::transport& transport) {
            trainer<net, math> rank{transport, made, usual};
            sine_task data;
            static_cast<void>(rank.step(data));
            sine_task bad;
            bad.spoilt = (microbatches + 1) * batch; // microbatch 1 of step 2
            std::string text;
            try {
                static_cast<void>(rank.step(bad));
            } catch (const train::not_finite_error& e) { text = e.what(); }
            for (int s = 1; s != 3; ++s) { static_cast<void>(rank.step(data)); }
            keep(rank, all, mutex);
            const std::lock_guard lock{mutex};
            told += text.starts_with("step 2: ") &&
                            text.ends_with("the model's input (stage 0, microbatch 1) is the first that is not finite")
                        ? 1
                        : 0;
        });
        CHECK(told == made.plan.pipeline_degree);
        CHECK((all.layers == want.layers));
    }
}

} // namespace trainers
