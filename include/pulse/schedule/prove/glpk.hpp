#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cmath>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <glpk.h>

#include <pulse/core/error.hpp>
#include <pulse/schedule/prove/ilp_model.hpp>
#include <pulse/schedule/prove/ilp_solver.hpp>

namespace pulse {

namespace detail {

/// One call of GLPK. GLPK leaves internal errors by longjmp, which runs no destructors, so everything that owns memory
/// lives here, outside the frames that are skipped.
class glpk_call {
public:
    glpk_call(const ilp_model& model, const ilp_request& request) :
        model_{&model}, request_{&request}, begun_{std::chrono::steady_clock::now()} {
        const std::size_t columns = model.columns.size();
        values_.assign(columns + 1, 0.0);
        best_.assign(columns + 1, 0.0);
        std::size_t longest = 0;
        for (const auto& row : model.rows) { longest = std::max(longest, row.count); }
        if (std::max({columns, model.rows.size(), longest}) >= static_cast<std::size_t>(INT_MAX)) {
            throw input_error("ilp_model: too many rows or columns for GLPK");
        }
        at_.assign(longest + 1, 0);
        coefficient_.assign(longest + 1, 0.0);
        bound_ = request.known_bound;
    }
    glpk_call(const glpk_call&) = delete;
    glpk_call& operator=(const glpk_call&) = delete;

    ilp_answer answer() {
        // GLPK never frees the environment that it makes for a thread: one made by this call must not outlive it.
        const bool made = glp_init_env() == 0;
        const bool returned = guarded();
        // After an internal error, what GLPK allocated is reachable only through its environment.
        if (made || !returned) { glp_free_env(); }
        if (!returned) { throw error("GLPK failed: " + std::string{said_.data(), said_length_}); }
        ilp_answer out{};
        out.nodes = nodes_;
        const bool found = best_cost_ < std::numeric_limits<double>::infinity();
        if (found) { out.values.assign(best_.begin() + 1, best_.end()); }
        if (ended_) {
            out.status = found ? ilp_status::optimal : ilp_status::infeasible;
            out.bound = std::max(request_->known_bound, best_cost_);
        } else {
            out.status = found ? ilp_status::feasible : ilp_status::unknown;
            out.bound = std::min(bound_, best_cost_);
        }
        return out;
    }

private:
    /// False after an internal error of GLPK.
    bool guarded() {
        glp_term_hook(&glpk_call::on_text, this);
        glp_error_hook(&glpk_call::on_error, this);
        if (setjmp(jump_) != 0) { return false; }
        run();
        glp_error_hook(nullptr, nullptr);
        glp_term_hook(nullptr, nullptr);
        return true;
    }
    /// Captures GLPK's output, up to the buffer's size, so that it is not printed and an error can quote it.
    static int on_text(void* self, const char* text) {
        auto& call = *static_cast<glpk_call*>(self);
        for (; *text != 0; ++text) {
            if (call.said_length_ + 1 < call.said_.size() && *text != '\n') { call.said_[call.said_length_++] = *text; }
        }
        return 1;
    }
    static void on_error(void* self) { std::longjmp(static_cast<glpk_call*>(self)->jump_, 1); }

    static int kind_of(double lower, double upper) {
        const bool low = std::isfinite(lower);
        const bool high = std::isfinite(upper);
        if (low && high) { return lower == upper ? GLP_FX : GLP_DB; }
        return low ? GLP_LO : high ? GLP_UP : GLP_FR;
    }

    // From here on no local variable may own anything, since longjmp skips destructors.

    void run() {
        const int output = glp_term_out(GLP_OFF);
        problem_ = glp_create_prob();
        load();
        ended_ = search();
        glp_delete_prob(problem_);
        glp_term_out(output);
    }

    void load() {
        glp_set_obj_dir(problem_, GLP_MIN);
        const int columns = static_cast<int>(model_->columns.size());
        if (columns != 0) { glp_add_cols(problem_, columns); }
        for (int j = 1; j <= columns; ++j) {
            const ilp_column& c = model_->columns[static_cast<std::size_t>(j - 1)];
            glp_set_col_bnds(problem_, j, kind_of(c.lower, c.upper), c.lower, c.upper);
            glp_set_obj_coef(problem_, j, c.cost);
            if (c.integer) { glp_set_col_kind(problem_, j, GLP_IV); }
        }
        for (std::size_t i = 0; i != model_->rows.size(); ++i) {
            if (!model_->rows[i].implied) { add_row(i); }
        }
    }

    void add_row(std::size_t i) {
        const ilp_row& row = model_->rows[i];
        for (std::size_t t = 0; t != row.count; ++t) {
            at_[t + 1] = model_->terms[row.first + t].column + 1;
            coefficient_[t + 1] = model_->terms[row.first + t].coefficient;
        }
        const int number = glp_add_rows(problem_, 1);
        glp_set_row_bnds(problem_, number, kind_of(row.lower, row.upper), row.lower, row.upper);
        glp_set_mat_row(problem_, number, static_cast<int>(row.count), at_.data(), coefficient_.data());
    }

    [[nodiscard]] double seconds_left() const {
        const std::chrono::duration<double> used = std::chrono::steady_clock::now() - begun_;
        return request_->limit.seconds - used.count();
    }
    [[nodiscard]] int milliseconds_left() const {
        const double left = seconds_left() * 1e3;
        return left >= static_cast<double>(INT_MAX) ? INT_MAX : left <= 0 ? 0 : static_cast<int>(left);
    }
    [[nodiscard]] bool out_of_budget() const {
        return request_->limit.stop.stop_requested() || nodes_ >= request_->limit.nodes || seconds_left() <= 0;
    }
    [[nodiscard]] bool known_optimal() const {
        return best_cost_ <= request_->known_bound + 1e-9 * std::abs(request_->known_bound);
    }

