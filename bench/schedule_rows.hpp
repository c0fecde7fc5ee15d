#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include "schedule_ratio.hpp"

namespace pulse_bench {

/// One pipeline: a model on P devices, folded in W waves (2W chunks where interleaved), M microbatches over one kind of
/// link.
struct schedule_case {
    std::string model{};
    int devices{};
    int waves{};
    int microbatches{};
    bool split{};
    std::string link{};

    [[nodiscard]] std::string name() const {
        return model + " P" + std::to_string(devices) + " W" + std::to_string(waves) + " M" +
               std::to_string(microbatches) + (split ? " split " : " unsplit ") + link;
    }
};

/// The result of one method on one case.
struct schedule_row {
    schedule_case at{};
    std::string method{};
    std::string placement{};
    double makespan_us{};
    /// Lower bound of the method's own problem: its placement, links and skips.
    double bound_us{};
    /// Makespan of the synthesizer on the folded placement, free memory; 0 where there is no folded cut.
    double synthesized_us{};
    /// Makespans of the synthesizer on the method's own problem, with no device holding more than under the method:
    /// alone, and starting from the method's schedule where that is better. 0 for a problem that it cannot order.
    double alone_us{};
    double same_problem_us{};
    /// Makespan of the synthesizer on the folded placement when every device has the method's peak memory, parameters
    /// included; 0 for folded methods, and where nothing fits.
    double folded_same_memory_us{};
    std::int64_t peak_bytes{};
    std::int64_t boundary_bytes{};
    std::int64_t skip_bytes{};
    /// Gradients that are summed between two copies of the parameters.
    std::int64_t gradient_bytes{};
    double seconds{};
};

/// Prints, per pipeline degree, waves, split and method: makespan over the bound of the method's own problem and over
/// the synthesizer's makespan, peak memory, bytes of a step by kind, seconds of the scheduler.
inline void print_schedule_groups(const std::vector<schedule_row>& rows, nlohmann::ordered_json& groups) {
    struct sums {
        ratio_summary bound{};
        ratio_summary synthesized{};
        double peak{};
        double boundary{};
        double skip{};
        double gradient{};
        double seconds{};
        int count{};
    };
    std::map<std::tuple<int, int, bool>, std::vector<std::pair<std::string, sums>>> all;
    for (const auto& r : rows) {
        auto& group = all[{r.at.devices, r.at.waves, !r.at.split}];
        const std::string name = r.method + " (" + r.placement + ")";
        auto found = std::find_if(group.begin(), group.end(), [&](const auto& g) { return g.first == name; });
        if (found == group.end()) { found = group.insert(group.end(), {name, sums{}}); }
        sums& s = found->second;
        ++s.count;
        s.bound.add(r.makespan_us / r.bound_us);
        if (r.synthesized_us > 0) { s.synthesized.add(r.makespan_us / r.synthesized_us); }
        s.peak += static_cast<double>(r.peak_bytes) / 1e9;
        s.boundary += static_cast<double>(r.boundary_bytes) / 1e9;
        s.skip += static_cast<double>(r.skip_bytes) / 1e9;
        s.gradient += static_cast<double>(r.gradient_bytes) / 1e9;
        s.seconds += r.seconds;
    }
    groups = nlohmann::ordered_json::array();
    for (const auto& [key, methods] : all) {
        const auto [devices, waves, unsplit] = key;
        std::printf("\nP %d, W %d, %s backward\n", devices, waves, unsplit ? "unsplit" : "split");
        std::printf("%-26s %4s %17s %17s %8s %9s %9s %9s %9s\n", "method", "n", "over own bound", "over synthesized",
                    "peak GB", "boundary", "skips GB", "gradients", "seconds");
        for (const auto& [name, s] : methods) {
            std::printf("%-26s %4d %8.4f %8.4f %8.4f %8.4f %8.2f %9.3f %9.3f %9.3f %9.4f\n", name.c_str(), s.count,
                        s.bound.mean(), s.bound.worst, s.synthesized.mean(), s.synthesized.worst, s.peak / s.count,
                        s.boundary / s.count, s.skip / s.count, s.gradient / s.count, s.seconds / s.count);
            groups.push_back({{"pipeline_degree", devices},
                              {"waves", waves},
                              {"split_backward", !unsplit},
                              {"method", name},
                              {"instances", s.count},
                              {"over_bound_mean", s.bound.mean()},
                              {"over_bound_worst", s.bound.worst},
                              {"over_synthesized_mean", s.synthesized.mean()},
                              {"over_synthesized_worst", s.synthesized.worst},
                              {"mean_peak_gb", s.peak / s.count},
                              {"mean_boundary_gb", s.boundary / s.count},
                              {"mean_skip_gb", s.skip / s.count},
                              {"mean_gradient_gb", s.gradient / s.count},
                              {"mean_seconds", s.seconds / s.count}});
        }
    }
}

/// Prints, per method, how often the synthesizer is worse at the method's own memory: on the same problem, and on the
/// folded placement where that is a different one. Returns the number of losses on the same problem, which must be 0.
[[nodiscard]] inline int print_schedule_losses(const std::vector<schedule_row>& rows, nlohmann::ordered_json& losses) {
    struct side {
        ratio_summary ratio{};
        int lost{};
        std::string worst{};

        void add(double of, const schedule_row& r) {
            const double value = of / r.makespan_us;
            if (value > 1 + 1e-9) { ++lost; }
            if (value > ratio.worst) { worst = r.at.name(); }
            ratio.add(value);
        }
    };
    struct sums {
        side same{};
        side folded{};
        int not_alone{};
        int no_room{};
    };
    std::vector<std::pair<std::string, sums>> methods;
    for (const auto& r : rows) {
        if (r.method == "synthesize") { continue; }
        const std::string name = r.method + " (" + r.placement + ")";
        auto found = std::find_if(methods.begin(), methods.end(), [&](const auto& g) { return g.first == name; });
        if (found == methods.end()) { found = methods.insert(methods.end(), {name, sums{}}); }
        sums& s = found->second;
        if (r.same_problem_us > 0) {
            s.same.add(r.same_problem_us, r);
            s.not_alone += r.alone_us > r.makespan_us * (1 + 1e-9) ? 1 : 0;
        }
        if (r.placement == "folded" || !(r.synthesized_us > 0)) { continue; }
        if (r.folded_same_memory_us > 0) {
            s.folded.add(r.folded_same_memory_us, r);
        } else {
            ++s.no_room;
        }
    }
    std::printf("\nThe synthesizer's makespan over that of each method, at the method's own memory\n");
    std::printf("%-26s | %s %23s | %s\n", "", "same problem:", "", "folded placement instead, as it comes:");
    std::printf("%-26s | %5s %5s %9s %7s %7s | %5s %5s %7s %7s %7s  %s\n", "method", "n", "lost", "by itself", "mean",
                "worst", "n", "lost", "no room", "mean", "worst", "worst case");
    losses = nlohmann::ordered_json::array();
    int lost = 0;
    for (const auto& [name, s] : methods) {
        std::printf("%-26s | %5d %5d %9d %7.4f %7.4f | %5d %5d %7d %7.4f %7.4f  %s\n", name.c_str(), s.same.ratio.count,
                    s.same.lost, s.not_alone, s.same.ratio.mean(), s.same.ratio.worst, s.folded.ratio.count,
                    s.folded.lost, s.no_room, s.folded.ratio.mean(), s.folded.ratio.worst, s.folded.worst.c_str());
        losses.push_back({{"method", name},
                          {"same_problem", s.same.ratio.count},
                          {"same_problem_lost", s.same.lost},
                          {"same_problem_lost_by_itself", s.not_alone},
                          {"same_problem_mean", s.same.ratio.mean()},
                          {"folded", s.folded.ratio.count},
                          {"folded_lost", s.folded.lost},
                          {"folded_no_room", s.no_room},
                          {"folded_mean", s.folded.ratio.mean()},
                          {"folded_worst", s.folded.ratio.worst},
                          {"folded_worst_case", s.folded.worst}});
        lost += s.same.lost;
    }
    return lost;
}

} // namespace pulse_bench
