#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <emulated/nccl.hpp>
#include <emulated/runtime.hpp>

#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/space.cuh>
#include <pulse/nccl/transport.cuh>
#include <pulse/runtime/executor.hpp>
#include <pulse/threads/transport.hpp>

#include <support/random_plan.hpp>
#include <support/replicated.hpp>
#include <support/toy_model.hpp>
#include <support/transports/endings.hpp>

#include <device_pipelined.hpp>
#include <device_ring.hpp>
#include <reference_backend.hpp>

using namespace pulse;
using namespace pulse::test;
using namespace std::chrono_literals;

namespace {

using ranks_of = nccl::transport<threads::transport>;
static_assert(transport<ranks_of>, "nccl::transport is a transport");

using toy = toy_model<1, 18, wiring::nested, true>;
using math = emulated_reference_backend<float>;

/// The error of a run of threads, each an NCCL rank, or "".
std::string error_of(const rank_grid& grid, const nccl::transport_options& options,
                     const std::function<void(ranks_of&)>& body) {
    try {
        threads::run_ranks(grid.size(), {}, [&](threads::transport& control) {
            ranks_of mine{control, grid, options};
            body(mine);
        });
    } catch (const std::exception& e) { return e.what(); }
    return {};
}

struct grid_of_ranks : device_parts {
    static constexpr bool exchanges = false;
    static constexpr bool launches = true;
    static constexpr bool sees_leaving = false;
    static constexpr const char* other_sum = " values, another rank sums ";
    static constexpr const char* other_collective = ", another rank ";
    int ranks{3};
    bool registered{true};

    std::string error_of(const std::function<void(ranks_of&)>& body) const {
        const auto on_rank = [&](ranks_of& t) {
            try {
                body(t);
            } catch (const std::exception& e) {
                t.fail(e.what());
                throw;
            }
        };
        return ::error_of({rank_layout::pipeline_inside, ranks, 1}, {.timeout = 20s, .register_memory = registered},
                          on_rank);
    }
};

[[nodiscard]] message_id message(int index, message_kind kind = message_kind::boundary) {
    return {kind, index, microbatch_id{0}};
}

constexpr int count = 300;

[[nodiscard]] message_part part_of(std::byte* data) {
    return {data, count * sizeof(unsigned), traffic_kind::boundary, true};
}

/// Results of a plan with D replicas on NCCL ranks: each replica's gradients by layer after the last step.
struct nccl_run {
    std::vector<std::map<int, std::vector<float>>> gradients{};
    traffic_count sent{};
    std::int64_t early_receives{};
};
template <class Transport = ranks_of>
nccl_run run_plan(const plan& planned, std::uint64_t seed, int steps, bool evaluates = false) {
    const cost_table costs = blank_costs(graph_of<toy>().view(), planned.microbatch_size, sizeof(float));
    const rank_grid grid{rank_layout::pipeline_inside, planned.pipeline_degree, planned.data_degree};
    nccl_run result;
    result.gradients.resize(static_cast<std::size_t>(grid.data));
    std::mutex mutex;
    threads::run_ranks(grid.size(), {}, [&](threads::transport& control) {
        Transport transport{control, grid, {.timeout = 20s}};
        math backend{transport.stream()};
        executor<toy, math> rank{backend, transport, planned, costs};
        const auto replica = static_cast<std::size_t>(rank.place().replica);
        const drawn_data<toy, float, float> data{seed + replica, planned.microbatch_size, planned.microbatches};
        device_task<toy, float> task{data, transport.stream()};
        for (const auto& block : rank.parameters().blocks()) {
            const std::vector<float> drawn = data.parameters(block.layer, block.size);
            rank.parameters().upload(block.layer, drawn);
        }
        const auto gradients = rank.parameters().gradients();
        for (int s = 0; s != steps; ++s) {
            if (evaluates) { rank.evaluate(task); }
            cuda::fill_bytes_async(gradients.data(), 0xff, gradients.size(), transport.stream()); // NaN
            rank.step(task);
        }
        transport.synchronize();
        std::vector<float> now(gradients.size());
        cuda::device_space::download(static_cast<const float*>(gradients.data()), std::span{now});
        const std::lock_guard lock{mutex};
        for (const auto& block : rank.parameters().blocks()) {
            const auto first = now.begin() + static_cast<std::ptrdiff_t>(block.first);
            result.gradients[replica][block.layer] = {first, first + static_cast<std::ptrdiff_t>(block.size)};
        }
        result.sent += transport.sent();
        result.early_receives += transport.early_receives();
    });
    return result;
}

/// NCCL ranks that make every message a group, also between replicas.
struct single_messages : ranks_of {
    using ranks_of::ranks_of;
    void follow(const rank_transfers&) = delete;
    void post_together(std::span<const message_post>) = delete;
};

/// NCCL ranks that count the proofs of slots.
struct counting_ranks : ranks_of {
    using ranks_of::ranks_of;
    static inline std::atomic<int> proofs = 0;

