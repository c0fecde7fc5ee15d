#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/problem.hpp>

namespace pulse::detail {

/// What the holds of a problem mean for one microbatch on each device.
///
/// On a device the F and B passes of a microbatch run in one order, its *chain*; W passes only free memory. So a
/// microbatch that has done c passes of the chain can do its open W passes first and then needs `peak_from[d][c]` bytes
/// to finish, whatever it did before.
struct memory_profile {
    struct release {
        std::int64_t bytes{};
        /// The other pass that must have ended too; -1 when there is none.
        int with{};
    };

    /// Bytes allocated when an operation starts.
    std::vector<std::int64_t> begins{};
    /// Bytes that may be freed when an operation ends.
    std::vector<std::vector<release>> ends{};
    /// Per device and chain position: the most bytes that a microbatch alone holds from there to its end.
    std::vector<std::vector<std::int64_t>> peak_from{};
    std::vector<std::int64_t> limit{};

    [[nodiscard]] constexpr bool limited() const noexcept { return !limit.empty(); }
};

/// The memory profile of a problem. Requires the index of the same problem.
[[nodiscard]] constexpr memory_profile profile_memory(const schedule_problem& problem, const indexed_problem& index) {
    memory_profile out{};
    const auto n = static_cast<std::size_t>(index.ops());
    out.begins.resize(n, 0);
    out.ends.resize(n);
    out.limit = problem.memory_limit_bytes;
    for (const auto& h : problem.holds) {
        const int begin = index.op_of(h.begin);
        const int end = index.op_of(h.end);
        const int also = index.op_of(h.also_end);
        out.begins[static_cast<std::size_t>(begin)] += h.bytes;
        out.ends[static_cast<std::size_t>(end)].push_back({h.bytes, end == also ? -1 : also});
        if (end != also) { out.ends[static_cast<std::size_t>(also)].push_back({h.bytes, end}); }
    }
    std::vector<char> done(n, 0);
    for (const auto& ops : index.on_device) {
        std::vector<std::int64_t> peaks{};
        std::int64_t held = 0;
        for (const int op : ops) {
            const auto at = static_cast<std::size_t>(op);
            held += out.begins[at];
            if (index.pass_of(op).op != pass::backward_weight) { peaks.push_back(held); }
            done[at] = 1;
            for (const auto& r : out.ends[at]) {
                if (r.with < 0 || done[static_cast<std::size_t>(r.with)] != 0) { held -= r.bytes; }
            }
        }
        peaks.push_back(0);
        for (std::size_t i = peaks.size() - 1; i-- > 0;) {
            if (peaks[i] < peaks[i + 1]) { peaks[i] = peaks[i + 1]; }
        }
        out.peak_from.push_back(peaks);
    }
    return out;
}

/// Throws infeasible_error, naming device and bytes, when a device cannot hold even one microbatch that runs alone.
/// Otherwise running the microbatches one after the other is a schedule.
constexpr void require_room(const memory_profile& memory) {
    for (std::size_t d = 0; d != memory.limit.size(); ++d) {
        if (memory.peak_from[d].front() <= memory.limit[d]) { continue; }
        throw infeasible_error("device " + std::to_string(d) + " needs " + std::to_string(memory.peak_from[d].front()) +
                               " bytes for a single microbatch but has only " + std::to_string(memory.limit[d]));
    }
}

/// Tracks held bytes while a schedule is built, and does the banker's check (Dijkstra, EWD 623): an operation may start
/// only if afterwards the oldest microbatch on the device could still run to its end in the free memory, then the next,
/// and so on. The next chain operation of the oldest microbatch always passes, so a scheduler that asks never stalls.
class memory_guard {
public:
    constexpr memory_guard(const memory_profile& memory, const indexed_problem& index) :
        memory_{&memory}, index_{&index}, held_(index.on_device.size(), 0), oldest_(index.on_device.size(), 0),
        chain_(static_cast<std::size_t>(index.ops()), -1), done_(index.first) {
        for (const auto& ops : index.on_device) {
            int position = 0;
            std::vector<int> previews{};
            for (const int op : ops) {
                if (index.is_preview(op)) { previews.push_back(op); }
                if (index.pass_of(op).op != pass::backward_weight) {
                    chain_[static_cast<std::size_t>(op)] = position++;
                }
            }
            jobs_.emplace_back();
            for (int k = 0; k != index.microbatches; ++k) {
                // The chain of a microbatch without previews begins after them.
                const bool whole = previews.empty() || index.runs_on(static_cast<std::size_t>(previews.front()), k);
                const int before = whole ? 0 : static_cast<int>(previews.size());
                jobs_.back().push_back({0, before, static_cast<int>(ops.size()) - before});
            }
            begun_.push_back(0);
        }
    }

    /// Whether the next microbatch of `op` may start; requires that the operations before it on its device have ended.
    [[nodiscard]] constexpr bool may_start(int op) const {
        const auto at = static_cast<std::size_t>(op);
        const std::int64_t more = memory_->begins[at];
        if (!memory_->limited() || more == 0) { return true; }
        const auto d = static_cast<std::size_t>(index_->device[at]);
        const std::int64_t limit = memory_->limit[d];
        const auto k = static_cast<std::size_t>(done_[at]);
        std::int64_t held = held_[d] + more;
        if (held > limit) { return false; }
        const std::int64_t freed = freed_by(op, done_[at]);
        held -= freed;
        // A preview may begin out of order: earlier microbatches that have not begun yet run before it.
        for (std::size_t j = oldest_[d]; j < std::max(begun_[d], k + 1); ++j) {
            const job& other = jobs_[d][j];
            const bool same = j == k;
            const int position = same ? chain_[at] + 1 : other.position;
            const std::int64_t own = same ? other.held + more - freed : other.held;
            if (held - own + memory_->peak_from[d][static_cast<std::size_t>(position)] > limit) { return false; }
            held -= own;
        }
        return true;
    }

    /// Records that the next microbatch of `op` ran.
    constexpr void run(int op) {
        const auto at = static_cast<std::size_t>(op);
        const auto d = static_cast<std::size_t>(index_->device[at]);
        const int k = done_[at];
        const std::int64_t change = memory_->begins[at] - freed_by(op, k);
        ++done_[at];
        job& own = jobs_[d][static_cast<std::size_t>(k)];
        held_[d] += change;
        own.held += change;
        begun_[d] = std::max(begun_[d], static_cast<std::size_t>(k) + 1);
        if (chain_[at] >= 0) { own.position = chain_[at] + 1; }
        --own.left;
        while (oldest_[d] < jobs_[d].size() && jobs_[d][oldest_[d]].left == 0) { ++oldest_[d]; }
    }

private:
    struct job {
        std::int64_t held{};
        int position{};
        int left{};
    };

    [[nodiscard]] constexpr std::int64_t freed_by(int op, int microbatch) const {
        std::int64_t bytes = 0;
        for (const auto& r : memory_->ends[static_cast<std::size_t>(op)]) {
            if (r.with < 0 || done_[static_cast<std::size_t>(r.with)] > microbatch) { bytes += r.bytes; }
        }
        return bytes;
    }

    const memory_profile* memory_;
    const indexed_problem* index_;
    std::vector<std::int64_t> held_;
    std::vector<std::size_t> oldest_;
    std::vector<std::size_t> begun_{}; // one past the last microbatch that has begun
    std::vector<int> chain_;
    std::vector<int> done_;
    std::vector<std::vector<job>> jobs_{};
};

} // namespace pulse::detail
