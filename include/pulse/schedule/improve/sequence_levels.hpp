#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/schedule/improve/sequence_graph.hpp>

namespace pulse::detail {

/// What every device holds along its sequence, and how far that is over its limit; nothing where memory is free.
class sequence_levels {
public:
    explicit sequence_levels(const sequence_graph& graph) :
        g_{&graph}, level_(static_cast<std::size_t>(graph.instances()), 0), freed_(level_.size(), 0),
        mark_(level_.size(), 0) {}

    /// Bytes that the device of `x` holds when `x` has ended.
    [[nodiscard]] std::int64_t held_after(int x) const noexcept { return level_[at(x)] - freed_[at(x)]; }
    /// Bytes over the limits, summed over all instances.
    [[nodiscard]] std::int64_t excess() const noexcept { return excess_; }

    /// Takes the sequences of all devices.
    void assign(const std::vector<std::vector<int>>& sequences) {
        excess_ = 0;
        if (g_->limit.empty()) { return; }
        for (const auto& sequence : sequences) {
            int last = -1;
            for (const int x : sequence) {
                put(x, last, [this](int y) { return mark_[at(y)] != 0; });
                mark_[at(x)] = 1;
                last = x;
            }
            for (const int x : sequence) { mark_[at(x)] = 0; }
        }
    }

    /// Takes `x` out, to be put where it belongs then.
    void take_out(int x) noexcept {
        if (!g_->limit.empty()) { excess_ -= over(level_[at(x)], limit_of(x)); }
    }
    /// Puts `x` behind `last` (-1: at the beginning); `before(y)` says whether an instance stands before it.
    template <class Before>
    void put(int x, int last, const Before& before) {
        if (g_->limit.empty()) { return; }
        const auto o = at(g_->op[at(x)]);
        const int k = x - static_cast<int>(o) * g_->microbatches;
        level_[at(x)] = (last < 0 ? 0 : held_after(last)) + g_->begins[o];
        freed_[at(x)] = g_->frees[o];
        for (const int other : g_->partners[o]) {
            if (before(other * g_->microbatches + k)) { freed_[at(x)] += g_->shared[o * at(g_->ops) + at(other)]; }
        }
        excess_ += over(level_[at(x)], limit_of(x));
    }

private:
    [[nodiscard]] static std::size_t at(int x) noexcept { return static_cast<std::size_t>(x); }
    [[nodiscard]] static std::int64_t over(std::int64_t level, std::int64_t limit) noexcept {
        return level > limit ? level - limit : 0;
    }
    [[nodiscard]] std::int64_t limit_of(int x) const noexcept { return g_->limit[at(g_->device[at(g_->op[at(x)])])]; }

    const sequence_graph* g_;
    /// Per instance: bytes held while it runs, and those of them that are gone after it.
    std::vector<std::int64_t> level_;
    std::vector<std::int64_t> freed_;
    std::vector<char> mark_;
    std::int64_t excess_{};
};

} // namespace pulse::detail
