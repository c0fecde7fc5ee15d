#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/schedule/frozen_work.hpp>

namespace pulse::detail {

/// Rules for a plan's frozen tasks that need no costs; fields are named as in `pulse-plan/1`.
///
/// A plan does not describe its components: hosts tell how many there are, tasks how many layers each has.
class frozen_rules {
public:
    frozen_rules(const plan& planned, std::string_view source) : plan_(planned), source_(source) {}

    void run() {
        if (plan_.frozen_tasks.empty() && plan_.frozen_hosts.empty()) { return; }
        hosts();
        lists();
        for (int c = 0; c != static_cast<int>(of_component_.size()); ++c) { chains(c); }
    }

private:
    struct listed {
        const frozen_task* task{};
        std::size_t device{};
        std::size_t entry{};
    };

    const plan& plan_;
    std::string_view source_;
    std::vector<std::vector<listed>> of_component_{};

    [[noreturn]] void fail(const std::string& field, const std::string& why) const {
        throw input_error(std::string(source_) + ": " + field + ' ' + why);
    }
    [[nodiscard]] static std::string name(const char* list, std::size_t d, std::size_t i) {
        return std::string(list) + '[' + std::to_string(d) + "][" + std::to_string(i) + ']';
    }
    [[nodiscard]] static std::string name(const listed& l) { return name("frozen_tasks", l.device, l.entry); }
    /// Tolerance for sums of doubles in another order, as for passes.
    [[nodiscard]] double slack() const { return 1e-9 * std::max(1.0, last_end_us(plan_.order, plan_.frozen_tasks)); }
    [[nodiscard]] std::int64_t samples() const { return std::int64_t{plan_.microbatches} * plan_.microbatch_size; }

    void one_list_a_device(const char* field, std::size_t lists) const {
        if (lists == static_cast<std::size_t>(plan_.pipeline_degree)) { return; }
        fail(field, "must have one list per device (" + std::to_string(plan_.pipeline_degree) + ")");
    }
    /// Checks the lists of hosts; component numbers are counted up to the greatest that they name.
    void hosts() {
        one_list_a_device("frozen_tasks", plan_.frozen_tasks.size());
        one_list_a_device("frozen_hosts", plan_.frozen_hosts.size());
        constexpr int most = 1 << 10;
        for (std::size_t d = 0; d != plan_.frozen_hosts.size(); ++d) {
            const auto& here = plan_.frozen_hosts[d];
            for (std::size_t i = 0; i != here.size(); ++i) {
                if (here[i] < 0 || here[i] >= most) {
                    fail(name("frozen_hosts", d, i), "must be from 0 to " + std::to_string(most - 1));
                }
                if (std::find(here.begin(), here.begin() + static_cast<std::ptrdiff_t>(i), here[i]) !=
                    here.begin() + static_cast<std::ptrdiff_t>(i)) {
                    fail(name("frozen_hosts", d, i), "repeats component " + std::to_string(here[i]));
                }
                of_component_.resize(std::max(of_component_.size(), static_cast<std::size_t>(here[i]) + 1));
            }
        }
    }
    void lists() {
        for (std::size_t d = 0; d != plan_.frozen_tasks.size(); ++d) {
            for (std::size_t i = 0; i != plan_.frozen_tasks[d].size(); ++i) {
                numbers(d, i);
                const frozen_task& t = plan_.frozen_tasks[d][i];
                of_component_[static_cast<std::size_t>(t.component)].push_back({&t, d, i});
            }
            alone(d);
        }
    }
    void numbers(std::size_t d, std::size_t i) const {
        const frozen_task& t = plan_.frozen_tasks[d][i];
        const std::string here = name("frozen_tasks", d, i);
        const auto& hosted = plan_.frozen_hosts[d];
        if (std::find(hosted.begin(), hosted.end(), t.component) == hosted.end()) {
            fail(here + ".component", "is not hosted by device " + std::to_string(d) + " (frozen_hosts)");
        }
        if (t.device != static_cast<int>(d)) { fail(here, "is in the list of another device"); }
        if (t.first_layer < 0) { fail(here + ".first_layer", "must not be negative"); }
        if (t.last_layer < t.first_layer || t.last_layer > (1 << 30)) {
            fail(here + ".last_layer", "must be from first_layer to 2^30");
        }
        if (t.first_sample < 0 || t.first_sample >= samples()) {
            fail(here + ".first_sample", "must be from 0 to " + std::to_string(samples() - 1));
        }
        if (t.samples < 1 || t.samples > samples() - t.first_sample) {
            fail(here + ".samples",
                 "must be at least 1 and end within the " + std::to_string(samples()) + " samples of a step");
        }
        for (const auto& [field, value] : {std::pair{".start_us", t.start_us}, std::pair{".end_us", t.end_us}}) {
            if (!std::isfinite(value)) { fail(here + field, "must be finite"); }
            if (value < 0) { fail(here + field, "must not be negative"); }
        }
        if (t.end_us < t.start_us) { fail(here + ".end_us", "is before start_us"); }
    }
    /// One task or pass at a time; both lists are sorted by time.
    void alone(std::size_t d) const {
        const auto& tasks = plan_.frozen_tasks[d];
        const auto& passes = plan_.order.devices[d];
        const double most = slack();
        std::size_t next = 0;
        for (std::size_t i = 0; i != tasks.size(); ++i) {
            if (i != 0 && tasks[i].start_us < tasks[i - 1].end_us - most) {
                fail(name("frozen_tasks", d, i) + ".start_us",
                     "is before the end of the task that is listed before it");
            }
            while (next != passes.size() && passes[next].end_us <= tasks[i].start_us + most) { ++next; }
            if (next != passes.size() && passes[next].start_us < tasks[i].end_us - most) {
                fail(name("frozen_tasks", d, i) + ".start_us", "makes the task overlap schedule[" + std::to_string(d) +
                                                                   "][" + std::to_string(next) + "] on its device");
            }
        }
    }

