#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <cublasLt.h>
#include <doctest/doctest.h>

#include <pulse/cuda/backend.cuh>
#include <pulse/nn/block.hpp>
#include <pulse/nn/spatial_transformer.hpp>
#include <pulse/runtime/layer_frame.hpp>
#include <pulse/runtime/linear_batch.hpp>

#include <compare.hpp>
#include <emulated/cublas_lt.hpp>

// A named namespace, as all test files may form one translation unit.
namespace batch_tests {
namespace {

namespace cuda = pulse::cuda;
namespace lt = emulated_cuda::cublas_lt;
using pulse::into;
using pulse::linear_batch_shape;
using namespace pulse::test;

cuda::engine_options keeping_nothing() {
    cuda::engine_options options;
    options.store = cuda::engine_store{};
    return options;
}

/// A cuda::backend that computes each product of a batch separately.
template <class P>
struct single_products : cuda::backend<P> {
    using cuda::backend<P>::backend;
    void linear_batch(auto...) = delete;
    void linear_batch_backward_weight(auto...) = delete;
};
static_assert(pulse::backend<single_products<cuda::bf16>> && !pulse::batches_linear<single_products<cuda::bf16>>);

std::int64_t executed() { return lt::executed(0) + lt::executed(1); }

/// Sets whether cuBLASLt knows batches, for the lifetime of this object.
struct batches_known {
    explicit batches_known(bool known) { lt::set_batches_supported(known); }
    batches_known(const batches_known&) = delete;
    batches_known& operator=(const batches_known&) = delete;
    ~batches_known() { lt::set_batches_supported(true); }
};

/// A batch gives the bits of its separate products; each pass runs `products` products.
template <class P>
void check_bits(const linear_batch_shape& s, std::int64_t rows, int products) {
    using T = typename P::scalar;
    CAPTURE(P::name);
    CAPTURE(s.weight_stride);
    CAPTURE(s.result_stride);
    source draw{7};
    cuda::backend<P> on{keeping_nothing()};
    const device_queue waiting;
    const std::int64_t weights = s.count * s.weight_stride;
    const std::int64_t results = s.count * s.result_stride;
    const tensor<T> x(draw.normal<T>(rows * s.each.in_features));
    const tensor<T> w(draw.normal<T>(weights));
    const tensor<T> dy(draw.normal<T>(results));
    const doubles y_before = draw.normal<T>(results);
    const doubles dw_before = draw.normal<float>(weights);
    for (const into how : {into::write, into::add}) {
        const tensor<T> y(y_before);
        const tensor<T> wanted_y(y_before);
        const tensor<float> dw(dw_before);
        const tensor<float> wanted_dw(dw_before);
        const std::int64_t begin = executed();
        on.linear_batch(s, rows, x.data(), w.data(), y.data(), how);
        on.synchronize();
        CHECK(executed() - begin == products);
        on.linear_batch_backward_weight(s, rows, x.data(), dy.data(), dw.data());
        on.synchronize();
        CHECK(executed() - begin == 2 * products);
        for (int i = 0; i != s.count; ++i) {
            on.linear(s.each, rows, x.data(), w.data() + i * s.weight_stride, nullptr,
                      wanted_y.data() + i * s.result_stride, how);
            on.linear_backward_weight(s.each, rows, x.data(), dy.data() + i * s.result_stride,
                                      wanted_dw.data() + i * s.weight_stride, nullptr);
        }
        on.synchronize();
        CHECK(y.download(waiting) == wanted_y.download(waiting));
        CHECK(dw.download(waiting) == wanted_dw.download(waiting));
        CHECK(y.intact(waiting));
        CHECK(dw.intact(waiting));
    }
}

template <class P>
void check_all_bits() {
    const std::int64_t step = 16 / static_cast<std::int64_t>(sizeof(typename P::scalar));
    // contiguous, with gaps, with a stride that is no multiple of 16 bytes
    check_bits<P>({{16, 8}, 3, 128, 72}, 9, 1);
    check_bits<P>({{16, 8}, 2, 128 + 8, 72 + step}, 9, 1);
    check_bits<P>({{7, 8}, 3, 56, 40}, 5, 1);
    check_bits<P>({{16, 8}, 3, 129, 72}, 9, 3);
    check_bits<P>({{16, 8}, 2, 128, 73}, 9, 2);
    check_bits<P>({{7, 3}, 3, 21, 15}, 5, 3);
    check_bits<P>({{16, 8}, 1, 128, 72}, 9, 1);
    const batches_known none{false};
    check_bits<P>({{16, 8}, 3, 128, 72}, 9, 3);
}

/// The tensors of a part's or a layer's passes.
template <class B>
struct trial {
    using T = typename B::scalar;
    B on{keeping_nothing()};
    std::vector<doubles> left{};
    std::vector<std::int64_t> products{}; ///< by pass

