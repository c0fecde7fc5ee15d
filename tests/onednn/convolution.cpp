#include <vector>

#include <doctest/doctest.h>

#include <onednn/parity.hpp>
#include <pulse/onednn/backend.hpp>

using namespace onednn_tests;
using pulse::conv2d_shape;
using pulse::into;

TEST_CASE("weights that were written are read again after weights_changed") {
    source draw{4};
    pulse::onednn::backend host;
    const conv2d_shape s{16, 16, 7, 7, 3, 1, 1, 1};
    tensor x = draw.normal(2 * s.in_elements());
    tensor weight{s.weight_elements()};
    for (int step = 0; step != 3; ++step) {
        const tensor fresh = draw.normal(s.weight_elements());
        std::copy(fresh.single.begin(), fresh.single.end(), weight.single.begin());
        host.weights_changed();
        tensor y{2 * s.out_elements()};
        tensor wanted{2 * s.out_elements()};
        host.conv2d(s, 2, x.as<float>(), weight.as<float>(), nullptr, y.as<float>(), into::write);
        pulse::onednn::backend{}.conv2d(s, 2, x.as<float>(), weight.as<float>(), nullptr, wanted.as<float>(),
                                        into::write);
        CHECK(y.single == wanted.single);
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
        // two weights are alive at a time; the later one changes with every epoch
        for (const std::size_t w : {std::size_t{0}, epoch, std::size_t{0}}) { CHECK(equals(weights[w])); }
        if (epoch == 1) { most = backend.scratch_bytes(); }
        if (epoch > 1) { CHECK(backend.scratch_bytes() == most); }
        backend.weights_changed();
    }
}
