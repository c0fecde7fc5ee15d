#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/encode/text_encoder.hpp>
#include <pulse/reference/backend.hpp>

#include <encode/text_encoders.hpp>

namespace {

using namespace pulse::test::text;
using pulse::parameter;
using plain = pulse::reference::backend<double>;

/// Checks a text encoder's parameter count, and the FLOPs of a text with all layers and with only the needed ones.
template <class Network>
void check_costs(std::int64_t parameters, double flops, double needed) {
    CAPTURE(Network::name.view());
    CHECK(Network::parameter_elements == parameters);
    CHECK(Network::forward_flops(Network::layer_count) == flops);
    CHECK(Network::forward_flops() == needed);
}

template <class Network>
bool has(std::string_view name) {
    static constexpr auto all = Network::parameters();
    return std::ranges::any_of(all, [&](const parameter& p) { return p.name.view() == name; });
}

std::vector<std::int32_t> ids_of(int samples, int tokens, int vocabulary) {
    std::mt19937 random{7};
    std::uniform_int_distribution<std::int32_t> draw{0, vocabulary - 1};
    std::vector<std::int32_t> ids(static_cast<std::size_t>(samples * tokens));
    for (std::int32_t& id : ids) { id = draw(random); }
    return ids;
}

template <class Network, class B>
void load_seeded(pulse::encode::text_encoder<Network, B>& encoder) {
    std::mt19937 random{8};
    encoder.load([&](const parameter& p, std::span<float> to) {
        std::normal_distribution<float> draw{p.rank == 1 ? 1.0F : 0.0F, 0.3F};
        for (float& value : to) { value = draw(random); }
    });
}

/// A backend whose products depend on the number of rows, as in libraries that choose an algorithm by it.
struct counts_rows : plain {
    void linear(const pulse::linear_shape& s, std::int64_t rows, const double* x, const double* weight,
                const double* bias, double* y, pulse::into how) {
        std::vector<double> other(x, x + rows * s.in_features);
        for (double& value : other) { value *= 1 + 0x1p-20 * static_cast<double>(rows); }
        plain::linear(s, rows, other.data(), weight, bias, y, how);
    }
};

/// Loads each weight with values that depend only on its name, whichever others are read.
template <class Network>
void load_by_name(pulse::encode::text_encoder<Network, plain>& encoder) {
    encoder.load([&](const parameter& p, std::span<float> to) {
        const std::string_view name = p.name.view();
        std::mt19937 random{std::accumulate(name.begin(), name.end(), 5U, [](unsigned sum, char c) {
            return 31U * sum + static_cast<unsigned char>(c);
        })};
        std::normal_distribution<float> draw{p.rank == 1 ? 1.0F : 0.0F, 0.3F};
        for (float& value : to) { value = draw(random); }
    });
}

/// Results of the plain loops with seeded weights: states, then the pooled text.
template <class Network>
std::vector<double> encode(int samples, std::span<const std::int32_t> ids, std::span<const std::int32_t> mask = {}) {
    plain on;
    pulse::encode::text_encoder<Network, plain> encoder{on, samples};
    load_seeded(encoder);
    const auto facts = pulse::encode::text_facts_of<Network, double>(samples, ids, mask);
    const auto states = static_cast<std::size_t>(samples) * Network::states::elements;
    std::vector<double> all(states +
                            (Network::pools ? static_cast<std::size_t>(samples) * Network::pooled::elements : 0));
    encoder.run(samples, facts.data(), all.data(), Network::pools ? all.data() + states : nullptr);
    return all;
}

} // namespace

