#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <plan/random_plan.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/runtime/prove_slots.hpp>
#include <pulse/tune/candidate_plan.hpp>
#include <pulse/zoo/known_models.hpp>

using namespace pulse;

namespace {

using role = transfer_step::role;

/// Whether the slots hold every transfer once, in program order, within the limits.
bool well_cut(const rank_transfers& rank, int most) {
    std::vector<int> seen(rank.steps.size(), 0);
    int last = -1;
    for (const transfer_slot& slot : rank.slots) {
        if (slot.transfers.empty() || slot.transfers.size() > static_cast<std::size_t>(most)) { return false; }
        if (!std::is_sorted(slot.transfers.begin(), slot.transfers.end()) || slot.transfers.back() <= last) {
            return false;
        }
        last = slot.transfers.back();
        for (const int t : slot.transfers) {
            const transfer_step& one = rank.steps[static_cast<std::size_t>(t)];
            if (one.what == role::other || way_of(one.message.kind) != slot.way) { return false; }
            ++seen[static_cast<std::size_t>(t)];
        }
    }
    for (std::size_t i = 0; i != seen.size(); ++i) {
        if (seen[i] != (rank.steps[i].what == role::other ? 0 : 1)) { return false; }
    }
    return true;
}

/// Checks a plan's slots, both as large as allowed and one transfer each; returns how many slots have several
/// transfers.
int check_plan(const plan& planned, const cost_table& costs) {
    const step_model model{planned, costs};
    const std::vector<rank_transfers> ranks = transfers_of(model, lower(planned, model));
    int grouped = 0;
    std::vector<rank_transfers> single = ranks;
    for (std::size_t r = 0; r != ranks.size(); ++r) {
        REQUIRE(well_cut(ranks[r], most_transfers_of_slot));
        single[r].slots = slots_of(single[r].steps, 1);
        REQUIRE(well_cut(single[r], 1));
        for (const transfer_slot& slot : ranks[r].slots) { grouped += slot.transfers.size() > 1 ? 1 : 0; }
    }
    const verdict found = prove_slots(ranks);
    INFO((found ? *found : std::string{}));
    REQUIRE_FALSE(found);
    REQUIRE_FALSE(prove_slots(single));
    return grouped;
}

/// What a device and its host keep in order.
enum class machine {
    two_streams,    ///< the slots of one way run in order
    one_queue,      ///< all slots run in order
    host_that_waits ///< as one_queue, and the host waits for every slot before it continues
};

/// Runs the slots as NCCL and CUDA would, with ranks progressing at random: each rank's instructions in order, slots as
/// the machine orders them, the calls of a slot in rounds, and a call only once both sides have reached its round.
/// Returns whether all ranks finish.
bool reaches_the_end(const std::vector<rank_transfers>& ranks, machine on, std::mt19937& random) {
    struct state {
        std::size_t next{};         // instruction
        std::vector<char> posted{}; // slots
        std::vector<char> started{};
        std::vector<char> over{};
        std::vector<int> moved{}; // completed calls of each transfer, by instruction
    };
    std::vector<state> now(ranks.size());
    for (std::size_t r = 0; r != ranks.size(); ++r) {
        now[r].posted.resize(ranks[r].slots.size());
        now[r].started.resize(ranks[r].slots.size());
        now[r].over.resize(ranks[r].slots.size());
        now[r].moved.resize(ranks[r].steps.size());
    }
    const auto slot_with = [&](std::size_t r, int t) {
        for (std::size_t s = 0; s != ranks[r].slots.size(); ++s) {
            const auto& all = ranks[r].slots[s].transfers;
            if (std::find(all.begin(), all.end(), t) != all.end()) { return s; }
        }
        return ranks[r].slots.size();
    };
    const auto advance = [&](std::size_t r) {
        state& me = now[r];
        bool moved = false;
        if (me.next != ranks[r].steps.size()) {
            const transfer_step& step = ranks[r].steps[me.next];
            const bool idle = me.posted == me.over;
            if ((idle || on != machine::host_that_waits) &&
                std::all_of(step.waits.begin(), step.waits.end(),
                            [&](int w) { return me.over[slot_with(r, w)] != 0; })) {
                for (std::size_t s = 0; s != ranks[r].slots.size(); ++s) {
                    if (ranks[r].slots[s].transfers.back() == static_cast<int>(me.next)) { me.posted[s] = 1; }
                }
                ++me.next;
                moved = true;
            }
        }
        for (std::size_t s = 0; s != ranks[r].slots.size(); ++s) {
            if (me.posted[s] == 0 || me.started[s] != 0) { continue; }
            bool first = true;
            for (std::size_t before = 0; before != s; ++before) {
                const bool same = on != machine::two_streams || ranks[r].slots[before].way == ranks[r].slots[s].way;
                first = first && (!same || me.over[before] != 0);
            }
            if (first) {
                me.started[s] = 1;
                moved = true;
            }
        }
        return moved;
    };
    // The round of a transfer's next call in its slot.
    const auto round_of = [&](std::size_t r, std::size_t s, int t) {
        const transfer_step& mine = ranks[r].steps[static_cast<std::size_t>(t)];
        int round = now[r].moved[static_cast<std::size_t>(t)];
        for (const int before : ranks[r].slots[s].transfers) {
            const transfer_step& other = ranks[r].steps[static_cast<std::size_t>(before)];
            if (before < t && other.peer == mine.peer && other.what == mine.what) { round += other.parts; }
        }
        return round;
    };
    const auto is_left = [&](std::size_t r, int t) {
        const auto at = static_cast<std::size_t>(t);
        return now[r].moved[at] != ranks[r].steps[at].parts;
    };
    const auto is_next = [&](std::size_t r, std::size_t s, int t) {
        return std::ranges::none_of(ranks[r].slots[s].transfers, [&](int other) {
            return is_left(r, other) && round_of(r, s, other) < round_of(r, s, t);
        });
    };
    const auto transfer = [&] {
        bool any = false;
        for (std::size_t r = 0; r != ranks.size(); ++r) {
            for (std::size_t s = 0; s != ranks[r].slots.size(); ++s) {
                if (now[r].started[s] == 0 || now[r].over[s] != 0) { continue; }
                for (const int t : ranks[r].slots[s].transfers) {
                    const auto at = static_cast<std::size_t>(t);
                    const transfer_step& mine = ranks[r].steps[at];
                    const auto peer = static_cast<std::size_t>(mine.peer);
                    for (std::size_t i = 0; is_left(r, t) && i != ranks[peer].steps.size(); ++i) {
                        const transfer_step& theirs = ranks[peer].steps[i];
                        if (theirs.what == role::other || theirs.what == mine.what || theirs.message != mine.message ||
                            theirs.peer != static_cast<int>(r)) {
                            continue;
                        }
                        const int other = static_cast<int>(i);
                        const std::size_t there = slot_with(peer, other);
                        if (now[peer].started[there] != 0 && is_next(r, s, t) && is_next(peer, there, other)) {
                            ++now[r].moved[at];
                            ++now[peer].moved[i];
                            any = true;
                        }
                    }
                }
                if (std::ranges::none_of(ranks[r].slots[s].transfers, [&](int t) { return is_left(r, t); })) {
                    now[r].over[s] = 1;
                    any = true;
                }
            }
        }
        return any;
    };
    std::vector<std::size_t> turn(ranks.size());
    for (std::size_t r = 0; r != turn.size(); ++r) { turn[r] = r; }
    for (bool moved = true; moved;) {
        moved = transfer();
        std::shuffle(turn.begin(), turn.end(), random);
        for (const std::size_t r : turn) { moved = advance(r) || moved; }
    }
    return std::all_of(now.begin(), now.end(),
                       [](const state& s) {
                           return std::all_of(s.over.begin(), s.over.end(), [](char c) { return c != 0; });
                       }) &&
           [&] {
               for (std::size_t r = 0; r != ranks.size(); ++r) {
                   if (now[r].next != ranks[r].steps.size()) { return false; }
               }
               return true;
           }();
}

transfer_step send_of(int peer, int index, int parts = 1) {
    return {role::send, peer, {message_kind::boundary, index, microbatch_id{0}}, parts, false, {}};
}
transfer_step recv_of(int peer, int index, int parts = 1) {
    return {role::receive, peer, {message_kind::boundary, index, microbatch_id{0}}, parts, false, {}};
}
transfer_step compute_after(std::vector<int> waits) { return {role::other, 0, {}, 1, true, std::move(waits)}; }

} // namespace

