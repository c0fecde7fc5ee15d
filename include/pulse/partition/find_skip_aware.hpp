#pragma once

#include <pulse/core/separate.hpp>
#include <pulse/partition/maybe_partition.hpp>
#include <pulse/partition/skip_aware_options.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// Finds the best folded partition over P devices with W waves; empty if there is none.
///
/// Among the cuts without empty stages, with both ends of every skip on one device and within the memory limits, it has
/// (1) the least greatest device load F+B+W, (2) within the slack of that, the fewest bytes between devices, (3) the
/// least imbalance: the sum over the PW pairs of |load(stage s) - load(stage 2PW-1-s)|, (4) the least greatest load.
/// Loads are times on the stage's device.
///
/// Exact. It examines only regions whose load lets every device stay within the limit: for one wave at most n^2/2 in
/// all, and O(n) if nearly every layer has a skip. With R regions per device, it takes O(R) memory per device and, a
/// few times over, O(R) queries for the best region inside another. A query walks a tree of boxes: about O(log R) boxes
/// if costs discriminate well, at worst all R, so the total is O(P R^2) for adverse costs (O(P n^4) with one wave and
/// no skips) and usually near O(P R log R). Lower bounds on what the devices outside a region add (`outside_bounds`)
/// leave few regions even under a loose limit.
///
/// Throws input_error for a bad table or option, error if there are more than region_limit regions or the search would
/// examine more than work_limit of them.
[[nodiscard]] PULSE_CONSTEXPR maybe_partition find_skip_aware_partition(const cost_table& costs, int devices,
                                                                        int waves = 1,
                                                                        const skip_aware_options& options = {});

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/partition/find_skip_aware.ipp> // IWYU pragma: keep
#endif
