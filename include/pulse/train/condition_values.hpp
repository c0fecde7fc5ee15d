#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include <pulse/model/condition.hpp>

namespace pulse::train {

/// Source of the conditions that a task's model reads; on ranks without stage 0, `wanted` is empty.
struct condition_source {
    condition_set wanted{}; ///< conditions_read_by<Model>()
    /// Writes condition `which` of `wanted` for the sample at a global position: the same on every rank, in any order.
    std::function<void(std::uint64_t position, std::size_t which, std::span<float> to)> read{};
    /// Elements of a sample's hint, where the model reads one (reads_hint), and what writes it, under the same rules.
    std::size_t hint_elements{};
    std::function<void(std::uint64_t position, std::span<float> to)> read_hint{};
};

/// Conditions of some microbatches as floats on the host, one microbatch after the other: text and facts in the layout
/// of layer_frame, and hints.
class condition_values {
public:
    condition_values() = default;
    condition_values(condition_source from, int microbatch_size, int microbatches) :
        from_{std::move(from)}, batch_{static_cast<std::size_t>(microbatch_size)},
        text_(elements_of(from_.wanted.text_elements()) * static_cast<std::size_t>(microbatches)),
        facts_(elements_of(from_.wanted.fact_elements()) * static_cast<std::size_t>(microbatches)),
        hints_(batch_ * from_.hint_elements * static_cast<std::size_t>(microbatches)) {}

    /// Reads the conditions of the samples from global position `first`.
    void begin(std::uint64_t first) {
        const std::size_t each = from_.hint_elements;
        for (std::size_t at = 0; at != hints_.size(); at += each) {
            from_.read_hint(first + at / each, std::span{hints_}.subspan(at, each));
        }
        auto text = text_.begin();
        auto facts = facts_.begin();
        for (; text != text_.end() || facts != facts_.end(); first += batch_) {
            for (std::size_t which = 0; which != from_.wanted.all().size(); ++which) {
                const condition& one = from_.wanted.all()[which];
                auto& to = one.is_text() ? text : facts;
                for (std::size_t i = 0; i != batch_; ++i) {
                    const auto end = to + one.elements();
                    from_.read(first + i, which, {to, end});
                    to = end;
                }
            }
        }
    }

    /// Values of all microbatches.
    [[nodiscard]] std::span<const float> text() const noexcept { return text_; }
    [[nodiscard]] std::span<const float> facts() const noexcept { return facts_; }
    [[nodiscard]] std::span<const float> hints() const noexcept { return hints_; }
    /// Offsets of a microbatch's values.
    [[nodiscard]] std::size_t text_at(int microbatch) const noexcept {
        return static_cast<std::size_t>(microbatch) * elements_of(from_.wanted.text_elements());
    }
    [[nodiscard]] std::size_t facts_at(int microbatch) const noexcept {
        return static_cast<std::size_t>(microbatch) * elements_of(from_.wanted.fact_elements());
    }
    [[nodiscard]] std::size_t hints_at(int microbatch) const noexcept {
        return static_cast<std::size_t>(microbatch) * hints_of_microbatch();
    }
    [[nodiscard]] std::size_t hints_of_microbatch() const noexcept { return batch_ * from_.hint_elements; }

private:
    /// Elements in a microbatch.
    [[nodiscard]] std::size_t elements_of(std::int64_t of_sample) const noexcept {
        return batch_ * static_cast<std::size_t>(of_sample);
    }

    condition_source from_{};
    std::size_t batch_{};
    std::vector<float> text_{};
    std::vector<float> facts_{};
    std::vector<float> hints_{};
};

} // namespace pulse::train
