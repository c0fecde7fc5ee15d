#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

#include <plan/random_plan.hpp>
#include <pulse/core/error.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/plan/layout.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/simulate/simulator.hpp>

using pulse_test::planned_model;
using pulse_test::random_plans;

namespace {

using programs = std::vector<pulse::program>;

planned_model with_frozen_work(random_plans& make) {
    planned_model made = make();
    make.add_frozen_work(made);
    return made;
}

/// The error of lowering a plan after `spoil`, or "".
std::string refusal(const std::function<void(planned_model&)>& spoil) {
    random_plans make{7};
    planned_model c = with_frozen_work(make);
    while (c.planned.frozen_tasks.back().empty() || c.planned.pipeline_degree < 2) { c = with_frozen_work(make); }
    spoil(c);
    try {
        const pulse::step_model model{c.planned, c.costs};
        static_cast<void>(pulse::lower(c.planned, model));
    } catch (const pulse::input_error& e) { return e.what(); }
    return "";
}

/// Swaps two consecutive receives of results from the same rank; false if there are none.
bool swap_receives(programs& all) {
    for (auto& of_rank : all) {
        std::map<int, std::size_t> before{}; // by peer
        for (std::size_t i = 0; i != of_rank.instructions.size(); ++i) {
            const auto* in = std::get_if<pulse::op::recv>(&of_rank.instructions[i]);
            if (in == nullptr) { continue; }
            const auto [found, is_first] = before.try_emplace(pulse::index_of(in->peer), i);
            const auto& other = of_rank.instructions[found->second];
            if (!is_first && in->message.kind == pulse::message_kind::encoded &&
                std::get<pulse::op::recv>(other).message.kind == pulse::message_kind::encoded) {
                std::swap(of_rank.instructions[i], of_rank.instructions[found->second]);
                return true;
            }
            found->second = i;
        }
    }
    return false;
}

/// Moves the send of a result before the task that computes it; false if there is none.
bool send_too_early(programs& all) {
    for (auto& of_rank : all) {
        for (std::size_t i = 0; i != of_rank.instructions.size(); ++i) {
            const auto* out = std::get_if<pulse::op::send>(&of_rank.instructions[i]);
            if (out == nullptr || out->message.kind != pulse::message_kind::encoded) { continue; }
            std::rotate(of_rank.instructions.begin(), of_rank.instructions.begin() + static_cast<std::ptrdiff_t>(i),
                        of_rank.instructions.begin() + static_cast<std::ptrdiff_t>(i + 1));
            return true;
        }
    }
    return false;
}

} // namespace

TEST_CASE("frozen layers run once on every sample, and who reads a result keeps it once") {
    random_plans make{61};
    std::size_t sent = 0;
    for (int i = 0; i != 300; ++i) {
        const planned_model c = with_frozen_work(make);
        const pulse::step_model model{c.planned, c.costs};
        const programs all = pulse::lower(c.planned, model);
        CAPTURE(i);
        const auto report = pulse::check(c.planned, model, all);
        REQUIRE_MESSAGE(report.ok(), report.violation);
        std::map<std::vector<int>, int> runs{};  // by component, layer, sample
        std::map<std::vector<int>, int> keeps{}; // by device, component, sample
        for (const auto& of_rank : all) {
            const auto& mine = c.planned.frozen_tasks[static_cast<std::size_t>(of_rank.device)];
            for (const auto& what : of_rank.instructions) {
                if (const auto* e = std::get_if<pulse::op::encode>(&what)) {
                    const pulse::frozen_task& t = mine[static_cast<std::size_t>(e->task)];
                    for (int l = t.first_layer; l <= t.last_layer; ++l) {
                        for (int s = 0; s != t.samples; ++s) { ++runs[{t.component, l, t.first_sample + s}]; }
                    }
                } else if (const auto* k = std::get_if<pulse::op::keep>(&what)) {
                    const pulse::frozen_task& t = model.frozen().task(k->task);
                    for (int s = 0; s != t.samples; ++s) { ++keeps[{of_rank.device, t.component, t.first_sample + s}]; }
                } else if (const auto* out = std::get_if<pulse::op::send>(&what)) {
                    sent += out->message.kind == pulse::message_kind::encoded ? 1U : 0U;
                }
            }
        }
        std::size_t layers = 0;
        std::size_t readers = 0;
        const int first = c.planned.cut.stages.front().device;
        const int last = c.planned.cut.stages.back().device;
        for (const auto& one : c.costs.frozen) {
            layers += one.layers.size();
            readers += one.feeds == pulse::frozen_use::input && first != last ? 2U : 1U;
        }
        const auto samples = static_cast<std::size_t>(c.planned.microbatches * c.planned.microbatch_size);
        CHECK(runs.size() == layers * samples);
        CHECK(keeps.size() == readers * samples);
        for (const auto& one : runs) { CHECK(one.second == 1); }
        for (const auto& one : keeps) { CHECK(one.second == 1); }
    }
    CHECK(sent > 500);
}

