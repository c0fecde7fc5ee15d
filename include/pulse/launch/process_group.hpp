#pragma once

#include <chrono>
#include <optional>
#include <type_traits>
#include <variant>

#include <pulse/launch/control_plane.hpp>
#include <pulse/launch/deadline.hpp>
#include <pulse/launch/file_store.hpp>
#include <pulse/launch/identity.hpp>
#include <pulse/launch/place.hpp>
#include <pulse/launch/rendezvous.hpp>
#include <pulse/launch/tcp_store.hpp>
#include <pulse/launch/watch.hpp>

namespace pulse::launch {

/// Opens the store of a run, gives it to use(store), and closes it. Throws input_error when a folder cannot be made,
/// and launch_error when rank 0 is not reached within the timeout.
template <class Use>
auto with_store(const rank_identity& who, const meeting_place& place, deadline::duration timeout, const Use& use) {
    return std::visit(
        [&](const auto& at) {
            if constexpr (std::is_same_v<decltype(at), const endpoint&>) {
                tcp_store store{who, {.where = at, .run_id = place.run_id, .timeout = timeout}};
                return use(store);
            } else {
                file_store store{at, place.run_id};
                return use(store);
            }
        },
        place.at);
}

struct process_group_options {
    /// How long the ranks wait for each other: to come, in a collective, and for a sign of life.
    deadline::duration timeout{std::chrono::seconds{60}};
};

/// The processes of a run, each a rank, from their meeting to their end: a watch over all of them and collectives of
/// values on the host.
class process_group {
public:
    /// Collective. Throws input_error when a folder cannot be made, launch_error on every rank, naming the culprits,
    /// unless all meet within the timeout.
    process_group(const rank_identity& who, const meeting_place& place, const process_group_options& how = {}) :
        who_{who}, timeout_{how.timeout} {
        with_store(who_, place, how.timeout, [&](auto& store) {
            table_ = rendezvous(store, who_, how.timeout);
            seen_.emplace(store, who_, table_, watch_options{.timeout = how.timeout});
            control_.emplace(store, who_, table_, control_plane_options{.timeout = how.timeout, .seen = &*seen_});
            if constexpr (requires { store.erase(); }) {
                control_->sum({}); // all are through with it
                if (who_.rank == 0) { store.erase(); }
            }
        });
    }
    process_group(const process_group&) = delete;
    process_group& operator=(const process_group&) = delete;

    [[nodiscard]] const rank_identity& who() const noexcept { return who_; }
    [[nodiscard]] const rank_table& table() const noexcept { return table_; }
    /// This rank, with its place on its machine.
    [[nodiscard]] const member& self() const noexcept { return table_.ranks[static_cast<std::size_t>(who_.rank)]; }
    [[nodiscard]] deadline::duration timeout() const noexcept { return timeout_; }
    [[nodiscard]] watch& seen() noexcept { return *seen_; }
    [[nodiscard]] control_plane& control() noexcept { return *control_; }

private:
    rank_identity who_;
    deadline::duration timeout_;
    rank_table table_{};
    std::optional<watch> seen_{};
    std::optional<control_plane> control_{};
};

} // namespace pulse::launch
