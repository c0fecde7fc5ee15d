#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/plan/optimizer_form.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/runtime/optimizer_rule.hpp>
#include <pulse/train/host_updates.hpp>
#include <pulse/train/optimizer_state.hpp>

namespace pulse::train {

/// Rate, in GB/s, at which `updates` measures gradients and steps `parameters` values. It is cost_table's
/// optimizer_gb_per_s: with it, optimizer_us equals the median time measured here.
///
/// `updates` comes from updates_of, or has the same members; it must not be used afterwards. Uses the memory of the
/// parameters and their state meanwhile.
template <class Updates>
[[nodiscard]] double measured_update_rate(Updates updates, const parameter_memory& kept, std::int64_t parameters) {
    using scalar = typename Updates::scalar;
    using clock = std::chrono::steady_clock;
    constexpr int rounds = 5;
    // Factored moments need a matrix: 1024 columns give the elements asked for, or slightly fewer.
    const bool factored = kept.form.is_factored();
    const auto asked = static_cast<std::size_t>(std::max<std::int64_t>(parameters, 1));
    const std::size_t rows = factored ? asked / 1024 : 0;
    const std::size_t size = rows == 0 ? asked : rows * 1024;
    optimizer_state<Updates> state{kept.form, {{{0, size}, 0, rows}}};
    typename Updates::space::template array<float> gradients(size);
    typename Updates::space::template array<scalar> values(size);
    std::vector<float> drawn(size);
    for (std::size_t i = 0; i != size; ++i) { drawn[i] = 1e-6F * static_cast<float>(1 + i * 7919 % 10007); }
    const update_arrays<scalar> arrays = state.arrays(0, values.data(), gradients.data());
    updates.prepare({{0, size}}, 0, factored);
    std::array<double, rounds> us{};
    for (int i = -1; i != rounds; ++i) {
        Updates::space::template upload<float>(drawn, gradients.data());
        const auto start = clock::now();
        double squares{};
        updates.square(gradients.data(), 0, 1);
        updates.read({}, {&squares, 1}, {});
        updates.update({.step = i + 2}, arrays);
        updates.wait();
        if (i >= 0) {
            us[static_cast<std::size_t>(i)] = std::chrono::duration<double, std::micro>(clock::now() - start).count();
        }
    }
    std::nth_element(us.begin(), us.begin() + rounds / 2, us.end());
    return static_cast<double>(size) * kept.moved_bytes() / (us[rounds / 2] * 1e3);
}

} // namespace pulse::train
