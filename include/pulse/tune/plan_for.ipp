#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/hardware/clusters.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/method.hpp>
#include <pulse/schedule/search_budget.hpp>
#include <pulse/schedule/synthesize.hpp>
#include <pulse/tune/extent_plans.hpp>
#include <pulse/tune/plan_for.hpp>
#include <pulse/tune/plan_request.hpp>
#include <pulse/tune/scaled_costs.hpp>
#include <pulse/tune/tuner.hpp>
#include <pulse/tune/tuning.hpp>

namespace pulse {

namespace detail {

/// Throws input_error with the user's name for a field and what is wrong with it.
[[noreturn]] inline void refuse_request(std::string_view word, const std::string& why) {
    throw input_error(std::string{word} + why);
}

inline void require_positive(const plan_request& asked) {
    const request_words& words = asked.words;
    const auto positive = [](std::string_view word, const std::optional<int>& value) {
        if (value && *value < 1) { refuse_request(word, ": it must be at least 1"); }
    };
    positive(words.pipeline_degree, asked.pipeline_degree);
    positive(words.data_degree, asked.data_degree);
    positive(words.waves, asked.waves);
    positive(words.microbatch_size, asked.microbatch_size);
    positive(words.microbatches, asked.microbatches);
    positive(words.global_batch, asked.global_batch == 0 ? std::optional<int>{} : asked.global_batch);
    positive(words.devices, asked.devices);
    if (!(asked.slack >= 0.0)) { refuse_request(words.slack, ": it must be at least 0"); }
    if (!(asked.seconds >= 0.0)) { refuse_request(words.seconds, ": it must be at least 0"); }
    if (asked.memory_limit_bytes < 0) { refuse_request(words.memory_limit, ": it must not be negative"); }
    if (asked.kept) { check_parameter_memory(*asked.kept); }
}

/// Whether moments are factored over whole tensors, which replicas cannot shard.
[[nodiscard]] inline bool has_factored_moments(const plan_request& asked) {
    return (asked.kept ? asked.kept->form : asked.optimizer).is_factored();
}

/// Requires that given degrees multiply to the devices, and given sizes to the batch.
inline void require_products(const plan_request& asked) {
    const request_words& words = asked.words;
    const auto& p = asked.pipeline_degree;
    const auto& d = asked.data_degree;
    const auto of_devices = " the " + std::to_string(asked.devices) + " of " + words.devices;
    if (p && d && std::int64_t{*p} * *d != asked.devices) {
        refuse_request(words.pipeline_degree, " x " + words.data_degree + " is " +
                                                  std::to_string(std::int64_t{*p} * *d) + ", not" + of_devices);
    }
    if (p && asked.devices % *p != 0) {
        refuse_request(words.pipeline_degree, ": " + std::to_string(*p) + " does not divide" + of_devices);
    }
    if (d && asked.devices % *d != 0) {
        refuse_request(words.data_degree, ": " + std::to_string(*d) + " does not divide" + of_devices);
    }
    const std::optional<int> data = d ? d : p ? std::optional{asked.devices / *p} : std::nullopt;
    std::int64_t product = data.value_or(1);
    std::string names = data ? "the data degree" : "";
    const auto factor = [&](const std::optional<int>& value, std::string_view name) {
        if (!value) { return; }
        product *= *value;
        names += (names.empty() ? "" : " x ") + std::string{name};
    };
    factor(asked.microbatch_size, words.microbatch_size);
    factor(asked.microbatches, words.microbatches);
    const bool complete = data && asked.microbatch_size && asked.microbatches;
    if (complete ? product != asked.global_batch : asked.global_batch % product != 0) {
        refuse_request(names, " is " + std::to_string(product) + ", which " +
                                  (complete ? "is not" : "does not divide") + " the " +
                                  std::to_string(asked.global_batch) + " of " + words.global_batch);
    }
}

/// Refuses choices that contradict each other.
inline void require_consistent(const plan_request& asked) {
    const request_words& words = asked.words;
    if (asked.waves.value_or(1) > 1 && asked.placement == placement::sequential) {
        refuse_request(words.waves, ": must be 1, as a sequential placement has one stage on each device");
    }
    if (asked.sharded_optimizer == true && (asked.data_degree == 1 || asked.pipeline_degree == asked.devices)) {
        refuse_request(words.sharded_optimizer, ": there is only one replica, so there is nothing to shard");
    }
    if (asked.sharded_optimizer == true && has_factored_moments(asked)) {
        refuse_request(words.sharded_optimizer, std::string{": "} + unshared_moments);
    }
    if (asked.pipeline_degree == 1 && asked.split_backward == true) {
        refuse_request(words.split_backward, ": must not be set with " + words.pipeline_degree +
                                                 " 1, where nothing waits for a weight gradient");
    }
    if (asked.self_conditioning && asked.microbatches.value_or(2) % 2 != 0) {
        refuse_request(words.self_conditioning,
                       ": " + words.microbatches + " must be even, because half of them have a preview");
    }
    if (!asked.schedule) { return; }
    const std::string name = " " + std::string{name_of(*asked.schedule)};
    const bool previews = asked.schedule == schedule_method::list || asked.schedule == schedule_method::gpipe;
    if (asked.self_conditioning && !previews) {
        refuse_request(words.self_conditioning,
                       ": " + words.schedule + name + " does not order previews; use list or gpipe");
    }
    if (const auto only = rule_of(*asked.schedule).kind) {
        const std::string_view need = unmet_need(*asked.schedule, asked.placement.value_or(*only),
                                                 asked.waves.value_or(1), asked.split_backward.value_or(true));
        if (!need.empty()) { refuse_request(words.schedule, name + ": it " + std::string{need}); }
        if (asked.pipeline_degree == 1) {
            refuse_request(words.schedule,
                           name + ": it needs more than one device, but " + words.pipeline_degree + " is 1");
        }
        if (only == placement::sequential && asked.waves.value_or(1) != 1) {
            refuse_request(words.schedule,
                           name + ": it has one stage on each device, so " + words.waves + " must be 1");
        }
    }
    if (*asked.schedule != schedule_method::ilp) { return; }
    if (asked.seconds <= 0) { refuse_request(words.seconds, ": must be above 0 for " + words.schedule + name); }
    if (!asked.search) {
        refuse_request(words.schedule, name + ": the request has no search with an integer-program solver");
    }
}

/// The given cluster, or the usual one for the device.
[[nodiscard]] inline cluster cluster_of(const plan_request& asked, std::vector<std::string>& assumptions) {
    const request_words& words = asked.words;
    if (asked.cluster) {
        if (asked.cluster->devices() < asked.devices) {
            refuse_request(words.devices, ": " + std::to_string(asked.devices) + " requested, but " + words.cluster +
                                              " has " + std::to_string(asked.cluster->devices()));
        }
        return *asked.cluster;
    }
    const usual_link usual = usual_link_of(asked.device ? asked.device->name.view() : std::string_view{});
    assumptions.push_back("one node, every two devices joined by " + std::string{usual.name} + " (" + words.cluster +
                          " says otherwise)");
    const std::int64_t memory = asked.device ? asked.device->memory_bytes : 0;
    if (memory == 0) {
        assumptions.push_back("memory without limit (" + words.memory_limit + " or " + words.cluster +
                              " says otherwise)");
    }
    return one_node(asked.devices, usual.line, memory);
}

/// The space of the candidates that a request leaves open.
[[nodiscard]] inline tune_options space_of_request(const plan_request& asked) {
    tune_options space{};
    space.global_batch = asked.global_batch;
    space.devices = asked.devices;
    space.memory_limit_bytes = asked.memory_limit_bytes;
    space.kept = asked.kept ? *asked.kept : adamw_memory(4, asked.optimizer);
    if (asked.device) { space.memory_gb_per_s = asked.device->memory_gb_per_s * asked.device->efficiency; }
    const auto fix = [](auto& values, const auto& given) {
        if (given) { values = {*given}; }
    };
    fix(space.pipeline_degrees, asked.pipeline_degree);
    fix(space.data_degrees, asked.data_degree);
    fix(space.waves, asked.waves);
    fix(space.chunks, asked.waves);
    if (asked.waves.value_or(1) > 1) { space.placements = {placement::folded, placement::interleaved}; }
    fix(space.microbatch_sizes, asked.microbatch_size);
    fix(space.microbatches, asked.microbatches);
    fix(space.split_backwards, asked.split_backward);
    fix(space.routings, asked.routing);
    fix(space.recomputations, asked.recompute);
    fix(space.layouts, asked.layout);
    space.slacks = {asked.slack};
    if (asked.sharded_optimizer || has_factored_moments(asked)) {
        space.sharded_optimizers = {asked.sharded_optimizer.value_or(false)};
    } else {
        space.sharded_optimizers = {false, true};
    }
    if (asked.schedule && *asked.schedule != schedule_method::ilp) {
        space.methods = {*asked.schedule};
        fix(space.placements, rule_of(*asked.schedule).kind);
    }
    fix(space.placements, asked.placement);
    space.frozen = asked.frozen;
    space.self_conditioning = asked.self_conditioning;
    space.gradient_release = asked.gradient_release;
    space.stop = asked.stop;
    space.progress = asked.progress;
    return space;
}

/// Makes the tuner search longer for the orders of the best candidates: the list scheduler with all its rules, or a
/// search, whose seconds are divided equally; a candidate searched again, with less memory, uses what is left in total.
inline void set_refinement(tune_options& space, const plan_request& asked) {
    const auto by_rules = [](const schedule_problem& problem, const synthesis_options& options) {
        search_budget budget{options.limit};
        list_result found = rule_search{problem, {}}.search([&] { return budget.look(); });
        return synthesis{.best = std::move(found.order),
                         .makespan_us = found.makespan_us,
                         .lower_bound_us = found.lower_bound_us,
                         .seconds = budget.seconds()};
    };
    if (asked.schedule == schedule_method::list) {
        space.refine = [by_rules, stop = asked.stop](const schedule_problem& problem) {
            return by_rules(problem, {.limit = {.stop = stop}});
        };
        return;
    }
    const bool searches = !asked.schedule || *asked.schedule == schedule_method::ilp;
    if (!searches || asked.seconds <= 0) { return; }
    ordering_search search = [](const schedule_problem& problem, const synthesis_options& options) {
        return synthesize(problem, options);
    };
    if (asked.search) { search = asked.search; }
    if (asked.self_conditioning) { search = by_rules; } // the other searches take no previews
    const double share = asked.seconds / std::max(1, space.refined);
    space.refine = [search, share, left = asked.seconds, stop = asked.stop,
                    progress = asked.search_progress](const schedule_problem& problem) mutable {
        constexpr double least = 1e-3;
        synthesis_options options{};
        options.limit.seconds = std::max(least, std::min(share, left));
        options.limit.stop = stop;
        options.progress = progress;
        synthesis found = search(problem, options);
        left -= found.seconds;
        return found;
    };
}

inline void require_shares(const plan_request& asked) {
    for (std::size_t e = 0; e != asked.extents.size(); ++e) {
        const extent_share& one = asked.extents[e];
        if (!(one.share > 0 && std::isfinite(one.share)) || one.extent == extent{}) {
            refuse_request(asked.words.extents, ": each must have a height, a width and a share above 0");
        }
        for (std::size_t other = 0; other != e; ++other) {
            if (asked.extents[other].extent == one.extent) {
                refuse_request(asked.words.extents, ": an extent is listed twice");
            }
        }
    }
}

[[nodiscard]] inline tuning plan_request_for(const extent_cost_source& costs_at, plan_request asked,
                                             std::vector<std::string> assumptions) {
    require_shares(asked);
    const bool several = !asked.extents.empty();
    const cost_source costs_of = [&](int samples) {
        if (!several) { return costs_at(samples, asked.extent); }
        std::vector<cost_table> each;
        for (const extent_share& one : asked.extents) { each.push_back(costs_at(samples, one.extent)); }
        return mean_costs(each, asked.extents);
    };
    if (asked.devices == 0 && asked.cluster) { asked.devices = asked.cluster->devices(); }
    require_positive(asked);
    const cluster machine = cluster_of(asked, assumptions);
    if (asked.global_batch == 0) {
        const int data = asked.data_degree.value_or(asked.devices / asked.pipeline_degree.value_or(asked.devices));
        const auto size = std::int64_t{asked.microbatch_size.value_or(0)} * asked.microbatches.value_or(0) * data;
        if (size < 1 || size > std::numeric_limits<int>::max()) {
            refuse_request(asked.words.global_batch,
                           ": not given, and the other sizes do not make a batch from 1 to 2^31 - 1");
        }
        asked.global_batch = static_cast<int>(size);
    }
    require_products(asked);
    require_consistent(asked);
    if ((asked.frozen == frozen_mode::first || asked.frozen == frozen_mode::bubbles) &&
        costs_of(asked.microbatch_size.value_or(1)).frozen.empty()) {
        refuse_request(asked.words.frozen,
                       " " + std::string{name_of(asked.frozen)} + ": the model has no frozen components");
    }
    if (!machine.unlike.empty() && asked.frozen != frozen_mode::none &&
        !costs_of(asked.microbatch_size.value_or(1)).frozen.empty()) {
        if (asked.frozen != frozen_mode::tuned) {
            refuse_request(asked.words.frozen,
                           " " + std::string{name_of(asked.frozen)} + ": frozen tasks need devices that are all alike");
        }
        asked.frozen = frozen_mode::none;
        assumptions.emplace_back("frozen components do not run as tasks, for devices that are not alike");
    }
    if (!asked.device) { assumptions.emplace_back("the optimizer takes no time: the profile's device is not known"); }
    const double seconds = asked.seconds;
    asked.seconds = several ? seconds / 2 : seconds;
    tune_options space = space_of_request(asked);
    set_refinement(space, asked);
    tuning found = tune(costs_of, machine, space);
    found.extent = asked.extent;
    if (several) {
        space.refined = static_cast<int>(asked.extents.size()); // they share the other half
        set_refinement(space, asked);
        plan_extents(found, costs_at, asked.extents, machine, space);
    }
    found.assumptions = std::move(assumptions);
    return found;
}

} // namespace detail

PULSE_INLINE tuning plan_for(const cost_source& costs_of, const plan_request& request) {
    if (!request.extents.empty()) {
        detail::refuse_request(request.words.extents, ": the given costs are for a single extent");
    }
    return detail::plan_request_for([&](int samples, const extent&) { return costs_of(samples); }, request, {});
}

PULSE_INLINE tuning plan_for(const extent_cost_source& costs_of, const plan_request& request) {
    return detail::plan_request_for(costs_of, request, {});
}

PULSE_INLINE tuning plan_for(const cost_table& costs, plan_request request) {
    std::vector<std::string> assumptions{};
    if (!request.extents.empty()) { detail::refuse_request(request.words.extents, ": a profile has only one extent"); }
    if (!request.device) {
        if (const device* known = find_device(costs.device.view())) { request.device = *known; }
    }
    if (!request.microbatch_size) {
        request.microbatch_size = costs.microbatch_size;
        assumptions.push_back("microbatches of " + std::to_string(costs.microbatch_size) + ", the profile's (" +
                              request.words.microbatch_size + " says otherwise)");
    } else if (*request.microbatch_size != costs.microbatch_size) {
        assumptions.push_back("times and bytes in proportion to the microbatch size; the profile's is " +
                              std::to_string(costs.microbatch_size));
    }
    return detail::plan_request_for([&costs](int samples, const extent&) { return scaled_costs(costs, samples); },
                                    std::move(request), std::move(assumptions));
}

} // namespace pulse
