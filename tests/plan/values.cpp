#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

#include <plan/random_plan.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/plan/lower.hpp>

using pulse::buffer_id;
using pulse::buffer_kind;
using pulse_test::planned_model;
using pulse_test::random_plans;

namespace {

/// A tensor is one number modulo 2^64: sums are exact in any order, and a wrong or stale operand shows.
using value = std::uint64_t;

struct gradients {
    std::vector<value> layers{};
    value conditioning{};
    bool operator==(const gradients&) const = default;
};

/// A model over such numbers: layer l maps x, its skips and the conditioning to a_l x^2 + sum b_e skip_e + c_l cond.
struct toy_model {
    const pulse::cost_table& costs;

    static value mixed(value n) { return (n + 1) * 0x9e3779b97f4a7c15U ^ (n << 29); }
    static value a(int l) { return mixed(static_cast<value>(l)) | 1U; }
    static value b(int e) { return mixed(static_cast<value>(e) + 1000); }
    [[nodiscard]] value c(int l) const {
        return costs.conditioning_bytes > 0 ? mixed(static_cast<value>(l) + 2000) : 0;
    }
    static value input(int m) { return mixed(static_cast<value>(m) + 3000); }
    static value conditioning(int m) { return mixed(static_cast<value>(m) + 4000); }
    static value loss_gradient(int m, value y) { return mixed(static_cast<value>(m) + 5000) + 3 * y; }

    [[nodiscard]] int layers() const { return static_cast<int>(costs.layers.size()); }
    [[nodiscard]] std::vector<int> edges_at(int l, bool into) const {
        std::vector<int> all{};
        for (int e = 0; e != static_cast<int>(costs.skips.size()); ++e) {
            const auto& edge = costs.skips[static_cast<std::size_t>(e)];
            if ((into ? edge.to : edge.from) == l) { all.push_back(e); }
        }
        return all;
    }

    /// The expected gradients of a step, computed on one device without a pipeline.
    [[nodiscard]] gradients reference(int microbatches) const {
        gradients sum{std::vector<value>(costs.layers.size()), 0};
        for (int m = 0; m != microbatches; ++m) {
            std::vector<value> in(costs.layers.size() + 1);
            in[0] = input(m);
            for (int l = 0; l != layers(); ++l) {
                const auto at = static_cast<std::size_t>(l);
                in[at + 1] = a(l) * in[at] * in[at] + c(l) * conditioning(m);
                for (const int e : edges_at(l, true)) {
                    in[at + 1] +=
                        b(e) * in[static_cast<std::size_t>(costs.skips[static_cast<std::size_t>(e)].from) + 1];
                }
            }
            std::vector<value> gradient(costs.layers.size()); // of each layer's output
            gradient.back() = loss_gradient(m, in.back());
            for (int l = layers() - 1; l >= 0; --l) {
                const auto at = static_cast<std::size_t>(l);
                value read = in[at] + c(l) * conditioning(m);
                for (const int e : edges_at(l, true)) {
                    const auto from = static_cast<std::size_t>(costs.skips[static_cast<std::size_t>(e)].from);
                    gradient[from] += b(e) * gradient[at];
                    read += b(e) * in[from + 1];
                }
                sum.layers[at] += gradient[at] * read;
                if (costs.conditioning_gradient_bytes() > 0) { sum.conditioning += c(l) * gradient[at]; }
                if (l > 0) { gradient[at - 1] += 2 * a(l) * in[at] * gradient[at]; }
            }
        }
        return sum;
    }
};

/// A rank that holds only the buffers that its instructions list, and tracks what they really touch.
class toy_rank {
public:
    toy_rank(const toy_model& toy, const pulse::step_model& model, int device, gradients& sum) :
        toy_(toy), model_(model), device_(device), sum_(sum) {}

