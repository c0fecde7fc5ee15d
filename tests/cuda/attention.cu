#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <type_traits>
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
#include <device_array.hpp>
#include <drawn_shapes.hpp>

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

/// Operands and results of a case on the device; they begin `shift` numbers behind an aligned place.
template <class T>
class device_case {
public:
    explicit device_case(const attention_case& c, std::size_t shift) :
        c_(c), shift_(shift), q_(shifted(c.q)), k_(shifted(c.k)), v_(shifted(c.v)), dout_(shifted(c.dout)),
        saved_(shifted(c.o)), saved_lse_(c.lse), o_(shift + c.queries()), dq_(shift + c.queries()),
        dk_(shift + c.keys()), dv_(shift + c.keys()), lse_(c.rows()) {}

    /// Calls forward(q, k, v, o, lse) and backward(q, k, v, o, lse, dout, dq, dk, dv) over poisoned results.
    template <class Forward, class Backward>
    void run(const device_queue& queue, Forward forward, Backward backward) {
        for (device_array<T>* array : results()) { array->poison(); }
        lse_.poison();
        forward(at(q_), at(k_), at(v_), at(o_), lse_.data());
        backward(at(q_), at(k_), at(v_), at(saved_), saved_lse_.data(), at(dout_), at(dq_), at(dk_), at(dv_));
        queue.synchronize();
    }
    /// The results' bits.
    [[nodiscard]] std::vector<std::vector<T>> bits() {
        std::vector<std::vector<T>> all;
        for (const device_array<T>* array : results()) {
            const std::vector<T> raw = array->raw();
            all.emplace_back(raw.begin() + static_cast<std::ptrdiff_t>(shift_), raw.end());
        }
        return all;
    }
    void compare() {
        CHECK(worst_of(lse_.download(), c_.lse, c_.lse_bound) < 1.0);
        CHECK(worst_of(behind(o_), c_.o, c_.o_bound) < 1.0);
        CHECK(worst_of(behind(dq_), c_.dq, c_.dq_bound) < 1.0);
        CHECK(worst_of(behind(dk_), c_.dk, c_.dk_bound) < 1.0);
        CHECK(worst_of(behind(dv_), c_.dv, c_.dv_bound) < 1.0);
        for (const device_array<T>* array : results()) { CHECK(array->intact()); }
        CHECK(lse_.intact());
    }

private:
    [[nodiscard]] std::vector<device_array<T>*> results() { return {&o_, &dq_, &dk_, &dv_}; }
    [[nodiscard]] T* at(const device_array<T>& array) const { return array.data() + shift_; }
    [[nodiscard]] std::vector<double> shifted(const std::vector<double>& values) const {
        std::vector<double> all(shift_, 0.0);
        all.insert(all.end(), values.begin(), values.end());
        return all;
    }
    [[nodiscard]] std::vector<double> behind(const device_array<T>& array) const {
        const std::vector<double> values = array.download();
        return {values.begin() + static_cast<std::ptrdiff_t>(shift_), values.end()};
    }

    const attention_case& c_;
    std::size_t shift_;
    device_array<T> q_, k_, v_, dout_, saved_;
    device_array<float> saved_lse_;
    device_array<T> o_, dq_, dk_, dv_;
    device_array<float> lse_;
};

/// Runs both passes twice and compares. By the given kernels, or by those that the policy chooses.
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
    std::size_t scratch = 0;
    if constexpr (runs_by_policy<P>) {
        scratch = cuda::attention_backward_scratch_bytes<P>(s, c.batch);
    } else {
        scratch = cuda::attention_backward_scratch_bytes_by(*by, s, c.batch);
    }
    const device_queue queue(scratch);
    device_case<T> on_device(c, shift);
    std::vector<std::vector<T>> first;
    for (int turn = 0; turn != 2; ++turn) {
        if constexpr (runs_by_policy<P>) {
            on_device.run(
                queue, [&](auto... a) { cuda::attention<P>(queue.on(), s, c.batch, a...); },
                [&](auto... a) { cuda::attention_backward<P>(queue.on(), s, c.batch, a...); });
        } else {
            on_device.run(
                queue, [&](auto... a) { cuda::attention_by<T>(*by, queue.on(), s, c.batch, a...); },
                [&](auto... a) { cuda::attention_backward_by<T>(*by, queue.on(), s, c.batch, a...); });
        }
        if (turn == 0) { first = on_device.bits(); }
    }
    const std::vector<std::vector<T>> second = on_device.bits();
    for (std::size_t i = 0; i != first.size(); ++i) { CHECK(same_bits(first[i], second[i])); }
    on_device.compare();
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
    // an odd number of queries: what is written in pairs is aligned nevertheless (sanitizers see it)
    const attention_shape uneven{257, 1, 40, 3};
    CHECK(cuda::attention_parts(uneven, 1,
                                cuda::attention_launches_of<cuda::bf16>(attention_engine::tensor_cores, uneven)) == 2);
    check<cuda::bf16>(uneven, 1, 302, attention_engine::tensor_cores);
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

/// Runs both passes by `by` and compares.
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

TEST_CASE("attention is cuDNN's where it has an engine and is asked for, and pulse's elsewhere") {
    constexpr auto own = attention_engine::tensor_cores;
    constexpr auto dnn = attention_engine::cudnn;
    std::uint32_t seed = 600;
    cuda::engine_options engines;
    engines.store = cuda::engine_store{};
    // what is wrong with some version on some device is pulse's there
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
    // what is not aligned is not cuDNN's
    check_chosen(all, shape, batch, ++seed, dnn, backward(shape), 3);
    // nor is one query
    check_chosen(all, {1, 2, 64, 70}, 1, ++seed, own, own);
    cuda::attentions<cuda::bf16> none({.cudnn_forward = false, .cudnn_backward = false}, engines);
    check_chosen(none, shape, batch, ++seed, own, own);
    cuda::attentions<cuda::fp32> single({.cudnn_forward = true, .cudnn_backward = true}, engines);
    check_chosen(single, {9, 2, 40}, 1, ++seed, attention_engine::fma, attention_engine::fma);
    // In what words cuDNN has no engine for heads of 7 is its own business.
    std::string said = usual.report();
    const std::size_t reason = said.find("; cuDNN: ");
    REQUIRE(reason != std::string::npos);
    said.erase(reason, said.find('\n', reason) - reason);
    CHECK(said == "attention forward, batch 1, 9 tokens to 9, 2 heads of 7: pulse, float arithmetic\n"
                  "attention forward, batch 2, 33 tokens to 70, 2 heads of 64: cuDNN\n"
                  "attention backward, batch 1, 9 tokens to 9, 2 heads of 7: pulse, float arithmetic\n"
                  "attention backward, batch 2, 33 tokens to 70, 2 heads of 64: pulse, tensor cores\n");
}
