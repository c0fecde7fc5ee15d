#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/cuda/attention.cuh>
#include <pulse/cuda/attentions.cuh>
#include <pulse/cuda/cudnn/attention.cuh>
#include <pulse/cuda/plan_options.cuh>
#include <pulse/cuda/plan_store.cuh>
#include <pulse/cuda/scratch.cuh>

#include <attention_kernels.hpp>
#include <attention_oracle.hpp>
#include <device_array.hpp>

namespace pulse::cuda {

template attention_launches<bf16::scalar> attention_launches_of<bf16>(attention_engine, const attention_shape&);
template attention_launches<fp32::scalar> attention_launches_of<fp32>(attention_engine, const attention_shape&);

} // namespace pulse::cuda

namespace cuda = pulse::cuda;
using cuda::attention_engine;
using pulse::attention_shape;
using namespace pulse::test;

namespace {

/// Which policies are tested with all their kernels; of the others, whose kernels differ in an instruction, some are,
/// for the sake of compile time.
template <class P>
inline constexpr bool runs_by_policy = std::is_same_v<P, cuda::bf16> || std::is_same_v<P, cuda::fp32>;

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// Runs both passes twice, with operands that begin `shift` numbers behind an aligned place, and compares. By the given
/// kernels, or by those that the policy chooses.
template <class P>
void check(const attention_case& c, std::size_t shift = 0,
           const cuda::attention_launches<typename P::scalar>* by = nullptr) {
    using T = typename P::scalar;
    const attention_shape& s = c.shape;
    CAPTURE(P::name);
    CAPTURE(s.tokens);
    CAPTURE(s.keys());
    CAPTURE(s.heads);
    CAPTURE(s.head_size);
    CAPTURE(c.batch);
    const auto shifted = [&](const std::vector<double>& values) {
        std::vector<double> all(shift, 0.0);
        all.insert(all.end(), values.begin(), values.end());
        return device_array<T>(all);
    };
    const auto behind = [&](const device_array<T>& all) {
        const std::vector<double> values = all.download();
        return std::vector<double>(values.begin() + static_cast<std::ptrdiff_t>(shift), values.end());
    };
    const device_array<T> q = shifted(c.q);
    const device_array<T> k = shifted(c.k);
    const device_array<T> v = shifted(c.v);
    const device_array<T> dout = shifted(c.dout);
    const device_array<T> saved = shifted(c.o);
    const device_array<float> saved_lse(c.lse);
    device_array<T> o(shift + c.queries());
    device_array<T> dq(shift + c.queries());
    device_array<T> dk(shift + c.keys());
    device_array<T> dv(shift + c.keys());
    device_array<float> lse(c.rows());
    std::size_t scratch = 0;
    if constexpr (runs_by_policy<P>) {
        scratch = cuda::attention_backward_scratch_bytes<P>(s, c.batch);
    } else {
        scratch = cuda::attention_backward_scratch_bytes_by(*by, s, c.batch);
    }
    const device_queue queue(scratch);
    const auto run = [&](const auto& attention, const auto& attention_backward) {
        attention(queue.on(), s, c.batch, q.data() + shift, k.data() + shift, v.data() + shift, o.data() + shift,
                  lse.data());
        attention_backward(queue.on(), s, c.batch, q.data() + shift, k.data() + shift, v.data() + shift,
                           saved.data() + shift, saved_lse.data(), dout.data() + shift, dq.data() + shift,
                           dk.data() + shift, dv.data() + shift);
    };
    std::optional<std::vector<T>> first[4];
    for (int turn = 0; turn != 2; ++turn) {
        for (device_array<T>* array : {&o, &dq, &dk, &dv}) { array->poison(); }
        lse.poison();
        if constexpr (runs_by_policy<P>) {
            run([](const auto&... a) { cuda::attention<P>(a...); },
                [](const auto&... a) { cuda::attention_backward<P>(a...); });
        } else {
            run([&](const auto&... a) { cuda::attention_by(*by, a...); },
                [&](const auto&... a) { cuda::attention_backward_by(*by, a...); });
        }
        queue.synchronize();
        int i = 0;
        for (const device_array<T>* array : {&o, &dq, &dk, &dv}) {
            CHECK(array->intact());
            const std::vector<T> bits = array->raw();
            if (turn == 0) {
                first[i] = std::vector<T>(bits.begin() + static_cast<std::ptrdiff_t>(shift), bits.end());
            } else {
                CHECK(same_bits(*first[i], {bits.begin() + static_cast<std::ptrdiff_t>(shift), bits.end()}));
            }
            ++i;
        }
        CHECK(lse.intact());
    }
    CHECK(worst_of(lse.download(), c.lse, c.lse_bound) < 1.0);
    CHECK(worst_of(behind(o), c.o, c.o_bound) < 1.0);
    CHECK(worst_of(behind(dq), c.dq, c.dq_bound) < 1.0);
    CHECK(worst_of(behind(dk), c.dk, c.dk_bound) < 1.0);
    CHECK(worst_of(behind(dv), c.dv, c.dv_bound) < 1.0);
}

template <class P>
void check(const attention_shape& s, int batch, std::uint32_t seed, attention_engine engine, double sharpness = 1.0,
           std::size_t shift = 0) {
    CHECK(cuda::own_attention_engine<P>(s, batch) == engine);
    attention_case c = draw_attention<typename P::scalar>(s, batch, seed, sharpness);
    solve_attention<P>(c);
    check<P>(c, shift);
}

/// On the tensor-core kernels of one head size.
template <class P, int HeadSize>
void check_by(const attention_shape& s, int batch, std::uint32_t seed, double sharpness = 1.0) {
    CHECK(cuda::own_attention_engine<P>(s, batch) == attention_engine::tensor_cores);
    attention_case c = draw_attention<typename P::scalar>(s, batch, seed, sharpness);
    solve_attention<P>(c);
    const auto by = cuda::tensor_core_attention<P, HeadSize>::all;
    check<P>(c, 0, &by);
}

/// Scores of all keys are near +-2^17, and differ by multiples of 1/8; every one is exact in float.
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
    // a kernel of its own for each
    for (const int size : {40, 64, 72, 80, 88, 128, 160, 256}) {
        check<cuda::bf16>({33, 1, size, 70}, 1, ++seed, cores);
    }
    // zeros behind the head
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
    const attention_shape odd{300, 1, 20, 2};
    CHECK(cuda::attention_parts(odd, 2, cuda::attention_launches_of<cuda::bf16>(attention_engine::fma, odd)) == 2);
    check<cuda::bf16>(odd, 2, 301, attention_engine::fma);
    // enough blocks without
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
    check<cuda::bf16>(far_scores<cuda::bf16>(503));
    check<cuda::fp32>(far_scores<cuda::fp32>(504));
    const auto halves = cuda::tensor_core_attention<cuda::fp16, 64>::all;
    check<cuda::fp16>(far_scores<cuda::fp16>(505), 0, &halves);
    const auto rounded_floats = cuda::tensor_core_attention<cuda::tf32, 88>::all;
    check<cuda::tf32>(far_scores<cuda::tf32>(506), 0, &rounded_floats);
}

