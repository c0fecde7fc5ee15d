#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/ids.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/step_model.hpp>

namespace pulse {

namespace detail {

/// The most microbatches of any one edge that a rank's program keeps stashed at once.
[[nodiscard]] constexpr int most_in_flight(const step_model& model, const program& of_rank) {
    std::vector<int> held(static_cast<std::size_t>(model.edge_count()), 0);
    std::vector<op::stash> stashed{};
    int most = 0;
    for (const instruction& what : of_rank.instructions) {
        if (const auto* s = std::get_if<op::stash>(&what)) {
            stashed.push_back(*s);
            most = std::max(most, ++held[static_cast<std::size_t>(index_of(s->edge))]);
        } else if (const auto* r = std::get_if<op::release>(&what)) {
            if (r->buffer.kind != buffer_kind::activation) { continue; }
            const auto ends = [&](const op::stash& one) {
                return one.microbatch == r->buffer.microbatch && model.edge(index_of(one.edge)).from == r->buffer.index;
            };
            for (const op::stash& one : stashed) {
                held[static_cast<std::size_t>(index_of(one.edge))] -= ends(one) ? 1 : 0;
            }
            stashed.erase(std::remove_if(stashed.begin(), stashed.end(), ends), stashed.end());
        }
    }
    return most;
}

} // namespace detail

/// Holds skip activations between encoder forward and decoder by reference, without copies. The plan's instructions say
/// whether they stay where the encoder wrote them or are recomputed before the decoder reads them.
///
/// `in_flight` is the number of microbatches an edge can hold at once (most_in_flight). fetch throws error for an
/// absent tensor and stash beyond that number; no checked plan does either.
template <class T>
class skip_cache {
public:
    skip_cache(std::size_t edges, int in_flight) :
        in_flight_{in_flight}, entries_(edges * static_cast<std::size_t>(in_flight)) {}

    void stash(edge_id edge, microbatch_id microbatch, T* tensor) {
        for (entry& e : of(edge)) {
            if (e.tensor == nullptr) {
                e = {microbatch, tensor};
                ++held_;
                most_held_ = held_ > most_held_ ? held_ : most_held_;
                return;
            }
        }
        throw error{"pulse: the skip cache is full for edge " + std::to_string(index_of(edge))};
    }

    [[nodiscard]] T* fetch(edge_id edge, microbatch_id microbatch) const {
        for (const entry& e : std::span{entries_}.subspan(first_of(edge), room())) {
            if (e.tensor != nullptr && e.microbatch == microbatch) { return e.tensor; }
        }
        throw error{"pulse: the skip cache does not hold edge " + std::to_string(index_of(edge)) + " of microbatch " +
                    std::to_string(index_of(microbatch))};
    }

    /// Forgets the tensor, if present.
    void drop(edge_id edge, microbatch_id microbatch) {
        for (entry& e : of(edge)) {
            if (e.tensor != nullptr && e.microbatch == microbatch) {
                e = {};
                --held_;
            }
        }
    }

    [[nodiscard]] int in_flight() const noexcept { return in_flight_; }
    [[nodiscard]] std::size_t held() const noexcept { return held_; }
    [[nodiscard]] std::size_t most_held() const noexcept { return most_held_; }

private:
    struct entry {
        microbatch_id microbatch{};
        T* tensor{};
    };

    [[nodiscard]] std::size_t room() const noexcept { return static_cast<std::size_t>(in_flight_); }
    [[nodiscard]] std::size_t first_of(edge_id edge) const noexcept {
        return static_cast<std::size_t>(index_of(edge)) * room();
    }
    [[nodiscard]] std::span<entry> of(edge_id edge) { return std::span{entries_}.subspan(first_of(edge), room()); }

    int in_flight_;
    std::vector<entry> entries_;
    std::size_t held_{};
    std::size_t most_held_{};
};

} // namespace pulse