    /// One value per part.
    std::vector<value> outgoing(const pulse::instruction& send, const pulse::message_id& message) {
        begin(send);
        std::vector<value> parts{};
        for (const auto& part : model_.parts(message, device_)) { parts.push_back(get(part)[0]); }
        finish();
        return parts;
    }
    void incoming(const pulse::instruction& recv, const pulse::message_id& message, const std::vector<value>& parts) {
        begin(recv);
        const auto mine = model_.parts(message, device_);
        REQUIRE(mine.size() == parts.size());
        for (std::size_t i = 0; i != mine.size(); ++i) { put(mine[i])[0] = parts[i]; }
        finish();
    }
    void run(const pulse::instruction& what) {
        begin(what);
        if (const auto* f = std::get_if<pulse::op::forward>(&what)) {
            forward(pulse::index_of(f->stage), f->microbatch, false);
        } else if (const auto* r = std::get_if<pulse::op::recompute>(&what)) {
            forward(pulse::index_of(r->stage), r->microbatch, true);
        } else if (const auto* b = std::get_if<pulse::op::backward_input>(&what)) {
            backward_input(pulse::index_of(b->stage), b->microbatch);
            if (b->with_weight) { backward_weight(pulse::index_of(b->stage), b->microbatch); }
        } else if (const auto* w = std::get_if<pulse::op::backward_weight>(&what)) {
            backward_weight(pulse::index_of(w->stage), w->microbatch);
        } else if (const auto* k = std::get_if<pulse::op::stash>(&what)) {
            (void)get({buffer_kind::activation, model_.edge(pulse::index_of(k->edge)).from, k->microbatch});
        } else if (const auto* gone = std::get_if<pulse::op::release>(&what)) {
            buffers_.erase(gone->buffer);
        }
        finish();
    }

private:
    const toy_model& toy_;
    const pulse::step_model& model_;
    int device_;
    gradients& sum_;
    /// `saved` and `deferred` hold one value per layer of the model, other buffers a single one.
    std::map<buffer_id, std::map<int, value>> buffers_{};
    std::map<buffer_id, pulse::access> listed_{};
    std::set<buffer_id> touched_{};

    void begin(const pulse::instruction& what) {
        listed_.clear();
        touched_.clear();
        for (const auto& entry : model_.accesses(device_, what)) {
            REQUIRE(listed_.emplace(entry.buffer, entry.mode).second);
            if (entry.mode == pulse::access::write) { buffers_.erase(entry.buffer); }
        }
    }
    /// Every buffer listed as written must be touched; a weight pass need not read every output that it may read.
    void finish() {
        for (const auto& [buffer, mode] : listed_) {
            if (mode != pulse::access::read) { CHECK(touched_.contains(buffer)); }
        }
    }
    std::map<int, value>& get(const buffer_id& b) {
        REQUIRE(listed_.contains(b));
        REQUIRE(buffers_.contains(b));
        touched_.insert(b);
        return buffers_.at(b);
    }
    std::map<int, value>& put(const buffer_id& b) {
        REQUIRE(listed_.contains(b));
        REQUIRE(listed_.at(b) != pulse::access::read);
        touched_.insert(b);
        return buffers_[b];
    }
    value output(int l, pulse::microbatch_id m) {
        return model_.held_apart(l) ? get({buffer_kind::activation, l, m})[0]
                                    : get({buffer_kind::saved, model_.stage_of_layer(l), m}).at(l);
    }
    value input_of(int l, pulse::microbatch_id m) {
        return l == 0 ? toy_model::input(pulse::index_of(m)) : output(l - 1, m);
    }
    value skip_value(int e, pulse::microbatch_id m) {
        return model_.is_crossing(e) ? get({buffer_kind::skip, e, m})[0] : output(model_.edge(e).from, m);
    }
    value conditioning(int s, pulse::microbatch_id m) {
        return model_.has_conditioning() ? get({buffer_kind::conditioning, model_.conditioning_run(s), m})[0] : 0;
    }

