#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pulse/partition/partition.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/problem.hpp>

namespace pulse::detail {

/// Collects a problem's holds and merges those with the same ends.
class hold_list {
public:
    constexpr hold_list(const std::vector<stage>& stages, bool split) : stages_{&stages}, split_{split} {}

    [[nodiscard]] constexpr stage_pass last_pass(int s) const noexcept {
        return {split_ ? pass::backward_weight : pass::backward_input, s};
    }

    /// The device is that of `begin`'s stage; the passes that end the hold run there too.
    constexpr void add(stage_pass begin, stage_pass end, stage_pass also_end, std::int64_t bytes) {
        if (bytes <= 0) { return; }
        const int device = (*stages_)[static_cast<std::size_t>(begin.stage)].device;
        for (auto& h : holds_) {
            if (h.begin == begin && h.end == end && h.also_end == also_end) {
                h.bytes += bytes;
                return;
            }
        }
        holds_.push_back({device, begin, end, also_end, bytes});
    }
    constexpr void add(stage_pass begin, stage_pass end, std::int64_t bytes) { add(begin, end, end, bytes); }
    constexpr void during(stage_pass op, std::int64_t bytes) { add(op, op, op, bytes); }

    /// A tensor that the last passes of `users` (ascending stages) read. Unsplit, the lowest stage ends last. Split, a
    /// hold has two ends; each user from the third on counts the tensor once more from the start of the lowest user's
    /// B, which overestimates its bytes and never underestimates them.
    constexpr void tensor(stage_pass begin, const std::vector<int>& users, std::int64_t bytes) {
        const int low = users.front();
        if (!split_ || users.size() == 1) {
            add(begin, last_pass(low), bytes);
            return;
        }
        add(begin, last_pass(low), last_pass(users[1]), bytes);
        for (std::size_t i = 2; i < users.size(); ++i) {
            add({pass::backward_input, low}, last_pass(low), last_pass(users[i]), bytes);
        }
    }

