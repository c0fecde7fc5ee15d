#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <cuda/drawn_shapes.hpp>
#include <support/skip.hpp>

#include <pulse/cuda/attention_engine.cuh>
#include <pulse/cuda/cudnn/attention.cuh>
#include <pulse/cuda/cudnn/attention_rules.cuh>
#include <pulse/cuda/cudnn/engines.cuh>
#include <pulse/zoo/ddpm.hpp>
#include <pulse/zoo/hunyuan_dit.hpp>
#include <pulse/zoo/sdxl.hpp>
#include <pulse/zoo/stable_diffusion.hpp>
#include <pulse/zoo/uvit.hpp>

#include "devices.hpp"
#include "driver.hpp"

using namespace pulse;
using namespace pulse::cuda::cudnn;
using cudnn_tests::has_driver;

namespace {

/// The part of a policy that selects an engine.
struct sixteen_bits {
    using scalar = std::uint16_t;
};

void append_unet(std::vector<attention_shape>& all, const unet_config& c) {
    for (int level = 0; level != c.levels(); ++level) {
        const int tokens = c.size(level) * c.size(level);
        const int channels = c.channels(level);
        if (c.attends(level)) { all.push_back({tokens, c.heads(channels), channels / c.heads(channels)}); }
        if (!c.has_transformers(level) && level + 1 != c.levels()) { continue; }
        if (c.reads_text()) {
            const int heads = c.transformer_heads_at(level);
            all.push_back({tokens, heads, channels / heads});
            all.push_back({tokens, heads, channels / heads, c.context_tokens});
        }
    }
}

void append_uvit(std::vector<attention_shape>& all, const uvit_config& c) {
    all.push_back(vit_block_of(c, false).attention().shape());
}

/// The attention of every backbone of the zoo.
std::vector<attention_shape> zoo_attention() {
    std::vector<attention_shape> all;
    append_unet(all, sd15::config);
    append_unet(all, sd21::config);
    append_unet(all, sdxl::config);
    append_unet(all, ddpm_cifar10::config);
    append_unet(all, ddpm_fmnist::config);
    append_uvit(all, uvit_s2::config);
    append_uvit(all, uvit_m4::config);
    append_uvit(all, uvit_l2::config);
    append_uvit(all, uvit_h2::config);
    const hunyuan_dit_config hunyuan{};
    const int patches = hunyuan.sample_size / hunyuan.patch_size;
    const int size = hunyuan.hidden_size / hunyuan.num_attention_heads;
    all.push_back({patches * patches, hunyuan.num_attention_heads, size});
    all.push_back({patches * patches, hunyuan.num_attention_heads, size, hunyuan.context_tokens()});
    return all;
}

std::size_t engine_count(const attention_graph& graph, const target& device) {
    return engines_for(make_graph(graph, nullptr), device, {.tensor_float = true, .allow_run_time_compiled = true})
        .size();
}

std::string text_of(const attention_shape& s) {
    return std::to_string(s.tokens) + " tokens to " + std::to_string(s.keys()) + ", " + std::to_string(s.heads) +
           " heads of " + std::to_string(s.head_size);
}

} // namespace

TEST_CASE("every attention of the zoo has an engine: cuDNN's or pulse's own on tensor cores") {
    if (!has_driver()) { return test::skip("neither libcuda.so.1 nor its stub is there"); }
    const std::vector<attention_shape> all = zoo_attention();
    for (const int size : {8, 40, 64, 72, 80, 88, 160, 256}) {
        CHECK(std::any_of(all.begin(), all.end(), [&](const attention_shape& s) { return s.head_size == size; }));
    }
    for (const cudnn_tests::device_facts& facts : {cudnn_tests::a100, cudnn_tests::h200, cudnn_tests::b200}) {
        const target device = target::described(cudnn_tests::properties_json(facts));
        for (const attention_pass pass : {attention_pass::forward, attention_pass::backward}) {
            std::string without;
            std::size_t number = 0;
            for (const attention_shape& s : all) {
                // alternating types and batches: each graph costs cuDNN 20 ms
                const cudnnDataType_t type = number % 2 == 0 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
                const int batch = 1 << number++ % 5;
                const std::size_t found = engine_count({s, batch, pass, type}, device);
                // As the README says of cuDNN: every forward pass, and backward passes of heads up to 128.
                CHECK_MESSAGE((found != 0 || (pass == attention_pass::backward && s.head_size > 128)),
                              facts.name << ": " << text_of(s));
                CHECK(cuda::own_attention_engine<sixteen_bits>(s, batch) == cuda::attention_engine::tensor_cores);
                if (found == 0) { without += (without.empty() ? "" : "; ") + text_of(s); }
            }
            std::printf("sm_%d %s: %zu attentions, cuDNN has no engine for: %s\n", facts.sm,
                        pass == attention_pass::forward ? "forward" : "backward", all.size(),
                        without.empty() ? "none" : without.c_str());
        }
    }
}

TEST_CASE("the attention that tests leave to cuDNN has an engine on every device, both ways") {
    if (!has_driver()) { return test::skip("neither libcuda.so.1 nor its stub is there"); }
    for (const cudnn_tests::device_facts& facts : {cudnn_tests::a100, cudnn_tests::h200, cudnn_tests::b200}) {
        const target device = target::described(cudnn_tests::properties_json(facts));
        for (const test::chosen_attention& one : test::cudnn_attentions) {
            for (const attention_pass pass : {attention_pass::forward, attention_pass::backward}) {
                for (const cudnnDataType_t type : {CUDNN_DATA_BFLOAT16, CUDNN_DATA_HALF}) {
                    INFO(facts.name << ": " << text_of(one.shape));
                    CHECK(engine_count({one.shape, one.batch, pass, type}, device) != 0);
                }
            }
        }
    }
}

TEST_CASE("attention is left to cuDNN but for what is known to be wrong with it") {
    constexpr auto forward = attention_pass::forward;
    constexpr auto backward = attention_pass::backward;
    constexpr auto taken = [](attention_pass pass, int tokens, int keys, int sm, std::size_t version) {
        return attention_fault(pass, {tokens, 2, 64, keys}, sm, version).empty();
    };
    for (const int sm : {80, 86, 90, 100, 120}) {
        for (const std::size_t version : {91301U, 91500U, 91501U, 91900U, 92501U, 92600U}) {
            for (const int keys : {2, 63, 64, 77, 128, 144, 192, 256, 576, 1000, 4096}) {
                CAPTURE(sm);
                CAPTURE(version);
                CAPTURE(keys);
                CHECK(taken(forward, 2, keys, sm, version));
                CHECK(taken(forward, 576, keys, sm, version));
                const bool whole = keys % 128 == 0;
                const bool half = keys % 128 == 64;
                CHECK(taken(backward, 576, keys, sm, version) ==
                      (whole || (version > 91500 && !(half && sm == 90 && version < 92600))));
                for (const attention_pass pass : {forward, backward}) { // a single query is safe nowhere
                    CHECK_FALSE(taken(pass, 1, keys, sm, version));
                }
            }
            for (const attention_pass pass : {forward, backward}) {
                CHECK_FALSE(taken(pass, 64, 1, sm, version));
                CHECK_FALSE(taken(pass, 128, 128, sm, 91300));
                CHECK_FALSE(taken(pass, 128, 128, sm, 90800));
            }
        }
    }
    static_assert(taken(backward, 33, 70, 90, 91900) && !taken(backward, 576, 576, 90, 91900)); // SD 2.1 at 24x24
}
