#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/io/svg.hpp>
#include <pulse/io/timeline_event.hpp>

namespace pulse::io {

/// How a timeline is drawn.
struct timeline_plot {
    std::string_view title = "One training step";
    double width = 1200; ///< pixels
};

namespace detail {

struct event_look {
    char kind;
    std::string_view meaning;
    std::string_view early; ///< colour of the first stage; later stages of a rank are drawn darker
    std::string_view late;
    std::string_view ink;
};

inline constexpr std::array<event_look, 9> event_looks{{
    {'F', "forward", "#8ec5ff", "#3b8eea", "#0b2545"},
    {'B', "backward", "#ffc078", "#f08c00", "#3d1f00"},
    {'W', "weight gradient", "#8ce99a", "#37b24d", "#0b3d16"},
    {'R', "recompute", "#d0bfff", "#9775fa", "#2b1a5c"},
    {'S', "send", "#868e96", "#868e96", "#ffffff"},
    {'V', "receive", "#ced4da", "#ced4da", "#24292f"},
    {'A', "all-reduce", "#fa5252", "#fa5252", "#4a0505"},
    {'O', "optimizer", "#e64980", "#e64980", "#4a0520"},
    {'?', "other", "#e9ecef", "#e9ecef", "#24292f"},
}};

[[nodiscard]] inline const event_look& look_of(char kind) noexcept {
    const auto found = std::find_if(event_looks.begin(), event_looks.end() - 1,
                                    [&](const event_look& look) { return look.kind == kind; });
    return *found;
}

/// What a pointer over the event shows.
[[nodiscard]] inline std::string tooltip_of(const timeline_event& event) {
    std::string text = event.name.empty() ? std::string{look_of(event.kind).meaning} : event.name;
    if (event.stage >= 0) { text += ", stage " + std::to_string(event.stage); }
    if (event.microbatch >= 0) { text += ", microbatch " + std::to_string(event.microbatch); }
    text += ", " + svg_number(event.start_us, 1) + " to " + svg_number(event.end_us, 1) + " us";
    if (event.bytes > 0) { text += ", " + std::to_string(event.bytes) + " bytes"; }
    return text;
}

} // namespace detail

/// A picture of what every rank did when: one row a rank, passes in colour with their microbatch's number (a rank's
/// later stage in a darker tone), transfers as thin bars below, a line from each send to its receive, legend and time axis.
///
/// Events may come in any order; those whose times are not finite or that end before they start are left out.
[[nodiscard]] inline std::string timeline_svg(std::span<const timeline_event> events, const timeline_plot& plot = {}) {
    std::vector<const timeline_event*> shown;
    double begin = 0;
    double end = 0;
    for (const timeline_event& event : events) {
        if (!std::isfinite(event.start_us) || !std::isfinite(event.end_us) || event.end_us < event.start_us) {
            continue;
        }
        begin = shown.empty() ? event.start_us : std::min(begin, event.start_us);
        end = shown.empty() ? event.end_us : std::max(end, event.end_us);
        shown.push_back(&event);
    }
    std::map<int, std::map<int, double>> rows; // rank -> lane -> top of that lane
    std::map<int, std::pair<int, int>> stages; // rank -> first and last stage
    for (const timeline_event* event : shown) {
        rows[event->rank][event->lane] = 0;
        if (event->stage >= 0 && event->lane == 0) {
            const auto [at, fresh] = stages.try_emplace(event->rank, event->stage, event->stage);
            at->second.first = std::min(at->second.first, event->stage);
            at->second.second = std::max(at->second.second, event->stage);
        }
    }

    constexpr double left = 74;
    constexpr double top = 76;
    constexpr double compute_height = 34;
    constexpr double transfer_height = 9;
    const double right = std::max(plot.width, 400.0) - 20;
    double y = top;
    for (auto& [rank, lanes] : rows) {
        for (auto& [lane, lane_top] : lanes) {
            lane_top = y;
            y += lane == 0 ? compute_height + 3 : transfer_height + 2;
        }
        y += 10;
    }
    const double bottom = y;
    svg_builder svg{right + 20, bottom + 48};
    svg.text(left, 26, plot.title, {.size = 16, .weight = "bold"});
    if (shown.empty()) {
        svg.text(left, 56, "no events");
        return svg.str();
    }
    const double length = std::max(end - begin, 1e-9);
    const auto x_of = [&](double time) { return left + (right - left) * (time - begin) / length; };

    // The axis in the largest unit in which the step is at least one long.
    const auto [unit, per_us] = length >= 1e6   ? std::pair{"s", 1e-6}
                                : length >= 1e3 ? std::pair{"ms", 1e-3}
                                                : std::pair{"us", 1.0};
    for (const double tick : round_ticks(0, length * per_us, 10)) {
        const double x = x_of(begin + tick / per_us);
        svg.line(x, top - 6, x, bottom, "#eaeef2");
        svg.text(x, bottom + 18, svg_number(tick, 3), {.anchor = "middle", .colour = "#57606a"});
    }
    svg.line(left, bottom, right, bottom, "#8c959f");
    svg.text((left + right) / 2, bottom + 38, "time, " + std::string{unit}, {.size = 13, .anchor = "middle"});
    for (const auto& [rank, lanes] : rows) {
        const double row_top = lanes.begin()->second;
        svg.text(left - 10, row_top + compute_height / 2 + 4, "rank " + std::to_string(rank),
                 {.size = 13, .anchor = "end"});
        if (lanes.contains(0)) { svg.rectangle(left, lanes.at(0), right - left, compute_height, "#f6f8fa"); }
    }

    std::map<char, bool> used;
    for (const timeline_event* event : shown) {
        const detail::event_look& look = detail::look_of(event->kind);
        used[look.kind] = true;
        const double lane_top = rows[event->rank][event->lane];
        const double x = x_of(event->start_us);
        const double w = std::max(x_of(event->end_us) - x, 0.6);
        const double h = event->lane == 0 ? compute_height : transfer_height;
        const auto range = stages.find(event->rank);
        const bool later = range != stages.end() && range->second.first != range->second.second &&
                           2 * event->stage > range->second.first + range->second.second;
        svg.rectangle(x, lane_top, w, h, later ? look.late : look.early, w > 3 ? "#ffffff" : "none", w > 6 ? 1.5 : 0,
                      detail::tooltip_of(*event));
        const std::string number = event->microbatch >= 0 ? std::to_string(event->microbatch)
                                   : event->kind == 'O'   ? "opt"
                                                          : "";
        const double size = event->lane == 0 ? 12 : 7.5;
        if (!number.empty() && w > size * 0.62 * static_cast<double>(number.size()) + 2) {
            svg.text(x + w / 2, lane_top + h / 2 + size * 0.36, number,
                     {.size = size, .anchor = "middle", .colour = look.ink});
        }
    }

    std::map<std::int64_t, const timeline_event*> sends;
    for (const timeline_event* event : shown) {
        if (event->kind == 'S' && event->flow > 0) { sends[event->flow] = event; }
    }
    for (const timeline_event* event : shown) {
        const auto send = event->kind == 'V' && event->flow > 0 ? sends.find(event->flow) : sends.end();
        if (send == sends.end() || send->second->rank == event->rank) { continue; }
        svg.line(x_of(send->second->start_us), rows[send->second->rank][send->second->lane] + transfer_height / 2,
                 x_of(event->end_us), rows[event->rank][event->lane] + transfer_height / 2, "#adb5bd", 0.6);
    }

    const bool several_stages = std::any_of(
        stages.begin(), stages.end(), [](const auto& range) { return range.second.first != range.second.second; });
    double x = left;
    for (const detail::event_look& look : detail::event_looks) {
        if (!used.contains(look.kind)) { continue; }
        const bool two_tones = several_stages && look.early != look.late;
        svg.rectangle(x, 42, 13, 13, look.early, "none", 2);
        if (two_tones) { svg.rectangle(x + 15, 42, 13, 13, look.late, "none", 2); }
        x += two_tones ? 34 : 19;
        svg.text(x, 53, look.meaning, {.size = 12});
        x += 6.6 * static_cast<double>(look.meaning.size()) + 20;
    }
    svg.text(x, 53,
             several_stages ? "(darker: the rank's later stage; numbers: microbatches)" : "(numbers: microbatches)",
             {.colour = "#57606a"});
    return svg.str();
}

} // namespace pulse::io
