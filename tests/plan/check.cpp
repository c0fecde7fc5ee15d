#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

#include <plan/random_plan.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/print.hpp>

using pulse::instruction;
using pulse_test::planned_model;
using pulse_test::random_plans;

namespace {

using programs = std::vector<pulse::program>;

/// Positions (rank, instruction) of instructions that `wanted` accepts.
std::vector<std::pair<std::size_t, std::size_t>> positions(const programs& all,
                                                           const std::function<bool(const instruction&)>& wanted) {
    std::vector<std::pair<std::size_t, std::size_t>> found{};
    for (std::size_t r = 0; r != all.size(); ++r) {
        for (std::size_t i = 0; i != all[r].instructions.size(); ++i) {
            if (wanted(all[r].instructions[i])) { found.emplace_back(r, i); }
        }
    }
    return found;
}

template <class Op>
bool is(const instruction& i) {
    return std::holds_alternative<Op>(i);
}

std::optional<int> peer_of(const instruction& i) {
    if (const auto* s = std::get_if<pulse::op::send>(&i)) { return pulse::index_of(s->peer); }
    if (const auto* v = std::get_if<pulse::op::recv>(&i)) { return pulse::index_of(v->peer); }
    return std::nullopt;
}

/// Runs `mutate` on the programs of many random plans, as long as it finds something to change. Every result must be
/// refused with a text that says where.
void every_mutant_is_refused(std::uint32_t seed,
                             const std::function<bool(random_plans&, const pulse::step_model&, programs&)>& mutate) {
    random_plans make{seed};
    int mutants = 0;
    for (int i = 0; i != 400; ++i) {
        planned_model c = make();
        if (i % 2 == 1) { make.add_frozen_work(c); }
        const pulse::step_model model{c.planned, c.costs};
        programs all = pulse::lower(c.planned, model);
        REQUIRE(pulse::check(c.planned, model, all).ok());
        if (!mutate(make, model, all)) { continue; }
        ++mutants;
        const auto report = pulse::check(c.planned, model, all);
        CAPTURE(i);
        CHECK(!report.ok());
        CHECK(report.violation.find("rank ") == 0);
        CHECK(report.live_peak_bytes.empty());
    }
    CHECK(mutants > 50);
}

template <class T>
const T& any_of(random_plans& make, const std::vector<T>& from) {
    return from[static_cast<std::size_t>(make.between(0, static_cast<int>(from.size()) - 1))];
}

void erase(programs& all, std::pair<std::size_t, std::size_t> at) {
    auto& code = all[at.first].instructions;
    code.erase(code.begin() + static_cast<std::ptrdiff_t>(at.second));
}

} // namespace

TEST_CASE("a program without one of its instructions is refused") {
    every_mutant_is_refused(11, [](random_plans& make, const pulse::step_model&, programs& all) {
        erase(all, any_of(make, positions(all, [](const instruction&) { return true; })));
        return true;
    });
}

TEST_CASE("a program without one of its receives is refused") {
    every_mutant_is_refused(12, [](random_plans& make, const pulse::step_model&, programs& all) {
        const auto found = positions(all, is<pulse::op::recv>);
        if (found.empty()) { return false; }
        erase(all, any_of(make, found));
        return true;
    });
}

TEST_CASE("a message that is left out on both sides is refused") {
    every_mutant_is_refused(13, [](random_plans& make, const pulse::step_model&, programs& all) {
        const auto sends = positions(all, is<pulse::op::send>);
        if (sends.empty()) { return false; }
        const auto from = any_of(make, sends);
        const auto sent = std::get<pulse::op::send>(all[from.first].instructions[from.second]);
        const pulse::op::recv received{sent.message, pulse::device_id{static_cast<int>(from.first)}};
        erase(all, from);
        erase(all, positions(all, [&](const instruction& i) { return i == instruction{received}; })[0]);
        return true;
    });
}

