#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <pulse/schedule/bound/memory_bounds.hpp>
#include <pulse/schedule/bound/relaxed_problem.hpp>

namespace pulse::detail {

/// For counts of begun passes of one device (u16string in the order of its operations): the least time from the start
/// of its next pass to the end of the step. Counts that are not listed allow no makespan below `below_us`.
struct completion_times {
    double below_us{};
    std::unordered_map<std::u16string, double> rest_us{};
};

/// The states of a relaxed problem, and how one leads to the next.
///
/// Microbatches of a pass run in order, so a partial schedule is its counts (how often every pass has begun), which
/// also determine the held bytes, and a few times: when devices become free and results in transit arrive. Passes are
/// added in the order of their starts. A state is dropped when another with the same counts has no later time, when a
/// pass that takes no memory would have fitted into an idle time that it leaves, or when heads, tails and loads show
/// that it cannot end in time (cf. Held and Karp, 1962; dominance as in Demeulemeester and Herroelen, 1992).
class relaxed_states {
public:
    /// Partial schedules with the same counts. Times of each: the least start of what follows, when each device is
    /// free, then, link by link, when the microbatches between the counts of the link's two ends arrive.
    struct state {
        std::u16string counts{};
        std::vector<std::int64_t> held{};
        std::vector<double> rest{};
        std::vector<double> times{};
        /// Of each: the step that made it, and what it promises; less is better.
        std::vector<std::size_t> steps{};
        std::vector<double> scores{};
    };
    struct layer {
        std::unordered_map<std::u16string, std::size_t> places{};
        std::vector<state> states{};
    };
    /// An added partial schedule: a makespan that it cannot beat, the place of its state in the layer, its step.
    struct addition {
        double value_us{};
        std::size_t place{};
        std::size_t step{};
    };
    static constexpr double never = std::numeric_limits<double>::infinity();

    /// At most 65,535 microbatches.
    explicit relaxed_states(relaxed_problem problem) :
        p_{std::move(problem)}, m_{p_.microbatches}, guides_(p_.limit.size(), nullptr), guided_(p_.limit.size()) {
        for (std::size_t i = 0; i != p_.ops.size(); ++i) { guided_[p_.ops[i].device].push_back(i); }
    }

    [[nodiscard]] std::size_t devices() const noexcept { return p_.limit.size(); }
    /// Passes of a complete schedule.
    [[nodiscard]] std::size_t passes() const noexcept { return p_.ops.size() * m_; }

    /// Uses the completion times of the kept device at position `device`; they must outlive the states.
    void guide(std::size_t device, const completion_times& times) { guides_[device] = &times; }

    /// Lists completion times of the opposite direction from now on; null turns this off.
    void list(completion_times* times) noexcept { listed_ = times; }

    /// Puts the empty schedule into an empty layer. Only schedules shorter than `below_us` count.
    void begin(double below_us, layer& to) {
        below_ = below_us;
        least_pruned_ = never;
        steps_.assign(1, {0, nothing});
        counts_.assign(p_.ops.size(), u'\0');
        times_.assign(1 + p_.limit.size(), 0.0);
        held_.assign(p_.limit.size(), 0);
        kept_ = 0;
        added_.clear();
        add(to, {0, nothing}, 0);
    }

    void set_below(double below_us) noexcept { below_ = below_us; }
    /// The least makespan promised by the states that were left out for not being below `below_us`.
    [[nodiscard]] double least_pruned_us() const noexcept { return least_pruned_; }
    /// Partial schedules added since `begin` or `count_anew`, less those that others have replaced.
    [[nodiscard]] std::int64_t kept() const noexcept { return kept_; }
    void count_anew() noexcept { kept_ = 0; }
    /// What the last call of `begin` or `expand` added.
    [[nodiscard]] const std::vector<addition>& added() const noexcept { return added_; }

