#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <support/drawn_cases.hpp>
#include <support/pipelined.hpp>
#include <support/random_plan.hpp>
#include <support/toy_model.hpp>
#include <support/unpipelined.hpp>
#include <pulse/nn/convolution.hpp>
#include <pulse/nn/norm.hpp>
#include <pulse/nn/resnet.hpp>
#include <pulse/reference/backend.hpp>

using namespace pulse;
using namespace pulse::test;

namespace first_gradients {

namespace {

using math = reference::backend<float>;
using image = shape<4, 2, 2>;

/// y = w x + b, elementwise on the host; b's gradient comes with the input's. A layer that does not write finds zeros.
template <label Name, bool Writes>
struct by_hand {
    static constexpr label name = Name;
    using input = image;
    using output = image;
    static constexpr std::int64_t n = image::elements;
    static constexpr std::int64_t saved_elements = 0, deferred_elements = 0, workspace_elements = 0;
    static constexpr bool writes_gradients = Writes;

    static constexpr auto parameters() {
        return std::array{parameter{Name + ".weight", {n}, 1}, parameter{Name + ".bias", {n}, 1}};
    }
    static constexpr double forward_flops() { return 2.0 * n; }

    template <backend B>
    static void forward(B&, const backend_frame<B>& f) {
        for_each(f, [&](std::int64_t at, std::int64_t i) {
            f.output[at] = f.parameters[i] * f.input[at] + f.parameters[n + i];
        });
    }
    template <backend B>
    static void backward_input(B&, const backend_frame<B>& f) {
        auto* const bias = Writes ? (f.gradient() + n).begun(n) : f.parameter_gradients + n;
        for_each(f, [&](std::int64_t at, std::int64_t i) {
            bias[i] += f.output_gradient[at];
            if (f.input_gradient != nullptr) { f.input_gradient[at] = f.parameters[i] * f.output_gradient[at]; }
        });
    }
    template <backend B>
    static void backward_weight(B&, const backend_frame<B>& f) {
        auto* const weight = Writes ? f.gradient().begun(n) : f.parameter_gradients;
        for_each(f, [&](std::int64_t at, std::int64_t i) { weight[i] += f.input[at] * f.output_gradient[at]; });
    }

private:
    static void for_each(const auto& f, const auto& use) {
        for (std::int64_t at = 0; at != f.batch * n; ++at) { use(at, at % n); }
    }
};

struct mixed
    : model<"mixed",
            layers<by_hand<"first", false>, by_hand<"second", true>,
                   nn::block<"conv", nn::conv{.in_channels = 4, .out_channels = 4, .height = 2, .width = 2}>,
                   nn::block<"norm", nn::group_norm{.channels = 4, .height = 2, .width = 2, .groups = 2}>,
                   by_hand<"third", false>,
                   nn::block<"last", nn::conv{.in_channels = 4, .out_channels = 4, .height = 2, .width = 2}>>> {};
static_assert(!writes_gradients<mixed::layer_at<0>> && writes_gradients<mixed::layer_at<1>> &&
              writes_gradients<mixed::layer_at<2>>);

/// Two steps of plans with gradients poisoned before each must equal sequential passes that add to zeros.
template <class Model>
void check_plans(unsigned seed, int plans) {
    std::mt19937 random{seed};
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    for (int done = 0; done != plans; ++done) {
        plan p;
        p.pipeline_degree = 1 + done % 3;
        p.microbatches = draw(1, 4);
        p.microbatch_size = draw(1, 2);
        p.split_backward = done % 2 == 0;
        const cost_table costs = blank_costs(graph_of<Model>().view(), p.microbatch_size, sizeof(float));
        p.cut = draw_cut(costs, placement::sequential, p.pipeline_degree, 1, random);
        p.order = draw_order(p.cut, p.microbatches, p.split_backward, random);
        INFO("plan " << done << ", P " << p.pipeline_degree << ", M " << p.microbatches << ", split "
                     << p.split_backward);
        const std::uint64_t data = random();
        const auto want = run_unpipelined<Model, math>(p.microbatch_size, p.microbatches, data);
        CHECK(run_pipelined<Model, math>(p, data, {}, 2).gradients == want.gradients);
    }
}

} // namespace

TEST_CASE("no step reads gradients that it finds, whether layers write them or add by hand") {
    check_plans<mixed>(5, drawn_cases(12));
    check_plans<toy_model<3, 8, wiring::nested, true>>(6, drawn_cases(12));
}

TEST_CASE("the weight gradients that a plan makes first are written, whichever microbatch has them") {
    plan p;
    p.microbatches = 3;
    p.split_backward = true;
    p.cut = {placement::sequential, 1, 1, {{0, 0, 0, static_cast<int>(mixed::part_count) - 1}}};
    std::mt19937 random{1};
    p.order = draw_order(p.cut, p.microbatches, true, random);
    std::vector<timed_pass>& passes = p.order.devices.front();
    std::erase_if(passes, [](const timed_pass& one) { return one.op == pass::backward_weight; });
    const std::array<int, 3> order{2, 0, 1};
    double now = passes.back().end_us;
    for (const int m : order) {
        passes.push_back({pass::backward_weight, 0, m, now, now + 1});
        now += 1;
    }
    math on;
    unpipelined<mixed, math> oracle{on};
    drawn_task<mixed, float> task{{7, 1, 3}};
    for (int l = 0; l != static_cast<int>(mixed::part_count); ++l) {
        const std::span<float> values = oracle.parameters_of_part(l);
        std::ranges::copy(task.data.parameters(l, values.size()), values.begin());
    }
    std::vector<unpipelined<mixed, math>::tape> tapes;
    for (std::size_t m = 0; m != 3; ++m) {
        tapes.push_back(oracle.forward(1, task.inputs[m]));
        std::vector<float> slope(task.targets[m].size());
        task.loss(static_cast<int>(m), oracle.output(tapes[m]).data(), slope.data());
        oracle.backward_input(tapes[m], std::move(slope));
    }
    for (const int m : order) { oracle.backward_weight(tapes[static_cast<std::size_t>(m)]); }
    const auto found = run_pipelined<mixed, math>(p, 7, {}, 2);
    for (int l = 0; l != static_cast<int>(mixed::part_count); ++l) {
        const std::span<float> want = oracle.gradients_of_part(l);
        CHECK(found.gradients.at(l) == std::vector<float>(want.begin(), want.end()));
    }
}

} // namespace first_gradients
