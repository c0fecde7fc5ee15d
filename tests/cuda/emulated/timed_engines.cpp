#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <support/stderr_text.hpp>

#include <pulse/cuda/engine_choices.hpp>
#include <pulse/cuda/json.hpp>

#include <backend_trial.hpp>
#include <emulated/cublas_lt.hpp>
#include <emulated/cudnn.hpp>
#include <emulated/runtime.hpp>

namespace cuda = pulse::cuda;
using pulse::conv2d_shape;
using pulse::into;
using pulse::linear_shape;
using namespace pulse::test;
namespace dnn = emulated_cuda::cudnn;
namespace lt = emulated_cuda::cublas_lt;

namespace timed_engine_tests {
namespace {

/// Times of engines and algorithms while it lives; nothing else takes time.
struct device_costs {
    /// In milliseconds, by number; the heuristics propose 0, 3, 1, 2 and 1, 0.
    device_costs(const std::vector<double>& engines, const std::vector<double>& algorithms) {
        emulated_cuda::count_time_only(true);
        set(engines, algorithms);
    }
    device_costs(const device_costs&) = delete;
    device_costs& operator=(const device_costs&) = delete;
    ~device_costs() {
        emulated_cuda::count_time_only(false);
        set({0, 0, 0, 0}, {0, 0});
        for (int i = 0; i != 4; ++i) {
            dnn::set_refused(i, false);
            dnn::set_compiled(i, false);
        }
        for (int i = 0; i != 2; ++i) { lt::set_refused(i, false); }
    }
    static void set(const std::vector<double>& engines, const std::vector<double>& algorithms) {
        for (int i = 0; i != 4; ++i) { dnn::set_cost(i, 1e-3 * engines[static_cast<std::size_t>(i)]); }
        for (int i = 0; i != 2; ++i) { lt::set_cost(i, 1e-3 * algorithms[static_cast<std::size_t>(i)]); }
    }
};

/// Uses the choices of `shared`, and adds to them if `times`.
cuda::engine_options options_of(std::shared_ptr<cuda::engine_choices> shared, bool times) {
    cuda::engine_options options;
    options.store = cuda::engine_store{};
    options.candidates = times ? 6 : 0;
    options.choices = std::move(shared);
    return options;
}
std::shared_ptr<cuda::engine_choices> within(double budget_s, cuda::engine_choice_groups known = {}) {
    return std::make_shared<cuda::engine_choices>(budget_s, std::move(known), "run/engines.json");
}
constexpr double plenty = 1e6;

/// How often each engine and each algorithm has run.
struct counts {
    std::vector<std::int64_t> engines{};
    std::vector<std::int64_t> algorithms{};

    [[nodiscard]] static counts now() {
        counts made;
        for (int i = 0; i != 4; ++i) { made.engines.push_back(dnn::executed(i)); }
        for (int i = 0; i != 2; ++i) { made.algorithms.push_back(lt::executed(i)); }
        return made;
    }
    [[nodiscard]] counts since(const counts& before) const {
        counts made = *this;
        for (std::size_t i = 0; i != 4; ++i) { made.engines[i] -= before.engines[i]; }
        for (std::size_t i = 0; i != 2; ++i) { made.algorithms[i] -= before.algorithms[i]; }
        return made;
    }
    [[nodiscard]] bool operator==(const counts&) const = default;
};
/// Three runs of a single engine, one of a single algorithm.
counts only(std::size_t engine, std::size_t algorithm) {
    counts made{{0, 0, 0, 0}, {0, 0}};
    made.engines[engine] = 3;
    made.algorithms[algorithm] = 1;
    return made;
}

constexpr conv2d_shape window{8, 8, 4, 4, 3, 1, 1, 1};
constexpr linear_shape matrix{16, 8};

/// A convolution in its three passes, then a linear layer.
struct layers {
    using T = __nv_bfloat16;

    explicit layers(const cuda::engine_options& options) : on{options} {}

