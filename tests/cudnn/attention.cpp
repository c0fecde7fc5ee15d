#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <support/skip.hpp>

#include <pulse/cuda/attention_engine.cuh>
#include <pulse/cuda/cudnn/attention.cuh>
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

/// Of a policy, what chooses an engine.
struct sixteen_bits {
    using scalar = std::uint16_t;
};

void append_unet(std::vector<attention_shape>& all, const unet_config& c) {
    for (int level = 0; level != c.levels(); ++level) {
        const int tokens = c.size(level) * c.size(level);
        const int channels = c.channels(level);
        if (c.attends(level)) { all.push_back({tokens, c.heads(channels), channels / c.heads(channels)}); }
        if (c.transformer_blocks(level) == 0 && level + 1 != c.levels()) { continue; }
        if (c.reads_text()) {
            const int heads = c.transformer_heads_of(channels);
            all.push_back({tokens, heads, channels / heads});
            all.push_back({tokens, heads, channels / heads, c.context_tokens});
        }
    }
}

void append_uvit(std::vector<attention_shape>& all, const uvit_config& c) {
    all.push_back(vit_block_of(c, false).core());
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
                // types and batches by turns: each graph costs cuDNN 20 ms
                const cudnnDataType_t type = number % 2 == 0 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
                const int batch = 1 << number++ % 5;
                const std::size_t found = engine_count({s, batch, pass, type}, device);
                // What the README says of cuDNN: every forward pass, and backward passes of heads up to 128.
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
