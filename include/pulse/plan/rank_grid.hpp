#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

namespace pulse {

/// Which of the two degrees has consecutive ranks.
enum class rank_layout : std::uint8_t {
    pipeline_inside, ///< rank r P + p: the devices of a pipeline are neighbours, inside one node if they fit
    replicas_inside, ///< rank p D + r: the replicas of a stage are neighbours; pipelines cross nodes first
};

[[nodiscard]] constexpr std::string_view name_of(rank_layout layout) noexcept {
    return layout == rank_layout::pipeline_inside ? "pipeline inside nodes" : "replicas inside nodes";
}

/// P pipeline devices times D replicas: the world of N = P D ranks, by position in the grid.
struct rank_grid {
    rank_layout layout{rank_layout::pipeline_inside};
    int pipeline{1};
    int data{1};

    [[nodiscard]] constexpr int size() const noexcept { return pipeline * data; }
    /// The rank of the world, or device of a cluster, that is pipeline device `p` of replica `r`.
    [[nodiscard]] constexpr int rank_of(int p, int r) const noexcept {
        return layout == rank_layout::pipeline_inside ? r * pipeline + p : p * data + r;
    }
    /// The pipeline device of a rank of the world, and its replica.
    [[nodiscard]] constexpr int device_of(int rank) const noexcept {
        return layout == rank_layout::pipeline_inside ? rank % pipeline : rank / data;
    }
    [[nodiscard]] constexpr int replica_of(int rank) const noexcept {
        return layout == rank_layout::pipeline_inside ? rank / pipeline : rank % data;
    }
    /// Per pipeline device, the minimum of of(rank) over the ranks of its replicas.
    template <class Of>
    [[nodiscard]] constexpr auto least_of_replicas(const Of& of) const {
        std::vector<decltype(of(0))> least{};
        for (int p = 0; p != pipeline; ++p) {
            least.push_back(of(rank_of(p, 0)));
            for (int r = 1; r != data; ++r) { least.back() = std::min(least.back(), of(rank_of(p, r))); }
        }
        return least;
    }
    [[nodiscard]] constexpr bool operator==(const rank_grid&) const = default;
};

} // namespace pulse
