#pragma once

#include <cstddef>
#include <cstdint>
#include <random>

#include <pulse/schedule/frozen_work.hpp>

#include "instances.hpp"

namespace fill_tests {

using namespace pulse;
using pulse::test::up_to;

inline frozen_component random_component(std::mt19937& random, int most_layers, int most_chunk) {
    frozen_component out{"f", frozen_use::input, 0, 0, up_to(random, 1, most_chunk), {}};
    out.name = out.name + static_cast<unsigned>(up_to(random, 0, 1'000'000'000));
    const bool whole = up_to(random, 0, 1) == 0;
    for (int l = up_to(random, 1, most_layers); l != 0; --l) {
        const auto time = [&](int most) {
            return whole ? up_to(random, 0, most) : std::uniform_real_distribution<double>{0, 1.0 * most}(random);
        };
        const std::int64_t in = out.layers.empty() ? 0 : out.layers.back().output_bytes;
        const std::int64_t made = up_to(random, 0, 4);
        out.layers.push_back(
            {"layer", up_to(random, 0, 1) == 0 ? 0.0 : time(2), time(4), 0, made, in + made + up_to(random, 0, 3)});
    }
    return out;
}

inline frozen_work random_work(std::mt19937& random, int devices, int most_components, int most_samples) {
    frozen_work out{};
    for (int c = up_to(random, 1, most_components); c != 0; --c) {
        out.components.push_back(random_component(random, 5, 3));
    }
    out.samples = up_to(random, 0, most_samples);
    if (up_to(random, 0, 1) == 0) { out.link = {0.3, 0.01}; }
    if (up_to(random, 0, 2) == 0) { return out; }
    out.hosts.resize(static_cast<std::size_t>(devices));
    for (int c = 0; c != static_cast<int>(out.components.size()); ++c) {
        const int sure = up_to(random, 0, devices - 1);
        for (int d = 0; d != devices; ++d) {
            if (d == sure || up_to(random, 0, 2) == 0) { out.hosts[static_cast<std::size_t>(d)].push_back(c); }
        }
    }
    return out;
}

} // namespace fill_tests
