#include "facts.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include <support/check_both.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/zoo/hunyuan_dit.hpp>
#include <pulse/zoo/sdxl.hpp>
#include <pulse/zoo/stable_diffusion.hpp>
#include <pulse/zoo/uvit.hpp>

using namespace pulse;

namespace {

/// The parts of every layer add up to it, connect its ends, and bear its name.
template <class M>
void check_parts() {
    static constexpr auto graph = graph_of<M>();
    constexpr auto whole = uncut_graph_of<M>();
    std::size_t at = 0;
    for (std::size_t l = 0; l != M::layer_count; ++l) {
        const layer_node& layer = whole.layers[l];
        CAPTURE(layer.name.str());
        layer_node sum{.name = layer.name, .input_elements = graph.layers[at].input_elements};
        std::int64_t between = 0;
        int parts = 0;
        for (; at != M::part_count && part_places<M>[at].layer == static_cast<int>(l); ++at, ++parts) {
            const layer_node& part = graph.layers[at];
            const part_place& place = part_places<M>[at];
            CHECK(place.part == parts);
            CHECK(part.name.str() == layer.name.str() + (place.parts == 1 ? "" : "#" + std::to_string(parts)));
            CHECK((part.open_elements == 0 || part.open_elements == layer.output_elements));
            if (parts != 0) { CHECK(part.input_elements == graph.layers[at - 1].output_elements); }
            if (parts + 1 != place.parts) { between += part.output_elements; }
            sum.output_elements = part.output_elements;
            sum.parameter_elements += part.parameter_elements;
            sum.factored_elements += part.factored_elements;
            sum.saved_elements += part.saved_elements;
            sum.deferred_elements += part.deferred_elements;
            sum.statistics_elements += part.statistics_elements;
            sum.workspace_elements = std::max(sum.workspace_elements, part.workspace_elements);
            sum.forward_flops += part.forward_flops;
        }
        CHECK(parts == part_places<M>[at - 1].parts);
        CHECK(graph.layers[at - 1].open_elements == 0);
        sum.saved_elements += between;
        sum.deferred_elements += between;
        CHECK(sum == layer);
    }
    CHECK(at == M::part_count);
    for (std::size_t e = 0; e != M::skip_count; ++e) {
        const part_place& from = part_places<M>[static_cast<std::size_t>(graph.skips[e].from)];
        const part_place& to = part_places<M>[static_cast<std::size_t>(graph.skips[e].to)];
        CHECK(from.layer == whole.skips[e].from);
        CHECK(from.part + 1 == from.parts);
        CHECK(to.layer == whole.skips[e].to);
        CHECK(to.part == 0);
        CHECK(graph.skips[e].elements == whole.skips[e].elements);
    }
}

} // namespace

TEST_CASE("sdxl equals its table in every name, shape, edge, count, FLOP and kept tensor") {
    test::check_against_table(test::model_facade_of<sdxl>());
    CHECK_BOTH(sdxl::parameter_count() == 2'567'463'684);
    CHECK_BOTH(sdxl::layer_count == 34);
    CHECK_BOTH(sdxl::skip_count == 9);
    // 17 ResNet blocks of 2 parts, 70 blocks of 11 transformers of 3, and these transformers' ends.
    CHECK_BOTH(sdxl::part_count == 6 + 17 * 2 + 70 * 3 + 11 * 2);
}

TEST_CASE("the parts of layers add up to them") {
    check_parts<sdxl>();
    check_parts<sd21>();
    check_parts<hunyuan_dit_v12>();
    check_parts<uvit_h2>();
    CHECK_BOTH(uvit_h2::part_count == 2 * 29 + 14 + 2);
    CHECK_BOTH(hunyuan_dit_v12::part_count == 3 * 40 + 19 + 2);
}
