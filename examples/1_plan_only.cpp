// Plans a pipeline for a backbone without running it: no GPU, no CUDA, only the standard library.
#include <cstdio>

#include <pulse/planner.hpp>
#include <pulse/zoo/ddpm.hpp>

int main() {
    static constexpr auto graph = pulse::graph_of<pulse::ddpm_cifar10>();
    const auto costs_of = [](int size) { return pulse::analytic_costs(graph.view(), pulse::v100_16gb, size, 4); };

    for (const int devices : {2, 4, 8}) {
        // Whatever is absent is tuned: replicas, waves, microbatch size, recomputation, the order of passes.
        const pulse::tuning found = pulse::plan_for(costs_of, {.devices = devices,
                                                               .global_batch = 16 * devices,
                                                               .device = pulse::v100_16gb,
                                                               .pipeline_degree = devices,
                                                               .placement = pulse::placement::folded});
        const pulse::partition cut = pulse::sequential_partition(found.costs, devices);
        const pulse::traffic relayed = pulse::traffic_of(cut, found.costs, pulse::skip_routing::relayed);
        std::printf("%d ranks: skips %.1f MB; a sequential pipeline that relays them sends %.1f MB\n%s\n", devices,
                    static_cast<double>(found.plan.predicted.skip_bytes) * 1e-6,
                    static_cast<double>(relayed.total() * found.plan.microbatches) * 1e-6,
                    pulse::plan_summary(found).c_str());
    }
}
