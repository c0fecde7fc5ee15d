#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime.h>
#include <nccl.h>

#include <pulse/core/error.hpp>
#include <pulse/cuda/device.cuh>
#include <pulse/cuda/event.cuh>
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/stream.cuh>
#include <pulse/launch/watch.hpp>
#include <pulse/nccl/communicator.cuh>
#include <pulse/nccl/lane.cuh>
#include <pulse/nccl/message_memory.cuh>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/print.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/runtime/prove_slots.hpp>
#include <pulse/runtime/transfer_slots.hpp>
#include <pulse/runtime/transport.hpp>

namespace pulse::nccl {

/// Collectives of values on the host, which come before and beside NCCL: launch::control_plane, or any transport between
/// host ranks.
template <class C>
concept host_collectives = requires(C& c, std::span<double> values, std::vector<std::byte>& bytes,
                                    std::string_view what) {
    { c.rank() } -> std::convertible_to<int>;
    { c.size() } -> std::convertible_to<int>;
    c.sum(values);
    { c.gather(std::span<const std::byte>{}) } -> std::same_as<std::vector<std::vector<std::byte>>>;
    c.broadcast(bytes);
    c.fail(what);
};

struct transport_options {
    /// This rank's device.
    int device{};
    /// How long a transfer that this rank is ready for may take before the run is given up: longer than a step.
    std::chrono::milliseconds timeout{std::chrono::seconds{120}};
    /// Where there is one: a rank that has failed ends the run here. It must outlive the transport. Without one, a rank that
    /// waits in a collective hears of a failure by the means of `Control` alone.
    launch::watch* seen{};
    /// Message memory from ncclMemAlloc, registered once with every communicator: on all ranks, or, where one of them
    /// cannot, on none.
    bool register_memory{true};
    /// Thread blocks that the kernels of one communicator may take; 0: as NCCL chooses.
    int most_blocks{};
};

/// One rank of an NCCL run: a P x D grid of processes, each with a device (several ranks of a process are threads with a
/// device each). It passes messages between device memory beside the work of stream().
///
/// Messages of forward passes, of backward passes and between replicas have communicators and streams of their own, and
/// each is a sequence of NCCL groups in one global order: follow() gives the groups of a plan, which prove_slots has shown
/// not to hang; without it every message is a group. The host never waits for a transfer. A guard thread looks at all of
/// them: when a rank has failed (NCCL's own error, the watch) or a transfer does not end, it aborts every communicator of
/// this rank, so that whoever waits for a stream gets on, and the next call throws peer_failed with the first error.
///
/// `sum`, `gather` and `broadcast` are of values on the host and go through `Control`.
template <host_collectives Control>
class transport {
public:
    /// Collective. Makes the communicators and connects every pair of ranks that exchange messages. Throws input_error when
    /// the grid has another size than the run, nccl_error, or what ends the run. `control` must outlive it.
    transport(Control& control, const rank_grid& grid, const transport_options& options = {}) :
        control_{control}, grid_{fitting(grid, control)}, rank_{control.rank()}, options_{on_device(options)} {
        try {
            make_lanes();
            agree_on_memory();
            for (std::size_t l = 0; l != lanes_.size(); ++l) { connect(lanes_[l]); }
        } catch (const std::exception& e) {
            fail("rank " + std::to_string(rank_) + ": " + e.what());
            throw;
        }
        guard_ = std::thread{[this] { look_after(); }};
    }
    transport(const transport&) = delete;
    transport& operator=(const transport&) = delete;
    /// Where nothing failed and no exception leaves the scope, ends together with the other ranks; else aborts.
    ~transport() {
        stopping_ = true;
        if (guard_.joinable()) { guard_.join(); }
        try {
            if (!failed_ && std::uncaught_exceptions() == unwinding_) {
                wait_for_streams();
                memory_.release();
                for (lane& l : lanes_) { l.with().close(while_alive(closing_time)); }
            }
        } catch (...) { // the communicators are aborted
        }
        memory_.forget_communicators();
        for (lane& l : lanes_) { l.with().abort(); }
        memory_.release();
    }

    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return grid_.size(); }
    /// Where the rank computes; the backend must use it.
    [[nodiscard]] cudaStream_t stream() const noexcept { return compute_.get(); }
    /// Where gradients of replicas are added: their messages are ordered with this stream, all others with stream().
    [[nodiscard]] cudaStream_t reduction_stream() const noexcept { return reductions_.get(); }
    /// Whether message memory is registered with NCCL.
    [[nodiscard]] bool registers_memory() const noexcept { return memory_.registers(); }

