#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/data/encoded_pictures.hpp>
#include <pulse/frozen/decoded_ahead.hpp>
#include <pulse/frozen/picture_cache.hpp>
#include <pulse/frozen/picture_extents.hpp>
#include <pulse/frozen/picture_source.hpp>
#include <pulse/frozen/pictures.hpp>
#include <pulse/frozen/rank_networks.hpp>
#include <pulse/frozen/sample_row.hpp>
#include <pulse/frozen/tasks.hpp>
#include <pulse/model/condition.hpp>
#include <pulse/model/image.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/plan/planned.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/encoding.hpp>
#include <pulse/train/condition_values.hpp>
#include <pulse/train/diffusion_task.hpp>
#include <pulse/train/latent_task.hpp>
#include <pulse/train/noise_process.hpp>
#include <pulse/train/task.hpp>

namespace pulse {

/// The data and the loss of a rank on captioned pictures. Frozen networks encode these on the rank's backend: before
/// each step, once into the pictures' cache, or as frozen tasks of the plan. Their results reach the host as floats, so
/// all three ways give the same values.
///
/// The ranks of the first and the last stage encode or read the same pictures, since a result depends only on the
/// sample's position; in a folded placement they are one rank. Only the first stage needs what the backbone reads
/// besides latents, such as text states, sizes and classes; only the last stage needs loss masks.
template <class Model, class B>
class pictures_task {
public:
    using frozen_backend = typename train::latent_task<B>::frozen_backend;
    using tasks = frozen::tasks<Model, frozen_backend>;

private:
    using networks = frozen::rank_networks<Model, frozen_backend>;
    using text_encoders = typename tasks::text_encoders;
    using picture_encoder = typename tasks::picture_encoder;
    using posterior = typename networks::posterior_of_pictures;
    using latents = typename train::latent_task<B>::latents;
    using captioned_picture = frozen::captioned_picture;
    using picture_facts = frozen::picture_facts;
    static constexpr frozen::sample_row row = pictures<Model>::row;
    static constexpr auto read_elements = static_cast<std::size_t>(image_of<Model>::elements);
    static constexpr auto hint_size = static_cast<std::size_t>(hint_elements<Model>());
    /// The model reads two images, so it is self-conditioned or the second of a cascade.
    static constexpr bool reads_two =
        read_elements == 2 * posterior::elements_of(extent_of<Model>()) &&
        2 * Model::template layer_at<Model::layer_count - 1>::output::elements == image_of<Model>::elements;
    static_assert(reads_two || read_elements == posterior::elements_of(extent_of<Model>()),
                  "the autoencoder must give what the backbone reads");

public:
    /// Bytes of the frozen networks on the rank of the first stage, and on that of the last stage if it is another,
    /// unless the plan has frozen tasks or the pictures a cache: parameter_memory's beside_first_stage and
    /// beside_last_stage.
    [[nodiscard]] static std::int64_t first_stage_bytes(const std::vector<frozen::picture_extents>& sizes) {
        return text_encoders::bytes + last_stage_bytes(sizes);
    }
    [[nodiscard]] static std::int64_t last_stage_bytes(const std::vector<frozen::picture_extents>& sizes) {
        std::vector<extent> pixels;
        for (const frozen::picture_extents& one : sizes) { pixels.push_back(one.pixels); }
        return picture_encoder::bytes(pixels);
    }

    /// `from` must outlive the task. Sizes, replicas and replica of `options` are taken from the plan. Samples from
    /// global position `end` on, after the last step, are not encoded ahead. Collective where there is a cache, which
    /// it fills. Throws input_error naming the field and the file.
    pictures_task(pictures<Model>& from, const any_transport& of_rank, const planned& made,
                  const train::noise_process& noise, train::diffusion_options options,
                  std::uint64_t end = std::numeric_limits<std::uint64_t>::max()) :
        pictures_task{from,
                      of_rank,
                      made,
                      noise,
                      options,
                      end,
                      place_of({made.layout, made.plan.pipeline_degree, made.plan.data_degree}, of_rank.rank())} {}
    pictures_task(const pictures_task&) = delete;
    pictures_task& operator=(const pictures_task&) = delete;

