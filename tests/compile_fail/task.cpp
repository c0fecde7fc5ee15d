// What a trainer asks of the data and the loss.
//
// error-1: pulse: a task needs input(const work<backend>&, std::span<scalar>), which writes the model's input
// error-2: pulse: a task needs loss(const work<backend>&, std::span<const scalar>, std::span<scalar>)
// error-3: pulse: the model reads timesteps, so a task needs timesteps(const work<backend>&)
// error-4: pulse: the model reads text, so a task needs text(const work<backend>&)
// error-5: pulse: the model reads facts of the samples, so a task needs facts(const work<backend>&)
// error-6: pulse: a task's begin must take the position of the step's first sample and, if it wants, the loss scale
// error-7: pulse: a task needs input(const work<backend>&, std::span<scalar>), which writes the model's input
// error-8: pulse: the model reads timesteps, so a task needs timesteps(const work<backend>&)
// error-9: pulse: to save a trainer, include <pulse/train/saving.hpp> and link the target pulse::io

#include <cstdint>
#include <span>

#include <pulse/model/model.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/train/task.hpp>
#if CASE == 9
#include <pulse/nn/unet.hpp>
#include <pulse/train/trainer.hpp>
#endif

#include "../support/archetype.hpp"

using math = pulse::reference::backend<float>;
using at = pulse::work<math>;

/// Reads timesteps, text and facts.
struct reading_module : archetype::module<"clock", pulse::shape<16>> {
    static constexpr std::int64_t text_elements = 8;
    static constexpr int fact_elements = 2;
};
using only = archetype::conditioned_layer<"a", pulse::shape<4>, pulse::shape<16>>;
struct net : pulse::model<"net", pulse::layers<only>, pulse::skips<>, reading_module> {};

struct my_task {
#if CASE != 1 && CASE != 7
    void input(const at&, std::span<float>) {}
#elif CASE == 7
    void input(const at&, std::span<double>) {}
#endif
#if CASE != 2
    void loss(const at&, std::span<const float>, std::span<float>) {}
#endif
#if CASE == 8
    double* timesteps(const at&) { return nullptr; }
#elif CASE != 3
    const float* timesteps(const at&) { return nullptr; }
#endif
#if CASE != 4
    const float* text(const at&) { return nullptr; }
#endif
#if CASE != 5
    const float* facts(const at&) { return nullptr; }
#endif
#if CASE == 6
    void begin(const char*) {}
#else
    void begin(std::uint64_t) {}
#endif
};
static_assert(CASE == 0 || CASE == 9 || !pulse::task<my_task, net, math>);
static_assert((pulse::require_task<my_task, net, math>(), true));

/// A model that reads nothing needs no more.
struct plain : pulse::model<"plain", pulse::layers<archetype::layer<"a", pulse::shape<4>>>> {};
struct plain_task {
    void input(const at&, std::span<float>) {}
    void loss(const at&, std::span<const float>, std::span<float>) {}
};
static_assert(pulse::task<plain_task, plain, math>);

#if CASE == 9
struct small : pulse::unet<pulse::unet_config{.name = "small", .sample_size = 8, .block_out_channels = {32, 64}}> {};
void save(pulse::trainer<small, math>& rank) { rank.save("folder"); }
#endif
