#include "timeline_svg.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "counter_strips.hpp"
#include "svg.hpp"
#include "timeline_event.hpp"
#include "timeline_look.hpp"

namespace pictures {

namespace detail {

/// Places every event and every counter of a timeline, and draws them layer by layer.
class timeline_picture {
public:
    timeline_picture(std::span<const timeline_event> events, std::span<const trace_counter> counters,
                     const timeline_plot& plot) :
        strips_{counters},
        title_{plot.title}, right_{std::max(plot.width, 400.0) - 20} {
        for (const timeline_event& event : events) { show(event); }
        place_rows();
    }

    [[nodiscard]] std::string draw() {
        svg_builder svg{right_ + 20, bottom_ + 48};
        svg.text(left, 26, title_, {.size = 16, .weight = "bold"});
        if (shown_.empty()) {
            svg.text(left, 56, "no events");
            return svg.str();
        }
        draw_axis(svg);
        draw_rows(svg);
        draw_events(svg);
        draw_flows(svg);
        draw_legend(svg);
        return svg.str();
    }

private:
    static constexpr double left = 74;
    static constexpr double top = 76;
    static constexpr double compute_height = 34;
    static constexpr double transfer_height = 9;

    struct row {
        std::map<int, double> lanes{}; ///< lane -> its top
        double strip_top{};
        int first_stage = -1;
        int last_stage = -1;

        [[nodiscard]] bool has_stages() const noexcept { return first_stage != last_stage; }
    };

    void show(const timeline_event& event) {
        if (!std::isfinite(event.start_us) || !std::isfinite(event.end_us) || event.end_us < event.start_us) { return; }
        begin_ = shown_.empty() ? event.start_us : std::min(begin_, event.start_us);
        end_ = shown_.empty() ? event.end_us : std::max(end_, event.end_us);
        shown_.push_back(&event);
        row& of_rank = rows_[event.rank];
        of_rank.lanes[event.lane] = 0;
        if (event.stage >= 0 && event.lane == 0) {
            of_rank.first_stage = of_rank.first_stage < 0 ? event.stage : std::min(of_rank.first_stage, event.stage);
            of_rank.last_stage = std::max(of_rank.last_stage, event.stage);
        }
    }

    void place_rows() {
        double y = top;
        for (auto& [rank, of_rank] : rows_) {
            for (auto& [lane, lane_top] : of_rank.lanes) {
                lane_top = y;
                y += lane == 0 ? compute_height + 3 : transfer_height + 2;
            }
            of_rank.strip_top = y;
            y += strips_.has(rank) ? counter_strips::height + 3 : 0;
            y += 10;
        }
        bottom_ = y;
    }

    [[nodiscard]] double x_of(double time) const {
        return left + (right_ - left) * (time - begin_) / std::max(end_ - begin_, 1e-9);
    }

    /// The axis uses the largest unit of which the step is at least one long.
    void draw_axis(svg_builder& svg) const {
        const double length = std::max(end_ - begin_, 1e-9);
        const auto [unit, per_us] = length >= 1e6   ? std::pair{"s", 1e-6}
                                    : length >= 1e3 ? std::pair{"ms", 1e-3}
                                                    : std::pair{"us", 1.0};
        for (const double tick : round_ticks(0, length * per_us, 10)) {
            const double x = x_of(begin_ + tick / per_us);
            svg.line(x, top - 6, x, bottom_, "#eaeef2");
            svg.text(x, bottom_ + 18, svg_number(tick, 3), {.anchor = "middle", .colour = "#57606a"});
        }
        svg.line(left, bottom_, right_, bottom_, "#8c959f");
        svg.text((left + right_) / 2, bottom_ + 38, "time, " + std::string{unit}, {.size = 13, .anchor = "middle"});
    }

