#pragma once

#include <pulse/core/separate.hpp>
#include <pulse/partition/maybe_partition.hpp>
#include <pulse/partition/skip_aware_options.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// The best folded partition over P devices with W waves, or nothing when there is none.
///
/// Among the cuts that leave no stage empty, keep both ends of every skip on one device and respect the memory limits,
/// it has (1) the least greatest device load F+B+W, (2) within the slack of that the fewest bytes between devices, (3)
/// the least imbalance: the sum over the PW pairs of |load(stage s) - load(stage 2PW-1-s)|, (4) the least greatest
/// load. Loads are times on their device.
///
/// Exact. Only regions whose load lets every device keep the limit are looked at: for one wave at most n^2/2 in all,
/// and O(n) when there is a skip at nearly every layer. With R regions to a device, the search takes O(R) memory for
/// each device and O(R) queries for the best region inside another, a few times over. A query is a walk through a tree
/// of boxes: about O(log R) boxes where costs say much, up to all R at worst, so that the whole is O(P R^2), with one
/// wave and no skips O(P n^4), for adverse costs, and usually near O(P R log R). What the devices outside a region add
/// at least (`outside_bounds`) leaves few regions of a loose limit.
///
/// Throws input_error for a bad table or option, error when there are more than region_limit regions or the search
/// would look at more than work_limit of them.
[[nodiscard]] PULSE_CONSTEXPR maybe_partition find_skip_aware_partition(const cost_table& costs, int devices,
                                                                        int waves = 1,
                                                                        const skip_aware_options& options = {});

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/partition/find_skip_aware.ipp> // IWYU pragma: keep
#endif
