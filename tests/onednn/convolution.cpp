#include <vector>

#include <doctest/doctest.h>

#include <onednn/parity.hpp>
#include <pulse/onednn/backend.hpp>

using namespace onednn_tests;
using pulse::conv2d_shape;
using pulse::into;

namespace {

/// Shapes of the small UNets, and odd ones.
const std::vector<conv2d_shape> shapes{
    {1, 32, 28, 28, 3, 1, 1, 1},  {32, 1, 28, 28, 3, 1, 1, 1}, {3, 17, 9, 5, 3, 1, 1, 1},    {24, 3, 5, 9, 3, 1, 1, 1},
    {2, 4, 6, 6, 3, 1, 0, 0},     {4, 2, 6, 6, 5, 1, 2, 2},    {32, 64, 14, 14, 3, 1, 1, 1}, {24, 24, 7, 7, 3, 1, 1, 1},
    {64, 64, 7, 7, 3, 1, 1, 1},   {48, 32, 7, 7, 3, 1, 1, 1},  {32, 32, 14, 14, 3, 2, 0, 1}, {24, 40, 7, 7, 3, 2, 0, 1},
    {32, 32, 14, 14, 3, 2, 1, 1}, {1, 8, 8, 8, 3, 2, 1, 1},    {16, 1, 8, 8, 3, 2, 0, 1},    {32, 64, 7, 7, 1, 1, 0, 0},
    {7, 5, 3, 4, 1, 1, 0, 0},     {1, 1, 1, 1, 1, 1, 0, 0},    {1, 1, 4, 4, 3, 1, 1, 1},     {5, 7, 1, 1, 3, 1, 1, 1},
    {8, 16, 6, 6, 1, 2, 0, 0},    {13, 1, 7, 3, 3, 1, 1, 1},   {1, 13, 3, 7, 3, 1, 1, 1},    {4, 4, 5, 5, 3, 1, 2, 0},
};

/// One convolution's tensors; `second` of the input channels come from another source.
struct problem {
    conv2d_shape s;
    int second;
    int batch;
    std::int64_t pixels{std::int64_t{batch} * s.in_height * s.in_width};
    std::int64_t outs{batch * s.out_elements()};
    tensor xa, xb, weight, bias, dy;

    problem(source& draw, const conv2d_shape& shape, int second_channels, int batch_) :
        s{shape}, second{second_channels}, batch{batch_}, xa{draw.normal(pixels * (s.in_channels - second))},
        xb{draw.normal(pixels * second)}, weight{draw.normal(s.weight_elements(), 0.3)},
        bias{draw.normal(s.out_channels)}, dy{draw.normal(outs)} {}

    [[nodiscard]] problem unsigned_values() const {
        problem p{*this};
        for (tensor* t : {&p.xa, &p.xb, &p.weight, &p.bias, &p.dy}) { *t = magnitudes(std::move(*t)); }
        return p;
    }

