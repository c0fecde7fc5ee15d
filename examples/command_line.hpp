#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <pulse/data/aspect_buckets.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/plan/optimizer_form.hpp>

namespace pulse_examples {

/// The allowed values of an option, and their meanings.
template <class T>
using choices = std::map<std::string, T>;

inline const choices<pulse::moment_form> optimizers{{"adamw", pulse::moment_form::float32},
                                                    {"adamw8", pulse::moment_form::dynamic8},
                                                    {"adafactor", pulse::moment_form::factored}};
inline const choices<pulse::weight_form> kept_weights{{"fp32", pulse::weight_form::float32},
                                                      {"kahan", pulse::weight_form::kahan},
                                                      {"stochastic", pulse::weight_form::stochastic}};

template <class T>
[[nodiscard]] std::string names_in(const choices<T>& names) {
    std::string text;
    for (const auto& [name, value] : names) { text += (text.empty() ? "" : "|") + name; }
    return text;
}

/// Accepts only the names, and replaces a name by its value's number, which CLI11 converts to the option's type.
template <class T>
[[nodiscard]] CLI::Validator one_of(const choices<T>& names) {
    const auto replace = [names](std::string& text) -> std::string {
        const auto found = names.find(text);
        if (found == names.end()) { return "'" + text + "' is not one of " + names_in(names); }
        if constexpr (std::is_same_v<T, std::string>) {
            text = found->second;
        } else {
            text = std::to_string(static_cast<int>(found->second));
        }
        return {};
    };
    return {replace, ""};
}

/// The decimal number that the whole text spells; none if it is not a number of type T.
template <class T>
[[nodiscard]] std::optional<T> number_in(std::string_view text) {
    T value{};
    const char* const end = text.data() + text.size();
    const auto [stop, fault] = std::from_chars(text.data(), end, value);
    return fault == std::errc{} && stop == end ? std::optional{value} : std::nullopt;
}

/// Accepts decimal numbers of type T from `low` to `high`, so no overflow or NaN; `range` is the same in words.
template <class T>
[[nodiscard]] CLI::Validator number(T low, T high, const std::string& range) {
    const auto check = [=](std::string& text) -> std::string {
        const std::optional<T> value = number_in<T>(text);
        if (value && *value >= low && *value <= high) { return {}; }
        return "'" + text + "' is not a " + (std::is_integral_v<T> ? "whole " : "") + "number " + range;
    };
    return {check, range};
}

[[nodiscard]] inline CLI::Validator whole(int low, int high) {
    return number<std::int64_t>(low, high, "from " + std::to_string(low) + " to " + std::to_string(high));
}

/// Height and width written as HEIGHTxWIDTH, or as one number for both; none for any other text.
[[nodiscard]] inline pulse::extent extent_in(std::string_view text) {
    const auto side_in = [](std::string_view digits) { return std::max(0, number_in<int>(digits).value_or(0)); };
    const std::size_t at = text.find('x');
    const pulse::extent read{side_in(text.substr(0, at)), side_in(at == text.npos ? text : text.substr(at + 1))};
    return read.height == 0 || read.width == 0 ? pulse::extent{} : read;
}
/// Accepts what extent_in reads.
[[nodiscard]] inline CLI::Validator extents() {
    return {[](std::string& text) {
                return extent_in(text) != pulse::extent{}
                           ? std::string{}
                           : "'" + text + "' is not a HEIGHTxWIDTH such as 512 or 512x768";
            },
            ""};
}

/// Buckets written as AREA[:STEP[:MIN-MAX]], AREA as extent_in reads it; none for any other text.
[[nodiscard]] inline pulse::data::bucket_options buckets_in(std::string_view text) {
    const auto rest_of = [](std::string_view& of, char mark) {
        const std::size_t at = of.find(mark);
        const std::string_view rest = at == of.npos ? std::string_view{} : of.substr(at + 1);
        of = of.substr(0, at);
        return std::pair{at != of.npos, rest};
    };
    auto [has_step, step] = rest_of(text, ':');
    auto [has_sides, sides] = rest_of(step, ':');
    auto [has_most, most] = rest_of(sides, '-');
    const auto side = [](std::string_view digits) {
        return digits.find('x') == digits.npos ? extent_in(digits).height : 0;
    };
    pulse::data::bucket_options read{.area = extent_in(text)};
    if (has_step) { read.step = side(step); }
    if (has_sides) {
        read.least = side(sides);
        read.most = side(most);
    }
    const bool whole_sides = !has_sides || (has_most && read.least > 0 && read.most > 0);
    return read.step > 0 && whole_sides ? read : pulse::data::bucket_options{};
}

/// Refuses a program's arguments with one line on stderr and exit status 2; returns what parse() then returns.
[[nodiscard]] inline std::nullopt_t refuse(const char* program, const std::string& why, int& exit_code) {
    std::cerr << program << ": " << why << '\n';
    exit_code = 2;
    return std::nullopt;
}

/// How many letters to add, remove or change to turn one word into the other.
[[nodiscard]] inline std::size_t letters_between(std::string_view one, std::string_view other) {
    std::vector<std::size_t> row(other.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (const char letter : one) {
        std::size_t before = row[0]++;
        for (std::size_t i = 0; i != other.size(); ++i) {
            const std::size_t changed = before + (letter == other[i] ? 0U : 1U);
            before = row[i + 1];
            row[i + 1] = std::min({changed, row[i] + 1, before + 1});
        }
    }
    return row.back();
}

/// The message for arguments that no option takes: the first that looks like an option, and the nearest option.
[[nodiscard]] inline std::string unknown_option(const CLI::App& app, const std::string& otherwise) {
    for (const std::string& given : app.remaining()) {
        if (!given.starts_with("--") || given == "--") { continue; }
        const std::string name = given.substr(0, given.find('='));
        std::string nearest;
        std::size_t least = std::min<std::size_t>(4, name.size() / 3 + 1);
        for (const CLI::Option* option : app.get_options()) {
            const std::size_t letters = letters_between(name, option->get_name());
            if (letters < least) {
                least = letters;
                nearest = option->get_name();
            }
        }
        return "unknown option " + name + "; " +
               (nearest.empty() ? "--help lists all options" : "did you mean " + nearest + "?");
    }
    return otherwise;
}

/// Reads the arguments. False when the program must exit at once with `exit_code`: after --help, or after a refusal.
[[nodiscard]] inline bool read_arguments(CLI::App& app, const char* program, int argc, char** argv, int& exit_code) {
    try {
        app.parse(argc, argv);
        return true;
    } catch (const CLI::ExtrasError& e) {
        static_cast<void>(refuse(program, unknown_option(app, e.what()), exit_code));
        return false;
    } catch (const CLI::ParseError& e) {
        if (e.get_exit_code() == 0) {
            exit_code = app.exit(e);
        } else {
            static_cast<void>(refuse(program, e.what(), exit_code));
        }
        return false;
    }
}

} // namespace pulse_examples
