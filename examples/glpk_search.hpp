#pragma once

#include <pulse/tune/plan_request.hpp>

namespace pulse_examples {

/// The order search with proofs by GLPK; empty if this build has no GLPK.
[[nodiscard]] pulse::ordering_search glpk_search();

} // namespace pulse_examples
