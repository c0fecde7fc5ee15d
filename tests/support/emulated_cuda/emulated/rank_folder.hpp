#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace emulated_nccl {

/// A folder in which ranks that are processes leave things for each other: files, each of which is there whole or not
/// at all.
class rank_folder {
public:
    explicit rank_folder(std::string path);

    /// A new folder below `parent`; empty when it cannot be made.
    [[nodiscard]] static std::string made_below(const std::string& parent);

    [[nodiscard]] bool put(const std::string& name, const void* bytes, std::size_t count) const;
    [[nodiscard]] bool has(const std::string& name) const;
    [[nodiscard]] std::optional<std::string> get(const std::string& name) const;
    void remove(const std::string& name) const;

    /// Puts a file that says that this process lives, for as long as it does.
    [[nodiscard]] bool live(const std::string& name) const;
    /// Whether the process that has put such a file is no more.
    [[nodiscard]] bool died(const std::string& name) const;

private:
    std::string path_;
};

} // namespace emulated_nccl
