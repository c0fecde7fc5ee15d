#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/io/safetensors.hpp>

#include <io/scratch.hpp>
#include <support/skip.hpp>

namespace {

using namespace pulse::io;
using pulse::test::bytes_of;
using pulse::test::put;
using pulse::test::scratch;
namespace fs = std::filesystem;

/// Random tensors of random types, names and shapes (including scalars and empty ones), with their memory.
struct sample {
    std::vector<std::vector<std::byte>> memory;
    std::vector<tensor_source> tensors;
    tensor_metadata metadata;

    explicit sample(std::uint64_t seed) {
        std::mt19937_64 engine{seed};
        const std::size_t count = engine() % 9;
        memory.resize(count);
        for (std::size_t i = 0; i != count; ++i) {
            tensor_source tensor{.name = "layer." + std::to_string(engine() % 1000) + "/\"q\" \xC3\xA9 " +
                                         std::to_string(i),
                                 .type = element_types[engine() % 19]}; // the types with whole bytes
            std::uint64_t size = static_cast<std::uint64_t>(tensor.type.bits) / 8;
            for (std::size_t d = engine() % 4; d != 0; --d) {
                tensor.dims.push_back(static_cast<std::int64_t>(engine() % 5));
                size *= static_cast<std::uint64_t>(tensor.dims.back());
            }
            memory[i].resize(size);
            for (std::byte& b : memory[i]) { b = static_cast<std::byte>(engine()); }
            tensor.bytes = memory[i];
            tensors.push_back(tensor);
        }
        for (std::size_t i = engine() % 4; i != 0; --i) {
            metadata["key " + std::to_string(i)] = "value\n\"" + std::to_string(engine());
        }
    }
};

/// A file made of a header and data, as the format defines it.
std::string file_of(const std::string& header, const std::string& data) {
    const std::uint64_t size = header.size();
    std::string text(8, '\0');
    std::memcpy(text.data(), &size, 8);
    return text + header + data;
}

} // namespace

TEST_CASE("what is read is what was written, and writing it again gives the same bytes") {
    const scratch folder;
    for (std::uint64_t seed = 0; seed != 60; ++seed) {
        const sample written{seed};
        write_safetensors(folder.path / "a", written.tensors, written.metadata);
        safetensors_file file{folder.path / "a"};
        CHECK(file.metadata() == written.metadata);
        REQUIRE(file.tensors().size() == written.tensors.size());
        std::vector<std::vector<std::byte>> memory;
        std::vector<tensor_source> again;
        memory.reserve(file.tensors().size());
        for (const auto& tensor : written.tensors) {
            const tensor_entry* const entry = file.find(tensor.name);
            REQUIRE(entry != nullptr);
            CHECK(entry->type == tensor.type);
            CHECK(entry->dims == tensor.dims);
            memory.emplace_back(entry->end - entry->begin);
            file.read(*entry, memory.back());
            CHECK(std::equal(memory.back().begin(), memory.back().end(), tensor.bytes.begin(), tensor.bytes.end()));
            again.push_back({entry->name, entry->type, entry->dims, memory.back()});
        }
        std::reverse(again.begin(), again.end());
        write_safetensors(folder.path / "b", again, file.metadata());
        CHECK(bytes_of(folder.path / "a") == bytes_of(folder.path / "b"));
    }
}

TEST_CASE("files are laid out by the format's rules") {
    const scratch folder;
    for (std::uint64_t seed = 0; seed != 60; ++seed) {
        const sample written{seed};
        write_safetensors(folder.path / "a", written.tensors, written.metadata);
        const std::string text = bytes_of(folder.path / "a");
        std::uint64_t header = 0;
        std::memcpy(&header, text.data(), 8);
        CHECK(header % 8 == 0);
        CHECK(text[8] == '{');
        std::size_t end = 8 + header;
        while (text[end - 1] == ' ') { --end; }
        CHECK(text[end - 1] == '}');
        const safetensors_file file{folder.path / "a"};
        for (std::size_t i = 1; i < file.tensors().size(); ++i) {
            const auto& a = file.tensors()[i - 1];
            const auto& b = file.tensors()[i];
            CHECK(a.end == b.begin);
            if (a.begin != b.begin) { // the file does not define the order of empty tensors
                CHECK((a.type.bits > b.type.bits || (a.type.bits == b.type.bits && a.name < b.name)));
            }
            CHECK(b.begin % static_cast<std::uint64_t>(b.type.bits / 8) == 0); // aligned within the data
        }
    }
}

