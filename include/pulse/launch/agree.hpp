#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/fingerprint.hpp>
#include <pulse/launch/frames.hpp>
#include <pulse/launch/list_ranks.hpp>

namespace pulse::launch {

/// A value that all ranks of a run must agree on: its name, and its text or a short text that stands for it.
struct common_value {
    std::string name{};
    std::string value{};
};

/// Gathers the bytes of all ranks on rank 0 and broadcasts those of rank 0: a transport or a control_plane.
template <class T>
concept collectives = requires(T& t, std::span<const std::byte> mine, std::vector<std::byte>& all) {
    { t.rank() } -> std::convertible_to<int>;
    { t.gather(mine) } -> std::same_as<std::vector<std::vector<std::byte>>>;
    t.broadcast(all);
};

namespace detail {

[[nodiscard]] inline std::string to_bytes(const std::vector<common_value>& values) {
    frame_writer all;
    all.number(values.size());
    for (const common_value& v : values) { all.text(v.name).text(v.value); }
    return all.bytes();
}
[[nodiscard]] inline std::vector<common_value> read_values(std::string_view bytes) {
    frame_reader from{bytes};
    std::vector<common_value> values;
    for (std::uint64_t left = from.number(); left != 0; --left) {
        common_value& v = values.emplace_back();
        v.name = from.text();
        v.value = from.text();
    }
    return values;
}

/// The value for an error text: one that is long or unprintable is cut and followed by its fingerprint.
[[nodiscard]] inline std::string shown(std::string_view value) {
    constexpr std::size_t most = 64;
    const auto plain = [](char c) { return c >= ' ' && c <= '~'; };
    if (value.size() <= most && std::all_of(value.begin(), value.end(), plain)) {
        return value.empty() ? "nothing" : std::string{value};
    }
    std::string text{value.substr(0, most / 2)};
    std::replace_if(
        text.begin(), text.end(), [&](char c) { return !plain(c); }, '?');
    return text + "... (" + fingerprint{}.add(value).text() + ")";
}

/// How the value `name` differs between the ranks; empty when it does not.
[[nodiscard]] inline std::string difference(const std::vector<std::vector<common_value>>& of_ranks,
                                            const std::string& name) {
    const auto value_of = [&](std::size_t rank) -> std::string_view {
        for (const common_value& v : of_ranks[rank]) {
            if (v.name == name) { return v.value; }
        }
        return {};
    };
    std::vector<std::pair<std::string_view, std::vector<int>>> others;
    for (std::size_t rank = 1; rank < of_ranks.size(); ++rank) {
        const std::string_view theirs = value_of(rank);
        if (theirs == value_of(0)) { continue; }
        const auto same = [&](const auto& o) { return o.first == theirs; };
        auto at = std::find_if(others.begin(), others.end(), same);
        if (at == others.end()) { at = others.insert(at, {theirs, {}}); }
        at->second.push_back(static_cast<int>(rank));
    }
    if (others.empty()) { return {}; }
    std::string text = name + ": ";
    constexpr std::size_t most = 3;
    for (std::size_t i = 0; i != std::min(others.size(), most); ++i) {
        const auto& [value, ranks] = others[i];
        text += list_ranks(ranks) + (ranks.size() == 1 ? " has " : " have ") + shown(value) + ", ";
    }
    if (others.size() > most) { text += "and so on, "; }
    return text + "rank 0 has " + shown(value_of(0));
}

/// The error text that lists all differences between the ranks; empty when there are none.
[[nodiscard]] inline std::string differences(const std::vector<std::vector<common_value>>& of_ranks) {
    std::vector<std::string> names;
    for (const auto& values : of_ranks) {
        for (const common_value& v : values) {
            if (std::find(names.begin(), names.end(), v.name) == names.end()) { names.push_back(v.name); }
        }
    }
    std::string text;
    for (const std::string& name : names) {
        const std::string one = difference(of_ranks, name);
        if (!one.empty()) { text += (text.empty() ? "pulse: the ranks differ: " : "; ") + one; }
    }
    return text;
}

} // namespace detail

/// Checks that all ranks pass the same values. Throws input_error on every rank otherwise, naming what differs, the
/// ranks and the values. Collective; also throws what the collectives throw.
template <collectives T>
void agree(T& among, const std::vector<common_value>& mine) {
    const std::string bytes = detail::to_bytes(mine);
    const auto all = among.gather(std::as_bytes(std::span{bytes}));
    std::vector<std::byte> verdict;
    if (among.rank() == 0) {
        std::vector<std::vector<common_value>> of_ranks;
        for (const auto& theirs : all) {
            of_ranks.push_back(detail::read_values({reinterpret_cast<const char*>(theirs.data()), theirs.size()}));
        }
        const std::string text = detail::differences(of_ranks);
        const auto said = std::as_bytes(std::span{text});
        verdict.assign(said.begin(), said.end());
    }
    among.broadcast(verdict);
    if (verdict.empty()) { return; }
    const input_error differ{std::string{reinterpret_cast<const char*>(verdict.data()), verdict.size()}};
    try {
        // All ranks stay until each knows the result; otherwise one would report it as a failure of another.
        static_cast<void>(among.gather({}));
        among.broadcast(verdict);
    } catch (const std::exception&) { throw differ; }
    throw differ;
}

} // namespace pulse::launch
