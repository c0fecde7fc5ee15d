#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <nn/crooked_unet.hpp>
#include <nn/small_text.hpp>
#include <nn/small_uvit.hpp>
#include <support/check_both.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/nn/description.hpp>

using namespace pulse;

namespace {

/// A part with a piece of every kind.
struct inner {
    struct pieces {
        weight_piece weight;
        saved_piece saved;
        statistics_piece statistics;
        deferred_piece deferred;
        workspace_piece first, second, again;
    };
    constexpr pieces describe(nn::description& d) const {
        pieces p{};
        d.reads_skip({9, 0, 0});
        p.weight = d.linear("fc", 5, {3, 2});
        d.save(7, p.saved);
        d.statistics(8, p.statistics);
        d.defer(9, p.deferred);
        d.work(10, p.first, p.second);
        d.work_again(p.second);
        d.work(4, p.again);
        d.flops(11.0);
        return p;
    }
};

struct outer {
    struct pieces {
        weight_piece own, beside, alone;
        saved_piece saved;
        workspace_piece before, behind;
        inner::pieces one, other;
    };
    constexpr pieces describe(nn::description& d) const {
        pieces p{};
        p.own = d.norm("", 4);
        d.work(6, p.before);
        p.one = d.part("part", inner{});
        d.save(1, p.saved);
        p.other = d.part("list.1", inner{});
        d.work(2, p.behind);
        p.beside = d.vectors("../beside", {2, 3});
        p.alone = d.weight("/alone", {5, 1}, false);
        return p;
    }
};

/// Checks that what every layer and conditioning module declares agrees with its layout and with the model's graph.
template <class L>
void check_sums() {
    constexpr nn::layer_sizes sizes = nn::layout<L::math>.sizes;
    CAPTURE(L::name.view());
    CHECK_BOTH(L::parameters().size() == sizes.parameter_count);
    CHECK_BOTH(parameter_elements<L>() == sizes.kept.parameters);
    CHECK_BOTH(L::saved_elements == sizes.kept.saved);
    CHECK_BOTH(statistics_elements<L>() == sizes.kept.statistics);
    for (const parameter& p : L::parameters()) {
        CHECK(p.rank > 0);
        CHECK(!p.name.empty());
    }
}
template <class L>
void check_layer(const layer_node& node, bool first) {
    constexpr nn::layer_sizes sizes = nn::layout<L::math>.sizes;
    check_sums<L>();
    CHECK(node.deferred_elements == sizes.kept.deferred);
    CHECK(node.forward_flops >= sizes.forward_flops);
    if (!first) { // the graph counts the conditioning module with the first layer
        CHECK(node.parameter_elements == sizes.kept.parameters);
        CHECK(node.saved_elements == sizes.kept.saved);
        CHECK(node.statistics_elements == sizes.kept.statistics);
        CHECK(node.workspace_elements == sizes.workspace);
    }
}
template <class M>
void check_model() {
    static constexpr auto graph = uncut_graph_of<M>();
    [&]<std::size_t... I>(std::index_sequence<I...>) {
        (check_layer<typename M::template layer_at<I>>(graph.layers[I], I == 0), ...);
    }
    (std::make_index_sequence<M::layer_count>{});
    if constexpr (M::is_conditioned) { check_sums<typename M::conditioning>(); }
}

} // namespace

