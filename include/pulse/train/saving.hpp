#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
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
#include <pulse/train/adafactor.hpp>
#include <pulse/train/cascade_trainer.hpp>
#include <pulse/train/loss_scale.hpp>
#include <pulse/train/rank_optimizer.hpp>
#include <pulse/train/trainer.hpp>

namespace pulse {

namespace detail {

inline constexpr const char* loss_scale_keys[]{"loss_scale", "loss_scale_good_steps", "loss_scale_skipped_steps"};
inline constexpr const char* last_norm_key = "last_gradient_norm";

/// Adds what a trainer, or a backbone of a cascade, agrees on between steps to what a checkpoint keeps: a loss scale,
/// if a run has ever scaled its loss, and a norm that clips the next step.
template <class Backbone>
void add_agreed(std::map<std::string, std::string>& config, Backbone& of, const std::string& prefix = {}) {
    if (of.last_norm() > 0) { config[prefix + last_norm_key] = exact_text(of.last_norm()); }
    const train::loss_scaler::state& now = of.loss_scale().now();
    if (!(now.scale > 0)) { return; }
    config[prefix + loss_scale_keys[0]] = exact_text(now.scale);
    config[prefix + loss_scale_keys[1]] = std::to_string(now.good_steps);
    config[prefix + loss_scale_keys[2]] = std::to_string(now.skipped_steps);
}
/// A number that add_agreed has put there. Throws input_error when it is damaged.
template <class T>
void read_agreed(const std::map<std::string, std::string>& config, const std::string& key, T& value) {
    const auto found = config.find(key);
    const std::string text = found == config.end() ? "" : found->second;
    const char* const end = text.data() + text.size();
    const auto [stop, fault] = std::from_chars(text.data(), end, value);
    if (fault != std::errc{} || stop != end || !(value >= 0)) {
        throw input_error{std::string{"checkpoint: '"} + key + "' is '" + text + "'"};
    }
}
/// The loss scale that add_agreed has put there. Throws input_error when that is damaged.
[[nodiscard]] inline train::loss_scaler::state loss_scale_in(const std::map<std::string, std::string>& config,
                                                             const std::string& prefix = {}) {
    train::loss_scaler::state kept;
    if (!config.contains(prefix + loss_scale_keys[0])) { return kept; }
    read_agreed(config, prefix + loss_scale_keys[0], kept.scale);
    read_agreed(config, prefix + loss_scale_keys[1], kept.good_steps);
    read_agreed(config, prefix + loss_scale_keys[2], kept.skipped_steps);
    return kept;
}
/// Goes on with what add_agreed has put there. Throws input_error when that is damaged.
template <class Backbone>
void resume_agreed(const std::map<std::string, std::string>& config, Backbone& to, const std::string& prefix = {}) {
    to.loss_scale().resume(loss_scale_in(config, prefix));
    double norm = 0;
    if (config.contains(prefix + last_norm_key)) { read_agreed(config, prefix + last_norm_key, norm); }
    to.set_last_norm(norm);
}

/// Whether a rank_state, or a view of one, has factored moments.
template <class State>
[[nodiscard]] bool is_factored(const State& state) {
    return state.first_moment.empty();
}

/// Makes room for moments of the other form where a rank_state has not those that are asked for, with what those that
/// it has stand for: means of rows and columns are of the second moments, which are their product over the mean; the
/// first ones are 0. `correction`: AdamW's, of the bias of second moments.
template <class Model, class Blocks>
void set_form(train::rank_state& state, const Blocks& blocks, bool factored, double correction) {
    if (is_factored(state) == factored) { return; }
    std::vector<float> made;
    std::size_t from = 0;
    for (const auto& block : blocks) {
        for (const parameter& p : parameters_of<Model>(block.layer)) {
            const auto n = static_cast<std::size_t>(p.elements());
            const auto rows = static_cast<std::size_t>(p.matrix_rows());
            const std::size_t means = factored_elements(n, rows);
            const std::size_t to = made.size();
            made.resize(to + (factored ? means : n));
            const auto read = std::span{std::as_const(state.second_moment)}.subspan(from, factored ? n : means);
            const auto written = std::span{made}.subspan(to);
            factored ? train::factor_moments(read, rows, written, correction)
                     : train::expand_moments(read, rows, written, correction);
            from += read.size();
        }
    }
    state.first_moment.assign(factored ? 0 : made.size(), 0.0F);
    state.second_moment = std::move(made);
}

/// Adds the tensors of a rank's layers by name; `blocks` are of its parameters, `T` is float or const float.
template <class Model, class T, class Blocks, class State>
void add_ranges(std::vector<train::tensor_range<T>>& to, const Blocks& blocks, State& state,
                std::string_view prefix = {}) {
    std::size_t mean = 0;
    for (const auto& block : blocks) {
        std::size_t at = block.first;
        for (const parameter& p : parameters_of<Model>(block.layer)) {
            const auto n = static_cast<std::size_t>(p.elements());
            const auto rows = static_cast<std::size_t>(p.matrix_rows());
            const auto add = [&](const parameter& what, train::tensor_part part, auto& of, std::size_t first) {
                const auto size = static_cast<std::size_t>(what.elements());
                if (size == 0 && part != train::tensor_part::weight) { return; }
                to.push_back({what, part, 0, std::span<T>{of}.subspan(first, size), prefix});
            };
            add(p, train::tensor_part::weight, state.weights, at);
            if (!is_factored(state)) {
                add(p, train::tensor_part::first_moment, state.first_moment, at);
                add(p, train::tensor_part::second_moment, state.second_moment, at);
            } else if (rows == 0) {
                add(p, train::tensor_part::second_moment, state.second_moment, mean);
            } else {
                const auto means = [&](std::size_t size) {
                    return parameter{.name = p.name, .dims = {static_cast<int>(size)}, .rank = 1};
                };
                add(means(rows), train::tensor_part::row_means, state.second_moment, mean);
                add(means(n / rows), train::tensor_part::column_means, state.second_moment, mean + rows);
            }
            add(p, train::tensor_part::average, state.average, at);
            at += n;
            mean += factored_elements(n, rows);
        }
    }
}

/// Reads what a rank keeps of a backbone, whatever the form of the moments in the checkpoint is. `beta2` is AdamW's, to
/// go from one form to the other.
template <class Model, class Backbone, class Blocks>
[[nodiscard]] train::rank_state read_backbone_state(train::checkpoint_reader& reader, Backbone& of,
                                                    const Blocks& blocks, double beta2,
                                                    const std::string& prefix = {}) {
    const train::training_state& from = reader.state();
    const std::int64_t applied = from.step - loss_scale_in(from.config, prefix).skipped_steps;
    // Before the first update all moments are 0, whatever they are divided by.
    const double correction = applied < 1 ? 1.0 : 1.0 - std::pow(beta2, static_cast<double>(applied));
    train::rank_state kept = of.read_state();
    const bool factored = is_factored(kept);
    const std::string_view first =
        train::detail::tensor_prefixes[static_cast<std::size_t>(train::tensor_part::first_moment)];
    set_form<Model>(kept, blocks,
                    std::ranges::none_of(reader.manifest().tensors,
                                         [&](const auto& entry) { return entry.name.starts_with(first); }),
                    correction);
    std::vector<train::tensor_range<float>> ranges;
    add_ranges<Model>(ranges, blocks, kept, prefix);
    reader.read(ranges);
    set_form<Model>(kept, blocks, factored, correction);
    return kept;
}

/// What a checkpoint says of a run beside its tensors, but for what add_agreed says.
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
    detail::add_agreed(now.config, trained);
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
    detail::add_agreed(now.config, first, "first.");
    detail::add_agreed(now.config, second, "second.");
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
    const train::rank_state kept = detail::read_backbone_state<Model>(
        reader, trained, trained.runner().parameters().blocks(), trained.options().adamw.beta2);
    trained.set_state(kept, from.step, from.position);
    detail::resume_agreed(from.config, trained);
}
template <any_model First, any_model Second, backend B>
void resume_trainer(cascade_trainer<First, Second, B>& trained, const std::filesystem::path& folder) {
    train::checkpoint_reader reader{train::find_checkpoint(trained.ranks(), folder)};
    const train::training_state& from = reader.state();
    detail::require_resumable(trained, from, folder);
    auto& first = trained.first();
    auto& second = trained.second();
    const double beta2 = trained.options().adamw.beta2;
    const auto kept = detail::read_backbone_state<First>(reader, first, first.parameters().blocks(), beta2, "first.");
    const auto other =
        detail::read_backbone_state<Second>(reader, second, second.parameters().blocks(), beta2, "second.");
    trained.set_state(kept, other, from.step, from.position);
    detail::resume_agreed(from.config, first, "first.");
    detail::resume_agreed(from.config, second, "second.");
}

} // namespace pulse