    /// True when the search ended by itself, so nothing is better than `best_cost_`.
    bool search() {
        if (out_of_budget()) { return false; }
        glp_smcp simplex;
        glp_init_smcp(&simplex);
        simplex.msg_lev = GLP_MSG_OFF;
        simplex.meth = GLP_DUALP;
        glp_adv_basis(problem_, 0);
        // Runs in slices so that a stop request is seen; slices are counted in iterations to stay deterministic.
        for (int before = -1;;) {
            simplex.tm_lim = milliseconds_left();
            simplex.it_lim = 2000;
            const int result = glp_simplex(problem_, &simplex);
            if (result == 0) { break; }
            const int done = glp_get_it_cnt(problem_);
            if (result != GLP_EITLIM || done == before || out_of_budget()) { return false; }
            before = done;
        }
        ++nodes_;
        const int relaxed = glp_get_status(problem_);
        if (relaxed == GLP_NOFEAS || glp_get_dual_stat(problem_) == GLP_NOFEAS) { return relaxed == GLP_NOFEAS; }
        if (relaxed != GLP_OPT) { return false; }
        bound_ = std::max(bound_, glp_get_obj_val(problem_));
        nodes_ = 0;
        glp_iocp control;
        glp_init_iocp(&control);
        control.msg_lev = GLP_MSG_OFF;
        control.tm_lim = milliseconds_left();
        control.cb_func = &glpk_call::on_event;
        control.cb_info = this;
        const int result = glp_intopt(problem_, &control);
        if (known_optimal()) { return true; }
        if (result != 0) { return false; }
        const int status = glp_mip_status(problem_);
        if (status == GLP_OPT) { take_solution(); }
        return status == GLP_OPT || status == GLP_NOFEAS;
    }

    void take_solution() {
        const double cost = glp_mip_obj_val(problem_);
        if (!(cost < best_cost_)) { return; }
        best_cost_ = cost;
        for (std::size_t j = 1; j != best_.size(); ++j) { best_[j] = glp_mip_col_val(problem_, static_cast<int>(j)); }
    }

    static void on_event(glp_tree* tree, void* self) { static_cast<glpk_call*>(self)->event(tree); }

    void event(glp_tree* tree) {
        const int reason = glp_ios_reason(tree);
        // GLPK reports a node again after rows were added to it.
        if (reason == GLP_IPREPRO && glp_ios_curr_node(tree) != node_) {
            node_ = glp_ios_curr_node(tree);
            ++nodes_;
        }
        if (reason == GLP_IROWGEN) { add_violated(); }
        if (reason == GLP_IBINGO) { take_solution(); }
        if (reason == GLP_ISELECT || reason == GLP_IPREPRO) {
            const int best = glp_ios_best_node(tree);
            if (best != 0) { bound_ = std::max(bound_, glp_ios_node_bound(tree, best)); }
        }
        if (known_optimal() || out_of_budget()) { glp_ios_terminate(tree); }
    }

    /// Adds the implied rows that the relaxation violates, for the node and its descendants.
    void add_violated() {
        for (std::size_t j = 1; j != values_.size(); ++j) {
            values_[j] = glp_get_col_prim(problem_, static_cast<int>(j));
        }
        for (std::size_t i = 0; i != model_->rows.size(); ++i) {
            const ilp_row& row = model_->rows[i];
            if (!row.implied) { continue; }
            double sum = 0;
            double scale = 1;
            for (std::size_t t = row.first; t != row.first + row.count; ++t) {
                const auto& term = model_->terms[t];
                sum += term.coefficient * values_[static_cast<std::size_t>(term.column) + 1];
                scale = std::max(scale, std::abs(term.coefficient));
            }
            if (std::max(row.lower - sum, sum - row.upper) > 1e-4 * scale) { add_row(i); }
        }
    }

    const ilp_model* model_;
    const ilp_request* request_;
    std::chrono::steady_clock::time_point begun_;
    std::jmp_buf jump_{};
    std::array<char, 240> said_{};
    std::size_t said_length_{};
    glp_prob* problem_{};
    std::vector<double> values_{};
    std::vector<double> best_{};
    std::vector<int> at_{};
    std::vector<double> coefficient_{};
    double best_cost_{std::numeric_limits<double>::infinity()};
    double bound_{};
    std::int64_t nodes_{};
    int node_{};
    bool ended_{};
};

} // namespace detail

/// Solves integer programs with GLPK 5 (target `pulse::glpk`; GLPK is GPL-3, and so is a program that links it).
///
/// Deterministic under a limit of nodes; a stop request is seen between two relaxations. Terminal output is off while
/// it solves. Threads may solve at the same time, each with its own solver: GLPK keeps its state per thread (it must be
/// built with thread-local storage, as Debian's is). In a thread that has not used GLPK before, a call leaves nothing
/// behind.
///
/// GLPK's tolerances are relative for values above 1 and absolute below. Scale programs whose values are much below 1,
/// as `certify` scales the times of every program that it gives to a solver (`solver_scale`).
class glpk_solver {
public:
    /// Throws input_error for an ill-formed model; error after an internal error of GLPK, which also frees every other
    /// GLPK object of the calling thread.
    [[nodiscard]] ilp_answer solve(const ilp_model& model, const ilp_request& request) {
        require_valid(model);
        return detail::glpk_call{model, request}.answer();
    }
};

static_assert(ilp_solver<glpk_solver>);

} // namespace pulse
