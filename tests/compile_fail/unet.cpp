// What a unet_config needs to describe a UNet.
//
// error-1: pulse: a unet_config needs a name
// error-2: pulse: block_out_channels of a unet must have 1 to 8 positive numbers, then only zeros
// error-3: pulse: attention of a unet must only be set for levels that exist
// error-4: pulse: the sizes and channels of a unet must be positive
// error-5: pulse: sample_size of a unet must be divisible by 2 for every level below the first
// error-6: pulse: norm_num_groups must divide every number of block_out_channels
// error-7: pulse: attention_head_dim must divide the channels of every level that attends
// error-8: pulse: downsample_padding of a unet must be 0 or 1
// error-9: pulse: the first number of block_out_channels must be even and more than twice freq_shift
// error-10: pulse: transformers of a unet must only be set for levels that exist without attention blocks
// error-11: pulse: a unet must have cross_attention_dim if and only if it has transformers
// error-12: pulse: mid_block_resnets of a unet must be from 0 to 2, and 2 with a mid-block attention or transformer

#include <pulse/nn/unet.hpp>

constexpr pulse::unet_config config() {
    pulse::unet_config c{.name = "small",
                         .sample_size = 8,
                         .block_out_channels = {8, 16},
                         .layers_per_block = 1,
                         .attention = {false, true},
                         .norm_num_groups = 4};
#if CASE == 1
    c.name = {};
#elif CASE == 2
    c.block_out_channels = {8, 0, 16};
#elif CASE == 3
    c.attention = {false, true, true};
#elif CASE == 4
    c.layers_per_block = 0;
#elif CASE == 5
    c.sample_size = 7;
#elif CASE == 6
    c.norm_num_groups = 3;
#elif CASE == 7
    c.attention_head_dim = 5;
#elif CASE == 8
    c.downsample_padding = 2;
#elif CASE == 9
    c.freq_shift = 4;
#elif CASE == 10
    c.transformer_layers_per_block = {0, 1};
    c.cross_attention_dim = 4;
#elif CASE == 11
    c.cross_attention_dim = 4;
#elif CASE == 12
    c.mid_block_resnets = 1;
#endif
    return c;
}

struct small : pulse::unet<config()> {};
static_assert(small::layer_count == 16);
