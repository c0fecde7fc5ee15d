// What a type needs to be a conditioning module.
//
// error-1: pulse: a conditioning module needs 'static constexpr pulse::label name', not empty
// error-2: pulse: a conditioning module needs 'using output = pulse::shape<...>'
// error-3: conditioning module needs 'static constexpr auto parameters()' giving std::array<pulse::parameter, K>
// error-4: pulse: a conditioning module needs 'static constexpr double forward_flops()', not negative
// error-5: pulse: a conditioning module needs 'static constexpr std::int64_t saved_elements', not negative
// error-6: pulse: a conditioning module needs 'static constexpr std::int64_t workspace_elements', not negative
// error-7: pulse: context of a conditioning module must be a pulse::shape<...>
// error-8: pulse: statistics_elements of a conditioning module must be a 'static constexpr std::int64_t', not negative

#include <array>
#include <cstdint>

#include <pulse/model/model.hpp>

#include "../support/archetype.hpp"

struct clock_module {
#if CASE != 1
    static constexpr pulse::label name{"clock"};
#endif
#if CASE != 2
    using output = pulse::shape<16>;
#endif
#if CASE != 3
    static constexpr std::array<pulse::parameter, 0> parameters() { return {}; }
#endif
#if CASE != 4
    static constexpr double forward_flops() { return 1.0; }
#endif
#if CASE != 5
    static constexpr std::int64_t saved_elements = 0;
#endif
#if CASE != 6
    static constexpr std::int64_t workspace_elements = 0;
#endif
#if CASE == 7
    using context = float;
#endif
#if CASE == 8
    static constexpr std::int64_t statistics_elements = -1;
#endif
};

struct timed
    : pulse::model<"timed", pulse::layers<archetype::conditioned_layer<"a", pulse::shape<4>, pulse::shape<16>>>,
                   pulse::skips<>, clock_module> {};
static_assert(timed::is_conditioned);
