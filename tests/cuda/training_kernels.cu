#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include <pulse/cuda/kernels/adafactor.cuh>
#include <pulse/cuda/kernels/adamw.cuh>
#include <pulse/cuda/kernels/adamw_blocks.cuh>
#include <pulse/cuda/kernels/convert.cuh>
#include <pulse/cuda/kernels/diffusion.cuh>
#include <pulse/cuda/kernels/random.cuh>
#include <pulse/cuda/kernels/sum_of_squares.cuh>
#include <pulse/model/parameter.hpp>
#include <pulse/plan/optimizer_form.hpp>
#include <pulse/train/adafactor.hpp>
#include <pulse/train/dataset.hpp>
#include <pulse/train/dynamic_code.hpp>
#include <pulse/train/host_updates.hpp>
#include <pulse/train/loss.hpp>

#include <device_array.hpp>

namespace cuda = pulse::cuda;
namespace train = pulse::train;
using pulse::test::device_array;
using pulse::test::device_queue;
using pulse::test::rounded;
using pulse::test::rounding_error;

namespace {

/// How far the device's normal numbers may be from the host's, in units of the pair's radius.
constexpr double normal_error = 0x1p-20;

template <class T>
__global__ void draw_kernel(std::uint64_t first_counter, int counters, cuda::random_key key, std::uint32_t* words,
                            T* normals) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= counters) { return; }
    const std::uint64_t counter = first_counter + static_cast<std::uint64_t>(i);
    const uint4 four = cuda::philox4x32(counter, key);
    words[4 * i] = four.x;
    words[4 * i + 1] = four.y;
    words[4 * i + 2] = four.z;
    words[4 * i + 3] = four.w;
    const float4 drawn = cuda::normal_four(counter, key);
    normals[4 * i] = drawn.x;
    normals[4 * i + 1] = drawn.y;
    normals[4 * i + 2] = cuda::normal_one(4 * counter + 2, key);
    normals[4 * i + 3] = cuda::normal_one(4 * counter + 3, key);
}

template <class T>
__global__ void pairs_kernel(const std::uint32_t* words, int pairs, T* normals) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= pairs) { return; }
    const float2 drawn = cuda::normal_pair(words[2 * i], words[2 * i + 1]);
    normals[2 * i] = drawn.x;
    normals[2 * i + 1] = drawn.y;
}

std::vector<double> random_values(std::size_t n, std::uint32_t seed, double low = -2, double high = 2) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> uniform(low, high);
    std::vector<double> values(n);
    for (double& value : values) { value = uniform(random); }
    return values;
}

train::image_dataset images(int height, int width, int channels, int padding) {
    std::mt19937 random(17);
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(9 * height * width * channels));
    for (std::uint8_t& pixel : pixels) { pixel = static_cast<std::uint8_t>(random() % 256); }
    return {height, width, channels, std::move(pixels), {.seed = 3, .horizontal_flip = true, .padding = padding}};
}

/// A microbatch as the host draws it, in double, and the table that describes it.
struct drawn_batch {
    cuda::image_layout layout;
    std::vector<std::uint8_t> pixels;
    std::vector<cuda::diffusion_sample> samples;
    std::vector<double> x0;
    std::vector<double> noise;
    std::vector<float> offsets; ///< of each sample's channels; empty: none

    /// Noise i as it is mixed in.
    [[nodiscard]] double noise_at(std::size_t i) const {
        const std::size_t channels = static_cast<std::size_t>(layout.channels);
        const std::size_t sample = i / static_cast<std::size_t>(layout.elements());
        return noise[i] + (offsets.empty() ? 0.0 : static_cast<double>(offsets[sample * channels + i % channels]));
    }
};