    /// From now on pipeline messages are posted as the steps say, again and again, and start slot by slot. A receive starts as
    /// soon as its room is free and the transfer before it may start: beside the instruction in front of it, where there is
    /// one between them.
    void follow(const rank_transfers& mine) {
        const std::lock_guard lock{mutex_};
        slot_of_.clear();
        expected_.clear();
        slots_.clear();
        next_ = 0;
        waited_at_.clear();
        std::vector<int> slot_at(mine.steps.size(), -1);
        std::vector<int> waiter(mine.steps.size(), -1);
        for (std::size_t i = 0; i != mine.steps.size(); ++i) {
            for (const int w : mine.steps[i].waits) { waiter[static_cast<std::size_t>(w)] = static_cast<int>(i); }
        }
        for (std::size_t s = 0; s != mine.slots.size(); ++s) {
            for (const int t : mine.slots[s].transfers) { slot_at[static_cast<std::size_t>(t)] = static_cast<int>(s); }
            slots_.push_back({static_cast<int>(mine.slots[s].transfers.size()), 0});
        }
        for (std::size_t i = 0; i != mine.steps.size(); ++i) {
            if (mine.steps[i].what == transfer_step::role::other) { continue; }
            expected_.push_back({mine.steps[i].what == transfer_step::role::send, mine.steps[i].message,
                                 static_cast<int>(i), mine.steps[i].free_after});
            slot_of_.push_back(slot_at[i]);
            waited_at_.push_back(waiter[i]);
        }
    }

    void post_send(int peer, message_id message, std::span<message_part> parts) { post(true, peer, message, parts); }
    void post_recv(int peer, message_id message, std::span<message_part> parts) { post(false, peer, message, parts); }
    void wait_send(int peer, message_id message) { wait(true, peer, message); }
    void wait_recv(int peer, message_id message) { wait(false, peer, message); }
    [[nodiscard]] bool arrived(int peer, message_id message) {
        throw_if_failed();
        const std::lock_guard lock{mutex_};
        return lane_of(message).arrived(peer, message);
    }

    void sum(std::span<double> values) {
        collective([&] { control_.sum(values); });
    }
    [[nodiscard]] std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine) {
        std::vector<std::vector<std::byte>> all;
        collective([&] { all = control_.gather(mine); });
        return all;
    }
    void broadcast(std::vector<std::byte>& bytes) {
        collective([&] { control_.broadcast(bytes); });
    }

    /// Returns when all work of this rank's streams is done. Throws peer_failed where it will not be.
    void synchronize() {
        wait_for_streams();
        throw_if_failed();
    }

    void fail(std::string_view what) noexcept {
        try {
            const std::lock_guard lock{mutex_};
            if (!failed_) { text_ = what; }
        } catch (...) { // without memory it fails without its text
        }
        failed_ = true;
        {
            const std::lock_guard lock{mutex_};
            memory_.forget_communicators();
            for (lane& l : lanes_) { l.with().abort(); }
        }
        if (options_.seen != nullptr) { options_.seen->fail(what); }
        if (std::this_thread::get_id() != guard_.get_id()) { control_.fail(what); }
    }

    /// Memory that lives as long as the transport.
    [[nodiscard]] std::byte* allocate(std::size_t bytes) {
        const std::lock_guard lock{mutex_};
        std::vector<ncclComm_t> all;
        for (lane& l : lanes_) { all.push_back(l.with().get()); }
        return memory_.allocate(bytes, all);
    }

    /// Receives that could start before the instruction in front of them was done.
    [[nodiscard]] std::int64_t early_receives() const noexcept { return early_receives_; }

    /// What messages from this rank carry that have started so far.
    [[nodiscard]] traffic_count sent() {
        const std::lock_guard lock{mutex_};
        traffic_count all;
        for (const lane& l : lanes_) { all += l.sent(); }
        return all;
    }

