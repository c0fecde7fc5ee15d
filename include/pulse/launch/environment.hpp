#pragma once

#include <charconv>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <pulse/core/error.hpp>

namespace pulse::launch {

/// Environment variables, either those of the process or a given set.
class environment {
public:
    /// The process's variables, each read when it is asked for.
    environment() = default;
    explicit environment(std::map<std::string, std::string> given) : given_{std::move(given)} {}

    [[nodiscard]] std::optional<std::string> get(const std::string& name) const {
        if (given_) {
            const auto at = given_->find(name);
            return at == given_->end() ? std::nullopt : std::optional{at->second};
        }
        const char* const value = std::getenv(name.c_str());
        return value == nullptr ? std::nullopt : std::optional<std::string>{value};
    }

    /// A non-negative number, if set. Throws input_error naming the variable when it holds anything else.
    [[nodiscard]] std::optional<int> number(const std::string& name) const {
        const std::optional<std::string> text = get(name);
        if (!text) { return std::nullopt; }
        int value = -1;
        const auto [end, failed] = std::from_chars(text->data(), text->data() + text->size(), value);
        if (failed != std::errc{} || end != text->data() + text->size() || value < 0) {
            throw input_error{"pulse: environment variable " + name + ": '" + *text +
                              "' is not an integer from 0 to 2147483647"};
        }
        return value;
    }

private:
    std::optional<std::map<std::string, std::string>> given_{};
};

} // namespace pulse::launch
