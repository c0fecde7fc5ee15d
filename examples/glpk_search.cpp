#include "glpk_search.hpp"

#if PULSE_EXAMPLES_GLPK
#include <pulse/schedule/prove/synthesize_with_glpk.hpp>
#endif

namespace pulse_examples {

pulse::ordering_search glpk_search() {
#if PULSE_EXAMPLES_GLPK
    return pulse::synthesize_with_glpk;
#else
    return {};
#endif
}

} // namespace pulse_examples
