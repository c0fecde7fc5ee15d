#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <pulse/partition/partition.hpp>

namespace pulse {

/// The method that orders the passes.
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

/// What a method requires of a pipeline.
struct method_rule {
    schedule_method method{};
    std::string_view name{};         ///< as command lines and tables spell it
    std::optional<placement> kind{}; ///< the placement that it needs; none: any
    bool one_wave{};                 ///< needs one stage on each device, or two when folded
    bool split{};                    ///< needs a split backward
    /// Tries other orders when memory is short; a method without this has one order, which fits or does not.
    bool adapts_to_memory{};
};

/// One row for each method.
inline constexpr std::array method_rules{
    method_rule{schedule_method::list, "list", {}, false, false, true},
    method_rule{schedule_method::gpipe, "gpipe", {}, false, false, false},
    method_rule{schedule_method::one_f_one_b, "1f1b", placement::sequential, true, false, false},
    method_rule{schedule_method::interleaved, "interleaved", placement::interleaved, false, false, false},
    method_rule{schedule_method::zb_h1, "zb-h1", placement::sequential, true, true, true},
    method_rule{schedule_method::zb_v, "zb-v", placement::folded, true, true, true},
    method_rule{schedule_method::dualpipe_v, "dualpipe-v", placement::folded, true, true, false},
    method_rule{schedule_method::hanayo, "hanayo", placement::folded, false, false, true},
    method_rule{schedule_method::ilp, "ilp", {}, false, false, false}};
static_assert(
    [] {
        for (std::size_t i = 0; i != method_rules.size(); ++i) {
            if (method_rules[i].method != schedule_method{static_cast<std::uint8_t>(i)}) { return false; }
        }
        return method_rules.back().method == schedule_method::ilp;
    }(),
    "rule_of finds a method's row by its number");

/// The published methods, which baseline_schedule builds.
inline constexpr std::array baseline_methods{
    schedule_method::gpipe, schedule_method::one_f_one_b, schedule_method::interleaved, schedule_method::zb_h1,
    schedule_method::zb_v,  schedule_method::dualpipe_v,  schedule_method::hanayo};

[[nodiscard]] constexpr const method_rule& rule_of(schedule_method method) noexcept {
    return method_rules[static_cast<std::size_t>(method)];
}

[[nodiscard]] constexpr std::string_view name_of(schedule_method method) noexcept { return rule_of(method).name; }

/// Why `method` is not defined for this form of pipeline, in one clause ("needs ..."); empty when it is defined.
///
/// `waves` is the number of chunks on a device when the placement is interleaved.
[[nodiscard]] constexpr std::string_view unmet_need(schedule_method method, placement kind, int waves,
                                                    bool split_backward) noexcept {
    const method_rule& rule = rule_of(method);
    if (rule.kind == placement::sequential) {
        const bool one_each = kind == placement::sequential || (kind == placement::interleaved && waves == 1);
        if (!one_each) { return "needs one stage on each device: the sequential placement"; }
    } else if (rule.kind && rule.kind != kind) {
        return rule.kind == placement::folded ? "needs the folded placement" : "needs the interleaved placement";
    } else if (rule.one_wave && waves != 1) {
        return "needs one wave, exactly two stages on each device";
    }
    return rule.split && !split_backward ? "needs a split backward (split_backward)" : "";
}

} // namespace pulse