    cuda::backend<cuda::bf16> on;
    source draw{1};
    tensor<T> x{draw.normal<T>(window.in_elements())};
    tensor<T> weight{draw.normal<T>(window.weight_elements())};
    tensor<T> y{window.out_elements()};
    tensor<float> gradient{doubles(static_cast<std::size_t>(window.weight_elements()))};
    tensor<T> rows{draw.normal<T>(8 * matrix.in_features)};
    tensor<T> other{draw.normal<T>(std::int64_t{matrix.in_features} * matrix.out_features)};
    tensor<T> z{8 * matrix.out_features};

    void convolve() {
        on.conv2d(window, 1, x.data(), weight.data(), nullptr, y.data(), into::write);
        on.conv2d_backward_input(window, 1, y.data(), weight.data(), x.data(), into::write);
        on.conv2d_backward_weight(window, 1, x.data(), y.data(), gradient.data(), nullptr);
    }
    void multiply() { on.linear(matrix, 8, rows.data(), other.data(), nullptr, z.data(), into::write); }
    void run() {
        convolve();
        multiply();
        on.synchronize();
    }
    [[nodiscard]] counts run_again() {
        const counts before = counts::now();
        run();
        return counts::now().since(before);
    }
};

/// The engines that run once all are chosen.
counts chosen_by(const cuda::engine_options& options) {
    layers work{options};
    work.run();
    return work.run_again();
}

std::vector<cuda::engine_choice> all_of(const cuda::engine_choices& choices) {
    std::vector<cuda::engine_choice> all;
    for (const auto& [made_for, group] : choices.all()) {
        for (const auto& [what, one] : group) { all.push_back(one); }
    }
    return all;
}

} // namespace

TEST_CASE("timed engines: the quickest is taken, of equal ones the first of the heuristics") {
    const device_costs some{{4, 1, 1, 2}, {1, 2}};
    const auto choices = within(plenty);
    CHECK(chosen_by(options_of(choices, true)) == only(1, 0));
    const std::vector<cuda::engine_choice> all = all_of(*choices);
    REQUIRE(all.size() == 4);
    for (const cuda::engine_choice& one : all) {
        CAPTURE(one.name);
        const bool product = one.name.find("product") == 0;
        CHECK(one.us == doctest::Approx(1000));
        CHECK(one.first_us == doctest::Approx(product ? 2000 : 4000));
        CHECK(one.seconds > 0);
        CHECK(one.uses == 2); // trials do not count
    }
    device_costs::set({1, 1, 1, 1}, {1, 1});
    CHECK(chosen_by(options_of(within(plenty), true)) == only(0, 1));
    device_costs::set({3, 2, 2, 1}, {2, 1});
    CHECK(chosen_by(options_of(within(plenty), true)) == only(3, 1));
}

TEST_CASE("timed engines: one that is refused when it runs is left out") {
    const device_costs some{{4, 1, 3, 2}, {1, 2}};
    dnn::set_refused(1, true);
    lt::set_refused(0, true);
    CHECK(chosen_by(options_of(within(plenty), true)) == only(3, 1));
    // also if it is the heuristics' first
    dnn::set_refused(1, false);
    dnn::set_refused(0, true);
    lt::set_refused(0, false);
    lt::set_refused(1, true);
    const auto choices = within(plenty);
    CHECK(chosen_by(options_of(choices, true)) == only(1, 0));
    for (const cuda::engine_choice& one : all_of(*choices)) {
        CHECK(one.first_us == doctest::Approx(one.name.find("product") == 0 ? 1000 : 2000));
    }
}

TEST_CASE("timed engines: the heuristics' first is among those that are tried, then those that need no compiler") {
    const device_costs some{{2, 3, 3, 1}, {1, 2}};
    dnn::set_compiled(0, true);
    dnn::set_compiled(3, true);
    cuda::engine_options options = options_of(within(plenty), true);
    options.candidates = 2;
    CHECK(chosen_by(options) == only(0, 0));
    device_costs::set({4, 3, 1, 2}, {1, 2});
    options.choices = within(plenty);
    CHECK(chosen_by(options) == only(1, 0));
}

TEST_CASE("timed engines: without a budget, and when it is spent, the heuristics' first are taken") {
    const device_costs some{{4, 1, 3, 2}, {1, 2}};
    const auto none = within(0);
    {
        layers work{options_of(none, true)};
        CHECK(work.run_again() == only(0, 1)); // nothing was tried
    }
    for (const cuda::engine_choice& one : all_of(*none)) {
        CHECK(one.seconds == 0);
        CHECK(one.uses == 1);
    }
    CHECK(none->report().empty());
    CHECK(chosen_by(options_of(nullptr, false)) == only(0, 1));

    // trying the first of two algorithms of the first shape alone exhausts the budget
    const auto little = within(1e-9);
    layers work{options_of(little, true)};
    counts before = counts::now();
    work.multiply();
    work.on.synchronize();
    CHECK(counts::now().since(before).algorithms == std::vector<std::int64_t>{0, 5}); // one run, timed four times
    CHECK(little->left_s() < 0);
    before = counts::now();
    work.convolve();
    work.on.synchronize();
    CHECK(counts::now().since(before).engines == std::vector<std::int64_t>{3, 0, 0, 0});
    int timed = 0;
    for (const cuda::engine_choice& one : all_of(*little)) { timed += one.seconds > 0 ? 1 : 0; }
    CHECK(timed == 1);
}

TEST_CASE("timed engines: ranks take what one of them has timed, and the heuristics' first for what it has not met") {
    const device_costs some{{4, 1, 3, 2}, {1, 2}};
    const auto choices = within(plenty);
    layers one{options_of(choices, true)};
    one.convolve();
    one.on.synchronize();
    const std::size_t met = all_of(*choices).size();
    // on ranks whose timings would differ, and whose product is new
    device_costs::set({1, 4, 4, 4}, {1, 2});
    layers first{options_of(choices, false)};
    layers second{options_of(within(0, choices->all()), false)};
    CHECK(first.run_again() == only(1, 1));
    CHECK(second.run_again() == only(1, 1));
    CHECK(all_of(*choices).size() == met);
    // a process's choices apply to options that name none
    cuda::process_engine_choices() = choices;
    const cuda::engine_options usual;
    cuda::process_engine_choices() = nullptr;
    CHECK(chosen_by(usual) == only(1, 1));
    CHECK(cuda::engine_options{}.choices == nullptr);
}

TEST_CASE("timed engines: choices read from a file are neither timed nor planned again") {
    const device_costs some{{4, 1, 3, 2}, {1, 2}};
    const auto choices = within(plenty);
    CHECK(chosen_by(options_of(choices, true)) == only(1, 0));
    const std::string text = cuda::print_engines(choices->all());
    cuda::engine_choice_groups read = cuda::parse_engines(text, "run/engines.json");
    CHECK(cuda::print_engines(read) == text);

    device_costs::set({1, 4, 4, 4}, {2, 1});
    for (const bool times : {false, true}) {
        const std::int64_t planned = dnn::planned();
        const std::int64_t asked = lt::heuristic_calls();
        const auto again = within(plenty, read);
        layers work{options_of(again, times)};
        CHECK(work.run_again() == only(1, 0));
        CHECK(dnn::planned() == planned);
        CHECK(lt::heuristic_calls() == asked);
        CHECK(again->left_s() == plenty);
        for (const cuda::engine_choice& one : all_of(*again)) { CHECK(one.uses == (times ? 3 : 2)); }
    }

    // from another version, or another device
    for (const std::string& changed : {std::string{"cuDNN 9"}, std::string{"multiprocessors"}}) {
        cuda::engine_choice_groups other;
        for (const auto& [made_for, group] : read) {
            std::string of = made_for;
            if (const std::size_t at = of.find(changed); at != std::string::npos) { of.insert(at + 6, "1"); }
            other[of] = group;
        }
        const stderr_text said;
        CHECK(chosen_by(options_of(within(0, other), false)) == only(0, changed == "cuDNN 9" ? 0 : 1));
        CHECK(said.count("\n") == 1);
        CHECK(said.count("pulse: ignoring engines from run/engines.json: they were chosen for cu") == 1);
        CHECK(said.count(", this is cu") == 1);
    }
    // a file without one library's engines causes no message about the other
    {
        cuda::engine_choice_groups products = read;
        products.erase(products.rbegin()->first);
        const stderr_text said;
        CHECK(chosen_by(options_of(within(0, products), false)) == only(0, 0));
        CHECK(said.count("\n") == 0);
    }
    // engines of several devices can share a file
    read["cuDNN 1, another device"] = read.begin()->second;
    const stderr_text said;
    CHECK(chosen_by(options_of(within(0, read), false)) == only(1, 0));
    CHECK(said.count("\n") == 0);
}

TEST_CASE("timed engines: a damaged file is an error that names it") {
    cuda::engine_choice_groups all;
    all["cuDNN 9, a device"]["a \"graph\""] = {"a name", "{}", 0.5, 20, 10, 3};
    all["cuDNN 9, a device"]["another"] = {"b", "engine", 0, 0, 0, 1};
    const std::string text = cuda::print_engines(all);
    CHECK(cuda::print_engines(cuda::parse_engines(text, "f")) == text);
    const auto refuses = [](const std::string& damaged, const char* what) {
        CAPTURE(damaged);
        CHECK_THROWS_WITH_AS(static_cast<void>(cuda::parse_engines(damaged, "run/engines.json")),
                             doctest::Contains(what), pulse::input_error);
    };
    for (std::size_t end = 0; end < text.find_last_of('}'); end += 3) {
        refuses(text.substr(0, end), "run/engines.json");
    }
    const auto changed = [&](const std::string& from, const std::string& to) {
        std::string made = text;
        return made.replace(made.find(from), from.size(), to);
    };
    refuses(changed("engines/1", "engines/2"), "run/engines.json: format must be pulse-engines/1");
    refuses(changed("0.5", "-1"), "run/engines.json: groups[0].engines[0].seconds must not be negative");
    refuses(changed("\"us\"", "\"as\""), "run/engines.json: groups[0].engines[0] has the field 'as'");
    refuses(changed("\"{}\"", "7"), "run/engines.json: groups[0].engines[0].engine must");
}

TEST_CASE("timed engines: a report counts what was timed and names the five that save most") {
    cuda::engine_choice_groups all;
    for (int i = 1; i != 8; ++i) {
        all["cuDNN"][std::to_string(i)] = {"shape " + std::to_string(i), "", 0.25, 100.0 + 10 * i, 100, 5};
    }
    all["cuBLASLt"]["first"] = {"shape 8", "", 0, 0, 0, 5};
    all["cuBLASLt"]["equal"] = {"shape 9", "", 0.25, 100, 100, 5};
    all["another library"]["unused"] = {"shape 10", "", 0.25, 1000, 100, 0};
    const std::string report = within(1, all)->report();
    // 5 x (10 + ... + 70) us
    CHECK(report == "8 of 9 shapes were timed in 2.00 s; their engines save 1.400 ms of a step's passes over the "
                    "heuristics' first\n"
                    "      0.350 ms: 100.0 us instead of 170.0, 5 times a step, shape 7\n"
                    "      0.300 ms: 100.0 us instead of 160.0, 5 times a step, shape 6\n"
                    "      0.250 ms: 100.0 us instead of 150.0, 5 times a step, shape 5\n"
                    "      0.200 ms: 100.0 us instead of 140.0, 5 times a step, shape 4\n"
                    "      0.150 ms: 100.0 us instead of 130.0, 5 times a step, shape 3\n");
    const auto weighed = within(plenty);
    weighed->count_each_as(2.5);
    const device_costs some{{4, 1, 3, 2}, {1, 2}};
    layers work{options_of(weighed, true)};
    work.run();
    for (const cuda::engine_choice& one : all_of(*weighed)) {
        CHECK(one.uses == 2.5);
        CHECK(one.saved_us() == doctest::Approx(2.5 * (one.first_us - one.us)));
    }
}

} // namespace timed_engine_tests
