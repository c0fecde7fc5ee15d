#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <pulse/diffusers/autoencoder.hpp>
#include <pulse/diffusers/backbone.hpp>
#include <pulse/io/disk.hpp>
#include <pulse/io/half.hpp>

#include <support/single_checkpoint.hpp>

#include "folders.hpp"

namespace {

using namespace pulse;
using namespace pulse::diffusers;
using namespace pulse::test;

constexpr const char* unet_file = "unet/diffusion_pytorch_model.safetensors";

/// A disk that kills the process before one of its operations.
class deadly_disk {
public:
    explicit deadly_disk(int at) : left_{at} {}

    bool make_folder(const fs::path& path) const { return count(), disk_.make_folder(path); }
    io::output_file create(const fs::path& path) const { return count(), disk_.create(path); }
    template <class Bytes>
    void write(const io::output_file& file, const Bytes& bytes) const {
        count(), disk_.write(file, bytes);
    }
    void sync(const io::output_file& file) const { count(), disk_.sync(file); }
    void close(io::output_file& file) const { count(), disk_.close(file); }
    void rename(const fs::path& a, const fs::path& b) const { count(), disk_.rename(a, b); }
    void exchange(const fs::path& a, const fs::path& b) const { count(), disk_.exchange(a, b); }
    void sync_folder(const fs::path& path) const { count(), disk_.sync_folder(path); }

private:
    void count() const {
        if (left_-- == 0) { ::_exit(9); }
    }

