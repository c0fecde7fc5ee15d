#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/cuda/attentions.cuh>
#include <pulse/cuda/backend.cuh>
#include <pulse/cuda/engine_choices.hpp>
#include <pulse/cuda/json.hpp>

#include <device_array.hpp>
#include <emulated/cudnn.hpp>
#include <emulated/cudnn_descriptors.hpp>
#include <emulated/runtime.hpp>

namespace cuda = pulse::cuda;
using pulse::attention_shape;
using pulse::test::device_queue;
namespace dnn = emulated_cuda::cudnn;

namespace timed_attention_tests {
namespace {

using pass = cuda::cudnn::attention_pass;
using cuda::attention_engine;

/// While one lives, the device does no work but takes the times set here, and what runs is counted.
class told_times {
public:
    told_times() { emulated_cuda::count_time_only(true); }
    told_times(const told_times&) = delete;
    told_times& operator=(const told_times&) = delete;
    ~told_times() {
        emulated_cuda::count_time_only(false);
        dnn::set_refused(0, false);
    }

    double kernel{};           ///< one of pulse's kernels
    double cudnn{};            ///< one of cuDNN's attentions
    std::int64_t kernels{};    ///< given to a stream
    std::int64_t attentions{}; ///< cuDNN's, given to a stream

private:
    std::function<void()> note(const emulated_cuda::work& what) {
        double taken = 0;
        if (what.kernel != nullptr) {
            ++kernels;
            taken = kernel;
        } else if (what.call == "attention") {
            ++attentions;
            taken = cudnn;
        }
        return [taken] { emulated_cuda::take_time(taken); };
    }
    emulated_cuda::counting device_{{.note = [this](const emulated_cuda::work& what) { return this->note(what); }}};
};

constexpr attention_shape cross{64, 2, 64, 77};
constexpr int samples = 2;

std::shared_ptr<cuda::engine_choices> within(double budget_s, cuda::engine_choice_groups known = {}) {
    return std::make_shared<cuda::engine_choices>(budget_s, std::move(known), "run/engines.json");
}
cuda::engine_options options_of(std::shared_ptr<cuda::engine_choices> shared, bool times, bool deterministic = false) {
    cuda::engine_options options;
    options.store = cuda::engine_store{};
    options.candidates = times ? 6 : 0;
    options.choices = std::move(shared);
    options.deterministic = deterministic;
    return options;
}
std::vector<cuda::engine_choice> all_of(const cuda::engine_choices& choices) {
    std::vector<cuda::engine_choice> all;
    for (const auto& [made_for, group] : choices.all()) {
        for (const auto& [what, one] : group) { all.push_back(one); }
    }
    return all;
}

/// Passes of one shape, on separate memory.
struct attention_runs {
    using T = __nv_bfloat16;

    explicit attention_runs(const cuda::engine_options& options, const attention_shape& of = cross) :
        shape{of}, by{{}, options} {}

    attention_shape shape;
    device_queue queue{};
    cuda::scratch_arena scratch{queue.stream()};
    cuda::attentions<cuda::bf16> by;

