// What a layer and a conditioning module need to run on a backend.
//
// error-1: pulse: a layer (L) needs 'template <pulse::backend B> static void backward_input(
// error-2: pulse: a conditioning module needs static functions forward and backward_weight that take any backend
// error-3: pulse: only the first layer of a model may read the timesteps
// error-4: pulse: only the first layer of a model may read facts of the samples
// error-5: pulse: a conditioning module or first layer that reads text or facts needs a condition_set 'conditions'
// error-6: pulse: a layer (L) needs 'template <pulse::backend B> static void forward(
// error-7: pulse: a layer (L) needs 'template <pulse::backend B> static void backward_input(
// error-8: pulse: a layer (L) needs 'template <pulse::backend B> static void backward_weight(

#include <pulse/model/model.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/runtime/conditions.hpp>
#include <pulse/runtime/layer_table.hpp>

#include "../support/archetype.hpp"

struct running_layer : archetype::conditioned_layer<"a", pulse::shape<4>, pulse::shape<16>> {
#if CASE == 6 // of one backend
    static void forward(pulse::reference::backend<float>&, const pulse::layer_frame<float>&) {}
#else
    template <class B>
    static void forward(B&, const pulse::layer_frame<float>&) {}
#endif
#if CASE == 7 // of more than there is
    template <class B>
    static void backward_input(B&, const pulse::layer_frame<float>&, int) {}
#elif CASE != 1
    template <class B>
    static void backward_input(B&, const pulse::layer_frame<float>&) {}
#endif
#if CASE == 8 // of an object
    template <class B>
    void backward_weight(B&, const pulse::layer_frame<float>&) {}
#else
    template <class B>
    static void backward_weight(B&, const pulse::layer_frame<float>&) {}
#endif
};

struct running_module : archetype::module<"clock", pulse::shape<16>> {
    template <class B>
    static void forward(B&, const pulse::layer_frame<float>&) {}
#if CASE != 2
    template <class B>
    static void backward_weight(B&, const pulse::layer_frame<float>&) {}
#endif
};

template <class Base>
struct running : Base {
    template <class B>
    static void forward(B&, const pulse::layer_frame<float>&) {}
    template <class B>
    static void backward_input(B&, const pulse::layer_frame<float>&) {}
    template <class B>
    static void backward_weight(B&, const pulse::layer_frame<float>&) {}
};
template <pulse::label Name, bool ReadsTime, int Facts>
struct clocked_layer : running<archetype::layer<Name, pulse::shape<4>>> {
    static constexpr bool reads_timesteps = ReadsTime;
    static constexpr int fact_elements = Facts;
#if CASE != 5
    static constexpr pulse::condition_set conditions = [] {
        pulse::condition_set read;
        read.add({pulse::condition_kind::text_mask, Facts});
        return read;
    }();
#endif
};
struct clocked
    : pulse::model<"clocked", pulse::layers<clocked_layer<"a", true, 2>, clocked_layer<"b", CASE == 3, CASE == 4>>> {};
static_assert(pulse::layer_table<clocked, pulse::reference::backend<float>>().size() == 2);
static_assert(pulse::conditions_read_by<clocked>().fact_elements() == 2);

struct timed : pulse::model<"timed", pulse::layers<running_layer>, pulse::skips<>, running_module> {};
static_assert(pulse::layer_table<timed, pulse::reference::backend<float>>().size() == 1);
