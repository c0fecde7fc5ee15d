// Writes the C++ type of the backbone of a diffusers folder: what a program includes to train it.
#include <algorithm>
#include <cctype>
#include <exception>
#include <filesystem>
#include <iostream>
#include <string>

#include <CLI/CLI.hpp>

#include <pulse/core/error.hpp>
#include <pulse/core/label.hpp>
#include <pulse/diffusers/model_header.hpp>
#include <pulse/diffusers/read_backbone.hpp>
#include <pulse/diffusers/read_networks.hpp>
#include <pulse/io/atomic_file.hpp>

#include "command_line.hpp"

int main(int argc, char** argv) {
    std::string folder;
    std::string name;
    std::string out;
    CLI::App app{"Writes a C++ header with the type of the backbone that a diffusers folder's config.json describes."};
    app.add_option("folder", folder, "Diffusers folder, or that of its unet or transformer")
        ->type_name("DIR")
        ->required();
    app.add_option("--name", name, "Name of the type and of the model: an identifier")->required();
    app.add_option("--out", out, "The header; without it, it is printed")->type_name("FILE");
    int exit_code = 0;
    if (!pulse_examples::read_arguments(app, "pulse_model", argc, argv, exit_code)) { return exit_code; }
    try {
        const auto in_name = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
        if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0 ||
            !std::all_of(name.begin(), name.end(), in_name) || name.size() >= pulse::label::capacity) {
            throw pulse::input_error{"--name: '" + name + "' is no identifier of at most 95 characters"};
        }
        const auto backbone = pulse::diffusers::read_backbone(folder, pulse::label{name});
        const auto networks = pulse::diffusers::read_networks(folder, backbone);
        const std::string header = pulse::diffusers::print_header(backbone, networks);
        if (out.empty()) {
            std::cout << header;
        } else {
            pulse::io::write_file(out, header);
        }
        return 0;
    } catch (const std::exception& e) {
        std::cerr << "pulse_model: " << e.what() << '\n';
        return 2;
    }
}
