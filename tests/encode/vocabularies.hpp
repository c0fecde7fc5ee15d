#pragma once

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/encode/tokenizer_settings.hpp>

namespace pulse::test {

/// A small vocabulary of CLIP's kind: letters a to d, and merges drawn at random of what is there by then.
struct small_clip {
    std::vector<std::string> tokens{"a", "b", "c", "d", "a</w>", "b</w>", "c</w>", "d</w>"};
    std::vector<std::pair<std::string, std::string>> merges{};

    small_clip(unsigned seed, int count) {
        std::mt19937 draw{seed};
        while (static_cast<int>(merges.size()) < count) {
            const std::string& left = tokens[draw() % tokens.size()];
            const std::string& right = tokens[draw() % tokens.size()];
            if (left.ends_with("</w>") || std::ranges::count(tokens, left + right) != 0) { continue; }
            merges.emplace_back(left, right);
            tokens.push_back(left + right);
        }
    }
    [[nodiscard]] encode::named_text vocab_json() const {
        nlohmann::json ids = nlohmann::json::object();
        for (std::size_t i = 0; i != tokens.size(); ++i) { ids[tokens[i]] = i; }
        ids["<|startoftext|>"] = tokens.size();
        ids["<|endoftext|>"] = tokens.size() + 1;
        return {.text = ids.dump(), .name = "vocab.json"};
    }
    [[nodiscard]] encode::named_text merges_txt() const {
        std::string text = "#version: 0.2\n";
        for (const auto& [left, right] : merges) { text += left + ' ' + right + '\n'; }
        return {.text = text, .name = "merges.txt"};
    }
};

/// Settings that tokenizer_config.json alone gives.
[[nodiscard]] inline encode::tokenizer_settings with(const std::string& config) {
    return {encode::named_text{config, "tokenizer_config.json"}, {}};
}

} // namespace pulse::test
