#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include <pulse/cuda/kernels/double_sum.cuh>
#include <pulse/cuda/kernels/lanes.cuh>
#include <pulse/cuda/kernels/random.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/precision.cuh>
#include <pulse/train/enlargement.hpp>
#include <pulse/train/noise_level.hpp>

namespace pulse::cuda {

/// Layout of contiguous images, channels last: of bytes, or of floats as the network reads them. `padding` black pixels
/// are added on every side when reading.
struct image_layout {
    int height{}; ///< as stored
    int width{};  ///< as stored
    int channels{};
    int padding{};

    [[nodiscard]] __host__ __device__ int stored_elements() const { return height * width * channels; }
    [[nodiscard]] __host__ __device__ int elements() const {
        return (height + 2 * padding) * (width + 2 * padding) * channels;
    }
};

/// What makes up a training sample; a table of these is on the device.
struct diffusion_sample {
    std::uint64_t noise_index{}; ///< index of its first normal number
    double loss_factor{};        ///< factor of its squared errors in the step's loss
    float gradient_factor{};     ///< factor of its errors in the gradient: 2 loss_factor, times the loss scale
    float signal{};              ///< a_t, the factor of the image in x_t
    float sigma{};               ///< s_t, the factor of the noise
    float target_noise{};        ///< factor of the noise in the network's target
    float target_image{};        ///< factor of the image in the target
    std::uint32_t image{};       ///< index of its image
    std::uint32_t flipped{};     ///< 1: mirrored
};

/// Element e of an image as the network reads it, in [-1, 1], as in train::image_dataset.
template <class Stored>
__device__ float pixel_of(const image_layout& layout, const Stored* image, bool flipped, int e) {
    const int channel = e % layout.channels;
    const int pixel = e / layout.channels;
    const int full_width = layout.width + 2 * layout.padding;
    const int row = pixel / full_width - layout.padding;
    int column = pixel % full_width - layout.padding;
    if (row < 0 || row >= layout.height || column < 0 || column >= layout.width) { return -1.0f; }
    if (flipped) { column = layout.width - 1 - column; }
    const Stored value = image[(row * layout.width + column) * layout.channels + channel];
    if constexpr (std::is_same_v<Stored, float>) {
        return value;
    } else {
        return static_cast<float>(value) / 127.5f - 1.0f;
    }
}

template <class Stored>
[[nodiscard]] const __device__ Stored* image_of(const image_layout& layout, const Stored* images,
                                                const diffusion_sample& sample) {
    return images + static_cast<std::int64_t>(sample.image) * static_cast<std::int64_t>(layout.stored_elements());
}

/// `Count` neighbours of one sample's image, from element `first` on, and their noise; Count is 1, or a multiple of 4
/// if the sample's normal numbers begin at a whole counter. `offsets`: added to each channel's noise; null: none.
template <int Count>
struct image_and_noise {
    float x[Count];
    float noise[Count];