    /// The bucket of the step that begins at this global position, which is the index of the plan's extent.
    [[nodiscard]] std::size_t extent_at(std::uint64_t position) const {
        return from_.has_buckets() ? from_.source().pictures().order()->bucket_at(position) : 0;
    }
    /// Takes the loss scale if the latent task does.
    template <class... Scale>
        requires requires(train::latent_task<B>& steps, std::uint64_t position, Scale... scale) {
            steps.begin(position, scale...);
        }
    void begin(std::uint64_t position, Scale... scale) {
        if (!fault_.empty()) { throw input_error{fault_}; }
        if (in_bubbles_) {
            see(position);
            begin_images(position + first_);
            awaits_results_ = true; // encoded() delivers this step's results
            ((loss_scale_ = scale), ...);
            return;
        }
        prepare_samples(position);
        steps_.begin(position, scale...);
    }
    /// Reads and encodes what frozen tasks have not, for the step at `position`. Returns why it cannot begin, if so.
    [[nodiscard]] std::string prepare(std::uint64_t position) {
        try {
            in_bubbles_ ? begin_images(position + first_) : prepare_samples(position);
        } catch (const input_error& e) { fault_ = e.what(); }
        return fault_;
    }
    /// Runs a frozen task on samples of this replica, which begin at global position `first`.
    void encode(std::uint64_t first, const encoding& call) {
        // Nobody reads results after the last step.
        if (first >= end_) { return; }
        const auto began = std::chrono::steady_clock::now();
        const auto trying = [&](const auto& run) {
            try {
                run();
            } catch (const input_error& e) {
                if (!call.for_next_step) { throw; }
                fault_ = e.what(); // the current step goes on; the next one reports it
            }
        };
        if (call.what.component != tasks::of_pictures) {
            trying([&] { networks_.run_texts(first, call); });
        } else {
            networks_.set_size(from_.sizes()[extent_at(first - first_)]);
            for (int i = 0; i != call.what.samples; ++i) {
                trying([&] { networks_.run_picture(first, call, call.what.first_sample + i); });
            }
        }
        seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    }
    void encoded(const encoded_results& results) {
        if (sees_pictures_) {
            const std::size_t elements = posterior::elements_of(seen_.latents);
            networks_.each_result(results, tasks::of_pictures, steps_.samples_of_replica(),
                                  [&](std::size_t i, std::span<const float> of_picture) {
                                      std::copy_n(of_picture.begin(), elements, latents_.of(i).begin());
                                      picture_facts facts;
                                      std::memcpy(static_cast<void*>(&facts), of_picture.data() + elements,
                                                  sizeof facts);
                                      write_facts(facts, i);
                                  });
        }
        if (reads_conditions_) { take_texts(results); }
        awaits_results_ = false;
        if constexpr (requires { steps_.begin(position_, loss_scale_); }) {
            steps_.begin(position_, loss_scale_);
        } else {
            steps_.begin(position_);
        }
    }
    /// Sets what the steps that begin from now on evaluate. Needs a task constructed with `evaluated` options, which
    /// encodes before each step or once. Throws input_error where there is no such timestep.
    void evaluate_at(const train::evaluation& what) {
        if (in_bubbles_) { throw input_error{not_evaluated}; }
        steps_.evaluate_at(what);
    }
    [[nodiscard]] auto timesteps(const work<B>& at) const { return steps_.timesteps(at); }
    [[nodiscard]] auto text(const work<B>& at) const { return steps_.text(at); }
    [[nodiscard]] auto facts(const work<B>& at) const { return steps_.facts(at); }
    void input(const work<B>& at, std::span<typename B::scalar> x) { begun().input(at, x); }
    void input(const work<B>& at, std::span<typename B::scalar> x, std::span<const typename B::scalar> prediction) {
        begun().input(at, x, prediction);
    }
    void loss(const work<B>& at, std::span<const typename B::scalar> y, std::span<typename B::scalar> dy) {
        begun().loss(at, y, dy);
    }

