#include <pulse/hardware/device.hpp>

#include <array>
#include <set>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "../support/check_both.hpp"

using namespace pulse;

TEST_CASE("the devices that programs name are known, once each") {
    for (const std::string_view name :
         {"v100-16gb", "v100-32gb", "a100-80gb", "h100-80gb", "h200", "ascend-910a", "rtx-4090", "cpu-core"}) {
        CAPTURE(std::string{name});
        REQUIRE(find_device(name) != nullptr);
        CHECK(find_device(name)->name.view() == name);
    }
    std::set<std::string_view> names;
    for (const device& known : known_devices) { CHECK(names.insert(known.name.view()).second); }
    CHECK(find_device("v100") == nullptr);
    CHECK(find_device("") == nullptr);
    CHECK_BOTH(find_device("h200")->memory_bytes == 141'000'000'000);
}

TEST_CASE("every device has usable figures, a share below one and a source") {
    for (const device& known : known_devices) {
        CAPTURE(known.name.str());
        CHECK(known.memory_bytes > 0);
        CHECK(known.memory_gb_per_s > 0.0);
        CHECK(known.efficiency > 0.0);
        CHECK(known.efficiency < 1.0);
        CHECK(known.source.size() > 10);
        CHECK((known.tflops_16 > 0.0 || known.tflops_32 > 0.0));
        // Wider scalars are never faster.
        if (known.tflops_16 > 0.0) { CHECK(known.tflops_16 >= known.tflops_32); }
        CHECK(known.tflops_32 >= known.tflops_64);
    }
    const auto ends_with_memory = [](const device& known) {
        const std::string name = known.name.str();
        return name.find(std::to_string(known.memory_bytes / 1'000'000'000) + "gb") != std::string::npos;
    };
    for (const device& known : {v100_16gb, v100_32gb, a100_80gb, h100_80gb}) { CHECK(ends_with_memory(known)); }
}

TEST_CASE("peak rates go by the size of the scalar") {
    CHECK_BOTH(a100_80gb.peak_flops_per_s(2) == 312.0e12);
    CHECK_BOTH(a100_80gb.peak_flops_per_s(4) == 19.5e12);
    CHECK_BOTH(a100_80gb.peak_flops_per_s(8) == 9.7e12);
    CHECK_BOTH(ascend_910a.peak_flops_per_s(4) == 0.0);
    for (const int size : {0, 1, 3, 16, -4}) {
        CHECK_THROWS_WITH_AS(static_cast<void>(h200.peak_flops_per_s(size)), "scalar_bytes: it must be 2, 4 or 8",
                             input_error);
    }
}
