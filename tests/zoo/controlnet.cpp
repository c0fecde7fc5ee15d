#include <cstddef>
#include <cstdint>

#include <doctest/doctest.h>

#include <support/check_both.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/zoo/controlnet.hpp>

using namespace pulse;

namespace {

/// Parameters that are trained and locked; forward FLOPs per sample of the trained branch, of locked layers before it
/// and after it.
struct control_totals {
    std::int64_t trained{}, locked{};
    double branch{}, encoder{}, decoder{};
    [[nodiscard]] constexpr bool operator==(const control_totals&) const = default;
};

template <class M>
constexpr control_totals totals_of() {
    control_totals all;
    for (const layer_node& layer : graph_of<M>().layers) {
        all.trained += layer.parameter_elements;
        all.locked += layer.frozen_parameter_elements;
        all.branch += layer.forward_flops - layer.forward_only_flops - layer.frozen_flops;
        all.encoder += layer.forward_only_flops;
        all.decoder += layer.frozen_flops;
    }
    return all;
}

} // namespace

TEST_CASE("ControlNet on sd15 has the published parameters, and the FLOPs that another program counts") {
    constexpr control_totals published{361'279'120, 859'520'964, 283'291'975'680.0, 261'439'651'840.0,
                                       541'833'789'440.0};
    CHECK_BOTH(totals_of<controlnet_sd15>() == published);
    CHECK_BOTH(totals_of<controlnet_sd15>().locked == sd15::parameter_count());
    CHECK_BOTH(totals_of<controlnet_tiny>().locked == sd_tiny::parameter_count());
}

TEST_CASE("a ControlNet has the chain and the skips of its UNet, twice as wide, and a control for each") {
    static constexpr auto graph = uncut_graph_of<controlnet_sd15>();
    static constexpr auto unet = uncut_graph_of<sd15>();
    CHECK(graph.layers.size() == unet.layers.size() + 1);
    REQUIRE(graph.skips.size() == unet.skips.size());
    for (std::size_t e = 0; e != graph.skips.size(); ++e) {
        const skip_link& edge = graph.skips[e];
        CHECK(edge.elements == 2 * unet.skips[e].elements);
        CHECK(edge.from == unet.skips[e].from);
        CHECK(edge.to == unet.skips[e].to + 1);
        CHECK(2 * graph.layers[static_cast<std::size_t>(edge.from)].frozen_output_elements == edge.elements);
    }
    CHECK(graph.layers[0].input_elements == 4 * 64 * 64 + 3 * 512 * 512);
    CHECK(graph.layers.back().output_elements == 4 * 64 * 64);
    CHECK(graph.conditioning_elements == 2 * 1280 + 77 * 768);
    CHECK(graph.frozen_conditioning_elements == 77 * 768);
}