    io::disk disk_{};
    mutable int left_;
};

/// Writes a folder of three files with a disk that dies before operation `at`; returns whether the process survived.
bool survives(const fs::path& target, int at) {
    const ::pid_t child = ::fork();
    if (child == 0) {
        folder_writer<deadly_disk> out{target, deadly_disk{at}};
        out.write("model_index.json", R"({"_class_name": "New", "unet": ["a", "b"]})");
        out.write("unet/config.json", "new");
        out.write_weights("unet/diffusion_pytorch_model", {{"w", io::f32, {2}}}, [](std::size_t, const auto& put) {
            const std::vector<float> two{1, 2};
            put(two);
        });
        out.commit();
        ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WEXITSTATUS(status) == 0;
}

} // namespace

TEST_CASE("a folder that is written is read: equal values, in one file or in shards") {
    const scratch folder;
    const auto total = static_cast<std::uint64_t>(ddpm_tiny::parameter_count()) * 4;
    for (const std::uint64_t most : {std::uint64_t{0}, total, total - 1, total / 3, std::uint64_t{1}}) {
        const fs::path target = folder.path / std::to_string(most);
        const drawn_values written = write_pipeline(target, most, {.shard_bytes = most});
        const weights found = open_backbone<ddpm_tiny>(target);
        for (std::size_t i = 0; i != written.parameters.size(); ++i) {
            CHECK(values_in(found, written.parameters[i]) == written.values[i]);
        }
        const bool one_file = most == 0 || most == total;
        CHECK(fs::exists(target / unet_file) == one_file);
        if (one_file) { continue; }
        const auto index = nlohmann::json::parse(bytes_of(target / (std::string{unet_file} + ".index.json")));
        CHECK(index["metadata"]["total_size"] == total);
        CHECK(index["weight_map"].size() == written.parameters.size());
        std::set<std::string> shards;
        for (const auto& shard : index["weight_map"]) { shards.insert(shard.get<std::string>()); }
        CHECK(shards.size() == (most == 1 ? written.parameters.size() : most == total - 1 ? 2 : shards.size()));
        for (const std::string& shard : shards) {
            const io::safetensors_file file{target / "unet" / shard};
            CHECK(file.metadata().at("format") == "pt");
            CHECK((file.tensors().size() == 1 || file.tensors().back().end <= most));
        }
        const std::string count = std::to_string(shards.size());
        CHECK(shards.begin()->ends_with("-00001-of-" + std::string(5 - count.size(), '0') + count + ".safetensors"));
    }
}

TEST_CASE("F16 rounds to the nearest, and refuses what it cannot hold") {
    const scratch folder;
    drawn_values written = write_pipeline(folder.path / "half", 5, {.type = io::f16});
    CHECK(fs::file_size(folder.path / "half" / unet_file) <
          static_cast<std::uintmax_t>(ddpm_tiny::parameter_count()) * 3);
    const weights found = open_backbone<ddpm_tiny>(folder.path / "half");
    for (std::size_t i = 0; i != written.parameters.size(); ++i) {
        std::vector<float> rounded = written.values[i];
        for (float& value : rounded) { value = io::float_of_half(io::half_of_float(value)); }
        CHECK(values_in(found, written.parameters[i]) == rounded);
    }
    written.values[2][0] = 70000.0F;
    const auto before = content_of(folder.path / "half");
    const std::string why = refusal_of([&] {
        export_pipeline<ddpm_tiny>(folder.path / "half", folder.path / "half", written.source(), {.type = io::f16});
    });
    CHECK(mentions(why, {folder.path.string(), "tensor '" + written.parameters[2].name.str() + "' has 70000"}));
    CHECK(content_of(folder.path / "half") == before);
    CHECK(folder.entries() == 1);
}

TEST_CASE("an export has other weights and the same bytes of all else, also where it replaces its source") {
    const scratch folder;
    write_pipeline(folder.path / "from", 1);
    const auto from = content_of(folder.path / "from");
    const drawn_values other{model_parameters<ddpm_tiny>(), 2};
    const fs::path to = folder.path / "new" / "to";
    export_pipeline<ddpm_tiny>(folder.path / "from", to, other.source());
    auto got = content_of(to);
    CHECK(got.at(unet_file) != from.at(unet_file));
    got[unet_file] = from.at(unet_file);
    CHECK(got == from);
    const std::vector<float> last = values_in(open_backbone<ddpm_tiny>(to), other.parameters.back());
    CHECK(last == other.values.back());

    // Reading and writing unchanged gives the same bytes.
    const weights found = open_backbone<ddpm_tiny>(folder.path / "from");
    const auto untouched = [&](std::size_t i, const auto& put) { put(values_in(found, other.parameters[i])); };
    export_pipeline<ddpm_tiny>(folder.path / "from", folder.path / "from", untouched);
    CHECK(content_of(folder.path / "from") == from);
    CHECK(folder.entries() == 2);
    CHECK(mentions(refusal_of([&] {
                       export_pipeline<ddpm_tiny>(folder.path / "from", folder.path / "from/scheduler/new", untouched);
                   }),
                   {"scheduler/new' is inside '", "from'"}));
    CHECK(content_of(folder.path / "from") == from);
}

TEST_CASE("what an export would refuse at the end of a run is refused before it") {
    const scratch folder;
    write_pipeline(folder.path / "from", 1);
    const auto refusal = [&](const char* to) {
        return refusal_of([&] { require_exportable<ddpm_tiny>(folder.path / "from", folder.path / to); });
    };
    CHECK(refusal("to") == "no refusal");
    CHECK(mentions(refusal("from/to"), {"from/to' is inside '"}));
    for (const char* below : {"from/model_index.json/to", "from/model_index.json/far/to.safetensors"}) {
        CHECK(mentions(refusal(below), {"cannot create '", below, "model_index.json' is not a folder"}));
    }
    CHECK(mentions(refusal_of([&] { require_exportable<ddpm_fmnist>(folder.path / "from", folder.path / "to"); }),
                   {"from/unet/config.json': ", "the compiled model ddpm_fmnist has"}));
    fs::remove(folder.path / "from/model_index.json");
    CHECK(mentions(refusal("to"), {"model_index.json"}));
}

TEST_CASE("a checkpoint becomes a folder, by its weights or by its averages, and so does either part of a cascade's") {
    const scratch folder;
    const drawn_values weights_of{model_parameters<ddpm_tiny>(), 1};
    const drawn_values averages_of{model_parameters<ddpm_tiny>(), 2};
    write_pipeline(folder.path / "from", 3);
    std::vector<named_tensor> tensors;
    for (std::size_t i = 0; i != weights_of.parameters.size(); ++i) {
        tensors.push_back(
            {.what = weights_of.parameters[i], .weight = weights_of.values[i], .average = averages_of.values[i]});
    }
    save_single(folder.path / "checkpoint", tensors, {.step = 3});
    for (named_tensor& tensor : tensors) {
        tensor.what.name = label{"second."} + tensor.what.name.view();
        std::swap(tensor.weight, tensor.average);
    }
    save_single(folder.path / "cascade", tensors, {.step = 3});
    train::checkpoint_reader reader{folder.path / "checkpoint"};
    for (const drawn_values* wanted : {&weights_of, &averages_of}) {
        const auto part = wanted == &weights_of ? train::tensor_part::weight : train::tensor_part::average;
        export_checkpoint<ddpm_tiny>(folder.path / "checkpoint", {folder.path / "from"}, folder.path / "to", part);
        const weights alone = open_backbone<ddpm_tiny>(folder.path / "to");
        for (std::size_t i = 0; i != wanted->parameters.size(); ++i) {
            CHECK(values_in(alone, wanted->parameters[i]) == wanted->values[i]);
        }
        const auto other = wanted == &weights_of ? train::tensor_part::average : train::tensor_part::weight;
        export_checkpoint<ddpm_tiny>(folder.path / "cascade", {folder.path / "from"}, folder.path / "to", other, {},
                                     "second.");
        const weights found = open_backbone<ddpm_tiny>(folder.path / "to");
        for (std::size_t i = 0; i != wanted->parameters.size(); ++i) {
            CHECK(values_in(found, wanted->parameters[i]) == wanted->values[i]);
        }
    }
    const auto moments = checkpoint_values(reader, weights_of.parameters, train::tensor_part::first_moment);
    CHECK(mentions(refusal_of([&] { export_pipeline<ddpm_tiny>(folder.path / "from", folder.path / "to", moments); }),
                   {"the checkpoint has no tensor 'optimizer.m."}));
}

TEST_CASE("only a diffusers folder is replaced") {
    const scratch folder;
    const fs::path target = folder.path / "mine";
    write_pipeline(target, 1);
    put(target / "notes.txt", "of the user");
    CHECK(mentions(refusal_of([&] { write_pipeline(target, 2); }),
                   {"mine/notes.txt' is not part of the diffusers folder"}));
    fs::remove(target / "notes.txt");
    CHECK_NOTHROW(write_pipeline(target, 2));
    fs::create_directory(folder.path / "empty");
    CHECK_NOTHROW(write_pipeline(folder.path / "empty", 2));
    fs::create_directories(folder.path / "photos" / "2026");
    CHECK(mentions(refusal_of([&] { write_pipeline(folder.path / "photos", 2); }), {"photos/model_index.json"}));
    put(folder.path / "file", "x");
    CHECK(mentions(refusal_of([&] { write_pipeline(folder.path / "file", 2); }),
                   {"file' already exists and is not a folder"}));
    // A symbolic link stays a link.
    fs::create_directory_symlink(target, folder.path / "link");
    write_pipeline(folder.path / "link", 3);
    CHECK(fs::is_symlink(folder.path / "link"));
    CHECK(content_of(folder.path / "link") == content_of(target));
}

TEST_CASE("an autoencoder's weights are read under older names too") {
    constexpr auto config = [] {
        encode::autoencoder_config c{};
        c.name = "tiny";
        c.sample_size = 4;
        c.block_out_channels = {4};
        c.layers_per_block = 1;
        c.norm_num_groups = 2;
        return c;
    };
    const drawn_values written{autoencoder_parameters<config()>(), 1};
    for (const bool older : {false, true}) {
        const scratch folder;
        std::vector<io::tensor_shape> shapes = shapes_of(written.parameters);
        for (io::tensor_shape& shape : shapes) {
            if (older) { shape.name = encode::older_name(shape.name); }
        }
        folder_writer<> out{folder.path / "sd"};
        out.write("vae/config.json", print_config(config_of(config())));
        out.write_weights("vae/diffusion_pytorch_model", shapes, written.source());
        out.commit();
        const weights found = open_autoencoder<config()>(folder.path / "sd");
        for (std::size_t i = 0; i != written.parameters.size(); ++i) {
            CHECK(values_in(found, written.parameters[i]) == written.values[i]);
        }
    }
}

TEST_CASE("values that are too few or too many are refused by their tensor") {
    const scratch folder;
    for (const std::size_t count : {std::size_t{1}, std::size_t{3}}) {
        folder_writer<> out{folder.path / "to"};
        const std::string why = refusal_of([&] {
            out.write_weights("unet/model", {{"w", io::f32, {2}}},
                              [&](std::size_t, const auto& put) { put(std::vector<float>(count)); });
        });
        CHECK(
            mentions(why, {"to/unet/model': tensor 'w'", std::to_string(count * 4) + " bytes, but its shape needs 8"}));
    }
    CHECK(folder.entries() == 0);
}

TEST_CASE("an empty folder is replaced also where folders cannot be exchanged") {
    struct disk_without_exchange : io::disk { // as on NFS
        void exchange(const fs::path&, const fs::path& b) const {
            throw input_error("cannot replace '" + b.string() + "': Invalid argument");
        }
    };
    const scratch folder;
    const fs::path target = folder.path / "out";
    fs::create_directory(target);
    const auto write = [&](const char* text) {
        folder_writer<disk_without_exchange> out{target};
        out.write("model_index.json", text);
        out.commit();
    };
    write(R"({"_class_name": "New"})");
    CHECK(bytes_of(target / "model_index.json") == R"({"_class_name": "New"})");
    CHECK(folder.entries() == 1);
    CHECK(mentions(refusal_of([&] { write(R"({"_class_name": "Newer"})"); }), {"out': Invalid argument"}));
    CHECK(bytes_of(target / "model_index.json") == R"({"_class_name": "New"})");
    CHECK(folder.entries() == 1);
}

TEST_CASE("killed at any step, a writer leaves the old folder or the new one, and the next one goes through") {
    for (const bool replaces : {false, true}) {
        const scratch folder;
        const fs::path target = folder.path / "out";
        CHECK(survives(target, 1000));
        const auto whole = content_of(target);
        CHECK(whole.size() == 3);
        int steps = 0;
        for (bool survived = false; !survived; ++steps) {
            fs::remove_all(target);
            if (replaces) { write_pipeline(target, 1); }
            const auto old = replaces ? content_of(target) : std::map<std::string, std::string>{};
            survived = survives(target, steps);
            const bool there = fs::exists(target);
            const auto now = there ? content_of(target) : std::map<std::string, std::string>{};
            CHECK((now == whole || (!survived && now == old && there == replaces)));
            CHECK((!survived || folder.entries() == 1));
        }
        CHECK(steps > 15);
    }
}