TEST_CASE("a program without one of its releases is refused, and so is one that releases twice") {
    every_mutant_is_refused(14, [](random_plans& make, const pulse::step_model&, programs& all) {
        erase(all, any_of(make, positions(all, is<pulse::op::release>)));
        return true;
    });
    every_mutant_is_refused(15, [](random_plans& make, const pulse::step_model&, programs& all) {
        const auto [r, i] = any_of(make, positions(all, is<pulse::op::release>));
        auto& code = all[r].instructions;
        code.insert(code.begin() + make.between(static_cast<int>(i) + 1, static_cast<int>(code.size()) - 1), code[i]);
        return true;
    });
}

TEST_CASE("a program that does anything twice is refused") {
    every_mutant_is_refused(16, [](random_plans& make, const pulse::step_model&, programs& all) {
        const auto [r, i] = any_of(make, positions(all, [](const instruction&) { return true; }));
        auto& code = all[r].instructions;
        const instruction copy = code[i];
        code.insert(code.begin() + make.between(0, static_cast<int>(code.size())), copy);
        return true;
    });
}

TEST_CASE("two passes in exchanged places are refused") {
    every_mutant_is_refused(17, [](random_plans& make, const pulse::step_model&, programs& all) {
        // A recompute may stand anywhere between its inputs and its readers: it only holds memory for longer.
        const auto passes =
            positions(all, [](const instruction& i) { return pulse::is_compute(i) && !is<pulse::op::recompute>(i); });
        const auto a = any_of(make, passes);
        const auto b = any_of(make, passes);
        if (a.first != b.first || a == b) { return false; }
        std::swap(all[a.first].instructions[a.second], all[b.first].instructions[b.second]);
        return true;
    });
}

TEST_CASE("two messages with the same peer in exchanged order on one side are refused") {
    every_mutant_is_refused(18, [](random_plans& make, const pulse::step_model& model, programs& all) {
        const auto messages = positions(all, [](const instruction& i) { return peer_of(i).has_value(); });
        if (messages.empty()) { return false; }
        const auto a = any_of(make, messages);
        auto& code = all[a.first].instructions;
        for (std::size_t i = a.second + 1; i != code.size(); ++i) {
            if (peer_of(code[i]) != peer_of(code[a.second])) { continue; }
            (void)model;
            std::swap(code[a.second], code[i]);
            return true;
        }
        return false;
    });
}

TEST_CASE("an instruction in exchange with one that needs it is refused") {
    every_mutant_is_refused(19, [](random_plans& make, const pulse::step_model& model, programs& all) {
        const auto [r, i] =
            any_of(make, positions(all, [](const instruction& one) { return !is<pulse::op::release>(one); }));
        auto& code = all[r].instructions;
        for (const auto& written : model.accesses(static_cast<int>(r), code[i])) {
            if (written.mode != pulse::access::write) { continue; }
            for (std::size_t k = i + 1; k != code.size(); ++k) {
                const auto* freed = std::get_if<pulse::op::release>(&code[k]);
                if (freed != nullptr && freed->buffer == written.buffer) { break; }
                const auto touched = model.accesses(static_cast<int>(r), code[k]);
                if (std::any_of(touched.begin(), touched.end(),
                                [&](const auto& t) { return t.buffer == written.buffer; })) {
                    std::swap(code[i], code[k]);
                    return true;
                }
            }
        }
        return false;
    });
}

