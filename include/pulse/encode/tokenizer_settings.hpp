#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/io/atomic_file.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/io/parse_json.hpp>

namespace pulse::encode {

/// Text and name of a file.
struct named_text {
    std::string text{};
    std::string name{};
};

/// Reads a file of a tokenizer. The largest vocabularies have some 10 MB; a file above 64 MiB is refused unread.
[[nodiscard]] inline named_text read_tokenizer_file(const std::filesystem::path& path) {
    constexpr std::uintmax_t most = std::uintmax_t{64} << 20U;
    std::error_code failed{};
    const std::uintmax_t size = std::filesystem::file_size(path, failed);
    if (!failed && size > most) {
        throw input_error(path.string() + ": has " + std::to_string(size) + " bytes, too many for a tokenizer's file");
    }
    return {.text = io::read_file(path), .name = path.string()};
}

/// A token that is found in a text before the text is split.
struct added_token {
    std::string content{};
    bool normalized = false; ///< found in the normalized text (for CLIP, in any letter case)
    bool strip_left = false; ///< white space before it belongs to it
    bool strip_right = false;
    std::optional<std::int32_t> id{};
    std::string place{}; ///< file and field, for errors

    /// Whether both are found in the same places and have the same id.
    [[nodiscard]] bool same(const added_token& other) const {
        return content == other.content && normalized == other.normalized && strip_left == other.strip_left &&
               strip_right == other.strip_right && id == other.id;
    }
};

/// Reads a token, an object or a string; `normalized` applies to that of a string. Throws input_error.
[[nodiscard]] inline added_token added_token_of(const io::json_field& field, bool normalized) {
    const auto is_true = [&](const char* name) { return field.has(name) && field[name].boolean(); };
    added_token token{.normalized = normalized, .place = field.place()};
    if (field.has("content")) {
        token.content = field["content"].text();
        token.normalized = is_true("normalized");
        token.strip_left = is_true("lstrip");
        token.strip_right = is_true("rstrip");
        if (is_true("single_word")) { field["single_word"].fail("is true, which is not supported"); }
    } else {
        token.content = field.text();
    }
    if (token.content.empty()) { field.fail("is empty"); }
    return token;
}

/// tokenizer_config.json and special_tokens_map.json, either or both of which may be absent.
///
/// As in transformers 4.34 and later, special_tokens_map.json wins, unless the config lists added_tokens_decoder, which
/// alone counts then.
class tokenizer_settings {
public:
    tokenizer_settings() = default;
    tokenizer_settings(const std::optional<named_text>& config, const std::optional<named_text>& map) {
        if (config) { parse(*config, config_name_, config_); }
        if (config_.contains("added_tokens_decoder")) {
            read_added_tokens();
        } else {
            if (map) { parse(*map, map_name_, map_); }
            // the second is the name since transformers 5; earlier it held tokens by name, or an empty object
            for (const char* more : {"additional_special_tokens", "extra_special_tokens"}) {
                const nlohmann::json& wins = given(map_, more) ? map_ : config_;
                if (!given(wins, more) || wins.at(more) == nlohmann::json::object()) { continue; }
                const io::json_field list = field_of(wins)[more];
                for (std::size_t i = 0; i != list.size(); ++i) {
                    added_.push_back(added_token_of(list.entry(i), false));
                }
            }
        }
        if (flag("split_special_tokens", false)) {
            config_field()["split_special_tokens"].fail("is true, which is not supported");
        }
        for (const char* side : {"padding_side", "truncation_side"}) {
            if (given(config_, side)) { (void)config_field()[side].one_of<bool>({{"right", true}}); }
        }
    }
    [[nodiscard]] static tokenizer_settings read(const std::filesystem::path& folder) {
        const auto if_there = [&](const char* name) -> std::optional<named_text> {
            if (!std::filesystem::exists(folder / name)) { return {}; }
            return read_tokenizer_file(folder / name);
        };
        tokenizer_settings settings{if_there("tokenizer_config.json"), if_there("special_tokens_map.json")};
        settings.config_name_ = (folder / "tokenizer_config.json").string();
        const std::filesystem::path old = folder / "added_tokens.json";
        if (!settings.config_.contains("added_tokens_decoder") && std::filesystem::exists(old)) {
            throw input_error(old.string() + ": has an old form; tokenizer_config.json must list added_tokens_decoder");
        }
        return settings;
    }

    /// These settings with exactly the `tokens` that `source` lists. Throws input_error naming a token of the settings
    /// that `source` lacks.
    [[nodiscard]] tokenizer_settings with(std::vector<added_token> tokens, const std::string& source) const {
        tokenizer_settings settings = *this;
        settings.added_ = std::move(tokens);
        settings.source_ = source;
        std::unordered_map<std::string_view, const added_token*> listed{};
        for (const added_token& token : settings.added_) { listed.emplace(token.content, &token); }
        for (const added_token& token : added_) {
            const auto found = listed.find(token.content);
            if (found == listed.end() || (token.id && !token.same(*found->second))) {
                throw input_error(token.place + ": added_tokens of " + source + " have no such token '" +
                                  io::printable(token.content) + '\'');
            }
        }
        return settings;
    }

