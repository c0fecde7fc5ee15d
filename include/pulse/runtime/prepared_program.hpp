#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <variant>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/plan/access.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/layout.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/runtime/transport.hpp>

namespace pulse::detail {

/// What an instruction touches, looked up before the first step so that a step only follows indices.
struct prepared_instruction {
    /// Sorted by buffer: the place, at that time, of each buffer that the instruction names.
    std::vector<std::pair<buffer_id, int>> places{};
    /// Places that become live here; places that are written or released here.
    std::vector<int> acquired{};
    std::vector<int> written{};
    /// Receives and sends, by instruction number, that must complete before this instruction.
    std::vector<int> waits{};
    /// For a send or receive: its tensors, and the place of each.
    std::vector<message_part> parts{};
    std::vector<int> part_places{};
    /// For a backward pass: whether it is its stage's first in a step to compute parameter gradients, those of
    /// backward_input and those of backward_weight. The same in every step, as captured work requires.
    bool first_of_input{};
    bool first_of_weight{};
    /// Whether it is its stage's last to compute any.
    bool last_of_weight{};

    /// Throws error if the instruction does not name `buffer`.
    [[nodiscard]] int place_of(buffer_id buffer) const {
        const auto at = std::lower_bound(places.begin(), places.end(), buffer,
                                         [](const auto& entry, buffer_id b) { return entry.first < b; });
        if (at == places.end() || at->first != buffer) {
            throw error{"pulse: an instruction uses a buffer that it does not name"};
        }
        return at->second;
    }
};

/// A rank's program with every buffer resolved to its place.
class prepared_program {
public:
    // Defined here for the reason given in step_model.
    prepared_program(const step_model& model, program source, const memory_layout& layout) :
        source_{std::move(source)}, prepared_(source_.instructions.size()) {
        prepare(model, layout);
    }

    [[nodiscard]] std::size_t size() const noexcept { return prepared_.size(); }
    [[nodiscard]] const instruction& at(std::size_t i) const noexcept { return source_.instructions[i]; }
    [[nodiscard]] prepared_instruction& prepared(std::size_t i) noexcept { return prepared_[i]; }

private:
    [[nodiscard]] static int place_at(const memory_layout& layout, buffer_id buffer, std::size_t when);

    template <class T>
    static void sort_unique(std::vector<T>& values) {
        std::sort(values.begin(), values.end());
        values.erase(std::unique(values.begin(), values.end()), values.end());
    }

    void prepare(const step_model& model, const memory_layout& layout);
    void resolve(const step_model& model, const memory_layout& layout, std::size_t i);

    void add_parts(const step_model& model, const memory_layout& layout, std::size_t i, message_id message);

    /// The first instruction that touches a tensor of a receive waits for it, and the first that writes or releases a
    /// tensor of a send waits for that; each transfer is waited for once.
    void find_waits(const memory_layout& layout);

    void find_ends_of_gradients();

    program source_;
    std::vector<prepared_instruction> prepared_;
};

} // namespace pulse::detail

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/runtime/prepared_program.ipp> // IWYU pragma: keep
#endif
