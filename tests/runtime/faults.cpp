#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <support/checked_transport.hpp>
#include <support/faulty_transport.hpp>
#include <support/pipelined.hpp>
#include <support/random_plan.hpp>
#include <support/toy_model.hpp>
#include <pulse/reference/backend.hpp>

using namespace pulse;
using namespace pulse::test;

namespace faulty_links {

namespace {

using model_type = toy_model<1, 18, wiring::nested, true>;
using math = reference::backend<float>;
using faulty = faulty_transport<threads::transport>;
using checked = checked_transport<faulty>;
constexpr int ranks = 3;

cost_table costs_of_model() { return blank_costs(graph_of<model_type>().view(), 1, sizeof(float)); }

plan draw_plan() {
    std::mt19937 random{5};
    plan p;
    p.pipeline_degree = ranks;
    p.microbatches = 3;
    p.cut = draw_cut(costs_of_model(), placement::folded, ranks, 1, random);
    p.order = draw_order(p.cut, p.microbatches, true, random);
    return p;
}

struct outcome {
    std::map<int, std::vector<float>> gradients{};
    std::array<int, ranks> sends{};
    traffic_count sent{};
};

/// Runs two steps with a fault in one rank's messages.
outcome run(const plan& planned, const fault_plan& wrong) {
    outcome out;
    std::mutex mutex;
    threads::run_ranks(ranks, {}, [&](threads::transport& threads) {
        faulty links{threads, wrong};
        checked transport{links};
        math backend;
        executor<model_type, math> rank{backend, transport, planned, costs_of_model()};
        drawn_task<model_type, float> task{{7, planned.microbatch_size, planned.microbatches}};
        for (const auto& block : rank.parameters().blocks()) {
            const auto drawn = task.data.parameters(block.layer, block.size);
            std::copy(drawn.begin(), drawn.end(), rank.parameters().values_of(block.layer).begin());
        }
        rank.step(task);
        rank.step(task);
        transport.sum({});
        const std::lock_guard lock{mutex};
        for (const auto& block : rank.parameters().blocks()) {
            const auto g = rank.parameters().gradients_of(block.layer);
            out.gradients[block.layer] = {g.begin(), g.end()};
        }
        out.sends[static_cast<std::size_t>(transport.rank())] = links.sends();
        out.sent += transport.sent();
    });
    return out;
}

/// The error of run, or "".
std::string error_of(const plan& planned, const fault_plan& wrong) {
    try {
        static_cast<void>(run(planned, wrong));
    } catch (const std::exception& e) { return e.what(); }
    return {};
}

} // namespace

TEST_CASE("messages that are late change nothing; those that are damaged, doubled or missing are named") {
    const plan planned = draw_plan();
    const outcome good = run(planned, {});
    const auto plain = run_pipelined<model_type, math>(planned, 7, {}, 2);
    CHECK(good.sent.boundary == plain.sent.boundary); // proofs are not counted
    CHECK(good.sent.messages == plain.sent.messages);

    for (int rank = 0; rank != ranks; ++rank) {
        // a fault beyond the last send counts the sends
        const int sends = run(planned, {fault::delay, rank, 1 << 20}).sends[static_cast<std::size_t>(rank)];
        REQUIRE(sends > 8);
        for (int at = 0; at < sends; at += 3) {
            INFO("rank " << rank << ", send " << at);
            CHECK(run(planned, {fault::delay, rank, at}).gradients == good.gradients);

            const std::string damaged = error_of(planned, {fault::corrupt, rank, at});
            CHECK(damaged.find("from rank " + std::to_string(rank) + " is damaged") != std::string::npos);
            CHECK(damaged.find("pulse: message boundary") != std::string::npos);

            // a duplicate of the last message goes unnoticed: nobody receives after it
            const std::string doubled = error_of(planned, {fault::duplicate, rank, at});
            if (at + 3 < sends) {
                const bool named = doubled.find("two ranks disagree") != std::string::npos ||
                                   doubled.find("came twice") != std::string::npos;
                CHECK_MESSAGE(named, doubled);
            }
            const std::string killed =
                error_of(planned, {fault::kill, rank, at, [] { throw std::runtime_error{"killed here"}; }});
            CHECK(killed.find("rank " + std::to_string(rank) + ", instruction ") == 0);
            CHECK(killed.find("send boundary") != std::string::npos);
            CHECK(killed.find("killed here") != std::string::npos);
        }
    }
}

TEST_CASE("a message that comes twice is not taken for the next one of its name") {
    const message_id again{message_kind::boundary, 2, microbatch_id{0}};
    const auto talk = [&](fault what) {
        threads::run_ranks(2, {}, [&](threads::transport& threads) {
            faulty links{threads, {what, 0, 0}};
            checked transport{links};
            std::array<message_part, 2> parts{message_part{transport.allocate(8), 8}, {transport.allocate(8), 8}};
            for (message_part& part : parts) {
                std::memset(part.data, 1, 8);
                const std::span one{&part, 1};
                transport.rank() == 0 ? transport.post_send(1, again, one) : transport.post_recv(0, again, one);
            }
            for (int i = 0; i != 2; ++i) {
                transport.rank() == 0 ? transport.wait_send(1, again) : transport.wait_recv(0, again);
            }
        });
    };
    CHECK_NOTHROW(talk(fault::none));
    CHECK_THROWS_WITH_AS(
        talk(fault::duplicate),
        "pulse: message boundary 2 of microbatch 0 from rank 0 is number 0 between the two ranks, not 1: one "
        "was lost or came twice",
        error);
}

TEST_CASE("a checksum depends on every byte, its place and the number of bytes") {
    std::mt19937 random{3};
    for (std::size_t size = 0; size != 40; ++size) {
        std::vector<std::byte> bytes(size);
        for (std::byte& b : bytes) { b = static_cast<std::byte>(random()); }
        const std::uint64_t sum = checksum_of(bytes);
        CHECK(sum == checksum_of(bytes));
        for (std::size_t at = 0; at != size; ++at) {
            for (int bit = 0; bit != 8; ++bit) {
                bytes[at] ^= static_cast<std::byte>(1 << bit);
                CHECK(checksum_of(bytes) != sum);
                bytes[at] ^= static_cast<std::byte>(1 << bit);
            }
            if (at + 9 < size && bytes[at] != bytes[at + 9]) {
                std::swap(bytes[at], bytes[at + 9]);
                CHECK(checksum_of(bytes) != sum);
                std::swap(bytes[at], bytes[at + 9]);
            }
        }
        bytes.push_back(std::byte{0});
        CHECK(checksum_of(bytes) != sum);
    }
}

} // namespace faulty_links
