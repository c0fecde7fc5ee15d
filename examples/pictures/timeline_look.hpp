#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "svg.hpp"
#include "timeline_event.hpp"

namespace pictures {

namespace detail {

struct event_look {
    char kind;
    std::string_view meaning;
    std::string_view early; ///< colour of the first stage; later stages of a rank are drawn darker
    std::string_view late;
    std::string_view ink;
};

inline constexpr std::array<event_look, 11> event_looks{{
    {'F', "forward", "#8ec5ff", "#3b8eea", "#0b2545"},
    {'B', "backward", "#ffc078", "#f08c00", "#3d1f00"},
    {'W', "weight gradient", "#8ce99a", "#37b24d", "#0b3d16"},
    {'P', "preview", "#fcc2d7", "#f783ac", "#4a0520"},
    {'R', "recompute", "#d0bfff", "#9775fa", "#2b1a5c"},
    {'E', "encode", "#99e9f2", "#22b8cf", "#083344"},
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

/// The event's tooltip.
[[nodiscard]] inline std::string tooltip_of(const timeline_event& event) {
    std::string text = event.name.empty() ? std::string{look_of(event.kind).meaning} : event.name;
    if (event.stage >= 0) { text += ", stage " + std::to_string(event.stage); }
    if (event.microbatch >= 0) { text += ", microbatch " + std::to_string(event.microbatch); }
    text += ", " + svg_number(event.start_us, 1) + " to " + svg_number(event.end_us, 1) + " us";
    if (event.bytes > 0) { text += ", " + std::to_string(event.bytes) + " bytes"; }
    return text;
}

} // namespace detail

} // namespace pictures