drawn_batch draw(int height, int width, int channels, int padding, int batch, std::uint64_t position,
                 train::prediction_type type, double step_elements, double loss_scale, bool with_offsets) {
    const train::image_dataset data = images(height, width, channels, padding);
    const train::noise_schedule schedule = train::noise_schedule::cosine();
    const std::size_t elements = data.elements();
    drawn_batch result{{height, width, channels, padding}, {}, {}, {}, {}, {}};
    result.pixels.assign(data.pixels().begin(), data.pixels().end());
    std::vector<float> image(elements);
    std::vector<float> noise(elements);
    for (int i = 0; i < batch; ++i) {
        const std::uint64_t at = position + static_cast<std::uint64_t>(i);
        const int t = static_cast<int>(at * 37 % 1000);
        const double weight = train::min_snr_weight(schedule, type, t) / step_elements;
        const auto a = static_cast<float>(schedule.signal(t));
        const auto s = static_cast<float>(schedule.sigma(t));
        float target_noise = type == train::prediction_type::epsilon ? 1.0F : a;
        float target_image = type == train::prediction_type::epsilon ? 0.0F : -s;
        if (type == train::prediction_type::sample) {
            target_noise = 0;
            target_image = 1;
        }
        result.samples.push_back({at * elements, weight, static_cast<float>(2 * weight * loss_scale), a, s,
                                  target_noise, target_image, data.index_at(at), data.flipped_at(at) ? 1U : 0U});
        for (int c = 0; with_offsets && c != channels; ++c) {
            result.offsets.push_back(0.125F * static_cast<float>(c + 3 * i - 4));
        }
        data.batch(at, image);
        train::random_source{11, train::random_stream::noise}.fill_normal(at * elements, noise);
        result.x0.insert(result.x0.end(), image.begin(), image.end());
        result.noise.insert(result.noise.end(), noise.begin(), noise.end());
    }
    return result;
}

const cuda::random_key noise_key(11, train::random_stream::noise);

struct image_case {
    int height, width, channels, padding;
};
/// Whole packs, half packs, odd sizes, one channel, padding.
const image_case image_cases[] = {{8, 8, 4, 0}, {6, 6, 1, 1}, {5, 7, 3, 0}, {3, 3, 1, 0}, {4, 4, 3, 2}, {30, 30, 3, 1}};

} // namespace

TEST_CASE("the words are those of the host's generator, the normal numbers nearly") {
    constexpr int counters = 3000;
    const device_array<std::uint32_t> words(4 * counters);
    const device_array<float> normals(4 * counters);
    const device_queue queue;
    for (const std::uint64_t first : {std::uint64_t{0}, (std::uint64_t{1} << 32) - 100}) {
        const std::uint64_t seed = 0x0123456789abcdefU;
        const cuda::random_key key(seed, train::random_stream::noise);
        const train::random_source host(seed, train::random_stream::noise);
        cuda::launch(draw_kernel<float>, 24, 128, 0, queue.stream(), first, counters, key, words.data(),
                     normals.data());
        const std::vector<std::uint32_t> found = words.raw(queue.stream());
        const std::vector<double> drawn = normals.download(queue.stream());
        bool same = true;
        double worst = 0;
        for (std::size_t i = 0; i < 4 * counters; ++i) {
            same = same && found[i] == host.block(first + i / 4)[i % 4];
            const auto expected = static_cast<double>(host.normal(4 * first + i));
            const auto partner = static_cast<double>(host.normal(4 * first + (i ^ 1)));
            worst = std::max(worst, std::abs(drawn[i] - expected) / std::hypot(expected, partner));
        }
        CHECK(same);
        CHECK(worst < normal_error);
    }
}

TEST_CASE("normal pairs at the ends of the words' range") {
    const std::vector<std::uint32_t> edges{0,           1,           2,           0x3fffffffU, 0x40000000U, 0x7fffffffU,
                                           0x80000000U, 0xbfffffffU, 0xc0000000U, 0xfffffffeU, 0xffffffffU, 12345};
    std::vector<std::uint32_t> words;
    for (const std::uint32_t radius : edges) {
        for (const std::uint32_t angle : edges) { words.insert(words.end(), {radius, angle}); }
    }
    const int pairs = static_cast<int>(words.size() / 2);
    const device_array<std::uint32_t> given(words);
    const device_array<float> normals(words.size());
    const device_queue queue;
    cuda::launch(pairs_kernel<float>, 2, 128, 0, queue.stream(), given.data(), pairs, normals.data());
    const std::vector<double> drawn = normals.download(queue.stream());
    for (std::size_t i = 0; i < words.size(); i += 2) {
        const double radius = std::sqrt(-2 * std::log((static_cast<double>(words[i]) + 0.5) * 0x1p-32));
        const double angle = 2 * std::numbers::pi * 0x1p-32 * static_cast<double>(words[i + 1]);
        CAPTURE(words[i]);
        CAPTURE(words[i + 1]);
        // the exact numbers are nearer still than the host's
        CHECK(std::abs(drawn[i] - radius * std::cos(angle)) <= normal_error / 2 * radius);
        CHECK(std::abs(drawn[i + 1] - radius * std::sin(angle)) <= normal_error / 2 * radius);
    }
}

