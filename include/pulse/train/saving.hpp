#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include <pulse/checkpoint/reader.hpp>
#include <pulse/checkpoint/sharded.hpp>
#include <pulse/core/error.hpp>
#include <pulse/core/text_table.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/train/adafactor.hpp>
#include <pulse/train/loss_scale.hpp>
#include <pulse/train/rank_optimizer.hpp>
#include <pulse/train/training_run.hpp>

namespace pulse {

namespace detail {

inline constexpr const char* loss_scale_keys[]{"loss_scale", "loss_scale_good_steps", "loss_scale_skipped_steps"};
inline constexpr const char* last_norm_key = "last_gradient_norm";

/// Adds to a checkpoint's config what a trainer, or a backbone of a cascade, agrees on between steps: the loss scale,
/// if a run ever scaled its loss, and the norm that clips the next step.
template <class Backbone>
void add_agreed(std::map<std::string, std::string>& config, Backbone& of, const std::string& prefix) {
    if (of.last_norm() > 0) { config[prefix + last_norm_key] = exact_text(of.last_norm()); }
    const train::loss_scaler::state& now = of.loss_scale().now();
    if (!(now.scale > 0)) { return; }
    config[prefix + loss_scale_keys[0]] = exact_text(now.scale);
    config[prefix + loss_scale_keys[1]] = std::to_string(now.good_steps);
    config[prefix + loss_scale_keys[2]] = std::to_string(now.skipped_steps);
}
/// Reads a number that add_agreed wrote. Throws input_error when it is missing or damaged.
template <class T>
void read_agreed(const std::map<std::string, std::string>& config, const std::string& key, T& value) {
    const auto found = config.find(key);
    const std::string text = found == config.end() ? "" : found->second;
    const char* const end = text.data() + text.size();
    const auto [stop, fault] = std::from_chars(text.data(), end, value);
    if (fault != std::errc{} || stop != end || !(value >= 0)) {
        throw input_error{std::string{"checkpoint: '"} + key + "' must be a number that is not negative, not '" + text +
                          "'"};
    }
}
/// Reads the loss scale that add_agreed wrote, if any. Throws input_error when it is damaged.
[[nodiscard]] inline train::loss_scaler::state loss_scale_in(const std::map<std::string, std::string>& config,
                                                             const std::string& prefix) {
    train::loss_scaler::state kept;
    if (!config.contains(prefix + loss_scale_keys[0])) { return kept; }
    read_agreed(config, prefix + loss_scale_keys[0], kept.scale);
    read_agreed(config, prefix + loss_scale_keys[1], kept.good_steps);
    read_agreed(config, prefix + loss_scale_keys[2], kept.skipped_steps);
    return kept;
}
/// Restores what add_agreed wrote. Throws input_error when it is damaged.
template <class Backbone>
void resume_agreed(const std::map<std::string, std::string>& config, Backbone& to, const std::string& prefix) {
    to.loss_scale().resume(loss_scale_in(config, prefix));
    double norm = 0;
    if (config.contains(prefix + last_norm_key)) { read_agreed(config, prefix + last_norm_key, norm); }
    to.set_last_norm(norm);
}

/// Converts a block's second moments to the other form: factored (means of rows and columns, whose product over their
/// mean stands for the moment) or not. `correction`: AdamW's bias correction of second moments.
template <class Model>
[[nodiscard]] std::vector<float> second_moment_in_other_form(int layer, std::span<const float> kept, bool factored,
                                                             double correction) {
    std::vector<float> made;
    for (const parameter& p : parameters_of<Model>(layer)) {
        const auto n = static_cast<std::size_t>(p.elements());
        const auto rows = static_cast<std::size_t>(p.matrix_rows());
        const std::size_t means = factored_elements(n, rows);
        const std::size_t to = made.size();
        made.resize(to + (factored ? means : n));
        const auto read = kept.first(factored ? n : means);
        const auto written = std::span{made}.subspan(to);
        factored ? train::factor_moments(read, rows, written, correction)
                 : train::expand_moments(read, rows, written, correction);
        kept = kept.subspan(read.size());
    }
    return made;
}

/// A checkpoint's tensors of a rank's backbone, in buffers for its largest parameter block.
template <class Backbone>
class block_room {
public:
    using model = typename Backbone::model;
    using block = typename Backbone::block;

