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

/// Whether a buffer lies in the block that a rank's step shares; all others have slots, since messages may carry them.
[[nodiscard]] constexpr bool lies_in_block(const buffer_id& buffer) noexcept {
    return buffer.kind == buffer_kind::saved || buffer.kind == buffer_kind::deferred;
}

namespace detail {

/// One value of a buffer in a program without releases, by instruction numbers.
struct buffer_value {
    buffer_id buffer{};
    std::size_t first{}; ///< writes it
    std::size_t last{};  ///< touches it last
    bool sent{};         ///< whether that is a send
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
    std::int64_t room{};                ///< slots
    std::int64_t per_send{};            ///< most of its values whose last touch is one send
    std::int64_t taken{};               ///< slots that hold a value
    std::vector<std::size_t> sending{}; ///< of these: values that were sent and not yet released, the oldest first
};

/// Finds where the values of a program end: all but those that are sent right behind their last touch.
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

    /// Of every value, the instruction before which its release stands; the program's length is its end.
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
    /// Walks the program once: `keeps_sending` false counts the slots that are needed when no value outlives its last
    /// touch; true keeps what is sent as long as there is room.
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
    /// A buffer that is written anew has no old value on its way.
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
/// A release waits for the send of what it ends, so where it stands decides how long a transfer may take before it
/// holds up the rank. What is not sent last is released right behind its last touch. What is sent last keeps its slot
/// until an instruction needs a slot of that size and all are taken: then the oldest is released, right before that
/// instruction. The slots of a size are those that a step needs when no value outlives its last touch, and those of
/// `spare_sends` more sends, each with the most tensors of that size. Sends that block need no spare memory, and sends
/// still overlap wherever a slot is free. The end of the program waits for what is still on its way then.
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
