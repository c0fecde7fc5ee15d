#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <pulse/plan/instruction.hpp>
#include <pulse/runtime/transport.hpp>

namespace pulse_train {

/// A rank among the others, without messages between two of them: what it has before there is a plan.
class rank_collectives {
public:
    rank_collectives() = default;
    rank_collectives(const rank_collectives&) = delete;
    rank_collectives& operator=(const rank_collectives&) = delete;
    virtual ~rank_collectives() = default;

    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int size() const = 0;
    virtual void sum(std::span<double> values) = 0;
    [[nodiscard]] virtual std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine) = 0;
    virtual void broadcast(std::vector<std::byte>& bytes) = 0;
    virtual void fail(std::string_view what) noexcept = 0;
    /// The rank needs the others no more. Of processes: waits until all say so, throws an error when one has failed.
    virtual void leave() = 0;
};

/// The transport of a rank, thread or process: one type, so that a model is compiled once for both.
class rank_transport : public rank_collectives {
public:
    virtual void post_send(int peer, pulse::message_id message, std::span<pulse::message_part> parts) = 0;
    virtual void post_recv(int peer, pulse::message_id message, std::span<pulse::message_part> parts) = 0;
    virtual void wait_send(int peer, pulse::message_id message) = 0;
    virtual void wait_recv(int peer, pulse::message_id message) = 0;
    [[nodiscard]] virtual bool arrived(int peer, pulse::message_id message) = 0;
    [[nodiscard]] virtual std::byte* allocate(std::size_t bytes) = 0;
    [[nodiscard]] virtual pulse::traffic_count sent() = 0;
};

static_assert(pulse::transport<rank_transport>, "rank_transport is a transport");

/// A transport as a rank_transport, or as what is derived from that.
template <pulse::transport T, std::derived_from<rank_transport> As = rank_transport>
class transport_of : public As {
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

protected:
    T& inner_;
};

} // namespace pulse_train
