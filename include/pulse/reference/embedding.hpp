#pragma once

#include <cstdint>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/runtime/backend.hpp>

namespace pulse::reference {

/// The table entry that an index selects. Throws input_error unless the index is a whole number in the table's range.
template <class T>
[[nodiscard]] std::int64_t embedding_row(const embedding_shape& shape, T index) {
    if (index >= T{0} && index < static_cast<T>(shape.entries)) {
        const auto entry = static_cast<std::int64_t>(index);
        if (static_cast<T>(entry) == index) { return entry; }
    }
    throw input_error{"pulse: embedding: index must be a whole number from 0 to " + std::to_string(shape.entries - 1) +
                      ", not " + std::to_string(index)};
}

} // namespace pulse::reference