TEST_CASE("attention refuses shapes that it has no kernel for, and names what is wrong") {
    const auto refuses = [](const attention_shape& s, int batch, const std::string& culprit) {
        try {
            static_cast<void>(cuda::own_attention_engine<cuda::bf16>(s, batch));
        } catch (const pulse::input_error& e) { return std::string(e.what()).find(culprit) != std::string::npos; }
        return false;
    };
    CHECK(refuses({4, 1, 257}, 1, "head_size is 257"));
    CHECK(refuses({4, 1, 0}, 1, "head_size is 0"));
    CHECK(refuses({0, 1, 8}, 1, "tokens is 0"));
    CHECK(refuses({4, 0, 8}, 1, "heads is 0"));
    CHECK(refuses({4, 1, 8, -1}, 1, "context_tokens is -1"));
    CHECK(refuses({4, 1, 8}, 0, "batch is 0"));
    CHECK(refuses({4, 1, 8}, 70000, "batch is 70000"));
}

namespace {

/// Runs both passes by `by` twice and compares; the gradients of queries need the same bits only where pulse's kernels
/// compute them.
template <class P>
void check_chosen(cuda::attentions<P>& by, const attention_shape& s, int batch, std::uint32_t seed,
                  attention_engine forward, attention_engine backward) {
    using T = typename P::scalar;
    using pass = cuda::cudnn::attention_pass;
    CAPTURE(s.head_size);
    attention_case c = draw_attention<T>(s, batch, seed);
    solve_attention<P>(c);
    const device_queue queue;
    cuda::scratch_arena scratch{queue.stream()};
    CHECK(by.engine_of(queue.stream(), pass::forward, s, batch) == forward);
    CHECK(by.engine_of(queue.stream(), pass::backward, s, batch) == backward);
    const device_array<T> q(c.q);
    const device_array<T> k(c.k);
    const device_array<T> v(c.v);
    const device_array<T> dout(c.dout);
    const device_array<T> saved(c.o);
    const device_array<float> saved_lse(c.lse);
    device_array<T> o(c.queries());
    device_array<T> dq(c.queries());
    device_array<T> dk(c.keys());
    device_array<T> dv(c.keys());
    device_array<float> lse(c.rows());
    for (int turn = 0; turn != 2; ++turn) {
        by.forward(queue.on(), scratch, s, batch, q.data(), k.data(), v.data(), o.data(), lse.data());
        by.backward(queue.on(), scratch, s, batch, q.data(), k.data(), v.data(), saved.data(), saved_lse.data(),
                    dout.data(), dq.data(), dk.data(), dv.data());
        queue.synchronize();
        CHECK(worst_of(lse.download(), c.lse, c.lse_bound) < 1.0);
        CHECK(worst_of(o.download(), c.o, c.o_bound) < 1.0);
        CHECK(worst_of(dq.download(), c.dq, c.dq_bound) < 1.0);
        CHECK(worst_of(dk.download(), c.dk, c.dk_bound) < 1.0);
        CHECK(worst_of(dv.download(), c.dv, c.dv_bound) < 1.0);
        for (const device_array<T>* array : {&o, &dq, &dk, &dv}) { CHECK(array->intact()); }
    }
}

} // namespace

