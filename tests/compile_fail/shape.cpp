// What a shape is made of.
//
// error-1: pulse: every dimension of a shape must be positive

#include <pulse/tensor/shape.hpp>

#if CASE == 0
static_assert(pulse::shape<3, 8>::elements == 24);
#elif CASE == 1
static_assert(pulse::shape<3, 0>::elements == 0);
#endif
