#include <pulse/hardware/json.hpp>

#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <pulse/hardware/clusters.hpp>

using namespace pulse;
using nlohmann::json;

namespace {

const char* const small = R"({"format":"pulse-cluster/1","nodes":2,"devices_per_node":4,"memory_bytes":16000000000,
 "intra_node":{"bandwidth_gb_per_s":50,"latency_us":3.5},"inter_node":{"bandwidth_gb_per_s":12.5,"latency_us":10}})";

std::string refusal(const std::string& text) {
    try {
        static_cast<void>(parse_cluster(text, "c.json"));
    } catch (const input_error& e) { return e.what(); }
    return "accepted";
}

cluster random_cluster(std::mt19937& random) {
    // Numbers of all magnitudes: a file must preserve every bit.
    const auto number = [&] {
        return std::ldexp(std::uniform_real_distribution<double>{0.5, 1.0}(random),
                          static_cast<int>(random() % 60U) - 30);
    };
    cluster c{};
    if (random() % 4U != 0) {
        std::string name(1 + random() % 95U, ' ');
        for (char& letter : name) { letter = static_cast<char>(0x20 + random() % 0x5fU); }
        c.name = label{std::string_view{name}};
    }
    c.nodes = 1 + static_cast<int>(random() % 1000U);
    c.devices_per_node = 1 + static_cast<int>(random() % 64U);
    c.memory_bytes = 1 + static_cast<std::int64_t>(random()) * static_cast<std::int64_t>(random() % 1000U);
    c.intra_node = {random() % 5U == 0 ? 0.0 : number(), number()};
    c.inter_node = {random() % 5U == 0 ? 0.0 : number(), number()};
    if (random() % 4U == 0) {
        c.nodes = 1;
        c.inter_node = {};
    }
    if (random() % 4U == 0) {
        c.devices_per_node = 1;
        c.intra_node = {};
    }
    if (c.devices() < 100 && random() % 2U == 0) {
        for (int d = 0; d != c.devices(); ++d) {
            c.unlike.push_back({label{"card \"" + std::string(random() % 3U, 'x')},
                                1 + static_cast<std::int64_t>(random()),
                                std::uniform_real_distribution<double>{0.001, 1000}(random)});
        }
        c.memory_bytes = c.least_memory_bytes();
    }
    return c;
}

} // namespace

TEST_CASE("clusters: what is written is read back, and written the same") {
    std::mt19937 random{71};
    for (int repeat = 0; repeat != 2000; ++repeat) {
        const cluster c = random_cluster(random);
        const std::string text = print_cluster(c);
        CHECK(parse_cluster(text) == c);
        CHECK(print_cluster(parse_cluster(text)) == text);
    }
    for (const cluster& known : known_clusters) { CHECK(parse_cluster(print_cluster(known)) == known); }
}

