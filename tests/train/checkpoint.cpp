#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/checkpoint/checkpoint.hpp>
#include <pulse/checkpoint/merged.hpp>
#include <pulse/core/error.hpp>
#include <pulse/io/safetensors.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/train/adamw.hpp>
#include <pulse/train/dataset.hpp>
#include <pulse/train/ema.hpp>
#include <pulse/train/random.hpp>

#include <io/scratch.hpp>
#include <support/single_checkpoint.hpp>

namespace {

using namespace pulse::train;
using pulse::test::bytes_of;
using pulse::test::checkpoint_tensor;
using pulse::test::load_single;
using pulse::test::save_single;
using pulse::test::scratch;

/// A model's tensors and their memory.
struct store {
    std::vector<pulse::parameter> what;
    std::vector<std::array<std::vector<float>, 4>> values;

    explicit store(std::uint64_t seed) {
        what = {{pulse::label{"conv_in.weight"}, {4, 2, 3, 3}, 4},
                {pulse::label{"conv_in.bias"}, {4}, 1},
                {pulse::label{"mid_block.attentions.0.to_q.weight"}, {5, 7}, 2},
                {pulse::label{"down_blocks.0.resnets.0.norm1.weight"}, {3}, 1}};
        for (std::size_t i = 0; i != what.size(); ++i) {
            values.emplace_back();
            for (std::size_t part = 0; part != 4; ++part) {
                values[i][part].resize(static_cast<std::size_t>(what[i].elements()));
                random_source{seed, i}.fill_normal(part * 1000, values[i][part]);
            }
        }
    }

    template <class T>
    std::vector<checkpoint_tensor<T>> spans() {
        std::vector<checkpoint_tensor<T>> result;
        for (std::size_t i = 0; i != what.size(); ++i) {
            result.push_back({what[i], values[i][0], values[i][1], values[i][2], values[i][3]});
        }
        return result;
    }
};

const training_state state{
    .step = 17,
    .position = 17 * 64,
    .seed = 0xFFFFFFFFFFFFFFFFULL,
    .config = {{"model", "ddpm_fmnist"}, {"odd \"text\"", "line\nbreak \xC3\xA9"}, {"empty", ""}}};

} // namespace

TEST_CASE("what is read is what was saved, and saving it again gives the same bytes") {
    const scratch folder;
    store saved{1};
    save_single(folder.path / "a.safetensors", saved.spans<const float>(), state);
    store loaded{2};
    REQUIRE(loaded.values != saved.values);
    CHECK(load_single(folder.path / "a.safetensors", loaded.spans<float>()) == state);
    CHECK(loaded.values == saved.values);

    export_merged(folder.path / "a.safetensors", folder.path / "b.safetensors");
    CHECK(bytes_of(folder.path / "a.safetensors") == bytes_of(folder.path / "b.safetensors"));
    CHECK(folder.entries() == 2); // no temporary file is left
}

TEST_CASE("values survive bit for bit: infinities, denormals, signed zero, NaN") {
    const scratch folder;
    store saved{1};
    const std::array<std::uint32_t, 4> bits{0x7F800000U, 0x00000001U, 0x80000000U, 0x7FC12345U};
    for (std::size_t i = 0; i != bits.size(); ++i) { std::memcpy(&saved.values[0][0][i], &bits[i], 4); }
    save_single(folder.path / "a", saved.spans<const float>(), state);
    store loaded{2};
    load_single(folder.path / "a", loaded.spans<float>());
    CHECK(std::memcmp(loaded.values[0][0].data(), saved.values[0][0].data(), 4 * loaded.values[0][0].size()) == 0);
}

TEST_CASE("a run resumed from a checkpoint goes on bit for bit") {
    const scratch folder;
    const image_dataset set{1, 5, 1, std::vector<std::uint8_t>(35, 9), {.seed = 3}};
    // A fake training whose gradient depends on the weights, the data order and the noise.
    const auto train_to = [&](store& run, training_state& at, std::int64_t last) {
        while (at.step != last) {
            ++at.step;
            for (std::size_t i = 0; i != run.what.size(); ++i) {
                auto& [w, m, v, average] = run.values[i];
                std::vector<float> g(w.size());
                random_source{at.seed, random_stream::noise}.fill_normal(at.position * 1000, g);
                for (std::size_t e = 0; e != g.size(); ++e) {
                    g[e] += w[e] * static_cast<float>(set.index_at(at.position));
                }
                adamw_step<float>(factors_of<float>({}, at.step), w, g, m, v);
                ema_update<float>(ema_decay(at.step), w, average);
            }
            at.position += 4;
        }
    };
    store straight{6};
    for (auto& values : straight.values) {
        for (float& x : values[2]) { x = std::abs(x); }
    }
    store stopped = straight;
    training_state a{.seed = 5};
    training_state b = a;
    train_to(straight, a, 20);
    train_to(stopped, b, 11);
    save_single(folder.path / "c", stopped.spans<const float>(), b);
    store resumed{99};
    training_state c = load_single(folder.path / "c", resumed.spans<float>());
    train_to(resumed, c, 20);
    CHECK(c == a);
    CHECK(resumed.values == straight.values);
}

