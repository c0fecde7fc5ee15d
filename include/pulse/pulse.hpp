#pragma once

static_assert(__cplusplus >= 202002L, "pulse: C++20 is needed (-std=c++20)");

/// Everything that needs only the standard library.

// IWYU pragma: begin_exports
#include <pulse/core/error.hpp>
#include <pulse/core/ids.hpp>
#include <pulse/core/label.hpp>
#include <pulse/core/pass.hpp>

#include <pulse/tensor/aligned_bytes.hpp>
#include <pulse/tensor/shape.hpp>

#include <pulse/model/graph.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/layer.hpp>
#include <pulse/model/model.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/model/rules.hpp>
#include <pulse/model/skip.hpp>

#include <pulse/hardware/check_cluster.hpp>
#include <pulse/hardware/cluster.hpp>
#include <pulse/hardware/clusters.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/hardware/link.hpp>
#include <pulse/hardware/ring_all_reduce.hpp>

#include <pulse/profile/analytic.hpp>
#include <pulse/profile/check_costs.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/profile/measure.hpp>

#include <pulse/partition/closed_regions.hpp>
#include <pulse/partition/device_speed.hpp>
#include <pulse/partition/exhaustive.hpp>
#include <pulse/partition/explain.hpp>
#include <pulse/partition/find_skip_aware.hpp>
#include <pulse/partition/fold_objectives.hpp>
#include <pulse/partition/fold_terms.hpp>
#include <pulse/partition/folded_search.hpp>
#include <pulse/partition/layer_sums.hpp>
#include <pulse/partition/maybe_partition.hpp>
#include <pulse/partition/outside_bounds.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/partition/region_tree.hpp>
#include <pulse/partition/report.hpp>
#include <pulse/partition/routing_comparison.hpp>
#include <pulse/partition/sequential.hpp>
#include <pulse/partition/skip_aware.hpp>
#include <pulse/partition/skip_aware_options.hpp>
#include <pulse/partition/traffic.hpp>
#include <pulse/partition/validate.hpp>

#include <pulse/schedule/baselines/baseline.hpp>
#include <pulse/schedule/baselines/bidirectional.hpp>
#include <pulse/schedule/baselines/chimera.hpp>
#include <pulse/schedule/baselines/dualpipe_v.hpp>
#include <pulse/schedule/baselines/gpipe.hpp>
#include <pulse/schedule/baselines/hanayo.hpp>
#include <pulse/schedule/baselines/interleaved.hpp>
#include <pulse/schedule/baselines/one_f_one_b.hpp>
#include <pulse/schedule/baselines/placed.hpp>
#include <pulse/schedule/baselines/v_order.hpp>
#include <pulse/schedule/baselines/within_limit.hpp>
#include <pulse/schedule/baselines/zb_h1.hpp>
#include <pulse/schedule/baselines/zb_v.hpp>
#include <pulse/schedule/baselines/zb_v_greedy.hpp>
#include <pulse/schedule/baselines/zero_bubble_heuristic.hpp>
#include <pulse/schedule/bound.hpp>
#include <pulse/schedule/certify.hpp>
#include <pulse/schedule/disjunctive_program.hpp>
#include <pulse/schedule/gap_filler.hpp>
#include <pulse/schedule/ilp_model.hpp>
#include <pulse/schedule/ilp_solver.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/jackson_preemptive.hpp>
#include <pulse/schedule/justification_search.hpp>
#include <pulse/schedule/justify.hpp>
#include <pulse/schedule/known_orders.hpp>
#include <pulse/schedule/list_engine.hpp>
#include <pulse/schedule/list_rules.hpp>
#include <pulse/schedule/list_scheduler.hpp>
#include <pulse/schedule/make_problem.hpp>
#include <pulse/schedule/memory_bounds.hpp>
#include <pulse/schedule/memory_guard.hpp>
#include <pulse/schedule/method.hpp>
#include <pulse/schedule/order_statistic_heads.hpp>
#include <pulse/schedule/periodic_pattern.hpp>
#include <pulse/schedule/periodic_search.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/relaxed_problem.hpp>
#include <pulse/schedule/scaled_times.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/search_budget.hpp>
#include <pulse/schedule/sequence_graph.hpp>
#include <pulse/schedule/sequence_search.hpp>
#include <pulse/schedule/sequence_state.hpp>
#include <pulse/schedule/stage_memory.hpp>
#include <pulse/schedule/state_limits.hpp>
#include <pulse/schedule/state_search.hpp>
#include <pulse/schedule/synthesis.hpp>
#include <pulse/schedule/synthesize.hpp>
#include <pulse/schedule/synthesize_with.hpp>
#include <pulse/schedule/synthesizer.hpp>
#include <pulse/schedule/tighten_bound.hpp>
#include <pulse/schedule/time_grain.hpp>
#include <pulse/schedule/timed_orders.hpp>
#include <pulse/schedule/validate.hpp>
#include <pulse/schedule/window_bound.hpp>
#include <pulse/schedule/window_propagation.hpp>
#include <pulse/schedule/window_search.hpp>
#include <pulse/schedule/window_state.hpp>

