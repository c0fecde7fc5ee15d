#include <pulse/profile/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <pulse/profile/check_costs.hpp>

namespace {

using namespace pulse;
using json = nlohmann::json;

std::string random_name(std::mt19937& random, unsigned serial) {
    static const std::array<std::string, 6> pieces{"down_blocks.", "\"quoted\"", "\\", "\xC3\xA9", " ", "\t"};
    std::string name = std::to_string(serial);
    const std::size_t length = random() % 4U == 0U ? 95 : 1 + random() % 40U;
    while (name.size() < length) {
        const std::string& piece = pieces[random() % pieces.size()];
        name += name.size() + piece.size() <= length ? piece : "x";
    }
    return name;
}

double random_time(std::mt19937& random) {
    switch (random() % 4U) {
    case 0: return 0.0;
    case 1: return static_cast<double>(random() % 100000U);
    case 2: return std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 200U) - 100);
    default: return static_cast<double>(random()) / 3.0;
    }
}

std::int64_t random_bytes(std::mt19937& random) {
    return random() % 8U == 0U ? (std::int64_t{1} << 40) - static_cast<int>(random() % 3U)
                               : static_cast<std::int64_t>(random()) * static_cast<int>(random() % 5U);
}

cost_table random_costs(std::mt19937& random) {
    cost_table costs{};
    costs.model = label{std::string_view{random_name(random, 1)}};
    if (random() % 4U != 0U) { costs.device = label{std::string_view{random_name(random, 2)}}; }
    costs.microbatch_size = 1 + static_cast<int>(random() % 64U);
    const std::size_t layers = 1 + random() % 8U;
    for (std::size_t l = 0; l != layers; ++l) {
        costs.layers.push_back({label{std::string_view{random_name(random, 100 + static_cast<unsigned>(l))}},
                                random_time(random), random_time(random), random_time(random), random_bytes(random),
                                random_bytes(random), random_bytes(random), random_bytes(random),
                                random_bytes(random)});
        if (random() % 2U == 0U) { costs.layers.back().open_bytes = random_bytes(random); }
        if (random() % 2U == 0U) { costs.layers.back().factored_elements = random_bytes(random); }
    }
    for (std::size_t e = layers == 1 ? 0 : random() % 5U; e > 0; --e) {
        const int from = static_cast<int>(random() % (layers - 1));
        const int to = from + 1 + static_cast<int>(random() % (layers - 1 - static_cast<std::size_t>(from)));
        costs.skips.push_back({from, to, random_bytes(random)});
        costs.layers[static_cast<std::size_t>(from)].open_bytes = 0;
    }
    costs.conditioning_bytes = random_bytes(random);
    costs.frozen_conditioning_bytes = random() % 2U == 0U ? 0 : costs.conditioning_bytes / 3;
    costs.input_bytes = random_bytes(random);
    costs.optimizer_gb_per_s = random_time(random);
    for (auto c = static_cast<unsigned>(random() % 3U); c > 0; --c) {
        const auto bytes = [&] { return random_bytes(random); };
        const auto us = [&] { return std::min(random_time(random), 1e12); };
        costs.frozen.push_back({label{std::string_view{random_name(random, 300 + c)}},
                                static_cast<frozen_use>(random() % 4U),
                                bytes(),
                                std::max<std::int64_t>(bytes(), 1),
                                1 + static_cast<int>(random() % 64U),
                                {}});
        for (auto l = static_cast<unsigned>(1 + random() % 4U); l > 0; --l) {
            costs.frozen.back().layers.push_back(
                {label{std::string_view{random_name(random, l)}}, us(), us(), bytes(), bytes(), bytes()});
        }
    }
    return costs;
}

const char* const small = R"({"format":"pulse-profile/1","model":"m","device":"d","microbatch_size":2,
"layers":[{"name":"a","forward_us":1.5,"backward_input_us":2,"backward_weight_us":0,"parameter_bytes":4,
"saved_bytes":8,"output_bytes":16},
{"name":"b","forward_us":1,"backward_input_us":1,"backward_weight_us":1,"parameter_bytes":0,
"saved_bytes":0,"output_bytes":1,"deferred_bytes":3,"workspace_bytes":5,"open_bytes":6,"factored_elements":12}],
"skips":[{"from":"a","to":"b","bytes":16}],"conditioning_bytes":7,"input_bytes":9,
"frozen":[{"name":"vae","feeds":"target","input_bytes":3,"result_bytes":2,"max_chunk":4,
"layers":[{"name":"c","call_us":0.5,"sample_us":2,"parameter_bytes":6,"output_bytes":2,"live_bytes":11}]}]})";