    [[nodiscard]] static auto prepare(const step_model& model, const std::vector<program>& programs, int device) {
        ++proofs;
        return ranks_of::prepare(model, programs, device);
    }
};

/// NCCL ranks, of which some wait for other replicas' shares as soon as they are asked about them, while the others
/// never see that a message has arrived.
struct uneven_ranks : ranks_of {
    using ranks_of::ranks_of;
    static inline unsigned late = 0; ///< one bit per rank

    [[nodiscard]] bool arrived(int peer, message_id m) {
        const bool is_late = (late >> rank() & 1U) != 0;
        emulated_cuda::answer_queries(!is_late);
        bool found = ranks_of::arrived(peer, m);
        while (!found && !is_late && m.kind == message_kind::gradient_share) { found = ranks_of::arrived(peer, m); }
        return found;
    }
};

plan draw_plan(std::mt19937& random, int devices, int replicas) {
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    for (;;) {
        plan p;
        p.pipeline_degree = devices;
        p.data_degree = replicas;
        p.microbatches = draw(2, 5);
        p.split_backward = draw(0, 1) == 1;
        p.spare_sends = draw(0, 3);
        const auto kind = static_cast<placement>(draw(0, 2));
        p.routing = kind == placement::sequential ? skip_routing::relayed : skip_routing::direct;
        const cost_table costs = blank_costs(graph_of<toy>().view(), 1, sizeof(float));
        p.cut = draw_cut(costs, kind, devices, kind == placement::sequential ? 1 : draw(1, 2), random);
        if (p.cut.stages.empty()) { continue; }
        p.order = draw_order(p.cut, p.microbatches, p.split_backward, random);
        return p;
    }
}

} // namespace

TEST_CASE("NCCL ranks pass messages behind the work that makes them and before the work that reads them") {
    const device_ring ring{.count = count, .rounds = 40, .exchange = true, .drift = true, .asks = 3};
    for (const bool registered : {true, false}) {
        for (const int ranks : {2, 4}) {
            const int before = emulated_nccl::groups_of_many();
            std::atomic<int> wrong{0};
            const grid_of_ranks these{{}, ranks, registered};
            CHECK(these.error_of([&](ranks_of& t) {
                wrong += t.registers_memory() == registered ? 0 : 1;
                t.follow(ring.transfers(t.rank(), t.size()));
                wrong += ring.wrong(t);
                t.follow(nullptr);
                transport_laws::keep_messages(these, t, 60);
            }) == "");
            CHECK(wrong == 0);
            CHECK(emulated_nccl::groups_of_many() - before >= 40 * ranks);
            CHECK(emulated_nccl::registered_blocks() == 0);
            CHECK(emulated_nccl::communicators() == 0);
        }
    }
}

TEST_CASE("memory is registered on all ranks or on none") {
    emulated_nccl::allow_memory(false);
    std::atomic<int> registering{0};
    CHECK(error_of({rank_layout::pipeline_inside, 2, 1}, {}, [&](ranks_of& t) {
              registering += t.registers_memory() ? 1 : 0;
              CHECK(t.allocate(100) != nullptr);
          }) == "");
    CHECK(registering == 0);
    emulated_nccl::allow_memory(true);
}

TEST_CASE("a plan's step on NCCL ranks leaves the gradients of the unpipelined model, slot by slot and one by one") {
    std::mt19937 random{41};
    std::int64_t early = 0;
    for (int n = 0; n != 12; ++n) {
        const plan p = draw_plan(random, 2 + n % 3, 1);
        INFO("plan " << n);
        const auto want = run_unpipelined<toy, reference::backend<float>>(p.microbatch_size, p.microbatches, 7);
        const nccl_run by_slots = run_plan(p, 7, 3);
        REQUIRE(by_slots.gradients[0] == want.gradients);
        if (n < 4) { REQUIRE(run_plan<single_messages>(p, 7, 3).gradients[0] == want.gradients); }
        early += by_slots.early_receives;
    }
    CHECK(early > 0);
}

TEST_CASE("a rank proves its slots once, however many steps and evaluations follow") {
    std::mt19937 random{42};
    const plan p = draw_plan(random, 2, 1);
    const auto want = run_unpipelined<toy, reference::backend<float>>(p.microbatch_size, p.microbatches, 7);
    counting_ranks::proofs = 0;
    CHECK(run_plan<counting_ranks>(p, 7, 3, true).gradients[0] == want.gradients);
    CHECK(counting_ranks::proofs == 2);
}

