#pragma once

#include <chrono>
#include <optional>

#include <pulse/launch/control_plane.hpp>
#include <pulse/launch/deadline.hpp>
#include <pulse/launch/identity.hpp>
#include <pulse/launch/rendezvous.hpp>
#include <pulse/launch/rendezvous_address.hpp>
#include <pulse/launch/tcp_store.hpp>
#include <pulse/launch/watch.hpp>

namespace pulse::launch {

struct process_group_options {
    /// How long the ranks wait for each other: to arrive, in a collective, and for a sign of life.
    deadline::duration timeout{std::chrono::seconds{60}};
};

/// The processes of a run, one per rank, from rendezvous to exit: a watch over all of them and collectives of host
/// values.
class process_group {
public:
    /// Collective. Throws launch_error on every rank, naming the ranks at fault, unless all meet within the timeout.
    process_group(const rank_identity& who, const rendezvous_address& place, const process_group_options& how = {}) :
        who_{who}, timeout_{how.timeout} {
        tcp_store store{who_, {.where = place.at, .run_id = place.run_id, .timeout = how.timeout}};
        table_ = rendezvous(store, who_, how.timeout);
        seen_.emplace(store, who_, table_, watch_options{.timeout = how.timeout});
        control_.emplace(store, who_, table_, control_plane_options{.timeout = how.timeout, .seen = &*seen_});
    }
    process_group(const process_group&) = delete;
    process_group& operator=(const process_group&) = delete;

    [[nodiscard]] const rank_identity& who() const noexcept { return who_; }
    [[nodiscard]] const rank_table& table() const noexcept { return table_; }
    /// This rank's entry in the table.
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