TEST_CASE("parameters and FLOPs of the published text encoders are those of the cost tables") {
    check_costs<clip_text<clip_vit_l>>(123'060'480, 13'298'503'680.0, 13'298'503'680.0);
    check_costs<clip_text<clip_vit_l_sdxl>>(123'060'480, 13'298'503'680.0, 12'190'295'040.0);
    check_costs<clip_text<openclip_vit_h>>(340'387'840, 45'127'233'536.0, 45'127'233'536.0);
    check_costs<clip_text<openclip_vit_bigg>>(694'659'840, 97'863'106'560.0, 97'863'106'560.0);
    check_costs<bert_text<hunyuan_clip>>(352'035'840, 47'091'384'320.0, 47'089'287'168.0);
    check_costs<t5_text<mt5_xl>>(1'669'958'656, 605'590'388'736.0, 605'590'388'736.0);
    check_costs<t5_text<t5_xxl>>(4'762'310'656, 4'844'723'109'888.0, 4'844'723'109'888.0);
    using bigg = clip_text<openclip_vit_bigg>;
    CHECK(bigg::layer_at<1>::forward_flops() == 3'058'119'680.0);
    CHECK(bigg::layer_at<1>::parameter_elements == 19'677'440);
    CHECK(t5_text<t5_xxl>::layer_at<1>::parameter_elements == 192'948'224);
    CHECK(t5_text<t5_xxl>::layer_at<2>::parameter_elements == 192'946'176);
}

TEST_CASE("layers whose results nobody reads are in a checkpoint and have no memory") {
    using sdxl = clip_text<clip_vit_l_sdxl>;
    CHECK(has<sdxl>("text_model.encoder.layers.11.mlp.fc2.bias"));
    CHECK(sdxl::live_parameter_elements == 123'060'480 - 7'087'872 - 1'536);
    CHECK(clip_text<clip_vit_l>::live_parameter_elements == 123'060'480);
    CHECK(has<bert_text<hunyuan_clip>>("pooler.dense.weight"));
    CHECK(bert_text<hunyuan_clip>::live_parameter_elements == 352'035'840 - 1'049'600);
    CHECK(clip_text<openclip_vit_bigg>::live_parameter_elements == 694'659'840);
}

TEST_CASE("a text is encoded the same alone and in a batch") {
    const auto check = []<class Network>(const Network*) {
        CAPTURE(Network::name.view());
        constexpr int samples = 3;
        const auto ids = ids_of(samples, Network::tokens, Network::vocabulary);
        std::vector<std::int32_t> mask(ids.size(), 1);
        mask.back() = 0;
        const std::vector<double> all = encode<Network>(samples, ids, mask);
        constexpr std::size_t states = Network::states::elements;
        for (std::size_t s = 0; s != samples; ++s) {
            const std::size_t first = s * Network::tokens;
            const std::vector<double> alone = encode<Network>(1, std::span{ids}.subspan(first, Network::tokens),
                                                              std::span{mask}.subspan(first, Network::tokens));
            CHECK(std::equal(alone.begin(), alone.begin() + states,
                             all.begin() + static_cast<std::ptrdiff_t>(s * states)));
            if constexpr (Network::pools) {
                const std::size_t pooled = alone.size() - states;
                CHECK(std::equal(alone.end() - static_cast<std::ptrdiff_t>(pooled), alone.end(),
                                 all.begin() + static_cast<std::ptrdiff_t>(samples * states + s * pooled)));
            }
        }
    };
    check(static_cast<const clip_text<bigg>*>(nullptr));
    check(static_cast<const bert_text<bert>*>(nullptr));
    check(static_cast<const t5_text<t5>*>(nullptr));
}

TEST_CASE("a text is encoded the same wherever its chain pauses, and whatever else is encoded meanwhile") {
    const auto check = []<class Network>(const Network*) {
        CAPTURE(Network::name.view());
        constexpr int samples = 2;
        plain on;
        pulse::encode::text_encoder<Network, plain> encoder{on, samples};
        load_seeded(encoder);
        const auto ids = ids_of(2 * samples, Network::tokens, Network::vocabulary);
        const std::size_t of_batch = ids.size() / 2;
        std::vector<double> whole[2];
        std::vector<double> facts[2];
        constexpr auto states = static_cast<std::size_t>(samples * Network::states::elements);
        const auto pooled = [](std::vector<double>& all) { return Network::pools ? all.data() + states : nullptr; };
        for (std::size_t i = 0; i != 2; ++i) {
            facts[i] =
                pulse::encode::text_facts_of<Network, double>(samples, std::span{ids}.subspan(i * of_batch, of_batch));
            whole[i].resize(states + (Network::pools ? samples * Network::pooled::elements : 0));
            encoder.run(samples, facts[i].data(), whole[i].data(), pooled(whole[i]));
        }
        CHECK(whole[0] != whole[1]);
        std::vector<double> here;
        std::vector<double> other = whole[1];
        for (std::size_t p = 0; p <= Network::states_layer; ++p) {
            const bool ends = p == Network::states_layer;
            const auto left = static_cast<std::size_t>(samples * pulse::encode::text_pieces<Network>[p].output);
            std::vector<double> next(ends ? whole[0].size() : left);
            encoder.run_pieces(p, p, {samples, facts[0].data()}, here.data(), next.data(),
                               ends ? pooled(next) : nullptr);
            const std::vector<double> paused = next;
            encoder.run(samples, facts[1].data(), other.data(), pooled(other));
            CHECK(other == whole[1]);
            CHECK(next == paused);
            std::vector<double> rest(whole[0].size());
            if (!ends) {
                encoder.run_pieces(p + 1, Network::states_layer, {samples, facts[0].data()}, next.data(), rest.data(),
                                   pooled(rest));
                CHECK(rest == whole[0]);
            }
            here = std::move(next);
        }
        CHECK(here == whole[0]);
    };
    check(static_cast<const clip_text<clip>*>(nullptr));
    check(static_cast<const clip_text<sdxl>*>(nullptr));
    check(static_cast<const clip_text<bigg>*>(nullptr));
    check(static_cast<const bert_text<bert>*>(nullptr));
    check(static_cast<const t5_text<t5>*>(nullptr));
}

TEST_CASE("a text has the same bits alone and among any number of texts, wherever chains pause") {
    const auto check = []<class Network>(const Network*) {
        CAPTURE(Network::name.view());
        using encoder = pulse::encode::text_encoder<Network, counts_rows>;
        using one_text = typename encoder::batch_of_texts;
        constexpr int chunks = 2; // of one text, multiplied together
        constexpr int most = 8;
        counts_rows on;
        encoder many{on, chunks, {}, most};
        encoder alone{on, chunks};
        load_seeded(many);
        load_seeded(alone);
        CHECK(many.used_bytes() - 8 * Network::live_parameter_elements ==
              most * (alone.used_bytes() - 8 * Network::live_parameter_elements));
        const auto ids = ids_of(most * chunks, Network::tokens, Network::vocabulary);
        const std::size_t of_text = ids.size() / most;
        constexpr std::size_t states = chunks * Network::states::elements;
        constexpr std::size_t pooled = Network::pools ? chunks * Network::pooled::elements : 0;
        std::vector<std::vector<double>> facts;
        std::vector<std::vector<double>> wanted;
        for (std::size_t t = 0; t != most; ++t) {
            std::vector<std::int32_t> mask(of_text, 1);
            mask.back() = static_cast<std::int32_t>(t % 2);
            facts.push_back(pulse::encode::text_facts_of<Network, double>(
                chunks, std::span{ids}.subspan(t * of_text, of_text), mask));
            wanted.emplace_back(states + pooled);
            alone.run(chunks, facts[t].data(), wanted[t].data(), wanted[t].data() + states);
        }
        CHECK(wanted[0] != wanted[1]);
        for (const std::size_t texts : {1, 2, 3, 8}) {
            for (std::size_t pause = 0; pause <= Network::states_layer; ++pause) {
                CAPTURE(texts);
                CAPTURE(pause);
                const std::size_t first = most - texts;
                std::vector<std::vector<double>> left(
                    texts, std::vector<double>(chunks * pulse::encode::text_pieces<Network>[pause].output));
                std::vector<std::vector<double>> made(texts, std::vector<double>(states + pooled));
                std::vector<one_text> begun;
                std::vector<one_text> ended;
                for (std::size_t t = 0; t != texts; ++t) {
                    const bool whole = pause == Network::states_layer;
                    double* const pool = made[t].data() + states;
                    const double* const known = facts[first + t].data();
                    begun.push_back({chunks, known, nullptr, whole ? made[t].data() : left[t].data(), pool});
                    ended.push_back({chunks, known, left[t].data(), made[t].data(), pool});
                }
                many.run_pieces(0, pause, begun);
                if (pause != Network::states_layer) { many.run_pieces(pause + 1, Network::states_layer, ended); }
                for (std::size_t t = 0; t != texts; ++t) { CHECK(made[t] == wanted[first + t]); }
            }
        }
        std::vector<one_text> more(most + 1, one_text{chunks, facts[0].data(), nullptr, nullptr, nullptr});
        CHECK_THROWS_AS(many.run_pieces(0, 0, more), pulse::input_error);
    };
    check(static_cast<const clip_text<clip>*>(nullptr));
    check(static_cast<const clip_text<bigg>*>(nullptr));
    check(static_cast<const bert_text<bert>*>(nullptr));
    check(static_cast<const t5_text<t5>*>(nullptr));
}

TEST_CASE("two encoders with alternating pieces give the bits of one with all, in the memory of their own pieces") {
    const auto check = []<class Network>(const Network*) {
        CAPTURE(Network::name.view());
        using encoder = pulse::encode::text_encoder<Network, plain>;
        constexpr auto& pieces = pulse::encode::text_pieces<Network>;
        plain on;
        std::vector<bool> which[2];
        std::int64_t taken[2]{};
        std::int64_t working[2]{};
        for (std::size_t p = 0; p != pieces.size(); ++p) {
            for (std::size_t i = 0; i != 2; ++i) { which[i].push_back(p % 2 == i); }
            taken[p % 2] += pieces[p].parameters;
            working[p % 2] = std::max(working[p % 2], pieces[p].working);
        }
        for (const std::size_t flags : {pieces.size() - 1, pieces.size() + 1}) {
            CHECK_THROWS_AS(encoder(on, 1, std::vector<bool>(flags, true)), pulse::input_error);
        }
        encoder parts[2]{{on, 1, which[0]}, {on, 1, which[1]}};
        for (std::size_t i = 0; i != 2; ++i) {
            load_by_name(parts[i]);
            CHECK(parts[i].used_bytes() ==
                  8 * (taken[i] + working[i] + encoder::shared_elements + Network::statistics_elements));
        }
        std::vector<bool> embedding(pieces.size());
        embedding.front() = true;
        CHECK(encoder(on, 1, embedding).used_bytes() ==
              8 * (pieces[0].parameters + pieces[0].working + encoder::shared_elements + Network::statistics_elements));
        encoder whole{on, 1};
        load_by_name(whole);
        CHECK(whole.used_bytes() == encoder::bytes(1));
        const auto facts =
            pulse::encode::text_facts_of<Network, double>(1, ids_of(1, Network::tokens, Network::vocabulary));
        std::vector<double> states(Network::states::elements);
        std::vector<double> pooled(Network::pooled::elements);
        whole.run(1, facts.data(), states.data(), pooled.data());
        std::vector<double> here;
        std::vector<double> behind(pooled.size());
        for (std::size_t p = 0; p != pieces.size(); ++p) {
            std::vector<double> next(static_cast<std::size_t>(pieces[p].output));
            parts[p % 2].run_pieces(p, p, {1, facts.data()}, here.data(), next.data(), behind.data());
            CHECK_THROWS_AS(
                parts[1 - p % 2].run_pieces(p, p, {1, facts.data()}, here.data(), next.data(), behind.data()),
                pulse::error);
            here = std::move(next);
        }
        CHECK(here == states);
        if (Network::pools) { CHECK(behind == pooled); }
    };
    check(static_cast<const clip_text<clip>*>(nullptr));
    check(static_cast<const clip_text<bigg>*>(nullptr));
    check(static_cast<const bert_text<bert>*>(nullptr));
    check(static_cast<const t5_text<t5>*>(nullptr));
}

TEST_CASE("CLIP's states depend on no later token, those of BERT and T5 on no padding") {
    const auto changed = []<class Network>(const Network*, std::size_t at, std::vector<std::int32_t> mask) {
        auto ids = ids_of(1, Network::tokens, Network::vocabulary);
        const std::vector<double> before = encode<Network>(1, ids, mask);
        ids[at] = (ids[at] + 1) % Network::vocabulary;
        const std::vector<double> after = encode<Network>(1, ids, mask);
        return static_cast<std::size_t>(std::ranges::mismatch(before, after).in1 - before.begin());
    };
    CHECK(changed(static_cast<const clip_text<clip>*>(nullptr), 5, {}) == 5 * 24);
    std::vector<std::int32_t> mask(static_cast<std::size_t>(bert.tokens), 1);
    CHECK(changed(static_cast<const bert_text<bert>*>(nullptr), 20, mask) == 0);
    mask.back() = 0;
    CHECK(changed(static_cast<const bert_text<bert>*>(nullptr), 20, mask) == 20 * 24);
    mask.assign(static_cast<std::size_t>(t5.tokens), 1);
    mask.back() = 0;
    CHECK(changed(static_cast<const t5_text<t5>*>(nullptr), 44, mask) == 44 * 24);
}

TEST_CASE("the pooled token is the end of the text, as either kind of config means it") {
    const std::vector<std::int32_t> ids{3, 90, 5, 98, 90, 98};
    CHECK(clip_text<clip>::end_of(ids) == 3);
    CHECK(clip_text<bigg>::end_of(ids) == 1);
    CHECK(clip_text<bigg>::end_of(ids, 2) == 3);
    CHECK(clip_text<clip>::end_of(ids, 5) == 2);
    CHECK(clip_text<clip>::end_of(ids, 49407) == 0);
    CHECK(clip_text<bigg>::end_of(std::span{ids}.subspan(2, 2)) == 0);
}

TEST_CASE("ids that a vocabulary lacks and sizes that are none are refused by name") {
    using network = bert_text<bert>;
    std::vector<std::int32_t> ids(static_cast<std::size_t>(2 * network::tokens), 5);
    const auto facts = [&](int samples, std::size_t masks = 0) {
        return pulse::encode::text_facts_of<network, float>(samples, ids, std::vector<std::int32_t>(masks, 1));
    };
    CHECK(facts(2, ids.size()) == facts(2));
    CHECK_THROWS_WITH_AS(facts(1), "pulse: tiny_bert: 42 ids and 0 mask values do not fit 1 texts of 21 tokens",
                         pulse::input_error);
    CHECK_THROWS_AS(facts(2, 3), pulse::input_error);
    CHECK_THROWS_AS(facts(0), pulse::input_error);
    ids[7] = 99;
    CHECK_THROWS_WITH_AS(facts(2), "pulse: tiny_bert: id must be 0 to 98, not 99", pulse::input_error);
    ids[7] = -1;
    CHECK_THROWS_AS(facts(2), pulse::input_error);

    plain on;
    using pooling = clip_text<bigg>;
    CHECK_THROWS_AS((pulse::encode::text_encoder<pooling, plain>{on, 0}), pulse::input_error);
    pulse::encode::text_encoder<pooling, plain> encoder{on, 2};
    double states[1]{};
    CHECK_THROWS_WITH_AS(encoder.run(3, nullptr, states, states), "pulse: tiny_bigg: expects 1 to 2 texts, not 3",
                         pulse::input_error);
    CHECK_THROWS_WITH_AS(encoder.run(1, nullptr, states), "pulse: tiny_bigg: needs room for the pooled text",
                         pulse::input_error);
}
