#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <unistd.h>

#include <support/block_states.hpp>
#include <support/random_plan.hpp>
#include <support/single_checkpoint.hpp>
#include <support/unpipelined.hpp>
#include <pulse/onednn/adamw.hpp>
#include <pulse/onednn/backend.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/runtime/forward_runner.hpp>
#include <pulse/threads/transport.hpp>
#include <pulse/train/diffusion_task.hpp>
#include <pulse/train/rank_optimizer.hpp>
#include <pulse/train/trainer.hpp>
#include <pulse/zoo/ddpm.hpp>

using namespace pulse;
using namespace pulse::test;

namespace {

using net = ddpm_tiny;
using math = onednn::backend;

constexpr std::uint64_t seed = 77;
constexpr int batch = 2;
constexpr int microbatches = 3;
constexpr double learning_rate = 2e-3;
constexpr double clip_norm = 0.25;
constexpr double average_decay = 0.99;
constexpr adamw_constants constants{.weight_decay = 0.05};

/// Discs of varying places and sizes on a grey gradient.
train::image_dataset synthetic_images() {
    constexpr int side = 8;
    std::vector<std::uint8_t> pixels;
    for (int i = 0; i != 37; ++i) {
        for (int y = 0; y != side; ++y) {
            for (int x = 0; x != side; ++x) {
                const int dx = x - 1 - i % 6;
                const int dy = y - 1 - i % 5;
                pixels.push_back(static_cast<std::uint8_t>(dx * dx + dy * dy <= 1 + i % 4 ? 230 : 20 + 8 * x));
            }
        }
    }
    return {side, side, 1, std::move(pixels), {.seed = seed, .horizontal_flip = true}};
}

train::diffusion_options task_options() {
    return {.seed = seed,
            .microbatch_size = batch,
            .microbatches = microbatches,
            .model_elements = net::layer_at<0>::input::elements};
}

/// Weights, first and second moment and average of one layer.
using layer_state = std::array<std::vector<float>, 4>;

struct training {
    std::map<int, layer_state> layers{};
    std::vector<double> losses{};
    std::vector<double> norms{};
    train::training_state state{.seed = seed};
};

/// Appends a checkpoint's tensors over the four arrays of a layer.
template <class Tensor, class State>
void append_tensors(std::vector<Tensor>& all, int layer, const State& arrays) {
    std::size_t at = 0;
    for (const parameter& p : parameters_of<net>(layer)) {
        const auto n = static_cast<std::size_t>(p.elements());
        all.push_back({p, arrays(0).subspan(at, n), arrays(1).subspan(at, n), arrays(2).subspan(at, n),
                       arrays(3).subspan(at, n)});
        at += n;
    }
}

void save(const std::filesystem::path& file, const training& run) {
    std::vector<named_tensor> tensors;
    for (const auto& layer : run.layers) { // not a structured binding: clang 14 cannot capture one
        append_tensors(tensors, layer.first, [&](std::size_t i) { return std::span<const float>{layer.second[i]}; });
    }
    save_single(file, tensors, run.state);
}

/// oneDNN with a custom update rule.
template <class Rule>
struct ruled : math {
    using math::math;
    [[nodiscard]] Rule update_rule() const { return {}; }
};

/// Runs `steps` steps of a plan, from the initial weights or from the checkpoint `resume`.
template <class Rule>
training train_with(const plan& planned, int steps, const std::filesystem::path& resume = {}) {
    static const train::image_dataset images = synthetic_images();
    static const train::noise_schedule noise = train::noise_schedule::linear();
    const cost_table costs = blank_costs(graph_of<net>().view(), batch, sizeof(float));
    training result;
    std::mutex mutex;
    threads::run_ranks(planned.pipeline_degree, {}, [&](threads::transport& transport) {
        trainer<net, ruled<Rule>> rank{transport,
                                       {planned, costs},
                                       {.seed = seed,
                                        .learning_rate = {.peak = learning_rate},
                                        .adamw = constants,
                                        .clip_norm = clip_norm,
                                        .average_decay = average_decay}};
        train::diffusion_task task{images, noise, task_options()};
        const auto blocks = rank.runner().parameters().blocks();
        if (!resume.empty()) {
            std::vector<train::rank_state> kept = read_states(rank);
            std::vector<pulse::test::checkpoint_tensor<float>> mine;
            for (std::size_t b = 0; b != blocks.size(); ++b) {
                append_tensors(mine, blocks[b].layer,
                               [&](std::size_t i) { return std::span{kept[b].*train::rank_state_parts[i]}; });
            }
            const train::training_state from = load_single(resume, mine);
            set_states(rank, kept, from.step, from.position);
        }
        std::vector<double> losses;
        std::vector<double> norms;
        for (int s = 0; s != steps; ++s) {
            const train::step_outcome done = rank.step(task);
            losses.push_back(done.loss);
            norms.push_back(done.gradient_norm);
        }
        train::rank_state state = rank.read_state();
        const std::lock_guard lock{mutex};
        for (const auto& block : blocks) {
            for (std::size_t i = 0; i != 4; ++i) {
                const auto values = std::span{state.*train::rank_state_parts[i]}.subspan(block.first, block.size);
                result.layers[block.layer][i].assign(values.begin(), values.end());
            }
        }
        if (!result.losses.empty() && (result.losses != losses || result.norms != norms)) {
            throw error{"ranks disagree about the loss or the gradient's norm"};
        }
        result.losses = losses;
        result.norms = norms;
        result.state = {.step = rank.steps(), .position = rank.samples(), .seed = seed};
    });
    return result;
}

plan plan_of(placement kind, int devices, int waves, bool split, recomputation recompute, unsigned draw) {
    std::mt19937 random{draw};
    plan p;
    p.pipeline_degree = devices;
    p.microbatches = microbatches;
    p.microbatch_size = batch;
    p.split_backward = split;
    p.routing = draw % 2 == 0 ? skip_routing::relayed : skip_routing::direct;
    p.recompute = recompute;
    p.cut = draw_cut(blank_costs(graph_of<net>().view(), batch, sizeof(float)), kind, devices, waves, random);
    p.order = draw_order(p.cut, microbatches, split, random);
    return p;
}

void require_equal(const training& run, const training& want) {
    REQUIRE(run.layers.size() == net::part_count + 1);
    REQUIRE(run.layers == want.layers);
    REQUIRE(run.losses == want.losses);
    REQUIRE(run.norms == want.norms);
}

template <class Rule>
void check_every_cut() {
    const training want = train_with<Rule>(plan_of(placement::folded, 1, 1, false, recomputation::none, 1), 3);
    REQUIRE(want.losses.size() == 3);
    REQUIRE(want.layers.at(0)[0] != want.layers.at(0)[3]);
    unsigned draw = 2;
    const auto check = [&](placement kind, int devices, int waves) {
        for (const bool split : {false, true}) {
            for (const auto skips : {recomputation::none, recomputation::skips, recomputation::stages}) {
                const unsigned seed = draw++;
                if (PULSE_TEST_SANITIZED && seed % 4 < 2) { continue; } // pairwise: a seed decides the routing
                const plan p = plan_of(kind, devices, waves, split, skips, seed);
                INFO(name_of(kind) << ", P " << devices << ", W " << waves << ", split " << split << ", policy "
                                   << static_cast<int>(skips));
                REQUIRE(!p.cut.stages.empty());
                require_equal(train_with<Rule>(p, 3), want);
            }
        }
    };
    for (const int devices : {1, 2, 3, 4}) { check(placement::folded, devices, 1); }
    check(placement::folded, 2, 2);
    check(placement::sequential, 3, 1);
}

} // namespace

