#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/runtime/picture_backend.hpp>
#include <pulse/runtime/text_backend.hpp>

// What tests of operations need on every backend: random values, bounds, and a trial that runs an operation on a
// backend and on the plain loops in double. The headers beside this one hold the laws.

namespace pulse::test {

using doubles = std::vector<double>;

inline constexpr double float_epsilon = 1.0 / (1 << 23);

/// Half the distance from 1 to the next value of T: the largest relative error of rounding to it.
template <class T>
inline constexpr double rounding_error = 1.0 / (1 << 24);

/// Half the distance between the smallest nonzero values of T.
template <class T>
inline constexpr double least_step = 1e-30;

/// The values rounded to T, in double: what an oracle must start from.
template <class T>
[[nodiscard]] doubles rounded(doubles values) {
    if constexpr (!std::is_same_v<T, double>) {
        for (double& v : values) { v = static_cast<double>(static_cast<float>(static_cast<T>(static_cast<float>(v)))); }
    }
    return values;
}

/// Seeded random values, rounded to T.
class source {
public:
    explicit source(unsigned seed) : engine_{seed} {}

    template <class T>
    [[nodiscard]] doubles normal(std::int64_t n, double scale = 1.0, double shift = 0.0) {
        std::normal_distribution<double> draw{shift, scale};
        doubles values(static_cast<std::size_t>(n));
        for (double& v : values) { v = draw(engine_); }
        return rounded<T>(std::move(values));
    }
    [[nodiscard]] int between(int low, int high) { return std::uniform_int_distribution<int>{low, high}(engine_); }

private:
    std::mt19937 engine_;
};

[[nodiscard]] inline doubles magnitudes(doubles values) {
    for (double& v : values) { v = std::abs(v); }
    return values;
}

[[nodiscard]] inline double greatest(const doubles& values, double least = 1.0) {
    double found = least;
    for (const double v : values) { found = std::max(found, std::abs(v)); }
    return found;
}

/// Error bound of a sum of `terms` float products in any order before it is rounded, relative to the sum of their
/// magnitudes.
[[nodiscard]] inline double sum_error(double terms) { return (6.9 + 2.0 * std::sqrt(terms)) * 0.5 * float_epsilon; }

/// Error bound of an operation before its result is rounded: `relative` times `scale`, which is one number, one per
/// element, or empty for the greatest wanted magnitude.
struct error_bound {
    double relative{};
    doubles scale{};
};

/// Greatest |got - wanted| / bound over all elements, where the bound is the error of rounding to T plus `allowed`.
/// Above 1 is a failure; NaN counts as infinity.
template <class T>
[[nodiscard]] double worst(const doubles& got, const doubles& wanted, const error_bound& allowed) {
    const double one_scale = allowed.scale.empty() ? greatest(wanted, 1e-3) : allowed.scale.front();
    if (got.size() != wanted.size()) { return std::numeric_limits<double>::infinity(); }
    double found = 0.0;
    for (std::size_t i = 0; i != got.size(); ++i) {
        const double scale = allowed.scale.size() > 1 ? allowed.scale[i] : one_scale;
        const double bound = 1.01 * rounding_error<T> * std::abs(wanted[i]) + allowed.relative * scale + least_step<T>;
        const double ratio = std::abs(got[i] - wanted[i]) / bound;
        if (std::isnan(ratio)) { return std::numeric_limits<double>::infinity(); }
        found = std::max(found, ratio);
    }
    return found;
}
template <class T>
[[nodiscard]] double worst(const doubles& got, const doubles& wanted, double relative) {
    return worst<T>(got, wanted, error_bound{relative});
}
template <class T>
[[nodiscard]] double worst(const doubles& got, const doubles& wanted, double relative, double scale) {
    return worst<T>(got, wanted, error_bound{relative, {scale}});
}

/// Greatest |got - wanted| / bound over all elements of a sum of products; the bound is `error` times each element's
/// `magnitude`, plus a few roundings to T of the greatest wanted value.
template <class T>
[[nodiscard]] double worst_sum(const doubles& got, const doubles& wanted, doubles magnitude, double error) {
    const double steps = 1.99 * rounding_error<T> * greatest(wanted, 0.0);
    for (double& m : magnitude) { m = error * m + steps; }
    return worst<T>(got, wanted, error_bound{1.0, std::move(magnitude)});
}

/// The tensors of one call; null where one is absent.
template <class T, class A>
struct operands {
    std::vector<const T*> x{};
    std::vector<const A*> a{}; ///< in the accumulator's type, whatever T is
    std::vector<T*> y{};
    std::vector<A*> sums{}; ///< likewise
};

/// One result of an operation.
struct outcome {
    doubles before; ///< NaN if the operation must overwrite it, empty if it is not requested
    error_bound error{};
    bool sums{};     ///< in the accumulator's type
    bool exact{};    ///< compared bit for bit
    int same_as{-1}; ///< index of an earlier outcome with the same bits
};

/// A backend, or a stand-in for one, with its oracle and a source of numbers. `Side` has
///   scalar, accumulator, tensor<Value>  a tensor that may start anywhere, between margins that must stay untouched
///   on, oracle                          the operations under test, and the plain loops in double
///   read(t), intact(t)                  the contents of a tensor; whether its margins are untouched
///   approximates                        functions are a device's, with errors relative to the greatest value
///   tensor_float                        factors may be rounded to TF32
template <class Side>
class operation_trial {
public:
    using T = typename Side::scalar;
    using A = typename Side::accumulator;
    template <class Value>
    using tensor = typename Side::template tensor<Value>;

