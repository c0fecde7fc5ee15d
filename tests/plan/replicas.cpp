#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include <pulse/core/ids.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/plan/rendezvous.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/plan/step_model.hpp>

#include "random_plan.hpp"

namespace {

using namespace pulse;

/// The programs of all ranks of the world, with every message of a sum over replicas as a separate send and receive, in
/// the order in which the executor posts them on a transport with blocking posts.
std::vector<program> over_replicas(const std::vector<program>& of_pipeline, int replicas, rank_layout layout,
                                   int node_replicas = 1) {
    const rank_grid grid{layout, static_cast<int>(of_pipeline.size()), replicas};
    std::vector<program> world(static_cast<std::size_t>(grid.size()));
    for (int rank = 0; rank != grid.size(); ++rank) {
        replica_place place = place_of(grid, rank);
        place.node_replicas = node_replicas;
        program& mine = world[static_cast<std::size_t>(rank)];
        mine.device = rank;
        for (instruction what : of_pipeline[static_cast<std::size_t>(place.device)].instructions) {
            if (auto* s = std::get_if<op::send>(&what)) {
                s->peer = device_id{place.rank_of_device(index_of(s->peer))};
            } else if (auto* v = std::get_if<op::recv>(&what)) {
                v->peer = device_id{place.rank_of_device(index_of(v->peer))};
            } else if (const auto* a = std::get_if<op::all_reduce>(&what)) {
                std::vector<replica_circle> circles = place.circles();
                for (const message_kind kind : {message_kind::gradient_share, message_kind::gradient_sum}) {
                    const auto message = [&](int from, int to) {
                        return message_id{kind, index_of(a->stage),
                                          microbatch_id{kind == message_kind::gradient_share ? to : from}};
                    };
                    for (const replica_circle& circle : circles) {
                        for_each_round(
                            circle,
                            [&](int number) {
                                const int to = circle.replica(number);
                                mine.instructions.push_back(
                                    op::send{message(place.replica, to), device_id{place.rank_of_replica(to)}});
                            },
                            [&](int number) {
                                const int from = circle.replica(number);
                                mine.instructions.push_back(
                                    op::recv{message(from, place.replica), device_id{place.rank_of_replica(from)}});
                            });
                    }
                    std::reverse(circles.begin(), circles.end());
                }
                continue;
            }
            mine.instructions.push_back(what);
        }
    }
    return world;
}

} // namespace

TEST_CASE("no sum over replicas deadlocks with the messages of a pipeline, when every message blocks both its ranks") {
    for (const bool scattered : {false, true}) {
        pulse_test::random_plans draw{77, scattered};
        for (int i = 0; i != 150; ++i) {
            pulse_test::planned_model made = draw();
            made.planned.data_degree = 2 + i % 5;
            const step_model model{made.planned, made.costs};
            const std::vector<program> one = lower(made.planned, model);
            INFO("plan ", i);
            for (made.planned.node_replicas = 1; made.planned.node_replicas != 4; ++made.planned.node_replicas) {
                if (!made.planned.has_even_groups()) { continue; }
                const auto world = over_replicas(one, made.planned.data_degree, static_cast<rank_layout>(i % 2),
                                                 made.planned.node_replicas);
                REQUIRE(!detail::first_deadlock(world));
            }
        }
    }
}

TEST_CASE("replicas exchange in rounds: in round k each sends k replicas ahead and receives from k behind") {
    for (int replicas = 1; replicas != 14; ++replicas) {
        const rank_grid grid{rank_layout::pipeline_inside, 1, replicas};
        std::vector<program> world(static_cast<std::size_t>(replicas));
        for (int r = 0; r != replicas; ++r) {
            program& mine = world[static_cast<std::size_t>(r)];
            mine.device = r;
            int sent = 0;
            int received = 0;
            const auto message = [](int to) { return message_id{message_kind::gradient_share, 0, microbatch_id{to}}; };
            for_each_round(
                place_of(grid, r).circles().front(),
                [&](int to) {
                    CHECK(to == (r + ++sent) % replicas);
                    CHECK(sent - received <= 1); // rounds begin one after the other
                    mine.instructions.push_back(op::send{message(to), device_id{to}});
                },
                [&](int from) {
                    CHECK(r == (from + ++received) % replicas);
                    CHECK(received - sent <= 1);
                    mine.instructions.push_back(op::recv{message(r), device_id{from}});
                });
            CHECK(sent == replicas - 1);
            CHECK(received == replicas - 1);
        }
        CHECK(!detail::first_deadlock(world));
        // If every rank posts its sends first, all wait: half of the ranks, rounded up, must begin with receives.
        for (program& mine : world) {
            std::stable_partition(mine.instructions.begin(), mine.instructions.end(),
                                  [](const instruction& what) { return std::holds_alternative<op::send>(what); });
        }
        CHECK((replicas == 1) == !detail::first_deadlock(world));
    }
}

