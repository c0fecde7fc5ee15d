#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/ids.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/profile/frozen_component.hpp>
#include <pulse/schedule/frozen_work.hpp>

namespace pulse {

/// What a plan's frozen tasks hand to each other and to the ranks that read their results. Tasks are numbered over all
/// devices, device by device.
class frozen_flow {
public:
    /// What one task leaves for another task that continues the chains of some samples.
    struct pause {
        int before{}; ///< number of the first task
        int after{};  ///< number of the task that continues
        int first_sample{};
        int samples{};
        std::int64_t bytes{};
    };

    constexpr frozen_flow() = default;
    /// Throws input_error, naming task or component, unless the tasks run every layer of every component of `costs`
    /// exactly once on each sample, on devices that host the component.
    constexpr frozen_flow(const plan& planned, const cost_table& costs) {
        if (planned.frozen_tasks.empty()) { return; }
        samples_ = planned.microbatches * planned.microbatch_size;
        first_reader_ = planned.cut.stages.front().device;
        last_reader_ = planned.cut.stages.back().device;
        hosts_ = planned.frozen_hosts;
        number_tasks(planned, costs);
        link_tasks(costs);
        find_rooms(planned, costs);
    }

    [[nodiscard]] constexpr bool empty() const noexcept { return tasks_.empty(); }
    [[nodiscard]] constexpr int count() const noexcept { return static_cast<int>(tasks_.size()); }
    /// Device d has tasks first_of(d) to first_of(d + 1) - 1.
    [[nodiscard]] constexpr int first_of(int device) const noexcept {
        return first_.empty() ? 0 : first_[static_cast<std::size_t>(device)];
    }
    [[nodiscard]] constexpr int count_on(int device) const noexcept {
        return empty() ? 0 : first_of(device + 1) - first_of(device);
    }
    [[nodiscard]] constexpr const frozen_task& task(int number) const noexcept { return of(number).what; }
    /// Samples of a step: microbatches x microbatch size.
    [[nodiscard]] constexpr int samples() const noexcept { return samples_; }

    /// The pauses that a task reads, and those that it writes; by sample.
    [[nodiscard]] constexpr const std::vector<pause>& into(int number) const noexcept { return of(number).into; }
    [[nodiscard]] constexpr const std::vector<pause>& from(int number) const noexcept { return of(number).from; }
    /// Whether the task runs the last layer of its component, and so makes results.
    [[nodiscard]] constexpr bool makes_results(int number) const noexcept { return of(number).result_bytes >= 0; }
    /// Bytes of the task's results, which are stored sample by sample; -1 if it makes none.
    [[nodiscard]] constexpr std::int64_t result_bytes(int number) const noexcept { return of(number).result_bytes; }
    [[nodiscard]] constexpr std::int64_t pause_bytes(int before, int after) const noexcept {
        for (const pause& p : from(before)) {
            if (p.after == after) { return p.bytes; }
        }
        return 0;
    }

    /// Whether a device reads a component's results in the following step.
    [[nodiscard]] constexpr bool reads(int device, int component) const noexcept {
        const frozen_use feeds = feeds_[static_cast<std::size_t>(component)];
        if (device == first_reader_ && feeds != frozen_use::target) { return true; }
        return device == last_reader_ && (feeds == frozen_use::target || feeds == frozen_use::input);
    }
    /// The messages of a step: activations of chains that continue on another device, then results.
    [[nodiscard]] constexpr const std::vector<message_id>& messages() const noexcept { return messages_; }
    /// For `encoding` and `encoded` messages, `index` is the number of the task that sends; `microbatch` is the number
    /// of the task that continues (encoding) or the device that receives the results (encoded).
    [[nodiscard]] constexpr int sender(const message_id& message) const noexcept { return task(message.index).device; }
    [[nodiscard]] constexpr int receiver(const message_id& message) const noexcept {
        const int to = index_of(message.microbatch);
        return message.kind == message_kind::encoding ? task(to).device : to;
    }

