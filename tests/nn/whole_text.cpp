#include <doctest/doctest.h>

#include <nn/small_text.hpp>
#include <nn/whole_trial.hpp>

using namespace pulse;
using pulse::test::whole_trial;

TEST_CASE("whole UNets with text, also cut finely: every parameter tensor's gradient equals finite differences") {
    whole_trial<test::small_sd>{}.check(2);
    whole_trial<test::small_sdxl>{}.check(1);
    whole_trial<test::small_sdxl_fine>{}.check(1);
}

TEST_CASE("whole Hunyuan-DiTs of both versions: every parameter tensor's gradient equals finite differences") {
    whole_trial<test::small_hunyuan_v11>{1.5e-4}.check(1);
    whole_trial<test::small_hunyuan_v12>{1.5e-4}.check(2);
}

TEST_CASE("whole U-ViT with classes: every parameter tensor's gradient equals finite differences") {
    whole_trial<test::labelled_uvit>{}.check(4);
}
