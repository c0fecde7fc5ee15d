#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/ids.hpp>
#include <pulse/plan/footprint.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/runtime/any_transport.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/runtime/share_exchange.hpp>
#include <pulse/runtime/space.hpp>
#include <pulse/runtime/transport.hpp>

namespace pulse::detail {

/// Sums the gradients of a rank's stages over the replicas while the rank computes.
///
/// A stage's gradients are split into D shares (share_of every layer). Replica d receives share d from all others, adds
/// them and sends the sum back: all replicas together send 2 (D - 1) times the stage's bytes, as on a ring. If the plan
/// has node_replicas, shares travel through two circles (replica_place::circles): as many bytes, but fewer into and out
/// of a node. Either way neighbours are added in pairs, then pairs of pairs, and so on while their number is even, and
/// the rest in sequence: the bits depend neither on timing nor on the transport nor on nodes. A rank's gradients are
/// its accumulators.
///
/// Stages are reduced one after the other in the order in which they were started, so every pair of replicas posts its
/// messages in the same order: a stage's shares, its sums, the shares of the next. All messages of one circle are in
/// flight at once; each share arrives in memory of its own, and sums arrive in the gradients. A stage's last sums may
/// still be in flight when the next stage begins.
///
/// Why nothing deadlocks. Pipeline messages connect ranks of one replica and reductions connect replicas, so no
/// pipeline message ever waits for a reduction. Hence all ranks reach finish(), where all post the shares of the stage
/// that was started first, then its sums, then the next stage's. If gradients are released, finish() is also called
/// before passes, at the same instructions of every replica; the first of these in the global order of lower() waits
/// for ranks that wait at none of the others. This holds while the host waits for nothing else. Where posts block
/// (link_options::blocking), or the host may have to wait for a receiving device (NCCL), arrived() is true as soon as a
/// message is posted, so start() does the whole reduction at once, at the same instruction of every replica. Take the
/// global order of lower(), put all replicas' copies of an event next to each other, and replace all_reduce by its
/// messages in the order of for_each_round: every rank posts in this order, so both ranks of the first message not yet
/// transferred have reached it. An NCCL group in their place completes when all replicas have reached it, which those
/// messages wait for too.
template <backend B>
class replica_sum {
public:
    using accumulator = typename B::accumulator;
    using adder = typename space_of<B>::template adder<accumulator>;

    /// `parameters` must outlive it and keep its arrays. With `shares_only`, sums are not sent back: each replica ends
    /// up with the sums of its own share only. Throws input_error for replicas of a cascade.
    template <class Parameters>
    replica_sum(B& math, any_transport transport, const replica_place& place, const step_model& model,
                Parameters& parameters, bool shares_only) :
        transport_{transport},
        adder_{math, transport}, place_{place}, shares_only_{shares_only} {
        if (place.replicas() < 2) { return; }
        stages_.resize(static_cast<std::size_t>(model.stage_count()));
        std::int64_t slot_bytes = 0;
        for (int s = 0; s != model.stage_count(); ++s) {
            if (model.device_of_stage(s) != place.device) { continue; }
            if constexpr (std::same_as<Parameters, backend_parameters<B>>) {
                slot_bytes = std::max(slot_bytes, prepare(model, parameters, s));
            } else {
                throw input_error{"pulse: a cascade runs without replicas: data_degree must be 1"};
            }
        }
        scratch_bytes_ = slot_bytes * (place.replicas() - 1);
        scratch_ = transport.allocate(static_cast<std::size_t>(scratch_bytes_));
        for (stage_sum& s : stages_) { place_scratch(s, slot_bytes); }
        order_.reserve(stages_.size());
    }

    /// Bytes of the buffer in which the shares of one stage at a time arrive.
    [[nodiscard]] std::int64_t scratch_bytes() const noexcept { return scratch_bytes_; }
    /// The adder, for reading the time by its clock.
    [[nodiscard]] const adder& sums() const noexcept { return adder_; }
    /// Whether a reduction that was started is not complete.
    [[nodiscard]] bool pending() const noexcept { return over_ != order_.size(); }

