#include "setup.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/text_table.hpp>
#include <pulse/hardware/json.hpp>
#include <pulse/launch/agree.hpp>
#include <pulse/launch/build.hpp>
#include <pulse/launch/rendezvous.hpp>
#include <pulse/partition/validate.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/plan/json.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/optimizer_form.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/join_costs.hpp>
#include <pulse/profile/json.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/tune/cascade_plan.hpp>
#include <pulse/tune/frozen_mode.hpp>
#include <pulse/tune/plan_for.hpp>
#include <pulse/tune/plan_summary.hpp>

#include "../glpk_search.hpp"
#include "argument_rules.hpp"
#include "measuring.hpp"

namespace pulse_train {

namespace {

/// Fills in, from the model, what a profile may omit about its layers.
void fill_factored(pulse::cost_table& read, const pulse::cost_table& blank) {
    for (std::size_t l = 0; l != std::min(read.layers.size(), blank.layers.size()); ++l) {
        std::int64_t& factored = read.layers[l].factored_elements;
        if (factored == 0) { factored = blank.layers[l].factored_elements; }
    }
}

/// Throws input_error naming the file unless a profile has the layers and the bytes of the model.
void require_same_bytes(const pulse::cost_table& read, const pulse::cost_table& blank, const std::string& file) {
    const auto refuse = [&](const std::string& what) {
        throw pulse::input_error{file + ": " + what + " of --model on --backend"};
    };
    if (read.model != blank.model) {
        throw pulse::input_error{file + ": model: the profile is for " + read.model.str() + ", not " +
                                 blank.model.str()};
    }
    if (read.layers.size() != blank.layers.size()) { refuse("layers: must be as many as those"); }
    pulse::cost_table same = with_times(blank, read);
    same.frozen = read.frozen;
    for (std::size_t l = 0; l != same.layers.size(); ++l) {
        if (read.layers[l] != same.layers[l]) {
            refuse("layers[" + std::to_string(l) + "]: name and bytes must be those");
        }
    }
    if (read != same) { refuse("skips, conditioning and input: bytes must be those"); }
}

/// Moves the plans of all extents of a run into `in`.
void take_plans(run_inputs& in, std::vector<pulse::extent_plan> plans) {
    if (plans.size() != in.extents.size()) { throw pulse::error{"the plan must have as many extents as this rank"}; }
    in.plan = std::move(plans.front().plan);
    in.others.clear();
    for (std::size_t e = 0; e != plans.size(); ++e) {
        if (plans[e].extent != pulse::extent{}) { in.extents[e] = {plans[e].extent, plans[e].share}; }
        if (e != 0) { in.others.push_back({{std::move(plans[e])}, {}}); }
    }
}

/// The time that encoding takes on each rank, and the share that its bubbles hide.
[[nodiscard]] std::string frozen_text(const pulse::tuning& found) {
    const double each_us = found.frozen.work_us() / found.plan.pipeline_degree;
    const double added_us = found.mean_step_us() - found.frozen.passes_step_us;
    return "frozen networks take " + pulse::duration_text(each_us) + " of every rank, " +
           pulse::percent_text(each_us > 0 ? std::clamp(1 - added_us / each_us, 0.0, 1.0) : 1.0) +
           " of it in bubbles\n";
}

/// Memory without the networks, if they are frozen tasks: the plan then counts them itself.
[[nodiscard]] pulse::parameter_memory without_networks(pulse::parameter_memory kept) {
    kept.beside_first_stage = 0;
    kept.beside_last_stage = 0;
    return kept;
}

} // namespace

void read_plan(run_inputs& in) {
    if (in.args.plan_file.empty()) { return; }
    std::vector<pulse::extent_plan> read = pulse::load_plans(in.args.plan_file);
    const bool of_any = read.front().extent == pulse::extent{};
    bool fit = read.size() == in.extents.size();
    for (std::size_t e = 0; e != read.size() && fit && !of_any; ++e) { fit = read[e].extent == in.extents[e].extent; }
    if (!fit) {
        throw pulse::input_error{in.args.plan_file + ": extents: must be those in which the model reads " +
                                 (in.args.buckets.empty() ? "--size" : "the pictures of --buckets")};
    }
    take_plans(in, std::move(read));
    if (in.plan.gradient_release) { require_release(in.args, in.args.plan_file + ": gradient_release"); }
    in.args.planning.microbatch_size = in.plan.microbatch_size;
}

measurements read_known(const arguments& a) {
    measurements known;
    if (!a.cluster.empty()) { known.machine = pulse::load_cluster(a.cluster); }
    if (!a.profile.empty()) {
        pulse::cost_table read = pulse::load_profile(a.profile);
        const int size = read.microbatch_size;
        known.costs[size].push_back(std::move(read));
    }
    return known;
}

std::vector<int> microbatch_sizes(const arguments& a) {
    const pulse::plan_request& asked = a.planning;
    if (asked.microbatch_size) { return {*asked.microbatch_size}; }
    std::vector<int> sizes;
    for (int size = 1; size <= asked.global_batch && asked.global_batch % size == 0; size *= 2) {
        sizes.push_back(size);
    }
    return sizes;
}

std::string machine_name() {
    const auto [host, boot] = pulse::launch::this_machine();
    return host + " " + boot;
}

void require_same_frozen(const pulse::cost_table& read, const std::vector<pulse::frozen_component>& blank,
                         const std::string& file) {
    const auto refuse = [&](const std::string& what) { throw pulse::input_error{file + ": " + what + " of --from"}; };
    if (read.frozen.size() != blank.size()) { refuse("frozen: must be as many as those"); }
    for (std::size_t c = 0; c != blank.size(); ++c) {
        pulse::frozen_component same = blank[c];
        const std::string name = "frozen[" + std::to_string(c) + "]";
        if (read.frozen[c].layers.size() != same.layers.size()) { refuse(name + ".layers: must be as many as those"); }
        for (std::size_t l = 0; l != same.layers.size(); ++l) {
            const pulse::frozen_layer& layer = read.frozen[c].layers[l];
            same.layers[l].call_us = layer.call_us;
            same.layers[l].sample_us = layer.sample_us;
            if (same.layers[l] != layer) {
                refuse(name + ".layers[" + std::to_string(l) + "]: name and bytes must be those");
            }
        }
        if (same != read.frozen[c]) { refuse(name + ": name, use and bytes must be those"); }
    }
}

void require_runnable(const run_inputs& in) {
    try {
        for (std::size_t e = 0; e != in.extents.size(); ++e) {
            const pulse::plan& made = in.plan_of(e);
            if (made.further_chains.empty()) { pulse::check_partition(made.cut, in.costs_of(e)); }
            const pulse::step_model model{made, in.costs_of(e)};
            const pulse::check_report checked = pulse::check(made, model, pulse::lower(made, model));
            if (!checked.ok()) { throw pulse::input_error{checked.violation}; }
        }
    } catch (const pulse::input_error& e) {
        const std::string source = in.args.plan_file.empty() ? "plan" : in.args.plan_file;
        throw pulse::input_error{source + ": " + e.what()};
    }
}

pulse::plan_request request_of(const run_inputs& in, const pulse::cluster& machine) {
    const arguments& a = in.args;
    pulse::plan_request asked = a.planning;
    asked.devices = a.ranks;
    asked.cluster = machine;
    asked.layout = pulse::rank_layout::pipeline_inside;
    asked.kept = in.kept;
    std::stop_source stop;
    const auto look_at_stop = [stop, asks = in.stop](const auto&) mutable {
        if (asks->load()) { stop.request_stop(); }
    };
    asked.stop = stop.get_token();
    asked.progress = look_at_stop;
    asked.search_progress = look_at_stop;
    asked.search = pulse_examples::glpk_search();
    if (asked.schedule == pulse::schedule_method::ilp && !asked.search) {
        throw pulse::input_error{"--schedule ilp: this program was built without GLPK"};
    }
    return asked;
}

void make_plan(run_inputs& in, const measurements& from, const pulse::extent_cost_source& estimated) {
    const arguments& a = in.args;
    const pulse::extent first = in.extents.front().extent;
    // Bytes are taken at the exact size, because not all of them scale with it.
    const pulse::extent_cost_source measured = [&](int size, const pulse::extent& to) {
        const auto at = std::ranges::find(in.extents, to, &pulse::extent_share::extent);
        pulse::cost_table costs = from.timed(estimated(size, to), static_cast<std::size_t>(at - in.extents.begin()));
        costs.frozen = from.frozen;
        return costs;
    };
    if (a.plan_file.empty()) {
        pulse::plan_request asked = request_of(in, from.machine);
        asked.frozen = from.frozen.empty() ? pulse::frozen_mode::none : pulse::frozen_mode::bubbles;
        if (!from.frozen.empty()) { asked.kept = without_networks(in.kept); }
        pulse::cost_table read;
        if (!a.profile.empty()) {
            read = from.costs.begin()->second.front();
            const pulse::cost_table bytes = estimated(read.microbatch_size, first);
            fill_factored(read, bytes);
            require_same_bytes(read, bytes, a.profile);
            read.frozen = from.frozen;
        }
        asked.extent = first;
        if (in.extents.size() > 1) { asked.extents = in.extents; }
        const pulse::tuning found = a.profile.empty() ? pulse::plan_for(measured, asked) : pulse::plan_for(read, asked);
        in.plan = found.plan;
        in.kept = found.kept;
        in.others = found.others;
        in.extents.front().share = found.share;
        for (std::size_t e = 1; e < in.extents.size(); ++e) { in.extents[e].share = found.others[e - 1].share; }
        std::puts((pulse::plan_summary(found) + (from.frozen.empty() ? "" : frozen_text(found))).c_str());
    } else {
        const pulse::label model = estimated(1, first).model;
        if (in.plan.model != model) {
            throw pulse::input_error{a.plan_file + ": model: the plan is for " + in.plan.model.str() + ", not " +
                                     model.str()};
        }
        if ((in.plan.previews > 0) != a.planning.self_conditioning) {
            throw pulse::input_error{a.plan_file + ": previews: there are " + std::to_string(in.plan.previews) +
                                     ", but --self-conditioning is " +
                                     (a.planning.self_conditioning ? "given" : "not given")};
        }
        in.kept.sharded = a.planning.sharded_optimizer == true;
        if (in.kept.sharded && in.kept.form.is_factored()) {
            throw pulse::input_error{std::string{"--shard-optimizer: "} + pulse::unshared_moments};
        }
        if (from.frozen.empty()) {
            const auto clear = [](pulse::plan& made) {
                made.frozen_tasks.clear();
                made.frozen_hosts.clear();
            };
            clear(in.plan);
            for (pulse::planned_extent& other : in.others) { clear(other.plan); }
        } else if (in.plan.frozen_tasks.empty()) {
            throw pulse::input_error{a.plan_file + ": frozen_tasks: the plan has none, but --encode bubbles runs them"};
        } else {
            in.kept = without_networks(in.kept);
        }
    }
    if (a.planning.sharded_optimizer == true && in.plan.data_degree < 2) {
        throw pulse::input_error{"--shard-optimizer: needs at least two replicas to share the state"};
    }
    in.costs = measured(in.plan.microbatch_size, first);
    for (pulse::planned_extent& other : in.others) { other.costs = measured(in.plan.microbatch_size, other.extent); }
    require_runnable(in);
    const std::vector<std::int64_t> peaks = pulse::peak_bytes(in.planned());
    in.plan.predicted.peak_memory_bytes = peaks;
    for (pulse::planned_extent& other : in.others) { other.plan.predicted.peak_memory_bytes = peaks; }
    if (!a.profile_out.empty()) { pulse::save_profile(in.costs, a.profile_out); }
    if (!a.cluster_out.empty()) { pulse::save_cluster(from.machine, a.cluster_out); }
    std::fflush(stdout);
}

void make_cascade_plan(run_inputs& both, const measurements& first, const pulse::extent_cost_source& first_estimated,
                       const measurements& second, const pulse::extent_cost_source& second_estimated) {
    const arguments& a = both.args;
    if (a.planning.sharded_optimizer == true) {
        throw pulse::input_error{"--shard-optimizer: not in a cascade, which has no replicas"};
    }
    const auto measured = [](const measurements& known, const pulse::extent_cost_source& estimated) {
        return pulse::cost_source{[&](int size) { return known.timed(estimated(size, {}), 0); }};
    };
    const pulse::cost_source costs_of_first = measured(first, first_estimated);
    const pulse::cost_source costs_of_second = measured(second, second_estimated);
    if (a.plan_file.empty()) {
        pulse::plan_request asked = request_of(both, first.machine);
        asked.seconds = 0; // else spent on the plans of the single backbones
        const pulse::cascade_tuning found = pulse::plan_cascade_for(costs_of_first, costs_of_second, asked);
        both.plan = found.plan;
        both.costs = found.costs;
        std::puts(pulse::plan_summary(found).c_str());
        std::printf("one backbone after the other would take %.2f times as long\n", found.gain());
    } else {
        both.costs =
            pulse::join_costs(costs_of_first(both.plan.microbatch_size), costs_of_second(both.plan.microbatch_size));
        if (both.plan.model != both.costs.model || both.plan.further_chains.empty()) {
            throw pulse::input_error{a.plan_file + ": model: the plan is for " + both.plan.model.str() +
                                     ", not for the cascade " + both.costs.model.str()};
        }
    }
    require_runnable(both);
    both.plan.predicted.peak_memory_bytes = pulse::peak_bytes(both.planned());
    if (!a.cluster_out.empty()) { pulse::save_cluster(first.machine, a.cluster_out); }
    std::fflush(stdout);
}

void take_part(run_inputs& of, const run_inputs& both, bool is_second) {
    of.plan = both.plan;
    of.plan.further_chains.clear();
    const int border = both.plan.further_chains.front();
    auto& stages = of.plan.cut.stages;
    const auto at = stages.begin() + border;
    is_second ? stages.erase(stages.begin(), at) : stages.erase(at, stages.end());
    const int first_layer = stages.front().first_layer;
    for (pulse::stage& one : stages) {
        one.index -= is_second ? border : 0;
        one.first_layer -= first_layer;
        one.last_layer -= first_layer;
    }
    of.costs = pulse::split_costs(both.costs)[is_second ? 1 : 0];
}

void require_same_start(const arguments& a, rank_collectives& among) {
    std::vector<pulse::launch::common_value> mine{{"build", pulse::launch::build_text()}};
    for (const auto& [name, value] : a.common) { mine.push_back({name, value}); }
    pulse::launch::agree(among, mine);
}

void share_plan(run_inputs& in, rank_collectives& among) {
    const auto text_of_first = [&](std::string text) {
        const auto* const from = reinterpret_cast<const std::byte*>(text.data());
        std::vector<std::byte> bytes(from, from + text.size());
        among.broadcast(bytes);
        text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        return text;
    };
    const bool leads = among.rank() == 0;
    const bool cascaded = !in.args.cascade_with.empty();
    std::vector<pulse::cost_table> mine;
    if (leads && cascaded) {
        for (const pulse::cost_table& part : pulse::split_costs(in.costs)) { mine.push_back(part); }
    }
    for (std::size_t e = 0; leads && !cascaded && e != in.extents.size(); ++e) { mine.push_back(in.costs_of(e)); }
    std::vector<std::string> costs;
    for (std::size_t i = 0; i != (cascaded ? 2 : in.extents.size()); ++i) {
        costs.push_back(text_of_first(leads ? pulse::print_profile(mine[i]) : std::string{}));
    }
    const std::string planned = text_of_first(leads ? pulse::print_plans(in.planned().plans()) : std::string{});
    in.kept.sharded = text_of_first(in.kept.sharded ? "sharded" : "") == "sharded";
    if (leads) { return; }
    take_plans(in, pulse::parse_plans(planned, "the plan of rank 0"));
    const auto read = [&](std::size_t i) { return pulse::parse_profile(costs[i], "the costs of rank 0"); };
    in.costs = cascaded ? pulse::join_costs(read(0), read(1)) : read(0);
    for (std::size_t e = 1; e != in.extents.size(); ++e) { in.others[e - 1].costs = read(e); }
    if (!in.plan.frozen_tasks.empty()) { in.kept = without_networks(in.kept); }
}

} // namespace pulse_train