    [[nodiscard]] bool is_cudnn(pass which) {
        return by.engine_of(queue.stream(), which, shape, samples) == attention_engine::cudnn;
    }
    void run(pass which) {
        const auto rows = static_cast<std::size_t>(samples * shape.tokens);
        const auto width = static_cast<std::size_t>(shape.width());
        const auto keys = static_cast<std::size_t>(samples * shape.keys()) * width;
        const cuda::device_memory<T> q{rows * width};
        const cuda::device_memory<T> k{keys};
        const cuda::device_memory<float> lse{rows * static_cast<std::size_t>(shape.heads)};
        if (which == pass::forward) {
            by.forward(queue.on(), scratch, shape, samples, q.data(), k.data(), k.data(), q.data(), lse.data());
        } else {
            by.backward(queue.on(), scratch, shape, samples, q.data(), k.data(), k.data(), q.data(), lse.data(),
                        q.data(), q.data(), k.data(), k.data());
        }
        queue.synchronize();
    }
};

} // namespace

TEST_CASE("timed attention: of cuDNN's engine and pulse's kernels the quicker is taken, of equal ones the usual one") {
    for (const pass which : {pass::forward, pass::backward}) {
        const bool forward = which == pass::forward;
        for (const double cudnn : {1e-4, 10.0, 0.0}) {
            CAPTURE(forward);
            CAPTURE(cudnn);
            told_times device;
            device.kernel = cudnn == 0 ? 0 : 1e-3;
            device.cudnn = cudnn;
            const auto choices = within(1e6);
            attention_runs work{options_of(choices, true)};
            const bool wanted = cudnn == 0 ? forward : cudnn < 1;
            CHECK(work.is_cudnn(which) == wanted);
            CHECK(device.attentions == 4); // every candidate runs that often
            CHECK(device.kernels >= 4);
            device.attentions = device.kernels = 0;
            for (int i = 0; i != 3; ++i) { work.run(which); }
            CHECK(device.attentions == (wanted ? 3 : 0));
            CHECK((device.kernels > 0) == !wanted);

            REQUIRE(all_of(*choices).size() == 1);
            const cuda::engine_choice chosen = all_of(*choices).front();
            CHECK(chosen.name == std::string{"attention "} + (forward ? "forward" : "backward") +
                                     ", batch 2, 64 tokens to 77, 2 heads of 64");
            CHECK((chosen.engine == "pulse") == !wanted);
            CHECK(chosen.seconds > 0);
            CHECK(chosen.uses == 3); // trials do not count
            const double of_kernels = 1e6 * device.kernel * static_cast<double>(wanted ? 0 : device.kernels) / 3;
            CHECK(chosen.us == doctest::Approx(wanted ? 1e6 * cudnn : of_kernels));
            if (wanted == forward) {
                CHECK(chosen.first_us == chosen.us);
            } else {
                CHECK(chosen.first_us > chosen.us);
            }
        }
    }
}

TEST_CASE("timed attention: a backward pass that has to be deterministic is pulse's") {
    told_times device;
    device.kernel = 1;
    const auto choices = within(1e6);
    attention_runs work{options_of(choices, true, true)};
    CHECK(!work.is_cudnn(pass::backward));
    work.run(pass::backward);
    CHECK(device.attentions == 0);
    CHECK(all_of(*choices).empty());
    CHECK(work.is_cudnn(pass::forward));
    // a choice that must be deterministic is separate from one that need not be
    device.cudnn = 1e3;
    CHECK(attention_runs{options_of(choices, true, true)}.is_cudnn(pass::forward));
    CHECK(!attention_runs{options_of(choices, true, false)}.is_cudnn(pass::forward));
    CHECK(all_of(*choices).size() == 2);
}

TEST_CASE("timed attention: a stored choice is used without timing, and an unknown shape gets the usual engine") {
    told_times device;
    device.kernel = 1e-3;
    device.cudnn = 10;
    const auto slow = within(1e6);
    attention_runs first{options_of(slow, true)};
    CHECK(!first.is_cudnn(pass::forward));
    device.cudnn = 1e-4;
    CHECK(first.is_cudnn(pass::backward));
    const cuda::engine_choice_groups read = cuda::parse_engines(cuda::print_engines(slow->all()), "run/engines.json");
    CHECK(read.size() == 1);

    device.kernels = device.attentions = 0;
    for (const bool times : {false, true}) {
        CAPTURE(times);
        const std::int64_t planned = dnn::planned();
        const auto again = within(1e6, read);
        attention_runs work{options_of(again, times)};
        CHECK(!work.is_cudnn(pass::forward));
        CHECK(work.is_cudnn(pass::backward));
        CHECK(dnn::planned() == planned);
        CHECK(device.kernels == 0);
        CHECK(device.attentions == 0);
        CHECK(again->left_s() == 1e6);
        work.run(pass::forward);
        work.run(pass::backward);
        CHECK(device.attentions == 1);
        for (const cuda::engine_choice& one : all_of(*again)) { CHECK(one.uses == (times ? 1 : 0)); }
        device.kernels = device.attentions = 0;

        attention_shape other = cross;
        other.context_tokens = 78;
        attention_runs unmet{options_of(within(0, read), times), other};
        CHECK(unmet.is_cudnn(pass::forward));
        CHECK(!unmet.is_cudnn(pass::backward));
        CHECK(device.attentions == 0);
    }
}

TEST_CASE("timed attention: what cuDNN has no engine for, or refuses when it runs, is pulse's") {
    told_times device;
    device.kernel = 1e-3;
    const auto choices = within(1e6);
    const attention_shape wide{64, 2, 136, 77};
    CHECK(!attention_runs{options_of(choices, true), wide}.is_cudnn(pass::backward));
    CHECK(device.attentions == 0);
    REQUIRE(all_of(*choices).size() == 1);
    CHECK(all_of(*choices).front().engine == "pulse");
    CHECK(all_of(*choices).front().us == 0);
    dnn::set_refused(0, true);
    for (const pass which : {pass::forward, pass::backward}) {
        const auto none = within(1e6);
        CHECK(!attention_runs{options_of(none, true)}.is_cudnn(which));
        REQUIRE(all_of(*none).size() == 1);
        CHECK(all_of(*none).front().engine == "pulse");
    }
}

TEST_CASE("timed attention: without a budget the usual ones are kept, and nothing runs") {
    told_times device;
    const auto choices = within(0);
    attention_runs work{options_of(choices, true)};
    CHECK(work.is_cudnn(pass::forward));
    CHECK(!work.is_cudnn(pass::backward));
    CHECK(device.kernels + device.attentions == 0);
    REQUIRE(all_of(*choices).size() == 2);
    for (const cuda::engine_choice& one : all_of(*choices)) { CHECK(one.seconds == 0); }
}

TEST_CASE("engines whose results vary are taken where no determinism is wanted, and their choices are kept apart") {
    cuda::cudnn::descriptor engine{CUDNN_BACKEND_ENGINE_DESCRIPTOR};
    engine.set(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
    dnn::of(engine.get())->final = true;
    CHECK(cuda::cudnn::is_excluded(engine, {}));
    CHECK(!cuda::cudnn::is_excluded(engine, {true, true, false}));

    CHECK(cuda::engine_options{}.deterministic);
    cuda::process_deterministic() = false;
    CHECK(!cuda::engine_options{}.deterministic);
    cuda::process_deterministic() = true;

    const told_times device;
    for (const bool deterministic : {true, false}) {
        const auto choices = within(1e6);
        cuda::backend<cuda::bf16> on{options_of(choices, true, deterministic)};
        const cuda::device_memory<__nv_bfloat16> x{1024};
        const cuda::device_memory<float> gradient{1024};
        on.conv2d_backward_weight({8, 8, 4, 4, 3, 1, 1, 1}, 1, x.data(), x.data(), gradient.data(), nullptr);
        on.synchronize();
        for (const auto& [made_for, group] : choices->all()) {
            for (const auto& [what, one] : group) { CHECK((what.find("any order, ") == 0) == !deterministic); }
        }
        CHECK(all_of(*choices).size() == 1);
    }
}

} // namespace timed_attention_tests
