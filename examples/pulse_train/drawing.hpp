#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pulse/host/threads.hpp>
#include <pulse/runtime/forward_runner.hpp>
#include <pulse/train/sampler.hpp>

#include "run_inputs.hpp"
#include "shared_state.hpp"

namespace pulse_train {

/// Draws images with the averaged weights, the work spread over as many threads as there are ranks. Empty when the run
/// was asked to stop before they were done.
template <class Model>
[[nodiscard]] std::vector<float> draw_samples(const run_inputs& in, const shared_state& shared) {
    struct stopped {};
    const std::size_t elements = in.images->elements();
    const int count = in.args.sample;
    const int workers = std::min(in.plan.pipeline_degree, count);
    std::vector<float> images(static_cast<std::size_t>(count) * elements);
    const auto draw_share = [&](pulse::host::thread_transport& transport) {
        const int first = count * transport.rank() / workers;
        const int last = count * (transport.rank() + 1) / workers;
        constexpr int most = 16;
        math backend{in.args.threads};
        pulse::forward_runner<Model, math> model{backend, most};
        for (const auto& block : model.parameters().blocks()) {
            const auto& from = shared.averages.at(block.layer);
            std::copy(from.begin(), from.end(), model.parameters().values_of(block.layer).begin());
        }
        backend.weights_changed();
        std::vector<float> times(most);
        for (int at = first; at < last; at += most) {
            const int n = std::min(most, last - at);
            const auto predict = [&](std::span<const float> x, std::span<const int> t, std::span<float> answer) {
                if (in.stop->load()) { throw stopped{}; }
                for (std::size_t i = 0; i != t.size(); ++i) { times[i] = static_cast<float>(t[i]); }
                model.run(n, x.data(), times.data(), answer.data());
            };
            const auto batch = std::span{images}.subspan(static_cast<std::size_t>(at) * elements,
                                                         static_cast<std::size_t>(n) * elements);
            const pulse::train::ddim_options options{.steps = in.args.sample_steps,
                                                     .prediction = in.args.prediction,
                                                     .seed = in.args.seed,
                                                     .first_sample = static_cast<std::uint64_t>(at)};
            pulse::train::ddim_sample(*in.noise, options, static_cast<std::size_t>(n), batch, predict);
        }
    };
    try {
        pulse::host::run_ranks(workers, {}, draw_share);
    } catch (const stopped&) { images.clear(); }
    return images;
}

} // namespace pulse_train
