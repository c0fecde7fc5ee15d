#include <nn/torch_parity.hpp>

#include <doctest/doctest.h>

#include <nn/crooked_unet.hpp>
#include <nn/small_uvit.hpp>
#include <support/skip.hpp>
#include <pulse/onednn/backend.hpp>
#include <pulse/zoo/ddpm.hpp>
#include <pulse/zoo/hunyuan_dit.hpp>
#include <pulse/zoo/uvit.hpp>

TEST_CASE("UNets and U-ViTs in float on the oneDNN backend equal PyTorch in every gradient") {
    if (!pulse::test::has_torch()) { return pulse::test::skip("no python3 with torch"); }
    pulse::onednn::backend backend;
    pulse::test::check_against_torch<pulse::ddpm_tiny>(backend, 999.0);
    pulse::test::check_against_torch<pulse::test::crooked_unet>(backend, 999.0);
    pulse::test::check_against_torch<pulse::ddpm_fmnist>(backend, 999.0);
    pulse::test::check_against_torch<pulse::test::small_uvit>(backend, 999.0);
}

TEST_CASE("the tiny U-ViT and Hunyuan-DiT in float on the oneDNN backend equal PyTorch in every gradient") {
    if (!pulse::test::has_torch()) { return pulse::test::skip("no python3 with torch"); }
    pulse::onednn::backend backend;
    pulse::test::check_against_torch<pulse::uvit_tiny>(backend, 999.0);
    pulse::test::check_against_torch<pulse::hunyuan_tiny>(backend, 999.0);
}