    void draw_rows(svg_builder& svg) const {
        for (const auto& [rank, of_rank] : rows_) {
            const double row_top = of_rank.lanes.begin()->second;
            svg.text(left - 10, row_top + compute_height / 2 + 4, "rank " + std::to_string(rank),
                     {.size = 13, .anchor = "end"});
            const auto compute = of_rank.lanes.find(0);
            if (compute != of_rank.lanes.end()) {
                svg.rectangle(left, compute->second, right_ - left, compute_height, "#f6f8fa");
            }
            strips_.draw(svg, rank, of_rank.strip_top, left, right_, begin_, end_);
        }
    }

    void draw_events(svg_builder& svg) {
        for (const timeline_event* event : shown_) {
            const event_look& look = look_of(event->kind);
            used_[look.kind] = true;
            const row& of_rank = rows_.at(event->rank);
            const double lane_top = of_rank.lanes.at(event->lane);
            const double x = x_of(event->start_us);
            const double w = std::max(x_of(event->end_us) - x, 0.6);
            const double h = event->lane == 0 ? compute_height : transfer_height;
            const bool later = of_rank.has_stages() && 2 * event->stage > of_rank.first_stage + of_rank.last_stage;
            svg.rectangle(x, lane_top, w, h, later ? look.late : look.early, w > 3 ? "#ffffff" : "none",
                          w > 6 ? 1.5 : 0, tooltip_of(*event));
            const std::string number = event->microbatch >= 0 ? std::to_string(event->microbatch)
                                       : event->kind == 'O'   ? "opt"
                                                              : "";
            const double size = event->lane == 0 ? 12 : 7.5;
            if (!number.empty() && w > size * 0.62 * static_cast<double>(number.size()) + 2) {
                svg.text(x + w / 2, lane_top + h / 2 + size * 0.36, number,
                         {.size = size, .anchor = "middle", .colour = look.ink});
            }
        }
    }

    void draw_flows(svg_builder& svg) const {
        std::map<std::int64_t, const timeline_event*> sends;
        for (const timeline_event* event : shown_) {
            if (event->kind == 'S' && event->flow > 0) { sends[event->flow] = event; }
        }
        const auto middle = [&](const timeline_event& event) {
            return rows_.at(event.rank).lanes.at(event.lane) + transfer_height / 2;
        };
        for (const timeline_event* event : shown_) {
            const auto send = event->kind == 'V' && event->flow > 0 ? sends.find(event->flow) : sends.end();
            if (send == sends.end() || send->second->rank == event->rank) { continue; }
            svg.line(x_of(send->second->start_us), middle(*send->second), x_of(event->end_us), middle(*event),
                     "#adb5bd", 0.6);
        }
    }

    void draw_legend(svg_builder& svg) const {
        const bool several_stages =
            std::any_of(rows_.begin(), rows_.end(), [](const auto& one) { return one.second.has_stages(); });
        double x = left;
        for (const event_look& look : event_looks) {
            if (!used_.contains(look.kind)) { continue; }
            const bool two_tones = several_stages && look.early != look.late;
            svg.rectangle(x, 42, 13, 13, look.early, "none", 2);
            if (two_tones) { svg.rectangle(x + 15, 42, 13, 13, look.late, "none", 2); }
            x += two_tones ? 34 : 19;
            svg.text(x, 53, look.meaning, {.size = 12});
            x += 6.6 * static_cast<double>(look.meaning.size()) + 20;
        }
        const std::string_view note =
            several_stages ? "(darker: the rank's later stage; numbers: microbatches)" : "(numbers: microbatches)";
        svg.text(x, 53, note, {.colour = "#57606a"});
        strips_.draw_legend(svg, left, 70);
    }

    std::vector<const timeline_event*> shown_{};
    std::map<int, row> rows_{};
    std::map<char, bool> used_{};
    counter_strips strips_;
    std::string_view title_;
    double begin_{};
    double end_{};
    double right_;
    double bottom_{};
};

} // namespace detail

std::string timeline_svg(std::span<const timeline_event> events, const timeline_plot& plot,
                         std::span<const trace_counter> counters) {
    return detail::timeline_picture{events, counters, plot}.draw();
}

} // namespace pictures
