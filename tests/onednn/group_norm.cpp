#include <vector>

#include <doctest/doctest.h>

#include <onednn/parity.hpp>
#include <pulse/onednn/backend.hpp>

using namespace onednn_tests;
using pulse::group_norm_shape;
using pulse::into;

namespace {

struct norm_problem {
    group_norm_shape s;
    int batch;
    std::int64_t pixels{std::int64_t{batch} * s.pixels};
    tensor xa, xb, gamma, beta, dy;

    norm_problem(source& draw, const group_norm_shape& shape, int batch_, double shift) :
        s{shape}, batch{batch_}, xa{draw.normal(pixels * s.channels, 1.5, shift)},
        xb{draw.normal(pixels * s.second_channels, 0.5, shift)}, gamma{draw.normal(s.all_channels())},
        beta{draw.normal(s.all_channels())}, dy{draw.normal(pixels * s.all_channels())} {}

    template <class T, class B>
    void forward(B& b, tensor& y, tensor& statistics) {
        b.group_norm(s, batch, xa.as<T>(), s.second_channels != 0 ? xb.as<T>() : nullptr, gamma.as<T>(), beta.as<T>(),
                     y.as<T>(), statistics.as<T>());
    }
    template <class T, class B>
    void backward(B& b, tensor& statistics, tensor& dxa, tensor& dxb, tensor& dgamma, tensor& dbeta, into how) {
        const bool two = s.second_channels != 0;
        b.group_norm_backward(s, batch, xa.as<T>(), two ? xb.as<T>() : nullptr, gamma.as<T>(), beta.as<T>(),
                              statistics.as<T>(), dy.as<T>(), dxa.as<T>(), two ? dxb.as<T>() : nullptr, dgamma.as<T>(),
                              dbeta.as<T>(), how);
    }
};

void check_all(pulse::onednn::backend& host, source& draw, const group_norm_shape& s, int batch, double shift = 0.3) {
    CAPTURE(s.channels);
    CAPTURE(s.second_channels);
    CAPTURE(s.groups);
    CAPTURE(s.pixels);
    CAPTURE(s.silu);
    CAPTURE(batch);
    CAPTURE(shift);
    oracle plain;
    norm_problem p{draw, s, batch, shift};
    // What rounding the mean and the differences from it costs, in standard deviations.
    const double slack = 1.0 + std::abs(shift);
    const double relative = 12.0 * slack * static_cast<double>(std::numeric_limits<float>::epsilon());
    tensor y{p.pixels * s.all_channels()};
    tensor statistics{std::int64_t{batch} * s.groups * 2};
    p.forward<float>(host, y, statistics);
    p.forward<double>(plain, y, statistics);
    CHECK(worst(statistics, relative) < 1.0);
    CHECK(worst(y, relative) < 1.0);
    for (const into how : {into::write, into::add}) {
        tensor dxa = how == into::write ? tensor{p.pixels * s.channels} : draw.normal(p.pixels * s.channels);
        tensor dxb{p.pixels * s.second_channels};
        tensor dgamma = draw.normal(s.all_channels());
        tensor dbeta = draw.normal(s.all_channels());
        p.backward<float>(host, statistics, dxa, dxb, dgamma, dbeta, how);
        p.backward<double>(plain, statistics, dxa, dxb, dgamma, dbeta, how);
        // One pixel of one channel: the group's two normal values are +-1 and gradients cancel; epsilon limits the
        // rest.
        CHECK(worst(dxa, 4.0 * relative) < 1.0);
        CHECK(worst(dxb, 4.0 * relative) < 1.0);
        const std::vector<double> terms(static_cast<std::size_t>(s.all_channels()),
                                        3.0 * std::sqrt(static_cast<double>(p.pixels)));
        CHECK(worst(dgamma, terms, relative) < 1.0);
        CHECK(worst(dbeta, terms, relative) < 1.0);
    }
}

} // namespace

TEST_CASE("group norm and its gradients equal the plain loops in double") {
    source draw{11};
    pulse::onednn::backend host;
    const std::vector<group_norm_shape> shapes{
        {32, 0, 8, 784}, {64, 0, 8, 196}, {64, 0, 8, 49},   {24, 0, 8, 49}, {48, 0, 3, 64},  {128, 0, 32, 64},
        {32, 0, 32, 25}, {17, 0, 1, 30},  {7, 0, 7, 65},    {1, 0, 1, 50},  {64, 32, 8, 49}, {32, 64, 8, 49},
        {24, 8, 4, 49},  {20, 12, 2, 33}, {64, 64, 8, 196}, {5, 10, 3, 20}, {3, 3, 2, 9},    {13, 19, 4, 127},
    };
    for (group_norm_shape s : shapes) {
        for (const bool silu : {false, true}) {
            s.silu = silu;
            check_all(host, draw, s, draw.between(1, 5));
        }
    }
}

TEST_CASE("group norm keeps its digits far from zero, where a sum of squares would lose them") {
    source draw{12};
    pulse::onednn::backend host;
    for (const double shift : {-30.0, 100.0, 1000.0}) {
        check_all(host, draw, {32, 16, 4, 100, 1e-5, true}, 2, shift);
        check_all(host, draw, {8, 0, 2, 784, 1e-6, false}, 2, shift);
    }
}

TEST_CASE("random group norms whose groups straddle the sources equal the plain loops in double") {
    source draw{13};
    pulse::onednn::backend host;
    for (int i = 0; i != 40; ++i) {
        group_norm_shape s;
        s.groups = draw.between(1, 6);
        const int all = s.groups * draw.between(2, 12);
        s.second_channels = draw.between(0, all - 1);
        s.channels = all - s.second_channels;
        s.pixels = draw.between(8, 150);
        s.silu = draw.between(0, 1) == 1;
        check_all(host, draw, s, draw.between(1, 4));
    }
}
