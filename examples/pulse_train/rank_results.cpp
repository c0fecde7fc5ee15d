#include "rank_results.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include <pulse/core/error.hpp>

namespace pulse_train {

namespace {

/// Serializes the fields of a value in order.
class writer {
public:
    template <class T>
        requires std::is_trivially_copyable_v<T>
    void operator()(const T& value) { add(&value, sizeof value); }
    void operator()(const std::string& text) {
        (*this)(text.size());
        add(text.data(), text.size());
    }
    void operator()(const pictures::timeline_event& e) { fields(*this, e); }
    void operator()(const validation_loss& v) { fields(*this, v); }
    template <class T>
    void operator()(const std::vector<T>& values) {
        (*this)(values.size());
        for (const T& value : values) { (*this)(value); }
    }
    void operator()(const drawing_weights& values) {
        (*this)(values.size());
        for (const auto& [key, value] : values) {
            (*this)(key);
            (*this)(value.size());
            add(value.data(), value.size() * sizeof(float));
        }
    }
    template <class Self, class Loss>
        requires std::is_same_v<std::remove_const_t<Loss>, validation_loss>
    static void fields(Self& self, Loss& v) {
        self(v.step);
        self(v.loss);
        self(v.at_time);
    }
    template <class Self, class Event>
        requires std::is_same_v<std::remove_const_t<Event>, pictures::timeline_event>
    static void fields(Self& self, Event& e) {
        self(e.rank);
        self(e.lane);
        self(e.name);
        self(e.kind);
        self(e.stage);
        self(e.microbatch);
        self(e.start_us);
        self(e.end_us);
        self(e.flow);
        self(e.bytes);
    }

    std::vector<std::byte> bytes;

private:
    void add(const void* data, std::size_t n) {
        const auto* const from = static_cast<const std::byte*>(data);
        bytes.insert(bytes.end(), from, from + n);
    }
};

/// Reads them back in the same order.
class reader {
public:
    explicit reader(std::span<const std::byte> bytes) : left_{bytes} {}

    template <class T>
        requires std::is_trivially_copyable_v<T>
    void operator()(T& value) { take(&value, sizeof value); }
    void operator()(std::string& text) {
        text.resize(count(1));
        take(text.data(), text.size());
    }
    void operator()(pictures::timeline_event& e) { writer::fields(*this, e); }
    void operator()(validation_loss& v) { writer::fields(*this, v); }
    template <class T>
    void operator()(std::vector<T>& values) {
        values.resize(count(1));
        for (T& value : values) { (*this)(value); }
    }
    void operator()(drawing_weights& values) {
        for (std::size_t n = count(1); n != 0; --n) {
            int key = 0;
            (*this)(key);
            std::vector<float>& value = values[key];
            value.resize(count(sizeof(float)));
            take(value.data(), value.size() * sizeof(float));
        }
    }
    [[nodiscard]] bool done() const noexcept { return left_.empty(); }

private:
    /// How many elements of at least `each` bytes follow.
    [[nodiscard]] std::size_t count(std::size_t each) {
        std::size_t n = 0;
        (*this)(n);
        if (n > left_.size() / each) { throw pulse::error{"the results of a rank are cut off"}; }
        return n;
    }
    void take(void* to, std::size_t n) {
        if (n > left_.size()) { throw pulse::error{"the results of a rank are cut off"}; }
        if (n != 0) { std::memcpy(to, left_.data(), n); }
        left_ = left_.subspan(n);
    }

    std::span<const std::byte> left_;
};

template <class Self, class Results>
void fields(Self& self, Results& r) {
    self(r.rank);
    self(r.events);
    self(r.busy_us);
    self(r.sent);
    self(r.planned_bytes);
    self(r.measured_bytes);
    self(r.averages);
    self(r.encode_seconds);
    self(r.captions_cut);
    self(r.steps_run);
    self(r.last_step);
    self(r.losses);
    self(r.step_seconds);
    self(r.validation);
}

} // namespace

std::vector<std::byte> to_bytes(const rank_results& results) {
    writer to;
    fields(to, results);
    return std::move(to.bytes);
}

rank_results rank_results_from(std::span<const std::byte> bytes) {
    rank_results results;
    reader from{bytes};
    fields(from, results);
    if (!from.done()) { throw pulse::error{"the results of a rank are longer than they should be"}; }
    return results;
}

run_results joined(std::vector<rank_results> of_ranks) {
    run_results all;
    for (rank_results& one : of_ranks) {
        all.events.insert(all.events.end(), one.events.begin(), one.events.end());
        all.busy_us += one.busy_us;
        all.boundary_bytes += one.sent.boundary;
        all.skip_bytes += one.sent.skip;
        all.gradient_bytes += one.sent.gradient;
        all.planned_bytes.push_back(one.planned_bytes);
        all.measured_bytes.push_back(one.measured_bytes);
        all.averages.resize(std::max(all.averages.size(), one.averages.size()));
        for (std::size_t b = 0; b != one.averages.size(); ++b) { all.averages[b].merge(one.averages[b]); }
        all.encode_seconds = std::max(all.encode_seconds, one.encode_seconds);
        all.captions_cut += one.captions_cut;
        if (one.rank == 0) {
            all.losses = std::move(one.losses);
            all.step_seconds = std::move(one.step_seconds);
            all.validation = std::move(one.validation);
            all.steps_run = one.steps_run;
            all.last_step = one.last_step;
        }
    }
    return all;
}

} // namespace pulse_train
