#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/schedule/method.hpp>
#include <pulse/tune/candidate.hpp>
#include <pulse/tune/search_space.hpp>

namespace pulse {

namespace detail {

[[nodiscard]] inline std::vector<int> divisors_of(int number) {
    std::vector<int> all{};
    for (int d = 1; d <= number; ++d) {
        if (number % d == 0) { all.push_back(d); }
    }
    return all;
}

[[nodiscard]] inline bool allows(const std::vector<int>& values, int value) {
    return values.empty() || std::find(values.begin(), values.end(), value) != values.end();
}

inline void require_sensible(const tune_options& options, int devices) {
    const auto fail = [](const std::string& what) { throw input_error("tune: " + what); };
    if (devices < 1) { fail("devices: it must be at least 1"); }
    if (options.global_batch < 1) { fail("global_batch: it must be at least 1"); }
    for (const double slack : options.slacks) {
        if (!(slack >= 0.0)) { fail("slacks: each must be at least 0, not " + std::to_string(slack)); }
    }
    for (const int p : options.pipeline_degrees) {
        if (p < 1 || devices % p != 0) {
            fail("pipeline_degrees: " + std::to_string(p) + " does not divide the device count " +
                 std::to_string(devices));
        }
    }
    for (const int d : options.data_degrees) {
        if (d < 1 || devices % d != 0) {
            fail("data_degrees: " + std::to_string(d) + " does not divide the device count " + std::to_string(devices));
        }
    }
    const auto positive = [&](const std::vector<int>& values, const char* name) {
        for (const int v : values) {
            if (v < 1) { fail(std::string{name} + ": each must be at least 1, not " + std::to_string(v)); }
        }
    };
    positive(options.microbatch_sizes, "microbatch_sizes");
    positive(options.microbatches, "microbatches");
    positive(options.waves, "waves");
    positive(options.chunks, "chunks");
    const auto present = [&](bool there, const char* name) {
        if (!there) { fail(std::string{name} + ": must not be empty"); }
    };
    present(!options.placements.empty(), "placements");
    present(!options.waves.empty(), "waves");
    present(!options.chunks.empty(), "chunks");
    present(!options.routings.empty(), "routings");
    present(!options.split_backwards.empty(), "split_backwards");
    present(!options.recomputations.empty(), "recomputations");
    present(!options.layouts.empty(), "layouts");
    present(!options.methods.empty(), "methods");
    present(!options.slacks.empty(), "slacks");
    present(!options.sharded_optimizers.empty(), "sharded_optimizers");
    check_parameter_memory(options.kept);
    if (options.memory_limit_bytes < 0) { fail("memory_limit_bytes: it must not be negative"); }
    if (!(options.memory_gb_per_s >= 0.0)) { fail("memory_gb_per_s: it must not be negative"); }
    if (options.refined < 0) { fail("refined: it must not be negative"); }
    if (options.ranked < 1) { fail("ranked: it must be at least 1"); }
}

/// The stage layouts of `c`'s pipeline degree: placement and number of stages on a device.
inline void add_layouts_of_stages(std::vector<tune_candidate>& all, tune_candidate c, const tune_options& options) {
    const auto add = [&](placement kind, int waves) {
        c.kind = kind;
        c.waves = waves;
        all.push_back(c);
    };
    const auto has = [&](placement kind) {
        return std::find(options.placements.begin(), options.placements.end(), kind) != options.placements.end();
    };
    if (c.pipeline_degree == 1 && has(placement::sequential)) {
        add(placement::sequential, 1); // one device, one stage
        // More stages on the device help if each is recomputed separately, or if replicas sum the gradients of one
        // during the passes of another.
        for (const int waves : options.waves) {
            if (has(placement::folded)) { add(placement::folded, waves); }
        }
        for (const int chunks : options.chunks) {
            if (chunks > 1 && has(placement::interleaved)) { add(placement::interleaved, chunks); }
        }
        return;
    }
    for (const placement kind : options.placements) {
        if (kind == placement::sequential) { add(kind, 1); }
        for (const int waves : options.waves) {
            if (kind == placement::folded) { add(kind, waves); }
        }
        for (const int chunks : options.chunks) {
            if (kind == placement::interleaved) { add(kind, chunks); }
        }
    }
}

/// Every candidate with each value, or with the first alone if `once` says that the value makes no difference.
template <class Values, class Set, class Once>
[[nodiscard]] std::vector<tune_candidate> multiply(const std::vector<tune_candidate>& from, const Values& values,
                                                   Set set, Once once) {
    std::vector<tune_candidate> all{};
    for (const tune_candidate& c : from) {
        for (const auto& value : values) {
            all.push_back(c);
            set(all.back(), value);
            if (once(c)) { break; }
        }
    }
    return all;
}

/// Why a candidate violates its method or the requested split; empty if it does not.
[[nodiscard]] inline std::string unmet_text(const tune_candidate& c, bool split_only) {
    const bool plain = c.method == schedule_method::list || c.method == schedule_method::gpipe;
    const std::string of_method = "schedule method " + std::string{name_of(c.method)} + " ";
    if (c.pipeline_degree == 1 && !plain) { return of_method + "needs more than one device"; }
    if (c.pipeline_degree == 1 && split_only) { return "a split backward needs more than one device"; }
    if (c.method == schedule_method::interleaved && c.microbatches < c.pipeline_degree) {
        return of_method + "needs as many microbatches as devices";
    }
    const std::string_view need = unmet_need(c.method, c.kind, c.waves, c.split_backward);
    return need.empty() ? std::string{} : of_method + std::string{need};
}

} // namespace detail

PULSE_INLINE std::vector<tune_candidate> enumerate_candidates(const tune_options& options, int devices, int places,
                                                              left_out_candidates& left_out) {
    detail::require_sensible(options, devices);
    left_out = {};
    std::vector<tune_candidate> all{};
    const auto degrees = options.pipeline_degrees.empty() ? detail::divisors_of(devices) : options.pipeline_degrees;
    for (const int p : degrees) {
        const int d = devices / p;
        if (!detail::allows(options.data_degrees, d)) { continue; }
        std::vector<int> sizes = options.microbatch_sizes;
        for (int b = 1; options.microbatch_sizes.empty() && b <= std::max(1, options.global_batch / d); b *= 2) {
            sizes.push_back(b);
        }
        for (const int size : sizes) {
            const std::int64_t samples = std::int64_t{size} * d;
            const auto count = static_cast<int>(options.global_batch / samples);
            if (options.global_batch % samples != 0) {
                ++left_out.indivisible;
                continue;
            }
            if (!detail::allows(options.microbatches, count)) { continue; }
            tune_candidate c{};
            c.fold = options.fold;
            c.pipeline_degree = p;
            c.data_degree = d;
            c.microbatch_size = size;
            c.microbatches = count;
            detail::add_layouts_of_stages(all, c, options);
        }
    }
    const auto alone = [](const tune_candidate& c) { return c.pipeline_degree == 1; };
    all = detail::multiply(
        all, options.routings, [](tune_candidate& c, skip_routing r) { c.routing = r; },
        [&](const tune_candidate& c) { return alone(c) || c.kind == placement::folded; });
    const auto unsplit_if_alone = [&](tune_candidate& c, bool split) { c.split_backward = split && !alone(c); };
    all = detail::multiply(all, options.split_backwards, unsplit_if_alone, alone);
    all = detail::multiply(
        all, options.recomputations, [](tune_candidate& c, recomputation r) { c.recompute = r; },
        [](const tune_candidate&) { return false; });
    all = detail::multiply(
        all, options.layouts, [](tune_candidate& c, rank_layout l) { c.layout = l; },
        [&](const tune_candidate& c) { return alone(c) || c.data_degree == 1 || places == 1; });
    all = detail::multiply(
        all, options.methods, [](tune_candidate& c, schedule_method m) { c.method = m; },
        [](const tune_candidate&) { return false; });
    all = detail::multiply(
        all, options.slacks, [](tune_candidate& c, double slack) { c.slack = slack; }, alone);
    all = detail::multiply(
        all, options.sharded_optimizers,
        [](tune_candidate& c, bool sharded) { c.sharded_optimizer = sharded && c.data_degree > 1; },
        [](const tune_candidate& c) { return c.data_degree == 1; });
    std::vector<tune_candidate> kept{};
    const auto& splits = options.split_backwards;
    const bool split_only = std::find(splits.begin(), splits.end(), false) == splits.end();
    for (tune_candidate& c : all) {
        // More stages on one device help only if each is recomputed separately, or if nothing else is asked for.
        if (alone(c) && options.placements.size() > 1 && c.kind == placement::interleaved &&
            c.recompute != recomputation::stages && c.recompute != recomputation::selective) {
            continue;
        }
        std::string why = detail::unmet_text(c, split_only);
        if (why.empty() && options.self_conditioning) { why = unmet_by_previews(c); }
        if (!why.empty()) {
            if (left_out.unmet++ == 0) { left_out.why = why; }
            continue;
        }
        if (alone(c)) {
            // Both methods give the same order.
            c.method = schedule_method::list;
            if (!kept.empty() && kept.back() == c) { continue; }
        }
        kept.push_back(c);
    }
    return kept;
}

} // namespace pulse
