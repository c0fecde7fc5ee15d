#include <pulse/schedule/fill/fill_schedule.hpp>

#include <algorithm>
#include <cstddef>
#include <random>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/schedule/bound/frozen_bound.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/schedule/validate_fill.hpp>

#include "instances.hpp"
#include "random_work.hpp"

namespace fill_tests {

using namespace pulse;
using detail::device_orders;
using detail::frozen_bound_us;
using detail::frozen_end_bound_us;
using pulse::test::chain_problem;
using pulse::test::end_us;
using pulse::test::limited_problem;
using pulse::test::placed;
using pulse::test::random_split;
using pulse::test::up_to;

namespace {

/// Hall's condition over every set of devices.
double bound_of_all_sets(const schedule_problem& problem, const frozen_work& work, double passes_bound_us) {
    double bound = passes_bound_us;
    const auto busy = busy_us(problem);
    for (unsigned set = 1; set != 1U << static_cast<unsigned>(problem.devices); ++set) {
        double sum = 0;
        int count = 0;
        const auto inside = [&](int d) { return (set >> static_cast<unsigned>(d) & 1U) != 0; };
        for (int d = 0; d != problem.devices; ++d) {
            if (inside(d)) { sum += busy[static_cast<std::size_t>(d)], ++count; }
        }
        for (int c = 0; c != static_cast<int>(work.components.size()); ++c) {
            const auto& of = work.components[static_cast<std::size_t>(c)];
            for (int l = 0; l != static_cast<int>(of.layers.size()); ++l) {
                bool only = true;
                for (int d = 0; d != problem.devices; ++d) { only = only && (inside(d) || !work.may_host(c, l, d)); }
                if (only) { sum += least_work_us(of, l, l, work.samples); }
            }
        }
        bound = std::max(bound, sum / count);
    }
    if (work.samples > 0) {
        for (const auto& c : work.components) { bound = std::max(bound, c.duration_us(1)); }
    }
    return bound;
}

/// The earliest end of everything, if below `known`: passes keep their orders, calls take one sample each and run in
/// any order on any host. Enumerates every sequence of starts.
class exhaustive_fill {
public:
    exhaustive_fill(const schedule_problem& problem, const schedule& passes, const frozen_work& work, double known) :
        problem_{problem}, work_{work}, orders_{passes.devices}, best_{known}, next_(orders_.size(), 0),
        free_(orders_.size(), 0.0), after_{work.after_us},
        ends_(problem.stages.size() * 3 * static_cast<std::size_t>(problem.microbatches), -1.0) {
        for (int c = 0; c != static_cast<int>(work.components.size()); ++c) {
            for (int s = 0; s != work.samples; ++s) { chains_.push_back({c, s, 0, 0.0, -1}); }
        }
        after_.resize(orders_.size(), 0.0);
        const auto busy = busy_us(problem);
        for (const double b : busy) { left_ += b; }
        for (const auto& c : work.components) { left_ += least_work_us(c, work.samples); }
        search(0.0);
    }
    [[nodiscard]] double best() const { return best_; }
    [[nodiscard]] bool gave_up() const { return nodes_ > most_nodes; }

private:
    struct chain {
        int component{};
        int sample{};
        std::size_t layer{};
        double end{};
        int device{};
    };
    static constexpr long most_nodes = 300'000;

    double& end_of(const timed_pass& p) {
        return ends_[(static_cast<std::size_t>(p.stage) * 3 + static_cast<std::size_t>(p.op)) *
                         static_cast<std::size_t>(problem_.microbatches) +
                     static_cast<std::size_t>(p.microbatch)];
    }