    [[nodiscard]] constexpr std::vector<memory_hold> take() { return std::move(holds_); }

private:
    const std::vector<stage>* stages_;
    bool split_;
    std::vector<memory_hold> holds_{};
};

constexpr void insert_sorted(std::vector<int>& values, int value) {
    const auto at = std::lower_bound(values.begin(), values.end(), value);
    if (at == values.end() || *at != value) { values.insert(at, value); }
}

[[nodiscard]] constexpr bool share_device(const std::vector<stage>& stages, int a, int b) {
    return stages[static_cast<std::size_t>(a)].device == stages[static_cast<std::size_t>(b)].device;
}

/// Per stage: the first later stage on its device that reads one of its skip tensors; -1 when there is none.
[[nodiscard]] constexpr std::vector<int> first_local_readers(const cost_table& costs,
                                                             const std::vector<stage>& stages) {
    std::vector<int> readers(stages.size(), -1);
    for (const auto& edge : costs.skips) {
        const int from = stage_of(stages, edge.from);
        const int to = stage_of(stages, edge.to);
        if (from == to || !share_device(stages, from, to)) { continue; }
        int& first = readers[static_cast<std::size_t>(from)];
        if (first < 0 || to < first) { first = to; }
    }
    return readers;
}

/// All holds of a step per microbatch, in bytes.
///
/// | held on the stage's device                         | from start of         | to end of               |
/// |----------------------------------------------------|-----------------------|-------------------------|
/// | saved bytes and outputs inside the stage           | F (1) (3)             | last pass (W, or B)     |
/// | input from another device                          | F                     | last pass               |
/// | stage 0's input                                    | F (3)                 | last pass               |
/// | input made by the previous stage on this device    | F of that stage       | last pass               |
/// | output to another device                           | F                     | F                       |
/// | output of the last stage                           | F (3)                 | B                       |
/// | skip tensor read on this device                    | F of its maker (1)    | last pass of both ends  |
/// | skip tensor from another device                    | F of its reader       | last pass of its reader |
/// | relayed skip tensor passing through                | F; B (gradient)       | F; B                    |
/// | conditioning, once per run of neighbouring stages  | F of the run's first  | last pass of the run    |
/// | its gradient                                       | B of the run's last   | B of the run's first    |
/// | gradients of outputs inside, deferred bytes        | B                     | last pass               |
/// | gradient of the output                             | B (2)                 | last pass               |
/// | gradient of an input from another device           | B                     | B                       |
/// | skip gradient on this device                       | B of the reader       | B of the maker          |
/// | skip gradient to and from another device           | B                     | B                       |
///
/// (1) If recomputation::skips reruns the forward: during F, then from the F right before which it is rerun.
/// (2) B of the next stage when that is on the same device.
/// (3) If recomputation::stages or selective reruns the stage: during F, then from the start of B, whose time includes
/// the rerun forward.
///
/// The output sent across a cut includes the residual that is open there, and so does its gradient. A layer's output
/// and a skip tensor that it makes are one tensor when their bytes agree. This is the planner's model; `plan/lower` has
/// the exact buffers.
[[nodiscard]] constexpr std::vector<memory_hold> make_holds(const cost_table& costs, const std::vector<stage>& stages,
                                                            bool split_backward, skip_routing routing,
                                                            const stage_recomputation& recompute) {
    const int count = static_cast<int>(stages.size());
    hold_list holds{stages, split_backward};
    std::vector<int> restored(stages.size(), -1);
    if (recompute == recomputation::skips) { restored = first_local_readers(costs, stages); }
    const auto F = [](int s) { return stage_pass{pass::forward, s}; };
    const auto B = [](int s) { return stage_pass{pass::backward_input, s}; };
    for (int s = 0; s != count; ++s) {
        const stage& here = stages[static_cast<std::size_t>(s)];
        const int again = restored[static_cast<std::size_t>(s)];
        // From which pass F's tensors exist again (skips: (1), the rest: (3)), and whether they are freed in between.
        const stage_pass kept_from = again < 0 ? F(s) : F(again);
        const bool whole = recompute.is_whole(s);
        const stage_pass inside_from = whole ? B(s) : kept_from;
        const bool inside_again = whole || again >= 0;
        const stage_pass last = holds.last_pass(s);
        const bool first_of_run = s == 0 || !share_device(stages, s - 1, s);
        const bool next_is_local = s + 1 != count && share_device(stages, s, s + 1);

        for (int l = here.first_layer; l <= here.last_layer; ++l) {
            const layer_cost& layer = costs.layers[static_cast<std::size_t>(l)];
            const bool inner = l != here.last_layer;
            // A cut after this layer also sends the residual open there.
            const std::int64_t made = inner ? layer.output_bytes : layer.sent_bytes();
            const std::int64_t returned = inner ? layer.gradient_bytes() : layer.returned_bytes();
            std::int64_t kept = layer.saved_bytes;
            std::vector<int> users{};
            for (const auto& edge : costs.skips) {
                const int to = stage_of(stages, edge.to);
                if (edge.from != l || to == s || !share_device(stages, s, to)) { continue; }
                if (edge.bytes == layer.output_bytes) {
                    insert_sorted(users, to);
                } else {
                    holds.tensor(kept_from, {s, to}, edge.bytes);
                    if (again >= 0) { holds.during(F(s), edge.bytes); }
                }
            }
            const bool is_skip = !users.empty();
            if (is_skip) { insert_sorted(users, s); }
            if (!inner && next_is_local) {
                insert_sorted(users, s + 1);
                holds.tensor(F(s), users, made);
            } else if (is_skip) {
                holds.tensor(kept_from, users, made);
                if (again >= 0) { holds.during(F(s), made); }
            } else if (inner) {
                kept += made;
            } else if (s + 1 == count) {
                holds.add(whole ? B(s) : F(s), B(s), made);
                if (whole) { holds.during(F(s), made); }
            } else {
                holds.during(F(s), made);
            }
            holds.add(inside_from, last, kept);
            if (inside_again) { holds.during(F(s), kept); }

            holds.add(B(s), last, layer.deferred_bytes + (inner ? returned : 0));
            if (!inner) { holds.add(next_is_local ? B(s + 1) : B(s), last, returned); }
        }
        if (first_of_run) {
            const std::int64_t input =
                s == 0 ? costs.input_bytes : costs.layers[static_cast<std::size_t>(here.first_layer) - 1].sent_bytes();
            const bool asked_again = s == 0 && whole;
            holds.add(asked_again ? B(s) : F(s), last, input);
            if (asked_again) { holds.during(F(s), input); }
            if (s != 0) {
                holds.during(B(s), costs.layers[static_cast<std::size_t>(here.first_layer) - 1].returned_bytes());
            }
            std::vector<int> run{s};
            while (run.back() + 1 != count && share_device(stages, s, run.back() + 1)) {
                run.push_back(run.back() + 1);
            }
            holds.tensor(F(s), run, costs.conditioning_bytes);
            holds.add(B(run.back()), B(s), costs.conditioning_gradient_bytes());
        }
    }
    for (const auto& edge : costs.skips) {
        const int from = stage_of(stages, edge.from);
        const int to = stage_of(stages, edge.to);
        if (share_device(stages, from, to)) {
            holds.add(B(to), B(from), costs.gradient_bytes(edge));
            continue;
        }
        holds.add(F(to), holds.last_pass(to), edge.bytes);
        holds.during(B(to), costs.gradient_bytes(edge));
        holds.during(B(from), costs.gradient_bytes(edge));
        if (routing == skip_routing::direct) { continue; }
        for (int s = from + 1; s < to; ++s) {
            holds.during(F(s), edge.bytes);
            holds.during(B(s), costs.gradient_bytes(edge));
        }
    }
    return holds.take();
}

/// Adds the holds of a preview. Tensors inside a stage, a boundary or a relayed skip are held during its pass; a tensor
/// that a later stage of the device reads, until that stage's pass ends. The prediction that it leaves is not counted.
constexpr void add_preview_holds(const cost_table& costs, const std::vector<stage>& stages, skip_routing routing,
                                 std::vector<memory_hold>& holds) {
    const int count = static_cast<int>(stages.size());
    hold_list made{stages, false};
    const auto P = [](int s) { return stage_pass{pass::preview, s}; };
    for (int s = 0; s != count; ++s) {
        const stage& here = stages[static_cast<std::size_t>(s)];
        const bool next_is_local = s + 1 != count && share_device(stages, s, s + 1);
        for (int l = here.first_layer; l <= here.last_layer; ++l) {
            const layer_cost& layer = costs.layers[static_cast<std::size_t>(l)];
            int last = l == here.last_layer && next_is_local ? s + 1 : s;
            for (const auto& edge : costs.skips) {
                const int to = stage_of(stages, edge.to);
                if (edge.from == l && share_device(stages, s, to) && to > last) { last = to; }
            }
            made.add(P(s), P(last), l == here.last_layer ? layer.sent_bytes() : layer.output_bytes);
            made.during(P(s), layer.saved_bytes);
        }
        if (s == 0) { made.during(P(s), costs.input_bytes); }
        if (s != 0 && share_device(stages, s - 1, s)) { continue; }
        if (s != 0) { made.during(P(s), costs.layers[static_cast<std::size_t>(here.first_layer) - 1].sent_bytes()); }
        int last = s;
        while (last + 1 != count && share_device(stages, s, last + 1)) { ++last; }
        made.add(P(s), P(last), costs.conditioning_bytes);
    }
    for (const auto& edge : costs.skips) {
        const int from = stage_of(stages, edge.from);
        const int to = stage_of(stages, edge.to);
        if (share_device(stages, from, to)) { continue; }
        for (int s = routing == skip_routing::direct ? to : from + 1; s <= to; ++s) { made.during(P(s), edge.bytes); }
    }
    for (const auto& h : made.take()) { holds.push_back(h); }
}

} // namespace pulse::detail
