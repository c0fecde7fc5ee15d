#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace emulated_nccl {

/// A folder through which ranks that are processes exchange files. A file is visible only once it is complete.
class rank_folder {
public:
    explicit rank_folder(std::string path);

    /// Creates a folder below `parent`; empty if that fails.
    [[nodiscard]] static std::string made_below(const std::string& parent);

    [[nodiscard]] bool put(const std::string& name, const void* bytes, std::size_t count) const;
    [[nodiscard]] bool has(const std::string& name) const;
    [[nodiscard]] std::optional<std::string> get(const std::string& name) const;
    void remove(const std::string& name) const;

    /// Creates a file that shows that this process is alive, for as long as it is.
    [[nodiscard]] bool live(const std::string& name) const;
    /// Whether the process that created such a file has ended.
    [[nodiscard]] bool died(const std::string& name) const;

private:
    std::string path_;
};

} // namespace emulated_nccl
