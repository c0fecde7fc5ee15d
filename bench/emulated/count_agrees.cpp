// Checks that a counted step has as many kernels as the same program executes on the same device, and that operations
// move the bytes counted by hand.
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>

#include <emulated/runtime.hpp>

#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/stream.cuh>

#include "../blocks_count.hpp"
#include "../counted_operations.hpp"
#include "../ledger.hpp"
#include "../product_shapes.hpp"
#include "../training_step.hpp"

namespace {

using pulse_bench::party;
using pulse_bench::work_kind;
using scalar = pulse_bench::counted_operations::scalar;
template <class T>
using memory = pulse::cuda::device_memory<T>;

constexpr pulse_bench::card plain_card{emulated_cuda::multiprocessors, 1e12, 1e12};
int failed = 0;

void check(const char* what, double found, double wanted) {
    std::printf("%s: %.0f, by hand %.0f\n", what, found, wanted);
    failed += found == wanted ? 0 : 1;
}

/// Kernels executed in `rounds` steps and the three before them.
std::int64_t kernels_of(int rounds) {
    const std::int64_t before = emulated_cuda::executed_kernels();
    const pulse_bench::step_figures found = pulse_bench::measure_small({1, rounds});
    if (!found.failure.empty()) { std::printf("%s\n", found.failure.c_str()); }
    return emulated_cuda::executed_kernels() - before;
}

/// The ledger of what `ask` runs on the backend.
pulse_bench::ledger book_of(const std::function<void(pulse_bench::counted_operations&)>& ask) {
    pulse_bench::work_counter counter{plain_card};
    const emulated_cuda::counting counted{
        {.note = [&](const emulated_cuda::work& what) { return counter.note(what); }}};
    const pulse::cuda::stream main;
    {
        pulse_bench::counted_operations math{main.get(), counter};
        counter.start();
        ask(math);
        math.synchronize();
    }
    return counter.finished();
}

double bytes_of(const pulse_bench::ledger& book, work_kind kind) { return book.of(party::pulse, kind).bytes; }

/// With a separate residual, or with none.
void check_norm(bool onto) {
    constexpr int pixels = 96 * 96; // too many to stay in shared memory
    constexpr int channels = 320;
    constexpr double n = pixels * channels;
    const auto book = book_of([&](auto& math) {
        const memory<scalar> x(pixels * channels), dy(pixels * channels), affine(2 * channels);
        const memory<scalar> residual(pixels * channels);
        const memory<float> statistics(64), gradients(2 * channels);
        memory<scalar> dx(pixels * channels);
        math.group_norm_backward({.channels = channels, .groups = 32, .pixels = pixels}, 1, x.data(), nullptr,
                                 affine.data(), affine.data() + channels, statistics.data(), dy.data(), dx.data(),
                                 nullptr, const_cast<float*>(gradients.data()),
                                 const_cast<float*>(gradients.data()) + channels,
                                 onto ? pulse::into::add : pulse::into::write, onto ? residual.data() : nullptr);
    });
    // x and dy for the sums; x, dy and dx, and the residual; both gradients read and written
    check("GroupNorm backward", bytes_of(book, work_kind::group_norm_backward),
          2 * 2 * n + (onto ? 4 : 3) * 2 * n + 16 * channels);
}

void check_attention() {
    constexpr int tokens = 1024;
    constexpr int keys = 77; // few: the queries are cut into parts
    constexpr int width = 2 * 64;
    const auto book = book_of([](auto& math) {
        const memory<scalar> q(tokens * width), k(keys * width), v(keys * width), o(tokens * width);
        memory<scalar> dout(tokens * width), dq(tokens * width), dk(keys * width), dv(keys * width);
        const memory<float> lse(2 * tokens);
        math.attention_backward({tokens, 2, 64, keys}, 1, q.data(), k.data(), v.data(), o.data(), lse.data(),
                                dout.data(), dq.data(), dk.data(), dv.data());
    });
    // o, dout; q, dout, k, v, dk, dv; q, dout, k, v, dq
    constexpr double wanted = 2.0 * width * ((2 + 2 + 3) * tokens + (4 + 2) * keys);
    check("attention backward", bytes_of(book, work_kind::attention_backward), wanted);
    check("its FLOP", book.of(party::pulse, work_kind::attention_backward).flops, 7 * 2.0 * tokens * keys * width);
    check("its kernels", book.of(party::pulse, work_kind::attention_backward).kernels, 4);
}

void check_convolution() {
    constexpr pulse::conv2d_shape s{.in_channels = 64, .out_channels = 32, .in_height = 16, .in_width = 16};
    const std::int64_t x_size = s.in_elements();
    const std::int64_t y_size = s.out_elements();
    const std::int64_t w_size = s.weight_elements();
    const auto book = book_of([&](auto& math) {
        const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
        const memory<scalar> x(size(x_size)), w(size(w_size)), bias(32), vector(32), residual(size(y_size));
        memory<scalar> y(size(y_size));
        memory<float> dw(size(w_size)), dbias(32);
        math.conv2d(s, 1, x.data(), w.data(), bias.data(), y.data(), pulse::into::write);
        // the residual is read, without another kernel
        math.conv2d(s, 1, x.data(), w.data(), bias.data(), y.data(), pulse::into::add, residual.data());
        math.conv2d_per_sample(s, 1, x.data(), w.data(), bias.data(), vector.data(), y.data());
        math.conv2d_backward_weight(s, 1, x.data(), y.data(), dw.data(), dbias.data());
    });
    const auto all = static_cast<double>(x_size + y_size + w_size);
    check("convolutions with bias", bytes_of(book, work_kind::convolution_forward),
          3 * (2 * all + 2 * 32) + 2 * static_cast<double>(y_size) + 2 * 32);
    check("their kernels", book.of(party::pulse, work_kind::convolution_forward).kernels, 3);
    check("kernels beside them", book.of(party::pulse, work_kind::pointwise).kernels, 0);
    // the library's gradient is written in bfloat16 and read; the float gradient is read and written
    check("convolution wgrad", bytes_of(book, work_kind::convolution_wgrad),
          2 * all + 10 * static_cast<double>(w_size));
}

void check_projections() {
    constexpr std::int64_t rows = 96;
    constexpr pulse::linear_batch_shape s{{64, 32}, 3, 64 * 32, rows * 32};
    const auto book = book_of([&](auto& math) {
        const memory<scalar> x(rows * 64), w(3 * 64 * 32);
        memory<scalar> y(3 * rows * 32);
        memory<float> dw(3 * 64 * 32);
        math.linear_batch(s, rows, x.data(), w.data(), y.data(), pulse::into::write);
        math.linear_batch_backward_weight(s, rows, x.data(), y.data(), dw.data());
    });
    // the input once; gradients in float, read and written
    constexpr double scalars = rows * 64 + 3 * rows * 32;
    constexpr double weights = 3 * 64 * 32;
    check("projections of an input", bytes_of(book, work_kind::product_forward), 2 * (scalars + weights));
    check("projections wgrad", bytes_of(book, work_kind::product_wgrad), 2 * scalars + 8 * weights);
    for (const work_kind kind : {work_kind::product_forward, work_kind::product_wgrad}) {
        check("kernels of three", book.of(party::pulse, kind).kernels, 1);
        check("at least", book.of(party::least, kind).kernels, 1);
        check("in torch", book.of(party::torch, kind).kernels, 3);
        check("FLOP of three", book.of(party::pulse, kind).flops, 3 * 2.0 * rows * 64 * 32);
        check("in torch", book.of(party::torch, kind).flops, 3 * 2.0 * rows * 64 * 32);
    }
}

/// Shapes by hand; one whose FLOP differ from what the library is given would be refused.
void check_shapes() {
    static constexpr pulse::conv2d_shape s{.in_channels = 96,
                                           .out_channels = 32,
                                           .in_height = 8,
                                           .in_width = 8,
                                           .kernel = 1,
                                           .pad_before = 0,
                                           .pad_after = 0};
    const auto book = book_of([](auto& math) {
        const memory<scalar> a(64 * 64), b(64 * 32), w(96 * 32), bias(32);
        memory<scalar> y(64 * 32);
        memory<float> dw(3 * 64 * 32), dbias(32);
        math.conv2d_pair(s, 32, 1, a.data(), b.data(), w.data(), bias.data(), y.data(), pulse::into::write);
        math.linear_backward_input({96, 32}, 1, y.data(), w.data(), a.data(), pulse::into::write);
        math.linear_backward_weight({64, 32}, 64, a.data(), y.data(), dw.data(), dbias.data());
        math.linear_batch_backward_weight({{64, 32}, 3, 64 * 32, 1024}, 32, a.data(), w.data(), dw.data());
    });
    const std::map<pulse_bench::product_shape, double> wanted{
        {{32, 64, 64, true, false, false, false, true}, 1}, // each input of the pair, weights transposed
        {{32, 64, 32, true, false, false, true}, 1},
        {{96, 1, 32}, 1},
        {{64, 32, 64, false, true, true, true, true}, 1},
        {{64, 32, 32, false, true, true, true, false, 3}, 1}};
    check("shapes of products", static_cast<double>(book.products().size()), static_cast<double>(wanted.size()));
    for (const auto& [shape, times] : wanted) {
        const auto found = book.products().find(shape);
        check("products of a shape", found == book.products().end() ? 0 : found->second.kernels, times);
    }
}

/// Sums over all shapes equal those over the kinds.
void check_products(const pulse_bench::ledger& book) {
    pulse_bench::work_amount shapes;
    double by_shape = 0;
    for (const auto& [shape, amount] : book.products()) {
        shapes += amount;
        by_shape += shape.flops() * amount.kernels;
    }
    pulse_bench::work_amount kinds;
    for (const work_kind kind : {work_kind::product_forward, work_kind::product_dgrad, work_kind::product_wgrad}) {
        kinds += book.of(party::pulse, kind);
    }
    check("products by shape", shapes.kernels, kinds.kernels);
    check("their FLOP", by_shape, kinds.flops);
    check("their bytes", shapes.bytes, kinds.bytes);
}

} // namespace

int main() {
    const std::int64_t run = kernels_of(2) - kernels_of(1);
    const pulse_bench::counted_step found = pulse_bench::count_small(1, plain_card);
    const auto counted = static_cast<std::int64_t>(found.book.total(party::pulse).kernels) - found.runtime_calls;
    check("kernels", static_cast<double>(counted), static_cast<double>(run));
    // prediction, target and gradient; 65 sums in each of two kernels
    check("loss", bytes_of(found.book, work_kind::loss), 3 * 2 * 4 * 8 * 8 + 2 * 65 * 8);
    check_norm(false);
    check_norm(true);
    check_attention();
    check_convolution();
    check_projections();
    check_shapes();
    check_products(found.book);
    return failed == 0 && run > 0 ? 0 : 1;
}
