#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/print.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/simulate/simulation.hpp>
#include <pulse/simulate/simulation_options.hpp>

namespace pulse::detail {

/// The messages between all ranks: posted on two sides, waiting for their links, on their way.
class transfer_queue {
public:
    constexpr transfer_queue(const step_model& model, std::size_t ranks, const simulation_options& options) :
        model_(&model), options_(&options), ranks_(ranks), wires_(ranks * ranks) {
        if (!options.links.empty() && options.links.size() != wires_.size()) {
            throw input_error("pulse: simulate: links must have one entry for each pair of ranks");
        }
        if (!options.routes.empty() && options.routes.size() != wires_.size()) {
            throw input_error("pulse: simulate: routes must have one entry for each pair of ranks");
        }
        int most = -1;
        for (const link_route& r : options.routes) {
            if (r.first < -1 || r.second < -1) { throw input_error("pulse: simulate: routes names a link below -1"); }
            most = std::max({most, r.first, r.second});
        }
        free_us_.resize(static_cast<std::size_t>(most + 1), 0.0);
    }

    [[nodiscard]] constexpr std::size_t wire_of(std::size_t from, std::size_t to) const noexcept {
        return from * ranks_ + to;
    }
    /// Position of the message among those of its wire, which is its own on either side.
    constexpr std::size_t post(std::size_t at, const message_id& message, bool sends, double time_us) {
        wire& w = wires_[at];
        std::vector<posting>& side = sends ? w.sent : w.received;
        side.push_back({message, time_us});
        const std::size_t number = side.size() - 1;
        if (number < w.sent.size() && number < w.received.size()) {
            if (w.sent[number].message != w.received[number].message) {
                refuse_pair(w.sent[number].message, w.received[number].message);
            }
            if (number == w.transfers.size()) { waiting_.push_back(at); }
        }
        return number;
    }
    [[nodiscard]] constexpr bool started(std::size_t at, std::size_t number) const noexcept {
        return number < wires_[at].transfers.size();
    }
    [[nodiscard]] constexpr const simulated_transfer& transfer(std::size_t at, std::size_t number) const noexcept {
        return wires_[at].transfers[number];
    }
    [[nodiscard]] constexpr bool idle() const noexcept { return waiting_.empty(); }

    /// Starts the message that can start first; of several, the one that both sides posted first, then the one of the
    /// lower sender, then receiver. Returns its wire.
    constexpr std::size_t start_next() {
        std::size_t best = 0;
        for (std::size_t i = 1; i < waiting_.size(); ++i) {
            const times a = times_of(waiting_[i]);
            const times b = times_of(waiting_[best]);
            const bool sooner = a.start_us != b.start_us   ? a.start_us < b.start_us
                                : a.ready_us != b.ready_us ? a.ready_us < b.ready_us
                                                           : waiting_[i] < waiting_[best];
            if (sooner) { best = i; }
        }
        const std::size_t at = waiting_[best];
        start(at, times_of(at).start_us);
        const wire& w = wires_[at];
        if (w.transfers.size() == std::min(w.sent.size(), w.received.size())) {
            waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(best));
        }
        return at;
    }

    /// All messages by sender, then receiver, then time; and what links carried.
    constexpr void report(simulation& made) const {
        made.pairs.resize(wires_.size(), link_traffic{});
        made.shared_links.resize(free_us_.size(), link_traffic{});
        for (std::size_t at = 0; at != wires_.size(); ++at) {
            const link_route route = route_of(at);
            for (const simulated_transfer& t : wires_[at].transfers) {
                made.boundary_bytes += t.boundary_bytes;
                made.skip_bytes += t.skip_bytes;
                made.transfers.push_back(t);
                count(made.pairs[at], t);
                if (route.first >= 0) { count(made.shared_links[static_cast<std::size_t>(route.first)], t); }
                if (route.second >= 0 && route.second != route.first) {
                    count(made.shared_links[static_cast<std::size_t>(route.second)], t);
                }
            }
        }
    }

private:
    struct posting {
        message_id message{};
        double time_us{};
    };
    /// One direction between two ranks: what each side has posted, in order, and what has started.
    struct wire {
        std::vector<posting> sent{};
        std::vector<posting> received{};
        std::vector<simulated_transfer> transfers{};
    };
    struct times {
        double ready_us{};
        double start_us{};
    };

    const step_model* model_;
    const simulation_options* options_;
    std::size_t ranks_;
    std::vector<wire> wires_;
    std::vector<double> free_us_{};      // of each shared link
    std::vector<std::size_t> waiting_{}; // wires whose next message both sides have posted

    [[noreturn]] static void refuse_pair(const message_id& sent, const message_id& received) {
        throw input_error("pulse: simulate: " + to_text(sent) + " meets " + to_text(received));
    }
    [[nodiscard]] constexpr link_route route_of(std::size_t at) const {
        return options_->routes.empty() ? link_route{} : options_->routes[at];
    }
    [[nodiscard]] constexpr double& free_us(int shared) { return free_us_[static_cast<std::size_t>(shared)]; }
    [[nodiscard]] constexpr times times_of(std::size_t at) {
        const wire& w = wires_[at];
        const std::size_t next = w.transfers.size();
        times made{};
        made.ready_us = std::max(w.sent[next].time_us, w.received[next].time_us);
        if (next > 0) { made.ready_us = std::max(made.ready_us, w.transfers[next - 1].left_us); }
        made.start_us = made.ready_us;
        const link_route route = route_of(at);
        if (route.first >= 0) { made.start_us = std::max(made.start_us, free_us(route.first)); }
        if (route.second >= 0) { made.start_us = std::max(made.start_us, free_us(route.second)); }
        return made;
    }
    constexpr void start(std::size_t at, double start_us) {
        wire& w = wires_[at];
        simulated_transfer t{};
        t.message = w.sent[w.transfers.size()].message;
        t.from = static_cast<int>(at / ranks_);
        t.to = static_cast<int>(at % ranks_);
        const std::vector<buffer_id> parts = model_->parts(t.message, t.to);
        for (std::size_t i = 0; i != parts.size(); ++i) {
            (model_->is_skip_part(t.message, i) ? t.skip_bytes : t.boundary_bytes) += model_->bytes(parts[i]);
        }
        const link& line = options_->links.empty() ? options_->between_ranks : options_->links[at];
        t.start_us = start_us;
        t.arrived_us = t.start_us + line.transfer_us(t.boundary_bytes + t.skip_bytes);
        // The next message may follow while this one is still on its way.
        t.left_us = std::max(t.start_us, t.arrived_us - line.latency_us);
        const link_route route = route_of(at);
        if (route.first >= 0) { free_us(route.first) = t.left_us; }
        if (route.second >= 0) { free_us(route.second) = t.left_us; }
        w.transfers.push_back(t);
    }
    static constexpr void count(link_traffic& use, const simulated_transfer& t) {
        const bool backward = step_model::is_backward(t.message);
        (backward ? use.boundary_backward_bytes : use.boundary_forward_bytes) += t.boundary_bytes;
        (backward ? use.skip_backward_bytes : use.skip_forward_bytes) += t.skip_bytes;
        use.occupied_us += t.left_us - t.start_us;
    }
};

} // namespace pulse::detail