    template <class... Of>
    explicit operation_trial(unsigned seed, Of&&... of) : side{std::forward<Of>(of)...}, draw{seed} {}

    Side side;
    source draw;
    int offset{}; ///< elements between an aligned address and the start of tensors

    [[nodiscard]] doubles normal(std::int64_t n, double scale = 1.0, double shift = 0.0) {
        return draw.normal<T>(n, scale, shift);
    }
    [[nodiscard]] tensor<T> drawn(std::int64_t n) { return tensor<T>(normal(n), n == 0 ? 0 : offset); }
    [[nodiscard]] static error_bound either(error_bound host, error_bound device) {
        return Side::approximates ? std::move(device) : std::move(host);
    }
    [[nodiscard]] static double sum_error(double terms) {
        return test::sum_error(terms + (Side::approximates ? 2.0 : 0.0)) +
               (Side::approximates ? 0.5 * float_epsilon : 0.0) + (Side::tensor_float ? 1.0 / 1024 : 0.0);
    }

    [[nodiscard]] static doubles poison(std::int64_t n) {
        return doubles(static_cast<std::size_t>(n), std::numeric_limits<double>::quiet_NaN());
    }
    [[nodiscard]] static outcome writes(std::int64_t n, error_bound error) { return {poison(n), std::move(error)}; }
    [[nodiscard]] static outcome writes(std::int64_t n, double relative) { return writes(n, error_bound{relative}); }
    /// The outcome of a copy that leaves some of the old values in place.
    [[nodiscard]] outcome moves_into(std::int64_t n) { return {normal(n), {}, false, true}; }
    [[nodiscard]] static outcome moves(std::int64_t n) { return {poison(n), {}, false, true}; }
    [[nodiscard]] outcome puts(into how, std::int64_t n, error_bound error) {
        return {how == into::add ? normal(n) : poison(n), std::move(error)};
    }
    [[nodiscard]] outcome puts(into how, std::int64_t n, double relative) {
        return puts(how, n, error_bound{relative});
    }
    [[nodiscard]] static outcome writes_sums(std::int64_t n, double relative) { return {poison(n), {relative}, true}; }
    [[nodiscard]] outcome adds_sums(std::int64_t n, error_bound error) {
        return {draw.normal<A>(n), std::move(error), true};
    }

    /// Calls op(backend, operands) on both sides and compares every outcome; returns the oracle's.
    template <class Op>
    std::vector<doubles> check(const std::vector<doubles>& x, const std::vector<doubles>& a,
                               const std::vector<outcome>& outcomes, const Op& op) {
        std::vector<doubles> wanted;
        begin(x, a, outcomes, wanted);
        op(side.on, here_);
        op(side.oracle, there_);
        end(outcomes, wanted);
        return wanted;
    }

