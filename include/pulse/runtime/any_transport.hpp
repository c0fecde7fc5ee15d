#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <pulse/plan/instruction.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/runtime/transport.hpp>

namespace pulse {

struct rank_transfers; // defined in prove_slots.hpp, which only transports that start transfers in slots need

/// A reference to a transport of any type, so that code that runs on a rank is compiled once for all of them. The
/// transport must outlive it.
///
/// post_together, streams, prepare and follow go beyond the concept; each forwards to the transport's own. Without one,
/// post_together posts one message after the other, and the others do nothing. A transport that derives from one with
/// post_together and overrides how messages are posted must override or delete that too.
class any_transport {
public:
    /// A rank's streams on a device, as handles of the CUDA runtime; both null for a transport of host memory.
    struct device_streams {
        void* work{};       ///< where the rank computes
        void* reductions{}; ///< where the replicas' gradients are exchanged and added
    };

    template <class T>
        requires(!std::derived_from<T, any_transport> && transport<T>)
    any_transport(T& inner)
    noexcept : inner_{&inner}, calls_{&calls_of<T>} {} // NOLINT: a reference converts

    [[nodiscard]] int rank() const { return calls_->rank(inner_); }
    [[nodiscard]] int size() const { return calls_->size(inner_); }
    /// Whether this rank speaks for all: rank 0.
    [[nodiscard]] bool leads() const { return rank() == 0; }
    void post_send(int peer, message_id message, std::span<message_part> parts) const {
        calls_->post_send(inner_, peer, message, parts);
    }
    void post_recv(int peer, message_id message, std::span<message_part> parts) const {
        calls_->post_recv(inner_, peer, message, parts);
    }
    void wait_send(int peer, message_id message) const { calls_->wait_send(inner_, peer, message); }
    void wait_recv(int peer, message_id message) const { calls_->wait_recv(inner_, peer, message); }
    [[nodiscard]] bool arrived(int peer, message_id message) const { return calls_->arrived(inner_, peer, message); }
    void sum(std::span<double> values) const { calls_->sum(inner_, values); }
    [[nodiscard]] std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine) const {
        return calls_->gather(inner_, mine);
    }
    void broadcast(std::vector<std::byte>& bytes) const { calls_->broadcast(inner_, bytes); }
    void fail(std::string_view what) const noexcept { calls_->fail(inner_, what); }
    [[nodiscard]] std::byte* allocate(std::size_t bytes) const { return calls_->allocate(inner_, bytes); }
    [[nodiscard]] traffic_count sent() const { return calls_->sent(inner_); }

    /// Posts messages between replicas: as one group, in which none waits for another, if the transport has a
    /// post_together, else one after the other. Every rank that has one of them posts the same ones together.
    void post_together(std::span<const message_post> all) const { calls_->post_together(inner_, all); }
    /// The streams with which messages are ordered.
    [[nodiscard]] device_streams streams() const { return calls_->streams(inner_); }
    /// The slots in which the transport starts the transfers of a pipeline's programs, one program per device; this
    /// rank runs that of `device`. Made once, for follow(). Null if each message starts alone.
    [[nodiscard]] std::shared_ptr<const rank_transfers> prepare(const step_model& model,
                                                                const std::vector<program>& programs,
                                                                int device) const {
        return calls_->prepare(inner_, model, programs, device);
    }
    /// Tells the transport the slots of all later steps; null: each message starts alone. Call it between steps, when
    /// everything posted has been waited for.
    void follow(const rank_transfers* mine) const { calls_->follow(inner_, mine); }

private:
    struct call_table {
        int (*rank)(void*);
        int (*size)(void*);
        void (*post_send)(void*, int, message_id, std::span<message_part>);
        void (*post_recv)(void*, int, message_id, std::span<message_part>);
        void (*wait_send)(void*, int, message_id);
        void (*wait_recv)(void*, int, message_id);
        bool (*arrived)(void*, int, message_id);
        void (*sum)(void*, std::span<double>);
        std::vector<std::vector<std::byte>> (*gather)(void*, std::span<const std::byte>);
        void (*broadcast)(void*, std::vector<std::byte>&);
        void (*fail)(void*, std::string_view) noexcept;
        std::byte* (*allocate)(void*, std::size_t);
        traffic_count (*sent)(void*);
        void (*post_together)(void*, std::span<const message_post>);
        device_streams (*streams)(void*);
        std::shared_ptr<const rank_transfers> (*prepare)(void*, const step_model&, const std::vector<program>&, int);
        void (*follow)(void*, const rank_transfers*);
    };

    template <class T>
    [[nodiscard]] static T& as(void* inner) noexcept {
        return *static_cast<T*>(inner);
    }
    template <class T>
    static void post_together_of(void* inner, std::span<const message_post> all) {
        if constexpr (requires(T & t) { t.post_together(all); }) {
            as<T>(inner).post_together(all);
        } else {
            for (const message_post& p : all) {
                p.sends ? as<T>(inner).post_send(p.peer, p.message, p.parts)
                        : as<T>(inner).post_recv(p.peer, p.message, p.parts);
            }
        }
    }
    template <class T>
    [[nodiscard]] static std::shared_ptr<const rank_transfers> prepare_of(
        [[maybe_unused]] void* inner, [[maybe_unused]] const step_model& model,
        [[maybe_unused]] const std::vector<program>& programs, [[maybe_unused]] int device) {
        if constexpr (requires(T & t) { t.prepare(model, programs, device); }) {
            return as<T>(inner).prepare(model, programs, device);
        } else {
            return {};
        }
    }
    template <class T>
    static void follow_of([[maybe_unused]] void* inner, [[maybe_unused]] const rank_transfers* mine) {
        if constexpr (requires(T & t) { t.follow(mine); }) { as<T>(inner).follow(mine); }
    }
    template <class T>
    [[nodiscard]] static device_streams streams_of([[maybe_unused]] void* inner) {
        if constexpr (requires(T & t) { t.reduction_stream(); }) {
            return {as<T>(inner).stream(), as<T>(inner).reduction_stream()};
        } else {
            return {};
        }
    }
    template <class T>
    static constexpr call_table calls_of{
        [](void* t) -> int { return as<T>(t).rank(); },
        [](void* t) -> int { return as<T>(t).size(); },
        [](void* t, int peer, message_id m, std::span<message_part> parts) { as<T>(t).post_send(peer, m, parts); },
        [](void* t, int peer, message_id m, std::span<message_part> parts) { as<T>(t).post_recv(peer, m, parts); },
        [](void* t, int peer, message_id m) { as<T>(t).wait_send(peer, m); },
        [](void* t, int peer, message_id m) { as<T>(t).wait_recv(peer, m); },
        [](void* t, int peer, message_id m) { return as<T>(t).arrived(peer, m); },
        [](void* t, std::span<double> values) { as<T>(t).sum(values); },
        [](void* t, std::span<const std::byte> mine) { return as<T>(t).gather(mine); },
        [](void* t, std::vector<std::byte>& bytes) { as<T>(t).broadcast(bytes); },
        [](void* t, std::string_view what) noexcept { as<T>(t).fail(what); },
        [](void* t, std::size_t bytes) { return as<T>(t).allocate(bytes); },
        [](void* t) -> traffic_count { return as<T>(t).sent(); },
        post_together_of<T>,
        streams_of<T>,
        prepare_of<T>,
        follow_of<T>};

    void* inner_;
    const call_table* calls_;
};

static_assert(transport<any_transport>, "pulse: any_transport must be a transport");

} // namespace pulse