    /// Whether transformers 5 wrote the config.
    [[nodiscard]] bool saved_by_transformers_5() const {
        return given(config_, "backend") && !config_.contains("added_tokens_decoder");
    }
    /// Name of the class in transformers, without Fast; empty if the config names none.
    [[nodiscard]] std::string class_name() const {
        if (!given(config_, "tokenizer_class")) { return {}; }
        std::string name = config_field()["tokenizer_class"].text();
        if (name.ends_with("Fast")) { name.resize(name.size() - 4); }
        return name;
    }
    [[noreturn]] void refuse_class() const {
        config_field()["tokenizer_class"].fail("is '" + io::printable(class_name()) +
                                               "'; it must be CLIPTokenizer, BertTokenizer or T5Tokenizer");
    }
    /// `asked`, or the config's model_max_length. Configs write 1e30 for no limit, and each text takes memory for the
    /// whole length, so a config's length beyond what text encoders read is refused.
    [[nodiscard]] int length(std::optional<int> asked) const {
        if (asked) { return *asked; }
        if (!given(config_, "model_max_length")) { config_field().fail("has no model_max_length, and none is given"); }
        const io::json_field field = config_field()["model_max_length"];
        if (constexpr int most = 65536; field.number() > most) {
            field.fail("is beyond " + std::to_string(most) + ", and no length is given");
        }
        const int value = field.count();
        if (value < 3) { field.fail("leaves no room between begin and end"); }
        return value;
    }
    [[nodiscard]] bool flag(const char* name, bool otherwise) const {
        return given(config_, name) ? config_field()[name].boolean() : otherwise;
    }
    [[nodiscard]] int count(const char* name, int otherwise) const {
        if (!given(config_, name)) { return otherwise; }
        const io::json_field field = config_field()[name];
        const int value = field.small_integer();
        if (value < 0 || value > 10000) { field.fail("must be 0 to 10000"); }
        return value;
    }
    /// The token of a role such as "pad_token". `normalized` applies if it is written as a plain string.
    [[nodiscard]] added_token role(const char* name, const char* otherwise, bool normalized = false) const {
        for (const nlohmann::json* document : {&map_, &config_}) {
            if (!given(*document, name)) { continue; }
            return known(added_token_of(field_of(*document)[name], normalized));
        }
        const added_token token{
            .content = otherwise, .normalized = normalized, .place = config_name_ + ": " + name + " (by default)"};
        return source_.empty() ? token : known(token);
    }
    /// Tokens of added_tokens_decoder, else of additional_special_tokens, whose ids the vocabulary gives.
    [[nodiscard]] const std::vector<added_token>& added() const noexcept { return added_; }
    [[nodiscard]] io::json_field config_field() const { return field_of(config_); }

private:
    /// The token as it is listed; tokenizer.json must list every token.
    [[nodiscard]] added_token known(added_token token) const {
        for (const added_token& one : added_) {
            if (one.content == token.content) { return one; }
        }
        if (!source_.empty()) {
            throw input_error(token.place + ": added_tokens of " + source_ + " have no '" +
                              io::printable(token.content) + '\'');
        }
        return token;
    }
    /// Files also write null for what is absent.
    [[nodiscard]] static bool given(const nlohmann::json& document, const char* name) {
        const auto found = document.find(name);
        return found != document.end() && !found->is_null();
    }
    static void parse(const named_text& file, std::string& name, nlohmann::json& document) {
        name = file.name;
        document = io::parse_json(file.text, file.name);
        if (!document.is_object()) { throw input_error(file.name + ": must be an object"); }
    }
    [[nodiscard]] io::json_field field_of(const nlohmann::json& document) const {
        const bool is_map = &document == &map_;
        return {document, {.source = is_map ? map_name_ : config_name_, .what = "the file", .format = "a tokenizer"}};
    }
    void read_added_tokens() {
        const io::json_field all = config_field()["added_tokens_decoder"];
        if (!config_.at("added_tokens_decoder").is_object()) { all.fail("must be an object"); }
        for (const auto& entry : config_.at("added_tokens_decoder").items()) {
            const std::string& key = entry.key();
            if (key.empty() || key.size() > 9 || key.find_first_not_of("0123456789") != std::string::npos) {
                all.fail("has the field '" + io::printable(key) + "', which is not an id");
            }
            added_.push_back(added_token_of(all[key.c_str()], false));
            added_.back().id = std::stoi(key);
        }
    }

    std::string config_name_ = "tokenizer_config.json";
    std::string map_name_{};
    nlohmann::json config_ = nlohmann::json::object();
    nlohmann::json map_ = nlohmann::json::object();
    std::vector<added_token> added_{};
    std::string source_{}; ///< name of tokenizer.json, if it lists the tokens
};

} // namespace pulse::encode