TEST_CASE(
    "through the circles every share of every replica comes to its owner once, and as many are sent as directly") {
    for (int replicas = 2; replicas != 25; ++replicas) {
        for (plan p{.data_degree = replicas}; p.node_replicas != replicas; ++p.node_replicas) {
            if (!p.has_even_groups()) { continue; }
            const auto place = [&](int r) {
                replica_place one = place_of({rank_layout::pipeline_inside, 1, replicas}, r);
                one.node_replicas = p.node_replicas;
                return one;
            };
            // By replica and share: whose contributions it has.
            std::vector<std::vector<std::multiset<int>>> has;
            for (int r = 0; r != replicas; ++r) {
                has.emplace_back(static_cast<std::size_t>(replicas), std::multiset{r});
            }
            std::vector<element_range> layer{{0, static_cast<std::size_t>(replicas)}}; // one element per share
            const std::size_t circles = place(0).circles().size();
            REQUIRE(circles == (p.node_replicas == 1 ? 1U : 2U));
            std::size_t sent = 0;
            for (std::size_t k = 0; k != circles; ++k) {
                const auto before = has;
                for (int r = 0; r != replicas; ++r) {
                    const replica_circle mine = place(r).circles()[k];
                    REQUIRE(mine.replica(mine.here) == r);
                    for (int i = 0; i != mine.size; ++i) {
                        const replica_circle theirs = place(mine.replica(i)).circles()[k];
                        REQUIRE(theirs.here == i);
                        REQUIRE(theirs.replica(mine.here) == r);
                        if (i == mine.here) { continue; }
                        for (const element_range& one :
                             shares_of(std::span<const element_range>{layer}, replicas, mine, i)) {
                            REQUIRE(one.size == 1);
                            auto& to = has[static_cast<std::size_t>(mine.replica(i))][one.first];
                            const auto& from = before[static_cast<std::size_t>(r)][one.first];
                            to.insert(from.begin(), from.end());
                            ++sent;
                        }
                    }
                }
            }
            for (int r = 0; r != replicas; ++r) {
                const auto& own = has[static_cast<std::size_t>(r)][static_cast<std::size_t>(r)];
                CHECK(own.size() == static_cast<std::size_t>(replicas));
                CHECK(std::set<int>(own.begin(), own.end()).size() == own.size());
            }
            CHECK(sent == static_cast<std::size_t>(replicas * (replicas - 1)));
        }
    }
}

TEST_CASE("the proof sees a replica that sums its stages in another order, and one that sums behind other messages") {
    pulse_test::random_plans draw{78};
    int swapped = 0;
    int delayed = 0;
    for (int i = 0; i != 100; ++i) {
        pulse_test::planned_model made = draw();
        made.planned.data_degree = 2;
        const step_model model{made.planned, made.costs};
        const auto one = lower(made.planned, model);
        auto other = one;
        std::vector<instruction*> sums;
        for (instruction& what : other[0].instructions) {
            if (std::holds_alternative<op::all_reduce>(what)) { sums.push_back(&what); }
        }
        auto world = over_replicas(one, 2, rank_layout::pipeline_inside);
        const std::size_t first = one.size(); // rank 0 of replica 1
        if (sums.size() > 1) {
            std::swap(*sums[0], *sums[1]);
            world[first] = over_replicas(other, 2, rank_layout::pipeline_inside)[first];
            CHECK(detail::first_deadlock(world));
            ++swapped;
        }
        // Either replica sums late on a different one of the two devices: each pair waits for the other's pipeline.
        if (one.size() < 2) { continue; }
        auto late = one;
        const auto postpone = [](program& p) {
            const auto sum = std::find_if(p.instructions.begin(), p.instructions.end(), [](const instruction& what) {
                return std::holds_alternative<op::all_reduce>(what);
            });
            std::rotate(sum, sum + 1, p.instructions.end() - 1);
        };
        postpone(late[0]);
        postpone(late[1]);
        const auto moved = over_replicas(late, 2, rank_layout::pipeline_inside);
        world = over_replicas(one, 2, rank_layout::pipeline_inside);
        world[0] = moved[0];
        world[first + 1] = moved[first + 1];
        delayed += detail::first_deadlock(world) ? 1 : 0;
    }
    CHECK(swapped > 20);
    CHECK(delayed > 0);
}
