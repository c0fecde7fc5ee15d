#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

#include <plan/random_plan.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/simulate/duration.hpp>
#include <pulse/simulate/simulator.hpp>

#include "contended.hpp"

namespace shared_link_tests {

using doctest::Approx;
using pulse_test::planned_model;

namespace {

/// A time-ordered queue of events: ranks that continue, messages that leave and arrive. At every instant all ranks run
/// first; then the message that both sides posted first gets its links if they are free; and so on.
class event_oracle {
public:
    event_oracle(const pulse::plan& planned, const pulse::step_model& model, const programs& all,
                 const pulse::simulation_options& options) :
        planned_(planned),
        model_(model), all_(all), options_(options), ranks_(all.size()) {}

    /// End of each compute instruction of each rank, and end of the step.
    std::vector<std::map<std::size_t, double>> ends{};
    double step_us{};

    void run() {
        ends.resize(all_.size());
        for (std::size_t r = 0; r != all_.size(); ++r) { events_.insert({0.0, r}); }
        while (!events_.empty()) {
            now_ = events_.begin()->first;
            while (!events_.empty() && events_.begin()->first == now_) {
                const std::size_t r = events_.begin()->second;
                events_.erase(events_.begin());
                if (r < all_.size() && ranks_[r].busy_until <= now_) { go_on(r); }
            }
            give_link();
        }
        for (std::size_t r = 0; r != all_.size(); ++r) {
            REQUIRE(ranks_[r].at == all_[r].instructions.size());
            REQUIRE(ranks_[r].pieces.empty());
            step_us = std::max(step_us, ranks_[r].reduced);
        }
    }

private:
    struct piece {
        double us{};
        double latency{};
        bool shared{};
    };
    struct state {
        std::size_t at{};
        double busy_until{};
        std::vector<piece> pieces{}; // messages between replicas that have not started
        double reduced{};            // arrival of the previous one, or the time they were posted
    };
    struct message {
        double posted[2]{-1, -1};
        double left{std::numeric_limits<double>::infinity()};
        double arrived{std::numeric_limits<double>::infinity()};
    };
    const pulse::plan& planned_;
    const pulse::step_model& model_;
    const programs& all_;
    const pulse::simulation_options& options_;
    std::vector<state> ranks_;
    std::set<std::pair<double, std::size_t>> events_{};
    std::map<pulse::message_id, message> messages_{};
    std::map<std::size_t, std::vector<pulse::message_id>> order_{}; // of each pair, in send order
    std::map<std::size_t, double> pair_free_{};
    std::map<int, double> link_free_{};
    double now_{};

