// What a layer and a conditioning module need to run on a backend.
//
// error-1: pulse: a layer needs static forward, backward_input and backward_weight over the backend
// error-2: pulse: a conditioning module needs static forward and backward_weight over the backend
// error-3: pulse: only the first layer of a model reads the timesteps
// error-4: pulse: a uvit with num_classes is planned only: no class labels reach its first layer, so it does not run

#include <pulse/host/reference.hpp>
#include <pulse/model/model.hpp>
#include <pulse/nn/uvit.hpp>
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

template <pulse::label Name, bool ReadsTime>
struct clocked_layer : archetype::layer<Name, pulse::shape<4>> {
    static constexpr bool reads_timesteps = ReadsTime;
    template <class B>
    static void forward(B&, const pulse::layer_frame<float>&) {}
    template <class B>
    static void backward_input(B&, const pulse::layer_frame<float>&) {}
    template <class B>
    static void backward_weight(B&, const pulse::layer_frame<float>&) {}
};
struct clocked : pulse::model<"clocked", pulse::layers<clocked_layer<"a", true>, clocked_layer<"b", CASE == 3>>> {};
static_assert(pulse::layer_table<clocked, pulse::host::reference_backend<float>>().size() == 2);

constexpr pulse::uvit_config token_config() {
    pulse::uvit_config c{.name = "u", .img_size = 4, .patch_size = 2, .in_chans = 1, .embed_dim = 4, .depth = 2,
                         .num_heads = 1};
#if CASE == 4
    c.num_classes = 3;
#endif
    return c;
}
struct tokens : pulse::uvit<token_config()> {};
static_assert(pulse::layer_table<tokens, pulse::host::reference_backend<float>>().size() == 5);

struct timed : pulse::model<"timed", pulse::layers<running_layer>, pulse::skips<>, running_module> {};
static_assert(pulse::layer_table<timed, pulse::host::reference_backend<float>>().size() == 1);
