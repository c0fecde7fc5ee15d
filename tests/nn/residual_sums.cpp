#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <support/tallying_backend.hpp>
#include <pulse/nn/attention.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/dit_block.hpp>
#include <pulse/nn/resnet.hpp>
#include <pulse/nn/spatial_transformer.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/runtime/residual_sums.hpp>

// A named namespace, as all test files may form one translation unit.
namespace residual_sum_tests {
namespace {

using namespace pulse;
using plain = test::tallying_backend<double>;

/// The reference backend with support for residuals.
struct summing_backend : plain {
    void conv2d(const conv2d_shape& s, int batch, const double* x, const double* w, const double* bias, double* y,
                into how, const double* residual = nullptr) {
        plain::conv2d(s, batch, x, w, bias, y, residual == nullptr ? how : into::write);
        sum(batch * s.out_elements(), residual, y, how);
    }
    void conv2d_per_sample(const conv2d_shape& s, int batch, const double* x, const double* w, const double* bias,
                           const double* t, double* y) {
        ++seen["conv2d_per_sample"];
        plain::conv2d(s, batch, x, w, bias, y, into::write);
        reference::backend<double>::add_per_sample(batch, s.out_height() * s.out_width(), s.out_channels, t, y);
    }
    void linear(const linear_shape& s, std::int64_t rows, const double* x, const double* w, const double* bias,
                double* y, into how, const double* residual = nullptr) {
        plain::linear(s, rows, x, w, bias, y, residual == nullptr ? how : into::write);
        sum(rows * s.out_features, residual, y, how);
    }
    void group_norm_backward(const group_norm_shape& s, int batch, const double* xa, const double* xb, const double* g,
                             const double* b, const double* statistics, const double* dy, double* dxa, double* dxb,
                             gradient_place<double> dg, gradient_place<double> db, into how,
                             const double* residual = nullptr) {
        begin(std::int64_t{batch} * s.pixels * s.channels, residual, dxa, how);
        plain::group_norm_backward(s, batch, xa, xb, g, b, statistics, dy, dxa, dxb, dg, db, how);
    }
    void layer_norm_backward(const layer_norm_shape& s, std::int64_t rows, const double* x, const double* g,
                             const double* statistics, const double* dy, double* dx, gradient_place<double> dg,
                             gradient_place<double> db, into how, const double* residual = nullptr) {
        begin(rows * s.features, residual, dx, how);
        plain::layer_norm_backward(s, rows, x, g, statistics, dy, dx, dg, db, how);
    }
    void adaptive_norm_backward(const adaptive_norm_shape& s, int batch, const double* x, const double* g,
                                const double* b, const double* scale, const double* statistics, const double* dy,
                                double* dx, gradient_place<double> dg, gradient_place<double> db, double* dscale,
                                double* dshift, into how, const double* residual = nullptr) {
        begin(std::int64_t{batch} * s.tokens * s.features, residual, dx, how);
        plain::adaptive_norm_backward(s, batch, x, g, b, scale, statistics, dy, dx, dg, db, dscale, dshift, how);
    }

private:
    void sum(std::int64_t n, const double* residual, double* y, into how) {
        if (residual == nullptr) { return; }
        ++seen["residual"];
        CHECK(how == into::add);
        reference::backend<double>::add(n, residual, y);
    }
    void begin(std::int64_t n, const double* residual, double* dx, into how) {
        if (residual == nullptr) { return; }
        ++seen["residual"];
        CHECK(how == into::add);
        reference::backend<double>::copy(n, residual, dx);
    }
};
static_assert(sums_residuals<summing_backend> && !sums_residuals<plain>);

/// Everything that a layer's passes produce; `wants_dx`: its input gradient is requested.
template <class B, class Math>
std::vector<double> run(B& on, const Math& math, bool wants_dx) {
    constexpr int batch = 2;
    const auto sizes = nn::layout_of(math).sizes;
    std::mt19937 random{8};
    const auto drawn = [&](std::int64_t n) {
        std::normal_distribution<double> draw;
        std::vector<double> made(static_cast<std::size_t>(n));
        for (double& v : made) { v = draw(random); }
        return made;
    };
    const std::int64_t in = nn::elements(math.input());
    const std::int64_t out = nn::elements(math.output());
    const auto parameters = drawn(sizes.kept.parameters);
    const auto input = drawn(batch * in);
    const auto dy = drawn(batch * out);
    const auto text = drawn(batch * nn::elements(sizes.context));
    const auto skip = drawn(batch * nn::elements(sizes.skip));
    const auto conditioning = drawn(std::int64_t{batch} * sizes.conditioning);
    auto dtext = drawn(batch * nn::elements(sizes.context));
    auto dconditioning = drawn(std::int64_t{batch} * sizes.conditioning);
    auto gradients = drawn(sizes.kept.parameters);
    std::vector<double> output(static_cast<std::size_t>(batch * out));
    std::vector<double> dx(input.size());
    std::vector<double> dskip(skip.size());
    std::vector<double> saved(static_cast<std::size_t>(batch * sizes.kept.saved));
    std::vector<double> statistics(static_cast<std::size_t>(batch * sizes.kept.statistics));
    std::vector<double> deferred(static_cast<std::size_t>(batch * sizes.kept.deferred));
    std::vector<double> workspace(static_cast<std::size_t>(batch * sizes.workspace));
    layer_frame<double> f{};
    f.batch = batch;
    f.input = input.data();
    f.skip = skip.empty() ? nullptr : skip.data();
    f.context = text.data();
    f.conditioning = conditioning.data();
    f.parameters = parameters.data();
    f.output = output.data();
    f.saved = saved.data();
    f.statistics = statistics.data();
    f.output_gradient = dy.data();
    f.input_gradient = wants_dx ? dx.data() : nullptr;
    f.skip_gradient = dskip.empty() ? nullptr : dskip.data();
    f.context_gradient = dtext.data();
    f.conditioning_gradient = dconditioning.data();
    f.deferred = deferred.data();
    f.parameter_gradients = gradients.data();
    f.workspace = workspace.data();
    nn::run_forward(math, on, f);
    nn::run_backward_input(math, on, f);
    nn::run_backward_weight(math, on, f);
    for (const auto& more : {dx, dskip, dtext, dconditioning, gradients}) {
        output.insert(output.end(), more.begin(), more.end());
    }
    return output;
}

struct counts {
    int adds, copies, vectors; ///< calls on a backend without sums
};

/// A backend with sums gets no addition and no copy, and both give the same results.
template <class Math>
void check(const Math& math, const counts& wanted, bool wants_dx = true) {
    plain apart;
    summing_backend together;
    CHECK(run(together, math, wants_dx) == run(apart, math, wants_dx));
    CHECK(apart.seen["add"] == wanted.adds);
    CHECK(apart.seen["copy"] == wanted.copies);
    CHECK(apart.seen["add_per_sample"] == wanted.vectors);
    CHECK(together.seen["add"] == 0);
    CHECK(together.seen["copy"] == 0);
    CHECK(together.seen["add_per_sample"] == 0);
    CHECK(together.seen["residual"] == wanted.adds + wanted.copies);
    CHECK(together.seen["conv2d_per_sample"] == wanted.vectors);
}

constexpr nn::text_attention core{
    .channels = 8, .height = 3, .width = 2, .heads = 2, .context_tokens = 3, .context_features = 5, .groups = 4};
constexpr nn::resnet same{.in_channels = 4, .out_channels = 4, .height = 3, .width = 2, .groups = 2, .conditioning = 5};

} // namespace

TEST_CASE("parts of transformers ask for a residual and what is added to it at once") {
    check(core.self_attention(), {1, 1, 0});
    check(core.cross_attention(), {1, 1, 0});
    check(core.feed_forward(), {1, 1, 0});
    check(nn::spatial_transformer{core}, {4, 4, 0});
    check(nn::spatial_transformer{.core = core, .depth = 2, .linear_projection = false}, {7, 7, 0});
    // without a reader, the gradient of the norm before the first block is added to nothing
    check(nn::spatial_transformer{core}, {4, 3, 0}, false);
}

TEST_CASE("an attention over pixels asks for its residual and what is added to it at once") {
    constexpr nn::attention of{.channels = 8, .height = 2, .width = 3, .groups = 2, .heads = 2};
    check(of, {1, 1, 0});
    check(of, {1, 0, 0}, false);
}

TEST_CASE("a ResNet asks for its residual and the time's projection with its convolutions") {
    check(same, {1, 1, 1});
    check(same, {1, 0, 1}, false);
    nn::resnet other = same;
    other.conditioning = 0;
    check(other, {1, 1, 0});
    // a shortcut computes the residual
    other = same;
    other.out_channels = 6;
    check(other, {0, 0, 1});
    other.skip_channels = 2;
    check(other, {0, 0, 1});
}

TEST_CASE("a block of Hunyuan-DiT asks for its residuals and what is added to them at once") {
    nn::dit_block of{.rows = 2,
                     .columns = 3,
                     .width = 8,
                     .heads = 2,
                     .hidden = 12,
                     .context_tokens = 3,
                     .context_features = 5,
                     .span = 4};
    check(of, {3, 3, 0});
}

} // namespace residual_sum_tests