TEST_CASE("no slot of any plan can hang or mix up messages, as groups of NCCL and one by one") {
    int grouped = 0;
    for (const bool scattered : {false, true}) {
        pulse_test::random_plans draw{scattered ? 5U : 3U, scattered};
        for (int n = 0; n != 250; ++n) {
            const pulse_test::planned_model made = draw();
            INFO("plan " << n << (scattered ? ", scattered" : ""));
            grouped += check_plan(made.planned, made.costs);
        }
    }
    CHECK(grouped > 100);
}

TEST_CASE("no slot of a plan of the zoo can hang") {
    for (const known_model& known : known_models) {
        const cost_table costs = analytic_costs(known.graph, h100_80gb, 1, 2);
        for (const placement kind : {placement::folded, placement::sequential}) {
            for (const int devices : {2, 4}) {
                tune_candidate how{};
                how.kind = kind;
                how.pipeline_degree = devices;
                how.microbatches = 2 * devices;
                how.routing = kind == placement::folded ? skip_routing::direct : skip_routing::relayed;
                const link line{.latency_us = 5, .bandwidth_gb_per_s = 300};
                INFO(known.name.view() << " on " << devices);
                check_plan(plan_candidate(costs, how, line).plan, costs);
            }
        }
    }
}

TEST_CASE("the proof says what a machine that runs the slots does, also of slots that hang") {
    std::mt19937 random{23};
    pulse_test::random_plans draw{17};
    int hung = 0;
    int ran = 0;
    for (int n = 0; n != 150; ++n) {
        const pulse_test::planned_model made = draw();
        const step_model model{made.planned, made.costs};
        std::vector<rank_transfers> ranks = transfers_of(model, lower(made.planned, model));
        // Merges neighbouring slots of one way, without checking whether that is allowed.
        for (rank_transfers& r : ranks) {
            for (std::size_t s = 0; s + 1 < r.slots.size(); ++s) {
                if (r.slots[s].way != r.slots[s + 1].way || random() % 6 != 0) { continue; }
                auto& into = r.slots[s + 1].transfers;
                into.insert(into.begin(), r.slots[s].transfers.begin(), r.slots[s].transfers.end());
                r.slots.erase(r.slots.begin() + static_cast<std::ptrdiff_t>(s));
            }
        }
        const bool proved = !prove_slots(ranks);
        REQUIRE(reaches_the_end(ranks, machine::host_that_waits, random) == proved);
        (proved ? ran : hung) += 1;
        for (const machine on : {machine::two_streams, machine::one_queue}) {
            if (proved) { REQUIRE(reaches_the_end(ranks, on, random)); }
        }
    }
    CHECK(hung > 20);
    CHECK(ran > 20);
}

