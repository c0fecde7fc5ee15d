#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include <pulse/hardware/cluster.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/schedule/method.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/synthesis.hpp>
#include <pulse/tune/frozen_mode.hpp>
#include <pulse/tune/search_space.hpp>

namespace pulse {

/// Searches for an order of a problem's passes within a limit: `synthesize`, or `synthesize_with_glpk`.
using ordering_search = std::function<synthesis(const schedule_problem&, const synthesis_options&)>;

/// Names that messages use for the fields of a request; a program sets its option names.
struct request_words {
    std::string devices{"devices"};
    std::string global_batch{"global_batch"};
    std::string cluster{"cluster"};
    std::string memory_limit{"memory_limit_bytes"};
    std::string pipeline_degree{"pipeline_degree"};
    std::string data_degree{"data_degree"};
    std::string waves{"waves"};
    std::string microbatch_size{"microbatch_size"};
    std::string microbatches{"microbatches"};
    std::string split_backward{"split_backward"};
    std::string slack{"slack"};
    std::string sharded_optimizer{"sharded_optimizer"};
    std::string gradient_release{"gradient_release"};
    std::string schedule{"schedule"};
    std::string frozen{"frozen"};
    std::string self_conditioning{"self_conditioning"};
    std::string seconds{"seconds"};
    std::string extents{"extents"};
};

/// What to plan. Absent fields are tuned or follow from the rest; given fields are kept.
struct plan_request {
    /// Number of devices; 0: all of the cluster.
    int devices{};
    /// Samples of one optimizer step over all replicas; 0: microbatches x microbatch size x replicas, all given.
    int global_batch{};
    /// Its rates determine analytic costs and the optimizer's time; absent: the device that the costs name, if it is
    /// known.
    std::optional<pulse::device> device{};
    /// Extent of the model's input; none: that of the model's type. Given costs are for one extent.
    pulse::extent extent{};
    /// Instead, several extents for the steps of a run: the best plan has the shortest mean step.
    std::vector<extent_share> extents{};
    /// Absent: one node with the device's memory and its usual link.
    std::optional<pulse::cluster> cluster{};
    /// Per device; 0: the memory that the cluster gives, which for unlike devices is also an upper limit.
    std::int64_t memory_limit_bytes{};

    std::optional<int> pipeline_degree{};
    std::optional<int> data_degree{};
    /// Folded: waves; interleaved: stages on a device.
    std::optional<int> waves{};
    std::optional<int> microbatch_size{};
    std::optional<int> microbatches{};
    std::optional<pulse::placement> placement{};
    std::optional<bool> split_backward{};
    std::optional<skip_routing> routing{};
    std::optional<recomputation> recompute{};
    std::optional<rank_layout> layout{};
    /// Whether replicas shard the optimizer's state. A plan's file does not record it: whoever runs it must be told.
    std::optional<bool> sharded_optimizer{false};
    /// Whether a stage's update frees its gradients (plan::gradient_release): trainers then clip by the norm of the
    /// previous step, or not at all.
    bool gradient_release{};
    /// Method that orders the passes; absent: the best order found within `seconds`.
    std::optional<schedule_method> schedule{};
    /// How the frozen components of the costs run.
    frozen_mode frozen{frozen_mode::tuned};
    /// Half of the microbatches run forward once more before their step, without a gradient, and their forward reads
    /// the output (Chen, Zhang and Hinton, "Analog Bits", 2022); the sampling decides which samples are in them.
    bool self_conditioning{};

    /// How much longer than the least load a device may work to save bytes; not tuned, as cuts with a slack can take
    /// long to find.
    double slack{};
    /// Time to search for orders of the best candidates, in total; 0: none.
    double seconds{1.0};
    /// Absent: `synthesize`.
    ordering_search search{};
    /// What the optimizer keeps for each parameter; used if `kept` is absent.
    optimizer_form optimizer{};
    /// All that a rank keeps for each; absent: adamw_memory of `optimizer`, for floats or the backend's scalars.
    std::optional<parameter_memory> kept{};

    std::stop_token stop{};
    std::function<void(const tune_progress&)> progress{};
    std::function<void(const synthesis_progress&)> search_progress{};
    request_words words{};
};

} // namespace pulse