private:
    using clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds closing_time{5000};

    struct expected_post {
        bool sends{};
        message_id message{};
        int instruction{};
        int free_after{};
    };
    struct slot_state {
        int size{};
        int posted{};
    };

    [[nodiscard]] static rank_grid fitting(const rank_grid& grid, const Control& control) {
        if (grid.pipeline < 1 || grid.data < 1 || grid.size() != control.size()) {
            throw input_error{"pulse: a grid of " + std::to_string(grid.pipeline) + " x " + std::to_string(grid.data) +
                              " ranks does not fit " + std::to_string(control.size()) + " ranks"};
        }
        return grid;
    }
    [[nodiscard]] static transport_options on_device(const transport_options& options) {
        cuda::select_device(options.device);
        return options;
    }
    [[nodiscard]] int device() const noexcept { return grid_.device_of(rank_); }
    [[nodiscard]] int replica() const noexcept { return grid_.replica_of(rank_); }

    /// For waits of the host: ends them when the run has failed, or after so long.
    [[nodiscard]] patience while_alive(std::chrono::milliseconds longest) {
        return [this, end = clock::now() + longest, longest] {
            throw_if_failed();
            if (clock::now() > end) {
                throw error{"pulse: rank " + std::to_string(rank_) + ": NCCL is not done within " +
                            launch::seconds_text(longest)};
            }
        };
    }
    void throw_if_failed() {
        if (!failed_ && options_.seen != nullptr && options_.seen->failed()) { fail(*options_.seen->failure()); }
        if (!failed_) { return; }
        const std::lock_guard lock{mutex_};
        throw peer_failed{text_.empty() ? "a rank failed" : text_};
    }

    void make_lanes() {
        ncclUniqueId id{};
        std::vector<std::byte> bytes(sizeof id);
        if (rank_ == 0) {
            check(ncclGetUniqueId(&id), "ncclGetUniqueId");
            std::memcpy(bytes.data(), &id, sizeof id);
        }
        control_.broadcast(bytes);
        if (bytes.size() != sizeof id) { throw error{"pulse: rank 0 has another NCCL id than this rank"}; }
        std::memcpy(&id, bytes.data(), sizeof id);
        const patience wait = while_alive(options_.timeout);
        communicator world{id, rank_, size(), options_.most_blocks, wait};
        for (int way = 0; way != 2; ++way) {
            lanes_.emplace_back(world.split(replica(), device(), options_.most_blocks, wait));
        }
        if (grid_.data > 1) { lanes_.emplace_back(world.split(device(), replica(), options_.most_blocks, wait)); }
        world.close(wait);
    }

    /// All ranks register their memory, or none does: NCCL takes no mixture.
    void agree_on_memory() {
        std::vector<ncclComm_t> all;
        for (lane& l : lanes_) { all.push_back(l.with().get()); }
        double can[1]{options_.register_memory && message_memory::can_register(all) ? 1.0 : 0.0};
        control_.sum(can);
        memory_ = message_memory{can[0] == static_cast<double>(size())};
    }

    /// A byte from every rank of the lane to every other: connections are made now, while all ranks are there.
    void connect(lane& on) {
        const bool between_replicas = &on == &lanes_.back() && lanes_.size() == 3;
        const int ranks = between_replicas ? grid_.data : grid_.pipeline;
        const int me = between_replicas ? replica() : device();
        cuda::device_memory<std::byte> room(2);
        cuda::fill_bytes_async(room.data(), 0, 2, on.stream().get());
        for (int distance = 1; distance < ranks; ++distance) {
            const int after = (me + distance) % ranks;
            const int before = (me + ranks - distance) % ranks;
            check(ncclGroupStart(), "ncclGroupStart");
            const ncclResult_t out = ncclSend(room.data(), 1, ncclUint8, after, on.with().get(), on.stream().get());
            const ncclResult_t in = ncclRecv(room.data() + 1, 1, ncclUint8, before, on.with().get(), on.stream().get());
            check(ncclGroupEnd(), "ncclGroupEnd", on.with().get());
            check(out, "ncclSend", on.with().get());
            check(in, "ncclRecv", on.with().get());
            settle(on.with().get(), "the first message of a pair of ranks", while_alive(options_.timeout));
        }
        const patience wait = while_alive(options_.timeout);
        while (!on.stream().idle()) {
            wait();
            check(on.with().state(), "the first message of a pair of ranks", on.with().get());
            std::this_thread::sleep_for(std::chrono::microseconds{50});
        }
    }

    [[nodiscard]] lane& lane_of(message_id message) {
        if (!is_between_replicas(message.kind)) { return lanes_[static_cast<std::size_t>(way_of(message.kind))]; }
        if (lanes_.size() < 3) { throw input_error{"pulse: a message between replicas, of which there is one"}; }
        return lanes_[2];
    }
    [[nodiscard]] cudaStream_t stream_for(message_id message) const noexcept {
        return is_between_replicas(message.kind) ? reduction_stream() : stream();
    }
    /// The peer's rank in the communicator of the message.
    [[nodiscard]] int rank_in_lane(int peer, message_id message) const {
        const bool known = peer >= 0 && peer < size() && peer != rank_;
        if (is_between_replicas(message.kind)) {
            if (known && grid_.device_of(peer) == device()) { return grid_.replica_of(peer); }
        } else if (known && grid_.replica_of(peer) == replica()) {
            return grid_.device_of(peer);
        }
        throw input_error{"pulse: there is no link from rank " + std::to_string(rank_) + " to rank " +
                          std::to_string(peer) + " for " + to_text(message)};
    }

    void post(bool sends, int peer, message_id message, std::span<message_part> parts) {
        throw_if_failed();
        std::unique_lock lock{mutex_};
        lane& on = lane_of(message);
        const int there = rank_in_lane(peer, message);
        if (is_between_replicas(message.kind) || expected_.empty()) {
            on.post(sends, there, peer, message, parts, stream_for(message), nullptr, -1);
        } else {
            const auto now = static_cast<int>(next_);
            const cuda::event* const since = start_of(sends, message);
            on.post(sends, there, peer, message, parts, stream(), since, now);
            if (!completes_slot()) { return; }
        }
        on.launch();
        // Looked at under the lock, waited for without it: the guard may abort meanwhile.
        const patience wait = while_alive(options_.timeout);
        for (;;) {
            if (failed_) { break; }
            const ncclResult_t state = on.with().state();
            check(state, "a group of messages", on.with().get());
            if (state == ncclSuccess) {
                on.launched();
                return;
            }
            lock.unlock();
            wait();
            std::this_thread::yield();
            lock.lock();
        }
        lock.unlock();
        throw_if_failed();
    }
    /// Marks what stream() holds before this instruction of the step.
    void mark(int instruction) {
        if (marks_ != 0 && labels_[marks_ - 1] == instruction) { return; }
        if (marks_ == points_.size()) {
            points_.emplace_back();
            labels_.push_back(0);
        }
        points_[marks_].record(stream());
        labels_[marks_++] = instruction;
    }
    /// The point of stream() behind which the next transfer of the step may start; none: where stream() is now. Transfers may
    /// start in the order in which they are posted, as the proof of their slots wants it: no receive gets before the
    /// transfer in front of it.
    [[nodiscard]] const cuda::event* start_of(bool sends, message_id message) {
        const expected_post& now = expected_[next_];
        if (now.sends != sends || now.message != message) {
            throw error{"pulse: " + to_text(message) + " is posted where the plan's slots have " +
                        to_text(now.message)};
        }
        if (next_ == 0) { marks_ = 0; }
        mark(now.instruction);
        if (sends) { return nullptr; }
        const int before = next_ == 0 ? -1 : expected_[next_ - 1].instruction;
        for (std::size_t m = 0; m + 1 < marks_; ++m) {
            if (labels_[m] <= now.free_after || labels_[m] < before) { continue; }
            ++early_receives_;
            return &points_[m];
        }
        return nullptr;
    }
    /// Whether the transfer that was just posted is the last of its slot.
    [[nodiscard]] bool completes_slot() {
        slot_state& slot = slots_[static_cast<std::size_t>(slot_of_[next_])];
        next_ = (next_ + 1) % expected_.size();
        if (++slot.posted != slot.size) { return false; }
        slot.posted = 0;
        return true;
    }
    void wait(bool sends, int peer, message_id message) {
        throw_if_failed();
        const std::lock_guard lock{mutex_};
        lane& on = lane_of(message);
        const int ordinal = on.find_ordinal(sends, peer, message);
        if (ordinal >= 0 && static_cast<std::size_t>(ordinal) < waited_at_.size() &&
            waited_at_[static_cast<std::size_t>(ordinal)] >= 0) {
            mark(waited_at_[static_cast<std::size_t>(ordinal)]);
        }
        on.wait(sends, peer, message, stream_for(message));
    }
    template <class Call>
    void collective(Call call) {
        throw_if_failed();
        try {
            call();
        } catch (const std::exception& e) {
            throw_if_failed(); // with what failed first
            fail(e.what());
            throw peer_failed{e.what()};
        }
    }

    void wait_for_streams() {
        for (const auto idle : {&compute_, &reductions_}) {
            while (!idle->idle() && !failed_) { std::this_thread::sleep_for(std::chrono::microseconds{50}); }
        }
        for (const lane& l : lanes_) {
            while (!l.stream().idle() && !failed_) { std::this_thread::sleep_for(std::chrono::microseconds{50}); }
        }
    }

    /// The guard: NCCL's errors, the watch, and transfers that do not end.
    void look_after() noexcept {
        try {
            cuda::select_device(options_.device);
            while (!stopping_ && !failed_) {
                std::this_thread::sleep_for(std::chrono::milliseconds{5});
                if (const std::optional<std::string> why = trouble()) { fail(*why); }
            }
        } catch (const std::exception& e) { fail("rank " + std::to_string(rank_) + ": " + e.what()); }
    }
    [[nodiscard]] std::optional<std::string> trouble() {
        if (options_.seen != nullptr && options_.seen->failed()) { return options_.seen->failure(); }
        const std::lock_guard lock{mutex_};
        const std::string me = "rank " + std::to_string(rank_) + ": ";
        for (lane& l : lanes_) {
            const ncclResult_t state = l.with().state();
            if (state != ncclSuccess && state != ncclInProgress) {
                return me + "NCCL: " + ncclGetErrorString(state) + ", while " + l.oldest() + " was under way";
            }
            if (const std::optional<std::string> stuck = l.stuck(options_.timeout)) {
                return me + *stuck + " has not gone through within " + launch::seconds_text(options_.timeout);
            }
        }
        return std::nullopt;
    }

    Control& control_;
    rank_grid grid_;
    int rank_;
    transport_options options_;
    int unwinding_{std::uncaught_exceptions()};
    cuda::stream compute_{};
    cuda::stream reductions_{};
    message_memory memory_{};
    std::vector<lane> lanes_{};             ///< forward, backward, and between replicas where there are several
    std::vector<expected_post> expected_{}; ///< of a step, in order; empty: whatever comes, one by one
    std::vector<int> slot_of_{};
    std::vector<slot_state> slots_{};
    std::size_t next_{};
    std::vector<int> waited_at_{};     ///< of each transfer of a step: the instruction that waits for it
    std::deque<cuda::event> points_{}; ///< of stream(), this step, and before which instruction each is
    std::vector<int> labels_{};
    std::size_t marks_{};
    std::int64_t early_receives_{};
    std::mutex mutex_{};
    std::atomic<bool> failed_{false};
    std::atomic<bool> stopping_{false};
    std::string text_{};
    std::thread guard_{};
};

} // namespace pulse::nccl