    /// `factored`: form of the moments in the checkpoint.
    block_room(Backbone& of, std::string_view prefix, bool factored) :
        of_{of}, blocks_{of.parameters().blocks()}, prefix_{prefix}, factored_{factored} {
        std::size_t size = 0;
        std::size_t second = 0;
        for (const block& b : blocks_) {
            size = std::max(size, b.size);
            second = std::max(second, second_size(b));
        }
        room_ = {std::vector<float>(size), std::vector<float>(factored_ ? 0 : size), std::vector<float>(second),
                 std::vector<float>(size)};
    }

    /// Appends the tensors of all blocks, named; `T` is float or const float.
    template <class T>
    void list(std::vector<train::tensor_range<T>>& to) {
        for (const block& b : blocks_) {
            begins_.push_back(to.size());
            add_ranges(to, b.layer);
        }
        begins_.push_back(to.size());
    }
    /// Loads the block of a range if it is read next or if replicas load together; see sharded_checkpoints::save.
    void load(std::size_t range, bool read) {
        if (range < begins_.front() || range >= begins_.back()) { return; }
        const auto behind = std::upper_bound(begins_.begin(), begins_.end(), range);
        const auto b = static_cast<std::size_t>(behind - begins_.begin()) - 1;
        if (b == loaded_ || !(read || of_.is_sharded())) { return; }
        const train::rank_state now = of_.read_state(blocks_[b]);
        for (const auto part : train::rank_state_parts) { std::ranges::copy(now.*part, (room_.*part).begin()); }
        loaded_ = b;
    }
    /// Restores the backbone from a checkpoint in which `ranges`, as listed, have been checked.
    void resume(train::checkpoint_reader& from, std::span<const train::tensor_range<float>> ranges, double correction) {
        for (std::size_t b = 0; b != blocks_.size(); ++b) {
            from.fill(ranges.subspan(begins_[b], begins_[b + 1] - begins_[b]));
            const std::size_t size = blocks_[b].size;
            const auto copy = [](const std::vector<float>& of, std::size_t n) {
                return std::vector<float>(of.begin(), of.begin() + static_cast<std::ptrdiff_t>(n));
            };
            train::rank_state kept{copy(room_.weights, size), copy(room_.first_moment, factored_ ? 0 : size),
                                   copy(room_.second_moment, second_size(blocks_[b])), copy(room_.average, size)};
            if (const bool factored = of_.form().is_factored(); factored != factored_) {
                kept.second_moment =
                    second_moment_in_other_form<model>(blocks_[b].layer, kept.second_moment, factored, correction);
                kept.first_moment.assign(factored ? 0 : size, 0.0F);
            }
            of_.set_state(std::move(kept), blocks_[b]);
        }
    }

private:
    [[nodiscard]] std::size_t second_size(const block& b) const {
        if (!factored_) { return b.size; }
        std::size_t means = 0;
        for (const parameter& p : parameters_of<model>(b.layer)) {
            means +=
                factored_elements(static_cast<std::size_t>(p.elements()), static_cast<std::size_t>(p.matrix_rows()));
        }
        return means;
    }
    template <class T>
    void add_ranges(std::vector<train::tensor_range<T>>& to, int layer) {
        using enum train::tensor_part;
        std::size_t at = 0;
        std::size_t mean = 0;
        for (const parameter& p : parameters_of<model>(layer)) {
            const auto n = static_cast<std::size_t>(p.elements());
            const auto rows = static_cast<std::size_t>(p.matrix_rows());
            const auto add = [&](const parameter& what, train::tensor_part part, std::vector<float>& of,
                                 std::size_t first) {
                const auto size = static_cast<std::size_t>(what.elements());
                if (size == 0 && part != weight) { return; }
                to.push_back({what, part, 0, std::span<T>{of}.subspan(first, size), prefix_});
            };
            add(p, weight, room_.weights, at);
            if (!factored_) {
                add(p, first_moment, room_.first_moment, at);
                add(p, second_moment, room_.second_moment, at);
            } else if (rows == 0) {
                add(p, second_moment, room_.second_moment, mean);
            } else {
                const auto means = [&](std::size_t size) {
                    return parameter{.name = p.name, .dims = {static_cast<int>(size)}, .rank = 1};
                };
                add(means(rows), row_means, room_.second_moment, mean);
                add(means(n / rows), column_means, room_.second_moment, mean + rows);
            }
            add(p, average, room_.average, at);
            at += n;
            mean += factored_elements(n, rows);
        }
    }