    /// Byte offset of a component's results in either of a device's two rooms for them; -1 if it reads none.
    [[nodiscard]] constexpr std::int64_t room_offset(int device, int component) const noexcept {
        return rooms_[static_cast<std::size_t>(device)][static_cast<std::size_t>(component)];
    }
    /// Bytes of one room: the results that one step of the device reads.
    [[nodiscard]] constexpr std::int64_t room_bytes(int device) const noexcept {
        return rooms_.empty() ? 0 : rooms_[static_cast<std::size_t>(device)].back();
    }
    /// Bytes of a component's result for one sample.
    [[nodiscard]] constexpr std::int64_t sample_bytes(int component) const noexcept {
        return sample_bytes_[static_cast<std::size_t>(component)];
    }
    /// Bytes that a device keeps for its tasks: per component, the parameters of the layers that they run, and the most
    /// live bytes of any of these layers, for the samples of the largest task.
    [[nodiscard]] constexpr std::int64_t network_bytes(int device) const noexcept {
        return networks_.empty() ? 0 : networks_[static_cast<std::size_t>(device)];
    }

private:
    struct node {
        frozen_task what{};
        std::vector<pause> into{};
        std::vector<pause> from{};
        std::int64_t result_bytes{-1};
    };

    int samples_{};
    int first_reader_{};
    int last_reader_{};
    std::vector<node> tasks_{};
    std::vector<int> first_{};
    std::vector<std::vector<int>> hosts_{};
    std::vector<frozen_use> feeds_{};
    std::vector<std::int64_t> sample_bytes_{};
    std::vector<message_id> messages_{};
    std::vector<std::vector<std::int64_t>> rooms_{}; // per device: each component's offset, then the end
    std::vector<std::int64_t> networks_{};

    [[nodiscard]] constexpr const node& of(int number) const noexcept {
        return tasks_[static_cast<std::size_t>(number)];
    }

    [[noreturn]] static void refuse(std::size_t device, std::size_t index, const std::string& why) {
        throw input_error("pulse: plan: frozen_tasks[" + std::to_string(device) + "][" + std::to_string(index) + "] " +
                          why);
    }
    [[noreturn]] static void refuse_layer(const frozen_component& of, std::size_t layer, int sample, const char* why) {
        throw input_error("pulse: plan: frozen_tasks: layer " + of.layers[layer].name.str() + " of " + of.name.str() +
                          why + std::to_string(sample));
    }

    constexpr void number_tasks(const plan& planned, const cost_table& costs) {
        const auto devices = static_cast<std::size_t>(planned.cut.devices);
        if (planned.frozen_tasks.size() != devices) {
            throw input_error("pulse: plan: frozen_tasks must have one list for each device");
        }
        if (!hosts_.empty() && hosts_.size() != devices) {
            throw input_error("pulse: plan: frozen_hosts must have one list for each device");
        }
        for (std::size_t d = 0; d != devices; ++d) {
            first_.push_back(count());
            for (std::size_t i = 0; i != planned.frozen_tasks[d].size(); ++i) {
                const frozen_task& t = planned.frozen_tasks[d][i];
                if (t.device != static_cast<int>(d)) { refuse(d, i, "belongs to another device"); }
                if (t.component < 0 || t.component >= static_cast<int>(costs.frozen.size())) {
                    refuse(d, i, "names a component that the cost table lacks");
                }
                const frozen_component& of = costs.frozen[static_cast<std::size_t>(t.component)];
                const int layers = static_cast<int>(of.layers.size());
                if (t.first_layer < 0 || t.last_layer < t.first_layer || t.last_layer >= layers) {
                    refuse(d, i, "names layers that its component lacks");
                }
                if (t.first_sample < 0 || t.samples < 1 || t.samples > samples_ - t.first_sample) {
                    refuse(d, i, "names samples that a step lacks");
                }
                if (t.samples > of.max_chunk) {
                    refuse(d, i,
                           "has more samples than the " + std::to_string(of.max_chunk) + " that " + of.name.str() +
                               " can take at once");
                }
                if (!hosts_.empty() && std::find(hosts_[d].begin(), hosts_[d].end(), t.component) == hosts_[d].end()) {
                    refuse(d, i, "names a component that its device does not host");
                }
                node one{};
                one.what = t;
                if (t.last_layer + 1 == layers) { one.result_bytes = t.samples * of.result_bytes; }
                tasks_.push_back(one);
            }
        }
        first_.push_back(count());
    }

