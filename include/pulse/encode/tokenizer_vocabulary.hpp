#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/encode/tokenizer_settings.hpp>
#include <pulse/encode/tokenizer_text.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/io/parse_json.hpp>

namespace pulse::encode {

/// Tokens and their ids.
class vocabulary {
public:
    [[nodiscard]] std::optional<std::int32_t> operator()(std::string_view token) const {
        const auto found = ids_.find(token);
        if (found == ids_.end()) { return {}; }
        return found->second;
    }
    [[nodiscard]] std::int32_t greatest() const noexcept { return greatest_; }
    [[nodiscard]] const std::string& name() const noexcept { return name_; }

    /// Reads an object of token: id, as in vocab.json; no two tokens may have one id.
    [[nodiscard]] static vocabulary from_json(const named_text& file) {
        return from_object(io::parse_json(file.text, file.name), file.name);
    }
    [[nodiscard]] static vocabulary from_object(const nlohmann::json& root, const std::string& name) {
        if (!root.is_object()) { throw input_error(name + ": must be an object"); }
        vocabulary made{name};
        std::unordered_map<std::int32_t, const std::string*> owners{};
        for (const auto& entry : root.items()) {
            const auto called = [&] { return name + ": the id of '" + io::printable(entry.key()) + "' "; };
            const nlohmann::json& id = entry.value();
            // below the largest, so that the number of ids fits, too
            if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= std::numeric_limits<std::int32_t>::max()) {
                throw input_error(called() + "must be an integer from 0 to 2^31 - 2");
            }
            const auto value = id.get<std::int32_t>();
            const auto [owner, fresh] = owners.emplace(value, &entry.key());
            if (!fresh) {
                throw input_error(called() + "is " + std::to_string(value) + ", which is also that of '" +
                                  io::printable(*owner->second) + "'");
            }
            made.put(entry.key(), value);
        }
        made.not_empty();
        return made;
    }
    /// Reads one token per line, as in vocab.txt; ids are line numbers from 0. For a token that occurs twice, the last
    /// line counts, as in transformers.
    [[nodiscard]] static vocabulary from_lines(const named_text& file) {
        vocabulary made{file.name};
        std::int32_t id = 0;
        for_each_line(file, [&](std::string_view line, const std::string& place) {
            (void)code_points(line, place);
            made.put(std::string{line}, id++);
        });
        made.not_empty();
        return made;
    }
    /// Calls `each` with each line, without its end, and with the words that name the line in errors.
    template <class Each>
    static void for_each_line(const named_text& file, const Each& each) {
        std::string_view rest = file.text;
        for (int number = 1; !rest.empty(); ++number) {
            const std::size_t end = std::min(rest.find('\n'), rest.size());
            std::string_view line = rest.substr(0, end);
            if (line.ends_with('\r')) { line.remove_suffix(1); }
            each(line, file.name + ": line " + std::to_string(number));
            rest.remove_prefix(std::min(end + 1, rest.size()));
        }
    }

private:
    struct hash : std::hash<std::string_view> {
        using is_transparent = void;
    };

    explicit vocabulary(std::string name) : name_{std::move(name)} {}

    void put(std::string token, std::int32_t id) {
        ids_.insert_or_assign(std::move(token), id);
        greatest_ = std::max(greatest_, id);
    }
    void not_empty() const {
        if (ids_.empty()) { throw input_error(name_ + ": the vocabulary is empty"); }
    }

    std::unordered_map<std::string, std::int32_t, hash, std::equal_to<>> ids_{};
    std::int32_t greatest_ = 0;
    std::string name_;
};

} // namespace pulse::encode
