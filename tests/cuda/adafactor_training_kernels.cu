#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include <pulse/cuda/kernels/adafactor.cuh>
#include <pulse/cuda/kernels/adamw_blocks.cuh>
#include <pulse/model/parameter.hpp>
#include <pulse/plan/optimizer_form.hpp>
#include <pulse/train/adafactor.hpp>
#include <pulse/train/dynamic_code.hpp>
#include <pulse/train/host_updates.hpp>

#include <device_array.hpp>
#include <random_values.hpp>

namespace cuda = pulse::cuda;
namespace train = pulse::train;
using pulse::test::device_array;
using pulse::test::device_queue;
using pulse::test::random_values;
using pulse::test::rounded;

namespace {

/// Adafactor steps of a tensor equal the host's up to the order of sums; weights are stored as for AdamW.
template <class T>
void check_adafactor(pulse::weight_form kept, bool averages, std::size_t rows, std::size_t n) {
    const bool narrow = !std::is_same_v<T, float>;
    const bool master = kept == pulse::weight_form::float32;
    const std::size_t means = pulse::factored_elements(n, rows);
    const std::uint64_t number = (std::uint64_t{3} << 40U) + 77;
    const device_queue queue;
    const device_array<T> values(random_values(n, 1));
    const std::vector<double> begin = master ? rounded<float>(random_values(n, 1)) : values.download();
    std::vector<float> weights(begin.begin(), begin.end());
    const device_array<float> masters(begin);
    const device_array<T> left_over(std::vector<double>(n, 0.0));
    const device_array<float> average(begin);
    std::vector<float> expected_average = weights;
    const device_array<float> second(std::vector<double>(means, 0.0));
    std::vector<float> expected(means);
    const device_array<double> parts(cuda::update_parts);
    device_array<float> gradients(n);
    train::update_arrays<T> arrays{
        .size = n, .gradients = gradients.data(), .second_moment = second.data(), .number = number, .rows = rows};
    if (averages) { arrays.average = average.data(); }
    if (master) { arrays.weights = masters.data(); }
    if (narrow) { arrays.compute = values.data(); }
    if (kept == pulse::weight_form::kahan) { arrays.left_over = left_over.data(); }
    pulse::optimizer_update now{.constants = {.learning_rate = 1e-2, .weight_decay = 0.1},
                                .gradient_scale = 0.5,
                                .average_decay = 0.9,
                                .seed = 42};
    for (now.step = 1; now.step != 4; ++now.step) {
        std::vector<double> drawn = random_values(n, 100 + static_cast<std::uint32_t>(now.step), -12, 0);
        for (std::size_t i = 0; i != n; ++i) {
            drawn[i] = i % 7 == 0 ? 0 : (i % 2 == 0 ? 1 : -1) * std::exp2(drawn[i]);
        }
        const std::vector<double> gradient = rounded<float>(drawn);
        const std::vector<float> plain(gradient.begin(), gradient.end());
        gradients.upload(gradient);
        cuda::adafactor<T>(queue.on(), now, arrays, parts.data());
        queue.synchronize();
        std::vector<float> stepped = weights;
        train::adafactor_step(train::adafactor_factors_of(now), stepped, plain, expected, rows);
        REQUIRE(gradients.raw() == plain);
        const std::vector<float> found = second.raw();
        for (std::size_t i = 0; i != means; ++i) {
            REQUIRE(std::abs(found[i] - expected[i]) <= 0x1p-20F * expected[i]);
        }
        expected = found;
        const std::vector<double> copies = values.download();
        const std::vector<double> rests = left_over.download();
        const std::vector<float> there = masters.raw();
        const std::vector<float> averaged = average.raw();
        for (std::size_t i = 0; i != n; ++i) {
            const double error = 0x1p-22 * std::abs(static_cast<double>(stepped[i])) +
                                 0x1p-18 * 1e-2 * std::sqrt(static_cast<double>(n));
            const auto near = [&](double value, double more = 0) {
                return std::abs(value - static_cast<double>(stepped[i])) <= error + more;
            };
            if (master) {
                REQUIRE(near(static_cast<double>(there[i])));
                if (narrow) {
                    REQUIRE(copies[i] == static_cast<double>(cuda::to_float(cuda::from_float<T>(there[i]))));
                }
                weights[i] = there[i];
            } else if (kept == pulse::weight_form::kahan) {
                weights[i] = static_cast<float>(copies[i] + rests[i]);
                REQUIRE(near(copies[i] + rests[i], 0x1p-15 * std::abs(copies[i])));
            } else {
                const std::uint64_t at = number + i;
                const std::uint64_t stream = static_cast<std::uint64_t>(train::random_stream::rounding) |
                                             static_cast<std::uint64_t>(now.step) << 16U;
                const std::uint32_t word = train::random_source{now.seed, stream}.block(at / 8)[at % 8 / 2];
                const std::uint32_t bits = at % 2 == 0 ? word & 0xFFFFU : word >> 16U;
                const auto chosen = [&](double weight) {
                    const auto exact = std::bit_cast<std::uint32_t>(static_cast<float>(weight));
                    return static_cast<double>(std::bit_cast<float>((exact + bits) & 0xFFFF0000U));
                };
                const auto exact = static_cast<double>(stepped[i]);
                REQUIRE(copies[i] >= chosen(exact - error));
                REQUIRE(copies[i] <= chosen(exact + error));
                weights[i] = static_cast<float>(copies[i]);
            }
            if (averages) {
                const double step = 0.1 * static_cast<double>(stepped[i] - expected_average[i]);
                REQUIRE(std::abs(static_cast<double>(averaged[i] - expected_average[i]) - step) <= 2 * error);
            }
        }
        expected_average = averaged;
    }
    CHECK((second.intact() && parts.intact() && values.intact() && left_over.intact() && average.intact() &&
           masters.intact() && gradients.intact()));
}

} // namespace

