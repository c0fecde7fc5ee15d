#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <partition/random_table.hpp>
#include <support/drawn_recomputation.hpp>
#include <pulse/core/error.hpp>
#include <pulse/partition/skip_aware.hpp>
#include <pulse/schedule/baselines/gpipe.hpp>
#include <pulse/schedule/baselines/one_f_one_b.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/make_problem.hpp>
#include <pulse/schedule/synthesize.hpp>
#include <pulse/schedule/validate.hpp>

using namespace pulse;
using namespace pulse::test;

namespace previewed_problems {

namespace {

struct drawn {
    cost_table costs{};
    partition cut{};
    problem_options options{};

    [[nodiscard]] schedule_problem problem() const { return make_problem(costs, cut, options); }
};

drawn draw(std::mt19937& random, int devices, int waves, int layers, int microbatches) {
    const auto between = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    drawn made;
    for (;;) {
        made.costs = random_table(random, layers, static_cast<skip_pattern>(between(0, 2)));
        maybe_partition cut = find_skip_aware_partition(made.costs, devices, waves);
        if (!cut) { continue; }
        made.cut = *cut;
        break;
    }
    made.costs.input_bytes = 8;
    for (layer_cost& l : made.costs.layers) { l.saved_bytes = between(0, 9) * 8; }
    made.options.microbatches = microbatches;
    made.options.previews = between(1, microbatches);
    made.options.split_backward = between(0, 1) == 1;
    made.options.recompute = drawn_recomputation(between, made.cut.stages.size());
    made.options.link = {.latency_us = static_cast<double>(between(0, 2)), .bandwidth_gb_per_s = 1.0};
    return made;
}

/// Finds the shortest schedule over every order in which passes can be appended to their devices.
class every_order {
public:
    explicit every_order(const schedule_problem& problem, long most) :
        index_{detail::index_problem(problem, detail::taken_chains::several)}, left_{most}, next_{index_.first},
        end_(static_cast<std::size_t>(index_.ops() * index_.microbatches), 0.0),
        free_(static_cast<std::size_t>(index_.devices), 0.0) {}

    /// Returns false if there are too many.
    [[nodiscard]] bool solve() {
        extend(index_.instances(), 0.0);
        return left_ > 0;
    }
    [[nodiscard]] double best() const { return best_; }

private:
    detail::indexed_problem index_;
    long left_;
    std::vector<int> next_;
    std::vector<double> end_;
    std::vector<double> free_;
    double best_{std::numeric_limits<double>::infinity()};

