#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/diffusers/read_backbone.hpp>
#include <pulse/diffusers/weights.hpp>
#include <pulse/nn/value_graph.hpp>

#include <support/skip.hpp>

#include "folders.hpp"

namespace {

using namespace pulse;
using namespace pulse::test;

[[nodiscard]] std::vector<std::string> lines_of(const fs::path& file) {
    std::vector<std::string> lines;
    std::ifstream in{file};
    for (std::string line; std::getline(in, line);) { lines.push_back(line); }
    return lines;
}

/// A line for each parameter, as drawn_configs.py writes them.
[[nodiscard]] std::vector<std::string> names_of(const diffusers::backbone_config& config) {
    std::vector<std::string> lines;
    const value_graph graph = std::visit([](const auto& c) { return value_graph_of(c); }, config);
    for (const parameter& one : graph.parameters()) {
        std::string line = one.name.str();
        for (const auto size : train::detail::dims_of(one)) { line += " " + std::to_string(size); }
        lines.push_back(line);
    }
    return lines;
}

} // namespace

TEST_CASE("200 drawn configs of diffusers have its parameters, or are refused by a key that pulse has no layers for") {
    for (const char* const packages : {PULSE_TEST_PYTHON_PACKAGES, PULSE_TEST_PYTHON_NEWEST}) {
        CAPTURE(packages);
        const scratch folder;
        if (!run_python(PULSE_TEST_DIFFUSERS_DRAWN, packages, {folder.path})) {
            pulse::test::skip("no torch and diffusers");
            return;
        }
        int read = 0;
        int refused = 0;
        for (const auto& entry : fs::directory_iterator{folder.path}) {
            CAPTURE(bytes_of(entry.path() / "config.json"));
            const std::vector<std::string> keys = lines_of(entry.path() / "keys");
            if (!keys.empty()) {
                const std::string why =
                    refusal_of([&] { static_cast<void>(diffusers::read_backbone(entry.path(), "drawn")); });
                CAPTURE(why);
                CHECK(std::any_of(keys.begin(), keys.end(),
                                  [&](const std::string& key) { return why.find(key) != std::string::npos; }));
                ++refused;
                continue;
            }
            std::vector<std::string> wanted = lines_of(entry.path() / "names");
            std::vector<std::string> found = names_of(diffusers::read_backbone(entry.path(), "drawn"));
            std::sort(wanted.begin(), wanted.end());
            std::sort(found.begin(), found.end());
            CHECK(found == wanted);
            ++read;
        }
        CHECK(read + refused == 200);
        CHECK(read > 100);
        CHECK(refused > 40);
    }
}