    Backbone& of_;
    std::span<const block> blocks_;
    std::string_view prefix_;
    bool factored_;
    train::rank_state room_;
    std::vector<std::size_t> begins_{}; ///< first range of each block, and the end
    std::size_t loaded_{std::numeric_limits<std::size_t>::max()};
};

/// A rank's backbone and its tensors in a checkpoint.
template <class Backbone>
class resumed_backbone {
public:
    /// Throws input_error when the checkpoint lacks a tensor of the backbone, or is damaged.
    resumed_backbone(train::checkpoint_reader& from, Backbone& of, const char* prefix) :
        from_{from}, updates_{from.state().step - loss_scale_in(from.state().config, prefix).skipped_steps},
        room_{of, prefix, has_factored(from)} {
        room_.list(ranges_);
        from.check(ranges_);
    }
    /// `beta2` is AdamW's, for conversion between the forms of moments.
    void resume(double beta2) {
        // Before the first update all moments are 0, so any divisor will do.
        room_.resume(from_, ranges_, updates_ < 1 ? 1.0 : 1.0 - std::pow(beta2, static_cast<double>(updates_)));
    }

private:
    [[nodiscard]] static bool has_factored(const train::checkpoint_reader& from) {
        const auto first = train::detail::tensor_prefixes[static_cast<std::size_t>(train::tensor_part::first_moment)];
        return std::ranges::none_of(from.manifest().tensors,
                                    [&](const auto& entry) { return entry.name.starts_with(first); });
    }

    train::checkpoint_reader& from_;
    std::int64_t updates_; ///< updates in the moments
    block_room<Backbone> room_;
    std::vector<train::tensor_range<float>> ranges_{};
};

/// A checkpoint's record of a run besides its tensors and add_agreed's entries.
template <class Trainer>
[[nodiscard]] train::training_state state_of_run(const Trainer& trained) {
    return {.step = trained.steps(),
            .position = trained.samples(),
            .seed = trained.options().seed,
            .config = trained.options().config};
}

/// Throws input_error unless the trainer may continue from a run with that state.
template <class Trainer>
void require_resumable(const Trainer& trained, const train::training_state& from, const std::filesystem::path& folder) {
    for (const auto& [key, value] : trained.options().config) {
        if (!trained.options().same_config) { break; }
        const auto found = from.config.find(key);
        if (found == from.config.end() || found->second != value) {
            throw input_error{"checkpoint '" + folder.string() + "': its run had " + key + " " +
                              (found == from.config.end() ? "unset" : found->second) + ", but this one has " + value};
        }
    }
    if (trained.rounds_by_chance() && from.seed != trained.options().seed) {
        throw input_error{"checkpoint '" + folder.string() + "': its run had seed " + std::to_string(from.seed) +
                          ", but this one has " + std::to_string(trained.options().seed) +
                          ", and the seed determines how weights round"};
    }
}

} // namespace detail

/// See trainer::save. Every rank calls it; throws as train::sharded_checkpoints::save.
template <class Trainer>
train::saved_checkpoint save_trainer(Trainer& trained, const train::checkpoint_place& place) {
    train::training_state now = detail::state_of_run(trained);
    trained.require_whole();
    return trained.with_backbones([&](const auto&... one) {
        (detail::add_agreed(now.config, one.of, one.prefix), ...);
        const auto save = [&](auto&&... room) {
            std::vector<train::tensor_range<const float>> ranges;
            (room.list(ranges), ...);
            return train::sharded_checkpoints<>{place}.save(
                trained.ranks(), ranges, now, [&](std::size_t range, bool read) { (room.load(range, read), ...); });
        };
        return save(detail::block_room{one.of, one.prefix, one.of.form().is_factored()}...);
    });
}
template <class Trainer>
train::saved_checkpoint save_trainer(Trainer& trained, const std::filesystem::path& folder) {
    return save_trainer(trained, train::checkpoint_place{.folder = folder});
}

/// See trainer::resume. `folder` is a checkpoint, or a folder of checkpoints, whose last one is used (find_checkpoint).
/// Every rank calls it.
template <class Trainer>
void resume_trainer(Trainer& trained, const std::filesystem::path& folder) {
    train::checkpoint_reader reader{train::find_checkpoint(trained.ranks(), folder)};
    const train::training_state& from = reader.state();
    detail::require_resumable(trained, from, folder);
    trained.with_backbones([&]<class... Backbone>(const detail::named_backbone<Backbone>&... one) {
        // Check all backbones before changing any.
        const std::tuple resumed{std::make_unique<detail::resumed_backbone<Backbone>>(reader, one.of, one.prefix)...};
        std::apply([&](const auto&... each) { (each->resume(trained.options().adamw.beta2), ...); }, resumed);
        trained.set_progress(from.step, from.position);
        (detail::resume_agreed(from.config, one.of, one.prefix), ...);
    });
}

} // namespace pulse
