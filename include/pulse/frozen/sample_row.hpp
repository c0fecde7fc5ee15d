#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include <pulse/model/condition.hpp>
#include <pulse/model/extent.hpp>

namespace pulse::frozen {

/// Whether a condition depends on the caption; all others depend on the picture.
[[nodiscard]] constexpr bool is_of_caption(condition_kind kind) noexcept { return kind <= condition_kind::text_mask; }

/// Layout of the conditions that a model reads, as one row of numbers per sample: concatenated in their order.
struct sample_row {
    static constexpr std::size_t none = condition_set::capacity;

    condition_set wanted{};
    int no_class{-1}; ///< the label of pictures without a known class

    [[nodiscard]] constexpr std::size_t elements() const noexcept {
        return static_cast<std::size_t>(wanted.text_elements() + wanted.fact_elements());
    }
    /// Number of classes that pictures may have; 0: the model reads none.
    [[nodiscard]] constexpr int classes() const noexcept {
        const std::size_t which = find(condition_kind::class_label);
        if (which == none) { return 0; }
        return no_class < 0 ? wanted.all()[which].classes : no_class;
    }
    /// Offset of condition `which`.
    [[nodiscard]] constexpr std::size_t at(std::size_t which) const noexcept {
        std::size_t sum = 0;
        for (const condition& one : wanted.all().first(which)) { sum += static_cast<std::size_t>(one.elements()); }
        return sum;
    }
    template <class T>
    [[nodiscard]] constexpr std::span<T> of(std::span<T> row, std::size_t which) const {
        return row.subspan(at(which), static_cast<std::size_t>(wanted.all()[which].elements()));
    }
    [[nodiscard]] constexpr std::size_t count(condition_kind kind) const noexcept {
        const auto all = wanted.all();
        return static_cast<std::size_t>(
            std::count_if(all.begin(), all.end(), [&](const condition& one) { return one.kind == kind; }));
    }
    /// The first condition of a kind after `skipped` others of it, or `none`.
    [[nodiscard]] constexpr std::size_t find(condition_kind kind, std::size_t skipped = 0) const noexcept {
        for (std::size_t which = 0; which != wanted.all().size(); ++which) {
            if (wanted.all()[which].kind == kind && skipped-- == 0) { return which; }
        }
        return none;
    }
    /// The conditions that depend on the caption.
    [[nodiscard]] std::vector<std::size_t> of_caption() const {
        std::vector<std::size_t> found;
        for (std::size_t which = 0; which != wanted.all().size(); ++which) {
            if (is_of_caption(wanted.all()[which].kind)) { found.push_back(which); }
        }
        return found;
    }
};

/// What is known of a picture besides its pixels.
struct picture_facts {
    int original_height{}; ///< before it was resized and cropped
    int original_width{};
    int crop_top{}; ///< in the resized picture
    int crop_left{};
    int label{};                 ///< its class, where pictures are in class folders
    bool dropped : 1 {};         ///< seen without its caption and class
    std::uint32_t index : 31 {}; ///< of the picture in the folder, modulo 2^31
};
static_assert(sizeof(picture_facts) == 24); // counted in the bytes of frozen layers in profiles and plans

/// Writes a sample's conditions that depend on its picture, seen at `seen` pixels. Its class is one of the model's.
inline void write_picture_facts(const sample_row& layout, const picture_facts& facts, const extent& seen,
                                std::span<float> row) {
    const auto put = [](std::span<float> to, std::initializer_list<int> values) {
        std::ranges::transform(values, to.begin(), [](int value) { return static_cast<float>(value); });
    };
    for (std::size_t which = 0; which != layout.wanted.all().size(); ++which) {
        const std::span<float> to = layout.of(row, which);
        switch (layout.wanted.all()[which].kind) {
        case condition_kind::original_crop_target:
            put(to, {facts.original_height, facts.original_width, facts.crop_top, facts.crop_left, seen.height,
                     seen.width});
            break;
        case condition_kind::original_target_crop:
            put(to, {facts.original_height, facts.original_width, seen.height, seen.width, facts.crop_top,
                     facts.crop_left});
            break;
        case condition_kind::style: put(to, {0}); break;
        case condition_kind::class_label: put(to, {facts.dropped ? layout.no_class : facts.label}); break;
        default: break;
        }
    }
}

} // namespace pulse::frozen