    template <class Stored>
    __device__ image_and_noise(const image_layout& layout, const Stored* images, const diffusion_sample& sample,
                               const float* offsets, const random_key& key, int first) {
        const Stored* image = image_of(layout, images, sample);
        for (int k = 0; k != Count; ++k) { x[k] = pixel_of(layout, image, sample.flipped != 0, first + k); }
        if constexpr (Count == 1) {
            noise[0] = normal_one(sample.noise_index + static_cast<std::uint64_t>(first), key);
        } else {
            for (int k = 0; k != Count; k += 4) {
                const float4 four = normal_four((sample.noise_index + static_cast<std::uint64_t>(first + k)) / 4, key);
                noise[k] = four.x;
                noise[k + 1] = four.y;
                noise[k + 2] = four.z;
                noise[k + 3] = four.w;
            }
        }
        if (offsets != nullptr) {
            for (int k = 0; k != Count; ++k) { noise[k] += offsets[(first + k) % layout.channels]; }
        }
    }
    /// Element k of x_t.
    [[nodiscard]] __device__ float noisy(const diffusion_sample& sample, int k = 0) const {
        return sample.signal * x[k] + sample.sigma * noise[k];
    }
};

/// The offsets of this block's sample, which blockIdx.y counts.
__device__ inline const float* offsets_of_sample(const image_layout& layout, const float* offsets) {
    return offsets == nullptr ? nullptr : offsets + static_cast<std::int64_t>(blockIdx.y) * layout.channels;
}

inline constexpr int diffusion_threads = 128;

/// The grid over all samples, with `per_thread` elements per thread.
[[nodiscard]] inline dim3 diffusion_grid(const image_layout& layout, int batch, int per_thread) {
    const int per_block = diffusion_threads * per_thread;
    return dim3(static_cast<unsigned>((layout.elements() + per_block - 1) / per_block), static_cast<unsigned>(batch));
}

template <class T, int Count, class Stored>
__global__ void __launch_bounds__(diffusion_threads)
    q_sample_kernel(image_layout layout, const Stored* images, const diffusion_sample* samples, const float* offsets,
                    random_key key, T* x_t) {
    const int first = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * Count;
    if (first >= layout.elements()) { return; }
    const diffusion_sample sample = samples[blockIdx.y];
    const image_and_noise<Count> of(layout, images, sample, offsets_of_sample(layout, offsets), key, first);
    T* const to = x_t + static_cast<std::int64_t>(blockIdx.y) * layout.elements() + first;
    if constexpr (Count == 1) {
        *to = from_float<T>(of.noisy(sample));
    } else {
        pack<T> out;
        for (int k = 0; k != Count; ++k) { out.set(k, of.noisy(sample, k)); }
        store_pack(to, out);
    }
}

/// x_t = a_t x_0 + s_t noise of `batch` samples [batch][height][width][channels] (Ho et al. 2020, equation 4), with the
/// noise generated where it is used: train::add_noise with the numbers of train::random_source. `offsets`,
/// [batch][channels], are added to it; null: none.
///
/// Moves at least batch * (stored bytes of an image + elements * sizeof(T)) bytes.
template <class T, class Stored>
void q_sample(const queue& on, const image_layout& layout, int batch, const Stored* images,
              const diffusion_sample* samples, const float* offsets, const random_key& key, T* x_t) {
    // Where packs fit, the normal numbers of each sample begin at a whole counter.
    with_lanes<T>(is_packable<T>(layout.elements(), x_t), [&]<int Count>() {
        launch(q_sample_kernel<T, Count, Stored>, diffusion_grid(layout, batch, Count), diffusion_threads, 0, on.stream,
               layout, images, samples, offsets, key, x_t);
    });
}

/// Input of a self-conditioned model, per pixel: the channels of x_t, then those of the image implied by `answer`,
/// which has `answered` channels; null: zeros.
template <class T, class Stored>
__global__ void __launch_bounds__(diffusion_threads)
    self_conditioned_kernel(image_layout layout, const Stored* images, const diffusion_sample* samples,
                            const float* offsets, random_key key, int answered, const T* answer, T* x_t) {
    const int first = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (first >= layout.elements()) { return; }
    const diffusion_sample sample = samples[blockIdx.y];
    const image_and_noise<1> of(layout, images, sample, offsets_of_sample(layout, offsets), key, first);
    const int channels = layout.channels;
    const std::int64_t pixel =
        static_cast<std::int64_t>(blockIdx.y) * (layout.elements() / channels) + first / channels;
    const int channel = first % channels;
    const float noisy = of.noisy(sample);
    float image = 0.0f;
    if (answer != nullptr) {
        const float both = sample.signal * sample.target_noise - sample.sigma * sample.target_image;
        const float said = to_float(answer[pixel * answered + channel]);
        constexpr float most = train::detail::most_implied;
        image = fminf(fmaxf(sample.target_noise / both * noisy - sample.sigma / both * said, -most), most);
    }
    x_t[2 * pixel * channels + channel] = from_float<T>(noisy);
    x_t[(2 * pixel + 1) * channels + channel] = from_float<T>(image);
}

/// As q_sample, [batch][height][width][2 channels], with the image implied by a preview's output after the channels of
/// each pixel.
template <class T, class Stored>
void self_conditioned_sample(const queue& on, const image_layout& layout, int batch, const Stored* images,
                             const diffusion_sample* samples, const float* offsets, const random_key& key, int answered,
                             const T* answer, T* x_t) {
    launch(self_conditioned_kernel<T, Stored>, diffusion_grid(layout, batch, 1), diffusion_threads, 0, on.stream,
           layout, images, samples, offsets, key, answered, answer, x_t);
}

/// Input of the second backbone of a cascade, per pixel: the channels of x_t, then those of the enlarged image.
template <class T, class Stored>
__global__ void __launch_bounds__(diffusion_threads)
    enlarged_kernel(image_layout layout, const Stored* images, const diffusion_sample* samples, const float* offsets,
                    random_key key, random_key small_key, int times, int width, float small_noise, T* x_t) {
    const int first = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (first >= layout.elements()) { return; }
    const diffusion_sample sample = samples[blockIdx.y];
    const Stored* image = image_of(layout, images, sample);
    const int channel = first % layout.channels;
    const int pixel = first / layout.channels;
    const int row = pixel / width / times;
    const int column = pixel % width / times;
    float sum = 0.0f;
    for (int y = row * times; y != (row + 1) * times; ++y) {
        for (int x = column * times; x != (column + 1) * times; ++x) {
            sum += pixel_of(layout, image, sample.flipped != 0, (y * width + x) * layout.channels + channel);
        }
    }
    const int square = times * times;
    const int small = (row * (width / times) + column) * layout.channels + channel;
    const std::uint64_t small_index =
        sample.noise_index / static_cast<std::uint64_t>(square) + static_cast<std::uint64_t>(small);
    const float enlarged = sum / static_cast<float>(square) + small_noise * normal_one(small_index, small_key);
    const image_and_noise<1> of(layout, images, sample, offsets_of_sample(layout, offsets), key, first);
    T* const to = x_t + 2 * static_cast<std::int64_t>(blockIdx.y) * layout.elements() + first +
                  static_cast<std::int64_t>(pixel) * layout.channels;
    to[0] = from_float<T>(of.noisy(sample));
    to[layout.channels] = from_float<T>(enlarged);
}

/// As q_sample, [batch][height][width][2 channels], with the smaller image after the channels of each pixel, enlarged
/// and with the noise of `small_key`, as in train::diffusion_task.
template <class T, class Stored>
void enlarged_sample(const queue& on, const image_layout& layout, int batch, const Stored* images,
                     const diffusion_sample* samples, const float* offsets, const random_key& key,
                     const train::enlargement& how, const random_key& small_key, T* x_t) {
    launch(enlarged_kernel<T, Stored>, diffusion_grid(layout, batch, 1), diffusion_threads, 0, on.stream, layout,
           images, samples, offsets, key, small_key, how.times, how.width, static_cast<float>(how.noise), x_t);
}

/// If Count is 1, predictions may have more channels than the image; the gradient of the others becomes 0. `masks`: one
/// per pixel, if Masked.
template <class T, int Count, bool Masked, class Stored>
__global__ void __launch_bounds__(diffusion_threads)
    diffusion_loss_kernel(image_layout layout, const Stored* images, const diffusion_sample* samples,
                          const float* offsets, const float* masks, random_key key, int answered, const T* prediction,
                          T* gradient, double* parts) {
    const int first = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * Count;
    const diffusion_sample sample = samples[blockIdx.y];
    const int channels = layout.channels;
    double squares = 0;
    if (first < layout.elements()) {
        const image_and_noise<Count> of(layout, images, sample, offsets_of_sample(layout, offsets), key, first);
        const std::int64_t pixels = static_cast<std::int64_t>(blockIdx.y) * (layout.elements() / channels);
        const std::int64_t place = (pixels + first / channels) * answered + first % channels;
        pack<T> answer{};
        pack<T> slope{};
        if constexpr (Count == 1) {
            answer.values[0] = prediction[place];
        } else {
            answer = load_pack(prediction + place);
        }
        for (int k = 0; k != Count; ++k) {
            const float difference =
                answer.get(k) - (sample.target_noise * of.noise[k] + sample.target_image * of.x[k]);
            float masked = difference;
            if constexpr (Masked) { masked *= masks[pixels + (first + k) / channels]; }
            squares += static_cast<double>(masked) * static_cast<double>(difference);
            slope.set(k, sample.gradient_factor * masked);
        }
        if constexpr (Count == 1) {
            gradient[place] = slope.values[0];
            for (int c = channels; first % channels + c < answered; c += channels) {
                gradient[place + c] = from_float<T>(0.0f);
            }
        } else {
            store_pack(gradient + place, slope);
        }
    }
    const double sum = block_sum(squares);
    if (threadIdx.x == 0) { parts[blockIdx.y * gridDim.x + blockIdx.x] = sum * sample.loss_factor; }
}

/// Scratch of diffusion_loss: one number per block, for the most blocks, which have one element per thread.
[[nodiscard]] inline std::size_t diffusion_loss_scratch_bytes(const image_layout& layout, int batch) {
    const dim3 grid = diffusion_grid(layout, batch, 1);
    return std::size_t{grid.x} * grid.y * sizeof(double);
}

/// *loss = the samples' share of the step's weighted mean squared error; gradient = its derivative by the prediction,
/// times the loss scale. The target is the samples' mixture of noise and image: the noise, v, or the image. `offsets`
/// as in q_sample; `masks`, [batch][pixels], weight the errors of pixels; null: ones. `gradient` may be `prediction`.
/// Both have `answered` channels: those of the image, then any that the loss does not read, whose gradient becomes 0.
///
/// Sums are computed in double, in an order that depends on the shape alone. Moves at least batch * (stored bytes of an
/// image + 2 * elements * sizeof(T)) bytes.
template <class T, class Stored>
void diffusion_loss(const queue& on, const image_layout& layout, int batch, const Stored* images,
                    const diffusion_sample* samples, const float* offsets, const float* masks, const random_key& key,
                    int answered, const T* prediction, T* gradient, double* loss) {
    auto* parts = reinterpret_cast<double*>(on.scratch);
    const auto run = [&](auto kernel, int per_thread) {
        const dim3 grid = diffusion_grid(layout, batch, per_thread);
        launch(kernel, grid, diffusion_threads, 0, on.stream, layout, images, samples, offsets, masks, key, answered,
               prediction, gradient, parts);
        launch(sum_all_parts_kernel<int>, 1, 256, 0, on.stream, parts, static_cast<int>(grid.x * grid.y), loss);
    };
    const auto run_masked = [&]<bool Masked>(std::bool_constant<Masked>) {
        if (answered == layout.channels && is_packable<T>(layout.elements(), prediction, gradient)) {
            run(diffusion_loss_kernel<T, pack_size<T>, Masked, Stored>, pack_size<T>);
        } else {
            run(diffusion_loss_kernel<T, 1, Masked, Stored>, 1);
        }
    };
    masks == nullptr ? run_masked(std::false_type{}) : run_masked(std::true_type{});
}

} // namespace pulse::cuda
