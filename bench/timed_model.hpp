#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>

#include <sys/prctl.h>

#include <pulse/model/graph_of.hpp>
#include <pulse/model/model.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse_bench {

/// How long the passes of a layer take, microseconds.
struct pass_times {
    double forward{};
    double backward_input{};
    double backward_weight{};
};

/// A U-shaped model whose layers only sleep for a known time: `Layers` layers of `Elements` elements, skips from layer
/// i to layer Layers - 1 - i for the first `Skips` layers.
template <int Layers, int Elements, int Skips>
struct timed {
    inline static std::array<pass_times, static_cast<std::size_t>(Layers)> times{};

    static void take(double us) { std::this_thread::sleep_for(std::chrono::duration<double, std::micro>{us}); }

    template <std::size_t I>
    struct plain_layer {
        static constexpr pulse::label name = pulse::label{"block_"} + static_cast<unsigned>(I);
        using input = pulse::shape<Elements>;
        using output = pulse::shape<Elements>;
        static constexpr std::int64_t saved_elements = 0, deferred_elements = 0, workspace_elements = 0;
        static constexpr auto parameters() { return std::array<pulse::parameter, 0>{}; }
        static constexpr double forward_flops() { return 0; }

        template <pulse::backend B>
        static void forward(B&, const pulse::backend_frame<B>&) {
            take(times[I].forward);
        }
        template <pulse::backend B>
        static void backward_input(B&, const pulse::backend_frame<B>&) {
            take(times[I].backward_input);
        }
        template <pulse::backend B>
        static void backward_weight(B&, const pulse::backend_frame<B>&) {
            take(times[I].backward_weight);
        }
    };
    template <std::size_t I>
    struct decoder_layer : plain_layer<I> {
        using skip_input = pulse::shape<Elements>;
    };
    template <std::size_t I>
    using layer = std::conditional_t<(static_cast<int>(I) >= Layers - Skips), decoder_layer<I>, plain_layer<I>>;

    template <std::size_t... I, std::size_t... E>
    static auto assemble(std::index_sequence<I...>, std::index_sequence<E...>) -> pulse::model<
        "timed", pulse::layers<layer<I>...>,
        pulse::skips<pulse::skip<pulse::label{"block_"} + static_cast<unsigned>(E),
                                 pulse::label{"block_"} + static_cast<unsigned>(Layers - 1 - static_cast<int>(E))>...>>;

    struct model : decltype(assemble(std::make_index_sequence<static_cast<std::size_t>(Layers)>{},
                                     std::make_index_sequence<static_cast<std::size_t>(Skips)>{})) {};

    [[nodiscard]] static pulse::cost_table costs() {
        pulse::cost_table table = pulse::blank_costs(pulse::graph_of<model>().view(), 1, sizeof(float));
        for (std::size_t l = 0; l != times.size(); ++l) {
            table.layers[l].forward_us = times[l].forward;
            table.layers[l].backward_input_us = times[l].backward_input;
            table.layers[l].backward_weight_us = times[l].backward_weight;
        }
        return table;
    }
};

/// Lets sleeping threads wake within microseconds instead of the default fifty.
inline void wake_on_time() { prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); }

/// The task of a timed model: it has no data.
struct timed_task {
    static const float* timesteps(int) { return nullptr; }
    static void input(int, float*) {}
    static void loss(int, const float*, float*) {}
    static void optimize() {}
};

} // namespace pulse_bench
