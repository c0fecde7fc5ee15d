#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include <pulse/partition/partition.hpp>

namespace pulse {

/// Who orders the passes.
enum class schedule_method : std::uint8_t {
    list,        ///< this library's list scheduler
    gpipe,       ///< all forwards, then all backwards; any placement
    one_f_one_b, ///< 1F1B; one stage on each device
    interleaved, ///< interleaved 1F1B; interleaved placement
    zb_h1,       ///< zero bubble in 1F1B's memory; one stage on each device, split
    zb_v,        ///< zero bubble on a V; folded, one wave, split
    dualpipe_v,  ///< DualPipeV's order; folded, one wave, split
    hanayo,      ///< greedy waves; folded
    ilp,         ///< a search that ends with the integer program's proof (plan_for); any placement
};

/// Those that others have published, each with what its authors ask of a placement.
inline constexpr std::array baseline_methods{
    schedule_method::gpipe, schedule_method::one_f_one_b, schedule_method::interleaved, schedule_method::zb_h1,
    schedule_method::zb_v,  schedule_method::dualpipe_v,  schedule_method::hanayo};

/// As command lines and tables spell it.
[[nodiscard]] constexpr std::string_view name_of(schedule_method method) noexcept {
    switch (method) {
    case schedule_method::list: return "list";
    case schedule_method::gpipe: return "gpipe";
    case schedule_method::one_f_one_b: return "1f1b";
    case schedule_method::interleaved: return "interleaved";
    case schedule_method::zb_h1: return "zb-h1";
    case schedule_method::zb_v: return "zb-v";
    case schedule_method::dualpipe_v: return "dualpipe-v";
    case schedule_method::hanayo: return "hanayo";
    case schedule_method::ilp: return "ilp";
    }
    return "?";
}

/// Whether the method looks for another order where memory is short; the others have one, which fits or does not.
[[nodiscard]] constexpr bool adapts_to_memory(schedule_method method) noexcept {
    return method == schedule_method::list || method == schedule_method::zb_h1 || method == schedule_method::zb_v ||
           method == schedule_method::hanayo;
}

/// Why `method` orders no pipeline of this form, in one clause ("needs ..."); empty when it does.
///
/// `waves` are chunks on a device where the placement is interleaved.
[[nodiscard]] constexpr std::string_view unmet_need(schedule_method method, placement kind, int waves,
                                                    bool split_backward) noexcept {
    const bool one_each = kind == placement::sequential || (kind == placement::interleaved && waves == 1);
    switch (method) {
    case schedule_method::list:
    case schedule_method::ilp:
    case schedule_method::gpipe: return {};
    case schedule_method::one_f_one_b:
        if (!one_each) { return "needs one stage on each device: the sequential placement"; }
        return {};
    case schedule_method::interleaved:
        if (kind != placement::interleaved) { return "needs the interleaved placement"; }
        return {};
    case schedule_method::zb_h1:
        if (!one_each) { return "needs one stage on each device: the sequential placement"; }
        if (!split_backward) { return "needs a split backward"; }
        return {};
    case schedule_method::zb_v:
    case schedule_method::dualpipe_v:
        if (kind != placement::folded) { return "needs the folded placement"; }
        if (waves != 1) { return "needs one wave, exactly two stages on each device"; }
        if (!split_backward) { return "needs a split backward"; }
        return {};
    case schedule_method::hanayo:
        if (kind != placement::folded) { return "needs the folded placement"; }
        return {};
    }
    return {};
}

} // namespace pulse
