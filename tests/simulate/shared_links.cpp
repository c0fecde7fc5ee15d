#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <queue>
#include <set>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

#include <plan/random_plan.hpp>
#include <pulse/core/error.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/plan/layout.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/make_problem.hpp>
#include <pulse/simulate/grid_links.hpp>
#include <pulse/simulate/simulator.hpp>

using doctest::Approx;
using pulse_test::planned_model;
using pulse_test::random_plans;

namespace {

using programs = std::vector<pulse::program>;

/// Links of positive latency, so that every message takes time; shared at random.
pulse::simulation_options contended(random_plans& make, int ranks) {
    pulse::simulation_options o{};
    const auto pairs = static_cast<std::size_t>(ranks * ranks);
    const int shared = make.between(1, 4);
    for (std::size_t pair = 0; pair != pairs; ++pair) {
        o.links.push_back({make.between(1, 40) * 0.37, make.coin() ? 0.0 : make.between(1, 200) * 1.1e-3});
        o.routes.push_back({make.between(-1, shared - 1), make.between(-1, shared - 1)});
    }
    o.between_replicas = {make.between(0, 9) * 1.0, 0.01};
    o.optimizer_us = make.between(0, 10);
    for (int r = 0; r != ranks && make.engine()() % 2 == 0; ++r) {
        o.device_speed.assign(static_cast<std::size_t>(ranks), 1.0);
        for (double& s : o.device_speed) { s = make.between(1, 8) * 0.5; }
        break;
    }
    for (int r = 0; r != ranks; ++r) {
        o.replica_routes.push_back({make.between(-1, shared - 1), make.between(-1, shared - 1)});
    }
    if (make.between(0, 3) == 0) { o.replica_routes.clear(); }
    return o;
}

/// Rounds of their own for every rank, state that replicas may share, and gradients that may be wider than weights.
void draw_replicas(random_plans& make, pulse::simulation_options& o, int ranks, int replicas) {
    for (int r = 0; r != ranks && make.between(0, 3) != 0; ++r) {
        o.replica_rounds.emplace_back();
        for (int j = 1; j < replicas; ++j) {
            o.replica_rounds.back().push_back(
                {{make.between(0, 9) * 1.3, make.between(1, 50) * 1e-3}, make.between(1, 3), make.coin()});
        }
        if (r + 1 == ranks) { break; }
    }
    if (o.replica_rounds.size() != static_cast<std::size_t>(ranks)) { o.replica_rounds.clear(); }
    if (make.coin()) {
        o.kept = {.scalar_bytes = make.coin() ? 2 : 4, .gradient_bytes = 4, .state_bytes = 16, .sharded = true};
    }
    for (int r = 0; r != ranks && o.optimizer_us > 5; ++r) { o.device_optimizer_us.push_back(make.between(0, 20)); }
}

/// A queue of events in the order of time: ranks that go on, messages that leave and arrive. At every instant all ranks
/// run first; then one message is given its links if they are free, the one that both sides posted first; and so on.
class event_oracle {
public:
    event_oracle(const pulse::plan& planned, const pulse::step_model& model, const programs& all,
                 const pulse::simulation_options& options) :
        planned_(planned),
        model_(model), all_(all), options_(options), ranks_(all.size()) {}

    /// When each compute instruction of each rank ends, and the end of the step.
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
        double reduced{};            // when the one before these has arrived, or they were posted
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
    std::map<std::size_t, std::vector<pulse::message_id>> order_{}; // of each pair, as sent
    std::map<std::size_t, double> pair_free_{};
    std::map<int, double> link_free_{};
    double now_{};

