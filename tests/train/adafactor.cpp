#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/plan/optimizer_form.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/runtime/parameters.hpp>
#include <pulse/train/adafactor.hpp>
#include <pulse/train/host_updates.hpp>
#include <pulse/train/measure_updates.hpp>
#include <pulse/train/rank_optimizer.hpp>

namespace {

using namespace pulse;
using namespace pulse::train;

constexpr optimizer_form adafactor_form{.moments = moment_form::factored};

/// Algorithms 4 and 5 of the paper on a matrix, or a vector as one row; independent of adafactor.hpp.
struct paper_adafactor {
    std::size_t n, m;
    bool matrix;
    std::vector<double> x;
    std::vector<double> rows = std::vector<double>(n), columns = std::vector<double>(m);
    std::vector<double> v = std::vector<double>(n * m);
    int t = 0;

    void step(const std::vector<double>& g, double rate, double weight_decay) {
        const double beta = 1 - std::pow(++t, -0.8);
        std::vector<double> u(n * m);
        for (std::size_t i = 0; i != n && matrix; ++i) {
            double sum = 0;
            for (std::size_t j = 0; j != m; ++j) { sum += g[i * m + j] * g[i * m + j] + 1e-30; }
            rows[i] = beta * rows[i] + (1 - beta) * sum / static_cast<double>(m);
        }
        for (std::size_t j = 0; j != m && matrix; ++j) {
            double sum = 0;
            for (std::size_t i = 0; i != n; ++i) { sum += g[i * m + j] * g[i * m + j] + 1e-30; }
            columns[j] = beta * columns[j] + (1 - beta) * sum / static_cast<double>(n);
        }
        double mean = 0;
        for (const double r : rows) { mean += r / static_cast<double>(n); }
        double squares = 0;
        for (std::size_t k = 0; k != n * m; ++k) {
            v[k] = matrix ? rows[k / m] * columns[k % m] / mean : beta * v[k] + (1 - beta) * (g[k] * g[k] + 1e-30);
            u[k] = g[k] / std::sqrt(v[k]);
            squares += u[k] * u[k];
        }
        const double rms = std::sqrt(squares / static_cast<double>(n * m));
        for (std::size_t k = 0; k != n * m; ++k) {
            x[k] -= rate * u[k] / std::max(1.0, rms) + rate * weight_decay * x[k];
        }
    }
};

optimizer_update update_at(std::int64_t step, double rate, double weight_decay, double scale = 1) {
    return {.constants = {.learning_rate = rate, .weight_decay = weight_decay}, .step = step, .gradient_scale = scale};
}

/// Runs `act` and returns the message of its input_error.
template <class Act>
std::string refusal(Act act) {
    try {
        act();
    } catch (const input_error& e) { return e.what(); }
    return "nothing was thrown";
}

} // namespace

TEST_CASE("Adafactor takes the paper's step, for tensors of one to four dimensions") {
    std::mt19937 random{7};
    const auto in = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    std::normal_distribution<double> normal;
    for (int shape = 0; shape != 100; ++shape) {
        parameter tensor{.rank = 1 + shape % 4};
        for (int d = 0; d != tensor.rank; ++d) { tensor.dims[static_cast<std::size_t>(d)] = in(1, d < 2 ? 17 : 3); }
        CAPTURE(tensor.rank);
        CAPTURE(tensor.dims[0]);
        CAPTURE(tensor.dims[1]);
        const auto size = static_cast<std::size_t>(tensor.elements());
        const auto rows = static_cast<std::size_t>(tensor.matrix_rows());
        REQUIRE(rows == (tensor.rank == 1 ? 0 : static_cast<std::size_t>(tensor.dims[0])));
        std::vector<float> second(factored_elements(size, rows));
        REQUIRE(second.size() == (rows == 0 ? size : rows + size / rows));
        std::vector<float> w(size);
        for (float& x : w) { x = static_cast<float>(normal(random)); }
        const std::size_t n = std::max<std::size_t>(rows, 1);
        paper_adafactor paper{n, size / n, rows != 0, {w.begin(), w.end()}};
        const double scale = shape % 3 == 0 ? 0.5 : 1;
        for (int step = 1; step != 21; ++step) {
            std::vector<float> g(size);
            std::vector<double> exact;
            for (float& x : g) {
                x = static_cast<float>(normal(random) * std::pow(10.0, in(-6, 0)));
                exact.push_back(scale * static_cast<double>(x));
            }
            adafactor_step(adafactor_factors_of(update_at(step, 0.01, 0.1, scale)), w, g, second, rows);
            paper.step(exact, 0.01, 0.1);
            for (std::size_t k = 0; k != second.size(); ++k) {
                const double mean = rows == 0 ? paper.v[k] : k < rows ? paper.rows[k] : paper.columns[k - rows];
                REQUIRE(std::abs(static_cast<double>(second[k]) - mean) <= 1e-5 * mean);
            }
            for (std::size_t i = 0; i != size; ++i) {
                // a step rounds the weight and the update, whose size is at most the root of the tensor's
                REQUIRE(std::abs(static_cast<double>(w[i]) - paper.x[i]) <=
                        step * (0x1p-23 * std::abs(paper.x[i]) + 0x1p-20 * 0.01 * std::sqrt(static_cast<double>(size)) +
                                1e-9));
            }
        }
    }
}

