#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/ids.hpp>
#include <pulse/plan/frozen_flow.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/print.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

/// A pass, a frozen task or a message of a step.
struct step_event {
    bool is_message{};
    /// For a task and its messages, only the end is used.
    timed_pass work{};
    message_id message{};
    int task{-1}; ///< number of a frozen task; -1 for passes and messages
};

namespace detail {

[[noreturn]] inline void refuse_order(const timed_pass& p, const std::string& why) {
    throw input_error("pulse: plan: schedule: " + to_text(p.op, p.stage, p.microbatch) + " " + why);
}

[[noreturn]] inline void refuse_order(const frozen_flow& frozen, int task, const std::string& why) {
    const frozen_task& t = frozen.task(task);
    throw input_error("pulse: plan: frozen_tasks[" + std::to_string(t.device) + "][" +
                      std::to_string(task - frozen.first_of(t.device)) + "] " + why);
}

/// The graph whose nodes are a step's passes, frozen tasks and messages, and its order by time.
class step_graph {
public:
    constexpr step_graph(const plan& planned, const step_model& model) :
        stages_(model.stage_count()), microbatches_(planned.microbatches), split_(planned.split_backward),
        previews_(planned.previews), frozen_(&model.frozen()) {
        if (microbatches_ < 1) { throw input_error("pulse: plan: microbatches must be positive"); }
        if (planned.order.devices.size() != static_cast<std::size_t>(model.device_count())) {
            throw input_error("pulse: plan: schedule must have one list for each device");
        }
        if (previews_ < 0 || previews_ > microbatches_) {
            throw input_error("pulse: plan: previews must be from 0 to microbatches");
        }
        nodes_.resize(static_cast<std::size_t>(((split_ ? 3 : 2) * microbatches_ + previews_) * stages_), step_event{});
        first_task_ = nodes_.size();
        for (int n = 0; n != frozen_->count(); ++n) {
            const frozen_task& t = frozen_->task(n);
            nodes_.push_back({false, {{}, 0, 0, t.start_us, t.end_us}, {}, n});
        }
        after_.resize(nodes_.size());
        waits_.resize(nodes_.size(), 0);
        add_passes(planned, model);
        for (int m = 0; m != microbatches_; ++m) { chain(model, m); }
        for (const microbatch_id m : model.microbatches()) {
            for (const message_id& message : model.messages(m)) { add_message(model, message); }
        }
        chain_tasks();
    }

    /// Kahn's algorithm, smallest time first. Throws input_error when the order has a cycle.
    [[nodiscard]] constexpr std::vector<step_event> order() const {
        std::vector<step_event> done{};
        done.reserve(nodes_.size());
        std::vector<int> waits = waits_;
        std::vector<key> ready{};
        const auto push = [&](std::size_t n) {
            ready.push_back({nodes_[n].work.end_us, nodes_[n].is_message ? 0 : 1, n});
            std::push_heap(ready.begin(), ready.end(), later);
        };
        for (std::size_t n = 0; n != nodes_.size(); ++n) {
            if (waits[n] == 0) { push(n); }
        }
        while (!ready.empty()) {
            std::pop_heap(ready.begin(), ready.end(), later);
            const std::size_t n = ready.back().node;
            ready.pop_back();
            done.push_back(nodes_[n]);
            for (const std::size_t next : after_[n]) {
                if (--waits[next] == 0) { push(next); }
            }
        }
        if (done.size() != nodes_.size()) { name_stuck(waits); }
        return done;
    }

private:
    struct key {
        double time_us;
        int rank;
        std::size_t node;
    };
    static constexpr bool later(const key& a, const key& b) noexcept {
        if (a.time_us != b.time_us) { return a.time_us > b.time_us; }
        if (a.rank != b.rank) { return a.rank > b.rank; }
        return a.node > b.node;
    }

    int stages_;
    int microbatches_;
    bool split_;
    int previews_;
    const frozen_flow* frozen_;
    std::size_t first_task_{}; // frozen tasks follow the passes
    std::vector<step_event> nodes_{};
    std::vector<std::vector<std::size_t>> after_{};
    std::vector<int> waits_{};