    /// Tries starts in time order.
    void search(double since) {
        if (++nodes_ > most_nodes) { return; }
        double last = 0;
        double room = 0;
        for (std::size_t d = 0; d != free_.size(); ++d) {
            last = std::max(last, free_[d] + after_[d]);
            room += best_ - after_[d] - std::max(free_[d], since);
        }
        if (last >= best_ - 1e-9 || left_ > room - 1e-9) { return; }
        bool ended = true;
        for (std::size_t d = 0; d != orders_.size(); ++d) {
            if (next_[d] == orders_[d].size()) { continue; }
            ended = false;
            const timed_pass p = orders_[d][next_[d]];
            double start = free_[d];
            bool ready = true;
            for (const auto& need : problem_.dependencies) {
                if (!(need.after == stage_pass{p.op, p.stage})) { continue; }
                const double end = end_of({need.before.op, need.before.stage, p.microbatch});
                ready = ready && end >= 0;
                start = std::max(start, end + need.lag_us);
            }
            if (!ready || start < since) { continue; }
            const double length = problem_.stages[static_cast<std::size_t>(p.stage)].duration_us(p.op);
            const double free = std::exchange(free_[d], start + length);
            end_of(p) = start + length;
            ++next_[d];
            left_ -= length;
            search(start);
            left_ += length;
            --next_[d];
            end_of(p) = -1;
            free_[d] = free;
        }
        for (std::size_t i = 0; i != chains_.size(); ++i) {
            chain& c = chains_[i];
            const auto& of = work_.components[static_cast<std::size_t>(c.component)];
            if (c.layer == of.layers.size()) { continue; }
            ended = false;
            // samples are interchangeable: they begin in order
            if (c.layer == 0 && c.sample > 0 && chains_[i - 1].layer == 0) { continue; }
            const double length = of.layers[c.layer].duration_us(1);
            for (int d = 0; d != problem_.devices; ++d) {
                if (!work_.may_host(c.component, static_cast<int>(c.layer), d)) { continue; }
                const chain before = c;
                const double moved =
                    c.layer != 0 && c.device != d ? work_.link.transfer_us(of.layers[c.layer - 1].output_bytes) : 0.0;
                const double start = std::max(free_[static_cast<std::size_t>(d)], c.end + moved);
                if (start < since) { continue; }
                const double free = std::exchange(free_[static_cast<std::size_t>(d)], start + length);
                c = {c.component, c.sample, c.layer + 1, start + length, d};
                left_ -= length;
                search(start);
                left_ += length;
                c = before;
                free_[static_cast<std::size_t>(d)] = free;
            }
        }
        if (ended) { best_ = last; }
    }

    const schedule_problem& problem_;
    const frozen_work& work_;
    device_orders orders_;
    double best_;
    double left_{};
    long nodes_{};
    std::vector<std::size_t> next_;
    std::vector<double> free_;
    std::vector<double> after_;
    std::vector<double> ends_;
    std::vector<chain> chains_{};
};

} // namespace

TEST_SUITE("host") {
    TEST_CASE("fill: the bound is that of all sets of devices, and never falls when work grows") {
        std::mt19937 random{2};
        std::mt19937 splits{2};
        for (int round = 0; round != 500; ++round) {
            const auto problem = limited_problem(random, 5, 1, 3, 0);
            auto work = random_work(random, problem.devices, 4, 8);
            if (round % 2 == 1) { work.split = random_split(splits, work, problem.devices); }
            const double alone = lower_bound_us(problem) * up_to(random, 0, 1);
            const double found = frozen_bound_us(problem, work, alone);
            const double wanted = bound_of_all_sets(problem, work, alone);
            REQUIRE(found == doctest::Approx(wanted).epsilon(1e-6));
            REQUIRE(found <= wanted * (1 + 1e-9));
            ++work.samples;
            REQUIRE(frozen_bound_us(problem, work, alone) >= found * (1 - 1e-6));
        }
    }

    TEST_CASE("fill: 500 tiny instances against every order of passes and layers") {
        std::mt19937 random{3};
        std::mt19937 splits{3};
        int judged = 0;
        int equal = 0;
        int attained = 0; // how often the end equals its bound
        double worst = 0;
        while (judged != 500) {
            const auto problem = limited_problem(random, 2, 1, 2, 0);
            const auto passes = list_schedule(problem);
            auto work = random_work(random, problem.devices, 1, 2);
            work.components.front().max_chunk = 1;
            if (work.components.front().layers.size() > 2) { work.components.front().layers.resize(2); }
            if (judged % 4 < 2) { work.split = random_split(splits, work, problem.devices); }
            for (int d = 0; d != problem.devices && judged % 2 == 1; ++d) {
                work.after_us.push_back(up_to(random, 0, 40));
            }
            const auto found = fill_schedule(problem, passes, work, 0.0, {.placements = 20'000});
            REQUIRE_NOTHROW(validate_fill(problem, work, found.passes, found.tasks));
            const exhaustive_fill all{problem, passes, work, end_us(work, found)};
            if (all.gave_up()) { continue; }
            REQUIRE(all.best() >= found.lower_bound_us * (1 - 1e-9));
            const double end_bound = frozen_end_bound_us(problem, work, 0.0);
            REQUIRE(all.best() >= end_bound * (1 - 1e-9));
            attained += all.best() <= end_bound * (1 + 1e-9) ? 1 : 0;
            const double gap = gap_of(end_us(work, found), all.best());
            ++judged;
            equal += gap < 1e-9 ? 1 : 0;
            worst = std::max(worst, gap);
        }
        MESSAGE("optimal " << equal << " of " << judged << ", worst " << 100 * worst << " %; bounds attained "
                           << attained);
        CHECK(equal == judged);
        CHECK(attained >= 50);
    }
}

} // namespace fill_tests
