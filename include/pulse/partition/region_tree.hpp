#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/partition/closed_regions.hpp>

namespace pulse::detail {

/// The same regions in Z-order by their 2W ends (Morton 1966), so that regions near each other in the list have nearby
/// ends.
[[nodiscard]] constexpr closed_regions in_z_order(const closed_regions& regions) {
    const int ends = 2 * regions.waves;
    std::vector<std::size_t> order(regions.size, 0);
    for (std::size_t r = 0; r != order.size(); ++r) { order[r] = r; }
    // The bit strings are not interleaved: the end with the highest differing bit decides (Chan, SODA 2002).
    std::sort(order.begin(), order.end(), [&regions, ends](std::size_t a, std::size_t b) {
        const int* x = regions.cut(a);
        const int* y = regions.cut(b);
        int decides = 0;
        unsigned highest = 0;
        for (int k = 0; k != ends; ++k) {
            const unsigned differs = static_cast<unsigned>(x[k]) ^ static_cast<unsigned>(y[k]);
            if (highest < differs && highest < (highest ^ differs)) {
                highest = differs;
                decides = k;
            }
        }
        return x[decides] < y[decides];
    });
    closed_regions out{};
    out.waves = regions.waves;
    out.size = regions.size;
    for (const std::size_t r : order) {
        out.cuts.insert(out.cuts.end(), regions.cut(r), regions.cut(r) + ends);
        out.load.push_back(regions.load[r]);
        out.memory.push_back(regions.memory[r]);
        out.sent.push_back(regions.sent[r]);
        out.least_level.push_back(regions.least_level[r]);
        out.most_level.push_back(regions.most_level[r]);
    }
    return out;
}

/// Bounds over some regions: the range of each of their ends, and the greatest load and memory.
struct region_box {
    const int* low{};  ///< 2W ends
    const int* high{}; ///< 2W ends
    double load{};     ///< the greatest, microseconds
    std::int64_t memory{};
};

/// A tree of boxes over regions in Z-order, with the costs of chains inside them. A search for the best region skips
/// every box that cannot contain it.
template <class Objective>
class region_tree {
public:
    using cost_type = typename Objective::cost_type;

    /// `listed` are positions in `regions`, ascending, at least one; cost[i] belongs to listed[i]. Keeps references.
    constexpr region_tree(const closed_regions& regions, const std::vector<std::uint32_t>& listed,
                          const std::vector<cost_type>& cost) :
        regions_(&regions),
        listed_(&listed), cost_(&cost), ends_(2 * static_cast<std::size_t>(regions.waves)) {
        std::size_t below = listed.size();
        do {
            const std::size_t begin = least_.size();
            const std::size_t count = (below + fan_out - 1) / fan_out;
            const bool leaves = begin_.empty();
            const std::size_t under = leaves ? 0 : begin_.back();
            begin_.push_back(begin);
            for (std::size_t node = 0; node != count; ++node) {
                for (std::size_t i = node * fan_out; i != std::min(below, (node + 1) * fan_out); ++i) {
                    if (leaves) {
                        const std::size_t r = listed[i];
                        add({regions.cut(r), regions.cut(r), regions.load[r], regions.memory[r]}, cost[i],
                            i == node * fan_out);
                    } else {
                        const std::vector<int> low(low_.begin() + offset(under + i),
                                                   low_.begin() + offset(under + i + 1));
                        const std::vector<int> high(high_.begin() + offset(under + i),
                                                    high_.begin() + offset(under + i + 1));
                        add({low.data(), high.data(), load_[under + i], memory_[under + i]}, least_[under + i],
                            i == node * fan_out);
                    }
                }
            }
            count_.push_back(count);
            below = count;
        } while (below != 1);
    }

    /// Calls `visit(i)` for the candidate positions in `listed`. `enter(box, least)` says whether a region in a box,
    /// all of which cost at least `least`, may be the best.
    template <class Enter, class Visit>
    constexpr void search(const Enter& enter, const Visit& visit) const {
        descend(begin_.size() - 1, 0, enter, visit);
    }

private:
    static constexpr std::size_t fan_out = 4;

    const closed_regions* regions_;
    const std::vector<std::uint32_t>* listed_;
    const std::vector<cost_type>* cost_;
    std::size_t ends_;
    std::vector<std::size_t> begin_{}; // [height]: the first node
    std::vector<std::size_t> count_{};
    std::vector<int> low_{};
    std::vector<int> high_{};
    std::vector<double> load_{};
    std::vector<std::int64_t> memory_{};
    std::vector<cost_type> least_{};

    [[nodiscard]] constexpr std::ptrdiff_t offset(std::size_t node) const noexcept {
        return static_cast<std::ptrdiff_t>(node * ends_);
    }

    constexpr void add(const region_box& box, const cost_type& cost, bool fresh) {
        if (fresh) {
            low_.insert(low_.end(), box.low, box.low + ends_);
            high_.insert(high_.end(), box.high, box.high + ends_);
            load_.push_back(box.load);
            memory_.push_back(box.memory);
            least_.push_back(cost);
            return;
        }
        for (std::size_t k = 0; k != ends_; ++k) {
            int& low = low_[low_.size() - ends_ + k];
            int& high = high_[high_.size() - ends_ + k];
            low = std::min(low, box.low[k]);
            high = std::max(high, box.high[k]);
        }
        load_.back() = std::max(load_.back(), box.load);
        memory_.back() = std::max(memory_.back(), box.memory);
        Objective::lower(least_.back(), cost);
    }

    template <class Enter, class Visit>
    constexpr void descend(std::size_t height, std::size_t node, const Enter& enter, const Visit& visit) const {
        const std::size_t at = begin_[height] + node;
        if (!enter(region_box{low_.data() + offset(at), high_.data() + offset(at), load_[at], memory_[at]},
                   least_[at])) {
            return;
        }
        const std::size_t children = height == 0 ? listed_->size() : count_[height - 1];
        for (std::size_t i = node * fan_out; i != std::min(children, (node + 1) * fan_out); ++i) {
            if (height == 0) {
                visit(i);
            } else {
                descend(height - 1, i, enter, visit);
            }
        }
    }
};

} // namespace pulse::detail