    /// Bytes of the frozen networks, as the plan counts them; like other data, a step's samples are not included.
    [[nodiscard]] std::int64_t bytes() const noexcept { return networks_.used_bytes(); }
    [[nodiscard]] double encode_seconds() const noexcept { return seconds_; }
    [[nodiscard]] std::int64_t captions_cut() const noexcept { return cut_; }

private:
    pictures_task(pictures<Model>& from, const any_transport& of_rank, const planned& made,
                  const train::noise_process& noise, train::diffusion_options options, std::uint64_t end,
                  const replica_place& place) :
        from_{from},
        in_bubbles_{!made.plan.frozen_tasks.empty() && !options.evaluated}, end_{end}, networks_{from, of_rank,
                                                                                                 made.costs.frozen},
        latents_{static_cast<std::size_t>(made.plan.microbatch_size) * static_cast<std::size_t>(made.plan.microbatches),
                 networks_.posterior().elements(), posterior::config.latent_channels},
        reads_conditions_{made.plan.cut.stages.front().device == place.device},
        has_loss_{made.plan.cut.stages.back().device == place.device}, sees_pictures_{reads_conditions_ || has_loss_},
        steps_{latents_, noise,        of_plan(options, made.plan, place.replica, networks_.posterior().elements()),
               of_rank,  conditions(), masks()},
        first_{static_cast<std::size_t>(place.replica) * steps_.samples_of_replica()} {
        const pictures_words& words = from.options().words;
        frozen::require_extents<Model>(made, from.sizes(), from.has_buckets() ? words.buckets : words.size);
        from.set_step(steps_.samples_of_step());
        if (options.enlarged && !reads_two) {
            throw input_error{"diffusion_options: enlarged: " + Model::config.name.str() +
                              " must have twice as many input channels as output channels"};
        }
        const bool is_self_conditioned = reads_two && !options.enlarged;
        if ((made.plan.previews > 0) != is_self_conditioned) {
            throw input_error{"pulse: the plan must have previews if and only if the model is self-conditioned: " +
                              Model::config.name.str() + (is_self_conditioned ? " is" : " is not")};
        }
        if (in_bubbles_ && !from.options().cache.empty()) {
            throw input_error{from.options().words.cache +
                              ": cannot be used with a plan that encodes in its bubbles, where no result is kept"};
        }
        if (in_bubbles_ && !tasks::fits(made.costs.frozen, from.sizes())) {
            throw input_error{"pulse: the frozen components in the plan's costs are not the networks of " +
                              Model::config.name.str()};
        }
        if (reads_conditions_) { rows_.resize(steps_.samples_of_replica() * row.elements()); }
        if (reads_conditions_ && from.source().has_hints()) {
            ahead_of(hints_, [&source = from.source()](std::uint32_t picture, std::uint64_t position) {
                return source.hint(picture, position);
            });
        }
        if (is_masked()) {
            const int side = seen_.pixels.height / seen_.latents.height;
            ahead_of(masks_, [&source = from.source(), side](std::uint32_t picture, std::uint64_t position) {
                return source.mask(picture, position, side);
            });
        }
        if (!from.options().cache.empty()) {
            from.template fill_cache<frozen_backend>(of_rank);
        } else if (in_bubbles_) {
            networks_.host(made.plan.frozen_tasks[static_cast<std::size_t>(place.device)], steps_.samples_of_step());
        } else {
            networks_.host(reads_conditions_, sees_pictures_, steps_.samples_of_replica(), steps_.samples_of_step());
        }
    }
    [[nodiscard]] static train::diffusion_options of_plan(train::diffusion_options options, const plan& made,
                                                          int replica, std::size_t greatest_elements) {
        options.greatest_elements = static_cast<std::int64_t>(greatest_elements);
        options.self_conditioned = reads_two && !options.enlarged;
        options.microbatch_size = made.microbatch_size;
        options.microbatches = made.microbatches;
        options.replicas = made.data_degree;
        options.replica = replica;
        return options;
    }
    static constexpr const char* not_evaluated =
        "pulse: a task whose pictures are encoded in the bubbles of steps cannot be evaluated: make one with "
        "diffusion_options::evaluated";

    /// The task of the step's latents, once they are encoded.
    [[nodiscard]] train::latent_task<B>& begun() {
        if (awaits_results_) { throw input_error{not_evaluated}; }
        return steps_;
    }
    /// Sets the step to the samples from a global position on.
    void see(std::uint64_t position) {
        if (from_.has_buckets() && position % steps_.samples_of_step() != 0) {
            throw input_error{from_.options().words.buckets + ": no step begins at sample " + std::to_string(position)};
        }
        position_ = position;
        seen_ = from_.sizes()[extent_at(position)];
        latents_.begin(position + first_);
        latents_.resize(posterior::elements_of(seen_.latents));
    }
    void prepare_samples(std::uint64_t position) {
        const std::uint64_t first = position + first_;
        if (encoded_ == first) { return; }
        const auto began = std::chrono::steady_clock::now();
        encoded_.reset(); // an exception leaves a part of these samples behind
        see(position);
        networks_.set_size(seen_);
        begin_images(first);
        if (sees_pictures_) { from_.cache() != nullptr ? read(first) : encode(first); }
        encoded_ = first;
        if (sees_pictures_) {
            seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
        }
    }
    void take_texts(const encoded_results& results) {
        std::vector<char> cut(steps_.samples_of_replica());
        for (std::size_t which = 0; which != text_encoders::count; ++which) {
            networks_.each_result(results, tasks::of_texts + static_cast<int>(which), cut.size(),
                                  [&](std::size_t i, std::span<const float> of_text) {
                                      if (text_encoders::write(which, of_text, row_of(i))) { cut[i] = 1; }
                                  });
        }
        cut_ += std::count(cut.begin(), cut.end(), 1);
    }

