// Plans a pipeline for a backbone without running it: no GPU, no CUDA, the standard library alone.
#include <cstdio>

#include <pulse/planner.hpp>
#include <pulse/zoo/ddpm.hpp>

int main() {
    constexpr auto graph = pulse::graph_of<pulse::ddpm_cifar10>();
    const pulse::cost_table costs = pulse::analytic_costs(graph.view(), pulse::v100_16gb, 32, 4);

    for (const int ranks : {2, 4, 8}) {
        const pulse::plan plan =
            pulse::plan_pipeline(costs, {.devices = ranks, .microbatches = 2 * ranks, .slack = 0.02});
        const pulse::partition cut = pulse::sequential_partition(costs, ranks);
        const pulse::traffic relayed = pulse::traffic_of(cut, costs, pulse::skip_routing::relayed);
        std::printf("%d ranks: step %.1f ms, at most %.2f %% above the best possible, bubble %.1f %%\n", ranks,
                    plan.predicted.step_us * 1e-3, 100 * (plan.predicted.step_us / plan.predicted.lower_bound_us - 1),
                    100 * plan.predicted.bubble_ratio);
        std::printf("  %.1f MB a step between devices, skips %.1f; a sequential pipeline that relays them: %.1f MB\n",
                    static_cast<double>(plan.predicted.boundary_bytes) * 1e-6,
                    static_cast<double>(plan.predicted.skip_bytes) * 1e-6,
                    static_cast<double>(relayed.total() * plan.microbatches) * 1e-6);
        for (const pulse::stage& s : plan.cut.stages) {
            std::printf("  stage %2d on device %d: %s to %s\n", s.index, s.device,
                        graph.layers[static_cast<std::size_t>(s.first_layer)].name.chars,
                        graph.layers[static_cast<std::size_t>(s.last_layer)].name.chars);
        }
    }
}
