#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/diffusers/weights.hpp>
#include <pulse/io/half.hpp>

#include <support/check_both.hpp>

#include "folders.hpp"

namespace {

using namespace pulse;
using namespace pulse::test;
using diffusers::weights;

/// The value of a half by the definition of binary16.
double meaning_of_half(unsigned bits) {
    const double sign = (bits & 0x8000U) != 0 ? -1.0 : 1.0;
    const int exponent = static_cast<int>(bits >> 10U & 31U);
    const double fraction = bits & 1023U;
    if (exponent == 31) { return fraction == 0 ? sign * INFINITY : NAN; }
    return exponent == 0 ? sign * std::ldexp(fraction, -24) : sign * std::ldexp(1024.0 + fraction, exponent - 25);
}

} // namespace

TEST_CASE("halves are what they mean, and floats become the nearest of them") {
    for (unsigned bits = 0; bits != 0x10000U; ++bits) {
        const auto half = static_cast<std::uint16_t>(bits);
        const float value = io::float_of_half(half);
        const double meaning = meaning_of_half(bits);
        if (std::isnan(meaning)) {
            CHECK(std::isnan(value));
            CHECK(std::isnan(io::float_of_half(io::half_of_float(value))));
            continue;
        }
        if (static_cast<double>(value) != meaning || io::half_of_float(value) != half) {
            FAIL("half " << bits << " is " << value << ", which becomes " << io::half_of_float(value));
        }
        // Between two neighbours rounding goes to the nearer one, at the midpoint to the even one.
        if ((bits & 0x7FFFU) >= 0x7BFFU) { continue; }
        const float next = io::float_of_half(static_cast<std::uint16_t>(bits + 1));
        const float middle = (value + next) / 2;
        const auto even = static_cast<std::uint16_t>(bits + (bits & 1U));
        if (io::half_of_float(middle) != even || io::half_of_float(std::nextafter(middle, value)) != half ||
            io::half_of_float(std::nextafter(middle, next)) != bits + 1) {
            FAIL("between half " << bits << " and the next");
        }
    }
    CHECK_BOTH(io::half_of_float(65519.996F) == 0x7BFF);
    CHECK_BOTH(io::half_of_float(65520.0F) == 0x7C00);
    CHECK_BOTH(io::float_of_bfloat16(0x3FC0) == 1.5F);
}

TEST_CASE("F32, F16 and BF16 are read as floats, from any element on") {
    const scratch folder;
    const std::vector<float> wide{1.5F, -2.0F, 0.0F};
    const std::vector<std::uint16_t> half{0x3E00, 0xC000, 0x0001};
    const std::vector<std::uint16_t> brain{0x3FC0, 0xC000, 0x0080};
    // One leading byte makes every address odd.
    const std::vector<std::uint8_t> byte{7};
    const auto bytes = [](const auto& values) { return std::as_bytes(std::span{values}); };
    std::string header = R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                         R"("x":{"dtype":"F32","shape":[3],"data_offsets":[1,13]},)"
                         R"("y":{"dtype":"F16","shape":[3],"data_offsets":[13,19]},)"
                         R"("z":{"dtype":"BF16","shape":[3],"data_offsets":[19,25]}})";
    std::string file(8, '\0');
    const std::uint64_t size = header.size();
    std::memcpy(file.data(), &size, 8);
    file += header;
    for (const auto part : {bytes(byte), bytes(wide), bytes(half), bytes(brain)}) {
        file.append(reinterpret_cast<const char*>(part.data()), part.size());
    }
    put(folder.path / "model.safetensors", file);
    const weights all{folder.path};
    CHECK(all.tensors().size() == 4);
    const auto read = [&](const char* name, std::int64_t first) {
        std::vector<float> out(static_cast<std::size_t>(3 - first));
        all.read({.name = label{name}, .dims = {3}, .rank = 1}, first, out);
        return out;
    };
    CHECK(read("x", 0) == wide);
    CHECK(read("x", 1) == std::vector<float>{-2.0F, 0.0F});
    CHECK(read("y", 0) == std::vector<float>{1.5F, -2.0F, 0x1p-24F});
    CHECK(read("y", 2) == std::vector<float>{0x1p-24F});
    CHECK(read("z", 0) == std::vector<float>{1.5F, -2.0F, 0x1p-126F});
}

TEST_CASE("tensors that are missing, misshapen or of another type are all named, and those that are not read") {
    const scratch folder;
    const std::vector<std::byte> zeros(64);
    const auto of = [&](std::size_t bytes) { return std::span{zeros}.first(bytes); };
    const io::element_type i64{"I64", 64};
    std::vector<io::tensor_source> tensors{{"good", io::f32, {2}, of(8)},
                                           {"turned", io::f32, {1, 2}, of(8)},
                                           {"counts", i64, {2}, of(16)},
                                           {"position_ids", i64, {1}, of(8)}};
    for (const char* const name : {"a", "b", "c", "d", "e", "f"}) { tensors.push_back({name, io::f32, {1}, of(4)}); }
    io::write_safetensors(folder.path / "diffusion_pytorch_model.safetensors", tensors);
    weights all{folder.path};
    const parameter good{.name = "good", .dims = {2}, .rank = 1};
    const std::string why = refusal_of([&] {
        all.require({.parameters = {good,
                                    {.name = "turned", .dims = {2, 1}, .rank = 2},
                                    {.name = "counts", .dims = {2}, .rank = 1},
                                    {.name = "gone.weight", .dims = {3}, .rank = 1}},
                     .ignored = {"position_ids", "not there either"}});
    });
    CHECK(mentions(why, {folder.path.string(), "1 tensor is missing (gone.weight)",
                         "1 tensor has another shape (turned: [1, 2] in the file, [2, 1] in the model)",
                         "1 tensor is not F32, F16 or BF16 (counts: I64)"}));
    CHECK(why.find("position_ids") == std::string::npos);
    CHECK(why.find("good") == std::string::npos);

    // Tensors that the model does not have are counted.
    CHECK(all.unread().empty());
    all.require({.parameters = {good}, .ignored = {"position_ids", "turned"}});
    CHECK(mentions(all.unread(), {folder.path.string(),
                                  "7 tensors that the model does not have are not read (a, b, c, counts, d, ...)"}));
    all.require({.parameters = {good}, .ignored = {"position_ids", "turned", "counts", "a", "b", "c", "d", "e"}});
    CHECK(mentions(all.unread(), {": 1 tensor that the model does not have is not read (f)"}));
}