TEST_CASE("training leaves the same bits however the model is cut, placed and ordered") {
    SUBCASE("plain rule") { check_every_cut<train::plain_adamw>(); }
    SUBCASE("fused rule of the host") { check_every_cut<onednn::fused_adamw>(); }
}

TEST_CASE("the first step on many ranks is clipping and AdamW on the whole gradient of one") {
    math backend;
    unpipelined<net, math> oracle{backend, seed};
    const train::image_dataset images = synthetic_images();
    const train::noise_schedule noise = train::noise_schedule::linear();
    train::diffusion_task task{images, noise, task_options()};
    task.begin(0);
    double loss = 0;
    for (int m = 0; m != microbatches; ++m) {
        double share = 0;
        const work<math> at{.microbatch = m, .loss = &share};
        std::vector<float> x(batch * images.elements());
        task.input(at, x);
        auto tape = oracle.forward(batch, x, {task.timesteps(at), task.timesteps(at) + batch});
        std::vector<float> gradient(x.size());
        task.loss(at, oracle.output(tape), gradient);
        loss += share;
        oracle.backward(tape, std::move(gradient));
    }
    double squares = 0;
    const auto add = [&](const std::vector<float>& g) {
        for (const float x : g) { squares += static_cast<double>(x) * static_cast<double>(x); }
    };
    add(oracle.conditioning_gradients);
    for (const auto& g : oracle.gradients) { add(g); }

    const training run =
        train_with<train::plain_adamw>(plan_of(placement::folded, 3, 1, true, recomputation::none, 9), 1);
    REQUIRE(run.norms.size() == 1);
    CHECK(run.norms[0] == doctest::Approx(std::sqrt(squares)).epsilon(1e-12));
    CHECK(run.losses[0] == loss);
    REQUIRE(run.norms[0] > 2 * clip_norm); // so that clipping has an effect
    adamw_constants now = constants;
    now.learning_rate = learning_rate;
    const auto factors = train::factors_of<float>(now, 1, clip_norm / run.norms[0]);
    const auto check = [&](int layer, std::vector<float> weights, const std::vector<float>& gradients) {
        std::vector<float> m(weights.size());
        std::vector<float> v(weights.size());
        train::adamw_step<float>(factors, weights, gradients, m, v);
        CHECK(run.layers.at(layer)[0] == weights);
        CHECK(run.layers.at(layer)[1] == m);
        CHECK(run.layers.at(layer)[2] == v);
    };
    check(conditioning_block, oracle.conditioning_parameters, oracle.conditioning_gradients);
    for (int l = 0; l != static_cast<int>(net::part_count); ++l) {
        const auto copied = [](std::span<const float> values) {
            return std::vector<float>(values.begin(), values.end());
        };
        check(l, copied(oracle.parameters_of_part(l)), copied(oracle.gradients_of_part(l)));
    }
}

