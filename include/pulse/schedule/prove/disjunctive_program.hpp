#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/prove/ilp_model.hpp>
#include <pulse/schedule/prove/window_state.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/timed_orders.hpp>

namespace pulse::detail {

/// The disjunctive program under the windows of a `window_state`: every schedule of the problem with a makespan of at
/// most the state's cutoff is a solution, and every solution is a schedule.
///
/// Columns, microseconds: 0 the makespan; then the start of every instance; then a binary for every two instances of a
/// device whose order is open, 1 when the first runs first; then, where a hold has two ends, whether both have ended.
/// Rows: dependencies; microbatch order; settled orders; open orders, with the tightest big M that the windows allow;
/// if k runs before l, then k - 1 runs before l and k before l + 1; memory at the start of every instance that takes
/// some, linear in the binaries.
class disjunctive_program {
public:
    /// `bound` bounds the makespan from below and provides the tails. A window_propagator must have narrowed `state`.
    constexpr disjunctive_program(const window_problem& facts, const window_state& state, const schedule_bound& bound) :
        facts_{&facts}, state_{&state}, bound_{&bound} {
        add_columns();
        add_dependencies();
        add_orders();
        add_memory();
        add_machine_rows();
    }

    [[nodiscard]] constexpr const ilp_model& model() const noexcept { return model_; }

    /// The schedule of a solution, with every pass as early as its order allows.
    [[nodiscard]] constexpr schedule decode(const schedule_problem& problem, const std::vector<double>& values) const {
        device_orders orders{};
        for (const auto& ops : facts_->index.on_device) {
            orders.emplace_back();
            std::vector<std::pair<int, std::size_t>> ranked{};
            for (const int op : ops) {
                for (int k = 0; k != facts_->index.microbatches; ++k) {
                    int before = k;
                    for (const int a : ops) {
                        if (a != op) { before += count_before(a, op, k, values); }
                    }
                    ranked.emplace_back(before, facts_->at(op, k));
                }
            }
            std::sort(ranked.begin(), ranked.end(), [&](const auto& x, const auto& y) {
                const double sx = values[1 + x.second];
                const double sy = values[1 + y.second];
                return x.first != y.first ? x.first < y.first : sx != sy ? sx < sy : x.second < y.second;
            });
            for (const auto& r : ranked) { orders.back().push_back(facts_->index.timed(static_cast<int>(r.second))); }
        }
        return timed_from_orders(problem, orders);
    }

private:
    /// constant + coefficient x column: whether something is before something else.
    struct indicator {
        double constant{};
        double coefficient{};
        int column{};
    };

    [[nodiscard]] static constexpr double value_of(const indicator& i, const std::vector<double>& values) {
        return i.constant + (i.coefficient == 0 ? 0.0 : i.coefficient * values[static_cast<std::size_t>(i.column)]);
    }
    [[nodiscard]] constexpr double duration(int op) const { return facts_->duration(op); }
    [[nodiscard]] constexpr int start_column(int op, int k) const { return 1 + static_cast<int>(facts_->at(op, k)); }
    [[nodiscard]] constexpr double earliest(int op, int k) const { return state_->start[facts_->at(op, k)]; }
    [[nodiscard]] constexpr double latest(int op, int k) const {
        return std::max(earliest(op, k), state_->due[facts_->at(op, k)] - duration(op));
    }

    /// Whether instance k of `a` runs before instance l of `b`, another operation of the device.
    [[nodiscard]] constexpr indicator before(int a, int k, int b, int l) const {
        if (k < state_->surely_before(*facts_, a, b, l)) { return {1, 0, 0}; }
        if (!state_->open(*facts_, a, k, b, l)) { return {0, 0, 0}; }
        if (a < b) { return {0, 1, column_of_[facts_->order_at(a, b, l)] + k}; }
        return {1, -1, column_of_[facts_->order_at(b, a, k)] + l};
    }
    [[nodiscard]] constexpr int count_before(int a, int b, int l, const std::vector<double>& values) const {
        int count = state_->surely_before(*facts_, a, b, l);
        while (count != facts_->index.microbatches && value_of(before(a, count, b, l), values) > 0.5) { ++count; }
        return count;
    }

