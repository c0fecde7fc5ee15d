#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <onednn/parity.hpp>
#include <pulse/onednn/backend.hpp>

using namespace onednn_tests;
using pulse::masked_attention_shape;

namespace {

/// The operands of an attention; optional ones may be empty.
struct operands {
    masked_attention_shape shape;
    int batch;
    tensor q, k, v, mask{}, bias{};

    operands(source& draw, const masked_attention_shape& s, int samples) :
        shape{s}, batch{samples}, q{draw.normal(size())}, k{draw.normal(size())}, v{draw.normal(size())} {}

    [[nodiscard]] std::int64_t size() const { return std::int64_t{batch} * shape.tokens * shape.width(); }
    template <class T, class B>
    void run(B& on, tensor& o) {
        const auto some = [](tensor& t) { return t.size() == 0 ? nullptr : t.as<T>(); };
        on.masked_attention(shape, batch, q.as<T>(), k.as<T>(), v.as<T>(), some(mask), some(bias), o.as<T>());
    }
    /// Results of the plain loops in double.
    [[nodiscard]] std::vector<double> plain() {
        oracle on;
        tensor o{size()};
        run<double>(on, o);
        return o.twice;
    }
};

} // namespace

TEST_CASE("masked attention without mask, bias and causality is attention") {
    source draw{92};
    operands of{draw, {7, 2, 5, 1.0 / std::sqrt(5.0)}, 2};
    tensor o{of.size()};
    tensor lse{std::int64_t{2} * 2 * 7};
    oracle plain;
    plain.attention({7, 2, 5}, 2, of.q.as<double>(), of.k.as<double>(), of.v.as<double>(), o.as<double>(),
                    lse.as<double>());
    const std::vector<double> got = of.plain();
    for (std::size_t i = 0; i != got.size(); ++i) { CHECK(got[i] == doctest::Approx(o.twice[i]).epsilon(1e-12)); }
}

TEST_CASE("what a mask or causality leaves out of an attention changes nothing, and a bias goes by distance") {
    source draw{93};
    constexpr std::size_t tokens = 6;
    constexpr std::size_t width = 4;
    const masked_attention_shape s{tokens, 2, 2, 0.5};
    operands of{draw, s, 1};
    of.mask = tensor{tokens, 1.0F};
    of.mask.twice[3] = 0.0;
    const std::vector<double> before = of.plain();
    for (std::size_t c = 0; c != width; ++c) {
        of.k.twice[3 * width + c] += 5.0;
        of.v.twice[3 * width + c] += 5.0;
    }
    CHECK(of.plain() == before);
    // In a text of padding alone all tokens have the same weight.
    std::fill(of.mask.twice.begin(), of.mask.twice.end(), 0.0);
    double mean = 0.0;
    for (std::size_t t = 0; t != tokens; ++t) { mean += of.v.twice[t * width] / tokens; }
    CHECK(of.plain()[0] == doctest::Approx(mean));

    operands causal{draw, s, 1};
    causal.shape.causal = true;
    const std::vector<double> first = causal.plain();
    for (std::size_t c = 0; c != width; ++c) {
        causal.k.twice[5 * width + c] += 5.0;
        causal.v.twice[5 * width + c] += 5.0;
    }
    const std::vector<double> then = causal.plain();
    CHECK(std::equal(first.begin(), first.end() - width, then.begin()));
    CHECK(first[5 * width] != then[5 * width]);

    // A bias near minus infinity, except at a distance of 2, makes a token read only the second one after it.
    operands far{draw, s, 1};
    far.bias = tensor{std::int64_t{s.distances()} * s.heads, -1000.0F};
    for (std::size_t h = 0; h != 2; ++h) { far.bias.twice[(tokens + 1) * 2 + h] = 0.0; }
    const std::vector<double> moved = far.plain();
    for (std::size_t i = 0; i != (tokens - 2) * width; ++i) {
        CHECK(moved[i] == doctest::Approx(far.v.twice[i + 2 * width]));
    }
}

TEST_CASE("the plain RMSNorm, quick GELU and gate of numbers by hand") {
    oracle plain;
    const double x[2]{3.0, 4.0};
    const double gamma[2]{2.0, -1.0};
    double y[2]{};
    plain.rms_norm({2, 0.0}, 1, x, gamma, y);
    CHECK(y[0] == doctest::Approx(6.0 / std::sqrt(12.5)));
    CHECK(y[1] == doctest::Approx(-4.0 / std::sqrt(12.5)));
    plain.quick_gelu(1, x, y);
    CHECK(y[0] == doctest::Approx(3.0 / (1.0 + std::exp(-5.106))));
    plain.gate(1, x, y);
    CHECK(y[0] == doctest::Approx(9.0 / (1.0 + std::exp(-5.106))));
}
