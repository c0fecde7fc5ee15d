// Writes small backbones as pulse knows them, for tests that compare with another framework: FOLDER/NAME gets
// diffusers' config.json, and 2x4.json and 3x2.json, profiles without times of 2 samples of 4-byte scalars and of 3 of
// 2-byte ones.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>

#include <pulse/diffusers/backbone_config.hpp>
#include <pulse/diffusers/config.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/profile/json.hpp>
#include <pulse/zoo/ddpm.hpp>

#include <nn/small_text.hpp>

namespace {

template <class M>
void write(const std::filesystem::path& root) {
    static constexpr auto graph = pulse::uncut_graph_of<M>();
    const std::filesystem::path folder = root / M::name.str();
    std::filesystem::create_directories(folder);
    std::ofstream{folder / "config.json"} << pulse::diffusers::print_config(pulse::diffusers::config_of(M::config));
    pulse::save_profile(pulse::blank_costs(graph.view(), 2, 4), folder / "2x4.json");
    pulse::save_profile(pulse::blank_costs(graph.view(), 3, 2), folder / "3x2.json");
}

} // namespace

int main(int count, char** words) {
    if (count != 2) { return 2; }
    try {
        write<pulse::ddpm_tiny>(words[1]);
        write<pulse::test::small_sd>(words[1]);
        write<pulse::test::small_projected>(words[1]);
        write<pulse::test::small_sdxl>(words[1]);
        write<pulse::test::small_hunyuan_v11>(words[1]);
        write<pulse::test::small_hunyuan_v12>(words[1]);
    } catch (const std::exception& why) {
        std::fprintf(stderr, "backbones: %s\n", why.what());
        return 1;
    }
}