TEST_CASE("a result that is received out of order, or sent before it is made, is refused") {
    for (const auto mutate : {swap_receives, send_too_early}) {
        random_plans make{62};
        int mutants = 0;
        for (int i = 0; i != 300; ++i) {
            const planned_model c = with_frozen_work(make);
            const pulse::step_model model{c.planned, c.costs};
            programs all = pulse::lower(c.planned, model);
            if (!mutate(all)) { continue; }
            ++mutants;
            CHECK(!pulse::check(c.planned, model, all).ok());
        }
        CHECK(mutants > 50);
    }
}

TEST_CASE("a plan without frozen tasks has the same programs and memory whether or not frozen components exist") {
    random_plans make{63};
    for (int i = 0; i != 100; ++i) {
        const planned_model without = make();
        planned_model none = without;
        make.add_frozen_work(none);
        none.planned.frozen_tasks.clear();
        none.planned.frozen_hosts.clear();
        const pulse::step_model before{without.planned, without.costs};
        const pulse::step_model model{none.planned, none.costs};
        const programs all = pulse::lower(none.planned, model);
        CHECK(all == pulse::lower(without.planned, before));
        CHECK(pulse::peak_bytes(none.planned, none.costs, {}) == pulse::peak_bytes(without.planned, without.costs, {}));
        CHECK(pulse::simulate(none.planned, model, all) == pulse::simulate(without.planned, before, all));
    }
}

TEST_CASE("a rank counts its networks and two rooms for the results that it reads") {
    random_plans make{64};
    for (int i = 0; i != 100; ++i) {
        const planned_model c = with_frozen_work(make);
        const pulse::step_model model{c.planned, c.costs};
        const programs all = pulse::lower(c.planned, model);
        const auto peaks = pulse::peak_bytes(c.planned, model, all, {});
        for (std::size_t d = 0; d != peaks.size(); ++d) {
            std::int64_t rooms = 0;
            std::int64_t networks = 0;
            for (std::size_t n = 0; n != c.costs.frozen.size(); ++n) {
                const auto& one = c.costs.frozen[n];
                if (model.frozen().reads(static_cast<int>(d), static_cast<int>(n))) {
                    rooms += 2 * one.result_bytes * c.planned.microbatches * c.planned.microbatch_size;
                }
                const auto& tasks = c.planned.frozen_tasks[d];
                int samples = 0;
                std::int64_t live = 0;
                for (int l = 0; l != static_cast<int>(one.layers.size()); ++l) {
                    bool runs = false;
                    for (const pulse::frozen_task& t : tasks) {
                        if (t.component != static_cast<int>(n)) { continue; }
                        runs = runs || (t.first_layer <= l && l <= t.last_layer);
                        samples = std::max(samples, t.samples);
                    }
                    networks += runs ? one.parameter_bytes(l, l) : 0;
                    live = std::max(live, runs ? one.live_bytes(l, l) : 0);
                }
                networks += samples * live;
            }
            CHECK(pulse::lay_out(model, all[d]).result_bytes == rooms);
            CHECK(peaks[d] >= networks + rooms);
            CHECK(model.frozen().network_bytes(static_cast<int>(d)) == networks);
        }
    }
}

