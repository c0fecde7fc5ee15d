#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/hardware/device.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/nn/value_graph.hpp>
#include <pulse/profile/frozen_component.hpp>

namespace pulse_plan {

// The zoo as this program needs it, compiled in one place because all the backbones take long to compile.

[[nodiscard]] std::vector<std::string> backbone_names();

/// A parsed NAME[@HEIGHTxWIDTH[:SHARE],...] or DIR[...]; no extent: the backbone's own.
struct backbone_name {
    std::string option{}; ///< that gave it
    std::string name{};
    std::vector<pulse::extent_share> extents{};

    [[nodiscard]] pulse::extent extent() const { return extents.empty() ? pulse::extent{} : extents.front().extent; }
};
/// Whatever follows the last @ belongs to the name unless it is a list of extents.
[[nodiscard]] backbone_name split_name(const std::string& option, std::string_view text);
/// Throws input_error naming the option unless the name is one of backbone_names().
[[nodiscard]] backbone_name read_backbone_name(const std::string& option, std::string_view text);

/// Whether the zoo has a backbone of that name whose learned positions are for another extent.
[[nodiscard]] bool resamples_positions(std::string_view name, const pulse::extent& at);

/// A backbone's graph, owned or not.
class backbone {
public:
    /// Throws input_error naming the nearest valid sizes if the backbone does not support an extent.
    backbone(const backbone_name& what, const pulse::extent& to);
    explicit backbone(pulse::value_graph made) : made_{std::move(made)} {}

    [[nodiscard]] pulse::graph_view graph() const noexcept { return made_ ? made_->view() : known_; }

private:
    pulse::graph_view known_{};
    std::optional<pulse::value_graph> made_{};
};

/// The frozen networks of that backbone; none if it reads pictures. With several extents, the mean times by share and
/// the largest bytes, because tasks encode for a next step of any extent.
[[nodiscard]] std::vector<pulse::frozen_component> frozen_costs_of(const backbone_name& what, const pulse::device& on,
                                                                   int scalar_bytes);

} // namespace pulse_plan
