#include <doctest/doctest.h>

#include <cstddef>
#include <exception>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <support/archetype.hpp>
#include <support/random_plan.hpp>
#include <support/toy_model.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/runtime/same_run.hpp>
#include <pulse/threads/transport.hpp>

using namespace pulse;
using namespace pulse::test;

namespace same_runs {

namespace {

using one_model = toy_model<3, 8, wiring::nested, true>;
using math = reference::backend<float>;

/// Two models with equal graphs but different shapes, and one with another parameter.
using first = archetype::layer<"first", shape<4, 6>, shape<2, 12>>;
using second = archetype::layer<"second", shape<2, 12>, shape<4>>;
struct tall : model<"m", layers<first, second>> {};
using first_flat = archetype::layer<"first", shape<4, 6>, shape<24>>;
using second_flat = archetype::layer<"second", shape<24>, shape<4>>;
struct flat : model<"m", layers<first_flat, second_flat>> {};
struct second_renamed : second {
    static constexpr auto parameters() {
        auto all = second::parameters();
        all[0].name = "another.weight";
        return all;
    }
};
struct renamed : model<"m", layers<first, second_renamed>> {};

plan draw_plan() {
    std::mt19937 random{9};
    plan p;
    p.pipeline_degree = 2;
    p.microbatches = 3;
    p.cut = draw_cut(blank_costs(graph_of<one_model>().view(), 1, sizeof(float)), placement::folded, 2, 1, random);
    p.order = draw_order(p.cut, p.microbatches, true, random);
    return p;
}

/// The errors of thread ranks when `call` makes rank 2 differ.
template <class Call>
std::vector<std::string> told(Call call) {
    std::vector<std::string> said(4);
    try {
        threads::run_ranks(4, {}, [&](threads::transport& world) {
            try {
                call(world);
            } catch (const input_error& e) {
                said[static_cast<std::size_t>(world.rank())] = e.what();
                throw;
            }
        });
    } catch (const input_error&) {} // thrown by run_ranks
    return said;
}

void check_all(const std::vector<std::string>& said, const std::string& part) {
    for (const std::string& s : said) { CHECK_MESSAGE(s.find(part) != std::string::npos, s); }
}

} // namespace

TEST_CASE("ranks with the same model, backend and plan go on; the others are named on every rank") {
    const plan planned = draw_plan();
    check_all(told([&](auto& world) {
                  require_same_run<one_model, math>(world, planned, {{"--seed", "1"}});
                  require_same_run<cascade<one_model, tall>, math>(world, planned);
                  world.sum({});
              }),
              "");
    const auto rank_2_of = [&](const std::string& what, const std::vector<std::string>& said) {
        check_all(said, "pulse: the ranks differ: " + what);
        check_all(said, "rank 0 has ");
        for (const std::string& s : said) { CHECK(s == said[0]); }
    };
    using other_model = toy_model<4, 8, wiring::nested, true>;
    rank_2_of("model: rank 2 has toy ", told([&](auto& world) {
                  if (world.rank() == 2) { return require_same_run<other_model, math>(world, planned); }
                  require_same_run<one_model, math>(world, planned);
              }));
    rank_2_of("model: rank 2 has toy ", told([&](auto& world) {
                  if (world.rank() == 2) {
                      return require_same_run<cascade<one_model, one_model>, math>(world, planned);
                  }
                  require_same_run<cascade<one_model, other_model>, math>(world, planned);
              }));
    rank_2_of("backend: rank 2 has ", told([&](auto& world) {
                  if (world.rank() == 2) {
                      return require_same_run<one_model, reference::backend<double>>(world, planned);
                  }
                  require_same_run<one_model, math>(world, planned);
              }));
    rank_2_of("plan: rank 2 has ", told([&](auto& world) {
                  plan mine = planned;
                  mine.microbatch_size += world.rank() == 2 ? 1 : 0;
                  require_same_run<one_model, math>(world, mine);
              }));
    rank_2_of("plan at 4 x 12: rank 2 has ", told([&](auto& world) {
                  pulse::planned mine{.plan = planned, .others = {{{{4, 12}, 0.5, planned}, {}}}};
                  mine.others.front().plan.spare_sends += world.rank() == 2 ? 1 : 0;
                  require_same_run<one_model, math>(world, mine);
              }));
    rank_2_of("--seed: rank 2 has 7, rank 0 has 1", told([&](auto& world) {
                  require_same_run<one_model, math>(world, planned, {{"--seed", world.rank() == 2 ? "7" : "1"}});
              }));
}

TEST_CASE("a fingerprint of a plan depends on all that ranks do, and on nothing else") {
    const plan planned = draw_plan();
    const auto changed = [&](const std::function<void(plan&)>& change) {
        plan other = planned;
        change(other);
        return fingerprint_of(other) != fingerprint_of(planned);
    };
    CHECK_FALSE(changed([](plan&) {}));
    CHECK_FALSE(changed([](plan& p) { p.predicted.step_us = 5; }));
    CHECK_FALSE(changed([](plan& p) { p.order.devices[0][0].start_us = -1; }));
    const std::vector<std::function<void(plan&)>> all{
        [](plan& p) { p.model = "other"; },
        [](plan& p) { ++p.pipeline_degree; },
        [](plan& p) { ++p.data_degree; },
        [](plan& p) { ++p.node_replicas; },
        [](plan& p) { ++p.microbatches; },
        [](plan& p) { ++p.microbatch_size; },
        [](plan& p) { p.split_backward = !p.split_backward; },
        [](plan& p) { p.routing = skip_routing::relayed; },
        [](plan& p) { p.recompute = recomputation::skips; },
        [](plan& p) { ++p.spare_sends; },
        [](plan& p) { p.cut.kind = placement::interleaved; },
        [](plan& p) { ++p.cut.devices; },
        [](plan& p) { ++p.cut.waves; },
        [](plan& p) { ++p.cut.stages[1].index; },
        [](plan& p) { ++p.cut.stages[1].device; },
        [](plan& p) { ++p.cut.stages[1].first_layer; },
        [](plan& p) { ++p.cut.stages[1].last_layer; },
        [](plan& p) { p.cut.stages.pop_back(); },
        [](plan& p) { std::swap(p.order.devices[0][0], p.order.devices[0].back()); },
        [](plan& p) { p.order.devices[1].pop_back(); },
        [](plan& p) { std::swap(p.order.devices[0], p.order.devices[1]); },
        [](plan& p) { p.order.devices[1][0].op = pass::backward_weight; },
        [](plan& p) { ++p.order.devices[1][0].stage; },
        [](plan& p) { ++p.order.devices[1][0].microbatch; },
    };
    for (std::size_t i = 0; i != all.size(); ++i) {
        CAPTURE(i);
        CHECK(changed(all[i]));
    }
}

TEST_CASE("a fingerprint of a graph depends on every number in it, that of a model on shapes and names too") {
    const auto graph = graph_of<one_model>();
    const auto changed = [&](auto change) {
        auto other = graph;
        change(other);
        return fingerprint_of(other.view()) != fingerprint_of(graph.view());
    };
    CHECK_FALSE(changed([](auto&) {}));
    CHECK(changed([](auto& g) { g.model = "other"; }));
    CHECK(changed([](auto& g) { ++g.conditioning_elements; }));
    CHECK(changed([](auto& g) { ++g.frozen_conditioning_elements; }));
    CHECK(changed([](auto& g) { g.layers[5].name = "other"; }));
    for (const auto number :
         {&layer_node::input_elements, &layer_node::output_elements, &layer_node::parameter_elements,
          &layer_node::saved_elements, &layer_node::deferred_elements, &layer_node::workspace_elements,
          &layer_node::statistics_elements, &layer_node::factored_elements}) {
        CHECK(changed([&](auto& g) { ++(g.layers[5].*number); }));
    }
    CHECK(changed([](auto& g) { g.layers[5].forward_flops += 0.5; }));
    CHECK(changed([](auto& g) { ++g.skips[0].from; }));
    CHECK(changed([](auto& g) { ++g.skips[0].to; }));
    CHECK(changed([](auto& g) { ++g.skips[0].elements; }));
    CHECK(changed([](auto& g) { g.layers[0].open_elements = 1; }));

    static_assert(fingerprint_of(graph_of<tall>().view()) == fingerprint_of(graph_of<flat>().view()));
    static_assert(fingerprint_of<tall>() != fingerprint_of<flat>());
    static_assert(fingerprint_of(graph_of<tall>().view()) == fingerprint_of(graph_of<renamed>().view()));
    static_assert(fingerprint_of<tall>() != fingerprint_of<renamed>());
}

} // namespace same_runs