TEST_CASE("Adafactor steps of vectors and matrices equal the host's, however weights are stored") {
    struct shape {
        std::size_t rows, size;
    };
    for (const shape& s : {shape{0, 1}, shape{0, 3000}, shape{1, 9}, shape{9, 9}, shape{3, 3 * 700},
                           shape{300, 300 * 9}, shape{40, 40 * 33}}) {
        CAPTURE(s.rows);
        CAPTURE(s.size);
        for (const auto kept :
             {pulse::weight_form::float32, pulse::weight_form::kahan, pulse::weight_form::stochastic}) {
            CAPTURE(static_cast<int>(kept));
            check_adafactor<__nv_bfloat16>(kept, s.size % 2 == 0, s.rows, s.size);
        }
        check_adafactor<float>(pulse::weight_form::float32, s.size % 2 != 0, s.rows, s.size);
    }
    check_adafactor<__half>(pulse::weight_form::float32, true, 3, 60);
}

TEST_CASE("Adafactor's sums do not depend on where a tensor lies nor on how many multiprocessors a device has") {
    constexpr std::size_t rows = 37;
    constexpr std::size_t n = rows * 331;
    const std::vector<double> values = random_values(n + 1, 5);
    std::vector<std::vector<float>> found;
    for (const std::size_t shift : {std::size_t{0}, std::size_t{1}}) {
        for (const int processors : {1, 7}) {
            const std::vector<double> shifted(values.begin() + 1 - static_cast<std::ptrdiff_t>(shift), values.end());
            const device_array<float> gradients(shifted);
            const device_array<float> weights(std::vector<double>(n, 0.0));
            const device_array<float> second(std::vector<double>(rows + n / rows, 0.0));
            const device_array<double> parts(cuda::update_parts);
            const device_queue queue;
            cuda::queue on = queue.on();
            on.multiprocessors = processors;
            cuda::adafactor<float>(on, {.constants = {.weight_decay = 0}},
                                   {.size = n,
                                    .gradients = gradients.data() + shift,
                                    .weights = weights.data(),
                                    .second_moment = second.data(),
                                    .rows = rows},
                                   parts.data());
            found.push_back(weights.raw(queue.stream()));
            for (const float mean : second.raw()) { found.back().push_back(mean); }
            for (const double part : parts.raw()) {
                found.back().push_back(std::isnan(part) ? 0.0F : static_cast<float>(part));
            }
        }
    }
    for (const auto& one : found) { CHECK(one == found.front()); }
}