TEST_CASE("a cluster file of the fixed format is read field by field, in any order") {
    const cluster c = parse_cluster(small);
    CHECK(c.name.empty());
    CHECK(c.nodes == 2);
    CHECK(c.devices_per_node == 4);
    CHECK(c.memory_bytes == 16'000'000'000);
    CHECK(c.intra_node == pulse::link{.latency_us = 3.5, .bandwidth_gb_per_s = 50.0});
    CHECK(c.inter_node == pulse::link{.latency_us = 10.0, .bandwidth_gb_per_s = 12.5});
    CHECK(parse_cluster(json::parse(small).dump()) == c); // sorted by name
    // Written without a name, a cluster has exactly the format's fields.
    const json written = json::parse(print_cluster(c));
    CHECK(written == json::parse(small));
}

TEST_CASE("every field of a cluster file that is missing, unknown or of a wrong type is named") {
    const json good = json::parse(small);
    const std::vector<std::pair<std::string, std::string>> fields{
        {"/format", "format"},
        {"/nodes", "nodes"},
        {"/devices_per_node", "devices_per_node"},
        {"/memory_bytes", "memory_bytes"},
        {"/intra_node", "intra_node"},
        {"/inter_node", "inter_node"},
        {"/intra_node/latency_us", "intra_node.latency_us"},
        {"/intra_node/bandwidth_gb_per_s", "intra_node.bandwidth_gb_per_s"},
        {"/inter_node/latency_us", "inter_node.latency_us"},
        {"/inter_node/bandwidth_gb_per_s", "inter_node.bandwidth_gb_per_s"}};
    for (const auto& field : fields) {
        const std::string& pointer = field.first;
        const std::string& name = field.second;
        CAPTURE(name);
        const json::json_pointer at{pointer};
        json without = good;
        without[at.parent_pointer()].erase(at.back());
        CHECK(refusal(without.dump()) == "c.json: " + name + " is missing");
        for (const json& wrong : {json(nullptr), json(true), json("text"), json::array(), json::array({1}),
                                  json::object(), json(-1), json(-0.5)}) {
            json changed = good;
            changed[at] = wrong;
            const std::string answer = refusal(changed.dump());
            CAPTURE(changed.dump());
            CHECK(answer.rfind("c.json: " + name, 0) == 0);
        }
        const std::string text = good.dump();
        const std::string key = '"' + at.back() + "\":";
        std::string doubled = text;
        doubled.insert(doubled.find(key), key + "1,");
        CHECK(refusal(doubled) == "c.json: the field '" + at.back() + "' occurs twice");
    }
    const auto with = [&good](const char* path, const json& value) {
        json changed = good;
        changed[json::json_pointer{path}] = value;
        return refusal(changed.dump());
    };
    CHECK(refusal(good.dump()) == "accepted");
    CHECK(with("/format", "pulse-cluster/2") == "c.json: format must be pulse-cluster/1");
    CHECK(with("/name", 3) == "c.json: name must be a string");
    CHECK(with("/name", std::string(96, 'x')) == "c.json: name has more than 95 characters");
    CHECK(with("/bandwidth", 1) ==
          "c.json: the cluster has the field 'bandwidth', which pulse-cluster/1 does not define");
    CHECK(with("/inter_node/latency", 1) ==
          "c.json: inter_node has the field 'latency', which pulse-cluster/1 does not define");
}

TEST_CASE("what a cluster file may not say is named") {
    const json good = json::parse(small);
    const auto with = [&good](const std::vector<std::pair<const char*, json>>& changes) {
        json changed = good;
        for (const auto& [path, value] : changes) { changed[json::json_pointer{path}] = value; }
        return refusal(changed.dump());
    };
    CHECK(with({{"/nodes", 0}}) == "c.json: nodes must be 1 to 2147483647");
    CHECK(with({{"/devices_per_node", 1LL << 31}}) == "c.json: devices_per_node must be 1 to 2147483647");
    CHECK(with({{"/nodes", 1 << 20}, {"/devices_per_node", 1 << 12}}) ==
          "c.json: devices_per_node is out of range: nodes x devices_per_node must fit an int");
    CHECK(with({{"/memory_bytes", 0}}) == "c.json: memory_bytes must be at least 1");
    CHECK(with({{"/memory_bytes", 1ULL << 63}}) == "c.json: memory_bytes is out of range");
    CHECK(with({{"/intra_node/bandwidth_gb_per_s", 0}}) ==
          "c.json: intra_node.bandwidth_gb_per_s must be finite and positive");
    CHECK(with({{"/inter_node/bandwidth_gb_per_s", 0}}) ==
          "c.json: inter_node.bandwidth_gb_per_s must be finite and positive");
    CHECK(with({{"/inter_node/bandwidth_gb_per_s", 0}, {"/nodes", 1}}) == "accepted");
    CHECK(with({{"/intra_node/bandwidth_gb_per_s", 0}, {"/devices_per_node", 1}}) == "accepted");
    for (const char* const text : {"", "[]", "{", "{}x", "nul", "\xff"}) {
        CHECK(refusal(text).rfind("c.json: ", 0) == 0);
    }
    std::string huge = good.dump();
    huge.replace(huge.find("12.5"), 4, "1e999");
    CHECK(refusal(huge).find("bandwidth_gb_per_s") != std::string::npos);
}

TEST_CASE("unlike devices are read one by one, and what they may not say is named") {
    json good = json::parse(small);
    good.erase("memory_bytes");
    good["nodes"] = 1;
    good["devices_per_node"] = 2;
    good["devices"] = {{{"device", "rtx-4090"}, {"memory_bytes", 24'000'000'000}, {"relative_speed", 1}},
                       {{"device", "rtx-3090"}, {"memory_bytes", 23'000'000'000}, {"relative_speed", 0.5}}};
    const cluster read = parse_cluster(good.dump());
    CHECK(read.unlike ==
          std::vector<unlike_device>{{"rtx-4090", 24'000'000'000, 1}, {"rtx-3090", 23'000'000'000, 0.5}});
    CHECK(read.memory_bytes == 23'000'000'000);
    CHECK(read.memory_of(0) == 24'000'000'000);
    CHECK(read.speed_of(1) == 0.5);
    CHECK(json::parse(print_cluster(read)) == good);
    const auto with = [&good](const char* path, const json& value) {
        json changed = good;
        changed[json::json_pointer{path}] = value;
        return refusal(changed.dump());
    };
    CHECK(with("/devices", json::array()) == "c.json: devices must not be empty");
    CHECK(with("/devices_per_node", 3) == "c.json: devices must have nodes x devices_per_node entries (3), not 2");
    CHECK(with("/memory_bytes", 1) == "c.json: memory_bytes must be absent when devices have their own");
    CHECK(with("/devices/1/memory_bytes", 0) == "c.json: devices[1].memory_bytes must be at least 1");
    for (const double speed : {0.0, -1.0, 1e9}) {
        CHECK(with("/devices/0/relative_speed", speed) ==
              "c.json: devices[0].relative_speed must be from 0.001 to 1000");
    }
    CHECK(with("/devices/0/speed", 1) ==
          "c.json: devices[0] has the field 'speed', which pulse-cluster/1 does not define");
    CHECK(with("/devices/0/device", 1) == "c.json: devices[0].device must be a string");
    for (const char* const field : {"device", "memory_bytes", "relative_speed"}) {
        json without = good;
        without["devices"][1].erase(field);
        CHECK(refusal(without.dump()) == "c.json: devices[1]." + std::string{field} + " is missing");
    }
    cluster other = read;
    other.memory_bytes = 1;
    CHECK_THROWS_WITH_AS(static_cast<void>(print_cluster(other)),
                         "cluster: memory_bytes must be the smallest of all devices", input_error);
}

TEST_CASE("damage anywhere gives a valid cluster or an error, never anything else") {
    std::mt19937 random{73};
    const std::string text = json::parse(small).dump();
    int accepted = 0;
    for (int repeat = 0; repeat != 3000; ++repeat) {
        std::string damaged = text;
        switch (random() % 4U) {
        case 0: damaged[random() % damaged.size()] = "0123456789-+.eE\"{}[],:x"[random() % 23U]; break;
        case 1: damaged.erase(random() % damaged.size(), 1 + random() % 9U); break;
        case 2: damaged.resize(random() % damaged.size()); break;
        default: damaged.insert(random() % damaged.size(), text.substr(random() % text.size(), random() % 30U)); break;
        }
        try {
            const cluster c = parse_cluster(damaged);
            CHECK(parse_cluster(print_cluster(c)) == c);
            ++accepted;
        } catch (const input_error&) {}
    }
    CHECK(accepted > 0);
    CHECK(accepted < 3000);
}

TEST_CASE("a cluster that could not be read again is not written") {
    const auto refused = [](auto change) {
        cluster c = parse_cluster(small);
        change(c);
        try {
            static_cast<void>(print_cluster(c));
        } catch (const input_error& e) { return std::string{e.what()}; }
        return std::string{"accepted"};
    };
    constexpr double infinite = std::numeric_limits<double>::infinity();
    constexpr double none = std::numeric_limits<double>::quiet_NaN();
    CHECK(refused([](cluster&) {}) == "accepted");
    CHECK(refused([](cluster& c) { c.nodes = 0; }) == "cluster: nodes must be at least 1");
    CHECK(refused([](cluster& c) { c.devices_per_node = -1; }) == "cluster: devices_per_node must be at least 1");
    CHECK(refused([](cluster& c) { c.memory_bytes = 0; }) == "cluster: memory_bytes must be at least 1");
    for (const double bad : {-1.0, infinite, none}) {
        CHECK(refused([bad](cluster& c) { c.intra_node.latency_us = bad; }) ==
              "cluster: intra_node.latency_us must be finite and not negative");
        CHECK(refused([bad](cluster& c) { c.inter_node.latency_us = bad; }) ==
              "cluster: inter_node.latency_us must be finite and not negative");
        CHECK(refused([bad](cluster& c) { c.intra_node.bandwidth_gb_per_s = bad; }) ==
              "cluster: intra_node.bandwidth_gb_per_s must be finite and positive");
        CHECK(refused([bad](cluster& c) { c.inter_node.bandwidth_gb_per_s = bad; }) ==
              "cluster: inter_node.bandwidth_gb_per_s must be finite and positive");
    }
    CHECK(refused([](cluster& c) { c.name = label{std::string_view{"\xff"}}; }) == "cluster: a name is not UTF-8");
}

TEST_CASE("cluster files: saved whole or not at all, and errors name the file") {
    namespace fs = std::filesystem;
    const fs::path folder = fs::temp_directory_path() / ("pulse_cluster_" + std::to_string(::getpid()));
    fs::create_directories(folder);
    const fs::path file = folder / "c.json";
    save_cluster(a100_8x8, file);
    CHECK(load_cluster(file) == a100_8x8);
    cluster bad = a100_8x8;
    bad.nodes = 0;
    CHECK_THROWS_AS(save_cluster(bad, file), input_error);
    CHECK(load_cluster(file) == a100_8x8);
    CHECK(std::distance(fs::directory_iterator{folder}, fs::directory_iterator{}) == 1);
    const auto error_of = [](const auto& action) {
        try {
            action();
        } catch (const input_error& e) { return std::string{e.what()}; }
        return std::string{"none"};
    };
    const fs::path missing = folder / "missing.json";
    const fs::path nowhere = folder / "no" / "c.json";
    CHECK(error_of([&] { static_cast<void>(load_cluster(missing)); }) == missing.string() + ": cannot be read");
    CHECK(error_of([&] { save_cluster(a100_8x8, nowhere); }) == nowhere.string() + ": cannot be written");
    std::ofstream{file} << "{}";
    CHECK(error_of([&] { static_cast<void>(load_cluster(file)); }) == file.string() + ": format is missing");
    fs::remove_all(folder);
}