    [[nodiscard]] constexpr int first_of(pass op) const noexcept {
        return op == pass::preview ? microbatches_ - previews_ : 0;
    }
    [[nodiscard]] constexpr std::size_t node(pass op, int stage, int m) const noexcept {
        if (op == pass::preview) { // numbered after all others
            return static_cast<std::size_t>(((split_ ? 3 : 2) * microbatches_ + previews_) * stages_ -
                                            (stages_ - stage) * previews_ + m - first_of(op));
        }
        return static_cast<std::size_t>((static_cast<int>(op) * stages_ + stage) * microbatches_ + m);
    }
    [[nodiscard]] constexpr std::size_t node_of_task(int n) const noexcept {
        return first_task_ + static_cast<std::size_t>(n);
    }
    constexpr void arc(std::size_t before, std::size_t after) {
        after_[before].push_back(after);
        ++waits_[after];
    }
    constexpr void add_passes(const plan& planned, const step_model& model) {
        std::vector<char> seen(nodes_.size(), 0);
        for (std::size_t d = 0; d != planned.order.devices.size(); ++d) {
            const std::vector<timed_pass>& passes = planned.order.devices[d];
            const int device = static_cast<int>(d);
            int task = frozen_->first_of(device);
            std::size_t before = nodes_.size();
            const auto follow = [&](std::size_t n) {
                if (before != nodes_.size()) { arc(before, n); }
                before = n;
            };
            const auto add_tasks = [&](double before_us) {
                const int end = frozen_->first_of(device) + frozen_->count_on(device);
                for (; task != end && frozen_->task(task).start_us < before_us; ++task) { follow(node_of_task(task)); }
            };
            for (std::size_t i = 0; i != passes.size(); ++i) {
                const timed_pass& p = passes[i];
                if (p.stage < 0 || p.stage >= stages_) { refuse_order(p, "names a stage that does not exist"); }
                if (p.microbatch < 0 || p.microbatch >= microbatches_) {
                    refuse_order(p, "names a microbatch that does not exist");
                }
                if (!split_ && p.op == pass::backward_weight) { refuse_order(p, "requires split_backward"); }
                if (p.microbatch < first_of(p.op)) { refuse_order(p, "names a microbatch without a preview"); }
                if (model.device_of_stage(p.stage) != static_cast<int>(d)) { refuse_order(p, "is on another device"); }
                const std::size_t n = node(p.op, p.stage, p.microbatch);
                if (seen[n] != 0) { refuse_order(p, "appears twice"); }
                seen[n] = 1;
                nodes_[n].work = p;
                add_tasks(p.start_us);
                follow(n);
            }
            add_tasks(std::numeric_limits<double>::infinity());
        }
        for (const pass kind : {pass::forward, pass::backward_input, pass::backward_weight, pass::preview}) {
            if (kind == pass::backward_weight && !split_) { continue; }
            for (int s = 0; s != stages_; ++s) {
                for (int m = first_of(kind); m != microbatches_; ++m) {
                    if (seen[node(kind, s, m)] == 0) { refuse_order({kind, s, m, 0, 0}, "is missing"); }
                }
            }
        }
    }
    constexpr void chain(const step_model& model, int m) {
        const bool previewed = m >= first_of(pass::preview);
        for (int s = 0; s != stages_; ++s) {
            if (previewed && s + 1 != stages_) { arc(node(pass::preview, s, m), node(pass::preview, s + 1, m)); }
            if (!model.ends_chain(s)) {
                arc(node(pass::forward, s, m), node(pass::forward, s + 1, m));
                arc(node(pass::backward_input, s + 1, m), node(pass::backward_input, s, m));
            } else {
                arc(node(pass::forward, s, m), node(pass::backward_input, s, m));
            }
            if (split_) { arc(node(pass::backward_input, s, m), node(pass::backward_weight, s, m)); }
        }
        // On two devices the prediction message carries this dependency.
        if (previewed && model.device_of_stage(0) == model.device_of_stage(stages_ - 1)) {
            arc(node(pass::preview, stages_ - 1, m), node(pass::forward, 0, m));
        }
    }
    /// Tasks wait for the chains that they continue, which may arrive as messages.
    constexpr void chain_tasks() {
        for (int n = 0; n != frozen_->count(); ++n) {
            for (const frozen_flow::pause& p : frozen_->into(n)) {
                if (frozen_->task(p.before).device == frozen_->task(n).device) {
                    arc(node_of_task(p.before), node_of_task(n));
                }
            }
        }
        for (const message_id& message : frozen_->messages()) {
            const std::size_t made = post_after(node_of_task(message.index), message);
            if (message.kind == message_kind::encoding) { arc(made, node_of_task(index_of(message.microbatch))); }
        }
    }
    /// Adds a node for a message that node `before` makes.
    constexpr std::size_t post_after(std::size_t before, const message_id& message) {
        const double time_us = nodes_[before].work.end_us;
        nodes_.push_back({true, {{}, 0, 0, time_us, time_us}, message});
        after_.emplace_back();
        waits_.push_back(0);
        arc(before, nodes_.size() - 1);
        return nodes_.size() - 1;
    }
    constexpr void add_message(const step_model& model, const message_id& message) {
        const pass op = is_preview(message.microbatch)     ? pass::preview
                        : step_model::is_backward(message) ? pass::backward_input
                                                           : pass::forward;
        const pass read_by = message.kind == message_kind::prediction ? pass::forward : op;
        const int m = data_of(message.microbatch);
        const std::size_t after = node(read_by, model.consumer_stage(message), m);
        arc(post_after(node(op, model.producer_stage(message), m), message), after);
    }
    /// Follows waits backwards from any node that never became ready until one repeats: that one is on a cycle.
    [[noreturn]] void name_stuck(const std::vector<int>& waits) const {
        std::size_t n = 0;
        while (waits[n] == 0) { ++n; }
        std::vector<bool> met(nodes_.size());
        while (!met[n] || nodes_[n].is_message) {
            met[n] = true;
            std::size_t before = 0;
            while (waits[before] == 0 ||
                   std::find(after_[before].begin(), after_[before].end(), n) == after_[before].end()) {
                ++before;
            }
            n = before;
        }
        const char* const why = "can never start: its device's order and the dependencies wait for each other";
        if (nodes_[n].task >= 0) { refuse_order(*frozen_, nodes_[n].task, why); }
        refuse_order(nodes_[n].work, why);
    }
};

} // namespace detail

/// One order of all passes, frozen tasks and messages of a step that agrees with every device's order and every
/// dependency.
///
/// Of the events that are ready, the earliest end comes first (a message has the end of the pass that makes it), and
/// messages come before passes. So a receive is posted before the pass of its rank during which the message is sent,
/// and the transfer need not wait for that pass. Throws input_error naming a pass if the schedule is incomplete, has a
/// pass on the wrong device, or cannot be executed because waits form a cycle.
[[nodiscard]] constexpr std::vector<step_event> order_step(const plan& planned, const step_model& model) {
    return detail::step_graph{planned, model}.order();
}

} // namespace pulse