// The error of reading `text`, or "accepted"; any exception but input_error escapes and fails the test.
std::string refusal(const std::string& text) {
    try {
        static_cast<void>(parse_profile(text, "p.json"));
    } catch (const input_error& e) { return e.what(); }
    return "accepted";
}

std::string refusal(const json& value) { return refusal(value.dump()); }

// Whether a damaged text is read as a valid table (true) or refused with input_error.
bool survives(const std::string& text) {
    try {
        const cost_table costs = parse_profile(text);
        check_costs(costs);
        return parse_profile(print_profile(costs)) == costs;
    } catch (const input_error& e) { return std::string{e.what()}.find("profile") != std::string::npos; }
}

// Pointers to every value except the root.
void list_paths(const json& value, const json::json_pointer& at, std::vector<json::json_pointer>& out) {
    if (value.is_object()) {
        for (const auto& entry : value.items()) {
            out.push_back(at / entry.key());
            list_paths(entry.value(), at / entry.key(), out);
        }
    } else if (value.is_array()) {
        for (std::size_t i = 0; i != value.size(); ++i) {
            out.push_back(at / i);
            list_paths(value[i], at / i, out);
        }
    }
}

// /layers/1/forward_us as the errors write it: layers[1].forward_us
std::string spelled(const json::json_pointer& pointer) {
    std::string path;
    std::string rest = pointer.to_string();
    while (!rest.empty()) {
        const std::size_t end = std::min(rest.find('/', 1), rest.size());
        const std::string step = rest.substr(1, end - 1);
        const bool index = step.find_first_not_of("0123456789") == std::string::npos;
        path += index ? "[" + step + "]" : (path.empty() ? "" : ".") + step;
        rest = rest.substr(end);
    }
    return path;
}

} // namespace

TEST_CASE("a profile that is written and read is the same profile") {
    std::mt19937 random{9};
    for (int repeat = 0; repeat != 500; ++repeat) {
        const cost_table costs = random_costs(random);
        const std::string text = print_profile(costs);
        const cost_table again = parse_profile(text);
        REQUIRE(again == costs);
        CHECK(print_profile(again) == text);
    }
}

TEST_CASE("the fixed format is read, with 0 for what it may leave out") {
    const cost_table costs = parse_profile(small);
    CHECK(costs.model.view() == "m");
    CHECK(costs.device.view() == "d");
    CHECK(costs.microbatch_size == 2);
    REQUIRE(costs.layers.size() == 2);
    CHECK(costs.layers[0].forward_us == 1.5);
    CHECK(costs.layers[0].backward_input_us == 2.0);
    CHECK(costs.layers[0].output_bytes == 16);
    CHECK(costs.layers[0].deferred_bytes == 0);
    CHECK(costs.layers[0].workspace_bytes == 0);
    CHECK(costs.layers[1].deferred_bytes == 3);
    CHECK(costs.layers[1].workspace_bytes == 5);
    CHECK(costs.skips == std::vector<skip_cost>{{0, 1, 16}});
    CHECK(costs.conditioning_bytes == 7);
    CHECK(costs.input_bytes == 9);
    json without = json::parse(small);
    without.erase("input_bytes");
    without.erase("frozen");
    CHECK(parse_profile(without.dump()).input_bytes == 0);
    CHECK(costs.frozen_conditioning_bytes == 0);
    REQUIRE(costs.frozen.size() == 1);
    CHECK(costs.frozen[0] == frozen_component{"vae", frozen_use::target, 3, 2, 4, {{"c", 0.5, 2, 6, 2, 11}}});
    CHECK(costs.frozen[0].duration_us(3) == 6.5);
    CHECK(parse_profile(without.dump()).frozen.empty());
    CHECK(print_profile(parse_profile(without.dump())).find("frozen") == std::string::npos);
    json frozen = json::parse(small);
    frozen["frozen_conditioning_bytes"] = 7;
    CHECK(parse_profile(frozen.dump()).conditioning_gradient_bytes() == 0);
    frozen["frozen_conditioning_bytes"] = 8;
    CHECK(refusal(frozen).find("frozen_conditioning_bytes") != std::string::npos);
    CHECK(costs.layers[1].open_bytes == 6);
    CHECK(costs.layers[0].open_bytes == 0);
    CHECK(costs.layers[1].factored_elements == 12);
    CHECK(costs.layers[0].factored_elements == 0);
}

