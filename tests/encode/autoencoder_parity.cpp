#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sys/wait.h>

#include <doctest/doctest.h>

#include <pulse/encode/autoencoder.hpp>
#include <pulse/encode/chain.hpp>
#include <pulse/onednn/backend.hpp>
#include <pulse/runtime/parameters.hpp>

#include <io/scratch.hpp>
#include <support/difference.hpp>
#include <support/skip.hpp>

using namespace pulse;
using namespace pulse::encode;

namespace {

template <class M>
std::vector<parameter> all_parameters() {
    std::vector<parameter> all;
    for (std::size_t l = 0; l != M::layer_count; ++l) {
        for (const parameter& p : parameters_of<M>(static_cast<int>(l))) { all.push_back(p); }
    }
    return all;
}

std::string json_of(const autoencoder_config& c, int batch, bool older, const std::vector<parameter>& parameters) {
    const auto number = [](const char* name, auto value) {
        return std::string{"\""} + name + "\": " + std::to_string(value) + ", ";
    };
    std::string json = "{" + number("batch", batch) + number("older_names", older ? 1 : 0) + "\"config\": {";
    json += number("in_channels", c.in_channels) + number("out_channels", c.out_channels) +
            number("latent_channels", c.latent_channels) + number("layers_per_block", c.layers_per_block) +
            number("norm_num_groups", c.norm_num_groups) + number("sample_size", c.sample_size) +
            number("scaling_factor", c.scaling_factor) + "\"block_out_channels\": [";
    for (int i = 0; i != c.levels(); ++i) { json += (i == 0 ? "" : ", ") + std::to_string(c.channels(i)); }
    json += "]}, \"parameters\": [";
    for (const parameter& p : parameters) {
        json += (&p == parameters.data() ? "[\"" : ", [\"") +
                (older ? older_name(p.name.view()) : std::string{p.name.view()}) + "\", [";
        for (int d = 0; d != p.rank; ++d) {
            json += (d == 0 ? "" : ", ") + std::to_string(p.dims[static_cast<std::size_t>(d)]);
        }
        json += "]]";
    }
    return json + "]}";
}

/// Draws weights that keep the signal's size: uniform with variance 1 / fan-in, except for the first layer, which feeds
/// a norm so little that its epsilon counts.
void draw_weights(const std::vector<parameter>& parameters, std::mt19937& random, std::span<float> values) {
    std::size_t at = 0;
    for (const parameter& p : parameters) {
        const bool matrix = p.rank > 1;
        const double scale = p.name.view().find("conv_in") != std::string_view::npos ? 0.02 : 1.0;
        const double reach = scale * (matrix ? std::sqrt(3.0 * p.dims[0] / static_cast<double>(p.elements())) : 0.3);
        const double middle = !matrix && p.name.view().ends_with(".weight") ? 1.0 : 0.0;
        std::uniform_real_distribution<double> spread{middle - reach, middle + reach};
        for (std::int64_t i = 0; i != p.elements(); ++i) { values[at++] = static_cast<float>(spread(random)); }
    }
}

/// Checks that moments, sampled latents and images are within 1e-4 of diffusers', relative to the greatest value. False
/// without diffusers.
template <autoencoder_config C>
bool check_against_diffusers(bool older) {
    using encoder = autoencoder_encoder<C>;
    using decoder = autoencoder_decoder<C>;
    constexpr int batch = 2;
    onednn::backend on{2};
    chain<encoder, onednn::backend> encode{on};
    chain<decoder, onednn::backend> decode{on};
    std::mt19937 random{3};
    auto parameters = all_parameters<encoder>();
    draw_weights(parameters, random, encode.parameters());
    const auto of_decoder = all_parameters<decoder>();
    draw_weights(of_decoder, random, decode.parameters());
    parameters.insert(parameters.end(), of_decoder.begin(), of_decoder.end());

    const std::size_t small = std::size_t{batch} * C.latent_size() * C.latent_size();
    const auto drawn = [&](std::size_t n) {
        std::normal_distribution<float> draw;
        std::vector<float> values(n);
        for (float& v : values) { v = draw(random); }
        return values;
    };
    const auto pictures = drawn(std::size_t{batch} * C.sample_size * C.sample_size * C.in_channels);
    const auto noise = drawn(small * C.latent_channels);
    const auto latents = drawn(small * C.latent_channels);

    const test::scratch folder{};
    std::ofstream{folder.path / "run.json"} << json_of(C, batch, older, parameters);
    {
        std::ofstream in{folder.path / "in", std::ios::binary};
        const auto put = [&](std::span<const float> values) {
            in.write(reinterpret_cast<const char*>(values.data()),
                     static_cast<std::streamsize>(values.size() * sizeof(float)));
        };
        put(encode.parameters());
        put(decode.parameters());
        put(pictures);
        put(noise);
        put(latents);
    }
    const std::string command = "'" PULSE_TEST_PYTHON "' '" PULSE_TEST_AUTOENCODER_TORCH "' '" + folder.path.string() +
                                "' '" PULSE_TEST_PYTHON_PACKAGES "'";
    const int status = std::string{PULSE_TEST_PYTHON}.empty() ? 77 << 8 : std::system(command.c_str());
    REQUIRE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) { return false; }
    REQUIRE(WEXITSTATUS(status) == 0);

    on.weights_changed();
    std::vector<float> moments(small * C.moments());
    encode.run(batch, pictures.data(), moments.data());
    std::vector<float> z(noise.size());
    on.posterior(static_cast<std::int64_t>(small), C.latent_channels, static_cast<float>(C.scaling_factor),
                 moments.data(), noise.data(), z.data());
    std::vector<float> picture(std::size_t{batch} * C.sample_size * C.sample_size * C.out_channels);
    decode.run(batch, latents.data(), picture.data());

    std::ifstream out{folder.path / "out", std::ios::binary};
    const auto compare = [&](const std::string& what, const std::vector<float>& mine) {
        std::vector<double> theirs(mine.size());
        out.read(reinterpret_cast<char*>(theirs.data()), static_cast<std::streamsize>(8 * theirs.size()));
        REQUIRE(out.gcount() == static_cast<std::streamsize>(8 * theirs.size()));
        const pulse::test::difference off = pulse::test::difference_of(mine, theirs);
        INFO(what << ": off by " << off.worst << " of " << off.greatest);
        CHECK(off.greatest > 0.1);
        CHECK(off.worst <= 1e-4 * off.greatest);
    };
    compare("moments", moments);
    compare("latents", z);
    compare("picture", picture);
    CHECK(out.peek() == std::ifstream::traits_type::eof());
    return true;
}

constexpr autoencoder_config small_config() {
    autoencoder_config c{};
    c.name = "small";
    c.sample_size = 24;
    c.latent_channels = 3;
    c.block_out_channels = {8, 16, 24};
    c.norm_num_groups = 4;
    c.strip_rows = 5;
    return c;
}

/// The widest level of KL-f8, with its single head of 512.
constexpr autoencoder_config wide_config() {
    autoencoder_config c{};
    c.name = "wide";
    c.sample_size = 12;
    c.block_out_channels = {512};
    c.layers_per_block = 1;
    c.strip_rows = 5;
    c.scaling_factor = 0.13025;
    return c;
}

} // namespace

TEST_CASE("autoencoders on the host make what diffusers' make") {
    if (!check_against_diffusers<small_config()>(true)) { return test::skip("no python3 with torch and diffusers"); }
    check_against_diffusers<wide_config()>(false);
}