    void forward(int s, pulse::microbatch_id m, bool again) {
        if (s == 0 && !again && model_.has_conditioning()) {
            put({buffer_kind::conditioning, 0, m})[0] = toy_model::conditioning(pulse::index_of(m));
        }
        put({buffer_kind::saved, s, m});
        for (int l = model_.first_layer(s); l <= model_.last_layer(s); ++l) {
            const value x = input_of(l, m);
            value y = toy_model::a(l) * x * x + toy_.c(l) * conditioning(s, m);
            for (const int e : toy_.edges_at(l, true)) { y += toy_model::b(e) * skip_value(e, m); }
            if (again && model_.drops_again(l)) { continue; }
            if (model_.held_apart(l)) {
                const auto alive = buffers_.find({buffer_kind::activation, l, m});
                if (alive != buffers_.end()) { CHECK(alive->second[0] == y); } // others may still read it
                put({buffer_kind::activation, l, m})[0] = y;
            } else {
                put({buffer_kind::saved, s, m})[l] = y;
            }
        }
    }
    void backward_input(int s, pulse::microbatch_id m) {
        const int last = model_.last_layer(s);
        const buffer_id own{buffer_kind::activation_gradient, last, m};
        const buffer_id shared{buffer_kind::conditioning_gradient, model_.conditioning_run(s), m};
        if (s + 1 == model_.stage_count()) {
            put(own)[0] = toy_model::loss_gradient(pulse::index_of(m), output(last, m));
            if (model_.has_conditioning_gradient()) { put(shared)[0] = 0; }
        }
        auto& deferred = put({buffer_kind::deferred, s, m});
        const auto gradient = [&](int l) -> value& { return l == last ? put(own)[0] : deferred[l]; };
        for (int l = last; l >= model_.first_layer(s); --l) {
            for (const int e : toy_.edges_at(l, false)) { gradient(l) += get({buffer_kind::skip_gradient, e, m})[0]; }
            const value g = gradient(l);
            for (const int e : toy_.edges_at(l, true)) {
                put({buffer_kind::skip_gradient, e, m})[0] = toy_model::b(e) * g;
            }
            if (model_.has_conditioning_gradient()) { put(shared)[0] += toy_.c(l) * g; }
            const value back = 2 * toy_model::a(l) * input_of(l, m) * g;
            if (l > model_.first_layer(s)) {
                gradient(l - 1) += back;
            } else if (s > 0) {
                put({buffer_kind::activation_gradient, l - 1, m})[0] = back;
            }
        }
    }
    void backward_weight(int s, pulse::microbatch_id m) {
        const int last = model_.last_layer(s);
        for (int l = model_.first_layer(s); l <= last; ++l) {
            value read = input_of(l, m) + toy_.c(l) * conditioning(s, m);
            for (const int e : toy_.edges_at(l, true)) { read += toy_model::b(e) * skip_value(e, m); }
            const value g = l == last ? get({buffer_kind::activation_gradient, last, m})[0]
                                      : get({buffer_kind::deferred, s, m}).at(l);
            sum_.layers[static_cast<std::size_t>(l)] += g * read;
        }
        if (s == 0 && model_.has_conditioning_gradient()) {
            sum_.conditioning += get({buffer_kind::conditioning_gradient, 0, m})[0];
        }
    }
};

/// Ranks take turns at random; messages wait in mailboxes.
gradients execute(random_plans& make, const toy_model& toy, const pulse::step_model& model,
                  const std::vector<pulse::program>& programs) {
    gradients sum{std::vector<value>(toy.costs.layers.size()), 0};
    std::vector<toy_rank> ranks{};
    for (const auto& p : programs) { ranks.emplace_back(toy, model, p.device, sum); }
    std::vector<std::size_t> at(programs.size());
    std::map<pulse::message_id, std::vector<value>> mail{};
    std::size_t left = programs.size();
    while (left != 0) {
        const auto r = static_cast<std::size_t>(make.between(0, static_cast<int>(programs.size()) - 1));
        for (int turns = make.between(1, 20); turns != 0 && at[r] != programs[r].instructions.size(); --turns) {
            const auto& what = programs[r].instructions[at[r]];
            if (const auto* s = std::get_if<pulse::op::send>(&what)) {
                mail[s->message] = ranks[r].outgoing(what, s->message);
            } else if (const auto* v = std::get_if<pulse::op::recv>(&what)) {
                const auto found = mail.find(v->message);
                if (found == mail.end()) { break; }
                ranks[r].incoming(what, v->message, found->second);
                mail.erase(found);
            } else {
                ranks[r].run(what);
            }
            left -= ++at[r] == programs[r].instructions.size() ? 1U : 0U;
        }
    }
    CHECK(mail.empty());
    return sum;
}

} // namespace

TEST_CASE("executing the programs gives the gradients of the model that is not pipelined") {
    random_plans placed{61};
    random_plans scattered{62, true};
    for (int i = 0; i != 600; ++i) {
        random_plans& make = i % 3 == 0 ? scattered : placed;
        const planned_model c = make();
        const pulse::step_model model{c.planned, c.costs};
        const auto programs = pulse::lower(c.planned, model);
        REQUIRE(pulse::check(c.planned, model, programs).ok());
        const toy_model toy{c.costs};
        CAPTURE(i);
        CHECK(execute(make, toy, model, programs) == toy.reference(c.planned.microbatches));
    }
}
