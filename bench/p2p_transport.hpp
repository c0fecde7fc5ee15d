#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <pulse/plan/instruction.hpp>
#include <pulse/runtime/transport.hpp>

#include "p2p_measure.hpp"

namespace pulse_bench {

/// Message tensors of a transport on the host.
struct host_tensors {
    static void store(std::byte* to, std::span<const std::byte> bytes) { std::memcpy(to, bytes.data(), bytes.size()); }
    static void load(const std::byte* from, std::span<std::byte> bytes) {
        std::memcpy(bytes.data(), from, bytes.size());
    }
    /// Returns when received messages can be read.
    static void settle() {}
};

/// A path between ranks 0 and 1 of a transport, as one of them sees it. Tensors accesses the memory of the transport,
/// like host_tensors.
///
/// All messages of one direction leave and arrive in the same tensors, so small ones stay in caches.
template <pulse::transport Transport, class Tensors>
class transport_path {
public:
    explicit transport_path(Transport& over, Tensors tensors = {}) : over_{over}, tensors_{std::move(tensors)} {}

    [[nodiscard]] std::vector<int> ends() const { return {over_.rank()}; }
    void prepare(std::size_t most) {
        out_ = over_.allocate(most);
        in_ = over_.allocate(most);
        note_ = over_.allocate(note_bytes);
    }
    void write(int, std::size_t at, std::span<const std::byte> bytes) { tensors_.store(out_ + at, bytes); }
    void poison(int, std::size_t at, std::span<const std::byte> bytes) { tensors_.store(in_ + at, bytes); }
    void read(int, std::size_t at, std::span<std::byte> bytes) { tensors_.load(in_ + at, bytes); }

    void round_trip(std::size_t bytes) {
        const int number = take_numbers(1);
        post_recv(number, in_, bytes);
        if (over_.rank() == 1) { wait_recv(number); }
        post_send(number, out_, bytes);
        if (over_.rank() == 0) { wait_recv(number); }
        wait_send(number);
        finish();
    }

    post_time stream(std::size_t bytes, int messages, bool both) {
        const bool sends = over_.rank() == 0 || both;
        const bool receives = over_.rank() == 1 || both;
        const int first = take_numbers(messages + 1);
        post_time posted;
        for (int m = 0; m != messages; ++m) {
            if (receives) { post_recv(first + m, in_, bytes); }
            if (!sends) { continue; }
            const auto begin = std::chrono::steady_clock::now();
            post_send(first + m, out_, bytes);
            posted.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
            ++posted.posts;
        }
        for (int m = 0; m != messages; ++m) {
            if (receives) { wait_recv(first + m); }
            if (sends) { wait_send(first + m); }
        }
        // Last, end 1 reports that everything has arrived.
        if (over_.rank() == 1) {
            post_send(first + messages, note_, note_bytes);
            wait_send(first + messages);
        } else {
            post_recv(first + messages, note_, note_bytes);
            wait_recv(first + messages);
        }
        finish();
        return posted;
    }

    void sum(std::span<double> values) { over_.sum(values); }

private:
    static constexpr std::size_t note_bytes = 8;

    /// The directions use the kinds of a pipeline, since a transport may separate forward from backward messages.
    [[nodiscard]] static pulse::message_id message(int from, int number) {
        const auto kind = from == 0 ? pulse::message_kind::boundary : pulse::message_kind::boundary_gradient;
        return {kind, number, pulse::microbatch_id{0}};
    }
    [[nodiscard]] pulse::message_id sent(int number) const { return message(over_.rank(), number); }
    [[nodiscard]] pulse::message_id received(int number) const { return message(peer(), number); }
    [[nodiscard]] int peer() const { return 1 - over_.rank(); }
    [[nodiscard]] int take_numbers(int count) { return std::exchange(next_, (next_ + count) % (1 << 20)); }

    /// The parts of a message stay in place until it is waited for.
    using parts = std::array<pulse::message_part, 1>;
    void post_send(int number, std::byte* data, std::size_t bytes) {
        over_.post_send(peer(), sent(number), part(sent_, data, bytes));
    }
    void post_recv(int number, std::byte* data, std::size_t bytes) {
        over_.post_recv(peer(), received(number), part(received_, data, bytes));
    }
    void wait_send(int number) { over_.wait_send(peer(), sent(number)); }
    void wait_recv(int number) { over_.wait_recv(peer(), received(number)); }
    [[nodiscard]] std::span<pulse::message_part> part(std::vector<parts>& all, std::byte* data, std::size_t bytes) {
        all.push_back({pulse::message_part{data, bytes, pulse::traffic_kind::boundary, false}});
        return all.back();
    }
    void finish() {
        tensors_.settle();
        sent_.clear();
        received_.clear();
    }
    [[nodiscard]] static std::vector<parts> room() {
        std::vector<parts> made;
        made.reserve(128); // more than are in flight at once, so that no part moves
        return made;
    }

    Transport& over_;
    Tensors tensors_;
    std::byte* out_{};
    std::byte* in_{};
    std::byte* note_{};
    int next_{};
    std::vector<parts> sent_{room()};
    std::vector<parts> received_{room()};
};

} // namespace pulse_bench
