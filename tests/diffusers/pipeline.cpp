#include <string>

#include <doctest/doctest.h>

#include <pulse/diffusers/pipeline.hpp>

#include "folders.hpp"

using namespace pulse::diffusers;
using pulse::test::mentions;
using pulse::test::refusal_of;

TEST_CASE("a model_index.json lists the components that are there") {
    const pipeline sd = parse_pipeline(R"({
        "_class_name": "StableDiffusionPipeline", "_diffusers_version": "0.27.2", "_name_or_path": ["odd"],
        "feature_extractor": [null, null], "image_encoder": [null, null], "requires_safety_checker": false,
        "scheduler": ["diffusers", "DDIMScheduler"], "unet": ["diffusers", "UNet2DConditionModel"]})",
                                       "f");
    CHECK(sd.class_name == "StableDiffusionPipeline");
    REQUIRE(sd.components.size() == 2);
    REQUIRE(sd.find("unet") != nullptr);
    CHECK(sd.find("unet")->class_name == "UNet2DConditionModel");
    CHECK(sd.find("feature_extractor") == nullptr);
    CHECK(parse_pipeline(print_pipeline(sd), "f") == sd);
    const pipeline odd{"StableDiffusionPipeline", {{"requires_safety_checker", "diffusers", "DDIMScheduler"}}};
    CHECK(parse_pipeline(print_pipeline(odd), "f") == odd);
}

TEST_CASE("a model_index.json says whether zeros replace a missing negative text") {
    const auto zeros = [](const char* text) {
        const pipeline index = parse_pipeline(text, "f");
        CHECK(parse_pipeline(print_pipeline(index), "f") == index);
        return index.zeros_without_negative;
    };
    CHECK_FALSE(zeros(R"({"_class_name": "StableDiffusionPipeline"})"));
    CHECK(zeros(R"({"_class_name": "StableDiffusionXLPipeline"})"));
    CHECK_FALSE(zeros(R"({"_class_name": "StableDiffusionXLPipeline", "force_zeros_for_empty_prompt": false})"));
    const auto bad = [] {
        static_cast<void>(parse_pipeline(R"({"_class_name": "P", "force_zeros_for_empty_prompt": 1})", "f"));
    };
    CHECK(mentions(refusal_of(bad), {"f: force_zeros_for_empty_prompt"}));
}

TEST_CASE("a model_index.json that is none is refused by its key") {
    const auto why = [](const char* text) { return refusal_of([&] { static_cast<void>(parse_pipeline(text, "f")); }); };
    CHECK(mentions(why("["), {"f: not valid JSON"}));
    CHECK(mentions(why("[]"), {"f: the index must be an object"}));
    CHECK(mentions(why("{}"), {"f: _class_name is missing"}));
    CHECK(mentions(why(R"({"_class_name": "P", "unet": ["diffusers"]})"), {"f: unet must be a library and a class"}));
    CHECK(mentions(why(R"({"_class_name": "P", "unet": ["diffusers", null]})"), {"f: unet must be"}));
    CHECK(mentions(why(R"({"_class_name": "P", "../unet": ["a", "b"]})"), {"f: ../unet cannot be the name"}));
    CHECK(mentions(why(R"({"_class_name": "P", "..": ["a", "b"]})"), {"f: .. cannot be the name"}));
    CHECK(mentions(why(R"({"_class_name": "P", "unet": ["a", "b"], "unet": ["a", "c"]})"), {"'unet' occurs twice"}));

    const pulse::test::scratch folder;
    CHECK(mentions(refusal_of([&] { static_cast<void>(read_pipeline(folder.path)); }), {"model_index.json"}));
    pulse::test::put(folder.path / "model_index.json", R"({"_class_name": "P", "vae": ["a", "b"]})");
    CHECK(mentions(refusal_of([&] { static_cast<void>(read_pipeline(folder.path)); }),
                   {"model_index.json': vae is a component", "has no folder of this name"}));
    // Components that only sampling needs may be missing from a download.
    pulse::test::put(folder.path / "model_index.json", R"({"_class_name": "P", "safety_checker": ["a", "b"]})");
    CHECK(read_pipeline(folder.path).components.empty());
}
