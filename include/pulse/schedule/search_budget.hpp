#pragma once

#include <chrono>
#include <cstdint>
#include <limits>

#include <pulse/schedule/synthesis.hpp>

namespace pulse {

/// Counts what a search has tried against its limit. Looks at the clock every so many units of work, and never
/// elsewhere: without a time limit the search depends on its input alone.
class search_budget {
public:
    explicit search_budget(const search_limit& limit) : limit_{&limit}, begin_{clock::now()} {}

    /// Counts a node that took `work` steps (about ten nanoseconds each); false when the search should end.
    [[nodiscard]] bool spend(std::int64_t work) {
        ++nodes_;
        work_ += work;
        if (nodes_ >= limit_->nodes) { over_ = true; }
        if ((unseen_ += work) >= 4096) { return look(); }
        return !over_;
    }

    /// Looks at clock and stop token now.
    [[nodiscard]] bool look() {
        unseen_ = 0;
        if (limit_->stop.stop_requested() || seconds() >= limit_->seconds || nodes_ >= limit_->nodes) { over_ = true; }
        return !over_;
    }

    [[nodiscard]] bool over() const noexcept { return over_; }
    [[nodiscard]] std::int64_t nodes() const noexcept { return nodes_; }
    [[nodiscard]] std::int64_t work() const noexcept { return work_; }
    [[nodiscard]] double seconds() const { return std::chrono::duration<double>(clock::now() - begin_).count(); }

private:
    using clock = std::chrono::steady_clock;

    const search_limit* limit_;
    clock::time_point begin_;
    std::int64_t nodes_{};
    std::int64_t work_{};
    std::int64_t unseen_{};
    bool over_{};
};

} // namespace pulse