TEST_CASE("replicas on NCCL ranks sum their gradients as thread ranks do") {
    std::mt19937 random{43};
    for (const auto& [devices, replicas] : {std::pair{2, 2}, std::pair{1, 3}, std::pair{2, 3}, std::pair{2, 4}}) {
        plan p = draw_plan(random, devices, replicas);
        const auto want = run_replicated<toy, reference::backend<float>>(p, 11);
        const auto check = [&](const nccl_run& run) {
            CHECK(run.sent.gradient > 0);
            for (std::size_t r = 0; r != run.gradients.size(); ++r) { REQUIRE(run.gradients[r] == want.gradients[r]); }
        };
        check(run_plan(p, 11, 2));
        check(run_plan<single_messages>(p, 11, 2));
        p.node_replicas = 2;
        if (p.has_even_groups()) { check(run_plan(p, 11, 2)); }
    }
}

TEST_CASE("the gradients of a stage are summed over replicas in two groups of a rank, not in one a message") {
    std::mt19937 random{44};
    // Pipelines and replicas have different numbers of ranks, so that their groups can be told apart.
    for (const auto& [devices, replicas] : {std::pair{1, 2}, std::pair{3, 2}, std::pair{2, 3}, std::pair{2, 4}}) {
        const plan p = draw_plan(random, devices, replicas);
        const auto groups_of_step = [&](auto run) {
            const int before = emulated_nccl::groups_among(replicas);
            run(1);
            const int between = emulated_nccl::groups_among(replicas);
            run(3);
            const int all = emulated_nccl::groups_among(replicas) - between;
            REQUIRE((all - (between - before)) % 2 == 0);
            return (all - (between - before)) / 2; // of one step, without those that connect the ranks
        };
        const int stages_of_ranks = static_cast<int>(p.cut.stages.size()) * replicas;
        INFO("P ", devices, ", D ", replicas);
        CHECK(groups_of_step([&](int steps) { run_plan(p, 11, steps); }) == 2 * stages_of_ranks);
        CHECK(groups_of_step([&](int steps) { run_plan<single_messages>(p, 11, steps); }) ==
              4 * (replicas - 1) * stages_of_ranks);
    }
}

TEST_CASE("replicas whose hosts wait for their devices do not wait for each other, whichever of them are late") {
    std::mt19937 random{47};
    for (const auto& [devices, replicas] : {std::pair{2, 2}, std::pair{1, 3}, std::pair{1, 4}}) {
        plan p;
        p.pipeline_degree = devices;
        p.data_degree = replicas;
        p.node_replicas = replicas == 4 ? 2 : 1;
        p.microbatches = 1;
        p.cut = draw_cut(blank_costs(graph_of<toy>().view(), 1, sizeof(float)), placement::folded, devices, 2, random);
        p.order = draw_order(p.cut, p.microbatches, p.split_backward, random);
        const auto want = run_replicated<toy, reference::backend<float>>(p, 13);
        for (unsigned late = 0; late != 1U << (devices * replicas); ++late) {
            INFO("P ", devices, ", D ", replicas, ", late ranks: ", late);
            uneven_ranks::late = late;
            // The second step captures every instruction as a graph, for which the host waits.
            const nccl_run run = run_plan<uneven_ranks>(p, 13, 2);
            for (std::size_t r = 0; r != run.gradients.size(); ++r) { REQUIRE(run.gradients[r] == want.gradients[r]); }
        }
    }
}

TEST_CASE("an error of NCCL, and ranks that fail, return or disagree, end every rank as the laws of transports say") {
    const auto start = std::chrono::steady_clock::now();
    const grid_of_ranks these{};
    transport_laws::check_failing(these);
    transport_laws::check_failed(these);
    transport_laws::check_leaving(these);
    transport_laws::check_unlike_collectives(these);
    emulated_nccl::fail_group_after(7); // after the four groups that connect them
    const std::string text = grid_of_ranks{{}, 2}.error_of([](ranks_of& t) {
        std::array<message_part, 1> part{part_of(t.allocate(count * sizeof(unsigned)))};
        for (int round = 0; round != 5; ++round) {
            t.rank() == 0 ? t.post_send(1, message(round), part) : t.post_recv(0, message(round), part);
        }
        t.sum({});
    });
    emulated_nccl::fail_group_after(-1);
    INFO(text);
    CHECK(text.find("remote error") != std::string::npos);
    CHECK(std::chrono::steady_clock::now() - start < 10s);
    CHECK(emulated_nccl::communicators() == 0);
}

