#include "tiny.hpp"

pulse::graph_view other_unit();

pulse::graph_view other_unit() {
    static constexpr auto graph = pulse::graph_of<consumer::tiny>();
    return graph.view();
}
