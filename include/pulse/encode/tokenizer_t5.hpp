#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sentencepiece_processor.h>

#include <pulse/core/error.hpp>
#include <pulse/encode/tokenizer.hpp>
#include <pulse/encode/tokenizer_added.hpp>
#include <pulse/encode/tokenizer_settings.hpp>
#include <pulse/encode/tokenizer_text.hpp>

namespace pulse::encode {

/// The tokenizer of T5 and mT5 over a SentencePiece model, equal to transformers' T5Tokenizer (legacy, as in their
/// files).
class t5_tokenizer : public tokenizer {
public:
    t5_tokenizer(const named_text& model, const tokenizer_settings& settings, std::optional<int> length = {}) :
        t5_tokenizer{parts{model, settings}, settings.length(length)} {}

private:
    struct parts {
        parts(const named_text& file, const tokenizer_settings& settings) :
            model{load(file)}, model_size{model->GetPieceSize()}, extra{settings.count("extra_ids", 100)},
            name{file.name}, end{add(settings.role("eos_token", "</s>"))}, pad{add(
                                                                               settings.role("pad_token", "<pad>"))} {
            add(settings.role("unk_token", "<unk>"));
            for (int i = 0; i != extra; ++i) {
                add({.content = extra_id(i), .strip_left = true, .strip_right = true, .place = name});
            }
            for (const added_token& token : settings.added()) { add(token); }
            if (!settings.flag("legacy", true)) {
                settings.config_field()["legacy"].fail("is false, which is not supported");
            }
        }
        [[nodiscard]] static std::unique_ptr<sentencepiece::SentencePieceProcessor> load(const named_text& file) {
            auto model = std::make_unique<sentencepiece::SentencePieceProcessor>();
            std::string fault;
            try {
                const auto status = model->LoadFromSerializedProto(file.text);
                if (!status.ok()) { fault = status.ToString(); }
            } catch (const std::exception& e) { // from the library's trie, as for an empty piece
                fault = e.what();
            }
            if (!fault.empty()) {
                throw input_error(file.name + ": is not a SentencePiece model: " + io::printable(fault));
            }
            return model;
        }
        [[nodiscard]] static std::string extra_id(int i) { return "<extra_id_" + std::to_string(i) + '>'; }
        std::int32_t add(const added_token& token) {
            const auto id_of = [&](const std::string& content) -> std::optional<std::int32_t> {
                // PieceToId returns the id of the unknown for a piece that the model lacks
                const int id = model->PieceToId(content);
                if (id >= 0 && id < model_size && model->IdToPiece(id) == content) { return id; }
                for (int i = 0; i != extra; ++i) {
                    if (content == extra_id(i)) { return model_size + extra - 1 - i; }
                }
                return {};
            };
            return added.add(token, id_of, name);
        }

        std::unique_ptr<sentencepiece::SentencePieceProcessor> model;
        int model_size;
        int extra;
        std::string name;
        added_tokens added{};
        std::int32_t end, pad;
    };

    t5_tokenizer(parts made, int length) :
        tokenizer{{.length = length, .end = made.end, .pad = made.pad, .end_once = true},
                  std::max(made.model_size + made.extra, made.added.greatest() + 1)},
        parts_{std::move(made)} {}

    [[nodiscard]] std::vector<std::int32_t> pieces(std::string_view text, std::string_view what) const override {
        return parts_.added.pieces(
            code_points(text, what), [](std::u32string_view between) { return between; },
            [&](std::u32string_view between, std::vector<std::int32_t>& ids) {
                std::vector<int> found{};
                const auto status = parts_.model->Encode(utf8(between), &found);
                if (!status.ok()) { throw error(parts_.name + ": " + status.ToString()); }
                ids.insert(ids.end(), found.begin(), found.end());
            });
    }

    parts parts_;
};

} // namespace pulse::encode