    /// Adds every extension by one pass of the partial schedule of `s` that has these times and was made by step
    /// `from`. When `next` holds `s` itself, `s` and `times` must be copies.
    void expand(const state& s, const double* times, std::size_t from, layer& next) {
        added_.clear();
        const std::size_t devices = p_.limit.size();
        start_.assign(p_.ops.size(), never);
        double filled = never;
        first_.clear();
        const double* arrival = times + 1 + devices;
        for (const auto& l : p_.links) {
            first_.push_back(arrival);
            arrival += s.counts[l.from] - s.counts[l.to];
        }
        for (std::size_t i = 0; i != p_.ops.size(); ++i) {
            const auto& op = p_.ops[i];
            if (s.counts[i] == m_) { continue; }
            const std::int64_t more = p_.turned ? freed(s.counts, i) : op.begins;
            if (more > p_.limit[op.device] - s.held[op.device]) { continue; }
            double at = std::max({times[0], times[1 + op.device], p_.head[i * m_ + s.counts[i]]});
            bool ready = true;
            for (const std::size_t e : op.into) {
                ready = ready && s.counts[p_.links[e].from] > s.counts[i];
                if (ready) { at = std::max(at, *first_[e]); }
            }
            if (!ready) { continue; }
            start_[i] = at;
            // Completion times are needed for all counts, so no order may be left out while they are listed.
            const bool free = p_.limit[op.device] == std::numeric_limits<std::int64_t>::max();
            const bool takes_none = free || (p_.turned ? op.ends.empty() : op.begins == 0);
            if (takes_none && op.duration > 0 && listed_ == nullptr) { filled = std::min(filled, at + op.duration); }
        }
        for (std::size_t i = 0; i != p_.ops.size(); ++i) {
            if (start_[i] == never || filled <= start_[i]) { continue; }
            const auto& op = p_.ops[i];
            const double end = start_[i] + op.duration;
            counts_ = s.counts;
            ++counts_[i];
            times_.assign(times, times + 1 + devices);
            times_[0] = start_[i];
            times_[1 + op.device] = end;
            for (std::size_t e = 0; e != p_.links.size(); ++e) {
                const auto& l = p_.links[e];
                const auto count = static_cast<std::size_t>(s.counts[l.from] - s.counts[l.to]);
                times_.insert(times_.end(), first_[e] + (l.to == i ? 1 : 0), first_[e] + count);
                if (l.from == i) { times_.push_back(end + l.lag_us); }
            }
            held_ = s.held;
            const std::int64_t change = op.begins - freed(s.counts, i);
            held_[op.device] += p_.turned ? -change : change;
            add(next, {from, i}, end);
        }
    }

    /// The passes of a complete schedule, whose last step is `last`, per kept device; the instance number is op *
    /// microbatches + microbatch.
    [[nodiscard]] std::vector<std::vector<int>> order_of(std::size_t last) const {
        std::vector<std::vector<int>> out(p_.limit.size());
        std::vector<int> left(p_.ops.size(), static_cast<int>(m_));
        for (; steps_[last].op != nothing; last = steps_[last].from) {
            const auto& op = p_.ops[steps_[last].op];
            out[op.device].push_back(op.number * static_cast<int>(m_) + --left[steps_[last].op]);
        }
        for (auto& passes : out) { std::reverse(passes.begin(), passes.end()); }
        return out;
    }

    /// Removes one of the partial schedules of a state; the last one takes its position.
    static void erase(state& s, std::size_t i, std::size_t stride) {
        std::copy(s.times.end() - static_cast<std::ptrdiff_t>(stride), s.times.end(),
                  s.times.begin() + static_cast<std::ptrdiff_t>(i * stride));
        s.times.resize(s.times.size() - stride);
        s.steps[i] = s.steps.back();
        s.steps.pop_back();
        s.scores[i] = s.scores.back();
        s.scores.pop_back();
    }

private:
    /// The operation added to an earlier partial schedule; `nothing` in the first.
    struct step {
        std::size_t from{};
        std::size_t op{};
    };
    struct part {
        double from{std::numeric_limits<double>::infinity()};
        double work{};
        double tail{std::numeric_limits<double>::infinity()};
    };
    static constexpr std::size_t nothing = std::numeric_limits<std::size_t>::max();

    /// Bytes that the end of the next microbatch of an operation frees; turned: that its start takes.
    [[nodiscard]] std::int64_t freed(const std::u16string& counts, std::size_t i) const {
        std::int64_t bytes = 0;
        for (const auto& r : p_.ops[i].ends) {
            const auto with = static_cast<std::size_t>(r.with);
            if (r.with < 0 || (p_.turned ? counts[with] <= counts[i] : counts[with] > counts[i])) { bytes += r.bytes; }
        }
        return bytes;
    }

    /// Adds counts_, held_, times_ to a layer unless they are dominated or cannot end in time.
    void add(layer& to, step origin, double end) {
        const auto [at, fresh] = to.places.try_emplace(counts_, to.states.size());
        if (fresh) { to.states.push_back({counts_, held_, rests(), {}, {}, {}}); }
        auto& here = to.states[at->second];
        const double value = raise(here.rest);
        if (value >= below_) {
            least_pruned_ = std::min(least_pruned_, value);
            return;
        }
        if (listed_ != nullptr) {
            key_.clear();
            for (std::size_t i = counts_.size(); i-- > 0;) { key_ += static_cast<char16_t>(m_ - counts_[i]); }
            const auto [rest, first] = listed_->rest_us.try_emplace(key_, end);
            if (!first) { rest->second = std::min(rest->second, end); }
        }
        auto& list = here.times;
        const std::size_t stride = times_.size();
        const auto not_later = [stride](const double* a, const double* b) {
            for (std::size_t i = 0; i != stride; ++i) {
                if (a[i] > b[i]) { return false; }
            }
            return true;
        };
        for (std::size_t i = 0; i != list.size(); i += stride) {
            if (not_later(list.data() + i, times_.data())) { return; }
        }
        for (std::size_t i = 0; i < here.steps.size();) {
            if (!not_later(times_.data(), list.data() + i * stride)) {
                ++i;
                continue;
            }
            erase(here, i, stride);
            --kept_;
        }
        list.insert(list.end(), times_.begin(), times_.end());
        here.scores.push_back(value + 1e-3 * spent_);
        added_.push_back({value, at->second, steps_.size()});
        here.steps.push_back(steps_.size());
        steps_.push_back(origin);
        ++kept_;
    }

