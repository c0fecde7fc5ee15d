#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/plan/frozen_rules.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/print.hpp>
#include <pulse/plan/require_valid.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

namespace detail {

/// Rules of a plan that need no model; fields are named as in `pulse-plan/1`.
class plan_rules {
public:
    plan_rules(const plan& planned, std::string_view source) : plan_(planned), source_(source) {}

    void run() const {
        counts();
        chains();
        stages();
        recomputed_stages();
        schedule_shape();
        schedule_times();
        frozen_rules{plan_, source_}.run();
        predicted();
    }

private:
    const plan& plan_;
    std::string_view source_;

    [[noreturn]] void fail(const std::string& field, const std::string& why) const {
        throw input_error(std::string(source_) + ": " + field + ' ' + why);
    }
    void positive(const char* field, int value) const {
        if (value < 1) { fail(field, "must be at least 1, not " + std::to_string(value)); }
    }
    void number(const std::string& field, double value) const {
        if (!std::isfinite(value)) { fail(field, "must be finite"); }
        if (value < 0) { fail(field, "must not be negative"); }
    }
    [[nodiscard]] static std::string at(const char* list, std::size_t i) {
        return std::string(list) + '[' + std::to_string(i) + ']';
    }
    [[nodiscard]] int stage_total() const { return static_cast<int>(plan_.cut.stages.size()); }
    [[nodiscard]] int kinds() const { return plan_.split_backward ? 3 : 2; }
    [[nodiscard]] int first_preview() const { return plan_.microbatches - plan_.previews; }