TEST_CASE("an instruction with a wrong number is refused") {
    every_mutant_is_refused(20, [](random_plans& make, const pulse::step_model&, programs& all) {
        const auto [r, i] =
            any_of(make, positions(all, [](const instruction& one) { return !is<pulse::op::optimizer_step>(one); }));
        const int off = make.coin() ? 1000 : -1000;
        std::visit(
            [&](auto& one) {
                using type = std::decay_t<decltype(one)>;
                if constexpr (requires { one.message; }) {
                    switch (make.between(0, 2)) {
                    case 0: one.message.index += off; break;
                    case 1: one.message.microbatch = pulse::microbatch_id{off}; break;
                    default: one.peer = pulse::device_id{off}; break;
                    }
                } else if constexpr (requires { one.buffer; }) {
                    make.coin() ? void(one.buffer.index += off)
                                : void(one.buffer.microbatch = pulse::microbatch_id{off});
                } else if constexpr (requires { one.task; }) {
                    one.task += off;
                } else if constexpr (requires { one.edge; }) {
                    make.coin() ? void(one.edge = pulse::edge_id{off})
                                : void(one.microbatch = pulse::microbatch_id{off});
                } else if constexpr (std::is_same_v<type, pulse::op::all_reduce>) {
                    one.stage = pulse::stage_id{off};
                } else if constexpr (requires { one.stage; }) {
                    make.coin() ? void(one.stage = pulse::stage_id{off})
                                : void(one.microbatch = pulse::microbatch_id{off});
                }
            },
            all[r].instructions[i]);
        return true;
    });
}

TEST_CASE("two ranks that send to each other first are named") {
    // One stage on each of two devices, one microbatch: rank 1 sends its gradient before it has the activation.
    planned_model c{};
    c.planned.pipeline_degree = 2;
    c.planned.split_backward = false;
    c.planned.cut = {pulse::placement::sequential, 2, 1, {{0, 0, 0, 0}, {1, 1, 1, 1}}};
    c.costs.layers.resize(2);
    for (auto& l : c.costs.layers) { l.output_bytes = 8; }
    c.planned.order.devices = {{{pulse::pass::forward, 0, 0, 0, 1}, {pulse::pass::backward_input, 0, 0, 3, 4}},
                               {{pulse::pass::forward, 1, 0, 1, 2}, {pulse::pass::backward_input, 1, 0, 2, 3}}};
    const pulse::step_model model{c.planned, c.costs};
    programs all = pulse::lower(c.planned, model);
    REQUIRE(pulse::check(c.planned, model, all).ok());
    CHECK(pulse::to_text(all[0]) == "rank 0\n"
                                    "0: forward 0 of microbatch 0\n"
                                    "1: send boundary 0 of microbatch 0 to rank 1\n"
                                    "2: recv boundary_gradient 0 of microbatch 0 from rank 1\n"
                                    "3: backward 0 of microbatch 0\n"
                                    "4: release activation 0 of microbatch 0\n"
                                    "5: release saved 0 of microbatch 0\n"
                                    "6: release deferred 0 of microbatch 0\n"
                                    "7: release activation_gradient 0 of microbatch 0\n"
                                    "8: optimizer_step\n");
    std::swap(all[0].instructions[1], all[0].instructions[2]);
    const auto report = pulse::check(c.planned, model, all);
    CHECK(
        report.violation ==
        "rank 0, instruction 1 (recv boundary_gradient 0 of microbatch 0 from rank 1) waits for rank 1, instruction 0 "
        "(recv boundary 0 of microbatch 0 from rank 0) waits for rank 0, instruction 1 (recv boundary_gradient 0 of "
        "microbatch 0 from rank 1): no rank can continue");
}

TEST_CASE("a skip whose size is not its source's is refused: its two sides would differ") {
    random_plans make{21};
    int found = 0;
    for (int i = 0; i != 200; ++i) {
        planned_model c = make();
        pulse::step_model honest{c.planned, c.costs};
        const int e = honest.edge_count() == 0 ? 0 : make.between(0, honest.edge_count() - 1);
        if (honest.edge_count() == 0 || !honest.is_crossing(e)) { continue; }
        ++found;
        c.costs.skips[static_cast<std::size_t>(e)].bytes += 4;
        const pulse::step_model model{c.planned, c.costs};
        const auto report = pulse::check(c.planned, model, pulse::lower(c.planned, model));
        CHECK(report.violation.find("bytes where it is sent and") != std::string::npos);
    }
    CHECK(found > 20);
}
