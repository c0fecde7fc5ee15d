#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <partition/exhaustive.hpp>
#include <partition/random_table.hpp>
#include <pulse/partition/cascade.hpp>
#include <pulse/partition/traffic.hpp>

using namespace pulse;
using namespace pulse::test;

namespace {

/// Loads, memory and forward bytes of one backbone's cut, or that it is invalid, from the definition.
struct side_cut {
    bool allowed{true};
    std::vector<double> load{};
    std::vector<std::int64_t> memory{};
    std::int64_t bytes{};
};

side_cut judge_side(const cost_table& costs, const std::vector<int>& last, int devices, bool reversed,
                    const memory_model& memory) {
    side_cut out;
    out.load.resize(static_cast<std::size_t>(devices));
    out.memory.resize(static_cast<std::size_t>(devices));
    std::vector<int> home;
    for (std::size_t s = 0, l = 0; s != last.size(); ++s) {
        const int d = static_cast<int>(s) < devices ? static_cast<int>(s) : 2 * devices - 1 - static_cast<int>(s);
        for (; static_cast<int>(l) <= last[s]; ++l) {
            home.push_back(reversed ? devices - 1 - d : d);
            const layer_cost& layer = costs.layers[l];
            out.load[static_cast<std::size_t>(home.back())] +=
                layer.forward_us + layer.backward_input_us + layer.backward_weight_us;
            out.memory[static_cast<std::size_t>(home.back())] += memory.bytes_of(layer);
        }
    }
    for (const skip_cost& e : costs.skips) {
        if (home[static_cast<std::size_t>(e.from)] != home[static_cast<std::size_t>(e.to)]) { out.allowed = false; }
    }
    for (std::size_t l = 0; l + 1 != home.size(); ++l) {
        if (home[l] != home[l + 1]) { out.bytes += costs.layers[l].sent_bytes() + costs.conditioning_bytes; }
    }
    return out;
}

std::vector<side_cut> all_cuts(const cost_table& costs, int devices, bool reversed, const memory_model& memory) {
    std::vector<side_cut> all;
    const auto layers = static_cast<int>(costs.layers.size());
    if (layers < 2 * devices) { return all; }
    std::vector<int> last(static_cast<std::size_t>(2 * devices));
    for (std::size_t s = 0; s != last.size(); ++s) { last[s] = static_cast<int>(s); }
    last.back() = layers - 1;
    do {
        side_cut one = judge_side(costs, last, devices, reversed, memory);
        if (one.allowed) { all.push_back(std::move(one)); }
    } while (exhaustive::next_cuts(last, layers));
    return all;
}

} // namespace

TEST_CASE("the joint cut of two backbones equals exhaustive search over both") {
    std::mt19937 random{5};
    const auto draw = [&random](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    int found = 0;
    int none = 0;
    int better_than_alone = 0;
    for (int n = 0; n != 800; ++n) {
        CAPTURE(n);
        const int devices = draw(1, 3);
        const cost_table a = random_table(random, draw(2, 9), static_cast<skip_pattern>(draw(0, 5)));
        const cost_table b = random_table(random, draw(2, 8), static_cast<skip_pattern>(draw(0, 5)));
        memory_model memory;
        if (draw(0, 2) == 0) { memory.limit_bytes = draw(200, 1200); }
        bool any = false;
        double least = 0.0;
        std::int64_t fewest = 0;
        for (const side_cut& one : all_cuts(a, devices, false, memory)) {
            for (const side_cut& other : all_cuts(b, devices, true, memory)) {
                double most = 0.0;
                bool fits = true;
                for (std::size_t d = 0; d != one.load.size(); ++d) {
                    most = std::max(most, one.load[d] + other.load[d]);
                    fits = fits && (memory.limit_bytes == 0 || one.memory[d] + other.memory[d] <= memory.limit_bytes);
                }
                if (!fits) { continue; }
                const std::int64_t bytes = one.bytes + other.bytes;
                if (!any || most < least || (most == least && bytes < fewest)) {
                    least = most;
                    fewest = bytes;
                }
                any = true;
            }
        }
        const cascade_cut cut = find_cascade_cut(a, b, devices, memory);
        REQUIRE(cut.found() == any);
        (any ? found : none) += 1;
        if (!any) { continue; }
        REQUIRE(cut.greatest_load_us == least);
        REQUIRE(cut.bytes == fewest);
        // The cut's figures match its stages.
        std::vector<int> last_a;
        std::vector<int> last_b;
        for (const stage& s : cut.first.stages) { last_a.push_back(s.last_layer); }
        for (const stage& s : cut.second.stages) { last_b.push_back(s.last_layer); }
        const side_cut one = judge_side(a, last_a, devices, false, memory);
        const side_cut other = judge_side(b, last_b, devices, true, memory);
        REQUIRE((one.allowed && other.allowed && one.bytes + other.bytes == fewest));
        double most = 0.0;
        for (std::size_t d = 0; d != one.load.size(); ++d) { most = std::max(most, one.load[d] + other.load[d]); }
        REQUIRE(most == least);
        for (const stage& s : cut.second.stages) {
            REQUIRE(s.device == devices - 1 - device_of(placement::folded, s.index, devices));
        }
        const maybe_partition alone_a = exhaustive_partition(a, devices);
        const maybe_partition alone_b = exhaustive_partition(b, devices);
        if (memory.limit_bytes != 0 || !alone_a || !alone_b) { continue; }
        std::vector<double> load(static_cast<std::size_t>(devices));
        for (const stage& s : alone_a->stages) {
            for (int l = s.first_layer; l <= s.last_layer; ++l) {
                load[static_cast<std::size_t>(s.device)] += a.layers[static_cast<std::size_t>(l)].load_us();
            }
        }
        for (const stage& s : alone_b->stages) {
            for (int l = s.first_layer; l <= s.last_layer; ++l) {
                load[static_cast<std::size_t>(devices - 1 - s.device)] +=
                    b.layers[static_cast<std::size_t>(l)].load_us();
            }
        }
        better_than_alone += *std::max_element(load.begin(), load.end()) > least ? 1 : 0;
    }
    CHECK(found > 150);
    CHECK(none > 50);
    CHECK(better_than_alone > 30);
}

TEST_CASE("a cascade that cannot be cut says so") {
    std::mt19937 random{6};
    const cost_table a = random_table(random, 6, skip_pattern::nested);
    CHECK(!find_cascade_cut(a, random_table(random, 3, skip_pattern::none), 2).found());
    CHECK_THROWS_AS(static_cast<void>(find_cascade_cut(a, a, 0)), input_error);
}
