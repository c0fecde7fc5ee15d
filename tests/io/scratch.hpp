#pragma once

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>

#include <unistd.h>

namespace pulse::test {

/// A folder of the test, removed at its end.
struct scratch {
    scratch() {
        std::string name = (std::filesystem::temp_directory_path() / "pulse-io-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) { std::abort(); }
        path = name;
    }
    scratch(const scratch&) = delete;
    scratch& operator=(const scratch&) = delete;
    ~scratch() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }

    [[nodiscard]] std::ptrdiff_t entries() const {
        return std::distance(std::filesystem::directory_iterator{path}, std::filesystem::directory_iterator{});
    }

    std::filesystem::path path;
};

[[nodiscard]] inline std::string bytes_of(const std::filesystem::path& path) {
    std::ifstream in{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{in}, {}};
}

inline void put(const std::filesystem::path& path, std::string_view bytes) {
    std::ofstream out{path, std::ios::binary};
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

} // namespace pulse::test
