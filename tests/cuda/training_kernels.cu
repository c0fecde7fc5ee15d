#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <random>
#include <utility>
#include <vector>

#include <pulse/cuda/kernels/convert.cuh>
#include <pulse/cuda/kernels/diffusion.cuh>
#include <pulse/cuda/kernels/random.cuh>
#include <pulse/cuda/kernels/sum_of_squares.cuh>
#include <pulse/model/parameter.hpp>
#include <pulse/train/dataset.hpp>
#include <pulse/train/loss.hpp>

#include <device_array.hpp>
#include <random_values.hpp>

namespace cuda = pulse::cuda;
namespace train = pulse::train;
using pulse::test::device_array;
using pulse::test::device_queue;
using pulse::test::random_values;
using pulse::test::rounded;
using pulse::test::rounding_error;

namespace {

/// Largest difference of the device's normal numbers from the host's, in units of the pair's radius.
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
    std::vector<float> offsets; ///< per sample and channel; may be empty

    /// Noise i as it is mixed into the image.
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
        // exact values are closer still than the host's
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
                // the host's radius is at most 6.8; four float roundings, and one to T (subnormal halves: 2^-25)
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
            // Hunyuan-DiT predicts twice as many channels
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

            // the gradient may overwrite the prediction
            cuda::diffusion_loss<T>(queue.on(), want.layout, batch, pixels.data(), samples.data(), offsets, masks,
                                    noise_key, answered, prediction.data(), prediction.data(), loss.data());
            CHECK(prediction.download(queue.stream()) == slope);
        }
    }
}

TEST_CASE_TEMPLATE("sums of squares, layer by layer, in an order of their own", T, __nv_bfloat16, __half, float) {
    const std::vector<std::int64_t> sizes{5, 0, cuda::chunk_values, 1, 2 * cuda::chunk_values + 77, 3};
    std::vector<std::vector<double>> layers;
    for (std::size_t l = 0; l < sizes.size(); ++l) {
        std::vector<double> values =
            random_values(static_cast<std::size_t>(sizes[l]), static_cast<std::uint32_t>(l), -9, 3);
        for (double& value : values) { value = std::exp2(value); } // so that another order of summation would show
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
        const device_array<double> parts(chunks.size());
        const device_queue queue;
        cuda::chunk_squares<T>(queue.on(), there.data(), count, table.data(), parts.data());
        cuda::sum_chunks(queue.on(), parts.data(), static_cast<int>(order.size()), firsts.data(), squares.data());
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
    CHECK(squares_of({5, 4, 3, 2, 1, 0}, 3) == found); // bit for bit
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
