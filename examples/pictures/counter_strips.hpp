#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/core/text_table.hpp>

#include "svg.hpp"
#include "timeline_event.hpp"

namespace pictures {

namespace detail {

/// The counters of every rank as stacked areas, one strip per rank, all on the scale of the highest.
class counter_strips {
public:
    static constexpr double height = 40;

    explicit counter_strips(std::span<const trace_counter> counters) {
        for (const trace_counter& counter : counters) {
            if (!std::isfinite(counter.time_us) || !std::isfinite(counter.value) || counter.value < 0) { continue; }
            if (std::find(names_.begin(), names_.end(), counter.name) == names_.end()) {
                names_.push_back(counter.name);
            }
            ranks_[counter.rank][counter.time_us].push_back(&counter);
        }
        for (const auto& [rank, changes] : ranks_) {
            std::vector<double> levels(names_.size(), 0.0);
            double most = 0;
            for (const auto& [time, at] : changes) {
                apply(at, levels);
                most = std::max(most, sum(levels, names_.size()));
            }
            peaks_[rank] = most;
            highest_ = std::max(highest_, most);
        }
    }

    [[nodiscard]] bool has(int rank) const { return ranks_.contains(rank); }

    /// The strip of `rank` from (x0, top) to (x1, top + height), which represent the times `begin` to `end`.
    void draw(svg_builder& svg, int rank, double top, double x0, double x1, double begin, double end) const {
        const auto found = ranks_.find(rank);
        if (found == ranks_.end() || !(highest_ > 0)) { return; }
        const double bottom = top + height;
        const auto x_of = [&](double time) {
            return x0 + (x1 - x0) * (std::clamp(time, begin, end) - begin) / std::max(end - begin, 1e-9);
        };
        // Paints the whole stack first; each lower part then covers its own area.
        for (std::size_t part = names_.size(); part-- != 0;) {
            std::vector<double> levels(names_.size(), 0.0);
            std::vector<std::pair<double, double>> outline{{x0, bottom}};
            double y = bottom;
            for (const auto& [time, at] : found->second) {
                apply(at, levels);
                const double next = bottom - height * sum(levels, part + 1) / highest_;
                outline.emplace_back(x_of(time), y);
                outline.emplace_back(x_of(time), next);
                y = next;
            }
            outline.emplace_back(x1, y);
            outline.emplace_back(x1, bottom);
            svg.polygon(outline, colours[part % colours.size()]);
        }
        svg.line(x0, bottom, x1, bottom, "#d0d7de", 0.75);
        const std::string peak = pulse::bytes_text(peaks_.at(rank));
        svg.text(x0 - 10, bottom - 4, peak, {.size = 10, .anchor = "end", .colour = "#57606a"});
    }

    void draw_legend(svg_builder& svg, double x, double y) const {
        for (std::size_t part = 0; part != names_.size(); ++part) {
            svg.rectangle(x, y - 9, 9, 9, colours[part % colours.size()], "none", 2);
            svg.text(x + 13, y - 1, names_[part], {.size = 10, .colour = "#57606a"});
            x += 13 + 5.6 * static_cast<double>(names_[part].size()) + 14;
        }
    }

private:
    static constexpr std::array<std::string_view, 8> colours{"#ced4da", "#a5b4c4", "#868e96", "#91a7ff",
                                                             "#63e6be", "#ffd8a8", "#faa2c1", "#d0bfff"};

    void apply(const std::vector<const trace_counter*>& at, std::vector<double>& levels) const {
        for (const trace_counter* counter : at) {
            const auto name = std::find(names_.begin(), names_.end(), counter->name);
            levels[static_cast<std::size_t>(name - names_.begin())] = counter->value;
        }
    }
    [[nodiscard]] static double sum(const std::vector<double>& levels, std::size_t parts) {
        double all = 0;
        for (std::size_t i = 0; i != parts; ++i) { all += levels[i]; }
        return all;
    }

    std::vector<std::string> names_{};
    std::map<int, std::map<double, std::vector<const trace_counter*>>> ranks_{};
    std::map<int, double> peaks_{};
    double highest_{};
};

} // namespace detail

} // namespace pictures