    /// Whether all earlier messages of rank r about buffers that instruction i touches are over.
    bool may_run(std::size_t r, std::size_t i) {
        const auto& code = all_[r].instructions;
        const int device = static_cast<int>(r);
        if (std::holds_alternative<pulse::op::optimizer_step>(code[i]) &&
            (!ranks_[r].pieces.empty() || ranks_[r].reduced > now_)) {
            return false;
        }
        std::map<pulse::buffer_id, bool> touched{};
        for (const auto& a : model_.accesses(device, code[i])) { touched[a.buffer] = a.mode != pulse::access::read; }
        if (const auto* f = std::get_if<pulse::op::release>(&code[i])) { touched[f->buffer] = true; }
        for (std::size_t k = 0; k != i; ++k) {
            const auto* s = std::get_if<pulse::op::send>(&code[k]);
            const auto* v = std::get_if<pulse::op::recv>(&code[k]);
            if (s == nullptr && v == nullptr) { continue; }
            const auto& id = s != nullptr ? s->message : v->message;
            for (const auto& part : model_.parts(id, device)) {
                const auto found = touched.find(part);
                if (found == touched.end()) { continue; }
                if (v != nullptr && messages_[id].arrived > now_) { return false; }
                if (s != nullptr && found->second && messages_[id].left > now_) { return false; }
            }
        }
        return true;
    }
    void go_on(std::size_t r) {
        const auto& code = all_[r].instructions;
        state& rank = ranks_[r];
        while (rank.at != code.size() && rank.busy_until <= now_ && may_run(r, rank.at)) {
            const auto& what = code[rank.at];
            double takes = pulse::duration_us(model_, static_cast<int>(r), what) /
                           (options_.device_speed.empty() ? 1.0 : options_.device_speed[r]);
            if (const auto* s = std::get_if<pulse::op::send>(&what)) {
                messages_[s->message].posted[0] = now_;
                order_[r * all_.size() + static_cast<std::size_t>(pulse::index_of(s->peer))].push_back(s->message);
            } else if (const auto* v = std::get_if<pulse::op::recv>(&what)) {
                messages_[v->message].posted[1] = now_;
            } else if (const auto* a = std::get_if<pulse::op::all_reduce>(&what)) {
                std::int64_t bytes = 0;
                for (int l = 0; l != model_.layer_count(); ++l) {
                    bytes +=
                        model_.stage_of_layer(l) == pulse::index_of(a->stage) ? model_.layer(l).parameter_bytes : 0;
                }
                const int wider = options_.kept.scalar_bytes == 2 ? 2 : 1; // gradients have 4 bytes
                exchange(r, bytes * wider, true, !options_.kept.sharded, now_);
            } else if (std::holds_alternative<pulse::op::optimizer_step>(what)) {
                takes = options_.device_optimizer_us.empty() ? options_.optimizer_us : options_.device_optimizer_us[r];
                step_us = std::max(step_us, now_ + takes);
                std::int64_t bytes = 0;
                for (int l = 0; l != model_.layer_count() && options_.kept.sharded; ++l) {
                    const bool own = model_.device_of_stage(model_.stage_of_layer(l)) == static_cast<int>(r);
                    bytes += own ? model_.layer(l).parameter_bytes : 0;
                }
                exchange(r, bytes, false, true, now_ + takes);
            }
            rank.busy_until = now_ + takes;
            if (pulse::is_compute(what)) { ends[r][rank.at] = rank.busy_until; }
            ++rank.at;
            events_.insert({rank.busy_until, r});
        }
    }
    void exchange(std::size_t r, std::int64_t bytes, bool there, bool back, double from) {
        const int d = planned_.data_degree;
        state& rank = ranks_[r];
        if (bytes == 0 || d == 1) { return; }
        if (rank.pieces.empty()) { rank.reduced = std::max(rank.reduced, from); }
        std::vector<pulse::replica_round> rounds(static_cast<std::size_t>(d - 1), {options_.between_replicas});
        if (!options_.replica_rounds.empty()) { rounds = options_.replica_rounds[r]; }
        const auto pass = [&](bool single, bool several) {
            for (const pulse::replica_round& round : rounds) {
                if (!(round.shares == 1 ? single : several)) { continue; }
                const double us = round.line.transfer_us((bytes + d - 1) / d * round.messages * round.shares);
                rank.pieces.push_back({us, round.line.latency_us, round.shared});
            }
        };
        if (there) { pass(true, true); }
        if (back) {
            pass(true, false); // between nodes
            pass(false, true); // then inside
        }
    }
    void give_link() {
        std::vector<std::tuple<double, std::size_t, pulse::message_id>> ready{};
        const std::size_t no_rank = all_.size();
        const std::size_t pairs = all_.size() * all_.size();
        for (std::size_t r = 0; r != all_.size(); ++r) {
            if (ranks_[r].pieces.empty() || ranks_[r].reduced > now_) { continue; }
            ready.emplace_back(ranks_[r].reduced, pairs + r, pulse::message_id{});
        }
        for (const auto& [pair, ids] : order_) {
            // The first message of the pair that has not started.
            const auto next = std::find_if(ids.begin(), ids.end(), [&](const auto& id) {
                return messages_[id].left == std::numeric_limits<double>::infinity();
            });
            if (next == ids.end() || messages_[*next].posted[1] < 0) { continue; }
            const message& m = messages_[*next];
            const double since = std::max({m.posted[0], m.posted[1], pair_free_[pair]});
            if (since <= now_) { ready.emplace_back(since, pair, *next); }
        }
        std::sort(ready.begin(), ready.end(), [](const auto& a, const auto& b) {
            return std::pair{std::get<0>(a), std::get<1>(a)} < std::pair{std::get<0>(b), std::get<1>(b)};
        });
        for (const auto& one : ready) {
            const std::size_t pair = std::get<1>(one);
            const auto& routes = pair < pairs ? options_.routes : options_.replica_routes;
            pulse::link_route route = routes.empty() ? pulse::link_route{} : routes[pair % pairs];
            if (pair >= pairs && !ranks_[pair - pairs].pieces.front().shared) { route = {}; }
            bool free = true;
            for (const int shared : {route.first, route.second}) {
                free = free && (shared < 0 || link_free_[shared] <= now_);
            }
            if (!free) { continue; }
            if (pair >= pairs) {
                state& rank = ranks_[pair - pairs];
                rank.reduced = now_ + rank.pieces.front().us;
                const double left = std::max(now_, rank.reduced - rank.pieces.front().latency);
                rank.pieces.erase(rank.pieces.begin());
                for (const int shared : {route.first, route.second}) { link_free_[shared] = left; }
                events_.insert({rank.reduced, pair - pairs});
                events_.insert({left, no_rank});
                events_.insert({now_, no_rank});
                return;
            }
            message& m = messages_[std::get<2>(one)];
            const auto to = pair % all_.size();
            std::int64_t bytes = 0;
            for (const auto& part : model_.parts(std::get<2>(one), static_cast<int>(to))) {
                bytes += model_.bytes(part);
            }
            m.arrived = now_ + options_.links[pair].transfer_us(bytes);
            m.left = std::max(now_, m.arrived - options_.links[pair].latency_us);
            pair_free_[pair] = m.left;
            for (const int shared : {route.first, route.second}) { link_free_[shared] = m.left; }
            events_.insert({m.left, pair / all_.size()});
            events_.insert({m.arrived, to});
            events_.insert({m.left, no_rank}); // links are reassigned then
            events_.insert({now_, no_rank});   // so are those that are free now, after ranks that go on now
            return;
        }
    }
};

} // namespace

TEST_CASE("ranks and shared links on a queue of events take the same times") {
    random_plans make{61};
    int waited = 0;
    int waited_for_rings = 0;
    int plans = 0;
    for (int i = 0; i != 300; ++i) {
        planned_model c = make();
        c.planned.data_degree = make.between(1, 4);
        for (auto& l : c.costs.layers) { l.parameter_bytes = make.between(0, 50) * 8; }
        if (c.planned.microbatches > 3) { continue; }
        const pulse::step_model model{c.planned, c.costs};
        const programs all = pulse::lower(c.planned, model);
        auto options = contended(make, c.planned.pipeline_degree);
        draw_replicas(make, options, c.planned.pipeline_degree, c.planned.data_degree);
        const pulse::simulation made = pulse::simulate(c.planned, model, all, options);
        event_oracle oracle{c.planned, model, all, options};
        oracle.run();
        CAPTURE(i);
        REQUIRE(made.step_us == Approx(oracle.step_us).epsilon(1e-12));
        for (std::size_t r = 0; r != all.size(); ++r) {
            REQUIRE(made.ranks[r].size() == oracle.ends[r].size());
            for (const auto& p : made.ranks[r]) {
                REQUIRE(p.end_us == Approx(oracle.ends[r].at(static_cast<std::size_t>(p.instruction))).epsilon(1e-12));
            }
        }
        const bool had_rings = !options.replica_routes.empty();
        options.replica_routes.clear();
        const double apart_us = pulse::simulate(c.planned, model, all, options).step_us;
        waited_for_rings += had_rings && apart_us < made.step_us - 1e-9 ? 1 : 0;
        options.routes.clear();
        waited += pulse::simulate(c.planned, model, all, options).step_us < made.step_us - 1e-9 ? 1 : 0;
        ++plans;
    }
    MESSAGE("steps that contention makes longer: " << waited << " of " << plans);
    CHECK(8 * waited > plans);
    MESSAGE("of these, by reductions on the same links: " << waited_for_rings);
    CHECK(waited_for_rings > 20);
}

} // namespace shared_link_tests
