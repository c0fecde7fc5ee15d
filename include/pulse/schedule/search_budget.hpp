#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

#include <pulse/schedule/synthesis.hpp>

namespace pulse::detail {

/// Counts what a search has tried against its limit. `spend` reads the clock only at intervals of work. Without a time
/// limit a search depends on its input alone. Searches that take turns share one budget.
class search_budget {
public:
    explicit search_budget(const search_limit& limit) :
        limit_{&limit}, begin_{clock::now()}, turn_seconds_{limit.seconds}, turn_nodes_{limit.nodes} {}

    /// Lets the search use `part` of the remaining limit, and at most `nodes` nodes, until the next turn.
    void begin_turn(double part, std::int64_t nodes = unlimited) {
        const auto turn = this->turn(part, nodes);
        turn_seconds_ = seconds() + turn.seconds;
        turn_nodes_ = turn.nodes == unlimited ? unlimited : nodes_ + turn.nodes;
        over_ = false;
        (void)look();
    }

    /// The same as a limit for another search, whose nodes the caller then passes to `count`.
    [[nodiscard]] search_limit turn(double part, std::int64_t nodes = unlimited) const {
        search_limit out = *limit_;
        out.seconds = part * std::max(0.0, limit_->seconds - seconds());
        out.nodes = nodes;
        if (limit_->nodes != unlimited) {
            const auto left = std::max<std::int64_t>(0, limit_->nodes - nodes_);
            out.nodes = std::min(nodes, static_cast<std::int64_t>(part * static_cast<double>(left)));
        }
        return out;
    }

    /// Counts nodes that another search has used.
    void count(std::int64_t nodes) noexcept { nodes_ += nodes; }

    /// Counts a node that took `work` steps (about ten nanoseconds each); false when the search should end.
    [[nodiscard]] bool spend(std::int64_t work) {
        ++nodes_;
        work_ += work;
        if (nodes_ >= turn_nodes_) { over_ = true; }
        if ((unseen_ += work) >= 4096) { return look(); }
        return !over_;
    }

    /// Checks clock, stop token and nodes now; false when the search should end.
    [[nodiscard]] bool look() {
        unseen_ = 0;
        if (limit_->stop.stop_requested() || seconds() >= turn_seconds_ || nodes_ >= turn_nodes_) { over_ = true; }
        return !over_;
    }

    /// Whether the whole limit is reached or a stop was requested, regardless of the turn.
    [[nodiscard]] bool ended() const {
        return limit_->stop.stop_requested() || seconds() >= limit_->seconds || nodes_ >= limit_->nodes;
    }

    [[nodiscard]] bool over() const noexcept { return over_; }
    [[nodiscard]] std::int64_t nodes() const noexcept { return nodes_; }
    [[nodiscard]] std::int64_t work() const noexcept { return work_; }
    [[nodiscard]] double seconds() const { return std::chrono::duration<double>(clock::now() - begin_).count(); }

private:
    using clock = std::chrono::steady_clock;
    static constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

    const search_limit* limit_;
    clock::time_point begin_;
    double turn_seconds_;
    std::int64_t turn_nodes_;
    std::int64_t nodes_{};
    std::int64_t work_{};
    std::int64_t unseen_{};
    bool over_{};
};

} // namespace pulse::detail
