#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/launch/deadline.hpp>
#include <pulse/launch/identity.hpp>
#include <pulse/launch/store.hpp>

namespace pulse::launch::detail {

/// "rank 4", "ranks 1, 4 and 6", and of many the first sixteen.
[[nodiscard]] inline std::string list_ranks(const std::vector<int>& ranks) {
    constexpr std::size_t most = 16;
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    const std::size_t shown = std::min(ranks.size(), most);
    for (std::size_t i = 0; i != shown; ++i) {
        if (i != 0) { text += i + 1 == ranks.size() ? " and " : ", "; }
        text += std::to_string(ranks[i]);
    }
    return shown == ranks.size() ? text : text + " and " + std::to_string(ranks.size() - shown) + " others";
}

/// All ranks bring a value, rank 0 judges them, all hear the same verdict: its text, or an error.
///
/// Keys begin with `subject`. Whoever finds something wrong puts it under `subject`/problem: rank 0, and who still
/// waits, ends with that.
template <store S>
class assembly {
public:
    assembly(S& store, const rank_identity& who, std::string subject, deadline::duration timeout) :
        store_{store}, who_{who}, subject_{std::move(subject)}, timeout_{timeout}, until_{timeout} {}

    /// Ends the assembly for all ranks. Throws launch_error with the text, or with that of the rank that was first to
    /// object.
    [[noreturn]] void object(const std::string& text) {
        const std::string key = subject_ + "/problem";
        const bool first = store_.set(key, text);
        throw launch_error{"pulse: " + subject_ + ": " +
                           (first ? text : get(store_, key, deadline::duration{0}).value_or(text))};
    }
    void bring(std::string_view value) {
        if (store_.set(of_rank(who_.rank), value)) { return; }
        object("rank " + std::to_string(who_.rank) +
               " is there twice: two processes have that rank, or the store holds an earlier run");
    }
    /// What rank `rank` has brought, as soon as it has. Throws launch_error, naming who is missing, at the deadline.
    [[nodiscard]] std::string hear(int rank) { return wait_for(of_rank(rank)); }
    /// Rank 0: tells all ranks.
    void decide(std::string_view verdict) { store_.set(subject_ + "/verdict", verdict); }
    /// What rank 0 tells.
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
            if (!get(store_, of_rank(r), deadline::duration{0})) { missing.push_back(r); }
        }
        const std::string span = " within " + seconds_text(timeout_);
        object(missing.empty()
                   ? "rank 0 has not decided" + span
                   : list_ranks(missing) + " of " + std::to_string(who_.world_size) + " did not come" + span);
    }

    S& store_;
    const rank_identity& who_;
    std::string subject_;
    deadline::duration timeout_;
    deadline until_;
};

} // namespace pulse::launch::detail
