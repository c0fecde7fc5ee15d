#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include <pulse/core/pass.hpp>
#include <pulse/schedule/timed_orders.hpp>

namespace pulse {

namespace detail {

/// Builds the order of one device with two stages of a V; microbatches count up per pass and stage.
class v_order {
public:
    /// Leaves out microbatches from `count` on.
    constexpr v_order(int first_stage, int last_stage, int count) : stages_{first_stage, last_stage}, count_{count} {}

    /// Half 0 is the stage on the way in, half 1 the stage on the way out.
    constexpr void forward(int half) { add(pass::forward, half); }
    constexpr void backward(int half) { add(pass::backward_input, half); }
    constexpr void weight(int half) { add(pass::backward_weight, half); }
    /// B, and its W at once.
    constexpr void whole_backward(int half) {
        backward(half);
        weight(half);
    }
    /// B whose W waits in the queue.
    constexpr void split_backward(int half) {
        backward(half);
        waiting_.push_back(half);
    }
    /// The W that has waited longest.
    constexpr void waiting_weight() { weight(waiting_[next_++]); }
    [[nodiscard]] constexpr int done(pass op, int half) const {
        return done_[static_cast<std::size_t>(op) * 2 + static_cast<std::size_t>(half)];
    }
    [[nodiscard]] constexpr const std::vector<timed_pass>& order() const noexcept { return order_; }

private:
    constexpr void add(pass op, int half) {
        int& k = done_[static_cast<std::size_t>(op) * 2 + static_cast<std::size_t>(half)];
        if (k < count_) { order_.push_back({op, stages_[static_cast<std::size_t>(half)], k}); }
        ++k;
    }

    std::array<int, 2> stages_;
    int count_;
    std::array<int, 6> done_{};
    std::vector<int> waiting_{};
    std::size_t next_{};
    std::vector<timed_pass> order_{};
};

} // namespace detail

} // namespace pulse
