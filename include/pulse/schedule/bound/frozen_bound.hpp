#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include <pulse/profile/frozen_component.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/schedule/problem.hpp>

namespace pulse::detail {

/// Arbitrarily divisible work, spread over devices so that the greatest level is least, then the next greatest, and so
/// on. Level of a device = its level before + its shares.
struct frozen_shares {
    std::vector<double> level_us{};
    /// [part][device]
    std::vector<std::vector<double>> share_us{};
};

/// Raises the lowest levels of `devices` to one common level by `amount` in total; returns what each device got.
[[nodiscard]] constexpr std::vector<double> pour(std::vector<double>& level_us, const std::vector<int>& devices,
                                                 double amount) {
    std::vector<double> got(level_us.size(), 0.0);
    std::vector<double> heights{};
    for (const int d : devices) { heights.push_back(level_us[static_cast<std::size_t>(d)]); }
    std::sort(heights.begin(), heights.end());
    double height = heights.empty() ? 0.0 : heights.front();
    double rest = amount;
    for (std::size_t under = 1; under <= heights.size(); ++under) {
        const double most = under == heights.size() ? std::numeric_limits<double>::infinity() : heights[under];
        const double wide = static_cast<double>(under);
        if (!(height + rest / wide > most)) {
            height += rest / wide;
            break;
        }
        rest -= (most - height) * wide;
        height = most;
    }
    for (const int d : devices) {
        double& level = level_us[static_cast<std::size_t>(d)];
        if (level >= height) { continue; }
        got[static_cast<std::size_t>(d)] = height - level;
        level = height;
    }
    return got;
}

/// Spreads `amount_us` of each part over its hosts, above `level_us`.
///
/// Takes the work of one part after the other away and pours it again on top of the rest: each round lowers the sum of
/// squared levels, which is least at the fairest levels. Ends when nothing moves; stopping earlier costs fairness,
/// never correctness.
[[nodiscard]] constexpr frozen_shares share_frozen(const std::vector<frozen_part>& parts, std::vector<double> level_us,
                                                   const std::vector<double>& amount_us) {
    frozen_shares out{std::move(level_us), {}};
    out.share_us.resize(parts.size(), std::vector<double>(out.level_us.size(), 0.0));
    double total = 0;
    for (const double amount : amount_us) { total += amount; }
    for (int round = 0; round != 200; ++round) {
        double moved = 0;
        for (std::size_t p = 0; p != parts.size(); ++p) {
            auto before = out.share_us[p];
            for (std::size_t d = 0; d != before.size(); ++d) { out.level_us[d] -= before[d]; }
            out.share_us[p] = pour(out.level_us, parts[p].hosts, amount_us[p]);
            for (std::size_t d = 0; d != before.size(); ++d) {
                moved =
                    std::max(moved, std::max(before[d], out.share_us[p][d]) - std::min(before[d], out.share_us[p][d]));
            }
        }
        if (!(moved > 1e-12 * total)) { break; }
    }
    return out;
}

/// Hall's condition, (busy time of A + work that only A may host) / |A|, for the sets A of devices at or above each of
/// the fairest levels. The value of any set is a bound; one of these sets attains the greatest value over all sets,
/// which is that of the linear program of preemptive scheduling with hosts.
[[nodiscard]] constexpr double spread_bound_us(const frozen_work& work, const std::vector<double>& busy) {
    const auto parts = parts_of(work, static_cast<int>(busy.size()));
    std::vector<double> amount{};
    for (const frozen_part& p : parts) {
        const frozen_component& of = work.components[static_cast<std::size_t>(p.component)];
        amount.push_back(least_work_us(of, p.first_layer, p.last_layer, work.samples));
    }
    double bound = 0;
    const auto shares = share_frozen(parts, busy, amount);
    for (const double least : shares.level_us) {
        const double slack = 1e-9 * least;
        const auto inside = [&](std::size_t d) { return shares.level_us[d] >= least - slack; };
        double sum = 0;
        double count = 0;
        for (std::size_t d = 0; d != busy.size(); ++d) {
            if (inside(d)) { sum += busy[d], ++count; }
        }
        for (std::size_t p = 0; p != parts.size(); ++p) {
            const auto& hosts = parts[p].hosts;
            const bool only =
                std::all_of(hosts.begin(), hosts.end(), [&](int d) { return inside(static_cast<std::size_t>(d)); });
            if (only) { sum += amount[p]; }
        }
        bound = std::max(bound, sum / count);
    }
    return bound;
}

/// A makespan that passes and frozen work together cannot beat, given one that the passes alone cannot beat: the
/// greatest of that one, the chain of one sample, and spread_bound_us. Throws input_error as require_valid does.
[[nodiscard]] constexpr double frozen_bound_us(const schedule_problem& problem, const frozen_work& work,
                                               double passes_bound_us) {
    require_valid(work, problem);
    double bound = passes_bound_us;
    for (const frozen_component& c : work.components) {
        if (work.samples > 0) { bound = std::max(bound, c.duration_us(1)); }
    }
    return std::max(bound, spread_bound_us(work, busy_us(problem)));
}

/// A bound on the time when all devices are done, including work.after_us, which a device does after its last pass and
/// task and with nothing beside it.
[[nodiscard]] constexpr double frozen_end_bound_us(const schedule_problem& problem, const frozen_work& work,
                                                   double passes_bound_us) {
    const double together = frozen_bound_us(problem, work, passes_bound_us);
    if (work.after_us.empty()) { return together; }
    std::vector<double> busy = busy_us(problem);
    for (std::size_t d = 0; d != busy.size(); ++d) { busy[d] += work.after_us[d]; }
    const double least_after = *std::min_element(work.after_us.begin(), work.after_us.end());
    return std::max(together + least_after, spread_bound_us(work, busy));
}

} // namespace pulse::detail
