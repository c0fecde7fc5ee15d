#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <pulse/checkpoint/reader.hpp>
#include <pulse/checkpoint/sharded.hpp>
#include <pulse/core/error.hpp>
#include <pulse/core/text_table.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/train/cascade_trainer.hpp>
#include <pulse/train/loss_scale.hpp>
#include <pulse/train/rank_optimizer.hpp>
#include <pulse/train/trainer.hpp>

namespace pulse {

namespace detail {

inline constexpr const char* loss_scale_keys[]{"loss_scale", "loss_scale_good_steps", "loss_scale_skipped_steps"};

/// Adds a loss scale to what a checkpoint keeps, if a run has ever scaled its loss.
inline void add_loss_scale(std::map<std::string, std::string>& config, const train::loss_scaler::state& now,
                           const std::string& prefix = {}) {
    if (!(now.scale > 0)) { return; }
    config[prefix + loss_scale_keys[0]] = exact_text(now.scale);
    config[prefix + loss_scale_keys[1]] = std::to_string(now.good_steps);
    config[prefix + loss_scale_keys[2]] = std::to_string(now.skipped_steps);
}
/// What add_loss_scale has put there. Throws input_error when that is damaged.
[[nodiscard]] inline train::loss_scaler::state loss_scale_in(const std::map<std::string, std::string>& config,
                                                             const std::string& prefix = {}) {
    train::loss_scaler::state kept;
    if (!config.contains(prefix + loss_scale_keys[0])) { return kept; }
    const auto read = [&](const std::string& name, auto& value) {
        const std::string key = prefix + name;
        const auto found = config.find(key);
        const std::string text = found == config.end() ? "" : found->second;
        const char* const end = text.data() + text.size();
        const auto [stop, fault] = std::from_chars(text.data(), end, value);
        if (fault != std::errc{} || stop != end || !(value >= 0)) {
            throw input_error{std::string{"checkpoint: '"} + key + "' is '" + text + "'"};
        }
    };
    read(loss_scale_keys[0], kept.scale);
    read(loss_scale_keys[1], kept.good_steps);
    read(loss_scale_keys[2], kept.skipped_steps);
    return kept;
}

/// Adds the tensors of a rank's layers by name; `blocks` are of its parameters, `T` is float or const float.
template <class Model, class T, class Blocks, class State>
void add_ranges(std::vector<train::tensor_range<T>>& to, const Blocks& blocks, State& state,
                std::string_view prefix = {}) {
    std::vector<train::checkpoint_tensor<T>> all;
    for (const auto& block : blocks) {
        std::size_t at = block.first;
        for (const parameter& p : parameters_of<Model>(block.layer)) {
            const auto n = static_cast<std::size_t>(p.elements());
            const auto part = [&](auto& values) { return std::span<T>{values}.subspan(at, n); };
            all.push_back(
                {p, part(state.weights), part(state.first_moment), part(state.second_moment), part(state.average)});
            at += n;
        }
    }
    for (train::tensor_range<T>& range : train::ranges_of<T>(all)) {
        range.prefix = prefix;
        to.push_back(range);
    }
}

/// What a checkpoint says of a run beside its tensors, but for loss scales.
template <class Trainer>
[[nodiscard]] train::training_state state_of_run(const Trainer& trained) {
    return {.step = trained.steps(),
            .position = trained.samples(),
            .seed = trained.options().seed,
            .config = trained.options().config};
}

/// Throws input_error unless a trainer may go on from a run of that state.
template <class Trainer>
void require_resumable(const Trainer& trained, const train::training_state& from, const std::filesystem::path& folder) {
    for (const auto& [key, value] : trained.options().config) {
        if (!trained.options().same_config) { break; }
        const auto found = from.config.find(key);
        if (found == from.config.end() || found->second != value) {
            throw input_error{"checkpoint '" + folder.string() + "': its run had " + key + " " +
                              (found == from.config.end() ? "unset" : found->second) + ", this one has " + value};
        }
    }
    if (trained.rounds_by_chance() && from.seed != trained.options().seed) {
        throw input_error{"checkpoint '" + folder.string() + "': its run had seed " + std::to_string(from.seed) +
                          ", this one has " + std::to_string(trained.options().seed) + ", and rounds weights by it"};
    }
}

} // namespace detail

/// See trainer::save. Every rank calls it; throws as train::sharded_checkpoints::save.
template <any_model Model, backend B>
train::saved_checkpoint save_trainer(trainer<Model, B>& trained, const train::checkpoint_place& place) {
    train::training_state now = detail::state_of_run(trained);
    detail::add_loss_scale(now.config, trained.loss_scale().now());
    return trained.with_state([&](const auto& kept) {
        std::vector<train::tensor_range<const float>> ranges;
        detail::add_ranges<Model>(ranges, trained.runner().parameters().blocks(), kept);
        return train::sharded_checkpoints<>{place}.save(trained.ranks(), ranges, now);
    });
}
template <any_model First, any_model Second, backend B>
train::saved_checkpoint save_trainer(cascade_trainer<First, Second, B>& trained, const train::checkpoint_place& place) {
    auto& first = trained.first();
    auto& second = trained.second();
    train::training_state now = detail::state_of_run(trained);
    detail::add_loss_scale(now.config, first.loss_scale().now(), "first.");
    detail::add_loss_scale(now.config, second.loss_scale().now(), "second.");
    return first.with_state([&](const auto& kept) {
        return second.with_state([&](const auto& other) {
            std::vector<train::tensor_range<const float>> ranges;
            detail::add_ranges<First>(ranges, first.parameters().blocks(), kept, "first.");
            detail::add_ranges<Second>(ranges, second.parameters().blocks(), other, "second.");
            return train::sharded_checkpoints<>{place}.save(trained.ranks(), ranges, now);
        });
    });
}
template <class Trainer>
train::saved_checkpoint save_trainer(Trainer& trained, const std::filesystem::path& folder) {
    return save_trainer(trained, train::checkpoint_place{.folder = folder});
}

/// See trainer::resume. `folder` is what find_checkpoint takes: a checkpoint, or the folder of some, whose last one it
/// is then. Every rank calls it.
template <any_model Model, backend B>
void resume_trainer(trainer<Model, B>& trained, const std::filesystem::path& folder) {
    train::checkpoint_reader reader{train::find_checkpoint(trained.ranks(), folder)};
    const train::training_state& from = reader.state();
    detail::require_resumable(trained, from, folder);
    train::rank_state kept = trained.read_state();
    std::vector<train::tensor_range<float>> ranges;
    detail::add_ranges<Model>(ranges, trained.runner().parameters().blocks(), kept);
    reader.read(ranges);
    trained.set_state(kept, from.step, from.position);
    trained.loss_scale().resume(detail::loss_scale_in(from.config));
}
template <any_model First, any_model Second, backend B>
void resume_trainer(cascade_trainer<First, Second, B>& trained, const std::filesystem::path& folder) {
    train::checkpoint_reader reader{train::find_checkpoint(trained.ranks(), folder)};
    const train::training_state& from = reader.state();
    detail::require_resumable(trained, from, folder);
    auto& first = trained.first();
    auto& second = trained.second();
    train::rank_state kept = first.read_state();
    train::rank_state other = second.read_state();
    std::vector<train::tensor_range<float>> ranges;
    detail::add_ranges<First>(ranges, first.parameters().blocks(), kept, "first.");
    detail::add_ranges<Second>(ranges, second.parameters().blocks(), other, "second.");
    reader.read(ranges);
    trained.set_state(kept, other, from.step, from.position);
    first.loss_scale().resume(detail::loss_scale_in(from.config, "first."));
    second.loss_scale().resume(detail::loss_scale_in(from.config, "second."));
}

} // namespace pulse
