#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <pulse/cuda/kernels/adamw.cuh>
#include <pulse/cuda/kernels/adamw_blocks.cuh>
#include <pulse/model/parameter.hpp>
#include <pulse/plan/optimizer_form.hpp>
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

/// Steps with weights that store something other than a master weight, and with coded moments: each equals the step of
/// plain AdamW on the decoded values, coded and rounded as on the host, bit for bit.
template <class T>
void check_blocks(bool coded, pulse::weight_form kept, bool averages, std::size_t n) {
    const bool narrow = !std::is_same_v<T, float>;
    const auto to_double = [](const std::vector<float>& from) { return std::vector<double>(from.begin(), from.end()); };
    const auto as_floats = [](const std::vector<double>& from) { return std::vector<float>(from.begin(), from.end()); };
    const auto blocks = static_cast<std::size_t>(pulse::moment_blocks(static_cast<std::int64_t>(n)));
    const std::uint64_t number = (std::uint64_t{3} << 40U) + 77;
    const device_queue queue;
    const device_array<T> values(random_values(n, 1));
    const bool master = kept == pulse::weight_form::float32;
    std::vector<float> weights = as_floats(master ? rounded<float>(random_values(n, 1)) : values.download());
    const device_array<float> masters(to_double(weights));
    const device_array<T> left_over(std::vector<double>(n, 0.0));
    const device_array<float> average(to_double(weights));
    std::vector<float> mean(n);
    std::vector<float> square(n);
    const device_array<float> means(to_double(mean));
    const device_array<float> squares(to_double(square));
    const device_array<std::uint8_t> codes_1(std::vector<int>(n, 127));
    const device_array<std::uint8_t> codes_2(std::vector<int>(n, 0));
    const device_array<float> scales_1(std::vector<double>(blocks, 0.0));
    const device_array<float> scales_2(std::vector<double>(blocks, 0.0));
    device_array<float> gradients(n);
    train::update_arrays<T> arrays{.size = n, .gradients = gradients.data(), .number = number};
    if (averages) { arrays.average = average.data(); }
    if (master) { arrays.weights = masters.data(); }
    if (narrow) { arrays.compute = values.data(); }
    if (kept == pulse::weight_form::kahan) { arrays.left_over = left_over.data(); }
    if (coded) {
        arrays.first_codes = codes_1.data();
        arrays.second_codes = codes_2.data();
        arrays.first_scales = scales_1.data();
        arrays.second_scales = scales_2.data();
    } else {
        arrays.first_moment = means.data();
        arrays.second_moment = squares.data();
    }
    pulse::optimizer_update now{.constants = {.learning_rate = 1e-2, .weight_decay = 0.1},
                                .gradient_scale = 0.5,
                                .average_decay = 0.9,
                                .seed = 42};
    std::vector<float> expected_average = weights;
    for (now.step = 1; now.step != 4; ++now.step) {
        const std::vector<double> gradient =
            rounded<float>(random_values(n, 100 + static_cast<std::uint32_t>(now.step)));
        const device_array<float> plain_gradients(gradient);
        const device_array<float> plain_weights(to_double(weights));
        const device_array<float> plain_means(to_double(mean));
        const device_array<float> plain_squares(to_double(square));
        const device_array<float> plain_average(to_double(expected_average));
        cuda::adamw<float>(queue.on(), now,
                           {n, plain_gradients.data(), plain_weights.data(), plain_means.data(), plain_squares.data(),
                            plain_average.data()});
        gradients.upload(gradient);
        cuda::adamw_blocks<T>(queue.on(), now, arrays);
        queue.synchronize();
        weights = plain_weights.raw();
        mean = plain_means.raw();
        square = plain_squares.raw();
        expected_average = plain_average.raw();
        if (averages) { CHECK(average.raw() == expected_average); }
        REQUIRE(gradients.raw() == std::vector<float>(gradient.begin(), gradient.end()));
        if (coded) {
            std::vector<std::uint8_t> first(n);
            std::vector<std::uint8_t> second(n);
            train::for_each_moment_block(n, [&](std::size_t block, std::size_t at, std::size_t size) {
                const auto code = [&](const train::code_map& map, std::vector<float>& of, std::vector<std::uint8_t>& to,
                                      const device_array<float>& scales) {
                    const std::span<float> part = std::span{of}.subspan(at, size);
                    const std::span<std::uint8_t> made = std::span{to}.subspan(at, size);
                    const float scale = train::encode_block(map, part, made);
                    CHECK(scales.raw()[block] == scale);
                    train::decode_block(map, made, scale, part);
                };
                code(train::first_codes, mean, first, scales_1);
                code(train::second_codes, square, second, scales_2);
            });
            CHECK(codes_1.raw() == first);
            CHECK(codes_2.raw() == second);
        } else {
            CHECK(means.raw() == mean);
            CHECK(squares.raw() == square);
        }
        const std::vector<double> copies = values.download();
        const std::vector<double> rests = left_over.download();
        const std::uint64_t stream =
            static_cast<std::uint64_t>(train::random_stream::rounding) | static_cast<std::uint64_t>(now.step) << 16U;
        const train::random_source noise{now.seed, stream};
        for (std::size_t i = 0; i != n; ++i) {
            float& weight = weights[i];
            if (master) {
                REQUIRE(masters.raw()[i] == weight);
                if (narrow) { REQUIRE(copies[i] == static_cast<double>(cuda::to_float(cuda::from_float<T>(weight)))); }
            } else if (kept == pulse::weight_form::kahan) {
                REQUIRE(copies[i] == static_cast<double>(cuda::to_float(cuda::from_float<T>(weight))));
                const double both = copies[i] + rests[i];
                REQUIRE(std::abs(both - static_cast<double>(weight)) <=
                        0x1p-15 * std::abs(static_cast<double>(weight)));
                REQUIRE(static_cast<double>(cuda::to_float(cuda::from_float<T>(static_cast<float>(both)))) ==
                        copies[i]);
                weight = static_cast<float>(both);
            } else {
                const std::uint64_t at = number + i;
                const std::uint32_t word = noise.block(at / 8)[at % 8 / 2];
                const std::uint32_t bits = at % 2 == 0 ? word & 0xFFFFU : word >> 16U;
                weight = std::bit_cast<float>((std::bit_cast<std::uint32_t>(weight) + bits) & 0xFFFF0000U);
                REQUIRE(copies[i] == static_cast<double>(weight));
            }
        }
    }
    CHECK((values.intact() && codes_1.intact() && codes_2.intact() && scales_1.intact() && scales_2.intact() &&
           left_over.intact() && average.intact()));
}

} // namespace