    template <class Math>
    void run(const Math& math, int batch) {
        source draw{3};
        const device_queue waiting;
        const auto sizes = pulse::nn::layout_of(math).sizes;
        const auto drawn = [&](std::int64_t n) { return tensor<T>(draw.normal<T>(batch * n, 0.5)); };
        const std::int64_t states = pulse::nn::elements(math.input());
        const tensor<T> input = drawn(states);
        const tensor<T> dy = drawn(states);
        const tensor<T> text = drawn(pulse::nn::elements(sizes.context));
        const tensor<T> parameters(draw.normal<T>(sizes.kept.parameters, 0.3));
        const tensor<float> gradients(draw.normal<float>(sizes.kept.parameters));
        const tensor<T> output(batch * states);
        const tensor<T> dx(batch * states);
        const tensor<T> dtext = drawn(pulse::nn::elements(sizes.context));
        const tensor<T> saved(batch * sizes.kept.saved);
        const tensor<T> deferred(batch * sizes.kept.deferred);
        const tensor<T> workspace(batch * sizes.workspace);
        const tensor<float> statistics(batch * sizes.kept.statistics);
        pulse::backend_frame<B> f{};
        f.batch = batch;
        f.input = input.data();
        f.context = text.data();
        f.parameters = parameters.data();
        f.output = output.data();
        f.saved = saved.data();
        f.statistics = statistics.data();
        f.output_gradient = dy.data();
        f.input_gradient = dx.data();
        f.context_gradient = dtext.data();
        f.deferred = deferred.data();
        f.parameter_gradients = gradients.data();
        f.workspace = workspace.data();
        std::int64_t before = executed();
        const auto note = [&] {
            on.synchronize();
            products.push_back(executed() - std::exchange(before, executed()));
        };
        before = executed();
        pulse::nn::run_forward(math, on, f);
        note();
        pulse::nn::run_backward_input(math, on, f);
        note();
        pulse::nn::run_backward_weight(math, on, f);
        note();
        left = {output.download(waiting), dx.download(waiting), dtext.download(waiting)};
        left.push_back(gradients.download(waiting));
    }
};

template <class P, class Math>
void check_math(const Math& math, const std::array<std::int64_t, 3>& together,
                const std::array<std::int64_t, 3>& singly) {
    trial<cuda::backend<P>> one;
    trial<single_products<P>> other;
    one.run(math, 2);
    other.run(math, 2);
    CHECK(one.left == other.left);
    CHECK(one.products == std::vector<std::int64_t>(together.begin(), together.end()));
    CHECK(other.products == std::vector<std::int64_t>(singly.begin(), singly.end()));
}

constexpr pulse::nn::text_attention core{
    .channels = 16, .height = 3, .width = 2, .heads = 2, .context_tokens = 3, .context_features = 24, .groups = 4};

} // namespace

TEST_CASE("batched products of one input have the bits of separate products") {
    check_all_bits<cuda::bf16>();
    check_all_bits<cuda::tf32>();
    check_all_bits<cuda::fp32>();
}

TEST_CASE("an attention makes the projections of an input in one product") {
    // input gradients are summed, so they are computed one after the other
    check_math<cuda::bf16>(core.self_attention(), {2, 4, 2}, {4, 4, 4});
    check_math<cuda::bf16>(core.cross_attention(), {3, 4, 3}, {4, 4, 4});
    check_math<cuda::tf32>(core.self_attention(), {2, 4, 2}, {4, 4, 4});
    check_math<cuda::fp32>(core.cross_attention(), {3, 4, 3}, {4, 4, 4});
}

TEST_CASE("a transformer has the bits that it has where each product is made on its own") {
    // four more products per pass: proj_in, proj_out and the two of the feed-forward
    check_math<cuda::bf16>(pulse::nn::spatial_transformer{core}, {9, 12, 9}, {12, 12, 12});
    check_math<cuda::fp32>(pulse::nn::spatial_transformer{core}, {9, 12, 9}, {12, 12, 12});
}

TEST_CASE("batches that make no sense are refused by name") {
    cuda::backend<cuda::fp32> on{keeping_nothing()};
    const tensor<float> some(64);
    for (const linear_batch_shape& s : {linear_batch_shape{{4, 2}, 0, 8, 6}, linear_batch_shape{{4, 2}, 2, 7, 6},
                                        linear_batch_shape{{4, 2}, 2, 8, 5}, linear_batch_shape{{0, 2}, 2, 8, 6}}) {
        CAPTURE(s.count);
        CHECK_THROWS_WITH_AS(on.linear_batch(s, 3, some.data(), some.data(), some.data(), into::write),
                             doctest::Contains("pulse: linear_batch: "), pulse::input_error);
        CHECK_THROWS_WITH_AS(on.linear_batch_backward_weight(s, 3, some.data(), some.data(), some.data()),
                             doctest::Contains("pulse: linear_batch_backward_weight: "), pulse::input_error);
    }
}

TEST_CASE("the emulated cuBLASLt refuses batches that overlap, differ in number or promise too much") {
    const cuda::cublas::library library = cuda::cublas::open_library();
    using cuda::cublas::product;
    product p{.rows = 8, .columns = 4, .depth = 8, .stride_a = 8, .stride_b = 8, .stride_d = 8};
    p.type = p.type_d = CUDA_R_32F;
    p.batch = 3;
    p.batch_a = 64;
    p.batch_d = 32;
    const auto count = [&](const product& asked) {
        return cuda::cublas::prepared_product{asked}.proposals(library, 1 << 20, 8).size();
    };
    CHECK(count(p) == 2);
    product changed = p;
    changed.batch_d = 31; // overlaps: one's last column, the next one's first
    CHECK(count(changed) == 0);
    changed = p;
    changed.batch_d = 8; // interleaved within the columns of the first
    changed.stride_d = 24;
    CHECK(count(changed) == 2);
    changed.stride_d = 23;
    CHECK(count(changed) == 0);
    changed = p;
    changed.batch_a = 63; // leaves only the algorithm that needs no 16-byte alignment
    CHECK(count(changed) == 1);
    changed = p;
    changed.beside = cuda::cublas::extra::bias;
    CHECK(count(changed) == 0);

    const auto layout = cuda::cublas::make_layout(CUDA_R_32F, 8, 4, 8);
    CHECK_THROWS_AS(cuda::cublas::set_batch(layout, 0, 32), cuda::cublas::cublas_error);
    CHECK_THROWS_AS(cuda::cublas::set_batch(layout, 2, -1), cuda::cublas::cublas_error);
}

} // namespace batch_tests
