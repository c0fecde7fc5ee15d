#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/nn/initialise.hpp>
#include <pulse/zoo/ddpm.hpp>

using namespace pulse;

namespace {

using block = ddpm_fmnist::layer_at<4>;
constexpr auto block_parameters = block::parameters();

std::vector<double> drawn(std::span<const parameter> which, std::uint64_t seed) {
    std::int64_t total = 0;
    for (const parameter& p : which) { total += p.elements(); }
    std::vector<double> values(static_cast<std::size_t>(total));
    nn::initialise(which, seed, std::span<double>{values});
    return values;
}

} // namespace

TEST_CASE("initial weights have the bounds and moments of PyTorch's default") {
    const std::vector<double> values = drawn(block_parameters, 1);
    std::size_t begin = 0;
    double fan_in = 0.0;
    for (const parameter& p : block_parameters) {
        const std::span<const double> tensor{values.data() + begin, static_cast<std::size_t>(p.elements())};
        begin += tensor.size();
        CAPTURE(p.name.view());
        if (p.name.view().find("norm") != std::string_view::npos) {
            const double expected = p.name.view().ends_with("weight") ? 1.0 : 0.0;
            CHECK(std::all_of(tensor.begin(), tensor.end(), [&](double v) { return v == expected; }));
            continue;
        }
        if (p.rank > 1) { fan_in = static_cast<double>(p.elements()) / p.dims[0]; }
        const double bound = 1.0 / std::sqrt(fan_in);
        const auto n = static_cast<double>(tensor.size());
        double mean = 0.0;
        double square = 0.0;
        for (const double v : tensor) {
            mean += v / n;
            square += v * v / n;
        }
        CHECK(std::all_of(tensor.begin(), tensor.end(), [&](double v) { return std::abs(v) <= bound; }));
        // Five standard deviations of the mean and of the mean square of n uniform values.
        CHECK(std::abs(mean) <= 5.0 * bound / std::sqrt(3.0 * n));
        CHECK(std::abs(square - bound * bound / 3.0) <= 5.0 * bound * bound * std::sqrt(4.0 / (45.0 * n)));
    }
}

TEST_CASE("a parameter starts the same whatever stands around it, and differently for another seed or name") {
    const std::vector<double> all = drawn(block_parameters, 7);
    CHECK(all == drawn(block_parameters, 7));
    CHECK(all != drawn(block_parameters, 8));
    // only conv1's weight and bias
    const std::vector<double> alone = drawn(std::span<const parameter>{block_parameters}.subspan(2, 2), 7);
    const auto offset = static_cast<std::ptrdiff_t>(block_parameters[0].elements() + block_parameters[1].elements());
    CHECK(std::equal(alone.begin(), alone.end(), all.begin() + offset));
    const auto elsewhere = ddpm_fmnist::layer_at<6>::parameters();
    const std::vector<double> other = drawn(std::span<const parameter>{elsewhere}.subspan(2, 2), 7);
    CHECK(std::mismatch(alone.begin(), alone.end(), other.begin()).first == alone.begin());
}

TEST_CASE("initialise refuses sizes that disagree and parameters that it cannot know") {
    std::vector<float> values(10);
    const auto fill = [&](std::span<const parameter> which, std::size_t size) {
        nn::initialise(which, 1, std::span<float>{values}.first(size));
    };
    const std::array<parameter, 1> weight{parameter{"a.weight", {2, 3}, 2}};
    const std::array<parameter, 1> bias{parameter{"a.bias", {3}, 1}};
    const std::array<parameter, 1> table{parameter{"a.table", {3}, 1}};
    CHECK_NOTHROW(fill(weight, 6));
    CHECK_THROWS_AS(fill(weight, 5), input_error);
    CHECK_THROWS_AS(fill(bias, 3), input_error);
    CHECK_THROWS_AS(fill(table, 3), input_error);
}

TEST_CASE("learned vectors start with a standard deviation of 0.02") {
    const std::array<parameter, 1> positions{parameter{"pos_embed", {1, 40, 50}, 3}};
    const std::vector<double> values = drawn(positions, 5);
    double square = 0.0;
    for (const double v : values) { square += v * v / static_cast<double>(values.size()); }
    CHECK(std::abs(square / (0.02 * 0.02) - 1.0) < 0.1);
    CHECK(std::all_of(values.begin(), values.end(), [](double v) { return std::abs(v) <= 0.02 * std::sqrt(3.0); }));
}
