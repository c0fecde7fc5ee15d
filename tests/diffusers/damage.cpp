#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <sys/stat.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <pulse/diffusers/backbone.hpp>
#include <pulse/diffusers/scheduler.hpp>

#include "folders.hpp"

namespace {

using namespace pulse;
using namespace pulse::test;
using nlohmann::json;

constexpr const char* stem = "unet/diffusion_pytorch_model.safetensors";

/// A safetensors file with this header and `bytes` bytes of data.
std::string file_of(const std::string& header, std::size_t bytes) {
    std::string file(8, '\0');
    const std::uint64_t size = header.size();
    std::memcpy(file.data(), &size, 8);
    return file + header + std::string(bytes, '\0');
}

/// The error for a folder that `damage` changed from a whole one.
std::string after(const std::function<void(const fs::path&)>& damage, diffusers::weights_format format = {}) {
    const scratch folder;
    write_pipeline(folder.path / "sd", 1, format);
    damage(folder.path / "sd");
    return refusal_of([&] {
        static_cast<void>(diffusers::read_pipeline(folder.path / "sd"));
        static_cast<void>(diffusers::open_backbone<ddpm_tiny>(folder.path / "sd"));
    });
}

/// Changes the header of a whole file.
void change_header(const fs::path& file, const std::function<void(json&)>& change) {
    const std::string bytes = bytes_of(file);
    std::uint64_t size = 0;
    std::memcpy(&size, bytes.data(), 8);
    json header = json::parse(bytes.substr(8, size));
    change(header);
    std::string made = file_of(header.dump(), 0);
    put(file, made + bytes.substr(8 + size));
}

void change_json(const fs::path& file, const std::function<void(json&)>& change) {
    json value = json::parse(bytes_of(file));
    change(value);
    put(file, value.dump());
}

} // namespace

TEST_CASE("a whole folder is not refused, nor one that has the variant fp16 alone") {
    CHECK(after([](const fs::path& sd) {
              fs::rename(sd / stem, sd / "unet/diffusion_pytorch_model.fp16.safetensors");
          }) == "no refusal");
    CHECK(after([](const fs::path&) {}) == "no refusal");
    CHECK(after([](const fs::path&) {}, {.shard_bytes = 4000}) == "no refusal");
}

TEST_CASE("damaged components give one line that names the file and what is wrong with it") {
    const auto unet = [](const char* file) { return "sd/unet/" + std::string{file} + "'"; };
    CHECK(mentions(after([](const fs::path& sd) { put(sd / "unet/config.json", "{\"a\": "); }),
                   {unet("config.json"), "not valid JSON"}));
    CHECK(mentions(after([](const fs::path& sd) { fs::remove(sd / "unet/config.json"); }),
                   {"unet/config.json", "cannot be read"}));
    CHECK(mentions(after([](const fs::path& sd) {
                       fs::remove(sd / "unet/config.json");
                       fs::create_directory(sd / "unet/config.json");
                   }),
                   {"unet/config.json", "is a folder"}));
    CHECK(mentions(after([](const fs::path& sd) {
                       change_json(sd / "unet/config.json", [](json& c) { c["norm_num_groups"] = 2; });
                   }),
                   {unet("config.json"), "norm_num_groups is 2", "ddpm_tiny has 4"}));
    CHECK(mentions(after([](const fs::path& sd) { fs::remove_all(sd / "unet"); }), {"unet is a component"}));
    CHECK(mentions(after([](const fs::path& sd) { fs::remove(sd / stem); }), {"sd/unet' has no weights"}));
    CHECK(mentions(after([](const fs::path& sd) { fs::rename(sd / stem, sd / "unet/diffusion_pytorch_model.bin"); }),
                   {"sd/unet' has no weights", "diffusion_pytorch_model.bin, which runs code"}));
    CHECK(mentions(after([](const fs::path& sd) {
                       fs::remove(sd / stem);
                       fs::create_directory(sd / stem);
                   }),
                   {stem, "it is not a file"}));
    CHECK(mentions(after([](const fs::path& sd) {
                       fs::remove(sd / stem);
                       REQUIRE(::mkfifo((sd / stem).c_str(), 0600) == 0);
                   }),
                   {stem, "it is not a file"}));
}

TEST_CASE("damaged weights give one line that names the file and the tensor") {
    const auto weights = [](const std::function<void(const fs::path&)>& damage) {
        return after([&](const fs::path& sd) { damage(sd / stem); });
    };
    CHECK(mentions(weights([](const fs::path& f) { fs::resize_file(f, fs::file_size(f) - 1); }),
                   {stem, "follow its header"}));
    CHECK(mentions(weights([](const fs::path& f) { fs::resize_file(f, 5); }), {stem, "too short"}));
    CHECK(mentions(weights([](const fs::path& f) { put(f, std::string(16, '\xFF')); }), {stem, "header length"}));
    CHECK(mentions(weights([](const fs::path& f) { put(f, file_of("{\"a\nb\":\x01", 0)); }), {stem, "not valid JSON"}));
    CHECK(mentions(weights([](const fs::path& f) {
                       change_header(f, [](json& h) { h["conv_in.weight"]["data_offsets"] = {0, 288}; });
                   }),
                   {stem, "'conv_in.weight' begins at 0, but the one before it ends at"})); // an overlap, then a gap
    CHECK(mentions(weights([](const fs::path& f) {
                       change_header(f, [](json& h) { h["conv_in.bias"]["shape"] = {1LL << 40, 1LL << 40}; });
                   }),
                   {stem, "'conv_in.bias'", "too many elements"}));
    CHECK(mentions(
        weights([](const fs::path& f) { change_header(f, [](json& h) { h["conv_in.bias"]["shape"] = {1LL << 50}; }); }),
        {stem, "'conv_in.bias'", "do not fit"}));
    CHECK(mentions(
        weights([](const fs::path& f) { change_header(f, [](json& h) { h["conv_in.bias"]["dtype"] = "I32"; }); }),
        {"sd/unet'", "1 tensor is not F32, F16 or BF16 (conv_in.bias: I32)"}));
    CHECK(mentions(weights([](const fs::path& f) {
                       change_header(f, [](json& h) {
                           h["conv\x01\nin" + std::string(300, 'x')] = h["conv_in.bias"];
                           h.erase("conv_in.bias");
                       });
                   }),
                   {"sd/unet'", "1 tensor is missing (conv_in.bias)",
                    "1 tensor that the model does not have is not read (conv??in"}));
    CHECK(mentions(weights([](const fs::path& f) {
                       change_header(f, [](json& h) { h["conv_in.bias"]["shape"] = {2, 4}; });
                   }),
                   {"sd/unet'", "conv_in.bias: [2, 4] in the file, [8] in the model"}));
}

