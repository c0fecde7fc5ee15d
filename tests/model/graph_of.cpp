#include <array>
#include <cstdint>

#include <support/archetype.hpp>
#include <support/check_both.hpp>

#include <pulse/model/graph_of.hpp>

namespace graph_of_test {

namespace {

using pulse::shape;

using in = archetype::layer<"in", shape<1, 8, 8>, shape<4, 8, 8>>;
using down = archetype::layer<"down", shape<4, 8, 8>, shape<8, 4, 4>>;
using mid = archetype::conditioned_layer<"mid", shape<8, 4, 4>, shape<16>>;
using up = archetype::joining_layer<"up", shape<8, 4, 4>, shape<8, 4, 4>, shape<4, 8, 8>>;
using out = archetype::joining_layer<"out", shape<4, 8, 8>, shape<4, 8, 8>, shape<1, 8, 8>>;
using edges = pulse::skips<pulse::skip<"in", "out">, pulse::skip<"down", "up">>;

struct unet
    : pulse::model<"unet", pulse::layers<in, down, mid, up, out>, edges, archetype::module<"clock", shape<16>>> {};
struct chain : pulse::model<"chain", pulse::layers<in, down>> {};

constexpr auto graph = pulse::graph_of<unet>();

using read = archetype::attending_layer<"read", shape<8, 4, 4>, shape<3, 5>>;
struct reads_text : pulse::model<"reads_text", pulse::layers<in, down, read>, pulse::skips<>,
                                 archetype::module_with_text<"clock", shape<16>, shape<3, 5>>> {};

// Named, because clang 14 crashes on a consteval constructor inside a doctest expression.
constexpr pulse::layer_node expected_down{.name = "down",
                                          .input_elements = 4 * 8 * 8,
                                          .output_elements = 8 * 4 * 4,
                                          .parameter_elements = 8,
                                          .saved_elements = 5,
                                          .deferred_elements = 7,
                                          .workspace_elements = 11,
                                          .forward_flops = 24.0,
                                          .factored_elements = 2 + 3 + 2};

} // namespace

TEST_SUITE("constexpr") {

    TEST_CASE("a graph has the model's layers in order, per sample") {
        CHECK_BOTH(graph.model == unet::name);
        CHECK_BOTH(graph.layers.size() == 5);
        CHECK_BOTH(graph.layers[1] == expected_down);
        CHECK_BOTH(graph.layers[4].name.view() == "out");
    }

    TEST_CASE("skips keep their order and carry the output of their source") {
        CHECK_BOTH(graph.skips[0] == pulse::skip_link{0, 4, 4 * 8 * 8});
        CHECK_BOTH(graph.skips[1] == pulse::skip_link{1, 3, 8 * 4 * 4});
    }

    TEST_CASE("text states are relayed with the conditioning") {
        CHECK_BOTH(pulse::graph_of<reads_text>().conditioning_elements == 16 + 3 * 5);
    }

    TEST_CASE("text states that nothing trains need no gradient") {
        CHECK_BOTH(pulse::graph_of<reads_text>().frozen_conditioning_elements == 3 * 5);
        CHECK_BOTH(pulse::graph_of<reads_text>().view().frozen_conditioning_elements == 3 * 5);
        CHECK_BOTH(graph.frozen_conditioning_elements == 0);
    }

    TEST_CASE("the conditioning module is counted in layer 0") {
        constexpr auto alone = pulse::graph_of<chain>();
        CHECK_BOTH(alone.conditioning_elements == 0);
        CHECK_BOTH(graph.conditioning_elements == 16);
        CHECK_BOTH(graph.layers[0].parameter_elements == alone.layers[0].parameter_elements + 100);
        CHECK_BOTH(graph.layers[0].forward_flops == alone.layers[0].forward_flops + 200.0);
        CHECK_BOTH(graph.layers[0].saved_elements == alone.layers[0].saved_elements + 13);
        CHECK_BOTH(graph.layers[0].statistics_elements == alone.layers[0].statistics_elements + 19);
        CHECK_BOTH(graph.layers[0].factored_elements == alone.layers[0].factored_elements + 10 + 10);
        CHECK_BOTH(graph.layers[0].workspace_elements == 17);
        CHECK_BOTH(graph.layers[0].deferred_elements == alone.layers[0].deferred_elements);
        CHECK_BOTH(graph.layers[1] == alone.layers[1]);
    }

    TEST_CASE("a graph's parameters are the model's") {
        std::int64_t total = 0;
        for (const auto& node : graph.view().layers) { total += node.parameter_elements; }
        CHECK(total == unet::parameter_count());
    }

    TEST_CASE("a view shows the graph") {
        CHECK_BOTH(graph.view().layers.size() == 5 && graph.view().skips.size() == 2);
        CHECK_BOTH(graph.view().model == graph.model);
        CHECK_BOTH(graph.view().conditioning_elements == 16);
    }

} // TEST_SUITE

} // namespace graph_of_test
