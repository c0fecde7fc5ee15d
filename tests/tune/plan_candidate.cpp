#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include <partition/random_table.hpp>
#include <support/drawn_recomputation.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/partition/sequential.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/schedule/make_problem.hpp>
#include <pulse/schedule/validate.hpp>
#include <pulse/simulate/simulator.hpp>
#include <pulse/tune/candidate_plan.hpp>
#include <pulse/zoo/ddpm.hpp>

#include "mentions.hpp"
#include "small_table.hpp"

using namespace pulse;
using namespace pulse::test;

namespace {

/// A random table with every byte count that a step needs, and a candidate for it.
struct drawn_case {
    cost_table costs{};
    tune_candidate c{};
    pulse::link line{};
    candidate_options options{};

    [[nodiscard]] plan planned() const { return plan_candidate(costs, c, line, options).plan; }
};

drawn_case draw_case(std::mt19937& random) {
    const auto draw = [&random](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    drawn_case made;
    const int layers = draw(2, 16);
    made.costs = random_table(random, layers, static_cast<skip_pattern>(draw(0, 5)));
    made.costs.microbatch_size = draw(1, 4);
    made.costs.input_bytes = draw(1, 20) * 8;
    for (layer_cost& l : made.costs.layers) {
        l.parameter_bytes = l.parameter_bytes / 8 * 8;
        l.saved_bytes = draw(0, 9) * 8;
        l.deferred_bytes = draw(0, 9) * 8;
        l.workspace_bytes = draw(0, 9) * 8;
        l.output_bytes = draw(1, 20) * 8;
    }
    for (skip_cost& e : made.costs.skips) {
        e.bytes = made.costs.layers[static_cast<std::size_t>(e.from)].output_bytes;
    }
    tune_candidate& c = made.c;
    c.kind = static_cast<placement>(draw(0, 1) == 0 ? 0 : draw(1, 2));
    c.pipeline_degree = draw(1, 4);
    c.waves = c.kind == placement::sequential ? 1 : draw(1, 2);
    c.microbatches = draw(1, 8);
    c.split_backward = draw(0, 1) == 1;
    c.routing = draw(0, 1) == 0 ? skip_routing::direct : skip_routing::relayed;
    const int stages = stage_count(c.kind, c.pipeline_degree, c.waves);
    c.recompute = drawn_recomputation(draw, static_cast<std::size_t>(stages));
    // A published method if it is defined here; interleaved 1F1B only from P microbatches on.
    const auto count = baseline_methods.size();
    const auto method = baseline_methods[static_cast<std::size_t>(draw(0, 2 * static_cast<int>(count) - 1)) % count];
    const bool defined = unmet_need(method, c.kind, c.waves, c.split_backward).empty() &&
                         (method != schedule_method::interleaved || c.microbatches >= c.pipeline_degree);
    c.method = draw(0, 4) != 0 && defined ? method : schedule_method::list;
    if (draw(0, 1) == 1) { made.line = {.latency_us = 0.5 * draw(0, 10), .bandwidth_gb_per_s = 0.001 * draw(1, 50)}; }
    if (draw(0, 2) == 0) { c.slack = 0.25 * draw(1, 4); }
    made.options.kept.scalar_bytes = 2 << draw(0, 2);
    made.options.kept.gradient_bytes = 4 * draw(1, 2);
    made.options.kept.state_bytes = 4 * draw(0, 6);
    return made;
}

/// The candidate's scheduling problem.
schedule_problem problem_of(const drawn_case& c, const partition& cut) {
    problem_options ask{};
    ask.microbatches = c.c.microbatches;
    ask.split_backward = c.c.split_backward;
    ask.routing = c.c.routing;
    ask.recompute = c.c.recompute;
    ask.link = c.line;
    return make_problem(c.costs, cut, ask);
}

struct bytes_by_kind {
    std::int64_t boundary{};
    std::int64_t skip{};
};

/// Bytes sent by all programs.
bytes_by_kind sent_by(const std::vector<program>& programs, const step_model& model) {
    bytes_by_kind sum{};
    for (const program& of_rank : programs) {
        for (const instruction& what : of_rank.instructions) {
            const auto* out = std::get_if<op::send>(&what);
            if (out == nullptr) { continue; }
            const auto parts = model.parts(out->message, of_rank.device);
            for (std::size_t i = 0; i != parts.size(); ++i) {
                (model.is_skip_part(out->message, i) ? sum.skip : sum.boundary) += model.bytes(parts[i]);
            }
        }
    }
    return sum;
}

/// Checks everything that a plan promises against the programs that it becomes.
void require_sound(const drawn_case& c, const plan& made) {
    const tune_candidate& o = c.c;
    REQUIRE(made.model == c.costs.model);
    REQUIRE(made.microbatch_size == c.costs.microbatch_size);
    REQUIRE(made.microbatches == o.microbatches);
    REQUIRE(made.pipeline_degree == o.pipeline_degree);
    REQUIRE(made.split_backward == o.split_backward);
    REQUIRE(made.routing == o.routing);
    REQUIRE(made.recompute == o.recompute);
    REQUIRE(made.cut.kind == o.kind);
    REQUIRE(static_cast<int>(made.cut.stages.size()) == stage_count(o.kind, o.pipeline_degree, o.waves));

    if (o.kind == placement::sequential) {
        const partition cut =
            sequential_partition(c.costs, o.pipeline_degree, {.slack = o.slack, .routing = o.routing});
        REQUIRE(made.cut == cut);
    }

    const auto violation = find_violation(problem_of(c, made.cut), made.order);
    REQUIRE_MESSAGE(!violation.broken(), describe(violation));
    const step_model model{made, c.costs};
    const auto programs = lower(made, model);
    const check_report report = check(made, model, programs);
    REQUIRE_MESSAGE(report.ok(), report.violation);

    const prediction& p = made.predicted;
    const double tolerance = 1e-9 * (1 + p.step_us);
    REQUIRE(p.step_us >= p.lower_bound_us - tolerance);
    double busiest = 0;
    for (const auto& device : made.order.devices) {
        double busy = 0;
        for (const timed_pass& pass : device) { busy += pass.end_us - pass.start_us; }
        busiest = std::max(busiest, busy);
    }
    REQUIRE(p.lower_bound_us >= busiest - tolerance);
    REQUIRE(p.samples_per_s * p.step_us ==
            doctest::Approx(p.step_us > 0 ? 1e6 * o.microbatches * c.costs.microbatch_size : 0));

    // The prediction equals the simulation.
    const auto world = simulated_on(one_node(o.pipeline_degree, c.line), {o.layout, o.pipeline_degree, 1});
    REQUIRE(p.step_us == simulate(made, model, programs, world).step_us);

    const bytes_by_kind sent = sent_by(programs, model);
    REQUIRE(p.boundary_bytes == sent.boundary);
    REQUIRE(p.skip_bytes == sent.skip);
    if (o.kind == placement::folded) { REQUIRE(p.skip_bytes == 0); }

    REQUIRE(p.peak_memory_bytes.size() == static_cast<std::size_t>(o.pipeline_degree));
    for (int d = 0; d != o.pipeline_degree; ++d) {
        const auto at = static_cast<std::size_t>(d);
        std::int64_t parameters = 0;
        for (const stage& s : made.cut.stages) {
            for (int l = s.first_layer; l <= s.last_layer && s.device == d; ++l) {
                parameters += c.costs.layers[static_cast<std::size_t>(l)].parameter_bytes;
            }
        }
        const parameter_memory& kept = c.options.kept;
        REQUIRE(p.peak_memory_bytes[at] >=
                elements_of(parameters, kept) * kept.total_bytes() + report.live_peak_bytes[at]);
    }
}

template <class Error>
std::string message_of(const cost_table& costs, const tune_candidate& c, const candidate_options& options = {}) {
    try {
        static_cast<void>(plan_candidate(costs, c, pulse::link{}, options));
    } catch (const Error& e) { return e.what(); }
    return "nothing was thrown";
}

/// Whether a refusal names a device, the bytes that it needs, and its limit or what parameters leave of it.
bool names_what_binds(const std::string& text, std::int64_t limit) {
    long long device = -1;
    long long need = 0;
    long long room = 0;
    const auto at = text.find("device");
    const char* from = text.c_str() + (at == std::string::npos ? 0 : at);
    for (const char* form : {"device %lld needs %lld bytes for a single microbatch but has only %lld",
                             "device %lld needs %lld bytes but has only %lld"}) {
        if (std::sscanf(from, form, &device, &need, &room) == 3) { return device >= 0 && need > room && room <= limit; }
    }
    return mentions(text, "device") && mentions(text, "bytes") && mentions(text, std::to_string(limit));
}

} // namespace

TEST_CASE(
    "a plan of random costs and options is a valid schedule, lowers to sound programs and predicts their traffic") {
    std::mt19937 random{901};
    int planned = 0;
    int refused = 0;
    int by_kind[3]{};
    int by_method[1 + baseline_methods.size()]{};
    for (int i = 0; i != 600; ++i) {
        const drawn_case c = draw_case(random);
        INFO("case " << i << ": " << name_of(c.c.kind) << ", P " << c.c.pipeline_degree << ", W " << c.c.waves << ", M "
                     << c.c.microbatches << ", layers " << c.costs.layers.size());
        try {
            require_sound(c, c.planned());
            ++planned;
            ++by_kind[static_cast<int>(c.c.kind)];
            ++by_method[static_cast<int>(c.c.method)];
        } catch (const infeasible_error&) {
            // Allowed: too few layers for the stages, or skips that no folded cut keeps on one device.
            REQUIRE((c.c.kind == placement::folded ||
                     static_cast<int>(c.costs.layers.size()) < stage_count(c.c.kind, c.c.pipeline_degree, c.c.waves)));
            ++refused;
        }
    }
    CAPTURE(refused);
    CHECK(planned > 200);
    for (const int n : by_kind) { CHECK(n > 20); }
    for (const int n : by_method) { CHECK(n > 3); }
}

TEST_CASE("a plan under a memory limit keeps it, or the limit is refused by device, need and limit") {
    std::mt19937 random{902};
    int kept = 0;
    int tightened = 0;
    int refused = 0;
    int fewer_sends = 0;
    int same_order = 0;
    for (int i = 0; i != 250; ++i) {
        drawn_case c = draw_case(random);
        plan free;
        try {
            free = c.planned();
        } catch (const infeasible_error&) { continue; }
        const auto& peaks = free.predicted.peak_memory_bytes;
        const std::int64_t most = *std::max_element(peaks.begin(), peaks.end());
        // If giving up spare sends suffices, the order stays.
        plan blocking = free;
        blocking.spare_sends = 0;
        const auto least = peak_bytes(blocking, c.costs, c.options.kept);
        c.options.memory_limit_bytes = *std::max_element(least.begin(), least.end());
        if (c.options.memory_limit_bytes < most) {
            const plan made = c.planned();
            if (made.cut == free.cut) {
                REQUIRE(made.order == free.order);
                REQUIRE(made.spare_sends < free.spare_sends);
                ++same_order;
            }
        }
        for (const int percent : {110, 100, 90, 70, 50, 20}) {
            c.options.memory_limit_bytes = most * percent / 100;
            if (c.options.memory_limit_bytes == 0) { continue; }
            INFO("case " << i << " at " << percent << " %: " << name_of(c.c.kind) << ", P " << c.c.pipeline_degree
                         << ", W " << c.c.waves << ", M " << c.c.microbatches);
            try {
                const plan made = c.planned();
                require_sound(c, made);
                for (const std::int64_t peak : made.predicted.peak_memory_bytes) {
                    REQUIRE(peak <= c.options.memory_limit_bytes);
                }
                // The plan has as many spare sends as the limit allows.
                plan more = made;
                ++more.spare_sends;
                const auto with_more = peak_bytes(more, c.costs, c.options.kept);
                const bool fits_more =
                    *std::max_element(with_more.begin(), with_more.end()) <= c.options.memory_limit_bytes;
                REQUIRE((made.spare_sends == plan{}.spare_sends || !fits_more));
                REQUIRE(made.spare_sends <= plan{}.spare_sends);
                fewer_sends += made.spare_sends < plan{}.spare_sends ? 1 : 0;
                ++kept;
                tightened += percent < 100 ? 1 : 0;
            } catch (const infeasible_error& e) {
                const std::string text = e.what();
                CAPTURE(text);
                CHECK(names_what_binds(text, c.options.memory_limit_bytes));
                // The scheduler counts a little more coarsely than the layout, so it may refuse a limit slightly above
                // the need, but not one 10 % above.
                CHECK(percent != 110);
                ++refused;
            }
        }
    }
    CAPTURE(kept);
    CHECK(tightened > 50);
    CHECK(refused > 50);
    CHECK(fewer_sends > 20);
    CHECK(same_order > 50);
}

TEST_CASE("options that make no sense are refused by name") {
    const cost_table costs = small_table();
    CHECK(mentions(message_of<input_error>(costs, {.microbatches = 0}), "microbatches"));
    CHECK(mentions(message_of<input_error>(costs, {}, {.memory_limit_bytes = -1}), "memory_limit_bytes"));
    CHECK(mentions(message_of<input_error>(costs, {}, {.kept = {.state_bytes = -1}}), "state_bytes"));
    for (const auto kind : {placement::folded, placement::sequential, placement::interleaved}) {
        CAPTURE(name_of(kind));
        CHECK(mentions(message_of<input_error>(costs, {.pipeline_degree = 0, .kind = kind}), "devices"));
        CHECK(mentions(message_of<input_error>(costs, {.waves = 0, .kind = kind}), "waves"));
    }
    CHECK(mentions(message_of<input_error>(costs, {.pipeline_degree = 2, .waves = 2, .kind = placement::sequential}),
                   "waves"));
}

TEST_CASE("a published method is refused where it is not defined, before anything is cut") {
    const cost_table costs = small_table();
    const auto refusal = [&](schedule_method method, placement kind, int waves, bool split) {
        return message_of<input_error>(costs, {.pipeline_degree = 2,
                                               .waves = waves,
                                               .microbatches = 4,
                                               .kind = kind,
                                               .split_backward = split,
                                               .method = method});
    };
    using m = schedule_method;
    CHECK(mentions(refusal(m::one_f_one_b, placement::folded, 1, true), "1f1b: needs one stage on each device"));
    CHECK(
        mentions(refusal(m::interleaved, placement::folded, 1, true), "interleaved: needs the interleaved placement"));
    CHECK(mentions(refusal(m::zb_h1, placement::interleaved, 2, true), "zb-h1: needs one stage on each device"));
    CHECK(mentions(refusal(m::zb_h1, placement::sequential, 1, false), "zb-h1: needs a split backward"));
    CHECK(mentions(refusal(m::zb_v, placement::sequential, 1, true), "zb-v: needs the folded placement"));
    CHECK(mentions(refusal(m::zb_v, placement::folded, 2, true), "zb-v: needs one wave"));
    CHECK(mentions(refusal(m::zb_v, placement::folded, 1, false), "zb-v: needs a split backward"));
    CHECK(mentions(refusal(m::dualpipe_v, placement::folded, 2, true), "dualpipe-v: needs one wave"));
    CHECK(mentions(refusal(m::dualpipe_v, placement::folded, 1, false), "dualpipe-v: needs a split backward"));
    CHECK(mentions(refusal(m::hanayo, placement::interleaved, 1, true), "hanayo: needs the folded placement"));
    const tune_candidate few{.pipeline_degree = 2, .kind = placement::interleaved, .method = m::interleaved};
    CHECK(mentions(message_of<input_error>(costs, few), "microbatches must be at least"));
}

TEST_CASE("DDPM's plans of every method: sound, no shorter than the bound; folded ones send no skip bytes") {
    const cost_table costs = analytic_costs(graph_of<ddpm_cifar10>().view(), cpu_core, 4, sizeof(float));
    int made = 0;
    for (const auto method : baseline_methods) {
        for (const auto kind : {placement::folded, placement::sequential, placement::interleaved}) {
            for (const int waves : {1, 2}) {
                for (const bool split : {true, false}) {
                    if (kind == placement::sequential && waves > 1) { continue; }
                    if (!unmet_need(method, kind, waves, split).empty()) { continue; }
                    CAPTURE(name_of(method));
                    CAPTURE(name_of(kind));
                    drawn_case c{.costs = costs,
                                 .c = {.pipeline_degree = 2, .waves = waves, .microbatches = 6, .kind = kind}};
                    c.c.split_backward = split;
                    c.c.method = method;
                    c.line = {5.0, 1.0};
                    require_sound(c, c.planned());
                    ++made;
                }
            }
        }
    }
    CHECK(made > 20);
}

TEST_CASE("DDPM's plans: a folded cut: a folded cut sends no skip bytes, and its bound is near") {
    const cost_table costs = analytic_costs(graph_of<ddpm_cifar10>().view(), cpu_core, 4, sizeof(float));
    for (const int devices : {2, 4}) {
        CAPTURE(devices);
        drawn_case c{.costs = costs, .c = {.pipeline_degree = devices, .microbatches = 2 * devices}};
        const plan folded = c.planned();
        require_sound(c, folded);
        CHECK(folded.predicted.step_us <= 1.15 * folded.predicted.lower_bound_us);
        c.c.kind = placement::sequential;
        const plan sequential = c.planned();
        require_sound(c, sequential);
        CHECK(sequential.predicted.skip_bytes > 0);
    }
}
