#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/runtime/transport.hpp>

namespace pulse::train::detail {

/// Serializes a rank's result: `text` that its part returned, or the reason it failed.
[[nodiscard]] inline std::vector<std::byte> bytes_of(bool done, std::string_view text) {
    std::vector<std::byte> bytes(1 + text.size(), std::byte{done});
    std::ranges::copy(std::as_bytes(std::span{text}), bytes.begin() + 1);
    return bytes;
}
/// Returns the text of such a result. Throws input_error with `place` and the reason if the rank failed.
[[nodiscard]] inline std::string text_of(std::span<const std::byte> bytes, const std::string& place = {}) {
    if (bytes.empty()) { throw input_error(place + "a rank's answer is empty"); }
    std::string text{reinterpret_cast<const char*>(bytes.data() + 1), bytes.size() - 1};
    if (bytes.front() == std::byte{}) { throw input_error(place + text); }
    return text;
}

/// Serializes the text that `work` returns, or the reason it failed. Catches only std::exception: anything else is no
/// failure of this rank's part.
template <class Work>
[[nodiscard]] std::vector<std::byte> attempt(const Work& work) {
    try {
        return bytes_of(true, work());
    } catch (const std::exception& fault) { return bytes_of(false, fault.what()); }
}

/// The ranks' texts. Throws input_error with the first failed rank and its reason.
[[nodiscard]] inline std::vector<std::string> texts_of(const std::vector<std::vector<std::byte>>& answers) {
    std::vector<std::string> texts;
    for (std::size_t rank = 0; rank != answers.size(); ++rank) {
        texts.push_back(text_of(answers[rank], "rank " + std::to_string(rank) + ": "));
    }
    return texts;
}

/// Collective: every rank runs `mine`, then rank 0 runs `root` on the texts that they returned; all return the text of
/// rank 0. If any rank fails, all throw the same input_error, and the transport stays usable.
template <transport T, class Mine, class Root>
[[nodiscard]] std::string agree(T& transport, const Mine& mine, const Root& root) {
    const std::vector<std::vector<std::byte>> answers = transport.gather(attempt(mine));
    std::vector<std::byte> verdict;
    if (transport.rank() == 0) {
        verdict = attempt([&] { return root(texts_of(answers)); });
    }
    transport.broadcast(verdict);
    return text_of(verdict);
}

} // namespace pulse::train::detail
