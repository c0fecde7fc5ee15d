#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <pulse/schedule/prove/ilp_model.hpp>
#include <pulse/schedule/prove/ilp_solver.hpp>

namespace pulse::test {

/// The number of integer columns.
inline int whole_columns(const ilp_model& model) {
    const auto is_whole = [](const ilp_column& c) { return c.integer; };
    return static_cast<int>(std::count_if(model.columns.begin(), model.columns.end(), is_whole));
}

/// The objective of `values`.
inline double cost_of(const ilp_model& model, const std::vector<double>& values) {
    double sum = 0;
    for (std::size_t j = 0; j != model.columns.size(); ++j) { sum += model.columns[j].cost * values[j]; }
    return sum;
}

/// The most by which `values`, one per column, violate a bound, a row or integrality; 0 if they solve `model`.
inline double worst_violation(const ilp_model& model, const std::vector<double>& values) {
    double worst = 0;
    for (std::size_t j = 0; j != values.size(); ++j) {
        const auto& c = model.columns[j];
        worst = std::max({worst, c.lower - values[j], values[j] - c.upper});
        if (c.integer) { worst = std::max(worst, std::abs(values[j] - std::round(values[j]))); }
    }
    for (const auto& row : model.rows) {
        double sum = 0;
        for (std::size_t t = row.first; t != row.first + row.count; ++t) {
            sum += model.terms[t].coefficient * values[static_cast<std::size_t>(model.terms[t].column)];
        }
        worst = std::max({worst, row.lower - sum, sum - row.upper});
    }
    return worst;
}

/// A solver that a user might bring for small scheduling programs: it tries both values of every binary and narrows the
/// columns' bounds by the rows on the way. With fixed binaries only time differences are left, which the least times
/// solve. (Continuous columns between 0 and 1 only help if they are large.)
class brute_solver {
public:
    ilp_answer solve(const ilp_model& model, const ilp_request& request) {
        model_ = &model;
        left_ = request.limit.nodes;
        best_ = {};
        best_.bound = std::numeric_limits<double>::infinity();
        over_ = request.limit.stop.stop_requested();
        std::vector<double> lower{};
        std::vector<double> upper{};
        for (const auto& c : model.columns) {
            lower.push_back(c.lower);
            upper.push_back(c.upper);
        }
        if (!over_) { branch(lower, upper, 0); }
        best_.status = over_                  ? best_.values.empty() ? ilp_status::unknown : ilp_status::feasible
                       : best_.values.empty() ? ilp_status::infeasible
                                              : ilp_status::optimal;
        if (over_) { best_.bound = request.known_bound; }
        ++solved;
        return best_;
    }
    int solved{};

private:
    bool narrow(std::vector<double>& lower, std::vector<double>& upper) const {
        for (int round = 0; round != 1000; ++round) {
            bool changed = false;
            for (const auto& row : model_->rows) {
                double least = 0;
                double most = 0;
                const auto* const terms = model_->terms.data() + row.first;
                for (std::size_t t = 0; t != row.count; ++t) {
                    const auto j = static_cast<std::size_t>(terms[t].column);
                    const double c = terms[t].coefficient;
                    least += c * (c > 0 ? lower[j] : upper[j]);
                    most += c * (c > 0 ? upper[j] : lower[j]);
                }
                for (std::size_t t = 0; t != row.count; ++t) {
                    const auto j = static_cast<std::size_t>(terms[t].column);
                    const double c = terms[t].coefficient;
                    double low = c > 0 ? (row.lower - most) / c + upper[j] : (row.upper - least) / c + upper[j];
                    double high = c > 0 ? (row.upper - least) / c + lower[j] : (row.lower - most) / c + lower[j];
                    if (model_->columns[j].integer) {
                        low = std::ceil(low - 1e-7);
                        high = std::floor(high + 1e-7);
                    }
                    if (low > lower[j] + 1e-9 || high < upper[j] - 1e-9) {
                        lower[j] = std::max(lower[j], low);
                        upper[j] = std::min(upper[j], high);
                        if (lower[j] > upper[j] + 1e-7) { return false; }
                        changed = true;
                        break; // the row's sums are outdated
                    }
                }
            }
            if (!changed) { return true; }
        }
        return true;
    }

    void branch(std::vector<double> lower, std::vector<double> upper, std::size_t column) {
        if (over_ || ++best_.nodes > left_) {
            over_ = true;
            return;
        }
        if (!narrow(lower, upper)) { return; }
        double cost = 0;
        for (std::size_t j = 0; j != lower.size(); ++j) { cost += model_->columns[j].cost * lower[j]; }
        if (cost >= best_.bound - 1e-7) { return; }
        while (column != lower.size() && (!model_->columns[column].integer || lower[column] == upper[column])) {
            ++column;
        }
        if (column != lower.size()) {
            auto fixed = upper;
            fixed[column] = lower[column];
            branch(lower, fixed, column + 1);
            lower[column] = upper[column];
            branch(lower, upper, column + 1);
            return;
        }
        for (std::size_t j = 0; j != lower.size(); ++j) {
            if (model_->columns[j].lower == 0 && model_->columns[j].upper == 1 && !model_->columns[j].integer) {
                lower[j] = upper[j];
            }
        }
        if (worst_violation(*model_, lower) > 1e-6) { return; }
        best_.values = lower;
        best_.bound = cost;
    }

    const ilp_model* model_{};
    ilp_answer best_{};
    std::int64_t left_{};
    bool over_{};
};

static_assert(ilp_solver<brute_solver>);

} // namespace pulse::test
