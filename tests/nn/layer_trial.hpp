#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/model/layer.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::test {

/// A buffer with a margin behind it that no pass may touch.
class guarded {
public:
    explicit guarded(std::int64_t count = 0, double value = std::numeric_limits<double>::quiet_NaN()) :
        count_{static_cast<std::size_t>(count)}, data_(count_ + margin, value) {
        std::fill(data_.end() - margin, data_.end(), mark);
    }
    [[nodiscard]] double* data() { return data_.data(); }
    [[nodiscard]] std::size_t size() const { return count_; }
    [[nodiscard]] double& operator[](std::size_t i) { return data_[i]; }
    [[nodiscard]] double operator[](std::size_t i) const { return data_[i]; }
    [[nodiscard]] bool intact() const {
        return std::all_of(data_.end() - margin, data_.end(), [](double v) { return v == mark; });
    }
    [[nodiscard]] bool written() const {
        return std::none_of(data_.begin(), data_.end() - margin, [](double v) { return std::isnan(v); });
    }
    void draw(std::mt19937_64& random, double centre = 0.0) {
        std::uniform_real_distribution<double> spread{-1.0, 1.0};
        for (std::size_t i = 0; i != count_; ++i) { data_[i] = centre + spread(random); }
    }
    /// Bit for bit, so that what nobody wrote equals itself.
    [[nodiscard]] bool operator==(const guarded& other) const {
        return data_.size() == other.data_.size() &&
               std::memcmp(data_.data(), other.data_.data(), data_.size() * sizeof(double)) == 0;
    }

private:
    static constexpr std::ptrdiff_t margin = 8;
    static constexpr double mark = 12345.0;

    std::size_t count_;
    std::vector<double> data_;
};

/// f'(0) by Richardson's extrapolation of central differences; its error is h^4 / 30 of the fifth derivative, plus
/// rounding of about eps |f| / h.
template <class F>
[[nodiscard]] double slope(F f, double h) {
    return (8.0 * (f(h) - f(-h)) - (f(2.0 * h) - f(-2.0 * h))) / (12.0 * h);
}

/// One layer on the reference backend in double, with every buffer that it may touch.
///
/// The loss is the sum of the output's elements with random weights, so its gradient at the output is those weights.
template <class L>
struct layer_trial {
    static constexpr std::int64_t skip_elements = [] {
        if constexpr (concatenates<L>) {
            return L::skip_input::elements;
        } else {
            return std::int64_t{0};
        }
    }();
    static constexpr std::int64_t conditioning_elements = [] {
        if constexpr (reads_conditioning<L>) {
            return L::conditioning::elements;
        } else {
            return std::int64_t{0};
        }
    }();
    static constexpr std::int64_t context_elements = [] {
        if constexpr (reads_context<L>) {
            return L::context::elements;
        } else {
            return std::int64_t{0};
        }
    }();
    static constexpr std::int64_t fact_elements = [] {
        if constexpr (reads_facts<L>) {
            return L::fact_elements;
        } else {
            return std::int64_t{0};
        }
    }();
    static constexpr double before = 0.5; ///< what stands in sums that the passes add to

    into gradients{into::add}; ///< what passes do with those of parameters
    double step = 1e-3;        ///< of the finite differences; norms of few numbers bend much and need less
    int batch;
    guarded input, skip, conditioning, context, parameters, output_gradient, timesteps, facts;
    guarded output, saved, statistics, input_gradient, skip_gradient, conditioning_gradient, context_gradient, deferred,
        parameter_gradients;
    reference::backend<double> backend{};

    layer_trial(int batch_size, std::uint64_t seed) :
        batch{batch_size}, input{batch * L::input::elements}, skip{batch * skip_elements},
        conditioning{batch * conditioning_elements}, context{batch * context_elements},
        parameters{parameter_elements<L>()},
        output_gradient{batch * L::output::elements}, timesteps{batch}, facts{batch * fact_elements} {
        std::mt19937_64 random{seed};
        for (guarded* g : {&input, &skip, &conditioning, &context, &parameters, &output_gradient}) { g->draw(random); }
        timesteps.draw(random, 10.0);
        // Facts of a layer are classes, of which there are at least two.
        for (std::size_t i = 0; i != facts.size(); ++i) { facts[i] = static_cast<double>(random() % 2); }
        std::size_t at = 0;
        for (const parameter& p : L::parameters()) {
            const auto count = static_cast<std::size_t>(p.elements());
            const bool norm_weight = p.rank == 1 && p.name.view().ends_with("weight");
            const double fan_in = static_cast<double>(p.elements()) / p.dims[0];
            const double scale = p.rank > 1 ? 1.0 / std::sqrt(fan_in) : 1.0;
            const double centre = norm_weight ? 1.5 : 0.0;
            for (std::size_t n = 0; n != count; ++n, ++at) { parameters[at] = centre + scale * parameters[at]; }
        }
        clear();
    }

    void clear() {
        output = guarded{batch * L::output::elements};
        saved = guarded{batch * L::saved_elements};
        statistics = guarded{batch * statistics_elements<L>()};
        input_gradient = guarded{batch * L::input::elements};
        skip_gradient = guarded{batch * skip_elements};
        deferred = guarded{batch * L::deferred_elements};
        conditioning_gradient = guarded{batch * conditioning_elements, before};
        context_gradient = guarded{batch * context_elements, before};
        parameter_gradients = guarded{parameter_elements<L>(), before};
    }