    template <class T, class B>
    void forward(B& b, bool with_bias, tensor& y, into how) {
        const T* bi = with_bias ? bias.as<T>() : nullptr;
        if (second == 0) {
            b.conv2d(s, batch, xa.as<T>(), weight.as<T>(), bi, y.as<T>(), how);
        } else {
            b.conv2d_pair(s, second, batch, xa.as<T>(), xb.as<T>(), weight.as<T>(), bi, y.as<T>(), how);
        }
    }
    template <class T, class B>
    void backward_input(B& b, tensor& dxa, tensor& dxb, into how) {
        if (second == 0) {
            b.conv2d_backward_input(s, batch, dy.as<T>(), weight.as<T>(), dxa.as<T>(), how);
        } else {
            b.conv2d_pair_backward_input(s, second, batch, dy.as<T>(), weight.as<T>(), dxa.as<T>(), dxb.as<T>(), how);
        }
    }
    template <class T, class B>
    void backward_weight(B& b, tensor& dweight, tensor& dbias, bool with_bias) {
        T* const db = with_bias ? dbias.as<T>() : nullptr;
        if (second == 0) {
            b.conv2d_backward_weight(s, batch, xa.as<T>(), dy.as<T>(), dweight.as<T>(), db);
        } else {
            b.conv2d_pair_backward_weight(s, second, batch, xa.as<T>(), xb.as<T>(), dy.as<T>(), dweight.as<T>(), db);
        }
    }
};

void check_all(pulse::onednn::backend& host, source& draw, const conv2d_shape& s, int second, int batch) {
    CAPTURE(s.in_channels);
    CAPTURE(s.out_channels);
    CAPTURE(s.in_height);
    CAPTURE(s.in_width);
    CAPTURE(s.kernel);
    CAPTURE(s.stride);
    CAPTURE(second);
    CAPTURE(batch);
    oracle plain;
    problem p{draw, s, second, batch};
    problem bound{p.unsigned_values()};
    const double taps = static_cast<double>(s.kernel) * s.kernel;
    host.weights_changed();
    for (const into how : {into::write, into::add}) {
        for (const bool with_bias : {true, false}) {
            tensor y = how == into::write ? tensor{p.outs} : draw.normal(p.outs);
            tensor most = how == into::write ? tensor{p.outs} : magnitudes(y);
            p.forward<float>(host, with_bias, y, how);
            p.forward<double>(plain, with_bias, y, how);
            bound.forward<double>(plain, with_bias, most, how);
            CHECK(worst(y, most.twice, rounding(taps * s.in_channels)) < 1.0);

            tensor dweight = draw.normal(s.weight_elements());
            tensor dbias = draw.normal(s.out_channels);
            tensor most_weight = magnitudes(dweight);
            tensor most_bias = magnitudes(dbias);
            p.backward_weight<float>(host, dweight, dbias, with_bias);
            p.backward_weight<double>(plain, dweight, dbias, with_bias);
            bound.backward_weight<double>(plain, most_weight, most_bias, with_bias);
            const double terms = static_cast<double>(batch) * s.out_height() * s.out_width();
            CHECK(worst(dweight, most_weight.twice, rounding(terms)) < 1.0);
            CHECK(worst(dbias, most_bias.twice, rounding(terms)) < 1.0);
        }
        const std::int64_t first = s.in_channels - second;
        tensor dxa = how == into::write ? tensor{p.pixels * first} : draw.normal(p.pixels * first);
        tensor dxb = how == into::write ? tensor{p.pixels * second} : draw.normal(p.pixels * second);
        tensor most_a = how == into::write ? dxa : magnitudes(dxa);
        tensor most_b = how == into::write ? dxb : magnitudes(dxb);
        p.backward_input<float>(host, dxa, dxb, how);
        p.backward_input<double>(plain, dxa, dxb, how);
        bound.backward_input<double>(plain, most_a, most_b, how);
        CHECK(worst(dxa, most_a.twice, rounding(taps * s.out_channels)) < 1.0);
        CHECK(worst(dxb, most_b.twice, rounding(taps * s.out_channels)) < 1.0);
    }
}

} // namespace

TEST_CASE("a convolution and its gradients equal the plain loops in double") {
    source draw{1};
    pulse::onednn::backend host;
    for (const conv2d_shape& s : shapes) { check_all(host, draw, s, 0, draw.between(1, 5)); }
}

TEST_CASE("a convolution over two sources equals the one over their concatenation") {
    source draw{2};
    pulse::onednn::backend host;
    for (const conv2d_shape& s : shapes) {
        if (s.in_channels > 1) { check_all(host, draw, s, draw.between(1, s.in_channels - 1), draw.between(1, 3)); }
    }
    check_all(host, draw, {96, 32, 14, 14, 3, 1, 1, 1}, 32, 2);
    check_all(host, draw, {96, 32, 14, 14, 1, 1, 0, 0}, 32, 2);
}

TEST_CASE("random convolutions equal the plain loops in double") {
    source draw{3};
    pulse::onednn::backend host;
    for (int i = 0; i != 40; ++i) {
        conv2d_shape s;
        s.in_channels = draw.between(1, 20);
        s.out_channels = draw.between(1, 20);
        s.kernel = draw.between(0, 2) == 0 ? 1 : 3;
        s.stride = draw.between(1, 2);
        s.pad_before = draw.between(0, s.kernel / 2);
        s.pad_after = draw.between(0, s.kernel / 2);
        s.in_height = draw.between(s.kernel, 9);
        s.in_width = draw.between(s.kernel, 9);
        const int second = s.in_channels > 1 ? draw.between(0, s.in_channels - 1) : 0;
        check_all(host, draw, s, second, draw.between(1, 5));
    }
}

TEST_CASE("weights that were written are read again after weights_changed") {
    source draw{4};
    pulse::onednn::backend host;
    oracle plain;
    const conv2d_shape s{16, 16, 7, 7, 3, 1, 1, 1};
    problem p{draw, s, 0, 2};
    for (int step = 0; step != 3; ++step) {
        const tensor fresh = draw.normal(s.weight_elements());
        std::copy(fresh.single.begin(), fresh.single.end(), p.weight.single.begin());
        std::copy(fresh.twice.begin(), fresh.twice.end(), p.weight.twice.begin());
        host.weights_changed();
        problem bound{p.unsigned_values()};
        tensor y{p.outs};
        tensor most{p.outs};
        p.forward<float>(host, true, y, into::write);
        p.forward<double>(plain, true, y, into::write);
        bound.forward<double>(plain, true, most, into::write);
        CHECK(worst(y, most.twice, rounding(9.0 * s.in_channels)) < 1.0);
    }
}