    /// Call when a stage's gradients are complete. `over(stage)` is called when they are summed, here or later.
    template <class Over>
    void start(stage_id stage, Over&& over) {
        adder_.follow();
        order_.push_back(index_of(stage));
        of(order_.size() - 1).now = phase::queued;
        progress(over);
    }

    /// Does what is possible without waiting; returns whether that was anything.
    template <class Over>
    bool progress(Over&& over) {
        bool moved = false;
        while (adding_ != order_.size()) {
            stage_sum& s = of(adding_);
            if (s.now == phase::queued) {
                begin(s);
                moved = true;
            }
            if (!under_way(s).arrived(transport_)) { break; }
            go_on(s, over);
            moved = true;
        }
        for (std::size_t i = 0; i != adding_; ++i) {
            stage_sum& s = of(i);
            if (s.now != phase::summed || !under_way(s).arrived(transport_)) { continue; }
            settle(s, over);
            moved = true;
        }
        return moved;
    }

    /// Waits for everything that was started. What one replica starts after this call, all must start after it.
    template <class Over>
    void finish(Over&& over) {
        while (adding_ != order_.size()) {
            stage_sum& s = of(adding_);
            if (s.now == phase::queued) { begin(s); }
            go_on(s, over);
        }
        for (std::size_t i = 0; i != order_.size(); ++i) {
            if (of(i).now == phase::summed) { settle(of(i), over); }
        }
        if (!order_.empty()) { adder_.lead(); }
        order_.clear();
        adding_ = over_ = 0;
    }

private:
    enum class phase : std::uint8_t {
        queued, ///< waits for the previous stage
        shared, ///< shares are in flight, or sums that others follow
        summed, ///< its last sums are in flight
        over,
    };
    struct circle_sum {
        int here{};
        std::vector<element_range> own{}; ///< the shares that this replica adds, in the rank's gradients
        std::size_t own_size{};
        std::vector<accumulator*> there{};   ///< by number: a replica's values of those shares, contiguous
        std::vector<accumulator*> sums_of{}; ///< likewise during the addition
        share_exchange shares{};
        share_exchange sums{};
    };
    struct stage_sum {
        int stage{};
        phase now{phase::over};
        std::vector<circle_sum> circles{};
        std::size_t step{}; ///< shares through all circles, then sums back through them
    };

    [[nodiscard]] stage_sum& of(std::size_t started) { return stages_[static_cast<std::size_t>(order_[started])]; }

    /// Returns the most bytes that a share of this stage may take.
    std::int64_t prepare(const step_model& model, backend_parameters<B>& parameters, int stage) {
        stage_sum& s = stages_[static_cast<std::size_t>(stage)];
        s.stage = stage;
        std::vector<typename backend_parameters<B>::block> layers;
        std::int64_t elements = 0;
        for (const auto& b : parameters.blocks()) {
            const int layer = b.layer == conditioning_block ? 0 : b.layer;
            if (model.stage_of_layer(layer) != stage) { continue; }
            layers.push_back({b.layer, b.first_gradient(), b.size});
            elements += static_cast<std::int64_t>(b.size);
        }
        gradients_ = parameters.gradients().data();
        const std::span<const typename backend_parameters<B>::block> all{layers};
        for (const replica_circle& circle : place_.circles()) {
            circle_sum& c = s.circles.emplace_back();
            c.here = circle.here;
            c.own = shares_of(all, place_.replicas(), circle, circle.here);
            for (const element_range& r : c.own) { c.own_size += r.size; }
            c.there.resize(static_cast<std::size_t>(circle.size));
            c.sums_of.reserve(c.there.size());
            share_exchange::messages mine(c.there.size());
            share_exchange::messages theirs(c.there.size());
            for (int i = 0; i != circle.size; ++i) {
                if (i == circle.here) { continue; }
                mine[static_cast<std::size_t>(i)] = parts_of(c.own, gradients_);
                theirs[static_cast<std::size_t>(i)] =
                    parts_of(shares_of(all, place_.replicas(), circle, i), gradients_);
            }
            c.shares = {place_, circle, message_kind::gradient_share, stage, theirs, mine};
            c.sums = {place_, circle, message_kind::gradient_sum, stage, mine, theirs};
        }
        return replica_share_bytes(elements, model.last_layer(stage) - model.first_layer(stage) + 1, place_.replicas(),
                                   static_cast<int>(sizeof(accumulator)));
    }
    /// Circles share the same memory in turn: no circle delivers more shares than there are other replicas.
    void place_scratch(stage_sum& s, std::int64_t slot_bytes) {
        const std::vector<replica_circle> circles = place_.circles();
        for (std::size_t k = 0; k != s.circles.size(); ++k) {
            circle_sum& c = s.circles[k];
            std::byte* slot = scratch_;
            for (int i = 0; i != circles[k].size; ++i) {
                if (i == c.here) { continue; }
                c.there[static_cast<std::size_t>(i)] = reinterpret_cast<accumulator*>(slot);
                std::byte* part = slot;
                for (message_part& p : c.shares.from(i)) {
                    p.data = part;
                    part += p.bytes;
                }
                slot += circles[k].shares * slot_bytes;
            }
        }
    }

