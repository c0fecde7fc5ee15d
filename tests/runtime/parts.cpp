#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <nn/small_text.hpp>
#include <support/pipelined.hpp>
#include <support/random_plan.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/zoo/ddpm.hpp>

using namespace pulse;
using namespace pulse::test;

namespace {

/// How often each operation ran.
struct tally {
    int products{}, norms{}, attentions{}, additions{}, copies{};

    [[nodiscard]] bool operator==(const tally&) const = default;
};

/// The reference backend; all of a thread count together.
struct tallying_backend : host::reference_backend<float> {
    using base = host::reference_backend<float>;
    static inline thread_local tally seen{};

    void conv2d(auto... of) {
        run(seen.products, [&] { base::conv2d(of...); });
    }
    void conv2d_backward_input(auto... of) {
        run(seen.products, [&] { base::conv2d_backward_input(of...); });
    }
    void conv2d_backward_weight(auto... of) {
        run(seen.products, [&] { base::conv2d_backward_weight(of...); });
    }
    void conv2d_pair(auto... of) {
        run(seen.products, [&] { base::conv2d_pair(of...); });
    }
    void conv2d_pair_backward_input(auto... of) {
        run(seen.products, [&] { base::conv2d_pair_backward_input(of...); });
    }
    void conv2d_pair_backward_weight(auto... of) {
        run(seen.products, [&] { base::conv2d_pair_backward_weight(of...); });
    }
    void linear(auto... of) {
        run(seen.products, [&] { base::linear(of...); });
    }
    void linear_backward_input(auto... of) {
        run(seen.products, [&] { base::linear_backward_input(of...); });
    }
    void linear_backward_weight(auto... of) {
        run(seen.products, [&] { base::linear_backward_weight(of...); });
    }
    void group_norm(auto... of) {
        run(seen.norms, [&] { base::group_norm(of...); });
    }
    void group_norm_backward(auto... of) {
        run(seen.norms, [&] { base::group_norm_backward(of...); });
    }
    void layer_norm(auto... of) {
        run(seen.norms, [&] { base::layer_norm(of...); });
    }
    void layer_norm_backward(auto... of) {
        run(seen.norms, [&] { base::layer_norm_backward(of...); });
    }
    void attention(auto... of) {
        run(seen.attentions, [&] { base::attention(of...); });
    }
    void attention_backward(auto... of) {
        run(seen.attentions, [&] { base::attention_backward(of...); });
    }
    void add(auto... of) {
        run(seen.additions, [&] { base::add(of...); });
    }
    void add_per_sample(auto... of) {
        run(seen.additions, [&] { base::add_per_sample(of...); });
    }
    void copy(auto... of) {
        run(seen.copies, [&] { base::copy(of...); });
    }

private:
    template <class F>
    static void run(int& count, F f) {
        ++count;
        f();
    }
};

template <class Model>
tally of_unpipelined(int microbatches) {
    tallying_backend::seen = {};
    static_cast<void>(run_unpipelined<Model, tallying_backend>(1, microbatches, 5));
    return std::exchange(tallying_backend::seen, {});
}

/// A step on one device; its thread counts.
template <class Model>
tally of_plan(const plan& planned) {
    const cost_table costs = blank_costs(graph_of<Model>().view(), planned.microbatch_size, sizeof(float));
    tally found;
    host::run_ranks(1, {}, [&](host::thread_transport& transport) {
        tallying_backend math;
        executor<Model, tallying_backend> rank{math, transport, planned, costs};
        drawn_task<Model, float> task{{5, planned.microbatch_size, planned.microbatches}};
        tallying_backend::seen = {};
        rank.step(task);
        found = std::exchange(tallying_backend::seen, {});
    });
    return found;
}

/// Every way to cut a model in two on one device: a cut that leaves no residual open costs nothing, and any other a
/// copy of the residual and one of its gradient.
template <class Model>
void check_cuts(bool split) {
    constexpr int microbatches = 2;
    const tally whole = of_unpipelined<Model>(microbatches);
    REQUIRE(whole.products > 0);
    const auto graph = graph_of<Model>();
    std::mt19937 random{3};
    int open = 0;
    for (int cut = 1; cut != static_cast<int>(Model::part_count); ++cut) {
        plan p;
        p.microbatches = microbatches;
        p.split_backward = split;
        p.cut = {placement::folded, 1, 1, {{0, 0, 0, cut - 1}, {1, 0, cut, static_cast<int>(Model::part_count) - 1}}};
        p.order = draw_order(p.cut, microbatches, split, random);
        tally found = of_plan<Model>(p);
        INFO("cut before " << graph.layers[static_cast<std::size_t>(cut)].name.str());
        if (graph.layers[static_cast<std::size_t>(cut) - 1].open_elements != 0) {
            ++open;
            found.copies -= 2 * microbatches;
        }
        CHECK(found == whole);
    }
    CHECK(open > 4);
}

} // namespace

TEST_CASE("parts of a layer on one device run as the whole does, and a cut between them costs its copies alone") {
    for (const bool split : {false, true}) {
        check_cuts<ddpm_tiny>(split);
        check_cuts<small_sdxl>(split);
    }
}
