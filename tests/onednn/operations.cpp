#include <cstdint>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/onednn/backend.hpp>
#include <pulse/reference/backend.hpp>

#include <support/operations/functions.hpp>
#include <support/operations/gradients.hpp>
#include <support/operations/host.hpp>
#include <support/operations/movement.hpp>
#include <support/operations/norms.hpp>
#include <support/operations/products.hpp>

// The laws of tests/support/operations for the host's backends: the plain loops in float, and oneDNN.

namespace host_operations {

using namespace pulse::test;
using plain = pulse::reference::backend<float>;
using onednn = pulse::onednn::backend;

TEST_CASE_TEMPLATE("group norm and its gradients equal the plain loops in double", B, plain, onednn) {
    hold_on_host<B>(11, [](auto& t) {
        check_group_norms(t);
        for (pulse::group_norm_shape s : std::vector<pulse::group_norm_shape>{{32, 0, 8, 784},
                                                                              {64, 0, 8, 196},
                                                                              {24, 0, 8, 49},
                                                                              {128, 0, 32, 64},
                                                                              {32, 0, 32, 25},
                                                                              {64, 64, 8, 196}}) {
            for (const bool silu : {false, true}) {
                s.silu = silu;
                check_group_norm(t, s, t.draw.between(1, 5));
            }
        }
        for (const double shift : {-30.0, 100.0, 1000.0}) { // a sum of squares would lose the digits
            check_group_norm(t, {32, 16, 4, 100, 1e-5, true}, 2, shift);
            check_group_norm(t, {8, 0, 2, 784, 1e-6, false}, 2, shift);
        }
        check_drawn_group_norms(t, 40, 8, [&] { t.offset = t.draw.between(0, 3); });
    });
}

TEST_CASE_TEMPLATE("statistics and rows of group norm equal the plain loops in double", B, plain, onednn) {
    hold_on_host<B>(71, [](auto& t) {
        for (const bool silu : {false, true}) {
            t.offset = 0;
            check_group_norm_pieces(t, {32, 0, 8, 60, 1e-5, silu}, 5, t.draw.between(1, 3));
            check_group_norm_pieces(t, {48, 0, 3, 77, 1e-5, silu}, 7, t.draw.between(1, 3));
            check_group_norm_pieces(t, {128, 0, 32, 96, 1e-5, silu}, 6, t.draw.between(1, 3));
            t.offset = 3;
            check_group_norm_pieces(t, {17, 0, 1, 30, 1e-5, silu}, 3, 3);
            check_group_norm_pieces(t, {5, 0, 5, 1, 1e-5, silu}, 1, 1);
        }
    });
}

TEST_CASE_TEMPLATE("layer norm and its gradients equal the plain loops in double", B, plain, onednn) {
    hold_on_host<B>(51, [](auto& t) {
        for (const int features : {2, 5, 7, 16, 33, 48, 64, 127, 512, 1152}) {
            for (const std::int64_t rows : {1, 3, 64, 65, 200}) {
                if (features < 1000 || rows < 100) { check_layer_norm(t, {features}, rows); }
            }
        }
        check_layer_norm(t, {40, 1e-2}, 70, -0.5);
        for (const double shift : {-30.0, 1000.0}) { check_layer_norm(t, {96, 1e-6}, 33, shift); }
    });
}

TEST_CASE_TEMPLATE("adaptive norm and its gradients equal the plain loops in double", B, plain, onednn) {
    hold_on_host<B>(61, [](auto& t) {
        check_adaptive_norms(t);
        for (int i = 0; i != 40; ++i) {
            const int features = t.draw.between(1, 80);
            const int stride = features + t.draw.between(0, 1) * features;
            check_adaptive_norm(t, {features, t.draw.between(1, 90), stride, 1e-6}, t.draw.between(1, 3), i % 2 == 0,
                                i / 2 % 2 == 0);
        }
    });
}

TEST_CASE_TEMPLATE("RMSNorm, quick GELU and gates equal the plain loops in double", B, plain, onednn) {
    hold_on_host<B>(94, [](auto& t) {
        for (const auto& [features, rows] : {std::pair{2048, 3}, {7, 100}, {1, 1}, {129, 65}, {37, 5}, {64, 7}}) {
            check_rms_norm(t, features, rows);
            check_gates(t, std::int64_t{features} * rows);
        }
    });
}

TEST_CASE_TEMPLATE("SiLU, GELU and its tanh form and their gradients equal the plain ones in double", B, plain,
                   onednn) {
    hold_on_host<B>(31, [](auto& t) {
        check_activations(t, {0, 1, 3, 7, 8, 15, 16, 31, 64, 1000, 40000});
        t.offset = 1;
        check_activations(t, {1, 31, 5003});
    });
}

TEST_CASE_TEMPLATE("GEGLU and its gradient equal the plain ones in double", B, plain, onednn) {
    hold_on_host<B>(54, [](auto& t) {
        check_geglus(t);
        for (int i = 0; i != 30; ++i) { check_geglu(t, t.draw.between(1, 40), t.draw.between(1, 70)); }
    });
}

TEST_CASE_TEMPLATE("add, scale, copy and fill do so", B, plain, onednn) {
    hold_on_host<B>(32, [](auto& t) {
        for (const int offset : {0, 3}) {
            t.offset = offset;
            for (const std::int64_t n : {0, 1, 3, 8, 9, 15, 16, 31, 77, 512, 1000, 40000}) {
                check_simple_functions(t, n);
            }
        }
    });
}

TEST_CASE_TEMPLATE("operations over pixels equal the plain loops in double", B, plain, onednn) {
    hold_on_host<B>(33, [](auto& t) {
        for (int i = 0; i != 60; ++i) {
            const int batch = t.draw.between(1, 5);
            const int height = t.draw.between(1, 14);
            const int width = t.draw.between(1, 14);
            const int channels = t.draw.between(1, 70);
            check_pixel_sums(t, batch, height * width, channels);
            check_upsampling(t, batch, height, width, channels);
        }
    });
}

TEST_CASE_TEMPLATE("sinusoids of timesteps equal the plain ones in double", B, plain, onednn) {
    hold_on_host<B>(34, [](auto& t) { check_sinusoids(t); });
}

TEST_CASE_TEMPLATE("posteriors are drawn as the plain loops in double draw them", B, plain, onednn) {
    hold_on_host<B>(72, [](auto& t) {
        for (const int channels : {1, 3, 4, 16, 21}) { check_posterior(t, channels); }
    });
}

TEST_CASE_TEMPLATE("images become tokens of patches and come back; rows are copied with their strides", B, plain,
                   onednn) {
    hold_on_host<B>(56, [](auto& t) {
        check_copied_rows(t);
        check_drawn_patches(t, 40);
    });
}

TEST_CASE_TEMPLATE("vectors of a grid are resampled for another, and gradients of these come back", B, plain, onednn) {
    // sometimes more features than one thread adds at a time
    hold_on_host<B>(59, [](auto& t) { check_drawn_resampling(t, 40, 300); });
}

TEST_CASE_TEMPLATE("rotary embedding turns pairs as the plain loops do, and back", B, plain, onednn) {
    hold_on_host<B>(64, [](auto& t) { check_drawn_rotary(t, 30); });
}

TEST_CASE_TEMPLATE("embeddings and their gradients equal the plain loops", B, plain, onednn) {
    hold_on_host<B>(65, [](auto& t) { check_drawn_embeddings(t, 30); });
}

TEST_CASE_TEMPLATE("padding is replaced, and its gradient goes to what replaced it", B, plain, onednn) {
    hold_on_host<B>(66, [](auto& t) { check_drawn_padding(t, 30); });
}

TEST_CASE_TEMPLATE("masked attention equals the plain loops, with mask, bias and causality", B, plain, onednn) {
    hold_on_host<B>(91, [](auto& t) {
        for (const pulse::masked_attention_shape& s :
             {pulse::masked_attention_shape{77, 3, 64, 0.125}, {5, 2, 3, 0.7}, {1, 1, 1}, {150, 2, 16, 0.25}}) {
            check_masked_attention(t, s, 2, {0, 1, 2, 3, 4, 5, 6, 7});
        }
    });
}

/// Shapes of the small UNets, and odd ones.
const std::vector<pulse::conv2d_shape> convolutions{
    {1, 32, 28, 28, 3, 1, 1, 1},  {32, 1, 28, 28, 3, 1, 1, 1}, {3, 17, 9, 5, 3, 1, 1, 1},    {24, 3, 5, 9, 3, 1, 1, 1},
    {2, 4, 6, 6, 3, 1, 0, 0},     {4, 2, 6, 6, 5, 1, 2, 2},    {32, 64, 14, 14, 3, 1, 1, 1}, {24, 24, 7, 7, 3, 1, 1, 1},
    {64, 64, 7, 7, 3, 1, 1, 1},   {48, 32, 7, 7, 3, 1, 1, 1},  {32, 32, 14, 14, 3, 2, 0, 1}, {24, 40, 7, 7, 3, 2, 0, 1},
    {32, 32, 14, 14, 3, 2, 1, 1}, {1, 8, 8, 8, 3, 2, 1, 1},    {16, 1, 8, 8, 3, 2, 0, 1},    {32, 64, 7, 7, 1, 1, 0, 0},
    {7, 5, 3, 4, 1, 1, 0, 0},     {1, 1, 1, 1, 1, 1, 0, 0},    {1, 1, 4, 4, 3, 1, 1, 1},     {5, 7, 1, 1, 3, 1, 1, 1},
    {8, 16, 6, 6, 1, 2, 0, 0},    {13, 1, 7, 3, 3, 1, 1, 1},   {1, 13, 3, 7, 3, 1, 1, 1},    {4, 4, 5, 5, 3, 1, 2, 0},
};

/// Written and added, with a bias and without.
void check_each(auto& t, const pulse::conv2d_shape& s, int second, int batch) {
    for (const bool adds : {false, true}) {
        for (const bool biased : {true, false}) { check_convolution(t, s, batch, second, adds, biased, biased, 1); }
    }
}

TEST_CASE("convolutions of one source and of two and their gradients equal the plain loops in double") {
    operation_trial<host_side<onednn>> t{1};
    for (const pulse::conv2d_shape& s : convolutions) {
        const int second = s.in_channels > 1 ? t.draw.between(1, s.in_channels - 1) : 0;
        check_each(t, s, second, t.draw.between(1, 5));
    }
    check_each(t, {96, 32, 14, 14, 3, 1, 1, 1}, 32, 2);
    check_each(t, {96, 32, 14, 14, 1, 1, 0, 0}, 32, 2);
}

TEST_CASE_TEMPLATE("random convolutions equal the plain loops in double", B, plain, onednn) {
    operation_trial<host_side<B>> t{3};
    for (int i = 0; i != 40; ++i) {
        pulse::conv2d_shape s;
        s.in_channels = t.draw.between(1, 20);
        s.out_channels = t.draw.between(1, 20);
        s.kernel = t.draw.between(0, 2) == 0 ? 1 : 3;
        s.stride = t.draw.between(1, 2);
        s.pad_before = t.draw.between(0, s.kernel / 2);
        s.pad_after = t.draw.between(0, s.kernel / 2);
        s.in_height = t.draw.between(s.kernel, 9);
        s.in_width = t.draw.between(s.kernel, 9);
        t.offset = t.draw.between(0, 3);
        check_each(t, s, t.draw.between(0, s.in_channels - 1), t.draw.between(1, 5));
    }
}

TEST_CASE_TEMPLATE("linear layers and their gradients equal the plain loops in double", B, plain, onednn) {
    operation_trial<host_side<B>> t{5};
    for (const auto& s : {pulse::linear_shape{64, 64}, {128, 32}, {32, 128}, {1, 1}, {7, 13}, {24, 1}, {1, 40}}) {
        for (const std::int64_t rows : {1, 2, 5, 49, 200}) {
            for (const bool adds : {false, true}) {
                for (const bool biased : {true, false}) { check_linear(t, s, rows, adds, biased); }
            }
        }
    }
}

TEST_CASE_TEMPLATE("the gradients that a first microbatch writes are those that it adds to 0", B, plain, onednn) {
    hold_on_host<B>(61, [](auto& t) {
        // by oneDNN, as a product, and by the plain loops
        check_written_convolution(t, {.in_channels = 12, .out_channels = 8, .in_height = 7, .in_width = 6}, 2, 5);
        check_written_convolution(t, {12, 8, 7, 6, 1, 1, 0, 0}, 2, 5);
        check_written_convolution(t, {.in_channels = 12, .out_channels = 1, .in_height = 7, .in_width = 6}, 2, 5);
        check_written_linear(t, {24, 17});
        check_written_sums(t, {2, 19});
    });
}

} // namespace host_operations
