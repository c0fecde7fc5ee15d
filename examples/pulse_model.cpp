// Writes the C++ type of the backbone of a diffusers folder, or of a ControlNet over it, for a training program to
// include.
#include <algorithm>
#include <cctype>
#include <cstddef>
#include <exception>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include <pulse/core/error.hpp>
#include <pulse/core/label.hpp>
#include <pulse/diffusers/model_header.hpp>
#include <pulse/diffusers/read_backbone.hpp>
#include <pulse/diffusers/read_networks.hpp>
#include <pulse/io/atomic_file.hpp>

#include "command_line.hpp"

namespace {

/// Throws input_error unless it is a valid type name and prefix for the types of its networks.
void require_identifier(const std::string& name) {
    constexpr std::size_t longest = 75;
    constexpr std::string_view words[]{
        "alignas",     "alignof",  "and",        "and_eq",    "asm",       "auto",         "bitand",
        "bitor",       "bool",     "break",      "case",      "catch",     "char",         "char16_t",
        "char32_t",    "char8_t",  "class",      "co_await",  "co_return", "co_yield",     "compl",
        "concept",     "const",    "const_cast", "consteval", "constexpr", "constinit",    "continue",
        "decltype",    "default",  "delete",     "do",        "double",    "dynamic_cast", "else",
        "enum",        "explicit", "export",     "extern",    "false",     "float",        "for",
        "friend",      "goto",     "if",         "inline",    "int",       "long",         "mutable",
        "namespace",   "new",      "noexcept",   "not",       "not_eq",    "nullptr",      "operator",
        "or",          "or_eq",    "private",    "protected", "public",    "register",     "reinterpret_cast",
        "requires",    "return",   "short",      "signed",    "sizeof",    "static",       "static_assert",
        "static_cast", "struct",   "switch",     "template",  "this",      "thread_local", "throw",
        "true",        "try",      "typedef",    "typeid",    "typename",  "union",        "unsigned",
        "using",       "virtual",  "void",       "volatile",  "wchar_t",   "while",        "xor",
        "xor_eq"};
    const auto may_be_in = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0 || name.size() > longest ||
        !std::ranges::all_of(name, may_be_in) || std::ranges::find(words, name) != std::end(words)) {
        throw pulse::input_error{"--name: must be a C++ identifier of at most " + std::to_string(longest) +
                                 " characters, not '" + name + "'"};
    }
}

/// Empty, with a line on stderr, if pulse lacks layers for one of the folder's networks: the backbone is useful without
/// them.
std::optional<pulse::diffusers::network_configs> networks_of(const std::string& folder,
                                                             const pulse::diffusers::backbone_config& backbone) {
    try {
        return pulse::diffusers::read_networks(folder, backbone);
    } catch (const pulse::input_error& e) {
        std::cerr << "pulse_model: the model does not read pictures or captions by itself: " << e.what() << '\n';
        return std::nullopt;
    }
}

} // namespace

int main(int argc, char** argv) {
    std::string folder;
    std::string name;
    std::string out;
    bool control = false;
    int chunks = 1;
    CLI::App app{"Writes a C++ header with the type of the backbone that a diffusers folder's config.json describes."};
    app.add_option("folder", folder, "Diffusers folder, or its unet or transformer folder")
        ->type_name("DIR")
        ->required();
    app.add_option("--name", name, "Name of the type and of the model: a C++ identifier")->required();
    app.add_flag("--control", control,
                 "Write the type of a ControlNet for the folder's UNet instead of the UNet's own");
    app.add_option("--caption-chunks", chunks,
                   "Largest number of 75-token pieces in a caption, each of which CLIP encodes separately")
        ->type_name("NUMBER");
    app.add_option("--out", out, "File to write the header to; without it, the header is printed")->type_name("FILE");
    int exit_code = 0;
    if (!pulse_examples::read_arguments(app, "pulse_model", argc, argv, exit_code)) { return exit_code; }
    try {
        require_identifier(name);
        auto backbone = pulse::diffusers::read_backbone(folder, pulse::label{name});
        auto networks = networks_of(folder, backbone);
        if (chunks != 1) {
            try {
                auto none = pulse::diffusers::network_configs{};
                pulse::diffusers::read_long_captions(backbone, networks ? *networks : none, chunks);
            } catch (const pulse::input_error& e) {
                throw pulse::input_error{std::string{"--caption-chunks: "} + e.what()};
            }
        }
        const std::string header = control ? pulse::diffusers::print_control_header(backbone, networks)
                                           : pulse::diffusers::print_header(backbone, networks);
        if (out.empty()) {
            std::cout << header << std::flush;
            if (!std::cout) { throw pulse::error{"the header cannot be written to the standard output"}; }
        } else {
            pulse::io::write_file(out, header);
        }
        return 0;
    } catch (const std::exception& e) {
        std::cerr << "pulse_model: " << e.what() << '\n';
        return 2;
    }
}
