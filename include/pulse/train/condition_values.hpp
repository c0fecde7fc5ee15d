#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include <pulse/model/condition.hpp>

namespace pulse::train {

/// Where a task has what its model reads of the samples from; on ranks without stage 0, nothing is wanted.
struct condition_source {
    condition_set wanted{}; ///< conditions_read_by<Model>()
    /// Writes condition `which` of `wanted` for the sample at a global position: the same on every rank, in any order.
    std::function<void(std::uint64_t position, std::size_t which, std::span<float> to)> read{};
};

/// The conditions of some microbatches in floats on the host, one microbatch behind the other: text and facts as
/// layer_frame has them.
class condition_values {
public:
    condition_values() = default;
    condition_values(condition_source from, int microbatch_size, int microbatches) :
        from_{std::move(from)}, batch_{static_cast<std::size_t>(microbatch_size)},
        text_(elements_of(from_.wanted.text_elements()) * static_cast<std::size_t>(microbatches)),
        facts_(elements_of(from_.wanted.fact_elements()) * static_cast<std::size_t>(microbatches)) {}

    /// Reads those of the samples from global position `first`.
    void begin(std::uint64_t first) {
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

    /// Of all microbatches.
    [[nodiscard]] std::span<const float> text() const noexcept { return text_; }
    [[nodiscard]] std::span<const float> facts() const noexcept { return facts_; }
    /// Where those of a microbatch begin.
    [[nodiscard]] std::size_t text_at(int microbatch) const noexcept {
        return static_cast<std::size_t>(microbatch) * elements_of(from_.wanted.text_elements());
    }
    [[nodiscard]] std::size_t facts_at(int microbatch) const noexcept {
        return static_cast<std::size_t>(microbatch) * elements_of(from_.wanted.fact_elements());
    }

private:
    /// Of a microbatch.
    [[nodiscard]] std::size_t elements_of(std::int64_t of_sample) const noexcept {
        return batch_ * static_cast<std::size_t>(of_sample);
    }

    condition_source from_{};
    std::size_t batch_{};
    std::vector<float> text_{};
    std::vector<float> facts_{};
};

} // namespace pulse::train