    /// Finds which task runs which layer on which sample; a chain that moves to another task makes a pause.
    constexpr void link_tasks(const cost_table& costs) {
        for (std::size_t c = 0; c != costs.frozen.size(); ++c) {
            const frozen_component& component = costs.frozen[c];
            const std::size_t layers = component.layers.size();
            feeds_.push_back(component.feeds);
            sample_bytes_.push_back(component.result_bytes);
            std::vector<int> owner(layers * static_cast<std::size_t>(samples_), -1);
            const auto owner_of = [&](int layer, int sample) -> int& {
                return owner[static_cast<std::size_t>(sample) * layers + static_cast<std::size_t>(layer)];
            };
            for (int n = 0; n != count(); ++n) {
                const frozen_task& t = task(n);
                if (t.component != static_cast<int>(c)) { continue; }
                for (int s = t.first_sample; s != t.first_sample + t.samples; ++s) {
                    for (int l = t.first_layer; l <= t.last_layer; ++l) {
                        if (owner_of(l, s) >= 0) {
                            refuse_layer(component, static_cast<std::size_t>(l), s, " runs twice on sample ");
                        }
                        owner_of(l, s) = n;
                    }
                }
            }
            for (int s = 0; s != samples_; ++s) {
                for (std::size_t l = 0; l != layers; ++l) {
                    const int n = owner_of(static_cast<int>(l), s);
                    if (n < 0) { refuse_layer(component, l, s, " does not run on sample "); }
                    const int before = l == 0 ? n : owner_of(static_cast<int>(l) - 1, s);
                    if (before != n) { add_pause(before, n, s, component.layers[l - 1].output_bytes); }
                }
            }
        }
        for (const node& one : tasks_) {
            for (const pause& p : one.from) {
                if (task(p.before).device != task(p.after).device) {
                    messages_.push_back({message_kind::encoding, p.before, microbatch_id{p.after}});
                }
            }
        }
        for (int n = 0; n != count(); ++n) {
            if (!makes_results(n)) { continue; }
            const int to[]{first_reader_, last_reader_};
            for (int i = 0; i != (first_reader_ == last_reader_ ? 1 : 2); ++i) {
                if (to[i] != task(n).device && reads(to[i], task(n).component)) {
                    messages_.push_back({message_kind::encoded, n, microbatch_id{to[i]}});
                }
            }
        }
    }
    constexpr void add_pause(int before, int after, int sample, std::int64_t bytes) {
        std::vector<pause>& out = tasks_[static_cast<std::size_t>(before)].from;
        std::vector<pause>& in = tasks_[static_cast<std::size_t>(after)].into;
        const bool goes_on = !in.empty() && in.back().before == before;
        if (!goes_on) {
            out.push_back({before, after, sample, 0, 0});
            in.push_back(out.back());
        }
        const auto grow = [&](pause& p) {
            ++p.samples;
            p.bytes += bytes;
        };
        grow(in.back());
        grow(*std::find_if(out.begin(), out.end(), [&](const pause& p) { return p.after == after; }));
    }

    constexpr void find_rooms(const plan& planned, const cost_table& costs) {
        for (int d = 0; d != planned.cut.devices; ++d) {
            std::vector<std::int64_t> offsets{};
            std::int64_t end = 0;
            std::int64_t networks = 0;
            for (std::size_t c = 0; c != costs.frozen.size(); ++c) {
                const bool read = reads(d, static_cast<int>(c));
                offsets.push_back(read ? end : -1);
                if (read) { end += samples_ * costs.frozen[c].result_bytes; }
                networks += bytes_of_network(costs.frozen[c], static_cast<int>(c), d);
            }
            offsets.push_back(end);
            rooms_.push_back(offsets);
            networks_.push_back(networks);
        }
    }
    /// Network bytes of one component, for the samples of its largest task on a device; 0 without tasks there.
    [[nodiscard]] constexpr std::int64_t bytes_of_network(const frozen_component& component, int c, int device) const {
        int most_samples = 0;
        std::vector<char> runs(component.layers.size(), 0);
        for (int n = first_of(device); n != first_of(device + 1); ++n) {
            const frozen_task& t = task(n);
            if (t.component != c) { continue; }
            most_samples = std::max(most_samples, t.samples);
            std::fill(runs.begin() + t.first_layer, runs.begin() + t.last_layer + 1, 1);
        }
        std::int64_t parameters = 0;
        std::int64_t live = 0;
        for (std::size_t l = 0; l != runs.size(); ++l) {
            if (runs[l] == 0) { continue; }
            parameters += component.layers[l].parameter_bytes;
            live = std::max(live, component.layers[l].live_bytes);
        }
        return parameters + most_samples * live;
    }
};

} // namespace pulse
