#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <vector>

#include <doctest/doctest.h>

#include <nn/small_text.hpp>
#include <nn/whole_trial.hpp>
#include <pulse/core/error.hpp>
#include <pulse/model/condition.hpp>
#include <pulse/runtime/conditions.hpp>
#include <pulse/runtime/forward_runner.hpp>
#include <pulse/zoo/ddpm.hpp>

using namespace pulse;
using pulse::test::whole_trial;

namespace {

/// A model without a pipeline reproduces its training outputs, and reports missing text or facts.
template <class M>
void check_sampling() {
    whole_trial<M> t;
    forward_runner<M, reference::backend<double>> runner{t.backend, t.batch};
    t.run.give(runner.parameters());
    std::vector<double> output(t.weights.size());
    const auto sample = [&](const double* text, const double* facts) {
        runner.run(t.batch, t.input.data(), t.timesteps.data(), output.data(), text, facts);
    };
    sample(t.text.data(), t.facts.data());
    CHECK(output == t.run.output(t.run.forward(t.batch, t.input, t.timesteps, t.text, t.facts)));
    CHECK_THROWS_WITH_AS(sample(nullptr, t.facts.data()),
                         "pulse: forward_runner: the model reads text states, but none were given", input_error);
    CHECK_THROWS_WITH_AS(sample(t.text.data(), nullptr),
                         "pulse: forward_runner: the model reads facts of the samples, but none were given",
                         input_error);
}

} // namespace

TEST_CASE("whole UNets with text: every parameter tensor's gradient equals finite differences") {
    whole_trial<test::small_sd>{1.5e-4}.check(2);
    whole_trial<test::small_projected>{1.5e-4}.check(2);
    whole_trial<test::small_sdxl>{1.5e-4}.check(1);
}

TEST_CASE("whole Hunyuan-DiTs of both versions: every parameter tensor's gradient equals finite differences") {
    whole_trial<test::small_hunyuan_v11>{1.5e-4}.check(1);
    whole_trial<test::small_hunyuan_v12>{1.5e-4}.check(2);
}

TEST_CASE("whole U-ViT with classes: every parameter tensor's gradient equals finite differences") {
    whole_trial<test::labelled_uvit>{}.check(4);
}

TEST_CASE("models say what they read of a sample, in the order in which text and facts have it") {
    const auto says = [](const condition_set& found, std::initializer_list<condition> wanted) {
        return std::ranges::equal(found.all(), wanted);
    };
    CHECK(says(conditions_read_by<test::small_sd>(), {{condition_kind::text_states, 3, 6}}));
    CHECK(says(conditions_read_by<test::small_projected>(), {{condition_kind::text_states, 3, 7}}));
    CHECK(says(conditions_read_by<test::small_sdxl>(), {{condition_kind::text_states, 4, 5},
                                                        {condition_kind::pooled_text, 1, 3},
                                                        {condition_kind::original_crop_target, 1, 6}}));
    CHECK(says(
        conditions_read_by<test::small_hunyuan_v12>(),
        {{condition_kind::text_states, 2, 5}, {condition_kind::text_states, 3, 8}, {condition_kind::text_mask, 5}}));
    CHECK(says(conditions_read_by<test::small_hunyuan_v11>(), {{condition_kind::text_states, 2, 5},
                                                               {condition_kind::text_states, 3, 8},
                                                               {condition_kind::text_mask, 5},
                                                               {condition_kind::original_target_crop, 1, 6},
                                                               {condition_kind::style}}));
    CHECK(says(conditions_read_by<test::labelled_uvit>(), {{.kind = condition_kind::class_label, .classes = 3}}));
    CHECK(conditions_read_by<ddpm_tiny>().empty());
}

TEST_CASE("models with text sample without a pipeline what they train") {
    check_sampling<test::small_sdxl>();
    check_sampling<test::small_hunyuan_v11>();
}