TEST_CASE("on one device a step is its passes and its tasks") {
    random_plans make{65};
    for (int i = 0; i != 200; ++i) {
        planned_model c = make();
        if (c.planned.pipeline_degree != 1) { continue; }
        const auto step_us = [&] {
            const pulse::step_model model{c.planned, c.costs};
            return pulse::simulate(c.planned, model, pulse::lower(c.planned, model)).step_us;
        };
        const double before_us = step_us();
        make.add_frozen_work(c);
        double tasks_us = 0;
        for (const auto& t : c.planned.frozen_tasks[0]) { tasks_us += t.end_us - t.start_us; }
        CHECK(step_us() == doctest::Approx(before_us + tasks_us));
    }
}

TEST_CASE("frozen tasks that do not do a step's work are refused by name") {
    CHECK(refusal([](planned_model&) {}).empty());
    CHECK(refusal([](planned_model& c) { c.planned.frozen_tasks.back().pop_back(); }).find("does not run on sample") !=
          std::string::npos);
    CHECK(refusal([](planned_model& c) {
              auto& tasks = c.planned.frozen_tasks.back();
              tasks.push_back(tasks.back());
          }).find("runs twice on sample") != std::string::npos);
    const auto with_task = [](const auto& change) {
        return refusal([&](planned_model& c) { change(c, c.planned.frozen_tasks.back().back()); });
    };
    CHECK(with_task([](auto&, auto& t) { t.device = 0; }).find("belongs to another device") != std::string::npos);
    CHECK(with_task([](auto&, auto& t) { t.component = 9; }).find("a component that the cost table lacks") !=
          std::string::npos);
    CHECK(with_task([](auto&, auto& t) { t.last_layer = 99; }).find("layers that its component") != std::string::npos);
    CHECK(with_task([](auto&, auto& t) { t.samples = 99; }).find("names samples that a step") != std::string::npos);
    CHECK(with_task([](auto& c, auto& t) {
              auto& of = c.costs.frozen[static_cast<std::size_t>(t.component)];
              of.max_chunk = t.samples - 1;
          }).find("more samples than the") != std::string::npos);
    CHECK(with_task([](auto& c, auto&) { c.planned.frozen_hosts.back().clear(); }).find("does not host") !=
          std::string::npos);
    CHECK(with_task([](auto& c, auto&) { c.planned.frozen_tasks.pop_back(); }).find("one list for each device") !=
          std::string::npos);
    CHECK(with_task([](auto& c, auto&) {
              c.planned.frozen_hosts.pop_back();
          }).find("frozen_hosts must have one list") != std::string::npos);
    // The second half of a chain comes before its first.
    CHECK(refusal([](planned_model& c) {
              c.costs.frozen.resize(1);
              c.costs.frozen[0].max_chunk = 1000;
              c.costs.frozen[0].layers.resize(1);
              c.costs.frozen[0].layers.push_back(c.costs.frozen[0].layers[0]);
              const int all = c.planned.microbatches * c.planned.microbatch_size;
              c.planned.frozen_tasks.assign(c.planned.frozen_tasks.size(), {});
              c.planned.frozen_tasks[0] = {{0, 1, 1, 0, all, 0, 1e6, 2e6}, {0, 0, 0, 0, all, 0, 3e6, 4e6}};
          }).find("] can never start") != std::string::npos);
}

TEST_CASE("a message of frozen work says whether it goes to a rank or to a task") {
    const pulse::microbatch_id third{3};
    CHECK(pulse::to_text(pulse::message_id{pulse::message_kind::encoded, 2, third}) ==
          "encoded by frozen task 2 for rank 3");
    CHECK(pulse::to_text(pulse::message_id{pulse::message_kind::encoding, 2, third}) ==
          "encoding by frozen task 2 for task 3");
}