TEST_CASE("attention is cuDNN's where it has an engine and is asked for, and pulse's elsewhere") {
    constexpr auto own = attention_engine::tensor_cores;
    constexpr auto dnn = attention_engine::cudnn;
    std::uint32_t seed = 600;
    cuda::plan_options plans;
    plans.store = cuda::plan_store{};
    cuda::attentions<cuda::bf16> usual({}, plans);
    check_chosen(usual, {33, 2, 64, 70}, 2, ++seed, dnn, own);
    check_chosen(usual, {9, 2, 7}, 1, ++seed, attention_engine::fma, attention_engine::fma);
    cuda::attentions<cuda::bf16> all({.cudnn_forward = true, .cudnn_backward = true}, plans);
    check_chosen(all, {33, 2, 64, 70}, 2, ++seed, dnn, dnn);
    check_chosen(all, {16, 1, 88}, 1, ++seed, dnn, dnn);
    cuda::attentions<cuda::bf16> none({.cudnn_forward = false, .cudnn_backward = false}, plans);
    check_chosen(none, {33, 2, 64, 70}, 2, ++seed, own, own);
    cuda::attentions<cuda::fp32> single({.cudnn_forward = true, .cudnn_backward = true}, plans);
    check_chosen(single, {9, 2, 40}, 1, ++seed, attention_engine::fma, attention_engine::fma);
    CHECK(usual.report() == "attention forward, batch 1, 9 tokens to 9, 2 heads of 7: pulse, float arithmetic\n"
                            "attention forward, batch 2, 33 tokens to 70, 2 heads of 64: cuDNN\n"
                            "attention backward, batch 1, 9 tokens to 9, 2 heads of 7: pulse, float arithmetic\n"
                            "attention backward, batch 2, 33 tokens to 70, 2 heads of 64: pulse, tensor cores\n");
}
