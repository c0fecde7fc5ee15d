// What a uvit_config and a hunyuan_dit_config need to describe a backbone.
//
// error-1: pulse: a uvit_config needs a name
// error-2: pulse: the sizes of a uvit must be positive, its number of classes not negative
// error-3: pulse: patch_size of a uvit must divide img_size
// error-4: pulse: depth of a uvit must be even and at least 2
// error-5: pulse: num_heads of a uvit must divide embed_dim
// error-6: pulse: a hunyuan_dit_config needs a name
// error-7: pulse: the sizes of a hunyuan_dit must be positive
// error-8: pulse: patch_size of a hunyuan_dit must divide sample_size
// error-9: pulse: num_layers of a hunyuan_dit must be even and at least 4
// error-10: pulse: num_attention_heads of a hunyuan_dit must divide hidden_size into heads of a multiple of 4 features

#include <pulse/nn/hunyuan_dit.hpp>
#include <pulse/nn/uvit.hpp>

constexpr pulse::uvit_config uvit_config() {
    pulse::uvit_config c{
        .name = "u", .img_size = 8, .patch_size = 2, .in_chans = 1, .embed_dim = 8, .depth = 2, .num_heads = 2};
#if CASE == 1
    c.name = {};
#elif CASE == 2
    c.in_chans = 0;
#elif CASE == 3
    c.patch_size = 3;
#elif CASE == 4
    c.depth = 3;
#elif CASE == 5
    c.num_heads = 3;
#endif
    return c;
}

constexpr pulse::hunyuan_dit_config hunyuan_dit_config() {
    pulse::hunyuan_dit_config c{.name = "h", .sample_size = 8, .num_layers = 4};
#if CASE == 6
    c.name = {};
#elif CASE == 7
    c.text_len = 0;
#elif CASE == 8
    c.patch_size = 3;
#elif CASE == 9
    c.num_layers = 5;
#elif CASE == 10
    c.num_attention_heads = 3;
#endif
    return c;
}

struct small_uvit : pulse::uvit<uvit_config()> {};
struct small_dit : pulse::hunyuan_dit<hunyuan_dit_config()> {};
static_assert(small_uvit::layer_count == 5 && small_dit::layer_count == 6 && small_dit::skip_count == 1);