TEST_CASE("reordered weights that nobody uses any more make room for others") {
    const conv2d_shape s{24, 32, 9, 9, 3, 1, 1, 1};
    source draw{11};
    tensor x = draw.normal(2 * s.in_elements());
    tensor dy = draw.normal(2 * s.out_elements());
    std::vector<tensor> weights{};
    for (int w = 0; w != 12; ++w) { weights.push_back(draw.normal(s.weight_elements(), 0.3)); }
    pulse::onednn::backend backend{};
    const auto equals = [&](tensor& weight) {
        tensor y{2 * s.out_elements()};
        tensor fresh{2 * s.out_elements()};
        backend.conv2d(s, 2, x.as<float>(), weight.as<float>(), nullptr, y.as<float>(), into::write);
        pulse::onednn::backend{}.conv2d(s, 2, x.as<float>(), weight.as<float>(), nullptr, fresh.as<float>(),
                                        into::write);
        return y.single == fresh.single;
    };
    std::int64_t most = 0;
    for (std::size_t epoch = 0; epoch != weights.size(); ++epoch) {
        // two weights live at a time, the later one moves on with every epoch
        for (const std::size_t w : {std::size_t{0}, epoch, std::size_t{0}}) { CHECK(equals(weights[w])); }
        if (epoch == 1) { most = backend.scratch_bytes(); }
        if (epoch > 1) { CHECK(backend.scratch_bytes() == most); }
        backend.weights_changed();
    }
}

TEST_CASE("a linear map and its gradients equal the plain loops in double") {
    source draw{5};
    pulse::onednn::backend host;
    oracle plain;
    const std::vector<pulse::linear_shape> sizes{{64, 64}, {128, 32}, {32, 128}, {1, 1}, {7, 13}, {24, 1}, {1, 40}};
    for (const auto& s : sizes) {
        for (const std::int64_t rows : {1, 2, 5, 49, 200}) {
            CAPTURE(s.in_features);
            CAPTURE(s.out_features);
            CAPTURE(rows);
            tensor x = draw.normal(rows * s.in_features);
            tensor dy = draw.normal(rows * s.out_features);
            tensor w = draw.normal(std::int64_t{s.in_features} * s.out_features);
            tensor bias = draw.normal(s.out_features);
            tensor ax = magnitudes(x);
            tensor ady = magnitudes(dy);
            tensor aw = magnitudes(w);
            tensor abias = magnitudes(bias);
            for (const into how : {into::write, into::add}) {
                for (const bool with : {true, false}) {
                    tensor y = how == into::write ? tensor{rows * s.out_features} : draw.normal(rows * s.out_features);
                    tensor most = how == into::write ? y : magnitudes(y);
                    host.weights_changed();
                    host.linear(s, rows, x.as<float>(), w.as<float>(), with ? bias.as<float>() : nullptr, y.as<float>(),
                                how);
                    plain.linear(s, rows, x.as<double>(), w.as<double>(), with ? bias.as<double>() : nullptr,
                                 y.as<double>(), how);
                    plain.linear(s, rows, ax.as<double>(), aw.as<double>(), with ? abias.as<double>() : nullptr,
                                 most.as<double>(), how);
                    CHECK(worst(y, most.twice, rounding(s.in_features)) < 1.0);

                    tensor dw = draw.normal(std::int64_t{s.in_features} * s.out_features);
                    tensor db = draw.normal(s.out_features);
                    tensor mw = magnitudes(dw);
                    tensor mb = magnitudes(db);
                    host.linear_backward_weight(s, rows, x.as<float>(), dy.as<float>(), dw.as<float>(),
                                                with ? db.as<float>() : nullptr);
                    plain.linear_backward_weight(s, rows, x.as<double>(), dy.as<double>(), dw.as<double>(),
                                                 with ? db.as<double>() : nullptr);
                    plain.linear_backward_weight(s, rows, ax.as<double>(), ady.as<double>(), mw.as<double>(),
                                                 with ? mb.as<double>() : nullptr);
                    CHECK(worst(dw, mw.twice, rounding(static_cast<double>(rows))) < 1.0);
                    CHECK(worst(db, mb.twice, rounding(static_cast<double>(rows))) < 1.0);
                }
                tensor dx = how == into::write ? tensor{rows * s.in_features} : draw.normal(rows * s.in_features);
                tensor most = how == into::write ? dx : magnitudes(dx);
                host.linear_backward_input(s, rows, dy.as<float>(), w.as<float>(), dx.as<float>(), how);
                plain.linear_backward_input(s, rows, dy.as<double>(), w.as<double>(), dx.as<double>(), how);
                plain.linear_backward_input(s, rows, ady.as<double>(), aw.as<double>(), most.as<double>(), how);
                CHECK(worst(dx, most.twice, rounding(s.out_features)) < 1.0);
            }
        }
    }
}