    void extend(std::size_t missing, double now) {
        if (missing == 0) { best_ = std::min(best_, now); }
        if (missing == 0 || now >= best_ || --left_ <= 0) { return; }
        const auto m = static_cast<std::size_t>(index_.microbatches);
        for (std::size_t op = 0; op != next_.size(); ++op) {
            const int k = next_[op];
            if (k == index_.end[op]) { continue; }
            double start = free_[static_cast<std::size_t>(index_.device[op])];
            bool ready = true;
            for (const auto& link : index_.before[op]) {
                const auto p = static_cast<std::size_t>(link.op);
                if (!index_.runs_on(p, k)) { continue; }
                ready = ready && next_[p] > k;
                start = std::max(start, end_[p * m + static_cast<std::size_t>(k)] + link.lag_us);
            }
            if (!ready) { continue; }
            double& free = free_[static_cast<std::size_t>(index_.device[op])];
            const double before = free;
            free = end_[op * m + static_cast<std::size_t>(k)] = start + index_.duration[op];
            ++next_[op];
            extend(missing - 1, std::max(now, free));
            --next_[op];
            free = before;
        }
    }
};

} // namespace

TEST_CASE("microbatches with previews are ordered, no faster than the bound, which counts them") {
    std::mt19937 random{11};
    double gaps = 0;
    for (int n = 0; n != 60; ++n) {
        CAPTURE(n);
        const int devices = 1 + n % 4;
        const drawn of = draw(random, devices, 1 + n % 2, 16, 2 + n % 7);
        const schedule_problem problem = of.problem();
        const list_result found = list_search(problem, {.explored_runs = 20});
        REQUIRE(!find_violation(problem, found.order).broken());
        REQUIRE(found.makespan_us >= found.lower_bound_us * (1 - 1e-12));
        REQUIRE(found.makespan_us <= gpipe(problem).makespan_us() * (1 + 1e-12));
        drawn without = of;
        without.options.previews = 0;
        REQUIRE(found.lower_bound_us >= lower_bound_us(without.problem()) * (1 - 1e-12));
        std::vector<double> load(static_cast<std::size_t>(devices), 0.0);
        for (const auto& s : problem.stages) {
            load[static_cast<std::size_t>(s.device)] +=
                problem.microbatches * (s.forward_us + s.backward_input_us + s.backward_weight_us) +
                problem.previews * s.preview_us;
        }
        REQUIRE(found.lower_bound_us >= *std::max_element(load.begin(), load.end()) * (1 - 1e-12));
        gaps += found.gap();
    }
    MESSAGE("mean gap to the bound: ", 100.0 * gaps / 60, " %");
    CHECK(gaps / 60 < 0.1);
}

TEST_CASE("under limits of memory previews do not stall a step, down to what one microbatch takes") {
    std::mt19937 random{12};
    int tight = 0;
    for (int n = 0; n != 60; ++n) {
        CAPTURE(n);
        const drawn of = draw(random, 1 + n % 4, 1 + n % 2, 16, 2 + n % 6);
        schedule_problem problem = of.problem();
        const auto free = peak_holds(problem, list_schedule(problem, {.effort = list_effort::one, .explored_runs = 0}));
        const auto memory =
            detail::profile_memory(problem, detail::index_problem(problem, detail::taken_chains::several));
        for (const int part : {0, 1, 3}) {
            problem.memory_limit_bytes.clear();
            for (std::size_t d = 0; d != free.size(); ++d) {
                const std::int64_t least = memory.peak_from[d].front();
                problem.memory_limit_bytes.push_back(least + std::max<std::int64_t>(0, free[d] - least) * part / 4);
            }
            const list_result found = list_search(problem, {.explored_runs = 5});
            REQUIRE(!find_violation(problem, found.order).broken());
            REQUIRE(found.makespan_us >= found.lower_bound_us * (1 - 1e-12));
            ++tight;
        }
        --problem.memory_limit_bytes[0];
        for (std::size_t d = 0; d != free.size(); ++d) {
            problem.memory_limit_bytes[d] = memory.peak_from[d].front() - 1;
        }
        REQUIRE_THROWS_AS(static_cast<void>(list_search(problem)), infeasible_error);
    }
    CHECK(tight == 180);
}

TEST_CASE("the bound with previews is no more than the best of all orders, which list scheduling mostly finds") {
    std::mt19937 random{13};
    int solved = 0;
    int met = 0;
    for (int n = 0; n != 60; ++n) {
        CAPTURE(n);
        drawn of = draw(random, 1 + n % 2, 1, 4 + n % 3, 1 + n % 2);
        of.options.split_backward = n % 4 == 0;
        const schedule_problem problem = of.problem();
        every_order all{problem, 400'000};
        if (!all.solve()) { continue; }
        const list_result found = list_search(problem);
        ++solved;
        REQUIRE(found.lower_bound_us <= all.best() * (1 + 1e-9));
        REQUIRE(found.makespan_us >= all.best() * (1 - 1e-9));
        met += found.makespan_us <= all.best() * (1 + 1e-9) ? 1 : 0;
    }
    CHECK(solved >= 30);
    CHECK(met >= solved * 3 / 4);
}

TEST_CASE("validate finds what is wrong with a preview") {
    std::mt19937 random{14};
    drawn of = draw(random, 2, 1, 8, 4);
    of.options.previews = 2;
    for (layer_cost& l : of.costs.layers) { l.forward_us += 1; }
    const schedule_problem problem = of.problem();
    const schedule good = list_schedule(problem);
    REQUIRE(is_valid(problem, good));
    const auto with = [&](const auto& change) {
        schedule bad = good;
        for (auto& passes : bad.devices) {
            for (std::size_t i = 0; i != passes.size(); ++i) {
                if (passes[i].op == pass::preview && passes[i].microbatch == 3 && passes[i].stage == 0) {
                    change(passes, i);
                    return find_violation(problem, bad).rule;
                }
            }
        }
        return schedule_rule::none;
    };
    CHECK(with([](auto& passes, std::size_t i) { passes[i].microbatch = 1; }) == schedule_rule::unknown_pass);
    CHECK(with([](auto& passes, std::size_t i) { passes.erase(passes.begin() + static_cast<std::ptrdiff_t>(i)); }) ==
          schedule_rule::missing);
    CHECK(with([](auto& passes, std::size_t i) {
              timed_pass late = passes[i];
              passes.erase(passes.begin() + static_cast<std::ptrdiff_t>(i));
              const double length = late.end_us - late.start_us;
              late.start_us = passes.back().end_us;
              late.end_us = late.start_us + length;
              passes.push_back(late);
          }) == schedule_rule::dependency);
    CHECK(with([](auto& passes, std::size_t i) { passes[i].end_us += 0.5; }) == schedule_rule::duration);
}

TEST_CASE("what orders no previews refuses them, and ill-formed ones are refused") {
    std::mt19937 random{15};
    drawn of = draw(random, 2, 1, 8, 4);
    of.options.previews = 2;
    schedule_problem problem = of.problem();
    CHECK_THROWS_WITH_AS(static_cast<void>(synthesize(problem)),
                         "schedule_problem.previews: only list_search and gpipe accept previews", input_error);
    CHECK_THROWS_AS(static_cast<void>(one_f_one_b(problem)), input_error);
    problem.previews = 5;
    CHECK_THROWS_WITH_AS(static_cast<void>(list_search(problem)),
                         "schedule_problem.previews: must be from 0 to microbatches", input_error);
    problem = of.problem();
    std::erase_if(problem.dependencies, [](const dependency& d) { return d.before == stage_pass{pass::preview, 3}; });
    CHECK_THROWS_AS(static_cast<void>(list_search(problem)), input_error);
    problem = of.problem();
    problem.further_chains = {2};
    CHECK_THROWS_WITH_AS(static_cast<void>(list_search(problem)),
                         "schedule_problem.previews: must be 0 for several chains", input_error);
    of.options.previews = 5;
    CHECK_THROWS_WITH_AS(static_cast<void>(of.problem()), "make_problem: previews must be from 0 to microbatches",
                         input_error);
}

} // namespace previewed_problems
