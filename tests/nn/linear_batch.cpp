#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <support/tallying_backend.hpp>
#include <pulse/nn/linear_batch.hpp>
#include <pulse/nn/token_parts.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/runtime/linear_batch.hpp>

// A named namespace, as all test files may form one translation unit.
namespace linear_batch_tests {
namespace {

using namespace pulse;
using plain = reference::backend<double>;

/// The reference backend with batched products; it records the size of each batch.
struct batching_backend : plain {
    std::vector<int> counts{};

    void linear(auto... of) {
        counts.push_back(1);
        plain::linear(of...);
    }
    void linear_backward_weight(auto... of) {
        counts.push_back(1);
        plain::linear_backward_weight(of...);
    }
    void linear_batch(const linear_batch_shape& s, std::int64_t rows, const double* x, const double* w, double* y,
                      into how) {
        counts.push_back(s.count);
        CHECK(s.sound(rows));
        for (int i = 0; i != s.count; ++i) {
            plain::linear(s.each, rows, x, w + i * s.weight_stride, nullptr, y + i * s.result_stride, how);
        }
    }
    void linear_batch_backward_weight(const linear_batch_shape& s, std::int64_t rows, const double* x, const double* dy,
                                      gradient_place<double> dw) {
        counts.push_back(s.count);
        CHECK(s.sound(rows));
        for (int i = 0; i != s.count; ++i) {
            plain::linear_backward_weight(s.each, rows, x, dy + i * s.result_stride, dw + i * s.weight_stride, nullptr);
        }
    }
};
static_assert(batches_linear<batching_backend> && !batches_linear<plain>);

std::vector<double> drawn(std::mt19937& random, std::size_t n) {
    std::normal_distribution<double> draw;
    std::vector<double> made(n);
    for (double& v : made) { v = draw(random); }
    return made;
}

constexpr linear_shape matrix{3, 2};
constexpr std::int64_t rows = 5;
constexpr std::int64_t weight = 6;
constexpr std::int64_t result = 10;

/// Where the weights and results of three products begin.
struct places {
    std::array<std::int64_t, 3> weights;
    std::array<std::int64_t, 3> results;
    std::vector<int> counts;
};

/// Everything that the passes of a part of a transformer produce.
template <class B>
std::vector<double> run(B& on, const nn::token_attention& part) {
    constexpr int batch = 2;
    const auto layout = nn::layout_of(part);
    std::mt19937 random{8};
    const auto size = [](std::int64_t n) { return static_cast<std::size_t>(batch * n); };
    const auto parameters = drawn(random, static_cast<std::size_t>(layout.sizes.kept.parameters));
    const auto input = drawn(random, size(part.states()));
    const auto dy = drawn(random, size(part.states()));
    const auto text = drawn(random, size(nn::elements(layout.sizes.context)));
    std::vector<double> output(input.size());
    std::vector<double> dx(input.size());
    std::vector<double> saved(size(layout.sizes.kept.saved));
    std::vector<double> statistics(size(layout.sizes.kept.statistics));
    std::vector<double> deferred(size(layout.sizes.kept.deferred));
    std::vector<double> workspace(size(layout.sizes.workspace));
    std::vector<double> gradients = drawn(random, parameters.size());
    layer_frame<double> f{};
    f.batch = batch;
    f.input = input.data();
    f.context = text.data();
    f.parameters = parameters.data();
    f.output = output.data();
    f.saved = saved.data();
    f.statistics = statistics.data();
    f.output_gradient = dy.data();
    f.input_gradient = dx.data();
    f.deferred = deferred.data();
    f.parameter_gradients = gradients.data();
    f.workspace = workspace.data();
    part.forward(on, f, layout.pieces);
    part.backward_input(on, f, layout.pieces);
    part.backward_weight(on, f, layout.pieces);
    output.insert(output.end(), dx.begin(), dx.end());
    output.insert(output.end(), gradients.begin(), gradients.end());
    return output;
}

} // namespace

TEST_CASE("products of one input are asked for at once as far as they lie at equal distances") {
    std::mt19937 random{4};
    const auto x = drawn(random, rows * matrix.in_features);
    for (const places& at : {places{{0, weight, 2 * weight}, {0, result, 2 * result}, {3}},
                             places{{0, weight + 1, 2 * weight + 2}, {0, 2 * result, 4 * result}, {3}},
                             places{{0, weight, 2 * weight + 1}, {0, result, 2 * result}, {2, 1}},
                             places{{0, weight, 2 * weight}, {0, result, 3 * result}, {2, 1}},
                             places{{2 * weight, weight, 0}, {0, result, 2 * result}, {1, 1, 1}},
                             places{{0, weight, 2 * weight}, {2 * result, result, 0}, {1, 1, 1}},
                             places{{2 * weight, 0, weight}, {0, result, 2 * result}, {1, 2}}}) {
        CAPTURE(at.counts.size());
        const auto w = drawn(random, 4 * weight);
        const auto dy = drawn(random, 5 * result);
        const auto before = drawn(random, 4 * weight);
        const auto made = [&](auto& on) {
            std::vector<double> y(5 * result);
            std::vector<double> dw = before;
            nn::linear_batch(on, matrix, rows, x.data(),
                             {{w.data() + at.weights[0], y.data() + at.results[0]},
                              {w.data() + at.weights[1], y.data() + at.results[1]},
                              {w.data() + at.weights[2], y.data() + at.results[2]}});
            nn::linear_batch_backward_weight(on, matrix, rows, x.data(),
                                             {{dw.data() + at.weights[0], dy.data() + at.results[0]},
                                              {dw.data() + at.weights[1], dy.data() + at.results[1]},
                                              {dw.data() + at.weights[2], dy.data() + at.results[2]}});
            y.insert(y.end(), dw.begin(), dw.end());
            return y;
        };
        plain singly;
        batching_backend together;
        CHECK(made(together) == made(singly));
        std::vector<int> twice = at.counts;
        twice.insert(twice.end(), at.counts.begin(), at.counts.end());
        CHECK(together.counts == twice);
    }
}

TEST_CASE("gradients are asked for at once as far as they are all written or all added to") {
    std::mt19937 random{6};
    const auto x = drawn(random, rows * matrix.in_features);
    const auto dy = drawn(random, 3 * result);
    const auto before = drawn(random, 3 * weight);
    using place = gradient_place<double>;
    using modes = std::array<into, 3>;
    const auto made = [&](auto& on, const modes& how) {
        std::vector<double> dw = before;
        nn::linear_batch_backward_weight(on, matrix, rows, x.data(),
                                         {{place{dw.data(), how[0]}, dy.data()},
                                          {place{dw.data() + weight, how[1]}, dy.data() + result},
                                          {place{dw.data() + 2 * weight, how[2]}, dy.data() + 2 * result}});
        return dw;
    };
    const auto check = [&](const modes& how, const std::vector<int>& counts) {
        plain singly;
        batching_backend together;
        CHECK(made(together, how) == made(singly, how));
        CHECK(together.counts == counts);
    };
    check({into::write, into::write, into::write}, {3});
    check({into::write, into::write, into::add}, {2, 1});
    check({into::add, into::write, into::write}, {1, 2});
    check({into::add, into::write, into::add}, {1, 1, 1});
}

TEST_CASE("an attention asks at once for what its input is projected to") {
    using counts = std::vector<int>;
    nn::token_attention part{.tokens = 6, .width = 8, .heads = 2, .norm_name = "norm", .name = "attn"};
    const auto check = [&](const counts& wanted) {
        plain singly;
        batching_backend together;
        CHECK(run(together, part) == run(singly, part));
        CHECK(together.counts == wanted);
    };
    // plus the output projection, in each pass
    check({3, 1, 3, 1});
    part.joined = true;
    check({3, 1, 3, 1});
    part.joined = false;
    part.context_tokens = 3;
    part.context_features = 5;
    check({1, 2, 1, 1, 2, 1});
    test::tallying_backend<double> host;
    static_cast<void>(run(host, part));
    CHECK(host.seen["linear"] == 4);
    CHECK(host.seen["linear_backward_weight"] == 4);
}

} // namespace linear_batch_tests