TEST_CASE("a field that is missing, of a wrong type or out of range is named") {
    const json good = json::parse(small);
    std::vector<json::json_pointer> paths;
    list_paths(good, json::json_pointer{}, paths);
    REQUIRE(paths.size() == 47);
    int refused = 0;
    for (const json::json_pointer& path : paths) {
        const std::string key = path.back();
        const bool element = key.find_first_not_of("0123456789") == std::string::npos;
        const std::string name = "p.json: " + spelled(path) + " ";
        CAPTURE(name);
        if (!element) {
            json missing = good;
            missing[path.parent_pointer()].erase(key);
            const bool optional = key == "deferred_bytes" || key == "workspace_bytes" || key == "open_bytes" ||
                                  key == "factored_elements" || path.to_string() == "/input_bytes" || key == "frozen";
            CHECK(refusal(missing) == (optional ? "accepted" : name + "is missing"));
        }
        for (const json& wrong : {json(nullptr), json(true), json("?"), json(-1), json(1.5), json::array(),
                                  json::object(), json(std::numeric_limits<std::uint64_t>::max())}) {
            json changed = good;
            changed[path] = wrong;
            const std::string answer = refusal(changed);
            const bool in_frozen = path.to_string().rfind("/frozen/", 0) == 0;
            const bool number_for_time = key.size() > 3 && key.compare(key.size() - 3, 3, "_us") == 0 &&
                                         wrong.is_number() && wrong.get<double>() >= 0.0 &&
                                         !(in_frozen && wrong.get<double>() > 1e12);
            const bool string_for_name =
                (key == "model" || key == "device" || (in_frozen && key == "name")) && wrong.is_string();
            const bool empty_skips = (key == "skips" || key == "frozen") && wrong == json::array();
            if (number_for_time || string_for_name || empty_skips) {
                CHECK(answer == "accepted");
                continue;
            }
            ++refused;
            // A renamed layer is reported by the skip that ends there; any other fault is reported where it is.
            const bool renamed = key == "name" && wrong.is_string();
            CHECK(answer.rfind(renamed ? "p.json: skips[0]." : element ? "p.json: " + spelled(path) : name, 0) == 0);
        }
    }
    CHECK(refused > 200);
}

