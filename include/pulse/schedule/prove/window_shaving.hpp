#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/prove/integer_windows.hpp>
#include <pulse/schedule/prove/window_propagation.hpp>
#include <pulse/schedule/prove/window_state.hpp>

namespace pulse::detail {

/// Shaving of windows (Martin and Shmoys, 1996): supposes that an instance starts in the first or in the last part of
/// its window, and where propagation shows that no schedule does so, cuts the part off. What is left over when nothing
/// is refuted holds for all shorter cutoffs, where the next attempt begins with it.
class window_shaver {
public:
    /// `longest_us` is above all cutoffs to come.
    window_shaver(const window_facts& facts, const schedule_bound& bound, double longest_us, double grain_us) :
        facts_{&facts}, bound_{&bound}, propagator_{facts}, quick_{facts, longest_us, grain_us} {
        const auto& index = facts.index;
        patience_ = 100 * static_cast<std::int64_t>(index.devices);
        for (const int op : index.alone) {
            for (int k = 0; k != index.microbatches; ++k) { order_.push_back(quick_.place(op, k)); }
        }
    }

    /// Whether it shows that no schedule is as short as `cutoff_us`. `spend(work)` is told of every supposition, in
    /// pairs of instances looked at, and ends the attempt with false.
    template <class Spend>
    [[nodiscard]] bool refute(double cutoff_us, const Spend& spend) {
        window_state state = window_state_of(*facts_, *bound_, cutoff_us);
        if (known_until_us_ >= cutoff_us) { quick_.give(known_, state); }
        if (!propagator_.narrow(state)) { return true; }
        const std::int32_t cutoff = quick_.cutoff_of(cutoff_us);
        now_ = quick_.take(state);
        quick_.touch_all();
        if (!quick_.narrow(now_, cutoff, patience_)) { return true; }
        bool more = true;
        bool gained = true;
        while (more && gained) {
            gained = false;
            for (std::size_t i = 0; more && i != order_.size(); ++i) {
                for (const bool first : {true, false}) {
                    for (int parts = 4; more && parts <= 16;) {
                        const outcome found = shave(order_[i], first, parts, cutoff);
                        more = spend(quick_.visits() - seen_);
                        seen_ = quick_.visits();
                        if (found == outcome::refuted) { return true; }
                        gained = gained || found == outcome::cut;
                        if (found == outcome::none) { break; }
                        if (found == outcome::kept) { parts *= 4; }
                    }
                }
            }
            state = window_state_of(*facts_, *bound_, cutoff_us);
            quick_.give(now_, state);
            if (!propagator_.narrow(state)) { return true; }
            now_ = quick_.take(state);
        }
        known_ = now_;
        known_until_us_ = cutoff_us;
        return false;
    }

private:
    enum class outcome : std::uint8_t { refuted, cut, kept, none };

    /// Supposes that `x` starts in the first or last of `parts` of its window.
    [[nodiscard]] outcome shave(std::size_t x, bool first, int parts, std::int32_t cutoff) {
        const std::int32_t room = cutoff - now_.head[x] - now_.tail[x] - quick_.duration(x);
        const std::int32_t part = room / parts;
        if (part < std::max(1, cutoff >> 12)) { return outcome::none; } // what is left is not worth the time
        supposed_ = now_;
        (first ? supposed_.tail : supposed_.head)[x] += room - part;
        quick_.touch(x);
        if (quick_.narrow(supposed_, cutoff, patience_)) { return outcome::kept; }
        (first ? now_.head : now_.tail)[x] += part;
        quick_.touch(x);
        return quick_.narrow(now_, cutoff, patience_) ? outcome::cut : outcome::refuted;
    }

    const window_facts* facts_;
    const schedule_bound* bound_;
    window_propagator propagator_;
    integer_windows quick_;
    std::vector<std::size_t> order_{};
    integer_windows::windows now_{};
    integer_windows::windows supposed_{};
    integer_windows::windows known_{};
    double known_until_us_{-1};
    std::int64_t seen_{};
    /// Devices that a propagation goes through at most: where orders wait for each other in a circle, windows may push
    /// each other by little at a time.
    std::int64_t patience_{};
};

} // namespace pulse::detail