    [[nodiscard]] layer_frame<double> frame(guarded& workspace, bool to_input = true, bool to_context = true) {
        layer_frame<double> f;
        f.batch = batch;
        f.input = input.data();
        f.skip = skip.data();
        f.conditioning = conditioning.data();
        f.context = context.data();
        f.parameters = parameters.data();
        f.output = output.data();
        f.saved = saved.data();
        f.statistics = statistics.data();
        f.output_gradient = output_gradient.data();
        f.input_gradient = to_input ? input_gradient.data() : nullptr;
        f.skip_gradient = skip_gradient.data();
        f.conditioning_gradient = conditioning_gradient.data();
        f.context_gradient = to_context ? context_gradient.data() : nullptr;
        f.deferred = deferred.data();
        f.parameter_gradients = parameter_gradients.data();
        f.gradients = gradients;
        f.workspace = workspace.data();
        f.timesteps = timesteps.data();
        f.facts = facts.data();
        return f;
    }

    /// The workspace is poisoned before each pass, so that none may rely on what another left there.
    void forward() {
        guarded workspace{batch * L::workspace_elements};
        L::forward(backend, frame(workspace));
        CHECK(workspace.intact());
    }
    void backward_input(bool to_input = true, bool to_context = true) {
        guarded workspace{batch * L::workspace_elements};
        // No pass reads the output: a rank may give it away as soon as it is sent.
        output = guarded{batch * L::output::elements};
        L::backward_input(backend, frame(workspace, to_input, to_context));
        CHECK(workspace.intact());
    }
    void backward_weight() {
        guarded workspace{batch * L::workspace_elements};
        guarded unread_input_gradient = input_gradient;
        L::backward_weight(backend, frame(workspace));
        CHECK(workspace.intact());
        CHECK(unread_input_gradient == input_gradient);
    }

    /// The gradients of three microbatches, of which the first finds `start` there.
    [[nodiscard]] guarded summed_gradients(into first, double start) {
        const guarded drawn = output_gradient;
        guarded sums{parameter_elements<L>(), start};
        for (int m = 0; m != 3; ++m) {
            for (std::size_t i = 0; i != output_gradient.size(); ++i) { output_gradient[i] *= -0.7; }
            clear();
            parameter_gradients = sums;
            forward();
            gradients = m == 0 ? first : into::add;
            backward_input();
            backward_weight();
            sums = parameter_gradients;
        }
        gradients = into::add;
        output_gradient = drawn;
        return sums;
    }

    [[nodiscard]] double loss() {
        forward();
        double sum = 0.0;
        for (std::size_t i = 0; i != output.size(); ++i) { sum += output[i] * output_gradient[i]; }
        return sum;
    }

    /// Every element of `gradient` (less `start`) equals the slope of the loss along that element of `variable`.
    void check_gradient(const std::string& what, guarded& variable, const guarded& gradient, double start) {
        double worst = 0.0;
        double greatest = 0.0;
        for (std::size_t i = 0; i != variable.size(); ++i) {
            const double value = variable[i];
            const double expected = slope(
                [&](double h) {
                    variable[i] = value + h;
                    return loss();
                },
                step);
            variable[i] = value;
            const double difference = std::abs(gradient[i] - start - expected);
            greatest = std::max(greatest, std::abs(expected));
            worst = difference <= worst ? worst : difference; // a difference that is not a number is the worst
        }
        INFO(what, ": worst difference ", worst, ", greatest slope ", greatest);
        CHECK(worst <= 1e-8 * (1.0 + greatest));
    }

    void check() {
        forward();
        CHECK(output.written());
        CHECK(saved.written());
        CHECK(statistics.written());
        const guarded kept = saved;
        const guarded kept_statistics = statistics;
        backward_input();
        const guarded after_input = parameter_gradients;
        backward_weight();
        CHECK(kept == saved);
        CHECK(kept_statistics == statistics);
        const guarded dx = input_gradient;
        const guarded dskip = skip_gradient;
        const guarded dc = conditioning_gradient;
        const guarded dtext = context_gradient;
        const guarded dw = parameter_gradients;
        const guarded left = deferred;
        for (const guarded* g : {&dx, &dskip, &dc, &dtext, &dw, &left}) {
            CHECK(g->written());
            CHECK(g->intact());
        }
        CHECK(output.intact());
        CHECK(saved.intact());
        CHECK(statistics.intact());

        // Without a wish for the gradients of input and context everything else is the same, bit for bit.
        clear();
        const guarded untouched = context_gradient;
        forward();
        backward_input(false, false);
        CHECK(context_gradient == untouched);
        CHECK(skip_gradient == dskip);
        CHECK(conditioning_gradient == dc);
        CHECK(deferred == left);
        CHECK(parameter_gradients == after_input);
        backward_weight();
        CHECK(parameter_gradients == dw);

        // Written over whatever was there, they are what they are when added to 0.
        static_assert(writes_gradients<L>);
        CHECK(summed_gradients(into::write, std::numeric_limits<double>::quiet_NaN()) ==
              summed_gradients(into::add, 0.0));

        check_gradient("input", input, dx, 0.0);
        check_gradient("skip", skip, dskip, 0.0);
        check_gradient("conditioning", conditioning, dc, before);
        check_gradient("context", context, dtext, before);
        check_gradient("parameters", parameters, dw, before);
    }
};

} // namespace pulse::test