    constexpr void add_columns() {
        model_.add_column({std::min(bound_->makespan_us, state_->cutoff_us), state_->cutoff_us, 1, false});
        const int m = facts_->index.microbatches;
        for (int op = 0; op != facts_->index.ops(); ++op) {
            for (int k = 0; k != m; ++k) { model_.add_column({earliest(op, k), latest(op, k), 0, false}); }
        }
        // column_of_ + k is the column of instance k of `a`; the columns of open ones are adjacent.
        column_of_.resize(facts_->orders, 0);
        for (const auto& ops : facts_->index.on_device) {
            for (const int a : ops) {
                for (const int b : ops) {
                    if (a >= b) { continue; }
                    for (int l = 0; l != m; ++l) {
                        const int from = state_->surely_before(*facts_, a, b, l);
                        const int to = state_->perhaps_before(*facts_, a, b, l);
                        column_of_[facts_->order_at(a, b, l)] = static_cast<int>(model_.columns.size()) - from;
                        for (int k = from; k < to; ++k) { model_.add_column({0, 1, 0, true}); }
                    }
                }
            }
        }
    }

    /// Adds start(j) >= start(i) + distance, unless the windows imply it.
    constexpr void add_distance(int a, int k, int b, int l, double distance) {
        if (earliest(b, l) >= latest(a, k) + distance) { return; }
        model_.add_row(distance, infinity, {{start_column(b, l), 1}, {start_column(a, k), -1}});
    }

    constexpr void add_dependencies() {
        const auto& index = facts_->index;
        for (const int op : index.alone) {
            for (int k = 0; k != index.microbatches; ++k) {
                for (const auto& link : index.before[static_cast<std::size_t>(op)]) {
                    add_distance(link.op, k, op, k, duration(link.op) + link.lag_us);
                }
                if (k != 0) { add_distance(op, k - 1, op, k, duration(op)); }
                model_.add_row(duration(op) + bound_->tail[facts_->at(op, k)], infinity,
                               {{0, 1}, {start_column(op, k), -1}});
            }
        }
    }

    constexpr void add_orders() {
        const int m = facts_->index.microbatches;
        for (const auto& ops : facts_->index.on_device) {
            for (const int a : ops) {
                for (const int b : ops) {
                    if (a == b) { continue; }
                    for (int l = 0; l != m; ++l) { add_orders(a, b, l); }
                }
            }
        }
    }
    constexpr void add_orders(int a, int b, int l) {
        const int sure = state_->surely_before(*facts_, a, b, l);
        const bool new_one = l == 0 || state_->surely_before(*facts_, a, b, l - 1) != sure;
        if (sure != 0 && new_one) { add_distance(a, sure - 1, b, l, duration(a)); }
        if (a > b) { return; }
        const int to = state_->perhaps_before(*facts_, a, b, l);
        for (int k = sure; k < to; ++k) {
            const int x = column_of_[facts_->order_at(a, b, l)] + k;
            const int i = start_column(a, k);
            const int j = start_column(b, l);
            const double least = earliest(b, l) - latest(a, k);
            if (least < duration(a)) { model_.add_row(least, infinity, {{j, 1}, {i, -1}, {x, least - duration(a)}}); }
            const double turned = earliest(a, k) - latest(b, l);
            if (turned < duration(b)) {
                model_.add_row(duration(b), infinity, {{i, 1}, {j, -1}, {x, duration(b) - turned}});
            }
            if (k != sure) { model_.add_row(0, infinity, {{x - 1, 1}, {x, -1}}); }
            if (l + 1 != facts_->index.microbatches && state_->open(*facts_, a, k, b, l + 1)) {
                model_.add_row(0, infinity, {{column_of_[facts_->order_at(a, b, l + 1)] + k, 1}, {x, -1}});
            }
        }
    }

    /// A row under construction; a column may occur repeatedly.
    struct sum {
        double constant{};
        std::vector<ilp_term> terms{};

        constexpr void add(const indicator& i, double factor) {
            constant += factor * i.constant;
            if (i.coefficient != 0 && factor != 0) { terms.push_back({i.column, factor * i.coefficient}); }
        }
        constexpr void merge() {
            std::sort(terms.begin(), terms.end(), [](const auto& x, const auto& y) { return x.column < y.column; });
            std::size_t count = 0;
            for (const auto& t : terms) {
                if (count != 0 && terms[count - 1].column == t.column) {
                    terms[count - 1].coefficient += t.coefficient;
                } else {
                    terms[count++] = t;
                }
            }
            terms.resize(count);
            terms.erase(std::remove_if(terms.begin(), terms.end(), [](const auto& t) { return t.coefficient == 0; }),
                        terms.end());
        }
    };

