#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include <doctest/doctest.h>

#include <support/conditions.hpp>
#include <support/difference.hpp>
#include <support/skip.hpp>
#include <support/unpipelined.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/nn/hunyuan_dit.hpp>
#include <pulse/nn/unet.hpp>
#include <pulse/nn/uvit.hpp>

namespace pulse::test {

/// A folder that is removed at the end of the test.
struct scratch_folder {
    scratch_folder() {
        std::string name = (std::filesystem::temp_directory_path() / "pulse-torch-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) { std::abort(); }
        path = name;
    }
    scratch_folder(const scratch_folder&) = delete;
    scratch_folder& operator=(const scratch_folder&) = delete;
    ~scratch_folder() { std::filesystem::remove_all(path); }

    std::filesystem::path path;
};

/// Whether the interpreter that CMake found has torch.
[[nodiscard]] inline bool has_torch() {
    const std::string python = PULSE_TEST_PYTHON;
    // checked without importing, which takes seconds
    const std::string found = "from importlib.util import find_spec as f; exit(not (f(\"torch\") and f(\"numpy\")))";
    return !python.empty() && std::system(("'" + python + "' -c '" + found + "' 2>/dev/null").c_str()) == 0;
}

template <class M>
[[nodiscard]] std::vector<std::vector<parameter>> parameters_by_owner() {
    std::vector<std::vector<parameter>> owners;
    const auto append = [&]<class Owner>(const Owner*) {
        static constexpr auto parameters = Owner::parameters();
        owners.emplace_back(parameters.begin(), parameters.end());
    };
    if constexpr (M::is_conditioned) { append(static_cast<const typename M::conditioning*>(nullptr)); }
    [&]<std::size_t... I>(std::index_sequence<I...>) {
        (append(static_cast<const typename M::template layer_at<I>*>(nullptr)), ...);
    }
    (std::make_index_sequence<M::layer_count>{});
    return owners;
}

[[nodiscard]] inline std::string config_json(const unet_config& c) {
    std::ostringstream out;
    out.precision(17);
    const auto flag = [](bool b) { return b ? "true" : "false"; };
    out << "{\"kind\": \"unet\", \"sample_size\": " << c.sample_size << ", \"in_channels\": " << c.in_channels
        << ", \"out_channels\": " << c.out_channels << ", \"layers_per_block\": " << c.layers(0)
        << ", \"attention_head_dim\": " << c.attention_head_dim << ", \"norm_num_groups\": " << c.norm_num_groups
        << ", \"norm_eps\": " << c.norm_eps << ", \"downsample_padding\": " << c.downsample_padding
        << ", \"freq_shift\": " << c.freq_shift << ", \"flip_sin_to_cos\": " << flag(c.flip_sin_to_cos)
        << ", \"mid_block_attention\": " << flag(c.mid_block_attention) << ", \"block_out_channels\": [";
    for (int level = 0; level != c.levels(); ++level) { out << (level == 0 ? "" : ", ") << c.channels(level); }
    out << "], \"attention\": [";
    for (int level = 0; level != c.levels(); ++level) { out << (level == 0 ? "" : ", ") << flag(c.attends(level)); }
    out << "], \"transformers\": [";
    for (int level = 0; level != c.levels(); ++level) {
        out << (level == 0 ? "" : ", ") << c.transformers(level, false)[0];
    }
    out << "], \"mid_block_transformer_layers\": " << c.mid_block_transformer_layers
        << ", \"cross_attention_dim\": " << c.cross_attention_dim << ", \"context_tokens\": " << c.context_tokens
        << ", \"transformer_heads\": " << c.transformer_heads[0]
        << ", \"transformer_head_dim\": " << c.transformer_head_dim
        << ", \"use_linear_projection\": " << flag(c.use_linear_projection) << ", \"pooled\": " << c.pooled()
        << ", \"addition_time_embed_dim\": " << c.addition_time_embed_dim << "}";
    return out.str();
}
[[nodiscard]] inline std::string config_json(const uvit_config& c) {
    std::ostringstream out;
    out << "{\"kind\": \"uvit\", \"sample_size\": " << c.img_size << ", \"in_channels\": " << c.in_chans
        << ", \"out_channels\": " << c.in_chans << ", \"patch\": " << c.patch_size << ", \"width\": " << c.embed_dim
        << ", \"depth\": " << c.depth << ", \"heads\": " << c.num_heads << ", \"classes\": " << c.num_classes
        << ", \"conv\": " << (c.conv ? "true" : "false") << "}";
    return out.str();
}

[[nodiscard]] inline std::string config_json(const hunyuan_dit_config& c) {
    std::ostringstream out;
    out << "{\"kind\": \"hunyuan_dit\", \"sample_size\": " << c.sample_size << ", \"in_channels\": " << c.in_channels
        << ", \"out_channels\": " << 2 * c.in_channels << ", \"patch\": " << c.patch_size
        << ", \"width\": " << c.hidden_size << ", \"depth\": " << c.num_layers
        << ", \"heads\": " << c.num_attention_heads << ", \"hidden\": " << c.mlp_hidden
        << ", \"text_len\": " << c.text_len << ", \"text_len_t5\": " << c.text_len_t5
        << ", \"text_width\": " << c.cross_attention_dim << ", \"t5_width\": " << c.cross_attention_dim_t5
        << ", \"span\": " << c.rotary_span << ", \"v11\": " << (c.use_style_cond_and_image_meta_size ? "true" : "false")
        << "}";
    return out.str();
}

/// The config as torch_unet.py reads it, with the names and shapes of all parameters.
template <class Config>
[[nodiscard]] std::string run_json(const Config& c, int batch, const extent& size,
                                   const std::vector<std::vector<parameter>>& owners) {
    std::ostringstream out;
    out << "{\"batch\": " << batch << ", \"height\": " << size.height << ", \"width\": " << size.width
        << ", \"config\": " << config_json(c) << ", \"parameters\": [";
    const char* between = "";
    for (const auto& owner : owners) {
        for (const parameter& p : owner) {
            out << between << "[\"" << p.name.view() << "\", [";
            for (int d = 0; d != p.rank; ++d) { out << (d == 0 ? "" : ", ") << p.dims[static_cast<std::size_t>(d)]; }
            out << "]]";
            between = ", ";
        }
    }
    out << "]}";
    return out.str();
}

/// The most terms in any sum of the model: a convolution's window, the pixels of a batch, a norm's group.
template <class M>
[[nodiscard]] double longest_sum(int batch, const resizing& by) {
    std::int64_t longest = 0;
    for (const auto& owner : parameters_by_owner<M>()) {
        for (const parameter& p : owner) {
            if (p.rank >= 2) { longest = std::max(longest, p.elements() / p.dims[0]); }
        }
    }
    for (const layer_node& l : uncut_graph_of<M>(by).layers) { longest = std::max(longest, batch * l.output_elements); }
    return static_cast<double>(longest);
}

/// Checks that output, input gradient and all parameter gradients of M on backend B equal PyTorch's in float64.
///
/// The rounding error of a sum of n terms grows like sqrt(n) eps, and the layers' errors add: the tolerance is eps
/// sqrt(n) layers, relative to the greatest value of the tensor's owner (some gradients, such as that of an attention's
/// to_k.bias, are exactly zero except for rounding). `to`: the extent of the input; by default that of M's type.
template <class M, class B>
void check_against_torch(B& backend, double most_time, const extent& to = {}) {
    using T = typename B::scalar;
    constexpr int batch = 2;
    const auto graph = uncut_graph_of<M>(resize<M>(to));
    const auto owners = parameters_by_owner<M>();
    std::mt19937_64 random{11};
    const auto drawn = [&](std::int64_t count, double least, double most) {
        std::uniform_real_distribution<double> spread{least, most};
        std::vector<T> values(static_cast<std::size_t>(count));
        for (T& v : values) { v = static_cast<T>(spread(random)); }
        return values;
    };

    unpipelined<M, B> run{backend, 5, to};
    std::vector<std::vector<T>*> blocks;
    if constexpr (M::is_conditioned) { blocks.push_back(&run.conditioning_parameters); }
    for (auto& layer : run.parameters) { blocks.push_back(&layer); }
    for (auto* block : blocks) {
        const auto noise = drawn(static_cast<std::int64_t>(block->size()), -0.1, 0.1);
        for (std::size_t i = 0; i != noise.size(); ++i) { (*block)[i] += noise[i]; }
    }
    const auto input = drawn(batch * graph.layers.front().input_elements, -1.0, 1.0);
    const auto timesteps = drawn(batch, 0.0, most_time);
    const auto text = drawn(batch * text_elements_of<M>(), -1.0, 1.0);
    const auto facts = draw_facts<M, typename B::accumulator>(13, batch);
    const auto weights = drawn(batch * graph.layers.back().output_elements, -1.0, 1.0);

    const scratch_folder folder;
    std::ofstream{folder.path / "run.json"} << run_json(M::config, batch, to == extent{} ? extent_of<M>() : to, owners);
    {
        std::ofstream out{folder.path / "in", std::ios::binary};
        const auto put = [&](const std::vector<T>& values) {
            const std::vector<double> wide(values.begin(), values.end());
            out.write(reinterpret_cast<const char*>(wide.data()), static_cast<std::streamsize>(8 * wide.size()));
        };
        for (const auto* block : blocks) { put(*block); }
        put(input);
        put(timesteps);
        put(text);
        put(facts);
        put(weights);
    }
    const std::string program = "'" PULSE_TEST_PYTHON "' '" PULSE_TEST_TORCH_UNET "' ";
    REQUIRE(std::system((program + "'" + folder.path.string() + "'").c_str()) == 0);

    auto tape = run.forward(batch, input, timesteps, text, facts);
    run.backward_input(tape, weights, true);
    run.backward_weight(tape);

    std::ifstream in{folder.path / "out", std::ios::binary};
    const double tolerance = static_cast<double>(std::numeric_limits<T>::epsilon()) *
                             std::sqrt(longest_sum<M>(batch, resize<M>(to))) * static_cast<double>(M::layer_count);
    const auto compare = [&](const char* what, const std::vector<T>& mine) {
        std::vector<double> theirs(mine.size());
        in.read(reinterpret_cast<char*>(theirs.data()), static_cast<std::streamsize>(8 * theirs.size()));
        REQUIRE(in.gcount() == static_cast<std::streamsize>(8 * theirs.size()));
        const difference off = difference_of(mine, theirs);
        INFO(what, ": worst difference ", off.worst, " of ", off.greatest, ", allowed ", tolerance * off.greatest);
        CHECK(off.greatest > 0.0);
        CHECK(off.worst <= tolerance * off.greatest);
    };
    compare("output", run.output(tape));
    compare("input gradient", tape.input_gradient);
    if constexpr (M::is_conditioned) { compare("time_embedding", run.conditioning_gradients); }
    for (std::size_t l = 0; l != M::layer_count; ++l) { compare(graph.layers[l].name.chars, run.gradients[l]); }
    CHECK(in.peek() == std::ifstream::traits_type::eof());
}

} // namespace pulse::test
