// What an autoencoder_config needs to describe an autoencoder, and what its layers need of a backend.
//
// error-1: pulse: an autoencoder_config needs a name
// error-2: pulse: block_out_channels of an autoencoder must have 1 to 8 positive numbers, then only zeros
// error-3: pulse: the sizes and channels of an autoencoder must be positive
// error-4: pulse: sample_size of an autoencoder must be divisible by 2 for every level below the first
// error-5: pulse: norm_num_groups must divide every number of block_out_channels
// error-6: pulse: layers that run strip by strip need a picture_backend

#include <pulse/encode/autoencoder.hpp>
#include <pulse/encode/chain.hpp>
#include <pulse/reference/backend.hpp>

constexpr pulse::encode::autoencoder_config config() {
    pulse::encode::autoencoder_config c{};
    c.name = "small";
    c.sample_size = 8;
    c.block_out_channels = {8, 16};
    c.norm_num_groups = 4;
#if CASE == 1
    c.name = {};
#elif CASE == 2
    c.block_out_channels = {8, 0, 16};
#elif CASE == 3
    c.strip_rows = 0;
#elif CASE == 4
    c.sample_size = 7;
#elif CASE == 5
    c.norm_num_groups = 3;
#endif
    return c;
}

struct trains_only : pulse::reference::backend<float> {
#if CASE == 6
    void group_norm_statistics() = delete;
#endif
};

void encode(trains_only& on, const float* x, float* y) {
    pulse::encode::chain<pulse::encode::autoencoder_encoder<config()>, trains_only>{on}.run(1, x, y);
}
