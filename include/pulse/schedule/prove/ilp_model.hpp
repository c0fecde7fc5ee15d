#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>

namespace pulse {

/// A variable of a mixed-integer program.
struct ilp_column {
    double lower{};
    double upper{std::numeric_limits<double>::infinity()};
    double cost{};
    bool integer{};
};

/// coefficient x column, a term of a row.
struct ilp_term {
    int column{};
    double coefficient{};
};

/// lower <= sum of `count` terms from `first` on <= upper.
struct ilp_row {
    double lower{-std::numeric_limits<double>::infinity()};
    double upper{std::numeric_limits<double>::infinity()};
    std::size_t first{};
    std::size_t count{};
    /// The row is implied by the others and by integrality: a solver may omit it, or add it where it is violated.
    bool implied{};
};

/// A mixed-integer program as a plain value: minimise the sum of cost x column subject to the rows.
struct ilp_model {
    std::vector<ilp_column> columns{};
    std::vector<ilp_row> rows{};
    /// The terms of all rows, one row after the other.
    std::vector<ilp_term> terms{};

    /// Adds a column and returns its number.
    constexpr int add_column(const ilp_column& column) {
        columns.push_back(column);
        return static_cast<int>(columns.size()) - 1;
    }
    /// Adds a row over `row_terms`, which name each column once.
    constexpr void add_row(double lower, double upper, const std::vector<ilp_term>& row_terms, bool implied = false) {
        rows.push_back({lower, upper, terms.size(), row_terms.size(), implied});
        terms.insert(terms.end(), row_terms.begin(), row_terms.end());
    }
};

/// Throws input_error, naming the column or row, unless `model` can be given to a solver: bounds in order, finite costs
/// and coefficients, and every term's column existing and named once per row.
constexpr void require_valid(const ilp_model& model) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const auto fail = [](const char* kind, std::size_t at, const char* what) {
        throw input_error(std::string{"ilp_model: "} + kind + " " + std::to_string(at) + " " + what);
    };
    const auto in_order = [](double lower, double upper) {
        return lower <= upper && lower < infinity && upper > -infinity;
    };
    for (std::size_t j = 0; j != model.columns.size(); ++j) {
        const auto& c = model.columns[j];
        if (!in_order(c.lower, c.upper)) { fail("column", j, "has no value between its bounds"); }
        if (!(c.cost > -infinity && c.cost < infinity)) { fail("column", j, "has a cost that is not finite"); }
    }
    std::vector<std::size_t> seen(model.columns.size(), model.rows.size());
    for (std::size_t i = 0; i != model.rows.size(); ++i) {
        const auto& row = model.rows[i];
        if (!in_order(row.lower, row.upper)) { fail("row", i, "has no value between its bounds"); }
        if (row.first > model.terms.size() || row.count > model.terms.size() - row.first) {
            fail("row", i, "refers to terms that do not exist");
        }
        for (std::size_t t = row.first; t != row.first + row.count; ++t) {
            const auto& term = model.terms[t];
            if (term.column < 0 || static_cast<std::size_t>(term.column) >= model.columns.size()) {
                fail("row", i, "names a column that does not exist");
            }
            if (!(term.coefficient > -infinity && term.coefficient < infinity)) {
                fail("row", i, "has a coefficient that is not finite");
            }
            auto& last = seen[static_cast<std::size_t>(term.column)];
            if (last == i) { fail("row", i, "names a column twice"); }
            last = i;
        }
    }
}

} // namespace pulse
