#pragma once

#include <pulse/tune/plan_request.hpp>

namespace pulse_examples {

/// The search for orders with GLPK's proofs; empty where this build has no GLPK.
[[nodiscard]] pulse::ordering_search glpk_search();

} // namespace pulse_examples