    /// The exchange that was posted last.
    [[nodiscard]] static share_exchange& under_way(stage_sum& s) noexcept {
        const std::size_t circles = s.circles.size();
        return s.step < circles ? s.circles[s.step].shares : s.circles[2 * circles - 1 - s.step].sums;
    }
    void begin(stage_sum& s) {
        s.step = 0;
        s.now = phase::shared;
        under_way(s).post(transport_);
    }
    /// Waits for a stage's exchange in flight, adds the shares if it brought any, and posts the next exchange.
    template <class Over>
    void go_on(stage_sum& s, Over&& over) {
        const std::size_t circles = s.circles.size();
        // Waits for sends too: sums will arrive in the memory that is sent.
        under_way(s).wait(transport_);
        if (s.step < circles) { add_in_order(s.circles[s.step]); }
        ++s.step;
        if (shares_only_ && s.step == circles) {
            ++adding_;
            end(s, over);
            return;
        }
        under_way(s).post(transport_);
        if (s.step + 1 != 2 * circles) { return; }
        ++adding_;
        s.now = phase::summed;
    }
    /// Neighbours in pairs, then pairs of pairs, and so on while their number is even; the rest in sequence. A sum of
    /// two has the same bits either way round, so if one includes this replica's, the other is added to it in place.
    void add_in_order(circle_sum& c) {
        if (c.own.empty()) { return; }
        std::vector<accumulator*>& sums = c.sums_of;
        sums.assign(c.there.begin(), c.there.end()); // null: in this replica's gradients
        const auto add = [&](std::size_t to, std::size_t from) {
            if (sums[to] != nullptr && sums[from] != nullptr) {
                adder_.add(static_cast<std::int64_t>(c.own_size), sums[from], sums[to]);
                return;
            }
            const accumulator* other = sums[to] == nullptr ? sums[from] : sums[to];
            for (const element_range& r : c.own) {
                adder_.add(static_cast<std::int64_t>(r.size), other, gradients_ + r.first);
                other += r.size;
            }
            sums[to] = nullptr;
        };
        std::size_t apart = 1;
        for (; sums.size() % (2 * apart) == 0; apart *= 2) {
            for (std::size_t i = 0; i != sums.size(); i += 2 * apart) { add(i, i + apart); }
        }
        for (std::size_t i = apart; i < sums.size(); i += apart) { add(0, i); }
    }
    template <class Over>
    void settle(stage_sum& s, Over&& over) {
        under_way(s).wait(transport_);
        end(s, over);
    }
    template <class Over>
    void end(stage_sum& s, Over&& over) {
        s.now = phase::over;
        ++over_;
        over(stage_id{s.stage});
    }

    any_transport transport_;
    adder adder_;
    replica_place place_;
    bool shares_only_;
    std::vector<stage_sum> stages_{}; ///< by stage of the model; empty for stages of other ranks
    accumulator* gradients_{};
    std::byte* scratch_{};
    std::int64_t scratch_bytes_{};
    std::vector<int> order_{}; ///< stages in the order in which they were started
    std::size_t adding_{};     ///< first of them whose last sums are not in flight yet
    std::size_t over_{};       ///< how many are complete
};

} // namespace pulse::detail