TEST_CASE("one rank reads its part, and what a file does not keep is named") {
    const scratch folder;
    store saved{1};
    save_single(folder.path / "a", saved.spans<const float>(), state);
    store loaded{2};
    auto part = loaded.spans<float>();
    part.resize(2);
    CHECK(load_single(folder.path / "a", part) == state);
    CHECK(loaded.values[1] == saved.values[1]);
    CHECK(loaded.values[2] == store{2}.values[2]);

    export_merged(folder.path / "a", folder.path / "weights", merged_content::weights);
    std::vector<checkpoint_tensor<float>> wanted;
    for (const auto& tensor : loaded.spans<float>()) { wanted.push_back({tensor.what, tensor.weight, {}, {}, {}}); }
    CHECK(load_single(folder.path / "weights", wanted) == state);
    for (std::size_t i = 0; i != saved.what.size(); ++i) { CHECK(loaded.values[i][0] == saved.values[i][0]); }
    CHECK_THROWS_WITH_AS(load_single(folder.path / "weights", loaded.spans<float>()),
                         doctest::Contains("'optimizer.m.conv_in.weight' is missing"), pulse::input_error);

    // A file of plain weights without pulse's metadata.
    const std::vector<float> one(3, 1.5F);
    const std::vector<pulse::io::tensor_source> foreign{
        {"down_blocks.0.resnets.0.norm1.weight", pulse::io::f32, {3}, std::as_bytes(std::span{one})}};
    pulse::io::write_safetensors(folder.path / "foreign", foreign);
    CHECK_THROWS_WITH_AS(load_single(folder.path / "foreign", std::span{wanted}.subspan(3)),
                         doctest::Contains("not a checkpoint of pulse"), pulse::input_error);
}

TEST_CASE("another model's checkpoint is refused by the tensor that differs, and changes nothing") {
    const scratch folder;
    store saved{1};
    save_single(folder.path / "a", saved.spans<const float>(), state);
    const auto refused = [&](auto change, const char* text) {
        store loaded{2};
        change(loaded);
        const auto before = loaded.values;
        CHECK_THROWS_WITH_AS(load_single(folder.path / "a", loaded.spans<float>()), doctest::Contains(text),
                             pulse::input_error);
        CHECK(loaded.values == before);
    };
    refused([](store& s) { s.what[3].name = pulse::label{"other"}; }, "'other' is missing");
    refused([](store& s) { s.what[2].dims = {7, 5}; }, "'mid_block.attentions.0.to_q.weight' does not have the shape");
    refused(
        [](store& s) {
            s.what[2] = {s.what[2].name, {35}, 1};
        },
        "'mid_block.attentions.0.to_q.weight' does not have the shape");
    refused([](store& s) { s.values[2][0].push_back(0); }, "'mid_block.attentions.0.to_q.weight' has 35 elements");
}

TEST_CASE("a state that is incomplete or no number is named") {
    const scratch folder;
    for (const char* key : {"pulse.step", "pulse.position", "pulse.seed"}) {
        for (const char* value : {"", "-1", "12x", "99999999999999999999", " 1", static_cast<const char*>(nullptr)}) {
            pulse::io::tensor_metadata metadata{{"pulse.format", "pulse-checkpoint/1"},
                                                {"pulse.step", "1"},
                                                {"pulse.position", "1"},
                                                {"pulse.seed", "1"}};
            if (value == nullptr) {
                metadata.erase(key);
            } else {
                metadata[key] = value;
            }
            pulse::io::write_safetensors(folder.path / "a", {}, metadata);
            CHECK_THROWS_WITH_AS(load_single(folder.path / "a", {}), doctest::Contains(key), pulse::input_error);
        }
    }
}

TEST_CASE("a damaged checkpoint is refused and leaves the model alone") {
    const scratch folder;
    store saved{1};
    save_single(folder.path / "a", saved.spans<const float>(), state);
    const std::string good = bytes_of(folder.path / "a");
    std::mt19937_64 engine{3};
    store loaded{2};
    const auto before = loaded.values;
    const auto tensors = loaded.spans<float>();
    int refused = 0;
    for (int round = 0; round != 400; ++round) {
        std::string bad = good;
        if (round % 4 == 0) {
            bad.resize(engine() % bad.size());
        } else {
            bad[engine() % bad.size()] ^= static_cast<char>(1U << engine() % 8);
        }
        std::ofstream{folder.path / "bad", std::ios::binary} << bad;
        try {
            // No checksum covers the metadata's free text: a flip there may leave a valid file.
            load_single(folder.path / "bad", tensors);
            CHECK(loaded.values == saved.values);
            loaded.values = before;
        } catch (const pulse::input_error&) {
            ++refused;
            CHECK(loaded.values == before);
        }
    }
    CHECK(refused > 300);
}

TEST_CASE("a file that cannot be written leaves the old one in place") {
    const scratch folder;
    store saved{1};
    save_single(folder.path / "a", saved.spans<const float>(), state);
    const std::string good = bytes_of(folder.path / "a");
    std::string bad = good;
    bad.back() ^= 1; // the last value
    std::ofstream{folder.path / "bad", std::ios::binary} << bad;
    CHECK_THROWS_WITH_AS(export_merged(folder.path / "bad", folder.path / "a"), doctest::Contains("is damaged"),
                         pulse::input_error);
    CHECK_THROWS_AS(export_merged(folder.path / "a", folder.path / "none" / "a"), pulse::input_error);
    CHECK(bytes_of(folder.path / "a") == good);
    CHECK(folder.entries() == 2);
}