TEST_CASE_TEMPLATE("q_sample mixes the host's images and noise", T, __nv_bfloat16, __half, float) {
    constexpr int batch = 5;
    for (const bool with_offsets : {false, true}) {
        for (const auto& [height, width, channels, padding] : image_cases) {
            const drawn_batch want = draw(height, width, channels, padding, batch, (std::uint64_t{1} << 31) + 3,
                                          train::prediction_type::epsilon, 1, 1, with_offsets);
            const device_array<std::uint8_t> pixels(want.pixels);
            const device_array<cuda::diffusion_sample> samples(want.samples);
            const device_array<float> offsets(want.offsets);
            const device_array<T> x(want.x0.size());
            const device_queue queue;
            cuda::q_sample<T>(queue.on(), want.layout, batch, pixels.data(), samples.data(),
                              with_offsets ? offsets.data() : nullptr, noise_key, x.data());
            const std::vector<double> found = x.download(queue.stream());
            CHECK(x.intact());
            const std::size_t elements = want.x0.size() / batch;
            for (std::size_t i = 0; i < found.size(); ++i) {
                const cuda::diffusion_sample& sample = want.samples[i / elements];
                const double exact = static_cast<double>(sample.signal) * want.x0[i] +
                                     static_cast<double>(sample.sigma) * want.noise_at(i);
                // the host's radius is at most 6.8; four roundings of floats, one to T (subnormal halves: 2^-25)
                const double tolerance =
                    6.8 * normal_error + 4 * 0x1p-23 * 8 + rounding_error<T> * std::abs(exact) + 0x1p-25;
                CHECK(std::abs(found[i] - exact) <= tolerance);
            }
        }
    }
}

