#pragma once

#include <pulse/nn/uvit.hpp>

namespace pulse::test {

struct small_uvit : uvit<uvit_config{.name = "small_uvit",
                                     .img_size = 4,
                                     .patch_size = 2,
                                     .in_chans = 3,
                                     .embed_dim = 8,
                                     .depth = 4,
                                     .num_heads = 2}> {};

/// One head, patches of three pixels, no convolution at the end.
struct crooked_uvit : uvit<uvit_config{.name = "crooked_uvit",
                                       .img_size = 9,
                                       .patch_size = 3,
                                       .in_chans = 2,
                                       .embed_dim = 6,
                                       .depth = 2,
                                       .num_heads = 1,
                                       .conv = false}> {};

} // namespace pulse::test