TEST_CASE_TEMPLATE("AdamW takes the host's steps on every weight, wherever it lies", T, __nv_bfloat16, __half, float) {
    const pulse::adamw_constants constants{.learning_rate = 1e-2, .weight_decay = 0.1};
    constexpr int steps = 4;
    for (const std::size_t n : {std::size_t{1}, std::size_t{7}, std::size_t{4096}, std::size_t{5003}}) {
        std::vector<double> w = rounded<float>(random_values(n, 1));
        std::vector<double> m(n, 0.0);
        std::vector<double> v(n, 0.0);
        std::vector<double> average = w;
        const auto gradient_of = [&](int step) {
            return rounded<float>(random_values(n, 100 + static_cast<std::uint32_t>(step)));
        };
        std::vector<float> raw[2][5];
        for (const std::size_t offset : {std::size_t{0}, std::size_t{1}}) {
            std::vector<double> start(n + offset, 0.0);
            std::copy(w.begin(), w.end(), start.begin() + static_cast<std::ptrdiff_t>(offset));
            const device_array<float> weights(start);
            const device_array<float> moving(start);
            const device_array<float> first(std::vector<double>(n + offset, 0.0));
            const device_array<float> second(std::vector<double>(n + offset, 0.0));
            device_array<float> gradients(n + offset);
            const device_array<T> compute(n + offset);
            const device_queue queue;
            for (int step = 1; step <= steps; ++step) {
                std::vector<double> gradient(n + offset, 0.0);
                const std::vector<double> drawn = gradient_of(step);
                std::copy(drawn.begin(), drawn.end(), gradient.begin() + static_cast<std::ptrdiff_t>(offset));
                queue.synchronize();
                gradients.upload(gradient);
                cuda::adamw<T>(queue.on(),
                               {.constants = constants, .step = step, .gradient_scale = 0.25, .average_decay = 0.9},
                               {n, gradients.data() + offset, weights.data() + offset, first.data() + offset,
                                second.data() + offset, moving.data() + offset, compute.data() + offset});
            }
            queue.synchronize();
            const device_array<float>* all[] = {&weights, &first, &second, &moving, &gradients};
            for (int k = 0; k < 5; ++k) {
                std::vector<float> values = all[k]->raw();
                CHECK(all[k]->intact());
                values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(offset));
                raw[offset][k] = std::move(values);
            }
            const std::vector<double> read = gradient_of(steps);
            CHECK(raw[offset][4] == std::vector<float>(read.begin(), read.end()));
            const std::vector<double> copy = compute.download();
            CHECK(compute.intact());
            for (std::size_t i = 0; i < n; ++i) {
                const float weight = raw[offset][0][i];
                CHECK(copy[i + offset] == static_cast<double>(cuda::to_float(cuda::from_float<T>(weight))));
            }
        }
        for (int k = 0; k < 4; ++k) { CHECK(raw[0][k] == raw[1][k]); } // bit for bit

        for (int step = 1; step <= steps; ++step) {
            train::adamw_step<double>(train::factors_of<double>(constants, step, 0.25), w, gradient_of(step), m, v);
            train::ema_update<double>(0.9, w, average);
        }
        for (std::size_t i = 0; i < n; ++i) {
            // each step rounds its factors, the update (about the learning rate) and the weight
            CHECK(std::abs(static_cast<double>(raw[0][0][i]) - w[i]) <=
                  steps * (0x1p-22 * std::abs(w[i]) + 0x1p-20 * 1e-2));
            CHECK(std::abs(static_cast<double>(raw[0][1][i]) - m[i]) <= steps * 0x1p-22);
            CHECK(std::abs(static_cast<double>(raw[0][2][i]) - v[i]) <= steps * 0x1p-22 * v[i] + steps * 0x1p-34);
            CHECK(std::abs(static_cast<double>(raw[0][3][i]) - average[i]) <= steps * (0x1p-21 * 2 + 0x1p-20 * 1e-2));
        }
    }
}