TEST_CASE("pieces of a kind lie one behind the other, whatever the order in which kinds are described") {
    std::mt19937 random{3};
    for (int round = 0; round != 100; ++round) {
        nn::description d;
        std::int64_t saved = 0;
        std::int64_t statistics = 0;
        std::int64_t deferred = 0;
        std::int64_t weights = 0;
        for (int i = 0; i != 20; ++i) {
            const auto count = static_cast<std::int64_t>(random() % 9);
            switch (random() % 4) {
            case 0: {
                saved_piece a, b;
                d.save(count, a, b);
                CHECK(a.begin == saved);
                CHECK(b.begin == saved + count);
                saved += 2 * count;
                break;
            }
            case 1: {
                statistics_piece a;
                d.statistics(count, a);
                CHECK(a.begin == statistics);
                statistics += count;
                break;
            }
            case 2: {
                deferred_piece a;
                d.defer(count, a);
                CHECK(a.begin == deferred);
                deferred += count;
                break;
            }
            default: {
                const weight_piece w = d.linear("w", 1, {3, static_cast<int>(count)});
                CHECK(w.begin == weights);
                CHECK(w.bias == weights + 3 * count);
                weights += 4 * count;
                break;
            }
            }
        }
        CHECK(d.sizes().kept.saved == saved);
        CHECK(d.sizes().kept.statistics == statistics);
        CHECK(d.sizes().kept.deferred == deferred);
        CHECK(d.sizes().kept.parameters == weights);
    }
}

TEST_CASE("parts lie in the frame of the whole, and share its workspace") {
    constexpr auto all = nn::layout_of(outer{});
    constexpr outer::pieces p = all.pieces;
    CHECK_BOTH(p.one.weight.begin == 8);
    CHECK_BOTH(p.one.weight.bias == 14);
    CHECK_BOTH(p.other.weight.begin == 16);
    CHECK_BOTH(p.one.saved.begin == 0);
    CHECK_BOTH(p.saved.begin == 7);
    CHECK_BOTH(p.other.saved.begin == 8);
    CHECK_BOTH(p.other.statistics.begin == 8);
    CHECK_BOTH(p.other.deferred.begin == 9);
    CHECK_BOTH(p.one.first.begin == 0);
    CHECK_BOTH(p.one.again.begin == p.one.second.begin);
    CHECK_BOTH(p.behind.begin == 6);
    CHECK_BOTH(all.sizes.workspace == 20);
    CHECK_BOTH(all.sizes.kept.saved == 15);
    CHECK_BOTH(all.sizes.kept.parameters == 8 + 8 + 8 + 6 + 5);
    CHECK_BOTH(all.sizes.forward_flops == 2 * (2.0 * 5 * 3 * 2 + 11.0));
    CHECK_BOTH(all.sizes.skip == nn::sample_dims{9, 0, 0});
}

TEST_CASE("names are joined to the layer's, stand beside it or stand alone") {
    const label name{"down.0"};
    std::vector<parameter> listed(nn::layout_of(outer{}).sizes.parameter_count);
    nn::description d{name, listed.data()};
    static_cast<void>(outer{}.describe(d));
    const std::vector<std::string_view> expected{
        "down.0.weight",           "down.0.bias",           "down.0.part.fc.weight", "down.0.part.fc.bias",
        "down.0.list.1.fc.weight", "down.0.list.1.fc.bias", "down.beside",           "alone.weight"};
    REQUIRE(listed.size() == expected.size());
    for (std::size_t i = 0; i != listed.size(); ++i) { CHECK(listed[i].name.view() == expected[i]); }
    CHECK(listed[2].dims == std::array<int, 4>{2, 3, 0, 0});
}

TEST_CASE("parameters, statistics and sizes of every layer are those of its description") {
    check_model<test::crooked_unet>();
    check_model<test::small_sdxl>();
    check_model<test::small_hunyuan_v11>();
    check_model<test::crooked_uvit>();
    check_model<test::labelled_uvit>();
}

namespace {

struct hiding : nn::block<"hiding", nn::linear{3, 2}> {
    static constexpr std::array<parameter, 2> others{parameter{"hiding.weight", {4, 5, 1, 1}, 2},
                                                     parameter{"hiding.bias", {6, 1, 1, 1}, 1}};
    [[nodiscard]] static constexpr const std::array<parameter, 2>& parameters() { return others; }
};

} // namespace

TEST_CASE("a layer that lists other parameters than what it derives from has those") {
    CHECK_BOTH(parameter_elements<hiding>() == 26);
    CHECK_BOTH(counts_of<hiding>().factored == 4 + 5 + 6);
    CHECK_BOTH(counts_of<nn::block<"linear", nn::linear{3, 2}>>() == parameter_counts{2, 8, 2 + 3 + 2});
}