    /// Per device: the completion time after counts_, 0 where none is known.
    [[nodiscard]] std::vector<double> rests() {
        std::vector<double> out(p_.limit.size(), 0.0);
        for (std::size_t d = 0; d != out.size(); ++d) {
            if (guides_[d] == nullptr) { continue; }
            key_.clear();
            bool left = false;
            for (const std::size_t i : guided_[d]) {
                key_ += counts_[i];
                left = left || counts_[i] != m_;
            }
            const auto at = guides_[d]->rest_us.find(key_);
            if (left) { out[d] = at == guides_[d]->rest_us.end() ? never : at->second; }
        }
        return out;
    }

    /// Raises times_ to their least possible values; returns the makespan that the state cannot beat.
    double raise(const std::vector<double>& rest) {
        const std::size_t devices = p_.limit.size();
        double value = 0;
        for (std::size_t d = 0; d != devices; ++d) { value = std::max(value, times_[1 + d]); }
        least_.assign(p_.ops.size(), never);
        parts_.assign(devices, part{});
        arrival_.clear();
        double* arrival = times_.data() + 1 + devices;
        for (const auto& l : p_.links) {
            arrival_.push_back(arrival);
            arrival += counts_[l.from] - counts_[l.to];
        }
        double soonest = never;
        for (std::size_t i = 0; i != p_.ops.size(); ++i) {
            const std::size_t k = counts_[i];
            if (k == m_) { continue; }
            const auto& op = p_.ops[i];
            double at = std::max({times_[0], times_[1 + op.device], p_.head[i * m_ + k]});
            for (const std::size_t e : op.into) {
                const auto& l = p_.links[e];
                const std::size_t a = counts_[l.from];
                const double ahead = static_cast<double>(k + 1) - static_cast<double>(a);
                at = std::max(at, a > k ? *arrival_[e] : least_[l.from] + ahead * p_.ops[l.from].duration + l.lag_us);
            }
            least_[i] = at;
            soonest = std::min(soonest, at);
            value = std::max(value, at + op.duration + p_.tail[i * m_ + k]);
            value = std::max(value, extend(parts_[op.device], i));
        }
        spent_ = 0;
        if (soonest == never) { return value; }
        for (std::size_t d = 0; d != devices; ++d) {
            const auto& here = parts_[d];
            if (here.from == never) { continue; }
            spent_ += here.from + std::max(rest[d] == never ? 0.0 : rest[d], here.work);
            if (rest[d] > 0) { value = std::max(value, std::min(here.from + rest[d], guides_[d]->below_us)); }
            const auto at = std::lower_bound(p_.rest[d].begin(), p_.rest[d].end(), here.work * (1 - 1e-9),
                                             [](const begun_work& a, double work) { return a.work_us < work; });
            if (at != p_.rest[d].begin()) { value = std::max(value, here.from + here.work + std::prev(at)->before_us); }
            times_[1 + d] = std::max(times_[1 + d], here.from);
        }
        parts_.assign(devices, part{});
        for (std::size_t i = p_.ops.size(); i-- > 0;) {
            if (counts_[i] != m_) { value = std::max(value, extend(parts_[p_.ops[i].device], i)); }
        }
        times_[0] = soonest;
        for (std::size_t e = 0; e != p_.links.size(); ++e) {
            const auto& l = p_.links[e];
            // An arrival before it can be used is as good as one at that moment.
            double free = times_[1 + p_.ops[l.to].device];
            for (std::size_t k = counts_[l.to]; k < counts_[l.from]; ++k) {
                double& t = arrival_[e][k - counts_[l.to]];
                t = std::max({t, free, p_.head[l.to * m_ + k]});
                free = t + p_.ops[l.to].duration;
            }
        }
        return value;
    }

    /// Adds what is left of an operation to a set of one device's passes; returns the makespan that the set demands.
    double extend(part& set, std::size_t i) const {
        set.from = std::min(set.from, least_[i]);
        set.work += static_cast<double>(m_ - counts_[i]) * p_.ops[i].duration;
        set.tail = std::min(set.tail, p_.tail[i * m_ + m_ - 1]);
        return set.from + set.work + set.tail;
    }

    relaxed_problem p_;
    std::size_t m_;
    std::vector<const completion_times*> guides_;
    /// Per kept device: its operations.
    std::vector<std::vector<std::size_t>> guided_;
    std::vector<step> steps_{};
    std::vector<addition> added_{};
    double below_{};
    double least_pruned_{};
    completion_times* listed_{};
    std::int64_t kept_{};
    /// Sum over the devices of the least times at which they can end.
    double spent_{};
    /// The state under construction, and scratch.
    std::u16string counts_{};
    std::u16string key_{};
    std::vector<double> times_{};
    std::vector<std::int64_t> held_{};
    std::vector<double> start_{};
    std::vector<const double*> first_{};
    std::vector<double*> arrival_{};
    std::vector<double> least_{};
    std::vector<part> parts_{};
};

} // namespace pulse::detail
