#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sys/wait.h>

#include <doctest/doctest.h>

#include <pulse/encode/text_encoder.hpp>
#include <pulse/io/safetensors.hpp>
#include <pulse/onednn/backend.hpp>
#include <pulse/reference/backend.hpp>

#include <encode/text_encoders.hpp>
#include <io/scratch.hpp>
#include <support/difference.hpp>
#include <support/skip.hpp>

namespace {

namespace fs = std::filesystem;
using namespace pulse::test::text;
using pulse::parameter;

std::vector<float> values_of(pulse::io::safetensors_file& file, std::string_view name) {
    const pulse::io::tensor_entry* const found = file.find(name);
    REQUIRE(found != nullptr);
    std::vector<float> values((found->end - found->begin) / sizeof(float));
    file.read(*found, std::as_writable_bytes(std::span{values}));
    return values;
}

std::vector<std::int32_t> whole(const std::vector<float>& values) { return {values.begin(), values.end()}; }

/// Checks the network on backend B against transformers, with a checkpoint of exactly its parameters.
template <class Network, class B>
void check_network(const fs::path& folder, B& on) {
    using T = typename B::scalar;
    using A = typename B::accumulator;
    CAPTURE(Network::name.view());
    std::map<std::string_view, std::vector<float>> weights{};
    pulse::io::safetensors_file saved{folder / Network::name.view() / "model.safetensors"};
    static constexpr auto parameters = Network::parameters();
    for (const parameter& p : parameters) {
        weights[p.name.view()] = values_of(saved, p.name.view());
        CHECK(std::ranges::equal(saved.find(p.name.view())->dims, std::span{p.dims}.first(p.rank)));
    }
    CHECK(saved.tensors().size() == weights.size());
    pulse::io::safetensors_file expected{folder / (Network::name.str() + ".safetensors")};

    constexpr int batch = 2;
    pulse::encode::text_encoder<Network, B> encoder{on, batch};
    encoder.load(
        [&](const parameter& p, std::span<float> to) { std::ranges::copy(weights.at(p.name.view()), to.begin()); });
    const auto facts = pulse::encode::text_facts_of<Network, A>(batch, whole(values_of(expected, "ids")),
                                                                whole(values_of(expected, "mask")));
    std::vector<T> states(std::size_t{batch} * Network::states::elements);
    std::vector<T> pooled(Network::pools ? std::size_t{batch} * Network::pooled::elements : 0);
    encoder.run(batch, facts.data(), states.data(), pooled.data());
    const double off = pulse::test::difference_of(states, values_of(expected, "states")).relative();
    CAPTURE(off);
    CHECK(off < 1e-4);
    if (Network::pools) { CHECK(pulse::test::difference_of(pooled, values_of(expected, "pooled")).relative() < 1e-4); }
}

} // namespace

TEST_CASE("text encoders equal transformers', tiny and one layer of the published width") {
    const pulse::test::scratch folder{};
    const std::string command = "'" PULSE_TEST_PYTHON "' '" PULSE_TEST_TRANSFORMERS_STATES "' '" +
                                folder.path.string() + "' '" PULSE_TEST_PYTHON_PACKAGES "'";
    const int status = std::string{PULSE_TEST_PYTHON}.empty() ? 77 << 8 : std::system(command.c_str());
    REQUIRE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) { return pulse::test::skip("no python3 with torch, transformers and safetensors"); }
    REQUIRE(WEXITSTATUS(status) == 0);

    pulse::onednn::backend host{2};
    pulse::reference::backend<double> plain;
    const auto both = [&]<class Network>(const Network*) {
        check_network<Network>(folder.path, host);
        check_network<Network>(folder.path, plain);
    };
    both(static_cast<const clip_text<clip>*>(nullptr));
    both(static_cast<const clip_text<sdxl>*>(nullptr));
    both(static_cast<const clip_text<bigg>*>(nullptr));
    both(static_cast<const bert_text<bert>*>(nullptr));
    both(static_cast<const t5_text<t5>*>(nullptr));
    both(static_cast<const t5_text<mt5>*>(nullptr));
    check_network<clip_text<one_layer(clip_vit_l, "wide_l")>>(folder.path, host);
    check_network<clip_text<one_layer(openclip_vit_h, "wide_h")>>(folder.path, host);
    check_network<clip_text<one_layer(openclip_vit_bigg, "wide_bigg")>>(folder.path, host);
    check_network<bert_text<one_layer(hunyuan_clip, "wide_bert")>>(folder.path, host);
    check_network<t5_text<one_layer(mt5_xl, "wide_mt5")>>(folder.path, host);

    const std::string buckets = pulse::test::bytes_of(folder.path / "buckets");
    REQUIRE(buckets.size() == 1201 * sizeof(std::int32_t));
    for (int distance = -600; distance <= 600; ++distance) {
        std::int32_t wanted = 0;
        std::memcpy(&wanted, buckets.data() + sizeof wanted * static_cast<std::size_t>(distance + 600), sizeof wanted);
        CAPTURE(distance);
        CHECK(pulse::encode::t5_bucket(distance, 32, 128) == wanted);
    }
}
