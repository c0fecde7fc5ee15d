#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/planned.hpp>

namespace pulse {

/// The plan that `text` (format `pulse-plan/1`) describes. Throws input_error, which names `source` and the first field
/// that is missing, unknown, of a wrong type or inconsistent, also for plans of several extents.
///
/// Beyond the fixed format it reads "skip_routing" ("direct" if absent, or "relayed") and "recomputation" ("none" if
/// absent, "skips", "stages" or "selective"; plans of before have "skip_policy" in its place: "resident" is none,
/// "recomputed" skips), of "selective" alone "recomputed_stages" (true or false for each stage), "gradient_release"
/// (false if absent), "spare_sends" (2 if absent), "node_replicas" (1 if absent), and "frozen_tasks" and
/// "frozen_hosts", both or neither (nothing is encoded).
[[nodiscard]] PULSE_INLINE plan parse_plan(std::string_view text, std::string_view source = "plan");

/// The plan as `pulse-plan/1`, one stage and one pass a line; parse_plan gives the same plan back. Throws input_error
/// when the plan is not valid, so that nothing is written that cannot be read.
[[nodiscard]] PULSE_INLINE std::string print_plan(const plan& planned);

/// Plans of all extents of a run. A file has what differs between them under "extents", by extent, with "height",
/// "width" and "share"; one without that is a plan for any one extent, and as such has none here. They throw as those
/// of one plan; printing also where plans differ in more than their order and what is predicted.
[[nodiscard]] PULSE_INLINE std::vector<extent_plan> parse_plans(std::string_view text,
                                                                std::string_view source = "plan");
[[nodiscard]] PULSE_INLINE std::string print_plans(const std::vector<extent_plan>& plans);
[[nodiscard]] PULSE_INLINE std::vector<extent_plan> load_plans(const std::filesystem::path& path);
PULSE_INLINE void save_plans(const std::vector<extent_plan>& plans, const std::filesystem::path& path);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/plan/json.ipp> // IWYU pragma: keep
#endif