    /// The same for one outcome that sums products of `x`: op(backend, inputs, result) runs on the values and, for the
    /// bound, on their magnitudes; the bound is `error` times the latter result.
    template <class Out, class Op>
    void check_sums(const std::vector<doubles>& x, std::int64_t n, bool adds, double error, const Op& op) {
        std::vector<doubles> sizes;
        std::vector<const double*> large;
        for (const doubles& v : x) { sizes.push_back(magnitudes(v)); }
        for (const doubles& v : sizes) { large.push_back(v.empty() ? nullptr : v.data()); }
        outcome one{adds ? draw.normal<Out>(n) : poison(n), {1.0}, !std::is_same_v<Out, T>};
        one.error.scale = magnitudes(one.before);
        op(side.oracle, large, one.error.scale.data());
        std::vector<doubles> wanted;
        begin(x, {}, {one}, wanted);
        op(side.on, here_.x, [&] {
            if constexpr (std::is_same_v<Out, T>) {
                return here_.y.front();
            } else {
                return here_.sums.front();
            }
        }());
        op(side.oracle, there_.x, one.sums ? there_.sums.front() : there_.y.front());
        // a device rounds intermediate sums to the result's type
        const double steps = Side::approximates ? 1.99 * rounding_error<Out> * greatest(wanted[0], 0.0) : 0.0;
        for (double& s : one.error.scale) { s = error * s + steps; }
        end({one}, wanted);
    }

private:
    void begin(const std::vector<doubles>& x, const std::vector<doubles>& a, const std::vector<outcome>& outcomes,
               std::vector<doubles>& wanted) {
        if constexpr (requires { side.on.weights_changed(); }) { side.on.weights_changed(); } // tensors start anywhere
        x_.clear();
        a_.clear();
        y_.clear();
        sums_.clear();
        here_ = {};
        there_ = {};
        for (const doubles& v : x) {
            here_.x.push_back(x_.emplace_back(v, v.empty() ? 0 : offset).data());
            there_.x.push_back(v.empty() ? nullptr : v.data());
        }
        for (const doubles& v : a) {
            here_.a.push_back(a_.emplace_back(v).data());
            there_.a.push_back(v.empty() ? nullptr : v.data());
        }
        for (const outcome& o : outcomes) { wanted.push_back(o.before); }
        for (std::size_t i = 0; i != outcomes.size(); ++i) {
            double* const plain = wanted[i].empty() ? nullptr : wanted[i].data();
            const doubles& before = outcomes[i].before;
            if (outcomes[i].sums) {
                here_.sums.push_back(sums_.emplace_back(before).data());
                there_.sums.push_back(plain);
            } else {
                here_.y.push_back(y_.emplace_back(before, before.empty() ? 0 : offset).data());
                there_.y.push_back(plain);
            }
        }
    }
    void end(const std::vector<outcome>& outcomes, const std::vector<doubles>& wanted) {
        std::size_t sum = 0;
        std::size_t y = 0;
        std::vector<doubles> got;
        for (std::size_t i = 0; i != outcomes.size(); ++i) {
            CAPTURE(i);
            const outcome& of = outcomes[i];
            got.push_back(of.sums ? compare(sums_[sum++], wanted[i], of) : compare(y_[y++], wanted[i], of));
            if (of.same_as >= 0) { CHECK(got[i] == got[static_cast<std::size_t>(of.same_as)]); }
        }
    }
    template <class Value>
    doubles compare(const tensor<Value>& there, const doubles& wanted, const outcome& of) {
        doubles got = side.read(there);
        if (of.exact) {
            CHECK(got == wanted);
        } else {
            CHECK(worst<Value>(got, wanted, of.error) < 1.0);
        }
        CHECK(side.intact(there));
        return got;
    }

    std::vector<tensor<T>> x_{};
    std::vector<tensor<A>> a_{};
    std::vector<tensor<T>> y_{};
    std::vector<tensor<A>> sums_{};
    operands<T, A> here_{};
    operands<double, double> there_{};
};

} // namespace pulse::test
