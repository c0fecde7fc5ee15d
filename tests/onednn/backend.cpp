#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>

#include <doctest/doctest.h>

#include <onednn/parity.hpp>
#include <pulse/core/error.hpp>
#include <pulse/onednn/backend.hpp>
#include <pulse/onednn/parallel.hpp>

using namespace onednn_tests;
using pulse::attention_shape;
using pulse::conv2d_shape;
using pulse::group_norm_shape;
using pulse::into;
using pulse::layer_norm_shape;
using pulse::linear_shape;
using pulse::patch_shape;

namespace {

thread_local bool counting = false;
thread_local long ours = 0;
thread_local long of_onednn = 0;

/// oneDNN allocates an argument table in every execution; the caller's address tells it apart.
void count(void* caller) {
    if (!counting) { return; }
    counting = false;
    Dl_info place{};
    const bool inside = dladdr(caller, &place) != 0 && place.dli_fname != nullptr &&
                        std::string{place.dli_fname}.find("libdnnl") != std::string::npos;
    ++(inside ? of_onednn : ours);
    counting = true;
}

void* get(std::size_t bytes, std::size_t alignment) {
    void* const p = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (p == nullptr) { throw std::bad_alloc{}; }
    return p;
}

/// Runs every operation once, at the shapes of a small UNet; results are appended to `all`.
struct everything {
    int batch{3};
    conv2d_shape in{1, 24, 14, 14, 3, 1, 1, 1};
    conv2d_shape body{24, 32, 14, 14, 3, 1, 1, 1};
    conv2d_shape down{24, 24, 14, 14, 3, 2, 0, 1};
    conv2d_shape one{24, 16, 14, 14, 1, 1, 0, 0};
    conv2d_shape out{24, 1, 14, 14, 3, 1, 1, 1};
    linear_shape line{24, 48};
    group_norm_shape norm{24, 8, 4, 196, 1e-5, true};
    std::vector<attention_shape> heads{{49, 3, 8}, {49, 2, 16}, {49, 1, 40}, {49, 2, 8, 77}, {49, 2, 40, 77}};
    layer_norm_shape row_norm{48};
    patch_shape patches{4, 5, 2, 3, 2};
    std::vector<tensor> inputs{};
    std::vector<tensor> results{};

    explicit everything(unsigned seed) {
        source draw{seed};
        for (int i = 0; i != 8; ++i) { inputs.push_back(draw.normal(40000, 0.5)); }
        for (int i = 0; i != 64; ++i) { results.emplace_back(40000, 0.25F); }
    }

