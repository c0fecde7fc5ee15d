#pragma once

#include <cstdio>
#include <string_view>

namespace pulse_bench {

/// Whether this is a Release build; says so on stderr when it is not.
[[nodiscard]] inline bool is_release() {
    const bool release = std::string_view{PULSE_BUILD_TYPE} == "Release";
    if (!release) {
        std::fprintf(stderr, "bench: a %s build measures nothing of interest; use the release preset\n",
                     PULSE_BUILD_TYPE);
    }
    return release;
}

} // namespace pulse_bench
