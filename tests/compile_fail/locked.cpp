// What is locked beside, before and behind what is trained.
//
// error-1: pulse: the last layer (Subject) outputs elements without a gradient, so they would train nothing
// error-2: pulse: a layer (Object) does not compute the input gradient that the previous layer (Subject) needs
// error-3: pulse: a layer that runs forward only (Subject) reads conditioning or context that is trained
// error-4: pulse: a layer (Object) computes an input gradient for elements that have none in the previous layer
// error-5: pulse: the target of a skip edge (Object) and its source (Subject) disagree on which elements
// error-6: pulse: a layer cannot be locked or made forward-only twice
// error-7: pulse: layers that run side by side must not read skips
// error-8: pulse: layers that run side by side must read the same conditioning and context, or none
// error-9: pulse: layers that run side by side must not read timesteps or facts
// error-10: pulse: a layer that runs forward only (Subject) reads conditioning or context that is trained
// error-11: pulse: a layer reads conditioning of another shape (Subject) than the model gives
// error-12: pulse: a conditioning module locked beside its copy must train all its weights and no context
// error-13: pulse: a ControlNet needs a unet that reads text states as given, without encoder_hid_dim

#include <pulse/model/model.hpp>
#include <pulse/nn/control.hpp>
#include <pulse/nn/controlnet.hpp>
#include <pulse/nn/locked.hpp>
#include <pulse/zoo/sdxl.hpp>

#include "../support/archetype.hpp"

using pulse::layers;
using pulse::model;
using pulse::shape;
using pulse::skip;
using pulse::skips;
using pulse::nn::beside;
using pulse::nn::forward_only;
using pulse::nn::join_control;
using pulse::nn::locked;

using in = archetype::layer<"in", shape<1>, shape<4>>;
using body = archetype::layer<"body", shape<4>>;
using tail = archetype::layer<"tail", shape<4>>;
using timed = archetype::conditioned_layer<"timed", shape<4>, shape<16>>;
using clock = archetype::module<"clock", shape<16>>;
using join = archetype::joining_layer<"join", shape<4>, shape<4>>;
using wide_join = archetype::joining_layer<"join", shape<4>, shape<8>>;
using pair = beside<"pair", archetype::layer<"copy", shape<4>>, archetype::layer<"original", shape<4>>>;
using joined = join_control<"control", shape<4>>;

using text = pulse::shape<3, 2>;
using attending = archetype::attending_layer<"attending", shape<4>, text>;
using clock_with_text = archetype::module_with_text<"clock", shape<16>, text>;
using pulse::nn::both_conditionings;
struct dated : archetype::layer<"dated", shape<4>> {
    static constexpr bool reads_timesteps = true;
};
struct trains_text : clock_with_text {
    static constexpr bool trains_context = true;
};

#if CASE == 0
struct reading : model<"reading", layers<pair, beside<"a", timed, timed>, beside<"b", attending, attending>, joined>,
                       skips<>, both_conditionings<clock_with_text>> {};
struct prefix : model<"prefix", layers<forward_only<in>, body, locked<tail>>> {};
struct skipping : model<"skipping", layers<forward_only<in>, body, join>, skips<skip<"in", "join">>> {};
struct timely : model<"timely", layers<forward_only<in>, locked<timed>>, skips<>, clock> {};
struct control
    : model<"control", layers<pair, joined, pulse::nn::controlled<"zero", join>>, skips<skip<"pair", "join">>> {};
#elif CASE == 1
struct wrong : model<"wrong", layers<forward_only<in>, forward_only<body>>> {};
#elif CASE == 2
struct wrong : model<"wrong", layers<in, forward_only<body>, tail>> {};
#elif CASE == 3
struct wrong : model<"wrong", layers<forward_only<in>, forward_only<timed>, body>, skips<>, clock> {};
#elif CASE == 4
struct wrong : model<"wrong", layers<pair, archetype::layer<"whole", shape<8>>>> {};
#elif CASE == 5
struct wrong : model<"wrong", layers<pair, joined, wide_join>, skips<skip<"pair", "join">>> {};
#elif CASE == 6
struct wrong : model<"wrong", layers<forward_only<locked<in>>, body>> {};
#elif CASE == 7
struct wrong : model<"wrong", layers<in, beside<"both", join, body>, tail>> {};
#elif CASE == 8
struct wrong : model<"wrong", layers<beside<"both", timed, body>, joined>, skips<>, clock> {};
#elif CASE == 9
struct wrong : model<"wrong", layers<beside<"both", dated, dated>, joined>> {};
#elif CASE == 10
struct wrong : model<"wrong", layers<beside<"both", attending, attending>, joined>, skips<>, trains_text> {};
#elif CASE == 11
struct wrong : model<"wrong", layers<beside<"timed", timed, timed>, joined>, skips<>, clock> {};
#elif CASE == 12
struct wrong : model<"wrong", layers<pair, joined>, skips<>, both_conditionings<trains_text>> {};
#elif CASE == 13
constexpr pulse::unet_config projected() {
    pulse::unet_config config = pulse::sdxl::config;
    config.encoder_hid_dim = 4096;
    return config;
}
struct wrong : pulse::controlnet<projected()> {};
#endif
