#pragma once

#include <pulse/nn/uvit.hpp>

namespace pulse {

/// U-ViT-S/2 (Bao et al. 2023; baofff/U-ViT cifar10_uvit_small), 32x32 images without classes: 44,255,328 parameters.
struct uvit_s2 : uvit<uvit_config{.name = "uvit_s2",
                                  .img_size = 32,
                                  .patch_size = 2,
                                  .in_chans = 3,
                                  .embed_dim = 512,
                                  .depth = 12,
                                  .num_heads = 8}> {};

/// U-ViT-M/4 (baofff/U-ViT imagenet64_uvit_mid), 64x64 images: 130,940,292 parameters.
struct uvit_m4 : uvit<uvit_config{.name = "uvit_m4",
                                  .img_size = 64,
                                  .patch_size = 4,
                                  .in_chans = 3,
                                  .embed_dim = 768,
                                  .depth = 16,
                                  .num_heads = 12,
                                  .num_classes = 1000}> {};

/// U-ViT-L/2 (baofff/U-ViT imagenet256_uvit_large), 32x32 latents of 256-pixel images; class 1000 is "no class":
/// 286,763,172 parameters.
struct uvit_l2 : uvit<uvit_config{.name = "uvit_l2",
                                  .img_size = 32,
                                  .patch_size = 2,
                                  .in_chans = 4,
                                  .embed_dim = 1024,
                                  .depth = 20,
                                  .num_heads = 16,
                                  .num_classes = 1001}> {};

/// U-ViT-H/2 (baofff/U-ViT imagenet256_uvit_huge), 32x32 latents of 256-pixel images: 500,832,016 parameters.
struct uvit_h2 : uvit<uvit_config{.name = "uvit_h2",
                                  .img_size = 32,
                                  .patch_size = 2,
                                  .in_chans = 4,
                                  .embed_dim = 1152,
                                  .depth = 28,
                                  .num_heads = 16,
                                  .num_classes = 1001,
                                  .conv = false}> {};

/// The smallest one, for tests: 8x8 latents of ten classes.
struct uvit_tiny : uvit<uvit_config{.name = "uvit_tiny",
                                    .img_size = 8,
                                    .patch_size = 2,
                                    .in_chans = 4,
                                    .embed_dim = 16,
                                    .depth = 6,
                                    .num_heads = 2,
                                    .num_classes = 10}> {};

} // namespace pulse