TEST_CASE("a run that is resumed ends where it would have ended, on any number of ranks") {
    std::string folder = (std::filesystem::temp_directory_path() / "pulse-training-XXXXXX").string();
    REQUIRE(::mkdtemp(folder.data()) != nullptr);
    const std::filesystem::path file = std::filesystem::path{folder} / "run.safetensors";
    using rule = onednn::fused_adamw;
    const auto planned = [](int devices) {
        return plan_of(placement::folded, devices, 1, true, recomputation::none, 30U + static_cast<unsigned>(devices));
    };
    const training want = train_with<rule>(planned(2), 3);
    const training two = train_with<rule>(planned(2), 2);
    REQUIRE(two.layers != want.layers);
    save(file, two);
    for (const int devices : {2, 1, 4}) {
        CAPTURE(devices);
        const training resumed = train_with<rule>(planned(devices), 1, file);
        CHECK(resumed.layers == want.layers);
        CHECK(resumed.state == want.state);
        CHECK(resumed.losses.back() == want.losses.back());
    }
    std::filesystem::remove_all(folder);
}

TEST_CASE("the loss falls") {
    const training run =
        train_with<onednn::fused_adamw>(plan_of(placement::folded, 2, 1, true, recomputation::none, 40), 30);
    const double before = std::accumulate(run.losses.begin(), run.losses.begin() + 5, 0.0) / 5;
    const double after = std::accumulate(run.losses.end() - 5, run.losses.end(), 0.0) / 5;
    CAPTURE(before);
    CAPTURE(after);
    CHECK(after < 0.75 * before);
}

TEST_CASE("a forward run without a pipeline equals the unpipelined oracle on oneDNN, bit for bit") {
    math backend;
    unpipelined<net, math> oracle{backend, 5};
    forward_runner<net, math> runner{backend, 3};
    oracle.give(runner.parameters());
    backend.weights_changed();
    std::mt19937 random{6};
    std::normal_distribution<float> normal;
    for (const int samples : {3, 1, 2}) {
        CAPTURE(samples);
        std::vector<float> x(static_cast<std::size_t>(samples) * 64);
        std::vector<float> times(static_cast<std::size_t>(samples));
        for (float& value : x) { value = normal(random); }
        for (float& t : times) { t = std::floor(500.0F + 100.0F * normal(random)); }
        const auto tape = oracle.forward(samples, x, times);
        std::vector<float> y(x.size());
        runner.run(samples, x.data(), times.data(), y.data());
        CHECK(y == oracle.output(tape));
    }
}