    /// Sweeps the samples: on each of them, tasks must run every layer of the component once, one after the other.
    void chains(int component) const {
        const auto& all = of_component_[static_cast<std::size_t>(component)];
        int layers = 0;
        std::map<std::int64_t, std::vector<listed>> begins{};
        std::map<std::int64_t, std::vector<listed>> ends{};
        begins[0]; // the sweep starts at sample 0 even if no task does
        for (const listed& l : all) {
            layers = std::max(layers, l.task->last_layer + 1);
            begins[l.task->first_sample].push_back(l);
            ends[std::int64_t{l.task->first_sample} + l.task->samples].push_back(l);
            begins[std::int64_t{l.task->first_sample} + l.task->samples]; // the set of running tasks changes there
        }
        if (all.empty()) { fail("frozen_tasks", "run no layer of component " + std::to_string(component)); }
        std::map<int, listed> running{}; // by first layer
        std::int64_t covered = 0;        // layers that they run
        for (const auto& [sample, starting] : begins) {
            if (const auto ended = ends.find(sample); ended != ends.end()) {
                for (const listed& l : ended->second) {
                    running.erase(l.task->first_layer);
                    covered -= l.task->last_layer - l.task->first_layer + 1;
                }
            }
            for (const listed& l : starting) {
                const auto [at, is_new] = running.emplace(l.task->first_layer, l);
                const auto after = std::next(at);
                const bool into_next = after != running.end() && after->first <= l.task->last_layer;
                const bool from_last =
                    at != running.begin() && std::prev(at)->second.task->last_layer >= l.task->first_layer;
                if (!is_new || into_next || from_last) {
                    fail(name(l), "runs a layer of component " + std::to_string(component) + " again on sample " +
                                      std::to_string(sample));
                }
                covered += l.task->last_layer - l.task->first_layer + 1;
            }
            if (sample == samples()) { return; }
            if (covered != layers) {
                fail("frozen_tasks", "leave out a layer of component " + std::to_string(component) + " on sample " +
                                         std::to_string(sample));
            }
            for (const listed& l : starting) { in_order(running, l); }
        }
    }
    void in_order(const std::map<int, listed>& running, const listed& l) const {
        const auto at = running.find(l.task->first_layer);
        const auto after = std::next(at);
        if (at != running.begin()) { follows(std::prev(at)->second, l); }
        if (after != running.end()) { follows(l, after->second); }
    }
    void follows(const listed& before, const listed& after) const {
        if (after.task->start_us < before.task->end_us - slack()) {
            fail(name(after) + ".start_us", "is before the end of " + name(before) + ", whose result it reads");
        }
    }
};

} // namespace pulse::detail
