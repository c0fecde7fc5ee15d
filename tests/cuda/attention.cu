#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/cuda/attention.cuh>
#include <pulse/cuda/attentions.cuh>
#include <pulse/cuda/cudnn/attention.cuh>
#include <pulse/cuda/cudnn/attention_rules.cuh>
#include <pulse/cuda/device.cuh>
#include <pulse/cuda/engine_options.cuh>
#include <pulse/cuda/engine_store.cuh>
#include <pulse/cuda/scratch.cuh>

#include <attention_kernels.hpp>
#include <attention_oracle.hpp>
#include <attention_trial.hpp>
#include <device_array.hpp>
#include <drawn_shapes.hpp>

namespace pulse::cuda {

template attention_launches<bf16::scalar> attention_launches_of<bf16>(attention_engine, const attention_shape&,
                                                                      std::size_t);
template attention_launches<fp32::scalar> attention_launches_of<fp32>(attention_engine, const attention_shape&,
                                                                      std::size_t);

} // namespace pulse::cuda

namespace cuda = pulse::cuda;
using cuda::attention_engine;
using pulse::attention_shape;
using namespace pulse::test;

namespace {

/// Checks the kernels that the policy chooses, which must be those of `engine`. Where policies' kernels differ in one
/// instruction, check_by tests only some of them, to save compile time.
template <class P>
void check(const attention_shape& s, int batch, std::uint32_t seed, attention_engine engine, double sharpness = 1.0,
           std::size_t shift = 0) {
    CHECK(cuda::own_attention_engine<P>(s, batch) == engine);
    attention_case c = draw_attention<typename P::scalar>(s, batch, seed, sharpness);
    solve_attention<P>(c);
    check_by_policy<P>(c, shift);
}

/// Checks the tensor-core kernels of one head size, with tiles for the device's shared memory, or for less.
template <class P, int HeadSize>
void check_by(const attention_shape& s, int batch, std::uint32_t seed, double sharpness = 1.0,
              std::size_t shared_bytes = cuda::most_dynamic_shared_bytes()) {
    CHECK(cuda::own_attention_engine<P>(s, batch) == attention_engine::tensor_cores);
    attention_case c = draw_attention<typename P::scalar>(s, batch, seed, sharpness);
    solve_attention<P>(c);
    check_by_launches<P>(c, shared_bytes < cuda::large_shared_bytes
                                ? cuda::tensor_core_attention<P, HeadSize, cuda::small_shared_bytes>::all
                                : cuda::tensor_core_attention<P, HeadSize>::all);
}

/// Checks the kernels for a device with little shared memory, whatever this one has.
template <class P>
void check_small(const attention_shape& s, std::uint32_t seed, attention_engine engine) {
    attention_case c = draw_attention<typename P::scalar>(s, 1, seed);
    solve_attention<P>(c);
    check_by_launches<P>(c, cuda::attention_launches_of<P>(engine, s, cuda::small_shared_bytes));
}

/// Scores of all keys are near +-2^17, differ by multiples of 1/8, and are exact in float.
template <class P>
attention_case far_scores(std::uint32_t seed) {
    attention_case c{.shape = {20, 2, 64, 70}, .batch = 1};
    std::mt19937 random(seed);
    std::uniform_int_distribution<int> small{-2, 2};
    const auto integers = [&](std::size_t n) {
        std::vector<double> values(n);
        for (double& value : values) { value = small(random); }
        return values;
    };
    c.q = integers(c.queries());
    c.k = integers(c.keys());
    c.v = integers(c.keys());
    c.dout = integers(c.queries());
    for (std::size_t i = 0; i < c.q.size(); i += 64) { c.q[i] = i / 64 % 2 == 0 ? 1024.0 : -1024.0; }
    for (std::size_t i = 0; i < c.k.size(); i += 64) { c.k[i] = 1024.0; }
    solve_attention<P>(c, true);
    return c;
}

} // namespace

