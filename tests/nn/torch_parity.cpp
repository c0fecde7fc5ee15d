#include <nn/torch_parity.hpp>

#include <doctest/doctest.h>

#include <nn/crooked_unet.hpp>
#include <nn/small_text.hpp>
#include <nn/small_uvit.hpp>
#include <support/skip.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/zoo/ddpm.hpp>

TEST_CASE("small UNets and U-ViTs in double on the reference backend equal PyTorch in every gradient") {
    if (!pulse::test::has_torch()) { return pulse::test::skip("no python3 with torch"); }
    pulse::reference::backend<double> backend;
    pulse::test::check_against_torch<pulse::ddpm_tiny>(backend, 999.0);
    pulse::test::check_against_torch<pulse::test::crooked_unet>(backend, 999.0);
    pulse::test::check_against_torch<pulse::test::crooked_uvit>(backend, 999.0);
    pulse::test::check_against_torch<pulse::test::labelled_uvit>(backend, 999.0);
    const pulse::extent type = pulse::extent_of<pulse::test::labelled_uvit>();
    pulse::test::check_against_torch<pulse::test::labelled_uvit>(backend, 999.0, {2 * type.height, type.width});
    pulse::test::check_against_torch<pulse::test::crooked_uvit>(backend, 999.0, {3, 15}); // patches of 3
}

TEST_CASE("small models with text in double on the reference backend equal PyTorch in every gradient") {
    if (!pulse::test::has_torch()) { return pulse::test::skip("no python3 with torch"); }
    pulse::reference::backend<double> backend;
    pulse::test::check_against_torch<pulse::test::small_sd>(backend, 999.0);
    pulse::test::check_against_torch<pulse::test::small_sdxl>(backend, 999.0);
    pulse::test::check_against_torch<pulse::test::small_hunyuan_v11>(backend, 999.0);
}
