# What each room may include besides itself: a whole room, or one header of it. Other rooms enter a planning stage by
# its result header. A line flow_<room>_<header> lists what that header alone may include in addition.
set(flow_core "")
set(flow_tensor core)
set(flow_model core tensor)
set(flow_hardware core)
set(flow_hardware_json io/atomic_file io/json_field io/parse_json)
set(flow_profile core hardware model/graph)
set(flow_profile_json io/atomic_file io/json_field io/parse_json)
# check_costs validates a cost table: it belongs to the value, not to how the value is made.
set(flow_partition core hardware/link profile/cost_table profile/check_costs)
set(flow_schedule core hardware/link partition/partition partition/device_speed profile/cost_table profile/check_costs
    profile/frozen_component)
set(flow_plan core partition/partition schedule/schedule schedule/problem schedule/frozen_work profile/cost_table
    profile/frozen_component model/extent model/graph)
# What a model and a backend keep per parameter depends on both.
set(flow_plan_kept_by model/layer)
set(flow_plan_json io/atomic_file io/json_field io/parse_json)
set(flow_simulate core plan schedule/schedule schedule/problem partition/partition profile/cost_table hardware)
# The tuner tries the algorithms of every planning stage.
set(flow_tune core model hardware profile partition schedule plan simulate)
set(flow_runtime core tensor model plan partition/partition schedule/schedule profile/cost_table schedule/frozen_work
    profile/join_costs)
# Ranks agree on what they run before the first step, over a transport or before there is one.
set(flow_runtime_same_run launch/agree launch/build)
# Ranks that measure their links describe the result as a cluster.
set(flow_runtime_measure_links hardware/cluster hardware/link_fit)
set(flow_nn core tensor model runtime/backend runtime/layer_frame runtime/linear_batch runtime/residual_sums)
set(flow_zoo core tensor model nn)
# The networks that a backbone is trained with, and their costs.
set(flow_zoo_frozen_networks encode/autoencoder encode/autoencoder_config encode/bert_text encode/clip_text
    encode/known_text_encoders encode/t5_text encode/text_chunks)
set(flow_zoo_frozen_graphs encode/text_chunks encode/text_facts profile/analytic_frozen profile/frozen_component)
set(flow_zoo_frozen_parts hardware/device profile/analytic_frozen profile/frozen_component)
# Processes find each other with nothing but the system's sockets.
set(flow_launch core)
# Rooms and headers of pulse::pulse that neither pulse.hpp nor planner.hpp reaches: those that only some users want and
# all would compile, those that need POSIX, and those that other parts include.
set(beside_doors
    encode launch reference zoo
    core/owner.hpp cuda/engine_choices.hpp
    nn/value_graph.hpp
    runtime/measure_links.hpp runtime/prove_slots.hpp runtime/same_run.hpp runtime/shape_checks.hpp
    runtime/transfer_slots.hpp
    schedule/synthesize_with.hpp train/measure_updates.hpp)
set(flow_reference core tensor runtime)
# It tries the passes of layers.
set(flow_reference_layer_trial model/layer)
set(flow_threads core tensor runtime plan/instruction plan/rank_grid)
set(flow_onednn core tensor runtime reference)
# Files know nothing of their contents: plans and profiles bring their own formats, based on these two headers.
set(flow_io core)
# Tokenizers, as nothing else in the library deals with text, and the networks whose output backbones read.
set(flow_encode core io model nn runtime)
set(flow_train core tensor model nn runtime io plan)
# Saving and resuming need files; a trainer alone does not.
set(flow_train_saving checkpoint/reader checkpoint/sharded)
set(flow_checkpoint core model runtime io plan)
# Folders of other tools. Nothing but frozen includes it.
set(flow_diffusers core model nn runtime/parameters io checkpoint train/edm train/flow train/noise_process
    train/noise_schedule train/scheduler_settings
    encode/autoencoder encode/autoencoder_config encode/bert_text encode/clip_text encode/t5_text
    encode/text_chunks)
# Pictures are drawn by position, like the images of train/. Only frozen includes it.
set(flow_data core io model/extent train/dataset train/random)
# Turns pictures into a rank's training data, and plans for it. A leaf: nothing outside includes it.
set(flow_frozen core data diffusers encode hardware/device io/mapped_file model plan profile runtime
    schedule/frozen_work train tune/extent_plans tune/frozen_mode tune/plan_for tune/plan_request tune/tuning
    onednn/picture_operations zoo/frozen_graphs zoo/frozen_networks)
# A leaf: nothing outside includes it. It uses threads because ranks that are threads sum and fail in the same way,
# wherever their tensors are.
set(flow_cuda core tensor model nn plan runtime train profile threads)
set(flow_cuda_json io/json_field io/parse_json)
# A leaf: nothing outside includes it.
set(flow_mpi core tensor plan/instruction plan/print plan/rank_grid runtime/transport runtime/any_transport launch)
# Ranks on several GPUs, however launched.
set(flow_nccl core plan runtime cuda launch)
