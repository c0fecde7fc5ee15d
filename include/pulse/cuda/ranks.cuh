#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/cuda/thread_transport.cuh>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/runtime/any_transport.hpp>

namespace pulse::ranks {

/// Runs ranks as threads of this process, each with streams on a device. If there are more ranks than devices,
/// consecutive ranks share one.
class threads_on {
public:
    /// Throws input_error if `devices` is empty.
    explicit threads_on(std::vector<int> devices) : devices_{std::move(devices)} {
        if (devices_.empty()) { throw input_error{"pulse: ranks::threads_on: devices must not be empty"}; }
    }

    template <class Body>
    void run(const rank_grid& grid, const Body& body) const {
        const int count = grid.size();
        const auto devices = static_cast<int>(devices_.size());
        std::vector<int> of_ranks;
        for (int r = 0; r != count; ++r) {
            of_ranks.push_back(devices_[static_cast<std::size_t>(count < devices ? r : r * devices / count)]);
        }
        cuda::run_ranks(std::move(of_ranks), {}, [&](cuda::thread_transport& among) { body(any_transport{among}); });
    }

private:
    std::vector<int> devices_;
};

} // namespace pulse::ranks
