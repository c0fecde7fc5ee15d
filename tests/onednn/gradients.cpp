#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <pulse/onednn/backend.hpp>

using namespace pulse;

namespace written_gradients {

namespace {

using place = gradient_place<float>;

std::vector<float> drawn(std::mt19937& random, std::int64_t n) {
    std::normal_distribution<float> draw;
    std::vector<float> values(static_cast<std::size_t>(n));
    for (float& v : values) { v = draw(random); }
    return values;
}

/// op(gradient_place) makes n gradients. Written over what is no number, and then added to, they are those that are
/// added to zeros, bit for bit but for the sign of 0.
template <class Op>
void check_written(std::int64_t n, const Op& op) {
    std::vector<float> added(static_cast<std::size_t>(n));
    std::vector<float> written(static_cast<std::size_t>(n), std::numeric_limits<float>::quiet_NaN());
    for (const into how : {into::write, into::add}) {
        op(place{added.data()});
        op(place{written.data(), how});
        CHECK(written == added);
    }
}

} // namespace

TEST_CASE("the gradients that a first microbatch writes are those that it adds to 0") {
    std::mt19937 random{61};
    onednn::backend on{2};
    constexpr int batch = 2;
    const std::vector<float> x = drawn(random, 20000);
    const std::vector<float> more = drawn(random, 20000);
    const std::vector<float> dy = drawn(random, 20000);
    const std::vector<float> statistics = drawn(random, 1000);
    std::vector<float> dx(20000);
    std::vector<float> rest(20000);

    // by oneDNN, as a product, by hand
    for (const conv2d_shape& s : {conv2d_shape{.in_channels = 12, .out_channels = 8, .in_height = 7, .in_width = 6},
                                  {.in_channels = 12,
                                  .out_channels = 8,
                                  .in_height = 7,
                                  .in_width = 6,
                                  .kernel = 1,
                                  .pad_before = 0,
                                  .pad_after = 0},
                                  {.in_channels = 12, .out_channels = 1, .in_height = 7, .in_width = 6}}) {
        CAPTURE(s.out_channels);
        CAPTURE(s.kernel);
        const std::int64_t n = s.weight_elements();
        check_written(n + s.out_channels,
                      [&](const place& to) { on.conv2d_backward_weight(s, batch, x.data(), dy.data(), to, to + n); });
        check_written(n + s.out_channels, [&](const place& to) {
            on.conv2d_pair_backward_weight(s, 5, batch, x.data(), more.data(), dy.data(), to, to + n);
        });
    }
    const linear_shape line{24, 17};
    check_written(25 * 17,
                  [&](const place& to) { on.linear_backward_weight(line, 19, x.data(), dy.data(), to, to + 24 * 17); });
    check_written(40, [&](const place& to) { on.sum_rows(100, 40, x.data(), to); });
    check_written(40, [&](const place& to) { on.sum_rows(0, 40, nullptr, to); });

    const group_norm_shape group{12, 4, 4, 9, 1e-5, true};
    check_written(2 * 16, [&](const place& to) {
        on.group_norm_backward(group, batch, x.data(), more.data(), x.data(), x.data(), statistics.data(), dy.data(),
                               dx.data(), rest.data(), to, to + 16, into::write);
    });
    check_written(2 * 24, [&](const place& to) {
        on.layer_norm_backward({24, 1e-6}, 19, x.data(), more.data(), statistics.data(), dy.data(), dx.data(), to,
                               to + 24, into::write);
    });
    check_written(2 * 12, [&](const place& to) {
        on.adaptive_norm_backward({12, 3, 20, 1e-6}, batch, x.data(), more.data(), more.data(), more.data(),
                                  statistics.data(), dy.data(), dx.data(), to, to + 12, rest.data(), rest.data() + 1000,
                                  into::write);
    });
    const resample_shape grids{2, 3, 4, 5, 6, 2};
    check_written(std::int64_t{grids.from_tokens()} * grids.features,
                  [&](const place& to) { on.resampled_sums(grids, batch, dy.data(), to); });
    const std::vector<float> indices{3.0F, 0.0F, 3.0F, 4.0F};
    check_written(6 * 7, [&](const place& to) {
        on.embedding_backward_weight({6, 7}, 4, indices.data(), dy.data(), to);
    });
    const std::vector<float> mask{1.0F, 0.0F, 1.0F, 0.0F, 0.0F, 1.0F};
    check_written(3 * 5, [&](const place& to) {
        on.replace_padding_backward(batch, 3, 5, mask.data(), dy.data(), dx.data(), to);
    });
}

} // namespace written_gradients