TEST_CASE("an index that disagrees with its shards is refused, and both are named") {
    const std::string index = std::string{stem} + ".index.json";
    const auto sharded = [&](const std::function<void(json&, const fs::path&)>& damage) {
        return after(
            [&](const fs::path& sd) { change_json(sd / index, [&](json& value) { damage(value, sd / "unet"); }); },
            {.shard_bytes = 4000});
    };
    CHECK(mentions(sharded([](json& i, const fs::path&) { i = json::array(); }),
                   {index, "weight_map must be an object"}));
    CHECK(mentions(sharded([](json& i, const fs::path&) { i.erase("weight_map"); }),
                   {index, "weight_map must be an object"}));
    CHECK(mentions(sharded([](json& i, const fs::path&) { i["weight_map"]["conv_in.bias"] = 3; }),
                   {index, "weight_map 'conv_in.bias' must be the name of a file"}));
    for (const char* const name : {"../x.safetensors", "/etc/passwd", "x.bin"}) {
        CHECK(mentions(sharded([&](json& i, const fs::path&) { i["weight_map"]["conv_in.bias"] = name; }),
                       {index, "'conv_in.bias' is '" + std::string{name} + "', not a safetensors file"}));
    }
    std::string shard;
    CHECK(sharded([&](json& i, const fs::path&) { shard = i["weight_map"]["conv_in.bias"]; }) == "no refusal");
    CHECK(mentions(sharded([&](json&, const fs::path& unet) { fs::remove(unet / shard); }),
                   {index, "the shard '" + shard + "' is missing"}));
    CHECK(mentions(sharded([&](json& i, const fs::path&) { i["weight_map"]["more"] = shard; }),
                   {index, "tensor 'more' is not in '" + shard + "', where weight_map says"}));
    CHECK(mentions(sharded([&](json& i, const fs::path&) { i["weight_map"].erase("conv_in.bias"); }),
                   {shard, "tensor 'conv_in.bias' is not in the weight_map of '"}));
    CHECK(mentions(sharded([&](json& i, const fs::path&) {
                       for (const auto& other : i["weight_map"]) {
                           if (other != shard) { i["weight_map"]["conv_in.bias"] = json(other); }
                       }
                   }),
                   {"'conv_in.bias' is not in"}));
    CHECK(mentions(sharded([&](json& i, const fs::path& unet) {
                       for (const auto& other : i["weight_map"]) {
                           if (other != shard) {
                               fs::remove(unet / other.get<std::string>());
                               fs::copy_file(unet / shard, unet / other.get<std::string>());
                               break;
                           }
                       }
                   }),
                   {".safetensors': tensor '", "is also in another shard"}));
}

TEST_CASE("300 files that were damaged anywhere give one line or a folder that can be read") {
    const scratch folder;
    write_pipeline(folder.path / "one", 1);
    write_pipeline(folder.path / "many", 1, {.shard_bytes = 4000});
    std::mt19937_64 engine{14};
    int refused = 0;
    for (int round = 0; round != 300; ++round) {
        const fs::path sd = folder.path / (round % 2 == 0 ? "one" : "many");
        std::vector<fs::path> files{sd / "model_index.json", sd / "scheduler/scheduler_config.json"};
        for (const auto& entry : fs::directory_iterator{sd / "unet"}) { files.push_back(entry.path()); }
        std::sort(files.begin(), files.end());
        const fs::path file = files[engine() % files.size()];
        const std::string whole = bytes_of(file);
        std::string bytes = whole;
        const std::size_t front = std::min<std::size_t>(bytes.size(), 3000); // mostly the header
        switch (engine() % 4) {
        case 0: bytes.resize(engine() % bytes.size()); break;
        case 1: bytes[engine() % front] = static_cast<char>(engine()); break;
        case 2: bytes[engine() % front] = "0123456789[]{},:\""[engine() % 17]; break;
        default: bytes.insert(engine() % front, bytes.substr(engine() % front, 1 + engine() % 20));
        }
        put(file, bytes);
        const std::string why = refusal_of([&] {
            static_cast<void>(diffusers::read_pipeline(sd));
            static_cast<void>(diffusers::read_scheduler(sd / "scheduler"));
            const diffusers::weights found = diffusers::open_backbone<ddpm_tiny>(sd);
            for (const parameter& what : diffusers::model_parameters<ddpm_tiny>()) {
                static_cast<void>(values_in(found, what));
            }
        });
        if (why != "no refusal") {
            ++refused;
            CHECK(mentions(why, {sd.filename().string()}));
        }
        put(file, whole);
    }
    CHECK(refused > 180);
}
