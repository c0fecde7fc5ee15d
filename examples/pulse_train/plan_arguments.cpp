#include "option_adder.hpp"

#include <cstdint>
#include <limits>
#include <string>

#include <CLI/CLI.hpp>

#include <pulse/schedule/method.hpp>
#include <pulse/tune/plan_request.hpp>

#include "../command_line.hpp"

namespace pulse_train {

using pulse_examples::names_in;
using pulse_examples::number;
using pulse_examples::whole;

void add_plan_options(option_adder& add, arguments& a, said_arguments& said) {
    static const choices<transport_kind> transports{
        {"threads", transport_kind::threads}, {"mpi", transport_kind::mpi}, {"nccl", transport_kind::nccl}};
    static const choices<backend_kind> backends{{"host", backend_kind::host}, {"cuda", backend_kind::cuda}};
    static const choices<precision_kind> precisions{{"bf16", precision_kind::bf16},
                                                    {"fp16", precision_kind::fp16},
                                                    {"tf32", precision_kind::tf32},
                                                    {"fp32", precision_kind::fp32}};
    static const choices<pulse::placement> placements{{"folded", pulse::placement::folded},
                                                      {"sequential", pulse::placement::sequential},
                                                      {"interleaved", pulse::placement::interleaved}};
    static const choices<pulse::skip_routing> routings{{"direct", pulse::skip_routing::direct},
                                                       {"relayed", pulse::skip_routing::relayed}};
    static const choices<pulse::recomputation> recomputations{{"none", pulse::recomputation::none},
                                                              {"skips", pulse::recomputation::skips},
                                                              {"stages", pulse::recomputation::stages},
                                                              {"selective", pulse::recomputation::selective}};
    static const choices<pulse::schedule_method> methods = [] {
        choices<pulse::schedule_method> all;
        for (const pulse::method_rule& rule : pulse::method_rules) { all[std::string{rule.name}] = rule.method; }
        return all;
    }();
    static const choices<sharding> shardings{{"yes", sharding::yes}, {"no", sharding::no}, {"tuned", sharding::tuned}};

    add.app.option_defaults()->group("Where");
    add.choice("--backend", a.backend, backends, "host", "What computes: oneDNN on the host, or CUDA devices");
    add.choice("--precision", a.precision, precisions, "bf16 on cuda, fp32 on the host",
               "Scalars of a CUDA device; sums, weights and optimizer are always floats");
    add.value(
        "--time-engines", a.time_engines_s, number(0.0, 1e6, "from 0 to 1000000"),
        "Seconds in which engines of cuDNN and cuBLASLt are timed before the first step. The fastest are kept in "
        "engines.json of --out, for later runs there and for resumed ones; 0: take those that heuristics rank first");
    add.choice(
        "--deterministic", a.deterministic, yes_or_no(), "yes",
        "Whether a run on cuda gives the same bits each time; no: cuDNN engines whose results vary in their last bits "
        "may also be used, and with --time-engines attention's backward pass is cuDNN's where that is faster");
    add.app
        .add_option("--gpus", a.gpus,
                    "Numbers of the devices, to which the ranks, or the processes of a machine, are assigned in turn; "
                    "one may be named twice")
        ->delimiter(',')
        ->check(whole(0, 1023))
        ->type_name("NUMBER,...")
        ->default_str("all");
    add.value("--threads", a.threads, whole(1, 256), "Threads of each rank on the host");

    add.choice("--transport", a.transport, transports, "threads",
               "What ranks are: threads of this process, or processes started by mpirun, srun or torchrun, which "
               "exchange messages by MPI (host) or NCCL (cuda)");
    add.value("--timeout", a.timeout_s, positive(), "Seconds after which a process gives up waiting for another");

    add.app.option_defaults()->group("Among the processes of --transport nccl");
    constexpr int most_ranks = 1'000'000;
    add.value("--rank", a.identity.rank, whole(0, most_ranks),
              "Rank of this process, if no launcher's variables give it");
    add.value("--world-size", a.identity.world_size, whole(1, most_ranks),
              "Number of processes, if no launcher's variables give it");
    add.value("--local-rank", a.identity.local_rank, whole(0, most_ranks),
              "Rank of this process among those of its machine");
    add.file_or_folder("--store", a.store, "HOST:PORT",
                       "Address of rank 0, where the processes meet; otherwise PULSE_STORE, MASTER_ADDR and "
                       "MASTER_PORT or the launcher give it");

    add.app.option_defaults()->group("Plan: what is not given is tuned from measured layers and links");
    pulse::plan_request& plan = a.planning;
    plan.words = {.devices = "--ranks",
                  .global_batch = "--global-batch",
                  .cluster = "--cluster",
                  .memory_limit = "--memory-limit",
                  .pipeline_degree = "--pipeline",
                  .data_degree = "--replicas",
                  .waves = "--waves",
                  .microbatch_size = "--microbatch-size",
                  .microbatches = "--microbatches",
                  .split_backward = "--split-backward",
                  .slack = "--slack",
                  .sharded_optimizer = "--shard-optimizer",
                  .gradient_release = "--gradient-release",
                  .schedule = "--schedule",
                  .self_conditioning = "--self-conditioning",
                  .seconds = "--plan-time"};
    add.value("--ranks", a.ranks, whole(1, 64), "Total number of ranks, if they are threads");
    add.value("--global-batch", plan.global_batch, whole(1, most_samples), "Samples of a step, over all replicas")
        ->default_str("16 x 4 x replicas, each unless given");
    add.tuned_value("--pipeline", plan.pipeline_degree, whole(1, 64), "Number of ranks of a pipeline");
    add.tuned_value("--replicas", plan.data_degree, whole(1, 64),
                    "Pipelines over which a step's microbatches are spread: the data-parallel degree");
    add.tuned_value("--waves", plan.waves, whole(1, 16),
                    "Waves of a folded placement, or stages on each rank when interleaved");
    add.tuned_value("--microbatch-size", plan.microbatch_size, whole(1, 65536), "Samples in a microbatch");
    add.tuned_value("--microbatches", plan.microbatches, whole(1, 65536), "Microbatches in a step of a replica");
    add.choice("--placement", plan.placement, placements, left_open, "Which rank runs which stage");
    add.choice("--routing", plan.routing, routings, left_open, "How skips between ranks travel");
    add.choice(
        "--recomputation", plan.recompute, recomputations, left_open,
        "Which forward passes are run again to save memory; selective: only in the stages where memory requires it");
    add.choice("--split-backward", plan.split_backward, yes_or_no(), left_open,
               "Whether weight gradients are scheduled separately");
    add.choice("--shard-optimizer", said.shard_optimizer, shardings, "yes",
               "Whether each replica keeps only the optimizer state of its share of the weights")
        ->expected(0, 1)
        ->option_text("[" + names_in(shardings) + "]");
    add.choice("--gradient-release", plan.gradient_release, yes_or_no(), "no",
               "Whether a stage is updated as soon as its gradients are complete, so that other stages can use their "
               "memory; requires --clip 0 or --clip-by last");
    add.value("--slack", plan.slack, number(0.0, 10.0, "from 0 to 10"),
              "How far the load may exceed the least one to send fewer bytes, as a fraction");
    add.value("--memory-limit", plan.memory_limit_bytes,
              number(std::int64_t{1}, std::numeric_limits<std::int64_t>::max(), "from 1"),
              "Most bytes that each rank may use")
        ->default_str("its share of the available memory");
    add.choice("--schedule", plan.schedule, methods, "all that --plan-time allows",
               "Which method orders the passes; ilp: search, then proof by an integer program");
    add.value("--plan-time", plan.seconds, number(0.0, 1e6, "from 0 to 1000000"),
              "Seconds to improve the best orders and prove their bounds, without --schedule or with ilp; 0: neither");
    add.file_or_folder("--profile", a.profile, "FILE",
                       "Plan from these costs (pulse-profile/1) instead of measuring layers");
    add.file_or_folder("--cluster", a.cluster, "FILE",
                       "Plan for these links (pulse-cluster/1) instead of measuring them");
    add.file_or_folder("--profile-out", a.profile_out, "FILE", "Write the costs of the plan's layers, for pulse_plan");
    add.file_or_folder("--cluster-out", a.cluster_out, "FILE", "Write the links between ranks, for pulse_plan");
    add.app.add_flag("--plan-only", a.plan_only, "Stop once there is a plan, which is written to --out");
    add.file_or_folder("--plan", a.plan_file, "FILE", "Run this plan (pulse-plan/1) instead of measuring and planning");
}

} // namespace pulse_train
