#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
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
#include <pulse/cuda/memory.cuh>
#include <pulse/cuda/stream.cuh>
#include <pulse/launch/watch.hpp>
#include <pulse/nccl/communicator.cuh>
#include <pulse/nccl/connect.cuh>
#include <pulse/nccl/grid_ranks.cuh>
#include <pulse/nccl/host_collectives.cuh>
#include <pulse/nccl/message_memory.cuh>
#include <pulse/nccl/peer_stream.cuh>
#include <pulse/nccl/step_slots.cuh>
#include <pulse/nccl/transport_options.cuh>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/print.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/runtime/prove_slots.hpp>
#include <pulse/runtime/transfer_slots.hpp>
#include <pulse/runtime/transport.hpp>

namespace pulse::nccl {

/// One rank of an NCCL run: a P x D grid of processes, one device each. It passes messages between device memory while
/// stream() computes. Ranks may also be threads of one process with a device each, but CUDA may then hold a
/// process-wide lock while it waits for one device, and that wait may need a send by another rank that needs the lock.
///
/// Messages of forward passes, of backward passes and between replicas each have their own communicator and stream, and
/// each is a sequence of NCCL groups in one global order. follow() gives the groups of a plan, which prove_slots has
/// shown not to hang; without it every message is a group. Between replicas, messages posted together are one group.
/// The host never waits for a transfer. A guard thread watches all transfers: when a rank has failed (NCCL's own error,
/// the watch) or a transfer does not end, it aborts every communicator of this rank, so that waits for a stream end and
/// the next call throws peer_failed with the first error.
///
/// `sum`, `gather` and `broadcast` act on host values and use `Control`.
template <host_collectives Control>
class transport {
public:
    /// Collective. Makes the communicators and connects every pair of ranks that exchange messages. Throws input_error
    /// when the grid's size differs from the run's, nccl_error, or the error that ends the run. `control` must outlive
    /// it.
    transport(Control& control, const rank_grid& grid, const transport_options& options = {}) :
        control_{control}, grid_{fitting(grid, control.size())}, rank_{control.rank()}, options_{on_device(options)} {
        const cuda::device_memory<std::byte> room(2); // freed after the streams are aborted, if they have to be
        try {
            make_streams();
            agree_on_memory();
            for (std::size_t l = 0; l != streams_.size(); ++l) {
                const bool between_replicas = l == 2;
                connect(streams_[l], room.data(), between_replicas ? replica() : device(),
                        between_replicas ? grid_.data : grid_.pipeline, while_alive(options_.timeout));
            }
        } catch (const std::exception& e) {
            if (dynamic_cast<const nccl_error*>(&e) != nullptr) { hear_who_failed(); }
            fail("rank " + std::to_string(rank_) + ": " + e.what());
            throw;
        }
        guard_ = std::thread{[this] { look_after(); }};
    }
    transport(const transport&) = delete;
    transport& operator=(const transport&) = delete;
    /// Closes together with the other ranks if nothing failed and no exception leaves the scope; aborts otherwise.
    ~transport() {
        try {
            const bool closes = std::uncaught_exceptions() == unwinding_;
            if (closes) { wait_for_streams(); } // while the guard ends what does not complete
            end_guard();
            if (closes && !failed_) {
                memory_.release();
                for (peer_stream& l : streams_) { l.with().close(while_alive(closing_time)); }
            }
        } catch (...) { end_guard(); }
        abort_streams();
        memory_.release();
    }

    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return grid_.size(); }
    /// The rank's compute stream, which the backend must use.
    [[nodiscard]] cudaStream_t stream() const noexcept { return compute_.get(); }
    /// The stream that adds gradients of replicas: their messages are ordered with it, all others with stream().
    [[nodiscard]] cudaStream_t reduction_stream() const noexcept { return reductions_.get(); }
    /// Whether message memory is registered with the pipeline communicators.
    [[nodiscard]] bool registers_memory() const noexcept { return memory_.registers(); }

    /// From now on pipeline messages are posted as the steps say, repeatedly, and start slot by slot. A receive starts
    /// as soon as its buffer is free and the transfer in front of it may start, even while the instruction between them
    /// runs.
    void follow(const rank_transfers& mine) {
        const std::lock_guard lock{mutex_};
        slots_.follow(mine);
    }
    /// The same; nullptr makes every message a group again. All posted messages must have been waited for.
    void follow(const rank_transfers* mine) { follow(mine != nullptr ? *mine : rank_transfers{}); }
    /// Computes what follow() takes from the programs of all devices; the rank runs the program of `device`.
    [[nodiscard]] static std::shared_ptr<const rank_transfers> prepare(const step_model& model,
                                                                       const std::vector<program>& programs,
                                                                       int device) {
        return std::make_shared<const rank_transfers>(transfers_of(model, programs)[static_cast<std::size_t>(device)]);
    }

