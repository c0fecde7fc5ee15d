// What a solver of integer programs must have.
//
// error-1: pulse: an ilp_solver needs ilp_answer solve(const ilp_model&, const ilp_request&)
// error-2: pulse: an ilp_solver needs ilp_answer solve(const ilp_model&, const ilp_request&)

#include <pulse/schedule/prove/certify.hpp>

struct own_solver {
#if CASE == 1
    pulse::ilp_answer solve(const pulse::ilp_model&) { return {}; }
#elif CASE == 2
    bool solve(const pulse::ilp_model&, const pulse::ilp_request&) { return true; }
#else
    pulse::ilp_answer solve(const pulse::ilp_model&, const pulse::ilp_request&) { return {}; }
#endif
};

pulse::certificate ask(const pulse::schedule_problem& problem, const pulse::schedule& incumbent);
pulse::certificate ask(const pulse::schedule_problem& problem, const pulse::schedule& incumbent) {
    own_solver solver{};
    return pulse::certify(problem, pulse::bound_schedule(problem), incumbent, solver, {});
}