    void run(pulse::onednn::backend& b) {
        std::size_t next = 0;
        const auto to = [&] { return results.at(next++).as<float>(); };
        const auto from = [&](std::size_t i) { return inputs[i].as<float>(); };
        for (const conv2d_shape& s : {in, body, down, one, out}) {
            b.conv2d(s, batch, from(0), from(1), from(2), to(), into::write);
            b.conv2d(s, batch, from(0), from(1), nullptr, to(), into::add);
            b.conv2d_backward_input(s, batch, from(3), from(1), to(), into::write);
            b.conv2d_backward_input(s, batch, from(3), from(1), to(), into::add);
            b.conv2d_backward_weight(s, batch, from(0), from(3), to(), from(7));
        }
        b.conv2d_pair(body, 8, batch, from(0), from(4), from(1), from(2), to(), into::write);
        b.conv2d_pair_backward_input(body, 8, batch, from(3), from(1), results[next].as<float>(),
                                     results[next + 1].as<float>(), into::write);
        next += 2;
        b.conv2d_pair_backward_weight(body, 8, batch, from(0), from(4), from(3), to(), from(7));
        b.linear(line, 147, from(0), from(1), from(2), to(), into::write);
        b.linear_backward_input(line, 147, from(3), from(1), to(), into::add);
        b.linear_backward_weight(line, 147, from(0), from(3), to(), from(7));
        float* const y = to();
        float* const statistics = to();
        b.group_norm(norm, batch, from(0), from(4), from(1), from(2), y, statistics);
        float* const dxa = to();
        float* const dxb = to();
        b.group_norm_backward(norm, batch, from(0), from(4), from(1), from(2), statistics, from(3), dxa, dxb, to(),
                              from(7), into::add);
        for (const attention_shape& s : heads) {
            float* const o = results[next].as<float>();
            float* const lse = results[next + 1].as<float>();
            b.attention(s, batch, from(0), from(4), from(5), o, lse);
            b.attention_backward(s, batch, from(0), from(4), from(5), o, lse, from(3), dxa, dxb, y);
            next += 2;
        }
        b.masked_attention({40, 2, 8, 0.35, true}, batch, from(0), from(4), from(5), nullptr, nullptr, to());
        float* const normal = to();
        float* const of_rows = to();
        b.layer_norm(row_norm, 147, from(0), from(1), from(2), normal, of_rows);
        float* const drow = to();
        b.layer_norm_backward(row_norm, 147, from(0), from(1), of_rows, from(3), drow, to(), from(7), into::add);
        b.gelu(30000, from(0), to());
        b.gelu_backward(30000, from(0), from(3), to(), into::add);
        b.geglu(147, 48, from(0), to());
        b.geglu_backward(147, 48, from(0), from(3), to());
        b.copy_rows(9, 40, from(0), 50, to(), 60);
        b.patches_to_image(patches, batch, from(0), to());
        b.image_to_patches(patches, batch, from(0), to());
        b.silu(30000, from(0), to());
        b.silu_backward(30000, from(0), from(3), to(), into::add);
        b.add_per_sample(batch, 196, 24, from(0), to());
        b.sum_pixels(batch, 196, 24, from(0), to());
        b.sum_rows(batch * 196, 24, from(0), to());
    }
};

[[nodiscard]] std::vector<std::vector<float>> results_of(pulse::onednn::backend& b, unsigned seed) {
    everything all{seed};
    b.weights_changed();
    all.run(b);
    std::vector<std::vector<float>> found;
    for (auto& r : all.results) { found.push_back(std::move(r.single)); }
    found.push_back(all.inputs[7].single);
    return found;
}

} // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
    count(__builtin_return_address(0));
    return get(bytes, alignof(std::max_align_t));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
    count(__builtin_return_address(0));
    return get(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    count(__builtin_return_address(0));
    return std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

TEST_CASE("after warm-up no operation allocates and the scratch does not grow") {
    pulse::onednn::backend b;
    everything all{61};
    all.run(b);
    const std::int64_t bytes = b.scratch_bytes();
    CHECK(bytes > 0);
    for (int step = 0; step != 3; ++step) {
        b.weights_changed();
        ours = 0;
        of_onednn = 0;
        counting = true;
        all.run(b);
        counting = false;
        CHECK(ours == 0);
        MESSAGE("allocations inside oneDNN in one run of every operation: " << of_onednn);
        CHECK(b.scratch_bytes() == bytes);
    }
    counting = true;
    const auto seen = std::make_unique<int>(1);
    counting = false;
    CHECK(*seen == 1);
    CHECK(ours == 1);
}

TEST_CASE("the same inputs give the same bits, in another backend too") {
    pulse::onednn::backend one;
    pulse::onednn::backend other;
    const auto first = results_of(one, 62);
    CHECK(first == results_of(one, 62));
    CHECK(first == results_of(other, 62));
    CHECK(first != results_of(one, 63));
}

#if !defined(__SANITIZE_THREAD__)
TEST_CASE("two threads give the same bits as two threads, and the values of one") {
    pulse::onednn::backend one{1};
    pulse::onednn::backend two{2};
    const auto first = results_of(two, 64);
    CHECK(first == results_of(two, 64));
    const auto alone = results_of(one, 64);
    REQUIRE(alone.size() == first.size());
    double worst_off = 0.0;
    for (std::size_t i = 0; i != alone.size(); ++i) {
        for (std::size_t j = 0; j != alone[i].size(); ++j) {
            const double off = std::abs(static_cast<double>(alone[i][j]) - static_cast<double>(first[i][j]));
            worst_off = std::max(worst_off, off / (1.0 + std::abs(static_cast<double>(alone[i][j]))));
        }
    }
    CHECK(worst_off < 2e-5);
}
#endif

TEST_CASE("backends of several threads do not disturb each other") {
    pulse::onednn::backend alone;
    const auto first = results_of(alone, 65);
    const auto second = results_of(alone, 66);
    std::vector<std::vector<float>> found[2];
    {
        std::vector<std::thread> ranks;
        for (std::size_t r = 0; r != 2; ++r) {
            ranks.emplace_back([r, &found] {
                pulse::onednn::backend mine;
                for (int step = 0; step != 3; ++step) { found[r] = results_of(mine, 65 + static_cast<unsigned>(r)); }
            });
        }
        for (auto& rank : ranks) { rank.join(); }
    }
    CHECK(found[0] == first);
    CHECK(found[1] == second);
}

TEST_CASE("weights at the same place are not mixed up by shape, pass or block") {
    // One weight array serves two convolutions of different shapes, and both halves of a pair.
    pulse::onednn::backend shared;
    const auto together = results_of(shared, 67);
    everything all{67};
    all.run(shared);
    std::size_t i = 0;
    for (const auto& r : all.results) { CHECK(r.single == together[i++]); }
}

TEST_CASE("a bad shape gives a sentence that names the operation") {
    pulse::onednn::backend b;
    std::vector<float> x(64);
    float* const p = x.data();
    CHECK_THROWS_WITH_AS(pulse::onednn::backend{0}, "pulse: onednn::backend: threads must be at least 1, not 0",
                         pulse::input_error);
    CHECK_THROWS_WITH_AS(b.conv2d({1, 1, 2, 2, 3, 1, 0, 0}, 1, p, p, p, p, into::write),
                         doctest::Contains("conv2d: invalid convolution: 1x2x2"), pulse::input_error);
    CHECK_THROWS_WITH_AS(b.conv2d({1, 1, 4, 4, 3, 1, 1, 1}, 0, p, p, p, p, into::write), doctest::Contains("batch 0"),
                         pulse::input_error);
    CHECK_THROWS_WITH_AS(b.conv2d_pair({4, 1, 4, 4, 3, 1, 1, 1}, 4, 1, p, p, p, p, p, into::write),
                         "pulse: conv2d_pair: second source must have 0 to 3 channels, not 4", pulse::input_error);
    CHECK_THROWS_WITH_AS(b.linear({4, 4}, 0, p, p, p, p, into::write),
                         "pulse: linear: 0 rows, 4 to 4 features; each must be at least 1", pulse::input_error);
    CHECK_THROWS_WITH_AS(b.group_norm({6, 1, 3, 4, 1e-5, true}, 1, p, p, p, p, p, p),
                         "pulse: group_norm: 3 groups of 6 + 1 channels, 4 pixels, batch 1; "
                         "each must be at least 1 (second channels 0), and groups must divide channels",
                         pulse::input_error);
    CHECK_THROWS_WITH_AS(b.attention({4, 0, 4}, 1, p, p, p, p, p),
                         "pulse: attention: 4 tokens, 0 heads of 4, batch 1; "
                         "each must be at least 1 (context tokens 0)",
                         pulse::input_error);
    CHECK_THROWS_WITH_AS(b.attention({4, 2, 4, -1}, 1, p, p, p, p, p),
                         "pulse: attention: 4 tokens, -1 context tokens, 2 heads of 4, batch 1; "
                         "each must be at least 1 (context tokens 0)",
                         pulse::input_error);
    CHECK_THROWS_WITH_AS(b.layer_norm({0}, 3, p, p, p, p, p),
                         "pulse: layer_norm: 3 rows of 0 features; each must be at least 1", pulse::input_error);
    CHECK_THROWS_WITH_AS(b.geglu(0, 4, p, p), "pulse: geglu: 0 rows of 4 features; each must be at least 1",
                         pulse::input_error);
    CHECK_THROWS_WITH_AS(b.patches_to_image({2, 0, 2, 3, 1}, 1, p, p),
                         "pulse: patches_to_image: 2 x 0 patches of 2 x 2 x 3 after 1 leading tokens, batch 1; "
                         "each must be at least 1 (leading tokens 0)",
                         pulse::input_error);
    CHECK_THROWS_AS(b.sinusoid(1, 3, false, 0.0, p, p), pulse::input_error);
    CHECK_THROWS_WITH_AS(b.group_norm_statistics({10, 0, 4, 6}, 1, nullptr, nullptr),
                         "pulse: group_norm_statistics: 4 groups of 10 + 0 channels, 1 rows of 6 pixels; "
                         "each must be at least 1 (second channels exactly 0), and groups must divide channels",
                         pulse::input_error);
    CHECK_THROWS_AS(b.group_norm_rows({8, 8, 4, 6}, 1, 6, nullptr, nullptr, nullptr, nullptr, nullptr, 0),
                    pulse::input_error);
    CHECK_THROWS_AS(b.rotary({1, 1, 1, 6, 1.0}, 1, p, p), pulse::input_error);
    CHECK_THROWS_AS(b.add_resampled({1, 1, 0, 1, 1, 0}, 1, p, p), pulse::input_error);
    CHECK_THROWS_AS(b.resampled_sums({1, 1, 1, 1, 1, 0}, 0, p, p), pulse::input_error);
    CHECK_THROWS_AS(b.rms_norm({0, 1e-6}, 1, nullptr, nullptr, nullptr), pulse::input_error);
    CHECK_THROWS_AS(b.masked_attention({0, 1, 1}, 1, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr),
                    pulse::input_error);
    for (const float index : {3.0F, -1.0F, 0.5F, std::numeric_limits<float>::quiet_NaN()}) {
        CHECK_THROWS_AS(b.embedding({3, 2}, 1, &index, p, p + 8), pulse::input_error);
        CHECK_THROWS_AS(b.embedding_backward_weight({3, 2}, 1, &index, p, p + 8), pulse::input_error);
    }
}

TEST_CASE("a convolution without a step is refused with a sentence") {
    pulse::onednn::backend backend{};
    float unused = 0;
    for (const int stride : {0, -1}) {
        const conv2d_shape s{3, 4, 8, 8, 3, stride, 1, 1};
        CHECK_THROWS_WITH_AS(backend.conv2d(s, 2, &unused, &unused, nullptr, &unused, into::write),
                             doctest::Contains(("stride " + std::to_string(stride) + ", batch 2").c_str()),
                             pulse::input_error);
        CHECK_THROWS_AS(backend.conv2d_backward_input(s, 2, &unused, &unused, &unused, into::write),
                        pulse::input_error);
        CHECK_THROWS_AS(backend.conv2d_backward_weight(s, 2, &unused, &unused, &unused, nullptr), pulse::input_error);
    }
}

TEST_CASE("what a worker throws comes out of the parallel loop") {
    for (const int threads : {1, 2, 4}) {
        std::vector<int> seen(16, 0);
        const auto run = [&](int bad, int worse) {
            pulse::onednn::parallel_for(threads, 16, [&](int, std::int64_t i) {
                if (i == bad || i == worse) { throw pulse::error{"index " + std::to_string(i)}; }
                seen[static_cast<std::size_t>(i)] += 1;
            });
        };
        CHECK_THROWS_WITH_AS(run(5, 14), "index 5", pulse::error);
        CHECK_THROWS_WITH_AS(run(15, 15), "index 15", pulse::error);
        CHECK(seen[0] == 2);
        CHECK_NOTHROW(run(-1, -1));
        CHECK(seen[0] == 3);
    }
}