#include <pulse/plan/access.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/plan/footprint.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/layout.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/print.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/releases.hpp>
#include <pulse/plan/rendezvous.hpp>
#include <pulse/plan/require_valid.hpp>
#include <pulse/plan/sorted_set.hpp>
#include <pulse/plan/stage_footprint.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/plan/step_order.hpp>
#include <pulse/plan/verdict.hpp>
#include <pulse/plan/well_formed.hpp>

#include <pulse/simulate/duration.hpp>
#include <pulse/simulate/memory_timeline.hpp>
#include <pulse/simulate/simulation.hpp>
#include <pulse/simulate/simulation_options.hpp>
#include <pulse/simulate/simulator.hpp>
#include <pulse/simulate/transfer_queue.hpp>

#include <pulse/tune/candidate_bound.hpp>
#include <pulse/tune/candidate_plan.hpp>
#include <pulse/tune/least_memory.hpp>
#include <pulse/tune/plan_pipeline.hpp>
#include <pulse/tune/rank_grid.hpp>
#include <pulse/tune/scaled_costs.hpp>
#include <pulse/tune/search_space.hpp>
#include <pulse/tune/step_end.hpp>
#include <pulse/tune/tuner.hpp>
#include <pulse/tune/tuning.hpp>

#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/conditions.hpp>
#include <pulse/runtime/executor.hpp>
#include <pulse/runtime/forward_runner.hpp>
#include <pulse/runtime/layer_bench.hpp>
#include <pulse/runtime/layer_frame.hpp>
#include <pulse/runtime/layer_table.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/runtime/prepared_program.hpp>
#include <pulse/runtime/require_fit.hpp>
#include <pulse/runtime/skip_cache.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/runtime/stage_runner.hpp>
#include <pulse/runtime/step_memory.hpp>
#include <pulse/runtime/trace.hpp>
#include <pulse/runtime/transport.hpp>

#include <pulse/nn/attention.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/conditioning_modules.hpp>
#include <pulse/nn/convolution.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/dit.hpp>
#include <pulse/nn/dit_block.hpp>
#include <pulse/nn/eager.hpp>
#include <pulse/nn/hunyuan_conditioning.hpp>
#include <pulse/nn/hunyuan_dit.hpp>
#include <pulse/nn/initialise.hpp>
#include <pulse/nn/mlp_embedding.hpp>
#include <pulse/nn/norm.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/nn/resnet.hpp>
#include <pulse/nn/spatial_transformer.hpp>
#include <pulse/nn/text_block.hpp>
#include <pulse/nn/text_conditioning.hpp>
#include <pulse/nn/time_embedding.hpp>
#include <pulse/nn/unet.hpp>
#include <pulse/nn/unet_config.hpp>
#include <pulse/nn/unet_layout.hpp>
#include <pulse/nn/uvit.hpp>
#include <pulse/nn/vit.hpp>
#include <pulse/nn/vit_block.hpp>

#include <pulse/zoo/ddpm.hpp>

#include <pulse/host/channel.hpp>
#include <pulse/host/reference.hpp>
#include <pulse/host/reference_conditioned.hpp>
#include <pulse/host/reference_convolution.hpp>
#include <pulse/host/reference_embedding.hpp>
#include <pulse/host/reference_tokens.hpp>
#include <pulse/host/threads.hpp>

#include <pulse/train/adamw.hpp>
#include <pulse/train/clip.hpp>
#include <pulse/train/dataset.hpp>
#include <pulse/train/diffusion_task.hpp>
#include <pulse/train/ema.hpp>
#include <pulse/train/learning_rate.hpp>
#include <pulse/train/loss.hpp>
#include <pulse/train/noise_schedule.hpp>
#include <pulse/train/random.hpp>
#include <pulse/train/rank_optimizer.hpp>
#include <pulse/train/sampler.hpp>
// IWYU pragma: end_exports
