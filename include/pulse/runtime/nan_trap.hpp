#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <pulse/model/graph.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/runtime/transport.hpp>

namespace pulse {

/// A tensor of a step that contained a non-finite number; ordered by where a sample meets it first.
struct value_fault {
    enum class place : std::uint8_t {
        output,        ///< of the layer; of model_input: the model's input; of conditioning_block: the conditioning
        loss_gradient, ///< of the last layer's output, as the task made it
        input_gradient ///< of the layer
    };

    static constexpr int model_input = conditioning_block - 1;

    place where{};
    int layer{};
    int stage{};
    int microbatch{};

    /// How far a sample had got: forward through the layers, then back.
    [[nodiscard]] constexpr std::array<int, 3> order() const noexcept {
        return {static_cast<int>(where), where == place::input_gradient ? -layer : layer, microbatch};
    }
    [[nodiscard]] constexpr bool operator==(const value_fault&) const = default;
};

/// One sentence: which tensor, of which layer, stage and microbatch.
[[nodiscard]] inline std::string to_text(const value_fault& fault, const graph_view& model) {
    const auto layer = [&] { return "layer '" + model.layers[static_cast<std::size_t>(fault.layer)].name.str() + "'"; };
    std::string what = "the model's input";
    if (fault.where == value_fault::place::loss_gradient) {
        what = "the gradient of the loss";
    } else if (fault.where == value_fault::place::input_gradient) {
        what = "the gradient of the input of " + layer();
    } else if (fault.layer >= 0) {
        what = "the output of " + layer();
    } else if (fault.layer == conditioning_block) {
        what = "the conditioning";
    }
    return what + " (stage " + std::to_string(fault.stage) + ", microbatch " + std::to_string(fault.microbatch) +
           ") is the first that is not finite";
}

/// Checks the tensors of a step as they are computed and keeps the earliest non-finite one of its rank. Each check
/// copies the tensor to the host: use it to find a fault, not for training.
template <class B>
class nan_trap {
public:
    using scalar = typename B::scalar;

    explicit nan_trap(B& math) noexcept : math_{math} {}

    void turn(bool on) noexcept {
        on_ = on;
        first_.reset();
    }
    [[nodiscard]] bool on() const noexcept { return on_; }
    [[nodiscard]] const std::optional<value_fault>& first() const noexcept { return first_; }

    void look(const value_fault& at, const scalar* values, std::int64_t elements) {
        if (first_ && first_->order() <= at.order()) { return; }
        if (!finite(values, static_cast<std::size_t>(elements))) { first_ = at; }
    }

private:
    /// 16-bit device types convert only to float.
    [[nodiscard]] static auto as_number(const scalar& x) {
        if constexpr (std::is_same_v<scalar, double>) {
            return x;
        } else {
            return static_cast<float>(x);
        }
    }
    [[nodiscard]] bool finite(const scalar* values, std::size_t elements) {
        // the tensor's computation may still be running
        if constexpr (requires { math_.synchronize(); }) { math_.synchronize(); }
        copy_.resize(elements);
        space_of<B>::template download<scalar>(values, std::span<scalar>{copy_});
        return std::all_of(copy_.begin(), copy_.end(), [](const scalar& x) { return std::isfinite(as_number(x)); });
    }

    B& math_;
    bool on_{};
    std::optional<value_fault> first_{};
    std::vector<scalar> copy_{};
};

/// The earliest fault found by any rank of a transport, on every rank; none if no rank found one. Collective.
template <transport T>
[[nodiscard]] std::optional<value_fault> earliest_fault(T& ranks, const std::optional<value_fault>& mine) {
    constexpr std::size_t fields = 5;
    std::vector<double> all(fields * static_cast<std::size_t>(ranks.size()));
    if (mine) {
        const std::array<int, fields> written{1, static_cast<int>(mine->where), mine->layer, mine->stage,
                                              mine->microbatch};
        std::copy(written.begin(), written.end(),
                  all.begin() + static_cast<std::ptrdiff_t>(fields) * static_cast<std::ptrdiff_t>(ranks.rank()));
    }
    ranks.sum(all);
    std::optional<value_fault> earliest;
    for (std::size_t at = 0; at != all.size(); at += fields) {
        if (all[at] == 0) { continue; }
        const auto field = [&](std::size_t i) { return static_cast<int>(all[at + i]); };
        const value_fault found{static_cast<value_fault::place>(field(1)), field(2), field(3), field(4)};
        if (!earliest || found.order() < earliest->order()) { earliest = found; }
    }
    return earliest;
}

} // namespace pulse
