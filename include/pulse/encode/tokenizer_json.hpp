#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/encode/tokenizer_settings.hpp>
#include <pulse/encode/tokenizer_vocabulary.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/io/parse_json.hpp>

namespace pulse::encode {

/// tokenizer.json, in which transformers 5 saves vocabulary, merges, added tokens and how a text is split.
///
/// Each tokenizer accepts only files of the form that its class in transformers writes: that class reads only
/// vocabulary and added tokens from the file, so what another form means is unclear.
class tokenizer_json {
public:
    /// In a form: any value or none is accepted, because it changes no ids or is read elsewhere.
    static constexpr const char* any = "any";

    /// Throws input_error naming file and field, as all members do.
    explicit tokenizer_json(const named_text& file) :
        name_{file.name}, document_(io::parse_json(file.text, file.name)) {
        if (!document_.is_object()) { throw input_error(name_ + ": must be an object"); }
    }

    [[nodiscard]] io::json_field root() const {
        return {document_, {.source = name_, .what = "the file", .format = "a tokenizer"}};
    }
    [[nodiscard]] const std::string& model_type() const { return root()["model"]["type"].text(); }
    [[nodiscard]] io::json_field tokens_of(std::string_view model_type) const {
        (void)root()["model"]["type"].one_of<bool>({{model_type, true}});
        return root()["model"]["vocab"];
    }
    [[nodiscard]] vocabulary vocabulary_of(std::string_view model_type) const {
        const io::json_field tokens = tokens_of(model_type);
        return vocabulary::from_object(tokens.value(), tokens.place());
    }
    [[nodiscard]] std::vector<added_token> added() const {
        const io::json_field list = root()["added_tokens"];
        // every token is tried wherever its first letter occurs
        if (constexpr std::size_t most = 10000; list.size() > most) {
            list.fail("has more than " + std::to_string(most) + " tokens");
        }
        std::vector<added_token> tokens{};
        for (std::size_t i = 0; i != list.size(); ++i) {
            const io::json_field field = list.entry(i);
            // `special` matters only to decoders
            field.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
            for (const char* name : {"single_word", "lstrip", "rstrip", "normalized"}) { (void)field[name].boolean(); }
            (void)field["content"].text();
            tokens.push_back(added_token_of(field, false));
            const std::int64_t id = field["id"].integer();
            if (id < 0 || id > 999'999'999) { field["id"].fail("must be 0 to 999999999"); }
            tokens.back().id = static_cast<std::int32_t>(id);
        }
        return tokens;
    }

    /// Token and id.
    using mark = std::pair<std::string, std::int32_t>;
    /// The form of a TemplateProcessing that puts begin and end around a text.
    [[nodiscard]] static nlohmann::json around(const std::optional<mark>& begin, const mark& end) {
        nlohmann::json form = {{"type", "TemplateProcessing"},
                               {"single", nlohmann::json::array()},
                               {"pair", any},
                               {"special_tokens", nlohmann::json::object()}};
        const auto add = [&](const mark& token) {
            form["single"].push_back({{"SpecialToken", {{"id", token.first}, {"type_id", 0}}}});
            form["special_tokens"][token.first] = {
                {"id", token.first}, {"ids", nlohmann::json::array({token.second})}, {"tokens", any}};
        };
        if (begin) { add(*begin); }
        form["single"].push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
        add(end);
        return form;
    }
    /// Refuses a file that differs from `form`, which leaves out what all tokenizers have in common.
    void require(nlohmann::json form, const std::string& pad) const {
        form.update({{"version", "1.0"}, {"added_tokens", any}, {"decoder", any}});
        // the length of a text is set elsewhere
        const auto side = [&](const char* name, nlohmann::json sided) {
            sided["direction"] = "Right";
            form[name] = root()[name].value().is_null() ? nlohmann::json{} : std::move(sided);
        };
        side("truncation", {{"max_length", any}, {"strategy", any}, {"stride", any}});
        side("padding", {{"strategy", any},
                         {"pad_to_multiple_of", any},
                         {"pad_id", any},
                         {"pad_type_id", any},
                         {"pad_token", pad}});
        require(root(), form);
    }

private:
    static void require(const io::json_field& field, const nlohmann::json& form) {
        const nlohmann::json& value = field.value();
        if (form.is_object()) {
            for (const auto& entry : form.items()) {
                if (entry.value() != any) { require(field[entry.key().c_str()], entry.value()); }
            }
            std::vector<std::string_view> known{};
            for (const auto& entry : form.items()) { known.emplace_back(entry.key()); }
            field.only(known);
        } else if (form.is_array()) {
            if (field.size() != form.size()) {
                field.fail("must have " + std::to_string(form.size()) + (form.size() == 1 ? " entry" : " entries"));
            }
            for (std::size_t i = 0; i != form.size(); ++i) { require(field.entry(i), form[i]); }
        } else if (value != form) {
            const std::string is = value.is_structured()
                                       ? std::string{value.is_array() ? "an array" : "an object"}
                                       : value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
            field.fail("is " + io::printable(is, 120) + "; it must be " + form.dump());
        }
    }

    std::string name_;
    nlohmann::json document_;
};

} // namespace pulse::encode
