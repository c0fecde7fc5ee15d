#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace pulse::cuda {

/// Engines of cuDNN and algorithms of cuBLASLt, kept in a directory between runs of a program.
///
/// There is one file per key; a key names everything that the text depends on: graph, shapes, types, alignment, device
/// and library version. A file is written under a temporary name and then renamed, so that readers, also in other
/// processes, see all of it or nothing. A file that is damaged, or has another key, is ignored with one line on stderr;
/// so is a directory that cannot be written. Keeping engines is optional: it never makes a program fail.
class engine_store {
public:
    /// Keeps nothing.
    engine_store() = default;
    /// An empty name keeps nothing; a missing directory is created when the first engine is kept.
    explicit engine_store(std::string directory) : directory_{std::move(directory)} {}
    /// A store in the directory that $PULSE_ENGINE_CACHE names; keeps nothing if it is not set.
    [[nodiscard]] static engine_store from_environment() {
        const char* const named = std::getenv("PULSE_ENGINE_CACHE");
        return engine_store{named != nullptr ? named : ""};
    }

    [[nodiscard]] const std::string& directory() const noexcept { return directory_; }

    /// The text that was kept for a key, or nothing.
    [[nodiscard]] std::optional<std::string> find(std::string_view key) const {
        if (directory_.empty()) { return std::nullopt; }
        std::ifstream file{path_of(key), std::ios::binary};
        if (!file) { return std::nullopt; }
        std::ostringstream all;
        all << file.rdbuf();
        const std::string content = all.str();
        const std::string head = head_of(key);
        const std::size_t tail = 17; // a newline and the hash of the text before it
        if (content.size() < head.size() + tail || content.compare(0, head.size(), head) != 0 ||
            content.compare(content.size() - tail, tail, "\n" + hash_of(content.substr(0, content.size() - tail))) !=
                0) {
            std::fprintf(stderr, "pulse: ignoring %s: it is damaged or was written by another program\n",
                         path_of(key).c_str());
            return std::nullopt;
        }
        return content.substr(head.size(), content.size() - head.size() - tail);
    }

    /// Keeps a text for a key, replacing any earlier one.
    void keep(std::string_view key, std::string_view text) const {
        if (directory_.empty()) { return; }
        std::error_code failure;
        std::filesystem::create_directories(directory_, failure);
        const std::string path = path_of(key);
        std::random_device entropy;
        const std::string beside = path + "." + std::to_string(entropy()) + ".part";
        std::string content = head_of(key).append(text);
        content += "\n" + hash_of(content);
        std::ofstream file{beside, std::ios::binary};
        file << content;
        file.close();
        if (file) { std::filesystem::rename(beside, path, failure); }
        if (!file || failure) {
            std::filesystem::remove(beside, failure);
            std::fprintf(stderr, "pulse: %s cannot be written: the engine is not kept\n", path.c_str());
        }
    }

    /// Where the text of a key is kept.
    [[nodiscard]] std::string path_of(std::string_view key) const {
        return directory_ + "/" + hash_of(key) + ".engine";
    }

private:
    /// Fowler-Noll-Vo 1a of 64 bits, in 16 hexadecimal digits.
    [[nodiscard]] static std::string hash_of(std::string_view text) {
        std::uint64_t hash = 14695981039346656037U;
        for (const char c : text) { hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U; }
        std::string digits(16, '0');
        for (std::size_t i = 16; i-- != 0; hash >>= 4U) { digits[i] = "0123456789abcdef"[hash & 15U]; }
        return digits;
    }
    [[nodiscard]] static std::string head_of(std::string_view key) {
        return std::string{"pulse-engine-cache/1\n"}.append(key).append("\n");
    }

    std::string directory_{};
};

} // namespace pulse::cuda