    /// Whether all messages before instruction i of rank r that concern what it touches are over by now.
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
                exchange(r, bytes * wider, options_.kept.sharded ? 1 : 2, now_);
            } else if (std::holds_alternative<pulse::op::optimizer_step>(what)) {
                takes = options_.device_optimizer_us.empty() ? options_.optimizer_us : options_.device_optimizer_us[r];
                step_us = std::max(step_us, now_ + takes);
                std::int64_t bytes = 0;
                for (int l = 0; l != model_.layer_count() && options_.kept.sharded; ++l) {
                    const bool own = model_.device_of_stage(model_.stage_of_layer(l)) == static_cast<int>(r);
                    bytes += own ? model_.layer(l).parameter_bytes : 0;
                }
                exchange(r, bytes, 1, now_ + takes);
            }
            rank.busy_until = now_ + takes;
            if (pulse::is_compute(what)) { ends[r][rank.at] = rank.busy_until; }
            ++rank.at;
            events_.insert({rank.busy_until, r});
        }
    }
    void exchange(std::size_t r, std::int64_t bytes, int ways, double from) {
        const int d = planned_.data_degree;
        state& rank = ranks_[r];
        if (bytes == 0 || d == 1) { return; }
        if (rank.pieces.empty()) { rank.reduced = std::max(rank.reduced, from); }
        for (int way = 0; way != ways; ++way) {
            for (int j = 1; j != d; ++j) {
                pulse::replica_round round{options_.between_replicas};
                if (!options_.replica_rounds.empty()) {
                    round = options_.replica_rounds[r][static_cast<std::size_t>(j - 1)];
                }
                const double us = round.line.transfer_us((bytes + d - 1) / d * round.messages);
                rank.pieces.push_back({us, round.line.latency_us, round.shared});
            }
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
            // The first of the pair that has not started.
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
            events_.insert({m.left, no_rank}); // links are given anew
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

TEST_CASE("a shared link carries one message at a time, and links add up to what ranks send") {
    random_plans make{62};
    for (int i = 0; i != 200; ++i) {
        planned_model c = make();
        for (auto& l : c.costs.layers) { l.parameter_bytes = make.between(0, 50) * 8; }
        const pulse::step_model model{c.planned, c.costs};
        const auto options = contended(make, c.planned.pipeline_degree);
        const auto ranks = static_cast<std::size_t>(c.planned.pipeline_degree);
        const pulse::simulation made = pulse::simulate(c.planned, model, pulse::lower(c.planned, model), options);
        std::vector<std::vector<std::pair<double, double>>> taken(made.shared_links.size());
        std::vector<std::int64_t> carried(made.shared_links.size());
        pulse::link_traffic all{};
        for (const auto& t : made.transfers) {
            const auto pair = static_cast<std::size_t>(t.from) * ranks + static_cast<std::size_t>(t.to);
            const auto route = options.routes[pair];
            for (const int shared : std::set<int>{route.first, route.second}) {
                if (shared < 0) { continue; }
                taken[static_cast<std::size_t>(shared)].emplace_back(t.start_us, t.left_us);
                carried[static_cast<std::size_t>(shared)] += t.boundary_bytes + t.skip_bytes;
            }
            const bool backward = pulse::step_model::is_backward(t.message);
            (backward ? all.boundary_backward_bytes : all.boundary_forward_bytes) += t.boundary_bytes;
            (backward ? all.skip_backward_bytes : all.skip_forward_bytes) += t.skip_bytes;
        }
        // What rings add, as if they were alone.
        std::vector<double> ring_us(taken.size());
        std::vector<std::int64_t> ring_bytes(taken.size());
        for (std::size_t r = 0; r != ranks && !options.replica_routes.empty(); ++r) {
            for (const int shared : std::set<int>{options.replica_routes[r].first, options.replica_routes[r].second}) {
                if (shared < 0) { continue; }
                const double wire_us =
                    static_cast<double>(made.gradient_bytes[r]) / 1e3 / options.between_replicas.bandwidth_gb_per_s;
                ring_us[static_cast<std::size_t>(shared)] += wire_us;
                ring_bytes[static_cast<std::size_t>(shared)] += made.gradient_bytes[r];
            }
        }
        for (std::size_t k = 0; k != taken.size(); ++k) {
            std::sort(taken[k].begin(), taken[k].end());
            double busy = 0;
            for (std::size_t n = 0; n != taken[k].size(); ++n) {
                if (n > 0) { CHECK(taken[k][n].first >= taken[k][n - 1].second); }
                busy += taken[k][n].second - taken[k][n].first;
            }
            CHECK(made.shared_links[k].occupied_us == Approx(busy + ring_us[k]));
            CHECK(made.shared_links[k].occupied_us <= made.step_us * (1 + 1e-9));
            CHECK(made.shared_links[k].gradient_bytes == ring_bytes[k]);
            CHECK(made.shared_links[k].total_bytes() == carried[k] + ring_bytes[k]);
        }
        pulse::link_traffic sum{};
        for (const auto& p : made.pairs) {
            sum.boundary_forward_bytes += p.boundary_forward_bytes;
            sum.boundary_backward_bytes += p.boundary_backward_bytes;
            sum.skip_forward_bytes += p.skip_forward_bytes;
            sum.skip_backward_bytes += p.skip_backward_bytes;
        }
        CHECK(sum == all);
        // What goes forwards comes back as gradients, but for conditioning that needs none.
        std::int64_t frozen = 0;
        for (const auto& t : made.transfers) {
            frozen += t.message.kind == pulse::message_kind::boundary ? c.costs.frozen_conditioning_bytes : 0;
        }
        CHECK(sum.boundary_forward_bytes == sum.boundary_backward_bytes + frozen);
        CHECK(sum.skip_forward_bytes == sum.skip_backward_bytes);
        CHECK(sum.total_bytes() == made.boundary_bytes + made.skip_bytes);
    }
}

TEST_CASE("no simulated step is shorter than the bound of its problem") {
    random_plans make{63};
    double closest = std::numeric_limits<double>::infinity();
    for (int i = 0; i != 300; ++i) {
        planned_model c = make();
        c.planned.data_degree = make.between(1, 4);
        const pulse::step_model model{c.planned, c.costs};
        auto options = contended(make, c.planned.pipeline_degree);
        draw_replicas(make, options, c.planned.pipeline_degree, c.planned.data_degree);
        if (make.coin()) { options.routes.clear(); }
        options.optimizer_us = 0;
        options.device_optimizer_us.clear();
        pulse::problem_options ask{};
        ask.microbatches = c.planned.microbatches;
        ask.split_backward = c.planned.split_backward;
        ask.routing = c.planned.routing;
        ask.recompute = c.planned.recompute;
        ask.links = options.links;
        ask.device_speed = options.device_speed;
        const pulse::simulation made = pulse::simulate(c.planned, model, pulse::lower(c.planned, model), options);
        auto problem = pulse::make_problem(c.costs, c.planned.cut, ask);
        if (c.planned.recompute != pulse::recomputation::none) {
            // A recompute does not wait for what the pass after it waits for, as the problem has it; its time remains.
            ask.recompute = pulse::recomputation::none;
            problem = pulse::make_problem(c.costs, c.planned.cut, ask);
        }
        const double bound = pulse::lower_bound_us(problem);
        CAPTURE(i);
        CHECK(made.step_us >= bound * (1 - 1e-12));
        closest = std::min(closest, made.step_us / bound);
    }
    MESSAGE("closest to its bound: " << closest);
    CHECK(closest < 1.01);
}

TEST_CASE("memory over time peaks where check and the layout say, and is given back") {
    random_plans make{64};
    bool skips_wait = false;
    for (int i = 0; i != 300; ++i) {
        planned_model c = make();
        for (auto& l : c.costs.layers) { l.parameter_bytes = make.between(0, 50) * 8; }
        const pulse::step_model model{c.planned, c.costs};
        const programs all = pulse::lower(c.planned, model);
        const auto options = contended(make, c.planned.pipeline_degree);
        const pulse::simulation made = pulse::simulate(c.planned, model, all, options);
        const auto checked = pulse::check(c.planned, model, all).live_peak_bytes;
        std::int64_t sent = 0;
        std::int64_t parameters = 0;
        for (std::size_t r = 0; r != all.size(); ++r) {
            const pulse::memory_timeline& m = made.memory[r];
            const pulse::memory_layout layout = pulse::lay_out(model, all[r]);
            CHECK(m.live_peak_bytes() == checked[r]);
            CHECK(m.live_peak_bytes() == layout.live_peak_bytes);
            CHECK(m.workspace_bytes == layout.workspace_bytes);
            CHECK(m.peak_bytes() == m.weight_bytes * 5 + m.replica_bytes + layout.workspace_bytes + checked[r]);
            CHECK((m.replica_bytes > 0) == (c.planned.data_degree > 1));
            double before = 0;
            for (const auto& s : m.samples) {
                CHECK(s.time_us >= before);
                CHECK(s.activation_bytes >= 0);
                CHECK(s.skip_bytes >= 0);
                before = s.time_us;
                skips_wait = skips_wait || s.skip_bytes > 0;
                if (c.costs.skips.empty()) { CHECK(s.skip_bytes == 0); }
            }
            CHECK(before <= made.step_us);
            CHECK(m.samples.back().activation_bytes + m.samples.back().skip_bytes == 0);
            parameters += m.weight_bytes;
            sent += made.gradient_bytes[r];
        }
        std::int64_t expected = 0;
        for (const auto& l : c.costs.layers) { expected += l.parameter_bytes; }
        CHECK(parameters == expected);
        // Every replica sends 2 (D - 1) / D of its gradients, each message rounded up.
        CHECK(sent >= 2 * expected * (c.planned.data_degree - 1) / c.planned.data_degree);
        if (c.planned.data_degree == 1) { CHECK(sent == 0); }
    }
    CHECK(skips_wait);
}

TEST_CASE("a reduction costs what its rounds cost: nothing for one replica, the formula on links of its own, more on "
          "others'") {
    random_plans make{66};
    int alone = 0;
    int reduced = 0;
    int delayed_messages = 0;
    int delayed_reductions = 0;
    for (int i = 0; i != 200; ++i) {
        planned_model c = make();
        c.planned.data_degree = make.between(1, 4);
        for (auto& l : c.costs.layers) { l.parameter_bytes = make.between(1, 50) * 8; }
        const pulse::step_model model{c.planned, c.costs};
        const programs all = pulse::lower(c.planned, model);
        const auto ranks = static_cast<std::size_t>(c.planned.pipeline_degree);
        const int d = c.planned.data_degree;
        auto apart = contended(make, c.planned.pipeline_degree);
        apart.replica_routes.clear();
        apart.optimizer_us = 0;
        draw_replicas(make, apart, c.planned.pipeline_degree, d);
        apart.device_optimizer_us.clear();
        const pulse::simulation made = pulse::simulate(c.planned, model, all, apart);
        CAPTURE(i);
        if (d == 1) {
            pulse::simulation_options plain = apart;
            plain.replica_rounds.clear();
            plain.between_replicas = {};
            plain.kept = {.scalar_bytes = apart.kept.scalar_bytes};
            const pulse::simulation before = pulse::simulate(c.planned, model, all, plain);
            CHECK(made.step_us == before.step_us);
            CHECK(made.ranks == before.ranks);
            CHECK(made.replica_bytes == 0);
            ++alone;
            continue;
        }
        // Passes as without replicas; then one reduction after the other, each when its stage is over.
        double last = 0;
        for (std::size_t r = 0; r != ranks; ++r) {
            double free = 0;
            double own_end = 0;
            std::int64_t weights = 0;
            for (const auto& p : made.ranks[r]) {
                own_end = std::max(own_end, p.end_us);
                const auto next = static_cast<std::size_t>(p.instruction) + 1;
                for (std::size_t k = next; k != all[r].instructions.size(); ++k) {
                    if (pulse::is_compute(all[r].instructions[k])) { break; }
                    const auto* sum = std::get_if<pulse::op::all_reduce>(&all[r].instructions[k]);
                    if (sum == nullptr) { continue; }
                    std::int64_t bytes = 0;
                    for (int l = 0; l != model.layer_count(); ++l) {
                        bytes +=
                            model.stage_of_layer(l) == pulse::index_of(sum->stage) ? model.layer(l).parameter_bytes : 0;
                    }
                    weights += bytes;
                    bytes *= apart.kept.scalar_bytes == 2 ? 2 : 1;
                    free = std::max(free, p.end_us);
                    for (int j = 1; j != d; ++j) {
                        const auto round = apart.replica_rounds.empty()
                                               ? pulse::replica_round{apart.between_replicas}
                                               : apart.replica_rounds[r][static_cast<std::size_t>(j - 1)];
                        const double once = round.line.transfer_us(round.messages * ((bytes + d - 1) / d));
                        free += apart.kept.sharded ? once : 2 * once;
                    }
                }
            }
            double end = std::max(own_end, free);
            for (int j = 1; j != d && apart.kept.sharded; ++j) {
                const auto round = apart.replica_rounds.empty()
                                       ? pulse::replica_round{apart.between_replicas}
                                       : apart.replica_rounds[r][static_cast<std::size_t>(j - 1)];
                end += round.line.transfer_us(round.messages * ((weights + d - 1) / d));
            }
            last = std::max(last, end);
        }
        CHECK(made.step_us == Approx(last));
        ++reduced;
        // On the links of the pipeline's messages both wait for each other.
        auto shared = apart;
        shared.replica_routes.assign(ranks, {0, -1});
        shared.routes.assign(ranks * ranks, {0, -1});
        for (auto& of_rank : shared.replica_rounds) {
            for (auto& round : of_rank) { round.shared = true; }
        }
        auto without = shared;
        without.replica_routes.clear();
        const pulse::simulation both = pulse::simulate(c.planned, model, all, shared);
        const pulse::simulation alone_on_it = pulse::simulate(c.planned, model, all, without);
        CHECK(both.replica_bytes == made.replica_bytes);
        CHECK(both.boundary_bytes == made.boundary_bytes);
        double arrived[2] = {0, 0};
        for (const auto& t : both.transfers) { arrived[0] += t.arrived_us; }
        for (const auto& t : alone_on_it.transfers) { arrived[1] += t.arrived_us; }
        delayed_messages += arrived[0] > arrived[1] + 1e-6 ? 1 : 0;
        delayed_reductions += both.step_us > alone_on_it.step_us + 1e-6 ? 1 : 0;
    }
    MESSAGE("alone " << alone << ", reduced " << reduced << ", messages delayed in " << delayed_messages
                     << ", steps in " << delayed_reductions);
    CHECK(alone > 20);
    CHECK(reduced > 50);
    CHECK(delayed_messages > 20);
    CHECK(delayed_reductions > 20);
}

TEST_CASE("a grid on a cluster: the messages of replicas take the links that lie between them") {
    const pulse::link inside{1, 100};
    const pulse::link outside{5, 10};
    const auto world = [&](int nodes, int devices, pulse::rank_layout layout, int p, int d,
                           pulse::replica_exchange how = pulse::replica_exchange::direct) {
        return pulse::simulated_on({.name = "c",
                                    .nodes = nodes,
                                    .devices_per_node = devices,
                                    .memory_bytes = 0,
                                    .intra_node = inside,
                                    .inter_node = outside},
                                   pulse::rank_grid{layout, p, d}, how);
    };
    // In one node nothing is shared.
    const auto near = world(1, 8, pulse::rank_layout::pipeline_inside, 2, 4);
    for (const auto& of_rank : near.replica_rounds) {
        CHECK(of_rank == std::vector<pulse::replica_round>(3, {inside, 1, false}));
    }
    CHECK(near.replica_routes == std::vector<pulse::link_route>(2));
    // One replica: no rounds, and links and routes of the pipeline alone.
    const auto one = world(2, 2, pulse::rank_layout::pipeline_inside, 4, 1);
    const auto alone = pulse::simulated_on({.name = "c",
                                            .nodes = 2,
                                            .devices_per_node = 2,
                                            .memory_bytes = 0,
                                            .intra_node = inside,
                                            .inter_node = outside},
                                           {0, 1, 2, 3});
    for (std::size_t pair = 0; pair != 16; ++pair) {
        if (pair % 5 != 0) { CHECK(one.links[pair] == alone.links[pair]); }
    }
    CHECK(one.routes == alone.routes);
    CHECK(one.replica_routes == std::vector<pulse::link_route>(4));
    // What all ranks really send: by nodes, counted message by message.
    for (const auto layout : {pulse::rank_layout::pipeline_inside, pulse::rank_layout::replicas_inside}) {
        for (const auto how : {pulse::replica_exchange::direct, pulse::replica_exchange::ring}) {
            for (const int d : {1, 2, 4, 8, 16}) {
                const int p = 16 / d;
                const pulse::rank_grid grid{layout, p, d};
                const auto made = world(4, 4, layout, p, d, how);
                for (int device = 0; device != p; ++device) {
                    const auto& rounds = made.replica_rounds[static_cast<std::size_t>(device)];
                    REQUIRE(rounds.size() == static_cast<std::size_t>(d - 1));
                    int counted = 0;
                    for (const auto& round : rounds) { counted += round.shared ? round.messages : 0; }
                    int leaves = 0; // the node of replica 0
                    const int home = grid.rank_of(device, 0) / 4;
                    for (int from = 0; from != d; ++from) {
                        for (int to = 0; to != d; ++to) {
                            const bool sends = how == pulse::replica_exchange::direct || to == (from + 1) % d;
                            const int times = how == pulse::replica_exchange::direct ? 1 : d - 1;
                            if (!sends || grid.rank_of(device, from) / 4 != home ||
                                grid.rank_of(device, to) / 4 == home) {
                                continue;
                            }
                            leaves += times;
                        }
                    }
                    CAPTURE(d);
                    CHECK(counted == leaves);
                    CHECK(made.replica_routes[static_cast<std::size_t>(device)] ==
                          (leaves > 0 ? pulse::link_route{2 * home, 2 * home + 1} : pulse::link_route{}));
                }
            }
        }
    }
    // Several messages of a round queue for the link of their node.
    const auto two = world(2, 4, pulse::rank_layout::pipeline_inside, 1, 8);
    CHECK(two.replica_rounds[0][3] == pulse::replica_round{outside, 4, true});
    CHECK(two.replica_rounds[0][0] == pulse::replica_round{outside, 1, true});
    CHECK_THROWS_AS((void)world(2, 2, pulse::rank_layout::pipeline_inside, 2, 4), pulse::input_error);
    CHECK_THROWS_AS((void)world(2, 2, pulse::rank_layout::pipeline_inside, 0, 4), pulse::input_error);
}

TEST_CASE("the links of a cluster: own ones in a node, one each way between nodes") {
    const pulse::cluster two{
        .name = "two", .nodes = 2, .devices_per_node = 2, .intra_node = {1, 100}, .inter_node = {5, 10}};
    const auto o = pulse::simulated_on(two, {0, 1, 2, 3});
    for (std::size_t from = 0; from != 4; ++from) {
        for (std::size_t to = 0; to != 4; ++to) {
            const bool inside = from / 2 == to / 2;
            CHECK(o.links[from * 4 + to] == (inside ? two.intra_node : two.inter_node));
            const int out = static_cast<int>(from / 2 * 2);
            const int in = static_cast<int>(to / 2 * 2) + 1;
            CHECK(o.routes[from * 4 + to] == (inside ? pulse::link_route{} : pulse::link_route{out, in}));
        }
    }
    CHECK_THROWS_AS((void)pulse::simulated_on(two, {0, 4}), pulse::input_error);
    CHECK_THROWS_AS((void)pulse::simulated_on(two, {-1}), pulse::input_error);
}

TEST_CASE("options that do not fit the ranks are refused") {
    random_plans make{65};
    const planned_model c = make();
    const pulse::step_model model{c.planned, c.costs};
    const programs all = pulse::lower(c.planned, model);
    const auto refuses = [&](const auto& change, const char* words) {
        pulse::simulation_options o{};
        change(o);
        CHECK_THROWS_WITH_AS((void)pulse::simulate(c.planned, model, all, o), doctest::Contains(words),
                             pulse::input_error);
    };
    refuses([](auto& o) { o.links.resize(99); }, "links");
    refuses([](auto& o) { o.routes.resize(99); }, "routes");
    refuses([&](auto& o) { o.routes.assign(all.size() * all.size(), {-2, 0}); }, "routes");
    refuses([](auto& o) { o.replica_routes.resize(99); }, "replica_routes");
    refuses([&](auto& o) { o.replica_routes.assign(all.size(), {0, -2}); }, "replica_routes");
    refuses([](auto& o) { o.device_speed.resize(99, 1.0); }, "device_speed");
    refuses([&](auto& o) { o.device_speed.assign(all.size(), 0.0); }, "device_speed");
    refuses([](auto& o) { o.device_optimizer_us.resize(99); }, "device_optimizer_us");
    refuses([](auto& o) { o.replica_rounds.resize(99); }, "replica_rounds");
    refuses([&](auto& o) { o.replica_rounds.assign(all.size(), std::vector<pulse::replica_round>(9)); },
            "replica_rounds");
    refuses([](auto& o) { o.kept.state_bytes = -1; }, "state_bytes");
    refuses([](auto& o) { o.kept.scalar_bytes = 0; }, "scalar_bytes");
    refuses([](auto& o) { o.kept.gradient_bytes = 0; }, "gradient_bytes");
    refuses([](auto& o) { o.kept.conditioning_parameters = -1; }, "conditioning_parameters");
}
