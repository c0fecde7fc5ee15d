#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include <pulse/partition/layer_sums.hpp>

namespace pulse::detail {

/// The part of the imbalance that one device of a folded partition adds, from the ends of its layers.
///
/// Device d has the layers between the ends of R(d) (`outer`) and those of R(d+1) (`inner`), each the 2W ends of W
/// intervals; device 0 has all layers outside R(1), device P-1 all inside R(P-1).
class fold_terms {
public:
    constexpr fold_terms(const layer_sums& sums, int waves) : sums_(&sums), waves_(waves) {}

    /// Sum, over the W pairs of a device between R(d) and R(d+1), of the difference of their two loads.
    [[nodiscard]] constexpr double imbalance(const int* outer, const int* inner) const noexcept {
        double sum = 0.0;
        for (int w = 0; w != waves_; ++w) {
            const int mirror = 2 * (waves_ - 1 - w) + 1;
            sum += distance(load_between(outer[2 * w], inner[2 * w]), load_between(inner[mirror], outer[mirror]));
        }
        return sum;
    }
    /// Lower bound on imbalance(outer, inner) if every end of `inner` is at least its `low` and at most its `high`.
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
    /// The best free cuts inside R(P-1), one per interval, and their imbalance; `middles` may be null.
    [[nodiscard]] constexpr double split_inside(const int* cut, int* middles) const noexcept {
        double sum = 0.0;
        for (int w = 0; 2 * w < waves_; ++w) {
            const int v = waves_ - 1 - w;
            sum += split(cut[2 * w], cut[2 * w + 1], cut[2 * v], cut[2 * v + 1],
                         middles == nullptr ? nullptr : middles + w, middles == nullptr ? nullptr : middles + v);
        }
        return sum;
    }
    /// The best free cuts around R(1), one per gap between intervals, and their imbalance; `gaps` may be null.
    [[nodiscard]] constexpr double split_outside(const int* cut, int* gaps) const noexcept {
        double sum = distance(load_between(0, cut[0]), load_between(cut[2 * waves_ - 1], sums_->layers));
        for (int w = 1; 2 * w <= waves_; ++w) {
            const int v = waves_ - w;
            sum += split(cut[2 * w - 1], cut[2 * w], cut[2 * v - 1], cut[2 * v], gaps == nullptr ? nullptr : gaps + w,
                         gaps == nullptr ? nullptr : gaps + v);
        }
        return sum;
    }

private:
    const layer_sums* sums_;
    int waves_;

    static constexpr double distance(double a, double b) noexcept { return a < b ? b - a : a - b; }
    [[nodiscard]] constexpr double load_between(int first, int last) const noexcept {
        return sums_->load[static_cast<std::size_t>(last)] - sums_->load[static_cast<std::size_t>(first)];
    }

    /// Cuts ranges a and b (mirrors of each other, or the same) so that the outer parts and the inner parts match best.
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