TEST_CASE_TEMPLATE("the loss and its gradient", T, __nv_bfloat16, __half, float) {
    constexpr int batch = 3;
    for (const auto type :
         {train::prediction_type::epsilon, train::prediction_type::velocity, train::prediction_type::sample}) {
        for (const auto& [height, width, channels, padding] : image_cases) {
            const double step_elements = 40.0 * static_cast<double>(height * width * channels);
            const double loss_scale = cuda::is_scalar_v<T> && std::is_same_v<T, __half> ? 1024 : 1;
            const bool with_offsets = height % 2 == 0;
            const drawn_batch want =
                draw(height, width, channels, padding, batch, 1000, type, step_elements, loss_scale, with_offsets);
            // Hunyuan-DiT answers with as many channels more
            const int answered = width % 3 == 0 ? 2 * channels : channels;
            const auto of_image = static_cast<std::size_t>(channels);
            const auto of_answer = static_cast<std::size_t>(answered);
            const auto place_of = [of_image, of_answer](std::size_t i) {
                return i / of_image * of_answer + i % of_image;
            };
            const std::vector<double> answer = rounded<T>(random_values(want.x0.size() / of_image * of_answer, 4));
            const device_array<std::uint8_t> pixels(want.pixels);
            const device_array<cuda::diffusion_sample> samples(want.samples);
            const device_array<float> offset_values(want.offsets);
            const float* const offsets = with_offsets ? offset_values.data() : nullptr;
            const bool with_masks = height > 5;
            const std::vector<double> shares = rounded<float>(random_values(want.x0.size() / of_image, 5, 0, 1));
            const device_array<float> mask_values(shares);
            const float* const masks = with_masks ? mask_values.data() : nullptr;
            const device_array<T> prediction(answer);
            const device_array<T> gradient(answer.size());
            const device_array<double> loss(1);
            const device_queue queue(cuda::diffusion_loss_scratch_bytes(want.layout, batch));
            cuda::diffusion_loss<T>(queue.on(), want.layout, batch, pixels.data(), samples.data(), offsets, masks,
                                    noise_key, answered, prediction.data(), gradient.data(), loss.data());
            const std::vector<double> slope = gradient.download(queue.stream());
            CHECK(gradient.intact());
            const std::size_t elements = want.x0.size() / batch;
            double sum = 0;
            double sum_tolerance = 0;
            for (std::size_t i = 0; i < want.x0.size(); ++i) {
                const cuda::diffusion_sample& sample = want.samples[i / elements];
                const double target = static_cast<double>(sample.target_noise) * want.noise_at(i) +
                                      static_cast<double>(sample.target_image) * want.x0[i];
                const double difference = answer[place_of(i)] - target;
                const double slack = 6.8 * normal_error + 4 * 0x1p-23 * 8; // of the target and the difference
                const double counts = with_masks ? shares[i / of_image] : 1.0;
                const auto factor = counts * static_cast<double>(sample.gradient_factor);
                const double rounding = rounding_error<T> + (with_masks ? 2 : 1) * 0x1p-23;
                CHECK(std::abs(slope[place_of(i)] - factor * difference) <=
                      factor * slack + rounding * std::abs(factor * difference) + 0x1p-25);
                sum += counts * sample.loss_factor * difference * difference;
                sum_tolerance += counts * sample.loss_factor * (2 * std::abs(difference) + slack) * slack +
                                 (with_masks ? 0x1p-24 : 0) * counts * sample.loss_factor * difference * difference;
            }
            CHECK(std::abs(loss.download(queue.stream())[0] - sum) <= sum_tolerance + 1e-12 * sum);
            for (std::size_t i = 0; i < answer.size(); ++i) {
                if (i % of_answer >= of_image) { CHECK(slope[i] == 0); }
            }

            // the gradient may take the prediction's place
            cuda::diffusion_loss<T>(queue.on(), want.layout, batch, pixels.data(), samples.data(), offsets, masks,
                                    noise_key, answered, prediction.data(), prediction.data(), loss.data());
            CHECK(prediction.download(queue.stream()) == slope);
        }
    }
}

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
                cuda::adamw<T>(queue.on(), static_cast<std::int64_t>(n),
                               train::factors_of<float>(constants, step, 0.25), 0.9,
                               {gradients.data() + offset, weights.data() + offset, first.data() + offset,
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
            for (const float g : raw[offset][4]) { CHECK(g == 0); }
            const std::vector<double> copy = compute.download();
            CHECK(compute.intact());
            for (std::size_t i = 0; i < n; ++i) {
                const float weight = raw[offset][0][i];
                CHECK(copy[i + offset] == static_cast<double>(cuda::to_float(cuda::from_float<T>(weight))));
            }
        }
        for (int k = 0; k < 4; ++k) { CHECK(raw[0][k] == raw[1][k]); } // the same bits

        for (int step = 1; step <= steps; ++step) {
            train::adamw_step<double>(train::factors_of<double>(constants, step, 0.25), w, gradient_of(step), m, v);
            train::ema_update<double>(0.9, w, average);
        }
        for (std::size_t i = 0; i < n; ++i) {
            // each step rounds its factors, the update (about the learning rate), and the weight
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
    cuda::adamw<float>(queue.on(), n, train::factors_of<float>(constants, 1), 0.9,
                       {gradients.data(), weights.data(), first.data(), second.data(), nullptr, nullptr});
    const std::vector<double> moved = weights.download(queue.stream());
    // the first step moves every weight by the learning rate
    for (std::size_t i = 0; i < n; ++i) { CHECK(std::abs(std::abs(moved[i] - w[i]) - 0.5) < 1e-6); }
}

/// Steps of weights that keep something else than a master weight, moments in codes: each is the step of plain AdamW on
/// what they stand for, coded and rounded as on the host, bit for bit.
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
        cuda::adamw<float>(queue.on(), static_cast<std::int64_t>(n),
                           train::factors_of<float>(now.constants, now.step, now.gradient_scale), now.average_decay,
                           {plain_gradients.data(), plain_weights.data(), plain_means.data(), plain_squares.data(),
                            plain_average.data(), nullptr});
        gradients.upload(gradient);
        cuda::adamw_blocks<T>(queue.on(), now, arrays);
        queue.synchronize();
        weights = plain_weights.raw();
        mean = plain_means.raw();
        square = plain_squares.raw();
        expected_average = plain_average.raw();
        if (averages) { CHECK(average.raw() == expected_average); }
        for (const float g : gradients.raw()) { REQUIRE(g == 0); }
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

TEST_CASE("AdamW with moments in 8 bits, with what rounding left over, and with rounding by chance") {
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

/// Steps of a tensor by Adafactor: as those of the host, but for the order of sums; weights are kept as AdamW's are.
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
        for (const float g : gradients.raw()) { REQUIRE(g == 0); }
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

TEST_CASE("Adafactor's step of a vector and of matrices, whatever is kept of weights") {
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

TEST_CASE("a weight that is rounded by chance is right in the mean") {
    constexpr std::size_t n = 40000;
    const device_array<__nv_bfloat16> values(std::vector<double>(n, 1.0));
    const device_array<float> gradients(std::vector<double>(n, -1.0));
    const device_array<float> means(std::vector<double>(n, 0.0));
    const device_array<float> squares(std::vector<double>(n, 0.0));
    const device_queue queue;
    // A step of 1e-3, an eighth of the distance to the next value.
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
    CHECK(sum / static_cast<double>(n) == doctest::Approx(1e-3).epsilon(0.05)); // nearly four deviations
}

TEST_CASE_TEMPLATE("sums of squares, layer by layer, in an order of their own", T, __nv_bfloat16, __half, float) {
    const std::vector<std::int64_t> sizes{5, 0, cuda::chunk_values, 1, 2 * cuda::chunk_values + 77, 3};
    std::vector<std::vector<double>> layers;
    for (std::size_t l = 0; l < sizes.size(); ++l) {
        std::vector<double> values =
            random_values(static_cast<std::size_t>(sizes[l]), static_cast<std::uint32_t>(l), -9, 3);
        for (double& value : values) { value = std::exp2(value); } // so that sums in another order differ
        layers.push_back(rounded<T>(values));
    }
    const auto squares_of = [&](const std::vector<int>& order, std::size_t shift) {
        std::vector<double> values(shift, 1e3);
        std::vector<cuda::value_chunk> chunks;
        std::vector<std::int32_t> first{0};
        for (const int l : order) {
            const auto& layer = layers[static_cast<std::size_t>(l)];
            cuda::append_chunks(chunks, static_cast<std::int64_t>(values.size()),
                                static_cast<std::int64_t>(layer.size()));
            values.insert(values.end(), layer.begin(), layer.end());
            first.push_back(static_cast<std::int32_t>(chunks.size()));
        }
        const device_array<T> there(values);
        const device_array<cuda::value_chunk> table(chunks);
        const device_array<std::int32_t> firsts(first);
        const device_array<double> squares(order.size());
        const auto count = static_cast<std::int64_t>(chunks.size());
        const device_queue queue(cuda::sums_of_squares_scratch_bytes(count));
        cuda::sums_of_squares<T>(queue.on(), there.data(), count, table.data(), static_cast<int>(order.size()),
                                 firsts.data(), squares.data());
        std::vector<double> result(layers.size());
        const std::vector<double> found = squares.download(queue.stream());
        CHECK(squares.intact());
        for (std::size_t i = 0; i < order.size(); ++i) { result[static_cast<std::size_t>(order[i])] = found[i]; }
        return result;
    };
    const std::vector<double> found = squares_of({0, 1, 2, 3, 4, 5}, 0);
    for (std::size_t l = 0; l < layers.size(); ++l) {
        double sum = 0;
        for (const double x : layers[l]) { sum += x * x; }
        CAPTURE(l);
        CHECK(std::abs(found[l] - sum) <= static_cast<double>(sizes[l]) * 0x1p-53 * sum);
    }
    CHECK(squares_of({5, 4, 3, 2, 1, 0}, 3) == found); // the same bits
    for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
        const double kept = std::exchange(layers[4][cuda::chunk_values + 70], bad);
        const std::vector<double> spoilt = squares_of({0, 1, 2, 3, 4, 5}, 1);
        for (std::size_t l = 0; l < layers.size(); ++l) { CHECK(std::isfinite(spoilt[l]) == (l != 4)); }
        layers[4][cuda::chunk_values + 70] = kept;
    }
}

TEST_CASE_TEMPLATE("conversions round once", T, __nv_bfloat16, __half, float) {
    for (const std::size_t n : {std::size_t{1}, std::size_t{8}, std::size_t{1003}}) {
        for (const std::size_t offset : {std::size_t{0}, std::size_t{1}}) {
            const std::vector<double> values = rounded<float>(random_values(n + offset, 6));
            const device_array<float> x(values);
            const device_array<T> y(n + offset);
            const device_array<float> back(n);
            const device_queue queue;
            cuda::convert(queue.on(), static_cast<std::int64_t>(n), x.data() + offset, y.data() + offset, 0.3f);
            cuda::convert(queue.on(), static_cast<std::int64_t>(n), y.data() + offset, back.data());
            const std::vector<double> there = y.download(queue.stream());
            const std::vector<double> again = back.download(queue.stream());
            CHECK(y.intact());
            CHECK(back.intact());
            for (std::size_t i = 0; i < n; ++i) {
                const float scaled = 0.3f * static_cast<float>(values[i + offset]);
                CHECK(there[i + offset] == static_cast<double>(cuda::to_float(cuda::from_float<T>(scaled))));
                CHECK(again[i] == there[i + offset]);
            }
            if (offset == 1) { CHECK(std::isnan(there[0])); }
        }
    }
}