TEST_CASE("Python reads the same tensors with nothing but json and struct") {
    const std::string python = PULSE_TEST_PYTHON;
    if (python.empty()) {
        pulse::test::skip("no python3");
        return;
    }
    const scratch folder;
    const std::vector<float> values{1.5F, -2.25F, 3e-20F, 7.0F, 8.0F, -0.0F};
    const std::vector<std::int64_t> whole{-5, 1LL << 40U};
    const std::vector<tensor_source> tensors{{"w \xC3\xA9", f32, {2, 3}, std::as_bytes(std::span{values})},
                                             {"n", {"I64", 64}, {2}, std::as_bytes(std::span{whole})}};
    write_safetensors(folder.path / "a", tensors, {{"step", "7"}, {"quote", "\"\\\n"}});
    put(folder.path / "read.py", "import json, struct, sys\n"
                                 "raw = open(sys.argv[1], 'rb').read()\n"
                                 "n, = struct.unpack('<Q', raw[:8])\n"
                                 "h = json.loads(raw[8:8 + n]); d = raw[8 + n:]\n"
                                 "m = h.pop('__metadata__')\n"
                                 "assert m == {'step': '7', 'quote': '\"\\\\\\n'}, m\n"
                                 "w = h['w \\u00e9']; b, e = w['data_offsets']\n"
                                 "assert w['dtype'] == 'F32' and w['shape'] == [2, 3]\n"
                                 "assert struct.unpack('<6f', d[b:e]) == (1.5, -2.25, struct.unpack('<f', "
                                 "struct.pack('<f', 3e-20))[0], 7, 8, 0)\n"
                                 "i = h['n']; b, e = i['data_offsets']\n"
                                 "assert i['dtype'] == 'I64' and struct.unpack('<2q', d[b:e]) == (-5, 1 << 40)\n"
                                 "assert len(h) == 2 and len(d) == 40\n");
    CHECK(std::system(
              ("'" + python + "' '" + (folder.path / "read.py").string() + "' '" + (folder.path / "a").string() + "'")
                  .c_str()) == 0);
}

