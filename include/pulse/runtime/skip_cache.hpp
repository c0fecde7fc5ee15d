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

/// How many microbatches of one edge a rank's program keeps stashed at once, over its edges the most.
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

/// Where skip activations wait between encoder forward and decoder: by reference, no copy in and none out. Whether they
/// stay where the encoder wrote them or are made again before the decoder reads them, the plan's instructions say.
///
/// `in_flight` is how many microbatches an edge can hold at once (most_in_flight). Throws error on a fetch of what is
/// not there and on a stash beyond that, which no checked plan asks for.
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

    /// Forgets the tensor, if it is there.
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