TEST_CASE("what hangs and what is mixed up is named") {
    const auto judge = [](std::vector<rank_transfers> ranks, int most) {
        for (rank_transfers& r : ranks) { r.slots = slots_of(r.steps, most); }
        const verdict found = prove_slots(ranks);
        return found ? *found : std::string{"nothing"};
    };
    // both send first: works in one group for both directions, not one after the other
    const std::vector<rank_transfers> exchange{{{send_of(1, 0), recv_of(1, 1)}, {}},
                                               {{send_of(0, 1), recv_of(0, 0)}, {}}};
    CHECK(judge(exchange, 4) == "nothing");
    const std::string hang = judge(exchange, 1);
    CHECK(hang.find("rank 0 slot 0 (send ") != std::string::npos);
    CHECK(hang.find("rank 1 slot 0 (send ") != std::string::npos);
    // a received message is sent on: not possible in one slot
    const std::vector<rank_transfers> relay{
        {{send_of(1, 0)}, {}}, {{recv_of(0, 0), compute_after({0}), send_of(2, 1)}, {}}, {{recv_of(1, 1)}, {}}};
    CHECK(judge(relay, 4) == "nothing");
    std::vector<rank_transfers> together = relay;
    for (rank_transfers& r : together) { r.slots = slots_of(r.steps); }
    together[1].slots = {{transfer_way::forward, {0, 2}}};
    CHECK(prove_slots(together));
    const std::string swapped = judge({{{send_of(1, 0), send_of(1, 1)}, {}}, {{recv_of(0, 1), recv_of(0, 0)}, {}}}, 4);
    CHECK(swapped == "rank 0 does not send the messages that rank 1 receives from it, in the same order");
    CHECK(judge({{{send_of(1, 0)}, {}}, {{}, {}}}, 4) == swapped);
    CHECK(judge({{{}, {}}, {{recv_of(0, 0)}, {}}}, 4) == swapped);
}

TEST_CASE("calls of a group wait for calls of an earlier round, to and from one peer") {
    std::mt19937 random{29};
    // Rank 0 sends two messages; rank 1 sends two back once it has both. With messages of two tensors this hung on a
    // card: the second tensor of the last send came behind the first one of the first receive.
    const auto ping_pong = [](int parts) {
        constexpr transfer_way way = transfer_way::forward;
        return std::vector<rank_transfers>{{{send_of(1, 0, parts), compute_after({}), send_of(1, 1, parts),
                                             recv_of(1, 2, parts), recv_of(1, 3, parts)},
                                            {{way, {0}}, {way, {2, 3, 4}}}},
                                           {{recv_of(0, 0, parts), recv_of(0, 1, parts), compute_after({0, 1}),
                                             send_of(0, 2, parts), send_of(0, 3, parts)},
                                            {{way, {0, 1}}, {way, {3, 4}}}}};
    };
    CHECK_FALSE(prove_slots(ping_pong(1)));
    CHECK(reaches_the_end(ping_pong(1), machine::two_streams, random));
    CHECK(prove_slots(ping_pong(2)));
    CHECK_FALSE(reaches_the_end(ping_pong(2), machine::two_streams, random));
}