    void post_send(int peer, message_id message, std::span<message_part> parts) { post({true, peer, message, parts}); }
    void post_recv(int peer, message_id message, std::span<message_part> parts) { post({false, peer, message, parts}); }
    /// Posts messages between replicas as one group.
    void post_together(std::span<const message_post> all) {
        post_with([&](std::unique_lock<std::mutex>& lock) {
            for (const message_post& p : all) {
                if (!is_between_replicas(p.message.kind)) {
                    throw input_error{"pulse: " + to_text(p.message) + " is not a message between replicas"};
                }
                static_cast<void>(put(p));
            }
            if (!all.empty()) { start(streams_.back(), lock); }
        });
    }
    void wait_send(int peer, message_id message) { wait(true, peer, message); }
    void wait_recv(int peer, message_id message) { wait(false, peer, message); }
    [[nodiscard]] bool arrived(int peer, message_id message) {
        throw_if_failed();
        const std::lock_guard lock{mutex_};
        return sequence_of(message).arrived(peer, message);
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

    /// Returns when all work in this rank's streams is done. Throws peer_failed when it cannot finish.
    void synchronize() {
        wait_for_streams();
        throw_if_failed();
    }

    void fail(std::string_view what) noexcept {
        {
            const std::lock_guard lock{mutex_};
            try {
                if (!failed_) { text_ = what; }
            } catch (...) { // without memory, it fails without the text
            }
            failed_ = true;
            abort_streams();
        }
        if (options_.seen != nullptr) { options_.seen->fail(what); }
        if (std::this_thread::get_id() != guard_.get_id()) { control_.fail(what); }
    }

    /// Memory that lives as long as the transport.
    [[nodiscard]] std::byte* allocate(std::size_t bytes) {
        const std::lock_guard lock{mutex_};
        return memory_.allocate(bytes, pipeline_communicators());
    }

    /// Number of receives that could start before the instruction in front of them was done.
    [[nodiscard]] std::int64_t early_receives() const noexcept { return slots_.early_receives(); }

    /// Traffic of the messages from this rank that have started.
    [[nodiscard]] traffic_count sent() {
        const std::lock_guard lock{mutex_};
        traffic_count all;
        for (const peer_stream& l : streams_) { all += l.sent(); }
        return all;
    }

private:
    using clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds closing_time{5000};
    static constexpr std::chrono::milliseconds news_time{500};

    [[nodiscard]] int device() const noexcept { return grid_.device_of(rank_); }
    [[nodiscard]] int replica() const noexcept { return grid_.replica_of(rank_); }

    /// For waits of the host: throws when the run has failed, or after `longest`.
    [[nodiscard]] patience while_alive(std::chrono::milliseconds longest) {
        return [this, end = clock::now() + longest, longest] {
            throw_if_failed();
            if (clock::now() > end) {
                throw error{"pulse: rank " + std::to_string(rank_) + ": NCCL did not finish within " +
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

    /// NCCL may notice a lost peer before the watch does, which knows who it is and why.
    void hear_who_failed() const {
        if (options_.seen != nullptr) { options_.seen->failed_within(news_time); }
    }

    void make_streams() {
        ncclUniqueId id{};
        std::vector<std::byte> bytes(sizeof id);
        if (rank_ == 0) {
            check(ncclGetUniqueId(&id), "ncclGetUniqueId");
            std::memcpy(bytes.data(), &id, sizeof id);
        }
        control_.broadcast(bytes);
        if (bytes.size() != sizeof id) { throw error{"pulse: rank 0's NCCL id has a different size than this rank's"}; }
        std::memcpy(&id, bytes.data(), sizeof id);
        const patience wait = while_alive(options_.timeout);
        communicator world{id, rank_, size(), options_.most_blocks, wait};
        for (int way = 0; way != 2; ++way) {
            streams_.emplace_back(world.split(replica(), device(), options_.most_blocks, wait));
        }
        if (grid_.data > 1) { streams_.emplace_back(world.split(device(), replica(), options_.most_blocks, wait)); }
        world.close(wait);
    }

    /// The communicators with which message memory is registered. Replicas send from gradients, which are other memory,
    /// and NCCL requires both sides of a message to be registered or neither.
    [[nodiscard]] std::array<ncclComm_t, 2> pipeline_communicators() {
        return {streams_[0].with().get(), streams_[1].with().get()};
    }

    /// All ranks register their memory or none does: NCCL does not allow a mixture.
    void agree_on_memory() {
        double can[1]{options_.register_memory && message_memory::can_register(pipeline_communicators()) ? 1.0 : 0.0};
        control_.sum(can);
        memory_ = message_memory{can[0] == static_cast<double>(size())};
    }

    [[nodiscard]] peer_stream& sequence_of(message_id message) {
        if (!is_between_replicas(message.kind)) { return streams_[static_cast<std::size_t>(way_of(message.kind))]; }
        if (streams_.size() < 3) {
            throw input_error{"pulse: " + to_text(message) + " goes between replicas, but the run has only one"};
        }
        return streams_[2];
    }
    [[nodiscard]] cudaStream_t stream_for(message_id message) const noexcept {
        return is_between_replicas(message.kind) ? reduction_stream() : stream();
    }
    void post(const message_post& one) {
        post_with([&](std::unique_lock<std::mutex>& lock) {
            if (put(one)) { start(sequence_of(one.message), lock); }
        });
    }
    template <class Post>
    void post_with(Post body) {
        throw_if_failed();
        try {
            std::unique_lock lock{mutex_};
            body(lock);
        } catch (const nccl_error&) {
            hear_who_failed();
            throw_if_failed();
            throw;
        }
    }
    /// Posts to the peer_stream; returns whether the message is the last of its group.
    [[nodiscard]] bool put(const message_post& p) {
        peer_stream& on = sequence_of(p.message);
        const int there = rank_in_stream(grid_, rank_, p.peer, p.message);
        if (is_between_replicas(p.message.kind) || !slots_.known()) {
            on.post(p.sends, there, p.peer, p.message, p.parts, stream_for(p.message), nullptr, -1);
            return true;
        }
        const int now = slots_.next();
        const cuda::event* const since = slots_.start_of(p.sends, p.message, stream());
        on.post(p.sends, there, p.peer, p.message, p.parts, stream(), since, now);
        return slots_.completes();
    }
    /// Starts the group of messages posted to the peer_stream.
    void start(peer_stream& on, std::unique_lock<std::mutex>& lock) {
        on.launch();
        // Polled under the lock, waited for without it: the guard may abort in between.
        const patience wait = while_alive(options_.timeout);
        while (!failed_) {
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
    void wait(bool sends, int peer, message_id message) {
        throw_if_failed();
        const std::lock_guard lock{mutex_};
        peer_stream& on = sequence_of(message);
        slots_.before_wait(on.find_ordinal(sends, peer, message), stream());
        on.wait(sends, peer, message, stream_for(message));
    }
    void abort_streams() noexcept {
        memory_.forget_communicators();
        abort_all(streams_, options_.device);
    }
    template <class Call>
    void collective(Call call) {
        throw_if_failed();
        try {
            call();
        } catch (const std::exception& e) {
            throw_if_failed(); // with the first failure
            fail(e.what());
            throw peer_failed{e.what()};
        }
    }

    void wait_for_streams() {
        const auto wait_for = [this](const cuda::stream& on) {
            while (!on.idle() && !failed_) { std::this_thread::sleep_for(std::chrono::microseconds{50}); }
        };
        wait_for(compute_);
        wait_for(reductions_);
        for (const peer_stream& l : streams_) { wait_for(l.stream()); }
    }

    void end_guard() {
        stopping_ = true;
        if (guard_.joinable()) { guard_.join(); }
    }
    /// The guard thread: checks for NCCL errors, failures seen by the watch, and transfers that do not end.
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
        for (peer_stream& l : streams_) {
            const ncclResult_t state = l.with().state();
            if (state != ncclSuccess && state != ncclInProgress) {
                hear_who_failed();
                if (options_.seen != nullptr && options_.seen->failed()) { return options_.seen->failure(); }
                return me + "NCCL: " + ncclGetErrorString(state) + ", while " + l.oldest() + " was under way";
            }
            if (const std::optional<std::string> stuck = l.stuck(options_.timeout)) {
                return me + *stuck + " did not complete within " + launch::seconds_text(options_.timeout);
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
    std::vector<peer_stream> streams_{}; ///< forward, backward and, if D > 1, between replicas
    step_slots slots_{};
    std::mutex mutex_{};
    std::atomic<bool> failed_{false};
    std::atomic<bool> stopping_{false};
    std::string text_{};
    std::thread guard_{};
};

} // namespace pulse::nccl
