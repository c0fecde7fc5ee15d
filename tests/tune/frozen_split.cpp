#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <pulse/tune/candidate_plan.hpp>
#include <pulse/tune/frozen_hosts.hpp>
#include <pulse/tune/frozen_step.hpp>

#include "beside_encoders.hpp"

namespace tune_frozen_tests {

namespace {

/// The greatest load of a device that has its layers of the last component for 8 samples.
double greatest_load_us(const cost_table& costs, const prepared_candidate& ready, const std::vector<int>& owners) {
    std::vector<double> load = busy_us(ready.step.problem);
    for (int l = 0; l != static_cast<int>(owners.size()); ++l) {
        load[static_cast<std::size_t>(owners[static_cast<std::size_t>(l)])] +=
            least_work_us(costs.frozen.back(), l, l, 8);
    }
    return *std::max_element(load.begin(), load.end());
}

/// The least such load over all fitting ways to assign the four layers to four devices in order; infinite if none fits.
template <class Fits>
double least_split_us(const cost_table& costs, const prepared_candidate& ready, const Fits& fits) {
    double least_us = std::numeric_limits<double>::infinity();
    for (int code = 0; code != 256; ++code) {
        const std::vector<int> owners{code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6 & 3};
        if (std::is_sorted(owners.begin(), owners.end()) && fits(owners)) {
            least_us = std::min(least_us, greatest_load_us(costs, ready, owners));
        }
    }
    return least_us;
}

} // namespace

TEST_CASE("layers that are split lie side by side within the room of each device, the greatest load is the least") {
    const cost_table costs = beside_encoders(1, 0.4, 1'000'000);
    tune_candidate c{.pipeline_degree = 4, .microbatches = 8};
    limited_candidate limited{costs, c, 3'000'000};
    prepared_candidate& ready = limited.ready;
    constexpr int rooms[]{1, 3, 0, 2}; // in layers of the text encoder
    for (std::size_t d = 0; d != 4; ++d) { ready.fixed_bytes[d] = limited.limit - 100'000 - rooms[d] * 250'000; }
    const detail::host_search search{costs, c, ready};
    const double least_us = least_split_us(costs, ready, [&](const std::vector<int>& owners) {
        for (int d = 0; d != 4; ++d) {
            if (std::count(owners.begin(), owners.end(), d) > rooms[d]) { return false; }
        }
        return true;
    });
    const auto found = search.with({detail::host_way::spread, detail::host_way::split});
    REQUIRE(found.has_value());
    const std::vector<int>& owners = found->work.split[1];
    CHECK(std::is_sorted(owners.begin(), owners.end()));
    CHECK(greatest_load_us(costs, ready, owners) == doctest::Approx(least_us));
    for (int d = 0; d != 4; ++d) {
        const auto layers = std::count(owners.begin(), owners.end(), d);
        CHECK(layers <= rooms[d]);
        CHECK(found->work.may_host(1, d) == (layers != 0));
    }
    const auto ways = search.ways();
    CHECK(std::find(ways.begin(), ways.end(), std::vector{detail::host_way::spread, detail::host_way::split}) !=
          ways.end());
    CHECK(ways.size() == 9);
}

TEST_CASE("a split leaves room for what waits between its parts, however much less or more waits before fewer layers") {
    cost_table costs = beside_encoders(1, 0.4);
    costs.frozen.erase(costs.frozen.begin());
    costs.frozen.front().result_bytes = 0; // so that no device keeps results
    tune_candidate c{.pipeline_degree = 4, .microbatches = 8};
    limited_candidate limited{costs, c, 1'000};
    prepared_candidate& ready = limited.ready;
    std::mt19937 random{11};
    const auto up_to = [&](int most) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(most + 1)); };
    int split = 0;
    for (int round = 0; round != 400; ++round) {
        CAPTURE(round);
        std::vector<frozen_layer>& layers = costs.frozen.front().layers;
        std::int64_t input = 0;
        for (frozen_layer& l : layers) {
            l.parameter_bytes = up_to(60);
            l.output_bytes = up_to(100);
            l.live_bytes = input + l.output_bytes + up_to(20);
            l.sample_us = static_cast<double>(1 + up_to(1000)) * 1e-3 * ready.step.problem.stages.front().forward_us;
            input = l.output_bytes;
        }
        std::vector<std::int64_t> room(4);
        for (std::size_t d = 0; d != 4; ++d) {
            room[d] = up_to(400);
            ready.fixed_bytes[d] = limited.limit - room[d];
        }
        const auto taken_by = [&](const std::vector<int>& owners, int d) {
            std::int64_t parameters = 0;
            std::int64_t live = 0;
            std::int64_t waiting = 0;
            for (std::size_t l = 0; l != 4; ++l) {
                const bool here = owners[l] == d;
                if (here) { parameters += layers[l].parameter_bytes, live = std::max(live, layers[l].live_bytes); }
                if (l != 3 && owners[l] != owners[l + 1] && (here || owners[l + 1] == d)) {
                    waiting += layers[l].output_bytes;
                }
            }
            return parameters + live + waiting;
        };
        const auto fits = [&](const std::vector<int>& owners) {
            for (int d = 0; d != 4; ++d) {
                if (taken_by(owners, d) > room[static_cast<std::size_t>(d)]) { return false; }
            }
            return true;
        };
        const double least_us = least_split_us(costs, ready, fits);
        const auto found = detail::host_search{costs, c, ready}.with({detail::host_way::split});
        REQUIRE(found.has_value() == (least_us < std::numeric_limits<double>::infinity()));
        if (!found) { continue; }
        const std::vector<int>& owners = found->work.split.front();
        CHECK(greatest_load_us(costs, ready, owners) == doctest::Approx(least_us));
        for (int d = 0; d != 4; ++d) {
            const auto at = static_cast<std::size_t>(d);
            CHECK(found->kept_bytes[at] + found->live_bytes[at] == taken_by(owners, d));
        }
        split += owners.front() != owners.back() ? 1 : 0;
    }
    CHECK(split > 100);
}

TEST_CASE("components that have room one by one, but not together, are split") {
    cost_table costs = beside_encoders(1, 0.4, 1'000'000);
    costs.frozen.front() = costs.frozen.back();
    costs.frozen.front().name = "short texts";
    costs.frozen.push_back(costs.frozen.back());
    costs.frozen.back().name = "long texts";
    tune_candidate c{.pipeline_degree = 2, .microbatches = 4};
    limited_candidate limited{costs, c, 3'000'000};
    prepared_candidate& ready = limited.ready;
    for (const std::int64_t room : {1'600'000, 1'400'000}) {
        for (std::int64_t& fixed : ready.fixed_bytes) { fixed = limited.limit - room; }
        const auto found = frozen_placements(costs, c, ready, frozen_mode::bubbles);
        CHECK(found.empty() == (room < 1'500'000));
        for (const frozen_placement& where : found) {
            CHECK_FALSE(where.work.split.empty());
            for (std::size_t d = 0; d != 2; ++d) { CHECK(where.kept_bytes[d] + where.live_bytes[d] <= room); }
        }
    }
}

} // namespace tune_frozen_tests
