#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/diffusers/read_backbone.hpp>
#include <pulse/diffusers/weights.hpp>
#include <pulse/nn/unet.hpp>
#include <pulse/nn/value_graph.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

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

using math = reference::backend<float>;

/// Runs one sample through a UNet whose config is only known at run time: each layer's forward pass, at an extent.
class value_run {
public:
    value_run(const unet_config& c, const extent& to) : config_{c}, by_{resizing_of(c.name, c.sample_size, 1, to)} {}

    /// The parameters are in the order of value_graph.
    [[nodiscard]] std::vector<float> forward(std::span<const float> parameters, std::span<const float> sample,
                                             float time, std::span<const float> text, std::span<const float> facts) {
        layer_frame<float> frame{.batch = 1};
        frame.timesteps = &time;
        frame.text = text.data();
        frame.facts = facts.data();
        std::vector<float> conditioning;
        const auto embed = [&](const auto& what) {
            const nn::layer_sizes sizes = nn::layout_of(what).sizes;
            const std::int64_t context = sizes.context[0] == 0 ? 0 : nn::elements(sizes.context);
            frame.parameters = parameters.data() + parameters.size() - sizes.kept.parameters;
            conditioning = pass(what, frame, nn::elements(what.output()) + context);
        };
        if (config_.reads_text()) {
            embed(text_conditioning_of(config_));
        } else {
            embed(time_embedding_of(config_));
        }
        frame.conditioning = conditioning.data();
        frame.context = conditioning.data() + config_.conditioning();

        unet_values all{config_};
        std::vector<std::vector<float>> outputs;
        frame.parameters = parameters.data();
        for (const unet_layer& l : all.layers) {
            use_math(config_, l, [&](auto what) {
                what = nn::resized(what, by_);
                frame.input = outputs.empty() ? sample.data() : outputs.back().data();
                frame.skip = l.skip_from < 0 ? nullptr : outputs[static_cast<std::size_t>(l.skip_from)].data();
                outputs.push_back(pass(what, frame, nn::elements(what.output())));
                frame.parameters += nn::layout_of(what).sizes.kept.parameters;
            });
        }
        return outputs.back();
    }

private:
    template <class Math>
    [[nodiscard]] std::vector<float> pass(const Math& what, layer_frame<float> frame, std::int64_t elements) {
        const nn::layer_sizes sizes = nn::layout_of(what).sizes;
        const auto room = [](std::int64_t count) { return std::vector<float>(static_cast<std::size_t>(count)); };
        std::vector<float> output = room(elements);
        std::vector<float> saved = room(sizes.kept.saved);
        std::vector<float> statistics = room(sizes.kept.statistics);
        std::vector<float> workspace = room(sizes.workspace);
        frame.output = output.data();
        frame.saved = saved.data();
        frame.statistics = statistics.data();
        frame.workspace = workspace.data();
        nn::run_forward(what, on_, frame);
        return output;
    }

    unet_config config_;
    resizing by_;
    math on_{};
};

/// The greatest difference between the outputs of diffusers and pulse for the sample of a file of drawn_configs.py,
/// relative to the greatest value.
[[nodiscard]] double difference_of(const unet_config& c, const fs::path& folder) {
    const std::string bytes = bytes_of(folder / "run");
    std::vector<float> numbers(bytes.size() / sizeof(float));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    std::span<const float> rest{numbers};
    const auto take = [&](std::int64_t count) {
        const std::span<const float> taken = rest.first(static_cast<std::size_t>(count));
        rest = rest.subspan(taken.size());
        return taken;
    };
    const extent to{static_cast<int>(numbers[0]), static_cast<int>(numbers[1])};
    static_cast<void>(take(2));
    std::map<std::string, std::span<const float>> values;
    for (const std::string& line : lines_of(folder / "names")) {
        std::istringstream words{line};
        std::string name;
        words >> name;
        std::int64_t count = 1;
        for (std::int64_t size = 0; words >> size;) { count *= size; }
        values[name] = take(count);
    }
    std::vector<float> parameters;
    const value_graph graph = value_graph_of(c);
    for (const parameter& one : graph.parameters()) {
        const std::span<const float> from = values.at(one.name.str());
        parameters.insert(parameters.end(), from.begin(), from.end());
    }
    const std::int64_t pixels = std::int64_t{to.height} * to.width;
    const auto sample = take(pixels * c.in_channels);
    const auto time = take(1);
    const auto text = take(c.reads_text() ? c.context_tokens * c.text_features() + c.pooled() : 0);
    const auto facts = take(c.adds_embedding() ? 6 : 0);
    const auto wanted = take(pixels * c.out_channels);
    CHECK(rest.empty());
    const std::vector<float> found = value_run{c, to}.forward(parameters, sample, time[0], text, facts);
    REQUIRE(found.size() == wanted.size());
    double worst = 0.0;
    double greatest = 0.0;
    for (std::size_t i = 0; i != found.size(); ++i) {
        worst = std::max(worst, std::abs(static_cast<double>(found[i]) - static_cast<double>(wanted[i])));
        greatest = std::max(greatest, std::abs(static_cast<double>(wanted[i])));
    }
    return worst / greatest;
}

} // namespace

TEST_CASE("200 drawn configs of diffusers have its parameters and answers, or are refused by a key that is not known") {
    for (const char* const packages : {PULSE_TEST_PYTHON_PACKAGES, PULSE_TEST_PYTHON_NEWEST}) {
        CAPTURE(packages);
        const scratch folder;
        if (!run_python(PULSE_TEST_DIFFUSERS_DRAWN, packages, {folder.path})) {
            pulse::test::skip("no torch and diffusers");
            return;
        }
        int read = 0;
        int computed = 0;
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
            const diffusers::backbone_config config = diffusers::read_backbone(entry.path(), "drawn");
            std::vector<std::string> found = names_of(config);
            std::sort(wanted.begin(), wanted.end());
            std::sort(found.begin(), found.end());
            REQUIRE(found == wanted);
            ++read;
            if (const auto* c = std::get_if<unet_config>(&config)) {
                CHECK(difference_of(*c, entry.path()) < 1e-4);
                ++computed;
            }
        }
        CHECK(read + refused == 200);
        CHECK(read > 100);
        CHECK(computed > 80);
        CHECK(refused > 40);
    }
}
