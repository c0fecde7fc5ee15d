#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/schedule/construct/list_engine.hpp>
#include <pulse/schedule/indexed_problem.hpp>

namespace pulse {

/// Which priority rules are tried: the first, which is good in most cases, or all of them.
enum class list_effort : std::uint8_t { one, rules };

namespace detail {

/// A priority rule: weights of its keys, and how long a device waits. Keys are fixed before a run begins; list_limits
/// and the memory_guard handle what changes during it, such as held bytes.
///
/// The key of an operation of microbatch k is base + k x T, smaller first, with T the largest device load and h the
/// earliest start in a microbatch that runs alone:
/// base(F) = forward h(F); base(B) = forward h(last F) + h(B) - h(last F) - early T;
/// base(W) = base(B) + duration(B) + late T; the previews of a microbatch, base(P), end
/// ahead T before its first forward when they run without a pause.
struct list_rule {
    /// 2 makes deeper stages less urgent, -1 goes depth first.
    double forward{1};
    double early{};
    double late{};
    /// How early previews run before the forward that reads them, in units of T.
    double ahead{};
    /// Not part of the key: list_limits::delay.
    double delay{};

    /// What the key leaves out, for a run with at most `in_flight` microbatches in flight (0: any number).
    [[nodiscard]] constexpr list_limits limits(int in_flight = 0) const {
        return {.delay = delay, .in_flight = in_flight};
    }
    [[nodiscard]] constexpr bool operator==(const list_rule&) const = default;
};

/// The rules of an effort for a problem with or without previews, in the order in which they are tried: likeliest
/// winners first. Where work is limited, each rule takes a run away from later parts of rule_search::search.
[[nodiscard]] constexpr std::vector<list_rule> list_rules(list_effort effort, bool previews) {
    constexpr double always = 1e6;
    std::vector<list_rule> rules{};
    if (effort == list_effort::one) {
        rules.push_back({.early = 1, .late = always});
    } else {
        for (const double delay : {0.0, 0.5, 1.0}) {
            for (const double late : {always, 1.0, 2.0, 4.0}) {
                for (const double early : {1.0, 0.0, 2.0, always}) {
                    for (const double forward : {1.0, 2.0, 0.0, -1.0}) {
                        if (late != always && forward == 0.0) { continue; }
                        rules.push_back({.forward = forward, .early = early, .late = late, .delay = delay});
                    }
                }
            }
        }
    }
    if (!previews) { return rules; }
    const auto plain = rules;
    for (const double ahead : {1.0, 3.0, always}) {
        for (list_rule rule : plain) {
            rule.ahead = ahead;
            rules.push_back(rule);
        }
    }
    return rules;
}

/// Computes the keys of rules on one problem.
class rule_keys {
public:
    /// `head[op * microbatches]` is the earliest start of an operation in microbatch 0.
    constexpr rule_keys(const indexed_problem& index, const std::vector<double>& head) : index_{&index}, head_{&head} {
        for (int d = 0; d != index.devices; ++d) { period_ = std::max(period_, index.load_us(d)); }
    }

    /// T: the largest device load of one microbatch, microseconds.
    [[nodiscard]] constexpr double period_us() const noexcept { return period_; }

    /// The base of every operation.
    [[nodiscard]] constexpr std::vector<double> base(const list_rule& rule) const {
        const auto m = static_cast<std::size_t>(index_->microbatches);
        const auto stages = static_cast<std::size_t>(index_->stages);
        const auto head = [&](pass op, std::size_t s) {
            return (*head_)[(s * static_cast<std::size_t>(index_->passes) + static_cast<std::size_t>(op)) * m];
        };
        const double turn = head(pass::forward, stages - 1);
        std::vector<double> base{};
        for (std::size_t s = 0; s != stages; ++s) {
            const double backward = rule.forward * turn + (head(pass::backward_input, s) - turn) - rule.early * period_;
            base.push_back(rule.forward * head(pass::forward, s));
            base.push_back(backward);
            if (index_->passes == 3) { base.push_back(backward + index_->duration[s * 3 + 1] + rule.late * period_); }
        }
        double now = 0; // where previews begin when they run back to back
        for (auto op = base.size(); op != index_->duration.size(); ++op) {
            base.push_back(now - rule.ahead * period_);
            now += index_->duration[op];
        }
        for (auto op = stages * static_cast<std::size_t>(index_->passes); op != base.size(); ++op) { base[op] -= now; }
        return base;
    }

    /// The key of every instance, [op * microbatches + microbatch].
    [[nodiscard]] constexpr std::vector<double> of(const std::vector<double>& base) const {
        const auto m = static_cast<std::size_t>(index_->microbatches);
        std::vector<double> keys{};
        for (const double b : base) {
            for (std::size_t k = 0; k != m; ++k) { keys.push_back(b + static_cast<double>(k) * period_); }
        }
        return keys;
    }

private:
    const indexed_problem* index_;
    const std::vector<double>* head_;
    double period_{};
};

} // namespace detail

} // namespace pulse