TEST_CASE("attention on tensor cores and its gradients equal the plain loops in double") {
    constexpr auto cores = attention_engine::tensor_cores;
    std::uint32_t seed = 100;
    // each size has its own kernel
    for (const int size : {40, 64, 72, 80, 88, 128, 160, 256}) {
        check<cuda::bf16>({33, 1, size, 70}, 1, ++seed, cores);
    }
    // heads padded with zeros
    for (const int size : {8, 48, 136}) { check<cuda::bf16>({20, 2, size}, 1, ++seed, cores); }
    check_by<cuda::fp16, 64>({37, 2, 40, 18}, 1, ++seed);
    check_by<cuda::fp16, 64>({37, 2, 64, 18}, 1, ++seed);
    check_by<cuda::fp16, 88>({37, 1, 88, 70}, 1, ++seed);
    check_by<cuda::tf32, 88>({21, 1, 72, 45}, 1, ++seed);
    check_by<cuda::tf32, 88>({21, 1, 88, 45}, 1, ++seed);
    check_by<cuda::tf32, 160>({21, 1, 160, 45}, 1, ++seed);
}

TEST_CASE("attention of any number of tokens to any number of keys") {
    constexpr auto cores = attention_engine::tensor_cores;
    std::uint32_t seed = 200;
    check<cuda::bf16>({130, 2, 64}, 1, ++seed, cores);
    check<cuda::bf16>({1, 1, 40}, 2, ++seed, cores);
    check<cuda::bf16>({16, 3, 40, 77}, 2, ++seed, cores);
    check<cuda::bf16>({9, 1, 88, 333}, 1, ++seed, cores);
    check_by<cuda::fp16, 64>({65, 1, 64, 1}, 1, ++seed);
    check_by<cuda::tf32, 88>({70, 1, 64, 3}, 1, ++seed);
    check<cuda::fp32>({70, 2, 40, 65}, 1, ++seed, attention_engine::fma);
    check<cuda::fp32>({65, 1, 128}, 1, ++seed, attention_engine::fma);
    check<cuda::fp32>({33, 1, 256, 34}, 1, ++seed, attention_engine::fma);
}

TEST_CASE("gradients of few keys are summed over parts of many queries") {
    const attention_shape s{600, 1, 40, 3};
    CHECK(cuda::attention_parts(s, 1, cuda::attention_launches_of<cuda::bf16>(attention_engine::tensor_cores, s)) == 4);
    check<cuda::bf16>(s, 1, 300, attention_engine::tensor_cores);
    // an odd number of queries: paired writes must be aligned nevertheless (sanitizers see it)
    const attention_shape uneven{257, 1, 40, 3};
    CHECK(cuda::attention_parts(uneven, 1,
                                cuda::attention_launches_of<cuda::bf16>(attention_engine::tensor_cores, uneven)) == 2);
    check<cuda::bf16>(uneven, 1, 302, attention_engine::tensor_cores);
    const attention_shape odd{300, 1, 20, 2};
    CHECK(cuda::attention_parts(odd, 2, cuda::attention_launches_of<cuda::bf16>(attention_engine::fma, odd)) == 2);
    check<cuda::bf16>(odd, 2, 301, attention_engine::fma);
    // enough blocks without splitting
    const attention_shape many{4096, 300, 40, 77};
    CHECK(cuda::attention_parts(many, 1, cuda::attention_launches_of<cuda::bf16>(attention_engine::fma, many)) == 1);
}

TEST_CASE("heads that are no multiple of 8, and operands that are not aligned, go without tensor cores") {
    check<cuda::bf16>({10, 2, 7, 20}, 1, 400, attention_engine::fma);
    check<cuda::fp32>({19, 2, 5}, 2, 401, attention_engine::fma);
    check<cuda::bf16>({10, 2, 40, 20}, 1, 402, attention_engine::tensor_cores, 1.0, 3);
    check<cuda::fp32>({10, 2, 40, 20}, 1, 403, attention_engine::fma, 1.0, 1);
    CHECK(cuda::own_attention_engine<cuda::tf32>({10, 1, 168, 20}, 1) == attention_engine::fma);
}

