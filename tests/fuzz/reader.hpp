#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <pulse/core/error.hpp>

namespace pulse_fuzz {

/// Aborts the process with a report, which libFuzzer keeps with the input that caused it.
[[noreturn]] inline void report(const char* what, std::string_view detail) {
    std::fprintf(stderr, "%s: %.*s\n", what, static_cast<int>(detail.size()), detail.data());
    std::abort();
}

/// Whether an error says where to look: the file, and the place in it or what is wrong with the whole.
[[nodiscard]] inline bool names_the_culprit(std::string_view text, const auto& fields) {
    constexpr std::string_view source = "input.json: ";
    if (text.substr(0, source.size()) != source || text.size() < source.size() + 8) { return false; }
    for (const char c : text) {
        if (static_cast<unsigned char>(c) < 0x20) { return false; }
    }
    for (const std::string_view field : fields) {
        if (text.find(field) != std::string_view::npos) { return true; }
    }
    return text.find("not valid JSON") != std::string_view::npos || text.find("occurs twice") != std::string_view::npos;
}

/// Feeds a reader. It may only fail with an input_error that names the culprit; whatever it accepts must survive
/// printing and reading.
template <class Parse, class Print, class Fields>
int feed(const std::uint8_t* data, std::size_t size, const Parse& parse, const Print& print, const Fields& fields) {
    const std::string text(reinterpret_cast<const char*>(data), size);
    try {
        const auto value = parse(text);
        const std::string printed = print(value);
        if (!(parse(printed) == value)) { report("what was printed reads differently", printed); }
    } catch (const pulse::input_error& e) {
        if (!names_the_culprit(e.what(), fields)) { report("unclear refusal", e.what()); }
    }
    return 0;
}

} // namespace pulse_fuzz
