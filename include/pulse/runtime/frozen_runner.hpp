#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <variant>
#include <vector>

#include <pulse/core/ids.hpp>
#include <pulse/plan/frozen_flow.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/runtime/encoding.hpp>
#include <pulse/runtime/prepared_program.hpp>
#include <pulse/runtime/step_memory.hpp>
#include <pulse/schedule/frozen_work.hpp>

namespace pulse::detail {

/// Whether an instruction belongs to frozen tasks rather than to the passes.
[[nodiscard]] inline bool is_of_frozen_tasks(const instruction& what) noexcept {
    if (const auto* out = std::get_if<op::send>(&what)) { return is_of_frozen_task(out->message.kind); }
    if (const auto* in = std::get_if<op::recv>(&what)) { return is_of_frozen_task(in->message.kind); }
    if (const auto* ended = std::get_if<op::release>(&what)) {
        return ended->buffer.kind == buffer_kind::paused || ended->buffer.kind == buffer_kind::result;
    }
    return std::holds_alternative<op::encode>(what) || std::holds_alternative<op::keep>(what);
}

/// Which of a rank's two rooms for results is read, and whether it is filled; shared by the steps of all extents.
struct frozen_rooms {
    int read{};
    bool filled{};
};

/// Runs the frozen tasks of one rank, whose results are for the next step: a step reads one room while its tasks fill
/// the other.
///
/// Rooms are swapped without waiting for a device: encoding, keeping, reading results and whatever follows the wait for
/// a message are all in the order of the backend's operations. So a room is filled after the previous step's last read,
/// and read after everything that fills it.
template <class Space>
class frozen_runner {
public:
    frozen_runner(const frozen_flow& flow, int device, basic_step_memory<Space>& memory, frozen_rooms& rooms) :
        flow_{flow}, device_{device}, memory_{memory}, rooms_{rooms} {
        std::size_t most = 0;
        for (int n = 0; n != flow.count(); ++n) {
            most = std::max(most, flow.into(n).size() + flow.from(n).size() + 1);
        }
        pieces_.reserve(most);
    }

    /// The results that the current step reads.
    [[nodiscard]] encoded_results results() const noexcept { return {flow_, device_, memory_.results(rooms_.read)}; }
    void exchange_rooms() noexcept { rooms_.read = 1 - rooms_.read; }
    void forget_results() noexcept { rooms_.filled = false; }
    /// Whether there are no results; tasks then encode for the step about to begin, until have_results().
    [[nodiscard]] bool begins_without_results() const noexcept { return !rooms_.filled; }
    void have_results() noexcept {
        rooms_.filled = true;
        exchange_rooms();
    }

    template <class Task>
    void encode(const op::encode& e, const prepared_instruction& mine, Task& task) {
        const int number = flow_.first_of(device_) + e.task;
        const frozen_task& what = flow_.task(number);
        pieces_.clear();
        const auto add = [&](int first_sample, int samples, buffer_id buffer) {
            pieces_.push_back({first_sample, samples, memory_.address(mine.place_of(buffer))});
        };
        const auto paused = [&](const frozen_flow::pause& p) {
            add(p.first_sample, p.samples, {buffer_kind::paused, p.before, microbatch_id{p.after}});
        };
        for (const frozen_flow::pause& p : flow_.into(number)) { paused(p); }
        const std::size_t inputs = pieces_.size();
        for (const frozen_flow::pause& p : flow_.from(number)) { paused(p); }
        if (flow_.makes_results(number)) {
            add(what.first_sample, what.samples, {buffer_kind::result, number, microbatch_id{0}});
        }
        const std::span<const encoding_piece> all{pieces_};
        task.encode(encoding{what, rooms_.filled, all.first(inputs), all.subspan(inputs)});
    }
    template <class B>
    void keep(const op::keep& k, const prepared_instruction& mine, const B& math) {
        const frozen_task& what = flow_.task(k.task);
        const std::byte* const from = memory_.address(mine.place_of({buffer_kind::result, k.task, microbatch_id{0}}));
        std::byte* const to = memory_.results(1 - rooms_.read) + flow_.room_offset(device_, what.component) +
                              what.first_sample * flow_.sample_bytes(what.component);
        Space::copy(math, from, to, flow_.result_bytes(k.task));
    }

private:
    const frozen_flow& flow_;
    int device_;
    basic_step_memory<Space>& memory_;
    frozen_rooms& rooms_;
    std::vector<encoding_piece> pieces_{}; ///< of the running task
};

} // namespace pulse::detail
