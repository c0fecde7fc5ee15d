#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/planned.hpp>

namespace pulse {

/// Parses a plan in format `pulse-plan/1`. Throws input_error naming `source` and the first field that is missing,
/// unknown, of a wrong type or inconsistent, and for plans of several extents.
///
/// Optional fields: "skip_routing" ("direct" if absent, or "relayed"); "recomputation" ("none" if absent, "skips",
/// "stages" or "selective"; older plans have "skip_policy" instead, where "resident" means none and "recomputed"
/// skips); "recomputed_stages" (true or false for each stage), only with "selective"; "gradient_release" (false if
/// absent); "spare_sends" (2 if absent); "node_replicas" (1 if absent); "previews" (0 if absent); "further_chains" (one
/// backbone if absent); "frozen_tasks" and "frozen_hosts", both or neither (no encoding).
[[nodiscard]] PULSE_INLINE plan parse_plan(std::string_view text, std::string_view source = "plan");

/// The plan in format `pulse-plan/1`, one stage or pass per line; parse_plan returns an equal plan. Throws input_error
/// for an invalid plan, so that everything written can be read.
[[nodiscard]] PULSE_INLINE std::string print_plan(const plan& planned);

/// Reads and writes the plans of all extents of a run. A file lists what differs between them under "extents", each
/// with "height", "width" and "share"; a file without it holds one plan for any single extent, read with an empty
/// `extent`. Errors are those of one plan; printing also throws if plans differ in more than order and prediction.
[[nodiscard]] PULSE_INLINE std::vector<extent_plan> parse_plans(std::string_view text,
                                                                std::string_view source = "plan");
[[nodiscard]] PULSE_INLINE std::string print_plans(const std::vector<extent_plan>& plans);
[[nodiscard]] PULSE_INLINE std::vector<extent_plan> load_plans(const std::filesystem::path& path);
PULSE_INLINE void save_plans(const std::vector<extent_plan>& plans, const std::filesystem::path& path);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/plan/json.ipp> // IWYU pragma: keep
#endif
