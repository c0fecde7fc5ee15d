#pragma once

#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/io/parse_json.hpp>
#include <pulse/runtime/transport.hpp>

namespace pulse::train::detail {

/// What `work` returns, or why it could not, in a form that can travel. Only what pulse and the standard library throw:
/// anything else is not an error of this rank's part.
template <class Work>
[[nodiscard]] nlohmann::json attempt(const Work& work) {
    try {
        return {{"value", work()}};
    } catch (const std::exception& fault) { return {{"error", std::string{fault.what()}}}; }
}

[[nodiscard]] inline std::vector<std::byte> bytes_of(const nlohmann::json& value) {
    const std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    const auto bytes = std::as_bytes(std::span{text});
    return {bytes.begin(), bytes.end()};
}
[[nodiscard]] inline nlohmann::json json_of(std::span<const std::byte> bytes) {
    return io::parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "a rank's answer");
}

/// The ranks' values, or input_error with the first rank's error.
[[nodiscard]] inline std::vector<nlohmann::json> values_of(const std::vector<std::vector<std::byte>>& answers) {
    std::vector<nlohmann::json> values;
    for (std::size_t rank = 0; rank != answers.size(); ++rank) {
        nlohmann::json answer = json_of(answers[rank]);
        if (answer.contains("error")) {
            throw input_error("rank " + std::to_string(rank) + ": " + answer["error"].get<std::string>());
        }
        values.push_back(std::move(answer["value"]));
    }
    return values;
}

/// Every rank does `mine`, then rank 0 does `root` with what they returned; all get what rank 0 returned. When a rank
/// could not do its part, all throw the same input_error, and the transport can still be used.
template <transport T, class Mine, class Root>
[[nodiscard]] nlohmann::json agree(T& transport, const Mine& mine, const Root& root) {
    const std::vector<std::vector<std::byte>> answers = transport.gather(bytes_of(attempt(mine)));
    std::vector<std::byte> verdict;
    if (transport.rank() == 0) {
        verdict = bytes_of(attempt([&] { return root(values_of(answers)); }));
    }
    transport.broadcast(verdict);
    nlohmann::json decided = json_of(verdict);
    if (decided.contains("error")) { throw input_error(decided["error"].get<std::string>()); }
    return std::move(decided["value"]);
}

} // namespace pulse::train::detail