TEST_CASE("files that break a rule are refused by name") {
    const scratch folder;
    const fs::path path = folder.path / "some-model";
    const auto refused = [&](const std::string& bytes, const char* text) {
        put(path, bytes);
        CHECK_THROWS_WITH_AS((safetensors_file{path}), doctest::Contains(text), pulse::input_error);
        CHECK_THROWS_WITH_AS((safetensors_file{path}), doctest::Contains("some-model"), pulse::input_error);
    };
    const auto f = [](const std::string& name, const std::string& dtype, const std::string& shape, int begin, int end) {
        return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
               std::to_string(begin) + "," + std::to_string(end) + "]}";
    };
    const std::string two = f("a", "F32", "[1]", 0, 4) + "," + f("b", "F32", "[1]", 4, 8);
    put(path, file_of("{" + two + "}", "12345678"));
    CHECK(safetensors_file{path}.tensors().size() == 2);

    refused("", "too short");
    refused("1234567", "too short");
    refused(file_of("", ""), "not a JSON object");
    refused(file_of("[]", ""), "not a JSON object");
    refused(file_of(" {}", ""), "not a JSON object");
    refused(file_of("{\"a\":", ""), "its header: not valid JSON");
    refused(file_of("{}", "x"), "fill 0 bytes");
    refused(std::string{"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF{}", 10}, "header length");
    refused(std::string{"\x00\xE1\xF5\x06\x00\x00\x00\x00{}", 10}, "header length"); // 100,000,000 + 256
    refused(file_of("{" + two + "}", "1234567"), "fill 8 bytes, but 7 follow its header");
    refused(file_of("{" + two + "}", "123456789"), "fill 8 bytes, but 9 follow its header");
    refused(file_of("{" + two + "," + f("a", "F32", "[1]", 8, 12) + "}", "123456789abc"), "'a' occurs twice");
    refused(file_of("{" + f("a", "F32", "[1]", 0, 4) + "," + f("b", "F32", "[1]", 8, 12) + "}", "123456789abc"),
            "'b' begins at 8, but the one before it ends at 4");
    refused(file_of("{" + f("a", "F32", "[2]", 0, 8) + "," + f("b", "F32", "[1]", 4, 8) + "}", "12345678"),
            "'b' begins at 4");
    refused(file_of("{" + f("a", "F32", "[1]", 4, 8) + "}", "12345678"), "'a' begins at 4");
    refused(file_of("{" + f("a", "F31", "[1]", 0, 4) + "}", "1234"), "unknown dtype 'F31'");
    refused(file_of("{" + f("a", "F32", "[2]", 0, 4) + "}", "1234"), "do not fit its dtype and shape");
    refused(file_of("{" + f("a", "F32", "[1]", 4, 0) + "}", "1234"), "do not fit its dtype and shape");
    refused(file_of("{" + f("a", "F32", "[-1]", 0, 4) + "}", "1234"), "must be a list of whole numbers");
    refused(file_of("{" + f("a", "F32", "[1.0]", 0, 4) + "}", "1234"), "must be a list of whole numbers");
    refused(file_of("{" + f("a", "F32", "1", 0, 4) + "}", "1234"), "must be a list of whole numbers");
    refused(file_of("{" + f("a", "F32", "[4294967296,4294967296]", 0, 4) + "}", "1234"), "too many elements");
    refused(file_of("{" + f("a", "F4", "[1]", 0, 0) + "}", ""), "do not fill whole bytes");
    refused(file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", "1234"), "must have dtype, shape and data_offsets");
    refused(file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", "1234"),
            "must be two whole numbers");
    refused(file_of("{\"a\":3}", "1234"), "must have dtype, shape and data_offsets");
    refused(file_of("{\"__metadata__\":{\"k\":1}}", ""), "'k' must be a string");
    refused(file_of("{\"__metadata__\":[]}", ""), "must be an object");
    refused(file_of(std::string(5000, '{'), ""), "its header: not valid JSON");
    CHECK_THROWS_WITH_AS((safetensors_file{folder.path / "absent"}), doctest::Contains("absent"), pulse::input_error);
    CHECK_THROWS_WITH_AS((safetensors_file{folder.path}), doctest::Contains("is not a file"), pulse::input_error);
}

TEST_CASE("a damaged file gives an error or a valid result, never anything else") {
    const scratch folder;
    std::mt19937_64 engine{4};
    int refused = 0;
    for (int round = 0; round != 1500; ++round) {
        const sample written{static_cast<std::uint64_t>(round)};
        write_safetensors(folder.path / "a", written.tensors, written.metadata);
        std::string bytes = bytes_of(folder.path / "a");
        std::uint64_t header = 0;
        std::memcpy(&header, bytes.data(), 8);
        if (round % 3 == 0) {
            bytes.resize(engine() % bytes.size());
        } else if (round % 3 == 1) {
            bytes[engine() % (8 + header)] = static_cast<char>(engine());
        } else {
            bytes[8 + engine() % header] = "0123456789[]{},:\""[engine() % 17];
        }
        put(folder.path / "bad", bytes);
        try {
            safetensors_file file{folder.path / "bad"};
            for (const auto& tensor : file.tensors()) {
                std::vector<std::byte> memory(tensor.end - tensor.begin);
                file.read(tensor, memory);
            }
        } catch (const pulse::input_error&) { ++refused; }
    }
    CHECK(refused > 900);
}

TEST_CASE("what cannot be written is refused and leaves the old file") {
    const scratch folder;
    const std::vector<float> values(4);
    const auto bytes = std::as_bytes(std::span{values});
    write_safetensors(folder.path / "a", std::vector<tensor_source>{{"w", f32, {4}, bytes}});
    const std::string good = bytes_of(folder.path / "a");
    const auto refused = [&](const std::vector<tensor_source>& tensors, const tensor_metadata& metadata,
                             const char* text) {
        CHECK_THROWS_WITH_AS(write_safetensors(folder.path / "a", tensors, metadata), doctest::Contains(text),
                             pulse::input_error);
        CHECK(bytes_of(folder.path / "a") == good);
        CHECK(folder.entries() == 1);
    };
    refused({{"w", f32, {4}, bytes}, {"w", f32, {4}, bytes}}, {}, "'w': its name is already taken");
    refused({{"__metadata__", f32, {4}, bytes}}, {}, "its name is already taken");
    refused({{"w", f32, {5}, bytes}}, {}, "'w' has 16 bytes, but its shape needs 20");
    refused({{"w", f32, {-4}, bytes}}, {}, "a negative extent");
    refused({{"w\xFF", f32, {4}, bytes}}, {}, "not UTF-8");
    refused({{"w", f32, {4}, bytes}}, {{"k", "\xC3"}}, "not UTF-8");
}
