#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include <pulse/hardware/device.hpp>

#include "product_shapes.hpp"

namespace pulse_bench {

/// What a training step consists of.
enum class work_kind : std::uint8_t {
    convolution_forward,
    convolution_dgrad,
    convolution_wgrad,
    product_forward,
    product_dgrad,
    product_wgrad,
    attention_forward,
    attention_backward,
    group_norm_forward,
    group_norm_backward,
    layer_norm_forward,
    layer_norm_backward,
    pointwise,
    resampling,
    column_sums, ///< gradients of biases and of what is added to every pixel
    copies,
    fills,
    loss,
    gradient_norm,
    optimizer
};
inline constexpr std::array<std::string_view, 20> work_kinds{"convolution forward",
                                                             "convolution dgrad",
                                                             "convolution wgrad",
                                                             "product forward",
                                                             "product dgrad",
                                                             "product wgrad",
                                                             "attention forward",
                                                             "attention backward",
                                                             "GroupNorm forward",
                                                             "GroupNorm backward",
                                                             "LayerNorm forward",
                                                             "LayerNorm backward",
                                                             "pointwise",
                                                             "resampling",
                                                             "column sums",
                                                             "copies",
                                                             "fills",
                                                             "loss",
                                                             "gradient norm",
                                                             "optimizer"};
static_assert(work_kinds.size() == static_cast<std::size_t>(work_kind::optimizer) + 1);

/// Whose step: pulse's, the least that the layers need, or what torch.compile is assumed to run.
enum class party : std::uint8_t { pulse, least, torch };
inline constexpr std::array<std::string_view, 3> parties{"pulse", "least", "torch"};

/// A card's rates for large copies and products, and the cost of starting a kernel of a graph.
struct card {
    int multiprocessors{};
    double bytes_per_second{};
    double flops_per_second{}; ///< of products in bfloat16
    double launch_seconds{2e-6};
};

/// Devices of pulse::known_devices that compute in bfloat16, with their multiprocessors.
inline constexpr std::array<std::pair<std::string_view, int>, 4> counted_cards{
    {{"a100-80gb", 108}, {"h100-80gb", 132}, {"h200", 132}, {"rtx-4090", 128}}};

/// One of counted_cards. Large copies are assumed to reach 0.9 and large products 0.7 of the maker's figures.
[[nodiscard]] constexpr std::optional<card> find_card(std::string_view name) {
    for (const auto& [known, multiprocessors] : counted_cards) {
        if (known != name) { continue; }
        const pulse::device& of = *pulse::find_device(name);
        return card{multiprocessors, 0.9 * of.memory_gb_per_s * 1e9, 0.7 * of.tflops_16 * 1e12};
    }
    return std::nullopt;
}

struct work_amount {
    double kernels{}; ///< may be a fraction: torch fuses some work into other kernels
    double bytes{};
    double flops{};
    double seconds{};

    work_amount& operator+=(const work_amount& more) {
        kernels += more.kernels;
        bytes += more.bytes;
        flops += more.flops;
        seconds += more.seconds;
        return *this;
    }
};

/// Kernels, bytes and FLOP of one step by kind, for each party, with the time they take one after another.
class ledger {
public:
    explicit ledger(const card& on) : card_{on} {}

    /// Enters work of like kernels, with products at `rate_share` of the card's rate for large ones, and returns it.
    work_amount put(party whose, work_kind kind, double kernels, double bytes, double flops = 0,
                    double rate_share = 1) {
        const double moving = bytes / card_.bytes_per_second;
        const double multiplying = flops / (card_.flops_per_second * rate_share);
        const work_amount amount{kernels, bytes, flops, std::max(moving, multiplying) + kernels * card_.launch_seconds};
        at(whose, kind) += amount;
        return amount;
    }
    /// Records that an entered amount of pulse multiplies matrices of this shape.
    void put_product(const product_shape& shape, const work_amount& amount) { products_[shape] += amount; }
    [[nodiscard]] const std::map<product_shape, work_amount>& products() const { return products_; }
    [[nodiscard]] const work_amount& of(party whose, work_kind kind) const {
        return rows_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(whose)];
    }
    [[nodiscard]] work_amount total(party whose) const {
        work_amount sum;
        for (const auto& row : rows_) { sum += row[static_cast<std::size_t>(whose)]; }
        return sum;
    }

private:
    work_amount& at(party whose, work_kind kind) {
        return rows_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(whose)];
    }

    card card_;
    std::array<std::array<work_amount, parties.size()>, work_kinds.size()> rows_{};
    std::map<product_shape, work_amount> products_{};
};

} // namespace pulse_bench
