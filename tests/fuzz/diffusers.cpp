#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/diffusers/backbone_config.hpp>
#include <pulse/diffusers/config.hpp>
#include <pulse/diffusers/model_header.hpp>
#include <pulse/diffusers/pipeline.hpp>
#include <pulse/diffusers/read_backbone.hpp>
#include <pulse/diffusers/read_networks.hpp>
#include <pulse/diffusers/scheduler.hpp>
#include <pulse/diffusers/single_file.hpp>
#include <pulse/diffusers/weights.hpp>
#include <pulse/io/parse_json.hpp>
#include <pulse/io/safetensors.hpp>

#include "reader.hpp"

namespace {

namespace fs = std::filesystem;
using namespace pulse;

/// The folder of a component with two shards, which an index may describe; it exists until the process ends.
struct component {
    fs::path folder;
    component() {
        std::string name = (fs::temp_directory_path() / "pulse-fuzz-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) { std::abort(); }
        folder = name;
        const std::vector<std::byte> four(4);
        for (const char* const shard : {"a", "b"}) {
            const std::vector<io::tensor_source> tensors{{shard, io::f32, {1}, four}};
            io::write_safetensors(folder / (std::string{shard} + ".safetensors"), tensors);
        }
    }
    ~component() {
        std::error_code unused;
        fs::remove_all(folder, unused);
    }
};

void put(const fs::path& path, std::string_view bytes) {
    // Truncating a file that was just written would wait for the disk.
    fs::remove(path);
    std::ofstream out{path, std::ios::binary};
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// The most data bytes of an input.
constexpr std::uint64_t most_data = 10000;

/// The end of the data that a header describes.
std::uint64_t end_of_data(const std::string& header) {
    std::uint64_t end = 0;
    const nlohmann::json root = nlohmann::json::parse(header, nullptr, false);
    if (!root.is_object()) { return end; }
    for (const auto& entry : root) {
        const nlohmann::json offsets = entry.is_object() ? entry.value("data_offsets", nlohmann::json{}) : entry;
        if (offsets.is_array() && offsets.size() == 2 && offsets[1].is_number_unsigned()) {
            end = std::max(end, offsets[1].get<std::uint64_t>());
        }
    }
    return end;
}

/// A file with the text as header, and as many data bytes as its tensors need, if these are few: so that the header's
/// contents are tested and not its length.
std::string file_of(const std::string& header) {
    const std::uint64_t end = end_of_data(header);
    std::string file(8, '\0');
    const std::uint64_t size = header.size();
    std::memcpy(file.data(), &size, 8);
    return file + header + std::string(end > most_data ? 0 : static_cast<std::size_t>(end), '\0');
}

/// Runs `act`, whose error must be one line that names the source.
void attempt(std::string_view source, const std::function<void()>& act) {
    try {
        act();
    } catch (const input_error& e) {
        const std::string_view why = e.what();
        const bool one_line =
            std::none_of(why.begin(), why.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; });
        if (!one_line || why.size() > 3000 || why.find(source) == std::string_view::npos ||
            why.size() < source.size() + 8) {
            pulse_fuzz::report("unclear refusal", why);
        }
    }
}

void read_all(const fs::path& folder) {
    diffusers::weights found{folder};
    std::uintmax_t room = 0;
    for (const auto& file : fs::directory_iterator{folder}) { room += file.file_size(); }
    std::uintmax_t bytes = 0;
    for (const auto& [name, tensor] : found.tensors()) { bytes += tensor.bytes().size(); }
    if (bytes > room) { pulse_fuzz::report("more bytes than the files have", folder.string()); }
    found.require({.ignored = {"a"}});
}

/// A pipeline with all weights in one file and the smallest possible configs.
struct pipeline_of_one_file {
    component at{};
    fs::path file{at.folder / "all.safetensors"};
    pipeline_of_one_file() {
        put(at.folder / "model_index.json", R"({"_class_name": "StableDiffusionXLPipeline",
            "unet": ["diffusers", "UNet2DConditionModel"], "vae": ["diffusers", "AutoencoderKL"],
            "text_encoder": ["transformers", "CLIPTextModel"],
            "text_encoder_2": ["transformers", "CLIPTextModelWithProjection"]})");
        for (const std::string_view name : diffusers::single_file_components) {
            fs::create_directory(at.folder / name);
            put(at.folder / name / "config.json", R"({"block_out_channels": [4, 8], "layers_per_block": 1,
                "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"], "num_hidden_layers": 2})");
        }
    }
    void read() const {
        for (const std::string_view name : diffusers::single_file_components) {
            attempt(at.folder.string(), [&] {
                std::uintmax_t bytes = 0;
                const diffusers::weights found{{at.folder, file}, name};
                for (const auto& [_, tensor] : found.tensors()) { bytes += tensor.bytes().size(); }
                if (bytes > fs::file_size(file)) { pulse_fuzz::report("more bytes than the file has", file.string()); }
            });
        }
    }
};

} // namespace

/// Reads the text as each of the files of a diffusers folder, and as the header of a single-file checkpoint.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const component one;
    static const component sharded;
    static const pipeline_of_one_file single;
    static const std::array configs{diffusers::config_of(unet_config{.name = "text",
                                                                     .sample_size = 8,
                                                                     .block_out_channels = {8, 16},
                                                                     .mid_block_attention = false,
                                                                     .transformer_layers_per_block = {1},
                                                                     .mid_block_transformer_layers = 1,
                                                                     .cross_attention_dim = 4,
                                                                     .transformer_head_dim = 8}),
                                    diffusers::config_of(hunyuan_dit_config{.name = "dit"})};
    const std::string text(reinterpret_cast<const char*>(data), size);
    attempt("input.json: ", [&] {
        const auto index = diffusers::parse_pipeline(text, "input.json");
        if (index != diffusers::parse_pipeline(diffusers::print_pipeline(index), "input.json")) {
            pulse_fuzz::report("what was printed reads differently", text);
        }
    });
    attempt("input.json: ", [&] {
        const auto settings = diffusers::parse_scheduler(text, "input.json");
        if (settings != diffusers::parse_scheduler(diffusers::print_scheduler(settings), "input.json")) {
            pulse_fuzz::report("what was printed reads differently", text);
        }
    });
    attempt("input.json: ", [&] { static_cast<void>(diffusers::drawing_of(text, "input.json")); });
    for (const auto& config : configs) {
        attempt("input.json: ",
                [&] { diffusers::require_fit(config, io::parse_json(text, "input.json"), "input.json"); });
    }
    put(one.folder / "config.json", text);
    attempt("config.json", [&] {
        const auto read = diffusers::read_backbone(one.folder, "drawn");
        static_cast<void>(diffusers::print_header(read, diffusers::read_networks(one.folder, read)));
    });
    const std::string file = file_of(text);
    const fs::path path = one.folder / "model.safetensors";
    put(path, file);
    attempt(one.folder.string(), [&] { read_all(one.folder); });
    put(path, std::string_view{file}.substr(0, file.size() - 1));
    attempt(one.folder.string(), [&] {
        const io::safetensors_file cut{path};
        if (end_of_data(text) <= most_data) { pulse_fuzz::report("a file that was cut short is read", text); }
    });
    put(sharded.folder / "model.safetensors.index.json", text);
    attempt(sharded.folder.string(), [&] { read_all(sharded.folder); });
    put(single.file, file);
    single.read();
    return 0;
}
