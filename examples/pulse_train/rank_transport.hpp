#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <pulse/plan/instruction.hpp>
#include <pulse/runtime/transport.hpp>

namespace pulse_train {

/// The transport of a rank on the host, thread or process: one type, so that a model is compiled once for both.
class rank_transport {
public:
    rank_transport() = default;
    rank_transport(const rank_transport&) = delete;
    rank_transport& operator=(const rank_transport&) = delete;
    virtual ~rank_transport() = default;

    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int size() const = 0;
    virtual void post_send(int peer, pulse::message_id message, std::span<pulse::message_part> parts) = 0;
    virtual void post_recv(int peer, pulse::message_id message, std::span<pulse::message_part> parts) = 0;
    virtual void wait_send(int peer, pulse::message_id message) = 0;
    virtual void wait_recv(int peer, pulse::message_id message) = 0;
    [[nodiscard]] virtual bool arrived(int peer, pulse::message_id message) = 0;
    virtual void sum(std::span<double> values) = 0;
    [[nodiscard]] virtual std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine) = 0;
    virtual void broadcast(std::vector<std::byte>& bytes) = 0;
    virtual void fail(std::string_view what) noexcept = 0;
    [[nodiscard]] virtual std::byte* allocate(std::size_t bytes) = 0;
    [[nodiscard]] virtual pulse::traffic_count sent() = 0;
    /// The rank needs the others no more. Of processes: waits until all say so, throws peer_failed when one has failed.
    virtual void leave() = 0;
};

static_assert(pulse::transport<rank_transport>, "rank_transport is a transport");

/// A transport as a rank_transport.
template <pulse::transport T>
class transport_of final : public rank_transport {
public:
    explicit transport_of(T& inner) : inner_{inner} {}

    [[nodiscard]] int rank() const override { return inner_.rank(); }
    [[nodiscard]] int size() const override { return inner_.size(); }
    void post_send(int peer, pulse::message_id message, std::span<pulse::message_part> parts) override {
        inner_.post_send(peer, message, parts);
    }
    void post_recv(int peer, pulse::message_id message, std::span<pulse::message_part> parts) override {
        inner_.post_recv(peer, message, parts);
    }
    void wait_send(int peer, pulse::message_id message) override { inner_.wait_send(peer, message); }
    void wait_recv(int peer, pulse::message_id message) override { inner_.wait_recv(peer, message); }
    [[nodiscard]] bool arrived(int peer, pulse::message_id message) override { return inner_.arrived(peer, message); }
    void sum(std::span<double> values) override { inner_.sum(values); }
    [[nodiscard]] std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine) override {
        return inner_.gather(mine);
    }
    void broadcast(std::vector<std::byte>& bytes) override { inner_.broadcast(bytes); }
    void fail(std::string_view what) noexcept override { inner_.fail(what); }
    [[nodiscard]] std::byte* allocate(std::size_t bytes) override { return inner_.allocate(bytes); }
    [[nodiscard]] pulse::traffic_count sent() override { return inner_.sent(); }
    void leave() override {
        if constexpr (requires { inner_.leave(); }) { inner_.leave(); }
    }

private:
    T& inner_;
};

} // namespace pulse_train