TEST_CASE("of matrices and vectors Adafactor is transformers', without scaled parameters and relative steps") {
    // transformers 4.38.2 and 5.24.0: five steps of Adafactor(lr=0.01, scale_parameter=False, relative_step=False,
    // warmup_init=False, beta1=None, weight_decay=0.1).
    const auto check = [](std::size_t rows, const std::vector<double>& want) {
        std::vector<float> w(want.size());
        std::vector<float> g(want.size());
        for (std::size_t i = 0; i != w.size(); ++i) {
            w[i] = static_cast<float>(0.1 * static_cast<double>(i + 1) * (i % 2 == 0 ? 1 : -1));
        }
        std::vector<float> second(factored_elements(w.size(), rows));
        for (int step = 1; step != 6; ++step) {
            for (std::size_t i = 0; i != g.size(); ++i) {
                g[i] = static_cast<float>(std::sin(1 + 0.7 * static_cast<double>(i) + 0.3 * step) *
                                          std::pow(10.0, static_cast<double>(i % 5) - 3));
            }
            adafactor_step(adafactor_factors_of(update_at(step, 0.01, 0.1)), w, g, second, rows);
        }
        for (std::size_t i = 0; i != w.size(); ++i) {
            CHECK(static_cast<double>(w[i]) == doctest::Approx(want[i]).epsilon(1e-6));
        }
    };
    check(3, {0.0994900092, -0.199061662, 0.328825951, -0.26441738, 0.504072905, -0.597005665, 0.696751535,
              -0.796490371, 0.894882977, -1.00073087, 1.09443307, -1.19399762});
    check(0, {0.054254286, -0.228000224, 0.317975402, -0.338608235, 0.54727143});
}

TEST_CASE("gradients of 0 leave weights that decay, wherever they stand in a matrix") {
    for (const std::size_t rows : {std::size_t{0}, std::size_t{3}}) {
        std::vector<float> w(12, 1.0F);
        std::vector<float> second(factored_elements(w.size(), rows));
        for (int step = 1; step != 6; ++step) {
            const std::vector<float> g(12);
            adafactor_step(adafactor_factors_of(update_at(step, 0.5, 0.5)), w, g, second, rows);
            for (const float x : w) { CHECK(x == static_cast<float>(std::pow(0.75, step))); }
        }
        std::vector<float> g(12);
        g[5] = 1e18F;
        adafactor_step(adafactor_factors_of(update_at(1000, 0.5, 0.5)), w, g, second, rows);
        for (std::size_t i = 0; i != 12; ++i) {
            CHECK(std::isfinite(w[i]));
            CHECK((w[i] == static_cast<float>(std::pow(0.75, 6))) == (i != 5));
        }
    }
}