TEST_CASE("what is inconsistent is named") {
    const json good = json::parse(small);
    const auto with = [&good](const char* path, const json& value) {
        json changed = good;
        changed[json::json_pointer{path}] = value;
        return refusal(changed);
    };
    CHECK(refusal(good) == "accepted");
    CHECK(with("/format", "pulse-profile/2") == "p.json: format must be pulse-profile/1");
    CHECK(with("/microbatch_size", 0) == "p.json: microbatch_size must be 1 to 2147483647");
    CHECK(with("/microbatch_size", 1LL << 31) == "p.json: microbatch_size must be 1 to 2147483647");
    CHECK(with("/layers", json::array()) == "p.json: layers must not be empty");
    CHECK(with("/layers/1/name", "a") == "p.json: layers[1].name is the name of another layer");
    CHECK(with("/layers/0/name", "") == "p.json: layers[0].name must not be empty");
    CHECK(with("/layers/1/name", std::string(96, 'x')) == "p.json: layers[1].name has more than 95 characters");
    CHECK(with("/layers/1/name", std::string("b\0c", 3)) == "p.json: layers[1].name must not contain a zero character");
    CHECK(with("/layers/1/forward_us", -0.5) == "p.json: layers[1].forward_us must not be negative");
    CHECK(with("/layers/1/forward_us", "1") == "p.json: layers[1].forward_us must be a number");
    CHECK(with("/layers/0/saved_bytes", -8) == "p.json: layers[0].saved_bytes must not be negative");
    CHECK(with("/layers/0/saved_bytes", 1e3) == "p.json: layers[0].saved_bytes must be an integer");
    CHECK(with("/layers/0/saved_bytes", 1ULL << 63) == "p.json: layers[0].saved_bytes is out of range");
    CHECK(with("/skips/0/from", "z") == "p.json: skips[0].from is 'z', which is not a layer");
    CHECK(with("/skips/0/to", "a") == "p.json: skips[0].to must name a layer after the one in from");
    CHECK(with("/skips/0/bytes", -1) == "p.json: skips[0].bytes must not be negative");
    CHECK(with("/defered_bytes", 1) ==
          "p.json: the profile has the field 'defered_bytes', which pulse-profile/1 does not define");
    CHECK(with("/layers/0/flops", 1) ==
          "p.json: layers[0] has the field 'flops', which pulse-profile/1 does not define");

    CHECK(with("/frozen/0/feeds", "nothing") ==
          "p.json: frozen[0].feeds is 'nothing'; it must be one of input, context, facts, target");
    CHECK(with("/frozen/0/max_chunk", 0) == "p.json: frozen[0].max_chunk must be 1 to 2147483647");
    CHECK(with("/frozen/0/result_bytes", 0) ==
          "p.json: frozen[0].result_bytes must be at least 1: the component feeds nothing");
    for (const std::string field :
         {"/frozen/0/input_bytes", "/frozen/0/result_bytes", "/frozen/0/layers/0/parameter_bytes",
          "/frozen/0/layers/0/output_bytes", "/frozen/0/layers/0/live_bytes", "/layers/0/parameter_bytes",
          "/layers/0/saved_bytes", "/layers/0/output_bytes", "/layers/0/workspace_bytes", "/skips/0/bytes",
          "/conditioning_bytes", "/input_bytes"}) {
        CAPTURE(field);
        CHECK(with(field.c_str(), std::int64_t{1} << 40) == "accepted");
        CHECK(with(field.c_str(), (std::int64_t{1} << 40) + 1).ends_with("bytes must be at most 2^40: a tebibyte"));
        CHECK(with(field.c_str(), -1).ends_with("bytes must not be negative"));
    }
    CHECK(with("/frozen/0/layers/0/sample_us", 1.1e12) ==
          "p.json: frozen[0].layers[0].sample_us must be at most 1e12: eleven days");
    CHECK(with("/frozen/0/max_chunk", -1) == "p.json: frozen[0].max_chunk must not be negative");
    CHECK(with("/frozen/0/layers", json::array()) == "p.json: frozen[0].layers must not be empty");
    CHECK(with("/frozen/0/layers/0/call_us", -1) == "p.json: frozen[0].layers[0].call_us must not be negative");
    CHECK(with("/frozen/1", good["frozen"][0]) == "p.json: frozen[1].name is the name of another component");
    CHECK(with("/frozen/0/name", "") == "p.json: frozen[0].name must not be empty");

    const std::string text = small;
    CHECK(refusal(std::string{}).rfind("p.json: not valid JSON", 0) == 0);
    CHECK(refusal(std::string{"[]"}) == "p.json: the profile must be an object");
    CHECK(refusal(text + "x").find("not valid JSON") != std::string::npos);
    CHECK(refusal(text + text).find("not valid JSON") != std::string::npos);
    const auto replaced = [&text](const std::string& what, const std::string& by) {
        std::string changed = text;
        changed.replace(changed.find(what), what.size(), by);
        return refusal(changed);
    };
    CHECK(replaced("\"forward_us\":1.5", "\"forward_us\":1e999").find("'forward_us'") != std::string::npos);
    CHECK(replaced("\"forward_us\":1.5", "\"forward_us\":NaN").find("'forward_us'") != std::string::npos);
    CHECK(replaced("\"saved_bytes\":8", "\"saved_bytes\":8,\"saved_bytes\":9") ==
          "p.json: the field 'saved_bytes' occurs twice");
    CHECK(replaced("\"a\"", "\"\xff\"").find("not valid JSON") != std::string::npos);
    CHECK(refusal(std::string(100, '[')).find("not valid JSON") != std::string::npos);
    CHECK(refusal(std::string(100000, '[')).find("nested deeper than 200 levels") != std::string::npos);
}

