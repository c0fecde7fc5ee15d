#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include <pulse/plan/access.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/step_model.hpp>

namespace pulse {

/// Whether a buffer lies in the block of its rank's step; all others have slots, since messages may carry them.
[[nodiscard]] constexpr bool lies_in_block(const buffer_id& buffer) noexcept {
    return buffer.kind == buffer_kind::saved || buffer.kind == buffer_kind::deferred;
}

namespace detail {

/// One value of a buffer in a program without releases, by instruction numbers.
struct buffer_value {
    buffer_id buffer{};
    std::size_t first{}; ///< instruction that writes it
    std::size_t last{};  ///< last instruction that touches it
    bool sent{};         ///< whether `last` is a send
};

/// Every value of a program, by buffer, then in program order.
[[nodiscard]] constexpr std::vector<buffer_value> values_of(const step_model& model, int device,
                                                            const std::vector<instruction>& bare) {
    struct touch {
        buffer_id buffer{};
        std::size_t at{};
        access mode{};
    };
    std::vector<touch> touches{};
    for (std::size_t i = 0; i != bare.size(); ++i) {
        for (const buffer_access& a : model.accesses(device, bare[i])) { touches.push_back({a.buffer, i, a.mode}); }
    }
    std::sort(touches.begin(), touches.end(),
              [](const touch& a, const touch& b) { return a.buffer != b.buffer ? a.buffer < b.buffer : a.at < b.at; });
    std::vector<buffer_value> values{};
    for (const touch& t : touches) {
        if (values.empty() || values.back().buffer != t.buffer || t.mode == access::write) {
            values.push_back({t.buffer, t.at, t.at, false});
        }
        values.back().last = t.at;
        values.back().sent = std::holds_alternative<op::send>(bare[t.at]);
    }
    return values;
}

/// The slots of one size while a program is walked.
struct slot_pool {
    std::int64_t bytes{};
    std::int64_t room{};                ///< number of slots
    std::int64_t per_send{};            ///< most values of this size whose last touch is the same send
    std::int64_t taken{};               ///< slots that hold a value
    std::vector<std::size_t> sending{}; ///< of these, the sent values that are not yet released, oldest first
};

/// Decides where values are released: right after their last touch, unless that is a send.
class release_placer {
public:
    constexpr release_placer(const step_model& model, const std::vector<buffer_value>& values, std::size_t length) :
        values_(&values), length_(length), pool_of_(values.size(), 0), by_first_(values.size(), 0) {
        for (std::size_t v = 0; v != values.size(); ++v) {
            by_first_[v] = v;
            end_.push_back(values[v].last + 1);
            if (!lies_in_block(values[v].buffer)) { pool_of_[v] = pool_for(model.bytes(values[v].buffer)); }
        }
        by_last_ = by_first_;
        std::sort(by_first_.begin(), by_first_.end(), [&](std::size_t a, std::size_t b) {
            return values[a].first != values[b].first ? values[a].first < values[b].first : a < b;
        });
        std::sort(by_last_.begin(), by_last_.end(), [&](std::size_t a, std::size_t b) {
            return values[a].last != values[b].last ? values[a].last < values[b].last : a < b;
        });
    }

    /// For every value, the instruction before which it is released; the program's length stands for the end.
    [[nodiscard]] constexpr std::vector<std::size_t> place(int spare_sends) {
        walk(false);
        count_per_send();
        for (slot_pool& pool : pools_) { pool.room += spare_sends * pool.per_send; }
        walk(true);
        return end_;
    }

private:
    const std::vector<buffer_value>* values_;
    std::size_t length_;
    std::vector<slot_pool> pools_{};
    std::vector<std::size_t> pool_of_;
    std::vector<std::size_t> by_first_;
    std::vector<std::size_t> by_last_{};
    std::vector<std::size_t> end_{};

