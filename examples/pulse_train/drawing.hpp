#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pulse/model/image.hpp>
#include <pulse/runtime/backend_on.hpp>
#include <pulse/runtime/forward_runner.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/train/condition_values.hpp>
#include <pulse/train/guidance.hpp>
#include <pulse/train/initial_values.hpp>
#include <pulse/train/sampler.hpp>

#include "rank_results.hpp"
#include "run_inputs.hpp"

namespace pulse_train {

/// The conditions of drawn images if the model reads more than their time; image k is number k of each source.
struct image_conditions {
    pulse::train::condition_source wanted{};
    pulse::train::condition_source other{}; ///< the negative condition; wants nothing: no guidance
    double guidance{1};
    /// Images drawn by the first backbone of a cascade, one after another, if the second reads them.
    std::span<const float> small{};
};

/// Draws `count` images from number `first` on with a network, as the arguments say; `small` are the same images at the
/// smaller size, which the network reads enlarged beside its input.
void draw_batch(const run_inputs& in, int first, int count, std::span<const float> small, std::span<float> images,
                const pulse::train::predictor& network);

/// Draws images on a side with the averaged weights, on as many workers as there are ranks. Empty when the run was
/// asked to stop first.
template <class Model, class Side>
[[nodiscard]] std::vector<float> draw_samples(const Side& side, const run_inputs& in, const drawing_weights& weights,
                                              const image_conditions& by) {
    using math = typename Side::math;
    using space = pulse::space_of<math>;
    using scalar = typename math::scalar;
    using last_layer = typename Model::template layer_at<Model::layer_count - 1>;
    struct stopped {};
    const std::size_t elements = in.shape.elements();
    const auto channels = static_cast<std::size_t>(in.shape.channels);
    constexpr auto answered = static_cast<std::size_t>(last_layer::output::dims[0]);
    const std::size_t answers = elements / channels * answered;
    const std::size_t read = elements * (in.reads_beside() ? 2 : 1);
    const std::size_t hint = by.wanted.hint_elements;
    const int count = in.args.sample;
    const int workers = std::min(in.ranks(), count);
    std::vector<float> images(static_cast<std::size_t>(count) * elements);
    const auto draw_share = [&](const pulse::any_transport& among) {
        const int first = count * among.rank() / workers;
        const int last = count * (among.rank() + 1) / workers;
        const int most = std::min(16, last - first);
        const auto room = static_cast<std::size_t>(most);
        math backend = pulse::backend_on<math>(among, in.args.threads);
        pulse::forward_runner<Model, math> model{backend, most, in.sizes.latents};
        std::vector<scalar> scalars;
        const auto rounded = [&](std::span<const float> from) {
            scalars.resize(from.size());
            std::transform(from.begin(), from.end(), scalars.begin(), Side::to_scalar);
            return std::span<const scalar>{scalars};
        };
        const auto put = [&](std::span<const float> from, scalar* to) { space::upload(rounded(from), to); };
        for (const auto& block : model.parameters().blocks()) {
            model.parameters().upload(block.layer, rounded(weights.at(block.layer)));
        }
        if constexpr (pulse::reads_hint<Model>) {
            auto& locked = model.parameters();
            in.start != nullptr ? pulse::train::read_frozen<Model>(locked, *in.start)
                                : pulse::train::initialise_frozen<Model>(locked, in.args.seed);
        }
        backend.weights_changed();
        std::vector<float> times(room);
        typename space::template array<scalar> x(room * (read + hint));
        typename space::template array<scalar> y(room * answers);
        typename space::template array<float> times_there(room);
        struct conditions_there {
            conditions_there(const pulse::condition_set& of, std::size_t samples) :
                text(samples * static_cast<std::size_t>(of.text_elements())),
                facts(samples * static_cast<std::size_t>(of.fact_elements())) {}

            typename space::template array<scalar> text;
            typename space::template array<float> facts;
        };
        conditions_there wanted{by.wanted.wanted, room};
        conditions_there other{by.other.wanted, room};
        const auto put_conditions = [&](const pulse::train::condition_source& from, int at, int n,
                                        conditions_there& to) {
            pulse::train::condition_values values{from, n, 1};
            values.begin(static_cast<std::uint64_t>(at));
            put(values.text(), to.text.data());
            space::upload(values.facts(), to.facts.data());
            put(values.hints(),
                x.data() + static_cast<std::size_t>(n) * read); // where each step of the batch reads them
        };
        const auto predict_by = [&](const conditions_there& known) {
            return [&](std::span<const float> noisy, std::span<const float> t, std::span<float> answer) {
                const auto n = static_cast<int>(t.size());
                if (in.stop->load()) { throw stopped{}; }
                std::copy(t.begin(), t.end(), times.begin());
                space::upload(std::span<const float>{times}, times_there.data());
                put(noisy, x.data());
                model.run(n, x.data(), times_there.data(), y.data(), known.text.data(), known.facts.data());
                Side::wait(backend);
                scalars.resize(static_cast<std::size_t>(n) * answers);
                space::download(static_cast<const scalar*>(y.data()), std::span{scalars});
                // No sampler here reads a model's outputs beyond the image's channels, such as a variance.
                for (std::size_t e = 0; e != answer.size(); ++e) {
                    answer[e] = Side::to_float(scalars[e / channels * answered + e % channels]);
                }
            };
        };
        for (int at = first; at < last; at += most) {
            const int n = std::min(most, last - at);
            put_conditions(by.wanted, at, n, wanted);
            put_conditions(by.other, at, n, other);
            const auto batch = std::span{images}.subspan(static_cast<std::size_t>(at) * elements,
                                                         static_cast<std::size_t>(n) * elements);
            const std::size_t each_small = by.small.size() / static_cast<std::size_t>(count);
            const auto small =
                by.small.subspan(static_cast<std::size_t>(at) * each_small, static_cast<std::size_t>(n) * each_small);
            if (by.other.wanted.empty()) {
                draw_batch(in, at, n, small, batch, predict_by(wanted));
            } else {
                draw_batch(in, at, n, small, batch,
                           pulse::train::guided{by.guidance, predict_by(wanted), predict_by(other)});
            }
        }
    };
    try {
        side.run_workers(workers, draw_share);
    } catch (const stopped&) { images.clear(); }
    return images;
}

} // namespace pulse_train