TEST_CASE("scores may be sharp, tiny or far from zero") {
    check<cuda::bf16>({18, 1, 64, 70}, 1, 500, attention_engine::tensor_cores, 6.0);
    check_by<cuda::fp16, 64>({18, 1, 64, 70}, 1, 501, 1e-3);
    check<cuda::fp32>({18, 1, 64, 70}, 1, 502, attention_engine::fma, 6.0);
    check_by_policy<cuda::bf16>(far_scores<cuda::bf16>(503));
    check_by_policy<cuda::fp32>(far_scores<cuda::fp32>(504));
    check_by_launches<cuda::fp16>(far_scores<cuda::fp16>(505), cuda::tensor_core_attention<cuda::fp16, 64>::all);
    check_by_launches<cuda::tf32>(far_scores<cuda::tf32>(506), cuda::tensor_core_attention<cuda::tf32, 88>::all);
}

TEST_CASE("devices of little shared memory have smaller tiles where the usual ones do not fit") {
    constexpr auto cores = attention_engine::tensor_cores;
    constexpr auto fma = attention_engine::fma;
    check_small<cuda::bf16>({70, 1, 256, 50}, 800, cores);
    check_small<cuda::bf16>({34, 1, 250, 50}, 801, fma);
    check_small<cuda::fp32>({34, 1, 128, 50}, 802, fma);
    check_small<cuda::fp32>({34, 1, 256, 50}, 803, fma);
    check_by<cuda::tf32, 160>({34, 1, 160, 50}, 1, 804, 1.0, cuda::small_shared_bytes);
}

TEST_CASE("tiles fit, and depend on the device only where the usual ones do not") {
    using kernel = cuda::attention_kernel;
    constexpr std::size_t unlimited = std::size_t{1} << 30;
    for (const kernel which : {kernel::forward, kernel::backward_keys, kernel::backward_queries}) {
        for (int size = 8; size <= 256; size += 8) {
            CAPTURE(size);
            for (const std::size_t has : {cuda::small_shared_bytes, cuda::large_shared_bytes}) {
                for (const int bytes : {2, 4}) {
                    if (bytes == 4 && size > cuda::most_tensor_core_head_size<cuda::tf32>) { continue; }
                    const cuda::attention_tiling usual = cuda::attention_tiling_of(which, size, bytes, unlimited);
                    const cuda::attention_tiling t = cuda::attention_tiling_of(which, size, bytes, has);
                    CHECK(cuda::attention_shared_bytes(which, size, bytes, t) <= has);
                    CHECK((t == usual) == (cuda::attention_shared_bytes(which, size, bytes, usual) <= has));
                    CHECK((t == usual || has == cuda::small_shared_bytes));
                }
                const cuda::fma_tiling usual = cuda::fma_tiling_of(which, size, unlimited);
                const cuda::fma_tiling t = cuda::fma_tiling_of(which, size, has);
                CHECK(cuda::fma_shared_bytes(which, size, t) <= has);
                CHECK((t == usual) == (cuda::fma_shared_bytes(which, size, usual) <= has));
                CHECK((t == usual || has == cuda::small_shared_bytes));
            }
        }
    }
}

TEST_CASE("attention refuses shapes that it has no kernel for, and names what is wrong") {
    const auto refuses = [](const attention_shape& s, int batch, const std::string& culprit) {
        try {
            static_cast<void>(cuda::own_attention_engine<cuda::bf16>(s, batch));
        } catch (const pulse::input_error& e) { return std::string(e.what()).find(culprit) != std::string::npos; }
        return false;
    };
    CHECK(refuses({4, 1, 257}, 1, "head_size must be from 1 to 256, not 257"));
    CHECK(refuses({4, 1, 0}, 1, "head_size must be from 1 to 256, not 0"));
    CHECK(refuses({0, 1, 8}, 1, "tokens must be at least 1, not 0"));
    CHECK(refuses({4, 0, 8}, 1, "heads must be from 1 to 65535, not 0"));
    CHECK(refuses({4, 1, 8, -1}, 1, "context_tokens must be at least 0, not -1"));
    CHECK(refuses({4, 1, 8}, 0, "batch must be from 1 to 65535, not 0"));
    CHECK(refuses({4, 1, 8}, 70000, "batch must be from 1 to 65535, not 70000"));
}

