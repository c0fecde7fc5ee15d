#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>

namespace pulse {

/// What a model may read of a sample besides the sample itself and its time. The first two kinds are scalars and part
/// of the text; the others are accumulators and part of the facts.
enum class condition_kind : std::uint8_t {
    text_states,          ///< of one text encoder, [tokens][features]
    pooled_text,          ///< [features]
    text_mask,            ///< one per token of all text states, in their order: 1 for text, 0 for padding
    original_crop_target, ///< six numbers: height and width of the picture, top and left of the crop, size of the crop
    original_target_crop, ///< the same six in another order
    style,                ///< always 0: there is one style
    class_label,          ///< from 0
};

/// One thing that a model reads of every sample.
struct condition {
    condition_kind kind{};
    int tokens{1};
    int features{1};
    int classes{}; ///< of class_label: the number of classes

    [[nodiscard]] constexpr bool is_text() const noexcept { return kind <= condition_kind::pooled_text; }
    /// Numbers per sample.
    [[nodiscard]] constexpr std::int64_t elements() const noexcept { return std::int64_t{tokens} * features; }
    [[nodiscard]] constexpr bool operator==(const condition&) const = default;
};

/// All that a model reads of a sample, in the order of its text and facts. Each condition is stored for all samples of
/// a microbatch, [batch][elements], followed by the next condition.
class condition_set {
public:
    static constexpr std::size_t capacity = 8;

    /// Throws std::length_error when there are too many.
    constexpr void add(const condition& one) {
        if (count_ == capacity) { throw std::length_error("pulse: a model may read at most 8 conditions"); }
        all_[count_++] = one;
    }
    constexpr void add(const condition_set& others) {
        for (const condition& one : others.all()) { add(one); }
    }

    [[nodiscard]] constexpr std::span<const condition> all() const noexcept { return {all_.data(), count_}; }
    [[nodiscard]] constexpr bool empty() const noexcept { return count_ == 0; }
    /// Per sample: scalars of its text and numbers of its facts.
    [[nodiscard]] constexpr std::int64_t text_elements() const noexcept { return elements(true); }
    [[nodiscard]] constexpr std::int64_t fact_elements() const noexcept { return elements(false); }
    [[nodiscard]] constexpr bool operator==(const condition_set&) const = default;

private:
    [[nodiscard]] constexpr std::int64_t elements(bool of_text) const noexcept {
        std::int64_t sum = 0;
        for (const condition& one : all()) { sum += one.is_text() == of_text ? one.elements() : 0; }
        return sum;
    }

    std::array<condition, capacity> all_{};
    std::size_t count_{};
};

} // namespace pulse
