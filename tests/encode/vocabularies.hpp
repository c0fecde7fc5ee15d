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

/// A small vocabulary like CLIP's: letters a to d, and random merges of what exists at that point.
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

/// An entry of added_tokens in tokenizer.json.
[[nodiscard]] inline nlohmann::json added_entry(int id, const std::string& content, bool normalized = false) {
    return {{"id", id},        {"content", content}, {"single_word", false},    {"lstrip", false},
            {"rstrip", false}, {"special", true},    {"normalized", normalized}};
}

/// tokenizer.json as transformers 5 writes it, with this vocabulary, these merges and added tokens.
[[nodiscard]] inline nlohmann::json clip_json(const small_clip& clip) {
    nlohmann::json root = nlohmann::json::parse(R"json({"version": "1.0", "truncation": null, "padding": null,
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "}, {"type": "Lowercase"}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "behavior": "Removed", "invert": true, "pattern": {"Regex":
            "<\\|startoftext\\|>|<\\|endoftext\\|>|'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+"}},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}]},
        "post_processor": {"type": "RobertaProcessing", "trim_offsets": false, "add_prefix_space": false},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<|endoftext|>", "continuing_subword_prefix": "",
            "end_of_word_suffix": "</w>", "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "merges": []}})json");
    const int begin = static_cast<int>(clip.tokens.size());
    root["post_processor"]["cls"] = {"<|startoftext|>", begin};
    root["post_processor"]["sep"] = {"<|endoftext|>", begin + 1};
    root["added_tokens"] = {added_entry(begin, "<|startoftext|>", true), added_entry(begin + 1, "<|endoftext|>")};
    root["model"]["vocab"] = nlohmann::json::parse(clip.vocab_json().text);
    for (const auto& [left, right] : clip.merges) {
        root["model"]["merges"].push_back(nlohmann::json::array({left, right}));
    }
    return root;
}
[[nodiscard]] inline nlohmann::json template_json(const std::vector<std::pair<std::string, int>>& marks) {
    nlohmann::json root = {{"type", "TemplateProcessing"}, {"single", nlohmann::json::array()}, {"pair", nullptr}};
    const auto add = [&](const std::pair<std::string, int>& mark) {
        const std::string& name = mark.first;
        root["single"].push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
        root["special_tokens"][name] = {
            {"id", name}, {"ids", nlohmann::json::array({mark.second})}, {"tokens", nlohmann::json::array({name})}};
    };
    if (marks.size() == 2) { add(marks[0]); }
    root["single"].push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    add(marks.back());
    return root;
}
[[nodiscard]] inline nlohmann::json bert_json() {
    nlohmann::json root = nlohmann::json::parse(R"json({"version": "1.0", "truncation": null, "padding": null,
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": {"type": "WordPiece", "prefix": "##"},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4,
            "a": 5, "##b": 6, "e": 7, "!": 8}}})json");
    root["post_processor"] = template_json({{"[CLS]", 2}, {"[SEP]", 3}});
    int id = 0;
    for (const char* name : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
        root["added_tokens"].push_back(added_entry(id++, name));
    }
    return root;
}
/// A T5 tokenizer.json whose character map turns A into a.
[[nodiscard]] inline nlohmann::json t5_json() {
    nlohmann::json root = nlohmann::json::parse(R"json({"version": "1.0", "truncation": null, "padding": null,
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": "DAAAAAAAAQBBDQAAAAAAgGEA"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"},
            {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": true}]},
        "decoder": {"type": "Metaspace"},
        "model": {"type": "Unigram", "unk_id": 2, "byte_fallback": false, "vocab": [["<pad>", 0.0], ["</s>", 0.0],
            ["<unk>", 0.0], ["\u2581", -1.5], ["a", -2.0], ["b", -2.5], ["ab", -3.25], ["\u2581ab", -4.5],
            ["<extra_id_0>", 0.0]]}})json");
    root["post_processor"] = template_json({{"</s>", 1}});
    root["added_tokens"] = {added_entry(0, "<pad>"), added_entry(1, "</s>"), added_entry(2, "<unk>"),
                            added_entry(8, "<extra_id_0>")};
    return root;
}

/// Settings from tokenizer_config.json alone.
[[nodiscard]] inline encode::tokenizer_settings with(const std::string& config) {
    return {encode::named_text{config, "tokenizer_config.json"}, {}};
}

} // namespace pulse::test
