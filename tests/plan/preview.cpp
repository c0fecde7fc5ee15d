#include <doctest/doctest.h>

#include <cstddef>
#include <random>
#include <string>

#include <support/random_plan.hpp>
#include <pulse/core/error.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/plan/fingerprint.hpp>
#include <pulse/plan/json.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/step_model.hpp>

using namespace pulse;

namespace previewed_plans {

namespace {

struct drawn {
    cost_table costs{};
    plan planned{};
};

/// Two devices, four stages, three microbatches, two of them with a preview.
drawn draw(unsigned seed, placement kind = placement::folded) {
    std::mt19937 random{seed};
    drawn made;
    for (int l = 0; l != 8; ++l) {
        layer_cost layer{};
        layer.name = label{std::string_view{"l"}} + static_cast<unsigned>(l);
        layer.saved_bytes = 16;
        layer.output_bytes = 8;
        made.costs.layers.push_back(layer);
    }
    made.costs.skips.push_back({0, 7, 8});
    made.costs.input_bytes = 8;
    plan& p = made.planned;
    p.model = label{std::string_view{"m"}};
    p.pipeline_degree = 2;
    p.microbatches = 3;
    p.previews = 2;
    p.cut = test::draw_cut(made.costs, kind, 2, 1, random);
    p.order = test::draw_order(p.cut, 3, true, random, 2);
    return made;
}

std::string refusal_of(const auto& run) {
    try {
        run();
    } catch (const input_error& e) { return e.what(); }
    return {};
}

/// The first preview pass on a device.
timed_pass& first_preview(plan& p, std::size_t device) {
    for (timed_pass& one : p.order.devices[device]) {
        if (one.op == pass::preview) { return one; }
    }
    throw error{"the device has no preview"};
}

} // namespace

TEST_CASE("a plan with previews is read as it was written, and one without says nothing of them") {
    for (unsigned seed = 0; seed != 20; ++seed) {
        plan p = draw(seed).planned;
        const std::string text = print_plan(p);
        CHECK(text.find("\"previews\": 2") != std::string::npos);
        CHECK(parse_plan(text, "text") == p);
        plan other = p;
        std::mt19937 random{seed};
        other.previews = 0;
        other.order = test::draw_order(p.cut, 3, true, random);
        CHECK(print_plan(other).find("previews") == std::string::npos);
        CHECK(parse_plan(print_plan(other), "text") == other);
        CHECK(fingerprint_of(other) != fingerprint_of(p));
    }
}

TEST_CASE("a file with wrong previews is refused by its field") {
    const plan good = draw(1).planned;
    const auto refusal = [](const plan& p) { return refusal_of([&] { require_valid(p, "file"); }); };
    CHECK(refusal(good) == "");
    plan p = good;
    p.previews = 4;
    CHECK(refusal(p) == "file: previews must not be more than microbatches");
    p.previews = -1;
    CHECK(refusal(p) == "file: previews must not be negative");
    p.previews = 1;
    CHECK(refusal(p).find("names a microbatch without a preview") != std::string::npos);
    p = good;
    first_preview(p, 0).microbatch = 0;
    CHECK(refusal(p).find("names a microbatch without a preview") != std::string::npos);
    p = good;
    for (timed_pass& one : p.order.devices[0]) {
        if (one.op == pass::preview && one.stage == 3 && one.microbatch == 2) { one.end_us += 1e9; }
    }
    CHECK(refusal(p) != "");
    CHECK(refusal_of([&] {
              (void)parse_plan(print_plan(good).replace(print_plan(good).find("\"P\""), 3, "\"Q\""), "t");
          }).find("op") != std::string::npos);
}

TEST_CASE("previews are lowered to forwards that nothing is held of, and a prediction that the forward reads") {
    for (const placement kind : {placement::folded, placement::interleaved, placement::sequential}) {
        for (unsigned seed = 0; seed != 10; ++seed) {
            const drawn of = draw(seed, kind);
            const step_model model{of.planned, of.costs};
            auto programs = lower(of.planned, model);
            REQUIRE(check(of.planned, model, programs).violation == "");
            const bool apart = of.planned.cut.stages.front().device != of.planned.cut.stages.back().device;
            int previews = 0;
            int released = 0;
            int messages = 0;
            for (const program& one : programs) {
                for (std::size_t i = 0; i != one.instructions.size(); ++i) {
                    const instruction& what = one.instructions[i];
                    const auto* f = std::get_if<op::forward>(&what);
                    if (f != nullptr && is_preview(f->microbatch)) {
                        ++previews;
                        // A preview pass's results are released right after it, unless others read them.
                        const buffer_id saved{buffer_kind::saved, index_of(f->stage), f->microbatch};
                        std::size_t next = i + 1;
                        while (std::holds_alternative<op::stash>(one.instructions[next])) { ++next; }
                        for (; std::holds_alternative<op::release>(one.instructions[next]); ++next) {
                            released += std::get<op::release>(one.instructions[next]).buffer == saved ? 1 : 0;
                        }
                    }
                    const auto* out = std::get_if<op::send>(&what);
                    messages += out != nullptr && out->message.kind == message_kind::prediction ? 1 : 0;
                }
            }
            REQUIRE(previews == 2 * model.stage_count());
            REQUIRE(released == previews);
            REQUIRE(messages == (apart ? 2 : 0));
            // Programs that lack one of its sends, or have a backward of a preview, do not match the plan.
            auto wrong = programs;
            for (instruction& what : wrong[0].instructions) {
                if (auto* b = std::get_if<op::backward_input>(&what)) {
                    b->microbatch = preview_of(microbatch_id{2});
                    break;
                }
            }
            REQUIRE(check(of.planned, model, wrong).violation.find("a preview has no such pass") != std::string::npos);
        }
    }
    CHECK(to_text(op::forward{stage_id{1}, preview_of(microbatch_id{4})}) ==
          "forward 1 of the preview of microbatch 4");
}

TEST_CASE("an order whose forward comes before its preview cannot be lowered") {
    drawn of = draw(3);
    std::vector<timed_pass>& passes = of.planned.order.devices[0];
    std::size_t preview = 0;
    std::size_t forward = 0;
    for (std::size_t i = 0; i != passes.size(); ++i) {
        if (passes[i].microbatch != 2) { continue; }
        if (passes[i].op == pass::preview && passes[i].stage == 3) { preview = i; }
        if (passes[i].op == pass::forward && passes[i].stage == 0) { forward = i; }
    }
    REQUIRE(preview < forward);
    std::swap(passes[preview], passes[forward]);
    const step_model model{of.planned, of.costs};
    CHECK(refusal_of([&] { (void)lower(of.planned, model); }).find("can never start") != std::string::npos);
}

} // namespace previewed_plans