    void counts() const {
        positive("pipeline_degree", plan_.pipeline_degree);
        positive("data_degree", plan_.data_degree);
        if (!plan_.has_even_groups()) {
            fail("node_replicas", "must be 1 or a power of two below data_degree (" +
                                      std::to_string(plan_.data_degree) + ") that divides it, not " +
                                      std::to_string(plan_.node_replicas));
        }
        positive("waves", plan_.cut.waves);
        positive("microbatches", plan_.microbatches);
        positive("microbatch_size", plan_.microbatch_size);
        if (plan_.previews < 0) { fail("previews", "must not be negative"); }
        if (plan_.previews > plan_.microbatches) { fail("previews", "must not be more than microbatches"); }
        // Keeps the number of slots within an int.
        if (plan_.spare_sends < 0) { fail("spare_sends", "must not be negative"); }
        if (plan_.spare_sends > (1 << 20)) { fail("spare_sends", "is too large"); }
        if (plan_.cut.devices != plan_.pipeline_degree) {
            fail("pipeline_degree", "must equal the partition's device count");
        }
        // More stages than these cannot be listed in memory, and their count would not fit an int.
        const auto most = std::int64_t{1} << 24;
        if (std::int64_t{plan_.pipeline_degree} * plan_.cut.waves > most) { fail("waves", "is too large"); }
    }
    [[nodiscard]] int stages_of_chain() const {
        return stage_count(plan_.cut.kind, plan_.pipeline_degree, plan_.cut.waves);
    }
    [[nodiscard]] int chain_count() const { return static_cast<int>(plan_.further_chains.size()) + 1; }
    /// A second backbone has as many stages as the first.
    void chains() const {
        if (plan_.further_chains.empty()) { return; }
        if (plan_.cut.kind != placement::folded || plan_.cut.waves != 1) {
            fail("further_chains", "must be absent unless placement is folded in one wave");
        }
        if (plan_.data_degree != 1) { fail("further_chains", "must be absent unless data_degree is 1"); }
        if (!plan_.frozen_tasks.empty()) { fail("further_chains", "must be absent when there are frozen_tasks"); }
        if (plan_.previews != 0) { fail("further_chains", "must be absent when there are previews"); }
        if (plan_.gradient_release) { fail("further_chains", "must be absent when gradient_release is set"); }
        if (plan_.further_chains != std::vector<int>{stages_of_chain()}) {
            fail("further_chains", "must hold only " + std::to_string(stages_of_chain()) +
                                       ": a second backbone follows the stages of the first");
        }
    }
    void recomputed_stages() const {
        const stage_recomputation& again = plan_.recompute;
        const std::size_t wanted = again.kind == recomputation::selective ? plan_.cut.stages.size() : 0;
        if (again.stages.size() != wanted) {
            fail("recomputed_stages", wanted == 0 ? "must be empty unless recomputation is selective"
                                                  : "must have one entry per stage (" + std::to_string(wanted) +
                                                        "), not " + std::to_string(again.stages.size()));
        }
    }
    void stages() const {
        const int wanted = chain_count() * stages_of_chain();
        if (plan_.cut.stages.size() != static_cast<std::size_t>(wanted)) {
            fail("stages", "has " + std::to_string(plan_.cut.stages.size()) + " entries; " +
                               std::string(name_of(plan_.cut.kind)) + " placement over these devices and waves has " +
                               std::to_string(wanted));
        }
        int next = 0;
        for (int s = 0; s != wanted; ++s) {
            const auto i = static_cast<std::size_t>(s);
            const stage& one = plan_.cut.stages[i];
            if (one.index != s) { fail(at("stages", i) + ".index", "must be " + std::to_string(s)); }
            // A second backbone is placed in reverse device order.
            const int ahead = device_of(plan_.cut.kind, s % stages_of_chain(), plan_.pipeline_degree);
            const int device = s < stages_of_chain() ? ahead : plan_.pipeline_degree - 1 - ahead;
            if (one.device != device) {
                fail(at("stages", i) + ".device", "must be " + std::to_string(device) + " under " +
                                                      std::string(name_of(plan_.cut.kind)) + " placement");
            }
            if (one.first_layer != next) {
                fail(at("stages", i) + ".first_layer", "must be " + std::to_string(next) + ": stages leave no gaps");
            }
            // A layer number must leave room for the next.
            if (one.last_layer < one.first_layer || one.last_layer > (1 << 30)) {
                fail(at("stages", i) + ".last_layer", "must be from first_layer to 2^30");
            }
            next = one.last_layer + 1;
        }
    }
    /// Requires the right number of passes, each of a stage of its device, none twice: so none is missing either.
    void schedule_shape() const {
        const auto& devices = plan_.order.devices;
        if (devices.size() != static_cast<std::size_t>(plan_.pipeline_degree)) {
            fail("schedule", "must have one list per device (" + std::to_string(plan_.pipeline_degree) + ")");
        }
        std::int64_t listed = 0;
        for (std::size_t d = 0; d != devices.size(); ++d) {
            listed += static_cast<std::int64_t>(devices[d].size());
            for (std::size_t i = 0; i != devices[d].size(); ++i) { pass_numbers(d, i); }
        }
        const std::int64_t wanted =
            std::int64_t{stage_total()} * (std::int64_t{kinds()} * plan_.microbatches + plan_.previews);
        if (listed != wanted) {
            fail("schedule", "has " + std::to_string(listed) + " passes; its stages and microbatches need " +
                                 std::to_string(wanted));
        }
        std::vector<bool> seen(number_of_all());
        for (std::size_t d = 0; d != devices.size(); ++d) {
            for (std::size_t i = 0; i != devices[d].size(); ++i) {
                const timed_pass& p = devices[d][i];
                const std::size_t n = number_of(p.op, p.stage, p.microbatch);
                if (seen[n]) { fail(entry(d, i), "repeats " + to_text(p.op, p.stage, p.microbatch)); }
                seen[n] = true;
            }
        }
    }
    [[nodiscard]] static std::string entry(std::size_t d, std::size_t i) {
        return at("schedule", d) + '[' + std::to_string(i) + ']';
    }
    [[nodiscard]] std::size_t number_of_all() const {
        return static_cast<std::size_t>(4 * std::int64_t{stage_total()} * plan_.microbatches);
    }
    [[nodiscard]] std::size_t number_of(pass op, int stage, int m) const {
        const auto stages = static_cast<std::size_t>(stage_total());
        return (static_cast<std::size_t>(op) * stages + static_cast<std::size_t>(stage)) *
                   static_cast<std::size_t>(plan_.microbatches) +
               static_cast<std::size_t>(m);
    }
    void pass_numbers(std::size_t d, std::size_t i) const {
        const timed_pass& p = plan_.order.devices[d][i];
        if (p.op == pass::backward_weight && !plan_.split_backward) {
            fail(entry(d, i) + ".op", "must not be W when split_backward is false");
        }
        if (p.stage < 0 || p.stage >= stage_total()) {
            fail(entry(d, i) + ".stage", "must be from 0 to " + std::to_string(stage_total() - 1));
        }
        if (plan_.cut.stages[static_cast<std::size_t>(p.stage)].device != static_cast<int>(d)) {
            fail(entry(d, i) + ".stage", "is not on device " + std::to_string(d));
        }
        if (p.microbatch < 0 || p.microbatch >= plan_.microbatches) {
            fail(entry(d, i) + ".microbatch", "must be from 0 to " + std::to_string(plan_.microbatches - 1));
        }
        if (p.op == pass::preview && p.microbatch < first_preview()) {
            fail(entry(d, i) + ".microbatch", "names a microbatch without a preview");
        }
        number(entry(d, i) + ".start_us", p.start_us);
        number(entry(d, i) + ".end_us", p.end_us);
        if (p.end_us < p.start_us) { fail(entry(d, i) + ".end_us", "is before start_us"); }
    }
    /// One pass at a time on a device, and every pass after its dependencies, up to 1e-9 of the makespan: sums of
    /// doubles in another order may differ by that.
    void schedule_times() const {
        const auto& devices = plan_.order.devices;
        const double makespan = plan_.order.makespan_us();
        const double slack = makespan > 1 ? 1e-9 * makespan : 1e-9;
        std::vector<double> end(number_of_all());
        for (const auto& passes : devices) {
            for (const timed_pass& p : passes) { end[number_of(p.op, p.stage, p.microbatch)] = p.end_us; }
        }
        for (std::size_t d = 0; d != devices.size(); ++d) {
            for (std::size_t i = 0; i != devices[d].size(); ++i) {
                const timed_pass& p = devices[d][i];
                if (i > 0 && p.start_us < devices[d][i - 1].end_us - slack) {
                    fail(entry(d, i) + ".start_us", "is before the end of the pass that is listed before it");
                }
                const bool begins = p.stage % stages_of_chain() == 0;
                pass op = p.op;
                int stage = p.stage;
                if (begins && op == pass::forward && p.microbatch >= first_preview()) {
                    op = pass::preview;
                    stage = stage_total() - 1;
                } else if (begins && (op == pass::forward || op == pass::preview)) {
                    continue;
                } else if (op == pass::forward || op == pass::preview) {
                    --stage;
                } else if (op == pass::backward_weight) {
                    op = pass::backward_input;
                } else if ((stage + 1) % stages_of_chain() == 0) {
                    op = pass::forward;
                } else {
                    ++stage;
                }
                if (p.start_us < end[number_of(op, stage, p.microbatch)] - slack) {
                    fail(entry(d, i) + ".start_us", "is before the end of " + to_text(op, stage, p.microbatch));
                }
            }
        }
    }
    void predicted() const {
        const prediction& p = plan_.predicted;
        number("predicted.step_us", p.step_us);
        number("predicted.lower_bound_us", p.lower_bound_us);
        number("predicted.bubble_ratio", p.bubble_ratio);
        if (p.bubble_ratio > 1) { fail("predicted.bubble_ratio", "must not be above 1"); }
        number("predicted.samples_per_s", p.samples_per_s);
        if (!p.peak_memory_bytes.empty() &&
            p.peak_memory_bytes.size() != static_cast<std::size_t>(plan_.pipeline_degree)) {
            fail("predicted.peak_memory_bytes", "must have one entry for each device");
        }
        for (std::size_t i = 0; i != p.peak_memory_bytes.size(); ++i) {
            if (p.peak_memory_bytes[i] < 0) { fail(at("predicted.peak_memory_bytes", i), "must not be negative"); }
        }
        if (p.boundary_bytes < 0) { fail("predicted.boundary_bytes", "must not be negative"); }
        if (p.skip_bytes < 0) { fail("predicted.skip_bytes", "must not be negative"); }
    }
};

} // namespace detail

PULSE_INLINE void require_valid(const plan& planned, std::string_view source) {
    detail::plan_rules{planned, source}.run();
}

} // namespace pulse