    [[nodiscard]] constexpr std::size_t pool_for(std::int64_t bytes) {
        std::size_t at = 0;
        while (at != pools_.size() && pools_[at].bytes != bytes) { ++at; }
        if (at == pools_.size()) { pools_.push_back({bytes, 0, 0, 0, {}}); }
        return at;
    }
    constexpr void count_per_send() {
        for (std::size_t k = 0; k != by_last_.size();) {
            const std::size_t at = (*values_)[by_last_[k]].last;
            std::vector<std::int64_t> sent(pools_.size(), 0);
            for (; k != by_last_.size() && (*values_)[by_last_[k]].last == at; ++k) {
                if ((*values_)[by_last_[k]].sent) { ++sent[pool_of_[by_last_[k]]]; }
            }
            for (std::size_t p = 0; p != pools_.size(); ++p) {
                pools_[p].per_send = std::max(pools_[p].per_send, sent[p]);
            }
        }
    }
    /// Walks the program once. With `keeps_sending` false it counts the slots needed if no value outlives its last
    /// touch; with true it keeps sent values as long as there is room.
    constexpr void walk(bool keeps_sending) {
        std::size_t begun = 0;
        std::size_t ended = 0;
        for (std::size_t i = 0; i != length_; ++i) {
            const std::size_t from = begun;
            while (begun != by_first_.size() && (*values_)[by_first_[begun]].first == i) { ++begun; }
            for (std::size_t k = from; k != begun && keeps_sending; ++k) { end_old_value(by_first_[k], i); }
            for (std::size_t k = from; k != begun; ++k) { begin(by_first_[k], i, keeps_sending); }
            for (; ended != by_last_.size() && (*values_)[by_last_[ended]].last == i; ++ended) {
                const std::size_t v = by_last_[ended];
                if (lies_in_block((*values_)[v].buffer)) { continue; }
                slot_pool& pool = pools_[pool_of_[v]];
                if (keeps_sending && (*values_)[v].sent) {
                    end_[v] = length_;
                    pool.sending.push_back(v);
                } else {
                    --pool.taken;
                }
            }
        }
    }
    /// Releases the old value of a buffer that is written again, if it is still being sent.
    constexpr void end_old_value(std::size_t v, std::size_t at) {
        if (v == 0 || (*values_)[v - 1].buffer != (*values_)[v].buffer) { return; }
        slot_pool& pool = pools_[pool_of_[v]];
        const auto old = std::find(pool.sending.begin(), pool.sending.end(), v - 1);
        if (old == pool.sending.end()) { return; }
        pool.sending.erase(old);
        --pool.taken;
        end_[v - 1] = at;
    }
    constexpr void begin(std::size_t v, std::size_t at, bool keeps_sending) {
        if (lies_in_block((*values_)[v].buffer)) { return; }
        slot_pool& pool = pools_[pool_of_[v]];
        if (keeps_sending && pool.taken == pool.room && !pool.sending.empty()) {
            end_[pool.sending.front()] = at;
            pool.sending.erase(pool.sending.begin());
            --pool.taken;
        }
        ++pool.taken;
        pool.room = std::max(pool.room, pool.taken);
    }
};

} // namespace detail

/// The program of `device` with a release for every value of every buffer.
///
/// A release waits for the send of its buffer, so its position decides how long a transfer may take before it stalls
/// the rank. A value whose last touch is no send is released right after that touch. A value whose last touch is a send
/// keeps its slot until an instruction needs a slot of that size and all are taken; then the oldest is released, right
/// before that instruction. The slots of a size are those that a step needs if no value outlives its last touch, plus
/// `spare_sends` times the most tensors of that size in one send. Sends that block need no spare memory, and sends
/// still overlap wherever a slot is free. The end of the program waits for what is still in flight.
[[nodiscard]] constexpr std::vector<instruction> with_releases(const step_model& model, int device,
                                                               const std::vector<instruction>& bare, int spare_sends) {
    const std::vector<detail::buffer_value> values = detail::values_of(model, device, bare);
    const std::vector<std::size_t> end = detail::release_placer{model, values, bare.size()}.place(spare_sends);
    std::vector<std::vector<buffer_id>> before(bare.size() + 1);
    for (std::size_t v = 0; v != values.size(); ++v) { before[end[v]].push_back(values[v].buffer); }
    std::vector<instruction> full{};
    full.reserve(bare.size() + values.size());
    for (std::size_t i = 0; i != before.size(); ++i) {
        for (const buffer_id& buffer : before[i]) { full.push_back(op::release{buffer}); }
        if (i != bare.size()) { full.push_back(bare[i]); }
    }
    return full;
}

} // namespace pulse
