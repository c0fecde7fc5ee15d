// What a layer and a conditioning module need to run on a backend.
//
// error-1: pulse: a layer needs static forward, backward_input and backward_weight over the backend
// error-2: pulse: a conditioning module needs static forward and backward_weight over the backend

#include <pulse/host/reference.hpp>
#include <pulse/model/model.hpp>
#include <pulse/runtime/layer_table.hpp>

#include "../support/archetype.hpp"

struct running_layer : archetype::conditioned_layer<"a", pulse::shape<4>, pulse::shape<16>> {
    template <class B>
    static void forward(B&, const pulse::layer_frame<float>&) {}
#if CASE != 1
    template <class B>
    static void backward_input(B&, const pulse::layer_frame<float>&) {}
#endif
    template <class B>
    static void backward_weight(B&, const pulse::layer_frame<float>&) {}
};

struct running_module : archetype::module<"clock", pulse::shape<16>> {
    template <class B>
    static void forward(B&, const pulse::layer_frame<float>&) {}
#if CASE != 2
    template <class B>
    static void backward_weight(B&, const pulse::layer_frame<float>&) {}
#endif
};

struct timed : pulse::model<"timed", pulse::layers<running_layer>, pulse::skips<>, running_module> {};
static_assert(pulse::layer_table<timed, pulse::host::reference_backend<float>>().size() == 1);
