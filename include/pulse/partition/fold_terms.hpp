#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include <pulse/partition/layer_sums.hpp>

namespace pulse::detail {

/// What one device of a folded partition adds to the imbalance and saves of the bytes, from the ends of its layers.
///
/// Device d has the layers between the ends of R(d) (`outer`) and those of R(d+1) (`inner`), each the 2W ends of W
/// intervals; device 0 has all layers outside R(1), device P-1 all inside R(P-1).
class fold_terms {
public:
    constexpr fold_terms(const layer_sums& sums, int devices, int waves) :
        sums_(&sums), devices_(devices), waves_(waves) {}

    [[nodiscard]] constexpr bool any_residual() const noexcept { return !sums_->residual.empty(); }
    /// Bytes of the residual edges if every one went its own way between two devices; 0 when they are part of the cuts.
    [[nodiscard]] constexpr std::int64_t residual_base() const noexcept {
        if (!any_residual() || sums_->routing == skip_routing::relayed) { return 0; }
        return sums_->residual.back();
    }

    /// Sum over the W pairs of a device between R(d) and R(d+1) of the difference of their two loads.
    [[nodiscard]] constexpr double imbalance(const int* outer, const int* inner) const noexcept {
        double sum = 0.0;
        for (int w = 0; w != waves_; ++w) {
            const int mirror = 2 * (waves_ - 1 - w) + 1;
            sum += distance(load_between(outer[2 * w], inner[2 * w]), load_between(inner[mirror], outer[mirror]));
        }
        return sum;
    }
    /// The least that imbalance(outer, inner) can be when every end of `inner` is at least its `low`, at most its
    /// `high`.
    [[nodiscard]] constexpr double least_imbalance(const int* outer, const int* low, const int* high) const noexcept {
        double sum = 0.0;
        for (int w = 0; w != waves_; ++w) {
            const int mirror = 2 * (waves_ - 1 - w) + 1;
            const double least_head = load_between(outer[2 * w], low[2 * w]);
            const double most_head = load_between(outer[2 * w], high[2 * w]);
            const double least_tail = load_between(high[mirror], outer[mirror]);
            const double most_tail = load_between(low[mirror], outer[mirror]);
            if (least_head > most_tail) {
                sum += least_head - most_tail;
            } else if (least_tail > most_head) {
                sum += least_tail - most_head;
            }
        }
        return sum;
    }
    /// The best free cuts inside R(P-1), one per interval, and the imbalance there; `middles` may be null.
    [[nodiscard]] constexpr double split_inside(const int* cut, int* middles) const noexcept {
        double sum = 0.0;
        for (int w = 0; 2 * w < waves_; ++w) {
            const int v = waves_ - 1 - w;
            sum += split(cut[2 * w], cut[2 * w + 1], cut[2 * v], cut[2 * v + 1],
                         middles == nullptr ? nullptr : middles + w, middles == nullptr ? nullptr : middles + v);
        }
        return sum;
    }
    /// The best free cuts around R(1), one per gap between intervals, and the imbalance there; `gaps` may be null.
    [[nodiscard]] constexpr double split_outside(const int* cut, int* gaps) const noexcept {
        double sum = distance(load_between(0, cut[0]), load_between(cut[2 * waves_ - 1], sums_->layers));
        for (int w = 1; 2 * w <= waves_; ++w) {
            const int v = waves_ - w;
            sum += split(cut[2 * w - 1], cut[2 * w], cut[2 * v - 1], cut[2 * v], gaps == nullptr ? nullptr : gaps + w,
                         gaps == nullptr ? nullptr : gaps + v);
        }
        return sum;
    }

    /// Bytes that residual edges between layers of device d do not send, though the cuts between them (relayed), or
    /// residual_base (direct), count them: both their ends are on one device. The first layers of the intervals of
    /// R(d+1) are read from `inner_first`, their ends from `inner_end`: with the highest of several regions there and
    /// the lowest here, it is the most that any of them saves.
    [[nodiscard]] constexpr std::int64_t residual_saving(int device, const int* outer, const int* inner_first,
                                                         const int* inner_end) const noexcept {
        const bool relayed = sums_->routing == skip_routing::relayed;
        const int pieces = device == 0 ? waves_ + 1 : device == devices_ - 1 ? waves_ : 2 * waves_;
        std::int64_t sum = 0;
        for (int x = 0; x != pieces; ++x) {
            const piece from = piece_of(device, x, outer, inner_first, inner_end);
            for (int y = relayed ? x + 1 : x; y != pieces; ++y) {
                const piece to = piece_of(device, y, outer, inner_first, inner_end);
                const std::int64_t bytes = sums_->residual_between(from.first, from.end, to.first, to.end);
                sum += relayed ? bytes * (to.changes - from.changes) : bytes;
            }
        }
        return sum;
    }

private:
    const layer_sums* sums_;
    int devices_;
    int waves_;

    /// Layers [first, end), neighbours on one device, and the device changes before them on the way from layer 0.
    struct piece {
        int first{};
        int end{};
        int changes{};
    };

    [[nodiscard]] constexpr piece piece_of(int device, int index, const int* outer, const int* inner_first,
                                           const int* inner_end) const noexcept {
        const int wave = 2 * (devices_ - 1); // device changes of a whole wave
        if (device == 0) {
            return {index == 0 ? 0 : inner_end[2 * index - 1], index == waves_ ? sums_->layers : inner_first[2 * index],
                    index * wave};
        }
        if (device == devices_ - 1) { return {outer[2 * index], outer[2 * index + 1], index * wave + device}; }
        if (index % 2 == 0) { return {outer[index], inner_first[index], index / 2 * wave + device}; }
        return {inner_end[index], outer[index], (index / 2 + 1) * wave - device};
    }

    static constexpr double distance(double a, double b) noexcept { return a < b ? b - a : a - b; }
    [[nodiscard]] constexpr double load_between(int first, int last) const noexcept {
        return sums_->load[static_cast<std::size_t>(last)] - sums_->load[static_cast<std::size_t>(first)];
    }

    /// Cuts ranges a and b (mirrors of each other, perhaps the same) so that outer parts and inner parts match best.
    [[nodiscard]] constexpr double split(int a0, int a1, int b0, int b1, int* a_cut, int* b_cut) const noexcept {
        double best = std::numeric_limits<double>::infinity();
        const bool same = a0 == b0;
        for (int m = a0 + 1; m < a1; ++m) {
            const double head = load_between(a0, m);
            const double tail = load_between(m, a1);
            for (int k = same ? m : b0 + 1; k < b1; ++k) {
                const double off = same ? distance(head, tail)
                                        : distance(head, load_between(k, b1)) + distance(tail, load_between(b0, k));
                if (off < best) {
                    best = off;
                    if (a_cut != nullptr) {
                        *a_cut = m;
                        *b_cut = k;
                    }
                }
                if (same) { break; }
            }
        }
        return best;
    }
};

} // namespace pulse::detail
