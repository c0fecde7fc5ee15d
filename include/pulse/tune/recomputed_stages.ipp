#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/plan/memory_limits.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/tune/recomputed_stages.hpp>

namespace pulse {

namespace detail {

/// Some stages of a device and the time of their forwards.
struct stage_choice {
    double forward_us{};
    std::vector<int> stages{};

    constexpr void add(const cost_table& costs, const stage& s) {
        for (int l = s.first_layer; l <= s.last_layer; ++l) {
            forward_us += costs.layers[static_cast<std::size_t>(l)].forward_us;
        }
        stages.push_back(s.index);
    }
    [[nodiscard]] constexpr bool operator<(const stage_choice& other) const {
        if (forward_us != other.forward_us) { return forward_us < other.forward_us; }
        if (stages.size() != other.stages.size()) { return stages.size() < other.stages.size(); }
        return stages < other.stages;
    }
};

/// Every subset of a few stages, by ascending forward time.
[[nodiscard]] constexpr std::vector<stage_choice> all_choices(const cost_table& costs, const std::vector<stage>& own) {
    std::vector<stage_choice> all{};
    for (std::size_t mask = 0; mask != std::size_t{1} << own.size(); ++mask) {
        all.emplace_back();
        for (std::size_t i = 0; i != own.size(); ++i) {
            if ((mask >> i) % 2 == 1) { all.back().add(costs, own[i]); }
        }
    }
    std::sort(all.begin(), all.end());
    return all;
}

/// Adds one stage at a time, those that save most bytes per forward time first.
[[nodiscard]] constexpr std::vector<stage_choice> greedy_choices(const cost_table& costs, std::vector<stage> own) {
    const auto worth = [&](const stage& s) {
        double bytes = 0;
        double us = 0;
        for (int l = s.first_layer; l <= s.last_layer; ++l) {
            const layer_cost& layer = costs.layers[static_cast<std::size_t>(l)];
            bytes += static_cast<double>(layer.saved_bytes + (l != s.last_layer ? layer.output_bytes : 0));
            us += layer.forward_us;
        }
        return us > 0 ? bytes / us : std::numeric_limits<double>::infinity();
    };
    std::sort(own.begin(), own.end(), [&](const stage& a, const stage& b) {
        return worth(a) != worth(b) ? worth(a) > worth(b) : a.index < b.index;
    });
    std::vector<stage_choice> all(1);
    for (const stage& s : own) {
        all.push_back(all.back());
        all.back().add(costs, s);
    }
    return all;
}

[[nodiscard]] constexpr std::vector<std::vector<stage_choice>> choices_of_devices(const cost_table& costs,
                                                                                  const partition& cut) {
    std::vector<std::vector<stage_choice>> all{};
    for (int d = 0; d != cut.devices; ++d) {
        std::vector<stage> own{};
        for (const stage& s : cut.stages) {
            if (s.device == d) { own.push_back(s); }
        }
        all.push_back(own.size() <= std::size_t{exhausted_stages} ? all_choices(costs, own)
                                                                  : greedy_choices(costs, own));
    }
    return all;
}

} // namespace detail

PULSE_CONSTEXPR std::vector<char> choose_recomputed_stages(plan ordered, const cost_table& costs,
                                                           const parameter_memory& kept, const memory_limits& limits) {
    ordered.spare_sends = 0;
    const auto exceed = [&](const std::vector<char>& flags) {
        ordered.recompute = stage_recomputation{flags};
        std::vector<char> over{};
        const std::vector<std::int64_t> peaks = peak_bytes(ordered, costs, kept);
        for (std::size_t d = 0; d != peaks.size(); ++d) {
            over.push_back(limits.of(d) > 0 && peaks[d] > limits.of(d) ? 1 : 0);
        }
        return over;
    };
    const std::size_t stages = ordered.cut.stages.size();
    const auto any = [](const std::vector<char>& over) { return std::find(over.begin(), over.end(), 1) != over.end(); };
    const auto choices = detail::choices_of_devices(costs, ordered.cut);
    // All devices whose choice does not fit advance to their next one together: one lowering serves them all.
    std::vector<std::size_t> chosen(choices.size(), 0);
    for (;;) {
        std::vector<char> flags(stages, 0);
        for (std::size_t d = 0; d != choices.size(); ++d) {
            for (const int s : choices[d][chosen[d]].stages) { flags[static_cast<std::size_t>(s)] = 1; }
        }
        const std::vector<char> over = exceed(flags);
        if (!any(over)) { return flags; }
        for (std::size_t d = 0; d != choices.size(); ++d) {
            if (over[d] != 0 && ++chosen[d] == choices[d].size()) { return {}; }
        }
    }
}

} // namespace pulse
