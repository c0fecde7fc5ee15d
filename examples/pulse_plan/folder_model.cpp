#include "folder_model.hpp"

#include <cctype>
#include <filesystem>
#include <string>
#include <variant>

#include <pulse/core/error.hpp>
#include <pulse/core/label.hpp>
#include <pulse/diffusers/read_backbone.hpp>

namespace pulse_plan {

namespace {

/// The identifier that CMake makes from a folder's name.
[[nodiscard]] std::string identifier_of(const std::filesystem::path& folder) {
    const std::filesystem::path whole = std::filesystem::absolute(folder).lexically_normal();
    std::string name = whole.has_filename() ? whole.filename().string() : whole.parent_path().filename().string();
    for (char& c : name) { c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_'; }
    return name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0 ? "_" + name : name;
}

} // namespace

pulse::value_graph graph_of_folder(const backbone_name& said, const pulse::extent& to) {
    try {
        const auto config = pulse::diffusers::read_backbone(said.name, pulse::label{identifier_of(said.name)});
        return std::visit([&](const auto& c) { return pulse::value_graph_of(c, to); }, config);
    } catch (const pulse::input_error& e) { throw pulse::input_error{said.option + ": " + e.what()}; }
}

} // namespace pulse_plan
