#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <pulse/plan/instruction.hpp>
#include <pulse/runtime/transport.hpp>

namespace pulse::test {

/// What goes wrong with one message.
enum class fault {
    none,
    drop,      ///< it is never sent, though the sender is told that it was
    delay,     ///< it is sent 5 ms later
    duplicate, ///< it is sent twice
    corrupt,   ///< one bit of it flips on the way
    kill       ///< the rank dies instead of sending it
};

struct fault_plan {
    fault what{};
    int rank{};
    int at{}; ///< index of the send on that rank, from 0
    std::function<void()> kill{};
};

/// A transport of host memory that mishandles one message.
template <transport T>
class faulty_transport {
public:
    faulty_transport(T& under, fault_plan wrong) : under_{under}, wrong_{std::move(wrong)} {}

    [[nodiscard]] int rank() const { return under_.rank(); }
    [[nodiscard]] int size() const { return under_.size(); }
    void post_send(int peer, message_id message, std::span<message_part> parts) {
        const bool now = wrong_.what != fault::none && rank() == wrong_.rank && sends_++ == wrong_.at;
        if (!now) { return under_.post_send(peer, message, parts); }
        switch (wrong_.what) {
        case fault::none: break;
        case fault::drop: lost_.push_back({peer, message}); return;
        case fault::delay: std::this_thread::sleep_for(std::chrono::milliseconds{5}); break;
        case fault::duplicate:
            // a posted buffer may change hands, so the copy is made first
            copies_.push_back(copy_of(parts));
            under_.post_send(peer, message, parts);
            return under_.post_send(peer, message, copies_.back());
        case fault::corrupt:
            copies_.push_back(copy_of(parts));
            copies_.back().front().data[0] ^= std::byte{4};
            return under_.post_send(peer, message, copies_.back());
        case fault::kill: wrong_.kill(); break;
        }
        under_.post_send(peer, message, parts);
    }
    void post_recv(int peer, message_id message, std::span<message_part> parts) {
        under_.post_recv(peer, message, parts);
    }
    void wait_send(int peer, message_id message) {
        for (const auto& [to, what] : lost_) {
            if (to == peer && what == message) { return; }
        }
        under_.wait_send(peer, message);
    }
    void wait_recv(int peer, message_id message) { under_.wait_recv(peer, message); }
    [[nodiscard]] bool arrived(int peer, message_id message) { return under_.arrived(peer, message); }
    void sum(std::span<double> values) { under_.sum(values); }
    [[nodiscard]] std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine) {
        return under_.gather(mine);
    }
    void broadcast(std::vector<std::byte>& bytes) { under_.broadcast(bytes); }
    void fail(std::string_view what) noexcept { under_.fail(what); }
    [[nodiscard]] std::byte* allocate(std::size_t bytes) { return under_.allocate(bytes); }
    [[nodiscard]] traffic_count sent() { return under_.sent(); }
    /// Sends that this rank has begun, if a fault is planned.
    [[nodiscard]] int sends() const noexcept { return sends_; }

private:
    [[nodiscard]] std::vector<message_part> copy_of(std::span<const message_part> parts) {
        std::vector<message_part> made{parts.begin(), parts.end()};
        for (message_part& part : made) {
            auto& bytes = memory_.emplace_back(part.data, part.data + part.bytes);
            part.data = bytes.data();
            part.may_exchange = false;
        }
        return made;
    }

    T& under_;
    fault_plan wrong_;
    int sends_{};
    std::vector<std::pair<int, message_id>> lost_{};
    std::deque<std::vector<message_part>> copies_{};
    std::deque<std::vector<std::byte>> memory_{};
};

} // namespace pulse::test