    constexpr void add_memory() {
        const int m = facts_->index.microbatches;
        for (std::size_t d = 0; d != facts_->holds.size(); ++d) {
            const auto& holds = facts_->holds[d];
            for (const int b : facts_->index.on_device[d]) {
                const auto begins = [&](const window_problem::hold& h) { return h.begin == b; };
                if (std::none_of(holds.begin(), holds.end(), begins)) { continue; }
                for (int l = 0; l != m; ++l) { add_memory(d, b, l); }
            }
        }
    }
    /// What is held when instance l of `b` starts, in units of the largest hold, so that rows are of similar size.
    constexpr void add_memory(std::size_t d, int b, int l) {
        const int m = facts_->index.microbatches;
        const auto runs_before = [&](int a, int k) {
            return a == b ? indicator{k < l ? 1.0 : 0.0, 0, 0} : before(a, k, b, l);
        };
        std::int64_t unit = 1;
        for (const auto& h : facts_->holds[d]) { unit = std::max(unit, h.bytes); }
        sum held{};
        double most = 0;
        for (const auto& h : facts_->holds[d]) {
            const double bytes = static_cast<double>(h.bytes) / static_cast<double>(unit);
            for (int k = 0; k != m; ++k) {
                const indicator begun = h.begin == b && k == l ? indicator{1, 0, 0} : runs_before(h.begin, k);
                if (begun.constant == 0 && begun.coefficient == 0) { continue; }
                const indicator over = both_are_over(runs_before(h.end, k), runs_before(h.also_end, k));
                if (over.constant == 1 && over.coefficient == 0) { continue; }
                held.add(begun, bytes);
                held.add(over, -bytes);
                most += bytes;
            }
        }
        const double limit = static_cast<double>(facts_->limit[d]) / static_cast<double>(unit);
        if (most <= limit) { return; }
        held.merge();
        if (!held.terms.empty()) { model_.add_row(-infinity, limit - held.constant, held.terms); }
    }
    constexpr indicator both_are_over(const indicator& one, const indicator& two) {
        const auto sure = [](const indicator& i, double value) { return i.coefficient == 0 && i.constant == value; };
        if (sure(one, 0) || sure(two, 0)) { return {0, 0, 0}; }
        if (sure(one, 1)) { return two; }
        if (sure(two, 1) || (one.column == two.column && one.coefficient == two.coefficient)) { return one; }
        const int column = model_.add_column({0, 1, 0, false});
        for (const auto& part : {one, two}) {
            model_.add_row(-part.constant, infinity, {{part.column, part.coefficient}, {column, -1}});
        }
        return {0, 1, column};
    }

    /// One-machine rows (Applegate and Cook, 1991), which are implied: start(j) >= h + work before j of the instances
    /// that start at h or later.
    constexpr void add_machine_rows() {
        constexpr std::size_t most_terms = 200'000;
        const int m = facts_->index.microbatches;
        std::size_t used = 0;
        for (const auto& ops : facts_->index.on_device) {
            std::vector<double> heads{};
            for (const int op : ops) {
                for (int k = 0; k != m; ++k) { heads.push_back(earliest(op, k)); }
            }
            std::sort(heads.begin(), heads.end());
            heads.erase(std::unique(heads.begin(), heads.end()), heads.end());
            for (const int b : ops) {
                for (int l = 0; l != m; ++l) {
                    for (const double h : heads) {
                        if (h > earliest(b, l)) { break; } // else it holds only if one of them is before j
                        sum row{};
                        double most = h;
                        for (const int a : ops) {
                            for (int k = 0; k != m; ++k) {
                                if (earliest(a, k) < h || (a == b && k >= l)) { continue; }
                                const indicator i = a == b ? indicator{1, 0, 0} : before(a, k, b, l);
                                if (i.constant == 0 && i.coefficient == 0) { continue; }
                                row.add(i, duration(a));
                                most += duration(a);
                            }
                        }
                        if (row.terms.empty() || most <= earliest(b, l) || used + row.terms.size() > most_terms) {
                            continue;
                        }
                        for (auto& t : row.terms) { t.coefficient = -t.coefficient; }
                        row.terms.push_back({start_column(b, l), 1});
                        used += row.terms.size();
                        model_.add_row(h + row.constant, infinity, row.terms, true);
                    }
                }
            }
        }
    }

    static constexpr double infinity = std::numeric_limits<double>::infinity();

    const window_problem* facts_;
    const window_state* state_;
    const schedule_bound* bound_;
    ilp_model model_{};
    std::vector<int> column_of_{};
};

} // namespace pulse::detail
