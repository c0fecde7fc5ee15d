#pragma once

#include <cstdint>

namespace pulse {

/// Strong indices: a stage is never mistaken for a microbatch. `index_of(id)` gives the number.
enum class stage_id : std::int32_t {};
enum class microbatch_id : std::int32_t {};
enum class device_id : std::int32_t {};
/// Position of a skip edge in the model's list of skips.
enum class edge_id : std::int32_t {};

template <class Id>
    requires __is_enum(Id) [[nodiscard]] constexpr int index_of(Id id) noexcept { return static_cast<int>(id); }

} // namespace pulse
