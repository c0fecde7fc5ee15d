#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/launch/deadline.hpp>
#include <pulse/launch/identity.hpp>
#include <pulse/launch/list_ranks.hpp>
#include <pulse/launch/tcp_store.hpp>

namespace pulse::launch::detail {

/// Every rank brings a value, rank 0 judges them, and all ranks get the same verdict or the same error.
///
/// Keys begin with `subject`. A rank that finds something wrong stores it under `subject`/problem, which ends the waits
/// of rank 0 and of every other rank.
class assembly {
public:
    assembly(tcp_store& store, const rank_identity& who, std::string subject, deadline::duration timeout) :
        store_{store}, who_{who}, subject_{std::move(subject)}, timeout_{timeout}, until_{timeout} {}

    /// Ends the assembly for all ranks. Throws launch_error with the text of the first rank that objected.
    [[noreturn]] void object(const std::string& text) {
        const std::string key = subject_ + "/problem";
        const bool first = store_.set(key, text);
        throw launch_error{"pulse: " + subject_ + ": " +
                           (first ? text : store_.get(key, deadline::duration{0}).value_or(text))};
    }
    void bring(std::string_view value) {
        if (store_.set(of_rank(who_.rank), value)) { return; }
        object("rank " + std::to_string(who_.rank) +
               " joined twice: two processes have that rank, or the store still holds an earlier run");
    }
    /// Waits for what rank `rank` brings. Throws launch_error naming the missing ranks at the deadline.
    [[nodiscard]] std::string hear(int rank) { return wait_for(of_rank(rank)); }
    /// On rank 0: sends the verdict to all ranks.
    void decide(std::string_view verdict) { store_.set(subject_ + "/verdict", verdict); }
    /// Waits for the verdict of rank 0.
    [[nodiscard]] std::string verdict() { return wait_for(subject_ + "/verdict"); }

private:
    [[nodiscard]] std::string of_rank(int rank) const { return subject_ + "/" + std::to_string(rank); }

    [[nodiscard]] std::string wait_for(const std::string& key) {
        const std::array keys{subject_ + "/problem", key};
        if (std::optional<found_value> found = store_.get_first(keys, until_.left())) {
            if (found->index == 0) { throw launch_error{"pulse: " + subject_ + ": " + found->value}; }
            return std::move(found->value);
        }
        std::vector<int> missing;
        for (int r = 0; r != who_.world_size; ++r) {
            if (!store_.get(of_rank(r), deadline::duration{0})) { missing.push_back(r); }
        }
        const std::string span = " within " + seconds_text(timeout_);
        object(missing.empty()
                   ? "rank 0 gave no result" + span
                   : list_ranks(missing) + " of " + std::to_string(who_.world_size) + " did not join" + span);
    }

    tcp_store& store_;
    const rank_identity& who_;
    std::string subject_;
    deadline::duration timeout_;
    deadline until_;
};

} // namespace pulse::launch::detail
