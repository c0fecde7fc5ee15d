// Your own layer and backbone, tested, timed and trained like any other.
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

#include <pulse/onednn/backend.hpp>
#include <pulse/planner.hpp>
#include <pulse/pulse.hpp>
#include <pulse/reference/layer_trial.hpp>

// y = silu(weight x + bias), plus the skip if there is one; written once for every backend.
template <pulse::label Name, int In, int Out, bool Skip = false>
struct dense {
    static constexpr pulse::label name = Name;
    using input = pulse::shape<In>;
    using output = pulse::shape<Out>;
    static constexpr std::int64_t saved_elements = Out, deferred_elements = Out, workspace_elements = 0; // per sample
    static constexpr bool writes_gradients = true; // each by a single operation of a pass
    static constexpr pulse::linear_shape matrix{In, Out};

    static constexpr auto parameters() {
        return std::array{pulse::parameter{Name + ".weight", {Out, In}, 2}, pulse::parameter{Name + ".bias", {Out}, 1}};
    }
    static constexpr double forward_flops() { return 2.0 * In * Out; }

    template <pulse::backend B>
    static void forward(B& math, const pulse::backend_frame<B>& f) {
        math.linear(matrix, f.batch, f.input, f.parameters, f.parameters + In * Out, f.saved, pulse::into::write);
        math.silu(f.batch * Out, f.saved, f.output);
        if constexpr (Skip) { math.add(f.batch * Out, f.skip, f.output); }
    }
    template <pulse::backend B>
    static void backward_input(B& math, const pulse::backend_frame<B>& f) {
        math.silu_backward(f.batch * Out, f.saved, f.output_gradient, f.deferred, pulse::into::write);
        if (f.input_gradient != nullptr) { // the first layer has none
            math.linear_backward_input(matrix, f.batch, f.deferred, f.parameters, f.input_gradient, pulse::into::write);
        }
        if constexpr (Skip) { math.copy(f.batch * Out, f.output_gradient, f.skip_gradient); }
    }
    template <pulse::backend B>
    static void backward_weight(B& math, const pulse::backend_frame<B>& f) {
        math.linear_backward_weight(matrix, f.batch, f.input, f.deferred, f.gradient(), f.gradient() + In * Out);
    }
};
template <pulse::label Name, int In, int Out>
struct joining : dense<Name, In, Out, true> {
    using skip_input = pulse::shape<Out>;
};

struct net : pulse::model<"net",
                          pulse::layers<dense<"in", 8, 64>, dense<"down", 64, 32>, dense<"middle", 32, 32>,
                                        joining<"up", 32, 32>, joining<"wide", 32, 64>, dense<"out", 64, 8>>,
                          pulse::skips<pulse::skip<"in", "wide">, pulse::skip<"down", "up">>> {};

using backend = pulse::onednn::backend;

struct denoise {
    static float value(std::uint64_t sample, std::size_t i) { return std::sin(0.1F * static_cast<float>(sample + i)); }
    void input(const auto& at, std::span<float> x) {
        for (std::size_t i = 0; i != x.size(); ++i) { x[i] = value(at.first_sample, i) + value(7 * i, i); }
    }
    void loss(const auto& at, std::span<const float> y, std::span<float> dy) {
        const auto n = static_cast<float>(at.step_samples * 8);
        for (std::size_t i = 0; i != y.size(); ++i) {
            const float off = y[i] - value(at.first_sample, i);
            dy[i] = 2 * off / n;
            *at.loss += static_cast<double>(off * off / n);
        }
    }
};

int main() {
    // Errors of the passes: their gradients are compared with finite differences.
    bool sound = true;
    for (const auto& faults : {pulse::reference::layer_trial<dense<"down", 5, 3>>{}.check(),
                               pulse::reference::layer_trial<joining<"up", 5, 3>>{}.check()}) {
        for (const std::string& fault : faults) { std::puts(fault.c_str()); }
        sound = sound && faults.empty();
    }
    if (!sound) { return 1; }

    backend math;
    pulse::layer_bench<net, backend> bench{math, 8};
    const auto graph = pulse::graph_of<net>();
    const auto costs = pulse::measure_costs(graph.view(), 8, sizeof(float), "here", bench);
    const auto plan = pulse::plan_for(
        costs, {.devices = 2, .global_batch = 32, .pipeline_degree = 2, .kept = pulse::kept_by<net, backend>()});
    pulse::run(plan, pulse::ranks::threads{}, [&](pulse::rank& self) {
        pulse::trainer<net, backend> train{self, plan, {.seed = 1, .learning_rate = {1e-2}}};
        denoise task;
        for (int i = 1; i <= 50; ++i) {
            const auto step = train.step(task);
            if (self.leads() && i % 10 == 0) { std::printf("step %d  loss %.4f\n", i, step.loss); }
        }
    });
}