TEST_CASE("means of rows and columns stand for second moments that have them") {
    std::mt19937 random{3};
    std::uniform_real_distribution<float> uniform{0.1F, 2.0F};
    constexpr std::size_t rows = 5;
    constexpr std::size_t columns = 7;
    std::array<float, rows * columns> v{};
    for (std::size_t i = 0; i != v.size(); ++i) { v[i] = uniform(random); }
    std::array<float, rows + columns> means{};
    factor_moments(v, rows, means, 1);
    double all = 0;
    for (const float x : v) { all += static_cast<double>(x); }
    double of_rows = 0;
    for (std::size_t i = 0; i != rows; ++i) { of_rows += static_cast<double>(means[i]) * columns; }
    CHECK(of_rows == doctest::Approx(all));
    double last = 0;
    for (std::size_t i = 0; i != rows; ++i) { last += static_cast<double>(v[i * columns + 6]) / rows; }
    CHECK(static_cast<double>(means.back()) == doctest::Approx(last));
    std::array<float, rows * columns> product{};
    expand_moments(means, rows, product, 1);
    CHECK(static_cast<double>(product[9]) ==
          doctest::Approx(static_cast<double>(means[1] * means[rows + 2]) / (all / (rows * columns))));
    std::array<float, rows + columns> again{};
    factor_moments(product, rows, again, 1);
    for (std::size_t i = 0; i != means.size(); ++i) { CHECK(again[i] == doctest::Approx(means[i]).epsilon(1e-6)); }
    // AdamW's moments, which are biased low by a quarter.
    factor_moments(v, rows, again, 0.75);
    for (std::size_t i = 0; i != means.size(); ++i) { CHECK(again[i] == doctest::Approx(means[i] / 0.75F)); }
    std::array<float, rows * columns> short_by_quarter{};
    expand_moments(means, rows, short_by_quarter, 0.75);
    for (std::size_t i = 0; i != product.size(); ++i) {
        CHECK(short_by_quarter[i] == doctest::Approx(0.75F * product[i]));
    }
    // No moments yet; then vectors.
    expand_moments(std::vector<float>(rows + columns), rows, product, 1);
    for (const float x : product) { CHECK(x == 0); }
    std::array<float, rows * columns> copied{};
    factor_moments(v, 0, copied, 1);
    CHECK(copied == v);
    expand_moments(copied, 0, product, 1);
    CHECK(product == v);
}

TEST_CASE("factored moments are of tensors that are known and whole") {
    const std::array<int, 2> layers{0, 1};
    const std::array<std::int64_t, 2> sizes{6, 4};
    const std::array<parameter, 3> listed{parameter{"a.weight", {2, 3}, 2}, parameter{"b.u", {3, 0}, 2, true},
                                          parameter{"b.weight", {4}, 1}};
    rank_parameters<float> known{layers, sizes, {}, listed};
    rank_optimizer optimizer{2, 1, known, {.form = adafactor_form}};
    REQUIRE(optimizer.pieces().size() == 2);
    CHECK(optimizer.pieces()[0].rows == 2);
    CHECK(optimizer.pieces()[1].range == element_range{6, 4});
    CHECK(optimizer.pieces()[1].number == std::uint64_t{2} << 40U);
    CHECK(optimizer.second_moment().size() == 2 + 3 + 4);
    CHECK(optimizer.first_moment().empty());
    CHECK(optimizer.bytes() == (2 + 3 + 4 + 10) * 4);
    rank_parameters<float> unknown{layers, sizes};
    CHECK(refusal([&] {
              rank_optimizer{2, 1, unknown, {.form = adafactor_form}};
          }) == "rank_optimizer: number of elements in tensors must be 10, not 0");
    CHECK(refusal([&] {
              rank_optimizer{2, 1, known, {.replicas = {.sharded = true}, .form = adafactor_form}};
          }) == "rank_optimizer: adafactor keeps state for whole tensors, which replicas cannot share");
    parameter_memory kept = adamw_memory(4, adafactor_form);
    kept.sharded = true;
    CHECK(refusal([&] { check_parameter_memory(kept); }) ==
          "parameter_memory: sharded: adafactor keeps state for whole tensors, which replicas cannot share");
}

TEST_CASE("the rate of Adafactor's updates is measured, whatever the number of parameters") {
    for (const std::int64_t parameters : {std::int64_t{1}, std::int64_t{1000}, std::int64_t{5000}}) {
        CHECK(measured_update_rate(host_updates<>{}, adamw_memory(4, adafactor_form), parameters) > 0);
    }
}