namespace {

/// Runs both passes on the engines chosen by `by` and compares.
template <class P>
void check_chosen(cuda::attentions<P>& by, const attention_shape& s, int batch, std::uint32_t seed,
                  attention_engine forward, attention_engine backward, std::size_t shift = 0) {
    using T = typename P::scalar;
    using pass = cuda::cudnn::attention_pass;
    CAPTURE(s.head_size);
    attention_case c = draw_attention<T>(s, batch, seed);
    solve_attention<P>(c);
    const device_queue queue;
    cuda::scratch_arena scratch{queue.stream()};
    CHECK(by.engine_of(queue.stream(), pass::forward, s, batch) == forward);
    CHECK(by.engine_of(queue.stream(), pass::backward, s, batch) == backward);
    device_case<T> on_device(c, shift);
    on_device.run(
        queue, [&](auto... a) { by.forward(queue.on(), scratch, s, batch, a...); },
        [&](auto... a) { by.backward(queue.on(), scratch, s, batch, a...); });
    on_device.compare();
}

} // namespace

TEST_CASE("cuDNN computes attention if it is requested and has an engine, and pulse does otherwise") {
    constexpr auto own = attention_engine::tensor_cores;
    constexpr auto dnn = attention_engine::cudnn;
    std::uint32_t seed = 600;
    cuda::engine_options engines;
    engines.store = cuda::engine_store{};
    // pulse computes what some cuDNN version gets wrong on some device
    const cuda::device_properties device = cuda::properties_of(cuda::current_device());
    const auto backward = [&](const attention_shape& s) {
        const int sm = device.sm();
        return cuda::cudnn::attention_fault(cuda::cudnn::attention_pass::backward, s, sm, cudnnGetVersion()).empty()
                   ? dnn
                   : own;
    };
    cuda::attentions<cuda::bf16> usual({}, engines);
    const attention_shape shape = cudnn_attentions.front().shape;
    const int batch = cudnn_attentions.front().batch;
    check_chosen(usual, shape, batch, ++seed, dnn, own);
    check_chosen(usual, {9, 2, 7}, 1, ++seed, attention_engine::fma, attention_engine::fma);
    cuda::attentions<cuda::bf16> all({.cudnn_forward = true, .cudnn_backward = true}, engines);
    for (const chosen_attention& one : cudnn_attentions) {
        check_chosen(all, one.shape, one.batch, ++seed, dnn, backward(one.shape));
    }
    // cuDNN does not take misaligned tensors
    check_chosen(all, shape, batch, ++seed, dnn, backward(shape), 3);
    // nor a single query
    check_chosen(all, {1, 2, 64, 70}, 1, ++seed, own, own);
    cuda::attentions<cuda::bf16> none({.cudnn_forward = false, .cudnn_backward = false}, engines);
    check_chosen(none, shape, batch, ++seed, own, own);
    cuda::attentions<cuda::fp32> single({.cudnn_forward = true, .cudnn_backward = true}, engines);
    check_chosen(single, {9, 2, 40}, 1, ++seed, attention_engine::fma, attention_engine::fma);
    // cuDNN's wording of why it has no engine for heads of 7 may vary.
    std::string said = usual.report();
    const std::size_t reason = said.find("; cuDNN: ");
    REQUIRE(reason != std::string::npos);
    said.erase(reason, said.find('\n', reason) - reason);
    CHECK(said == "attention forward, batch 1, 9 tokens to 9, 2 heads of 7: pulse, float arithmetic\n"
                  "attention forward, batch 2, 33 tokens to 70, 2 heads of 64: cuDNN\n"
                  "attention backward, batch 1, 9 tokens to 9, 2 heads of 7: pulse, float arithmetic\n"
                  "attention backward, batch 2, 33 tokens to 70, 2 heads of 64: pulse, tensor cores\n");
}