TEST_CASE("AdamW without an average and without a compute copy") {
    constexpr std::size_t n = 70;
    const std::vector<double> w = rounded<float>(random_values(n, 8));
    const device_array<float> weights(w);
    const device_array<float> gradients(random_values(n, 9));
    const device_array<float> first(std::vector<double>(n, 0.0));
    const device_array<float> second(std::vector<double>(n, 0.0));
    const device_queue queue;
    const pulse::adamw_constants constants{.learning_rate = 0.5, .epsilon = 1e-30, .weight_decay = 0};
    cuda::adamw<float>(queue.on(), {.constants = constants},
                       {n, gradients.data(), weights.data(), first.data(), second.data()});
    const std::vector<double> moved = weights.download(queue.stream());
    // the first step moves every weight by the learning rate
    for (std::size_t i = 0; i < n; ++i) { CHECK(std::abs(std::abs(moved[i] - w[i]) - 0.5) < 1e-6); }
}

TEST_CASE("AdamW with 8-bit moments, with kept rounding errors, and with stochastic rounding") {
    for (const std::size_t n : {std::size_t{1}, std::size_t{255}, std::size_t{1000}}) {
        CAPTURE(n);
        for (const bool coded : {false, true}) {
            CAPTURE(coded);
            for (const auto kept : {pulse::weight_form::kahan, pulse::weight_form::stochastic}) {
                CAPTURE(static_cast<int>(kept));
                check_blocks<__nv_bfloat16>(coded, kept, n == 255, n);
            }
        }
        check_blocks<__nv_bfloat16>(true, pulse::weight_form::float32, true, n);
        check_blocks<float>(true, pulse::weight_form::float32, false, n);
        check_blocks<__half>(true, pulse::weight_form::float32, true, n);
    }
}

TEST_CASE("a stochastically rounded weight is right on average") {
    constexpr std::size_t n = 40000;
    const device_array<__nv_bfloat16> values(std::vector<double>(n, 1.0));
    const device_array<float> gradients(std::vector<double>(n, -1.0));
    const device_array<float> means(std::vector<double>(n, 0.0));
    const device_array<float> squares(std::vector<double>(n, 0.0));
    const device_queue queue;
    // A step of 1e-3 is an eighth of the distance to the next value.
    const pulse::optimizer_update now{.constants = {.learning_rate = 1e-3, .weight_decay = 0}, .seed = 5};
    cuda::adamw_blocks<__nv_bfloat16>(queue.on(), now,
                                      {.size = n,
                                       .gradients = gradients.data(),
                                       .first_moment = means.data(),
                                       .second_moment = squares.data(),
                                       .compute = values.data()});
    double sum = 0;
    for (const double value : values.download(queue.stream())) {
        CHECK((value == 1.0 || value == 1.0 + 0x1p-7));
        sum += value - 1.0;
    }
    CHECK(sum / static_cast<double>(n) == doctest::Approx(1e-3).epsilon(0.05)); // nearly four standard deviations
}
