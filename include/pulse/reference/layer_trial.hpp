#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/text_table.hpp>
#include <pulse/model/layer.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::reference {

namespace detail {

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
    /// Bitwise, so that values nobody wrote (NaN) equal themselves.
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

} // namespace detail

/// One layer on the reference backend in double, with every buffer that it may touch: `check` reports what its passes
/// do wrong.
///
/// The loss is the sum of the output's elements with random weights, so its gradient at the output is those weights.
///
/// Layers with frozen weights and layers that run forward only have no trial.
template <layer L>
    requires(!has_frozen_parameters<L> && !is_forward_only<L>() && runs_on<L, backend<double>>)
struct layer_trial {
    using guarded = detail::guarded;

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
    static constexpr double before = 0.5; ///< initial value of sums that the passes add to

    into gradients{into::add}; ///< whether passes write or add parameter gradients
    double step = 1e-3;        ///< of the finite differences; norms of few numbers are strongly curved and need less
    int batch;
    guarded input, skip, conditioning, context, parameters, output_gradient, timesteps, facts;
    guarded output, saved, statistics, input_gradient, skip_gradient, conditioning_gradient, context_gradient, deferred,
        parameter_gradients;
    backend<double> on{};
    std::vector<std::string> faults{}; ///< the faults found, one sentence each

    /// Throws input_error if batch_size is less than 1.
    explicit layer_trial(int batch_size = 2, std::uint64_t seed = 1) :
        batch{batch_size > 0
                  ? batch_size
                  : throw input_error{"layer_trial: batch_size must be at least 1, not " + std::to_string(batch_size)}},
        input{batch * L::input::elements}, skip{batch * skip_elements}, conditioning{batch * conditioning_elements},
        context{batch * context_elements}, parameters{parameter_elements<L>()},
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

    /// Reports each fault once, however many passes have it.
    void require(bool holds, std::string_view fault) {
        if (!holds && std::ranges::find(faults, fault) == faults.end()) { faults.emplace_back(fault); }
    }
    /// The workspace is poisoned before each pass, so that none may rely on what another left there.
    void forward() {
        guarded workspace{batch * L::workspace_elements};
        L::forward(on, frame(workspace));
        require(workspace.intact(), "forward writes past the end of its workspace");
    }
    void backward_input(bool to_input = true, bool to_context = true) {
        guarded workspace{batch * L::workspace_elements};
        // No pass reads the output: a rank may give it away as soon as it is sent.
        output = guarded{batch * L::output::elements};
        L::backward_input(on, frame(workspace, to_input, to_context));
        require(workspace.intact(), "backward_input writes past the end of its workspace");
    }
    void backward_weight() {
        guarded workspace{batch * L::workspace_elements};
        guarded unread_input_gradient = input_gradient;
        L::backward_weight(on, frame(workspace));
        require(workspace.intact(), "backward_weight writes past the end of its workspace");
        require(unread_input_gradient == input_gradient, "backward_weight changes the gradient of the input");
    }

    /// Gradients summed over three microbatches; `start` is in memory before the first.
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

    /// Requires each element of `gradient` (less `start`) to be the slope of the loss along that of `variable`.
    void check_gradient(const std::string& what, guarded& variable, const guarded& gradient, double start) {
        double worst = 0.0;
        double greatest = 0.0;
        for (std::size_t i = 0; i != variable.size(); ++i) {
            const double value = variable[i];
            const double expected = detail::slope(
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
        require(worst <= 1e-8 * (1.0 + greatest), "the gradient of " + what + " differs from finite differences by " +
                                                      exact_text(worst) + ", where the greatest slope is " +
                                                      exact_text(greatest));
    }

    /// Runs the passes as ranks do, compares all gradients with finite differences, and returns `faults`. It takes four
    /// forward passes for every element of a tensor, so keep sizes small.
    [[nodiscard]] std::vector<std::string> check() {
        // named, because nvcc parenthesises a pointer to member, about which g++ warns
        using member = guarded layer_trial::*;
        struct result {
            const char* name;
            member of;
        };
        constexpr std::array made{result{"the output", &layer_trial::output}, result{"saved", &layer_trial::saved},
                                  result{"statistics", &layer_trial::statistics}};
        constexpr std::array learnt{result{"the gradient of the input", &layer_trial::input_gradient},
                                    result{"the gradient of the skip", &layer_trial::skip_gradient},
                                    result{"the gradient of the conditioning", &layer_trial::conditioning_gradient},
                                    result{"the gradient of the context", &layer_trial::context_gradient},
                                    result{"the gradients of the parameters", &layer_trial::parameter_gradients},
                                    result{"deferred", &layer_trial::deferred}};
        forward();
        for (const result& r : made) {
            require((this->*r.of).written(), std::string{r.name} + " is not completely written");
        }
        const guarded kept = saved;
        const guarded kept_statistics = statistics;
        backward_input();
        const guarded after_input = parameter_gradients;
        backward_weight();
        require(kept == saved && kept_statistics == statistics, "a backward pass changes what forward saved");
        const guarded dx = input_gradient;
        const guarded dskip = skip_gradient;
        const guarded dc = conditioning_gradient;
        const guarded dtext = context_gradient;
        const guarded dw = parameter_gradients;
        const guarded left = deferred;
        for (const result& r : learnt) {
            require((this->*r.of).written(), std::string{r.name} + " is not completely written");
            require((this->*r.of).intact(), "a pass writes past the end of " + std::string{r.name});
        }
        for (const result& r : made) {
            require((this->*r.of).intact(), "a pass writes past the end of " + std::string{r.name});
        }

        // If the gradients of input and context are not requested, everything else is the same bit for bit.
        clear();
        const guarded untouched = context_gradient;
        forward();
        backward_input(false, false);
        require(context_gradient == untouched, "the gradient of the context is written although it was not requested");
        const bool same = skip_gradient == dskip && conditioning_gradient == dc && deferred == left &&
                          parameter_gradients == after_input;
        backward_weight();
        require(same && parameter_gradients == dw,
                "other gradients change if those of the input and the context are not requested");

        if constexpr (writes_gradients<L>) {
            require(summed_gradients(into::write, std::numeric_limits<double>::quiet_NaN()) ==
                        summed_gradients(into::add, 0.0),
                    "gradients written over old values differ from gradients added to 0");
        }

        check_gradient("the input", input, dx, 0.0);
        check_gradient("the skip", skip, dskip, 0.0);
        check_gradient("the conditioning", conditioning, dc, before);
        check_gradient("the context", context, dtext, before);
        check_gradient("the parameters", parameters, dw, before);
        return faults;
    }
};

} // namespace pulse::reference