    /// The conditions of samples as encode() or read() left them.
    [[nodiscard]] train::condition_source conditions() {
        if (!reads_conditions_) { return {}; }
        return {row.wanted,
                [this](std::uint64_t position, std::size_t which, std::span<float> to) {
                    std::ranges::copy(row.of(row_of(static_cast<std::size_t>(position - latents_.first())), which),
                                      to.begin());
                },
                hint_size,
                [this](std::uint64_t position, std::span<float> to) {
                    std::ranges::copy(hints_->of(static_cast<std::size_t>(position - latents_.first())), to.begin());
                }};
    }
    /// The loss masks of samples, likewise.
    [[nodiscard]] train::mask_source masks() {
        if (!is_masked()) { return {}; }
        return [this](std::uint64_t position, std::span<float> to) {
            std::ranges::copy(masks_->of(static_cast<std::size_t>(position - latents_.first())), to.begin());
        };
    }
    [[nodiscard]] bool is_masked() const noexcept { return has_loss_ && from_.options().masked_loss; }
    void ahead_of(std::optional<frozen::decoded_ahead>& to, frozen::decoded_ahead::decoder decode) {
        to.emplace(from_.source(), std::move(decode), steps_.samples_of_replica(), steps_.samples_of_step());
    }
    [[nodiscard]] std::span<float> row_of(std::size_t sample) {
        return std::span{rows_}.subspan(sample * row.elements(), row.elements());
    }
    /// Decodes hints and masks of the step whose samples begin at `first`. Throws input_error naming one that cannot be
    /// read, unless another picture takes its place.
    void begin_images(std::uint64_t first) {
        for (std::optional<frozen::decoded_ahead>* const images : {&hints_, &masks_}) {
            if (!*images) { continue; }
            (*images)->begin(first);
            for (std::size_t i = 0; i != steps_.samples_of_replica(); ++i) {
                if ((*images)->fault(i).empty()) { continue; }
                const bool stops = from_.options().on_bad_picture == data::bad_picture::stop;
                const data::captioned_pictures& all = from_.source().pictures();
                (*images)->require(i, stops ? all.picture_at(first + i) : all.at(first + i).index);
            }
        }
    }
    void read(std::uint64_t first) {
        for (std::size_t i = 0; i != steps_.samples_of_replica(); ++i) {
            const data::encoded_sample sample = from_.cache()->at(first + i);
            from_.cache()->read_moments(sample, networks_.posterior().moments());
            networks_.posterior().draw(first + i, latents_.of(i));
            if (reads_conditions_) {
                from_.source().say(sample.refused);
                cut_ += from_.cache()->read_caption(sample, row_of(i)) ? 1 : 0;
            }
            write_facts(from_.cache()->facts(sample), i);
        }
    }

    void encode(std::uint64_t first) {
        for (std::size_t i = 0; i != steps_.samples_of_replica(); ++i) {
            const captioned_picture sample = networks_.encode_picture(first, i, latents_.of(i));
            if (reads_conditions_) {
                from_.source().say(sample.refused);
                cut_ += networks_.encode_text(sample, row_of(i)) ? 1 : 0;
            }
            write_facts(sample.facts, i);
        }
    }
    /// Writes what is known of a sample besides its caption; hint and mask become those of the picture used.
    void write_facts(const picture_facts& facts, std::size_t sample) {
        for (std::optional<frozen::decoded_ahead>* const images : {&hints_, &masks_}) {
            if (*images) { (*images)->require(sample, facts.index); }
        }
        if (reads_conditions_) { frozen::write_picture_facts(row, facts, seen_.pixels, row_of(sample)); }
    }

    pictures<Model>& from_;
    bool in_bubbles_; ///< whether frozen tasks encode
    std::uint64_t end_;
    networks networks_;
    latents latents_;
    frozen::picture_extents seen_{from_.sizes().front()}; ///< extents of the step's pictures
    bool reads_conditions_;                               ///< only the first stage reads more than latents
    bool has_loss_;
    bool sees_pictures_;
    train::latent_task<B> steps_;
    std::size_t first_;         ///< the replica's first sample in a step
    std::vector<float> rows_{}; ///< what the backbone reads of each sample of the step
    std::optional<frozen::decoded_ahead> hints_{};
    std::optional<frozen::decoded_ahead> masks_{};
    std::uint64_t position_{};
    double loss_scale_{1};
    bool awaits_results_{};
    std::optional<std::uint64_t> encoded_{};
    std::string fault_{}; ///< why the next step cannot begin
    std::int64_t cut_{};
    double seconds_{};
};

} // namespace pulse
