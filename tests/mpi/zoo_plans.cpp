#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/mpi/transport.hpp>
#include <pulse/plan/layout.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/print.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/runtime/prepared_program.hpp>
#include <pulse/tune/candidate_plan.hpp>
#include <pulse/zoo/known_models.hpp>

#include "world.hpp"

using namespace pulse;
using detail::prepared_program;
using namespace pulse::test;

namespace {

/// Byte i of part p of a message, independent of its sender.
std::byte byte_of(message_id m, std::size_t p, std::size_t i) {
    return static_cast<std::byte>(static_cast<std::size_t>(m.kind) * 101 + static_cast<std::size_t>(m.index) * 37 +
                                  static_cast<std::size_t>(index_of(m.microbatch)) * 11 + p * 5 + i);
}

/// One rank's program of a plan with all its messages, whose tensors have a few bytes, and with random delays as
/// passes: the executor's communication alone.
class walk {
public:
    walk(mpi::transport& among, const step_model& model, const program& mine, unsigned seed) :
        among_{among}, prepared_{model, mine, lay_out(model, mine)}, parts_(prepared_.size()), random_{seed} {}

    void step() {
        for (std::size_t i = 0; i != prepared_.size(); ++i) {
            for (const int other : prepared_.prepared(i).waits) { wait(static_cast<std::size_t>(other)); }
            if (const auto* out = std::get_if<op::send>(&prepared_.at(i))) {
                among_.post_send(index_of(out->peer), out->message, room(i, out->message));
            } else if (const auto* in = std::get_if<op::recv>(&prepared_.at(i))) {
                among_.post_recv(index_of(in->peer), in->message, room(i, {}));
            } else if (is_compute(prepared_.at(i))) {
                const int microseconds = std::uniform_int_distribution<int>{-100, 20}(random_);
                if (microseconds > 0) { std::this_thread::sleep_for(std::chrono::microseconds{microseconds}); }
            }
        }
    }

private:
    /// Memory for the parts of an instruction's message, filled with the bytes of message `filled`.
    std::span<message_part> room(std::size_t i, message_id filled) {
        auto& [bytes, parts] = parts_[i];
        parts = prepared_.prepared(i).parts;
        bytes.resize(parts.size());
        for (std::size_t p = 0; p != parts.size(); ++p) {
            parts[p].bytes = parts[p].bytes % 61;
            bytes[p].assign(parts[p].bytes, std::byte{0xFF});
            for (std::size_t at = 0; at != parts[p].bytes; ++at) { bytes[p][at] = byte_of(filled, p, at); }
            parts[p].data = bytes[p].data();
        }
        return parts;
    }
    void wait(std::size_t i) {
        if (const auto* out = std::get_if<op::send>(&prepared_.at(i))) {
            among_.wait_send(index_of(out->peer), out->message);
            return;
        }
        const auto& in = std::get<op::recv>(prepared_.at(i));
        among_.wait_recv(index_of(in.peer), in.message);
        for (std::size_t p = 0; p != parts_[i].first.size(); ++p) {
            for (std::size_t at = 0; at != parts_[i].first[p].size(); ++at) {
                if (parts_[i].first[p][at] != byte_of(in.message, p, at)) {
                    throw error{to_text(in.message) + " brought other bytes"};
                }
            }
        }
    }

    mpi::transport& among_;
    prepared_program prepared_;
    std::vector<std::pair<std::vector<std::vector<std::byte>>, std::vector<message_part>>> parts_;
    std::mt19937 random_;
};

/// Walks the plan of every known model, placed in each way, on all ranks of the transport.
int walk_all(mpi::transport& among) {
    int walked = 0;
    unsigned seed = 0;
    for (const known_model& known : known_models) {
        const cost_table costs = analytic_costs(known.graph, h100_80gb, 1, 2);
        for (int choice = 0; choice != 4; ++choice) {
            tune_candidate how;
            how.kind = static_cast<placement>(choice % 3);
            how.pipeline_degree = among.size();
            how.waves = choice == 3 ? 2 : 1;
            how.microbatches = 4;
            how.split_backward = seed % 2 == 0;
            how.routing = how.kind == placement::sequential ? skip_routing::relayed : skip_routing::direct;
            how.recompute = static_cast<recomputation>(seed % 3);
            plan planned;
            try {
                planned = plan_candidate(costs, how).plan;
            } catch (const infeasible_error&) { continue; } // too few layers for the stages
            const step_model model{planned, costs};
            const auto programs = lower(planned, model);
            walk{among, model, programs[static_cast<std::size_t>(among.rank())], 8 * ++seed}.step();
            ++walked;
        }
    }
    return walked;
}

} // namespace

TEST_CASE("no plan of the zoo deadlocks where a send waits for its receive and ranks drift") {
    int walked = 0;
    CHECK(error_of([&](mpi::transport& among) { walked = walk_all(among); }, {.timeout_s = 60, .synchronous = true}) ==
          "");
    CHECK(walked >= 40);
    MESSAGE(walked << " plans on " << world_size() << " ranks");
}
