#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/diffusers/copy_component.hpp>
#include <pulse/diffusers/folder_writer.hpp>
#include <pulse/diffusers/model_files.hpp>
#include <pulse/diffusers/pipeline.hpp>
#include <pulse/diffusers/single_file.hpp>
#include <pulse/diffusers/single_file_writer.hpp>
#include <pulse/diffusers/weights.hpp>
#include <pulse/io/safetensors.hpp>

#include <support/skip.hpp>

#include "folders.hpp"

namespace {

using namespace pulse;
using namespace pulse::diffusers;
using namespace pulse::test;

/// Writes the pipeline as a single file, with the UNet's weights unchanged.
void write_same(const model_files& from, const fs::path& to, io::element_type type = io::f32) {
    const weights unet{from, "unet"};
    std::vector<io::tensor_shape> tensors;
    for (const auto& [name, one] : unet.tensors()) { tensors.push_back({name, {}, one.entry->dims}); }
    const tensor_values values = [&](std::size_t i, const std::function<void(std::span<const float>)>& put) {
        const weights::tensor& one = unet.tensors().at(tensors[i].name);
        std::vector<float> all(one.bytes().size() / static_cast<std::size_t>(one.entry->type.bits / 8));
        convert_elements(one.bytes(), one.entry->type, 0, all);
        put(all);
    };
    write_single_file(from, to, tensors, values, {.type = type});
}

using tensors_by_name = std::map<std::string, std::pair<std::vector<std::int64_t>, std::string>>;

/// Shapes and bytes of a component's tensors.
[[nodiscard]] tensors_by_name tensors_of(const weights& from) {
    constexpr std::string_view prefix = "text_model."; // transformers 5.6 and later omit it
    tensors_by_name all;
    for (const auto& [name, one] : from.tensors()) {
        if (name.ends_with("position_ids")) { continue; }
        all[name.starts_with(prefix) ? name.substr(prefix.size()) : name] = {
            one.entry->dims, {reinterpret_cast<const char*>(one.bytes().data()), one.bytes().size()}};
    }
    return all;
}

/// Checks that file and folder have the same tensors, bit for bit; returns the number of equal components.
[[nodiscard]] int equal_components(const model_files& one, const fs::path& other) {
    int equal = 0;
    for (const pipeline_component& component : read_pipeline(other).components) {
        CAPTURE(component.name);
        const tensors_by_name found = tensors_of(weights{one, component.name});
        CHECK(found.size() > 10);
        const bool same = found == tensors_of(weights{other / component.name});
        CHECK(same);
        equal += same ? 1 : 0;
    }
    return equal;
}

void check_pipeline(const fs::path& folder, const std::string& name) {
    CAPTURE(name);
    const int components = name == "sdxl" ? 4 : 3;
    // Extra tensors of a half-precision file change nothing; they are kept, and none are added.
    const fs::path half = folder / "half" / name;
    const model_files published{half, folder / "published" / (name + ".safetensors")};
    CHECK(equal_components(published, half) == components);
    const fs::path again = folder / (name + "_again.safetensors");
    write_same(published, again, io::f16);
    CHECK(equal_components({half, again}, half) == components);
    const io::safetensors_file before{published.file};
    const io::safetensors_file after{again};
    std::size_t kept = 0;
    for (const io::tensor_entry& entry : before.tensors()) {
        const io::tensor_entry* const copy = after.find(entry.name);
        CHECK((copy == nullptr) == entry.name.starts_with("model_ema."));
        if (copy == nullptr) { continue; }
        CHECK(std::ranges::equal(before.bytes(entry), after.bytes(*copy)));
        ++kept;
    }
    CHECK(kept == after.tensors().size());
    // A file may be overwritten by its own export, and can become a folder again.
    const std::string bytes = bytes_of(again);
    write_same({half, again}, again, io::f16);
    CHECK((bytes_of(again) == bytes));
    folder_writer<> out{folder / (name + "_folder")};
    out.copy(half / "model_index.json", "model_index.json");
    for (const pipeline_component& one : read_pipeline(half).components) {
        copy_component({half, again}, one.name, out);
    }
    out.commit();
    CHECK(equal_components({half, again}, folder / (name + "_folder")) == components);
    CHECK(fs::exists(folder / (name + "_folder/unet/diffusion_pytorch_model.safetensors")));
    CHECK(bytes_of(folder / (name + "_folder/vae/config.json")) == bytes_of(half / "vae/config.json"));
}

bool compare_with_diffusers(const char* packages) {
    const scratch folder;
    const auto run = [&](const char* task) {
        return run_python(PULSE_TEST_DIFFUSERS_SINGLE_FILE, packages, {folder.path, task});
    };
    if (!run("write")) { return false; }
    for (const char* const name : {"sd1", "sd2", "sdxl"}) {
        write_same(folder.path / name, folder.path / (std::string{name} + ".safetensors"));
    }
    REQUIRE(run("check"));
    for (const char* const name : {"sd1", "sd2", "sdxl"}) { check_pipeline(folder.path, name); }
    return true;
}

} // namespace

TEST_CASE("checkpoints of one file are what diffusers makes of them, both ways") {
    if (!compare_with_diffusers(PULSE_TEST_PYTHON_PACKAGES)) {
        pulse::test::skip("no torch, diffusers and transformers");
    }
}

TEST_CASE("checkpoints of one file are what the newest diffusers makes of them, both ways") {
    if (!compare_with_diffusers(PULSE_TEST_PYTHON_NEWEST)) {
        pulse::test::skip("no newest torch, diffusers and transformers");
    }
}