TEST_CASE("a run ends where what one communicator sends waits for what another one receives") {
    const int before = emulated_nccl::hung_aborts();
    CHECK(error_of({rank_layout::pipeline_inside, 2, 1}, {.timeout = 20s}, [&](ranks_of& t) {
              if (t.rank() == 1) { return t.sum({}); }
              std::array<message_part, 1> in{part_of(t.allocate(count * sizeof(unsigned)))};
              std::array<message_part, 1> out{part_of(t.allocate(count * sizeof(unsigned)))};
              t.post_recv(1, message(1, message_kind::boundary_gradient), in);
              t.wait_recv(1, message(1, message_kind::boundary_gradient));
              cuda::copy_async(out[0].data, in[0].data, in[0].bytes, t.stream());
              t.post_send(1, message(0), out);
              throw error{"rank 0 gives up"};
          }) == "rank 0 gives up");
    CHECK(emulated_nccl::hung_aborts() == before);
    CHECK(emulated_nccl::communicators() == 0);
}

TEST_CASE("a message whose other side never comes is named after the timeout, and the wait for the stream ends") {
    const auto start = std::chrono::steady_clock::now();
    std::string of_rank_1;
    const std::string text = error_of({rank_layout::pipeline_inside, 2, 1}, {.timeout = 300ms}, [&](ranks_of& t) {
        std::array<message_part, 1> part{part_of(t.allocate(count * sizeof(unsigned)))};
        if (t.rank() == 0) {
            try {
                t.sum({});
            } catch (const peer_failed&) { return; }
            return;
        }
        t.post_recv(0, message(5), part);
        t.wait_recv(0, message(5));
        cuda::fill_bytes_async(reinterpret_cast<unsigned*>(part[0].data), 0, count, t.stream());
        try {
            t.synchronize();
        } catch (const peer_failed& e) {
            of_rank_1 = e.what();
            t.fail(e.what());
            throw;
        }
    });
    CHECK(of_rank_1.find("rank 1: ") == 0);
    CHECK(of_rank_1.find("from rank 0 did not complete within 0.3 s") != std::string::npos);
    CHECK(text == of_rank_1);
    CHECK(std::chrono::steady_clock::now() - start < 10s);
}

TEST_CASE("a message may be late where the timeout is the longest there is") {
    const nccl::transport_options patient{.timeout = std::chrono::milliseconds::max()};
    CHECK(error_of({rank_layout::pipeline_inside, 2, 1}, patient, [&](ranks_of& t) {
              std::array<message_part, 1> part{part_of(t.allocate(count * sizeof(unsigned)))};
              if (t.rank() == 0) {
                  std::this_thread::sleep_for(100ms);
                  t.post_send(1, message(5), part);
                  t.wait_send(1, message(5));
              } else {
                  t.post_recv(0, message(5), part);
                  t.wait_recv(0, message(5));
              }
              t.synchronize();
              t.sum({});
          }) == "");
}

TEST_CASE("a rank that returns with a message whose other side never comes ends after the timeout") {
    const auto start = std::chrono::steady_clock::now();
    const std::string text = error_of({rank_layout::pipeline_inside, 2, 1}, {.timeout = 300ms}, [&](ranks_of& t) {
        std::array<message_part, 1> part{part_of(t.allocate(count * sizeof(unsigned)))};
        if (t.rank() == 0) { return t.post_send(1, message(5), part); }
        t.sum({});
    });
    INFO(text);
    CHECK(text.find("rank 0 has returned") != std::string::npos);
    CHECK(emulated_nccl::communicators() == 0);
    CHECK(std::chrono::steady_clock::now() - start < 10s);
}

TEST_CASE("messages that cannot be are refused by name") {
    const rank_grid grid{rank_layout::pipeline_inside, 2, 2};
    const auto refused = [&](int peer, message_id id) {
        return error_of(grid, {}, [&](ranks_of& t) {
            if (t.rank() == 0) { t.post_send(peer, id, {}); }
        });
    };
    CHECK(refused(2, message(0)).find("no link from rank 0 to rank 2") != std::string::npos);
    CHECK(refused(1, message(0, message_kind::gradient_share)).find("no link from rank 0 to rank 1") !=
          std::string::npos);
    CHECK(refused(0, message(0)).find("no link from rank 0 to rank 0") != std::string::npos);
    CHECK(error_of({rank_layout::pipeline_inside, 2, 1}, {}, [&](ranks_of& t) {
              rank_transfers steps{{{transfer_step::role::send, 1, message(3), false, {}}}, {}};
              steps.slots = slots_of(steps.steps);
              t.follow(steps);
              if (t.rank() == 0) { t.post_send(1, message(4), {}); }
          }).find("was posted where the plan's slots expect") != std::string::npos);
    try {
        threads::run_ranks(2, {}, [&](threads::transport& control) {
            ranks_of mine{control, rank_grid{rank_layout::pipeline_inside, 3, 1}};
        });
        FAIL("a grid that does not fit was taken");
    } catch (const input_error& e) { CHECK(std::string{e.what()}.find("a grid of 3 x 1 ranks") != std::string::npos); }
}