TEST_CASE("damage anywhere gives a valid table or an error, never anything else") {
    std::mt19937 random{33};
    const std::string compact = json::parse(small).dump();
    const std::string printed = print_profile(parse_profile(small));
    for (const std::string& text : {compact, printed}) {
        for (std::size_t end = 0; end + 1 < text.size(); ++end) { CHECK(survives(text.substr(0, end))); }
        for (int repeat = 0; repeat != 3000; ++repeat) {
            std::string damaged = text;
            for (auto flips = 1 + random() % 3U; flips > 0; --flips) {
                const std::size_t at = random() % damaged.size();
                switch (random() % 4U) {
                case 0: damaged[at] = static_cast<char>(damaged[at] ^ static_cast<char>(1U << (random() % 8U))); break;
                case 1: damaged[at] = "0123456789-+.eE\"{}[],:x"[random() % 23U]; break;
                case 2: damaged.erase(at, 1 + random() % 9U); break;
                default: damaged.insert(at, text.substr(random() % text.size(), random() % 30U)); break;
                }
            }
            CHECK(survives(damaged));
        }
    }
}

TEST_CASE("a table that could not be read again is not written") {
    const auto refused = [](const cost_table& costs) {
        try {
            static_cast<void>(print_profile(costs));
        } catch (const input_error& e) { return std::string{e.what()}; }
        return std::string{"accepted"};
    };
    const cost_table good = parse_profile(small);
    CHECK(refused(good) == "accepted");
    cost_table bad = good;
    bad.layers[1].name = bad.layers[0].name;
    CHECK(refused(bad) == "profile: layers[1].name is the name of another layer");
    bad = good;
    bad.layers[1].name = label{};
    CHECK(refused(bad) == "profile: layers[1].name must not be empty");
    bad = good;
    bad.layers[0].name = label{std::string_view{"\xff"}};
    CHECK(refused(bad) == "profile: a name is not UTF-8");
    bad = good;
    bad.layers[0].forward_us = std::numeric_limits<double>::quiet_NaN();
    CHECK(refused(bad) != "accepted");
    bad = good;
    bad.frozen.push_back(bad.frozen[0]);
    CHECK(refused(bad) == "costs: frozen vae: name: is the name of another component");
    bad = good;
    bad.frozen[0].result_bytes = 0;
    CHECK(refused(bad) == "profile: frozen vae: result_bytes must be at least 1: the component feeds nothing");
    bad = good;
    bad.frozen[0].layers[0].call_us = 2e12;
    CHECK(refused(bad) == "profile: frozen vae: layer " + bad.frozen[0].layers[0].name.str() +
                              ": a time must be at most 1e12: eleven days");
    bad = good;
    bad.frozen[0].layers[0].name = label{std::string_view{"\xff"}};
    CHECK(refused(bad) == "profile: a name is not UTF-8");
    bad = good;
    bad.skips[0].to = 5;
    CHECK(refused(bad) != "accepted");
    CHECK(refused({}) != "accepted");
}

TEST_CASE("files: saved whole or not at all, and errors name the file") {
    namespace fs = std::filesystem;
    const fs::path folder = fs::temp_directory_path() / ("pulse_profile_" + std::to_string(::getpid()));
    fs::create_directories(folder);
    const fs::path file = folder / "p.json";
    const cost_table costs = parse_profile(small);
    save_profile(costs, file);
    CHECK(load_profile(file) == costs);
    save_profile(costs, file); // replaces
    CHECK(std::distance(fs::directory_iterator{folder}, fs::directory_iterator{}) == 1);

    cost_table bad = costs;
    bad.layers.clear();
    CHECK_THROWS_AS(save_profile(bad, file), input_error);
    CHECK(load_profile(file) == costs);

    const auto error_of = [](const auto& action) {
        try {
            action();
        } catch (const input_error& e) { return std::string{e.what()}; }
        return std::string{"none"};
    };
    const fs::path missing = folder / "missing.json";
    const fs::path nowhere = folder / "no" / "p.json";
    CHECK(error_of([&] { static_cast<void>(load_profile(missing)); }) == missing.string() + ": cannot be read");
    CHECK(error_of([&] { static_cast<void>(load_profile(folder)); }) == folder.string() + ": is a folder");
    CHECK(error_of([&] { save_profile(costs, nowhere); }) == nowhere.string() + ": cannot be written");
    CHECK(error_of([&] { save_profile(costs, folder); }) == folder.string() + ": cannot be written");
    std::ofstream{file} << "{}";
    CHECK(error_of([&] { static_cast<void>(load_profile(file)); }) == file.string() + ": format is missing");
    fs::remove_all(folder);
    CHECK(!fs::exists(folder.string() + "." + std::to_string(::getpid()) + ".tmp"));
}
