#pragma once

#include <cstddef>
#include <cstdio>
#include <string>

#include <unistd.h>

namespace pulse::test {

/// Captures what the process writes to stderr while it lives.
class stderr_text {
public:
    stderr_text() : file_{std::tmpfile()}, before_{dup(STDERR_FILENO)} {
        std::fflush(stderr);
        dup2(fileno(file_), STDERR_FILENO);
    }
    stderr_text(const stderr_text&) = delete;
    stderr_text& operator=(const stderr_text&) = delete;
    ~stderr_text() {
        std::fflush(stderr);
        dup2(before_, STDERR_FILENO);
        close(before_);
        std::fclose(file_);
    }

    /// The text written so far.
    [[nodiscard]] std::string text() const {
        std::fflush(stderr);
        std::rewind(file_);
        std::string all;
        char part[256];
        for (std::size_t n = 0; (n = std::fread(part, 1, sizeof part, file_)) != 0;) { all.append(part, n); }
        return all;
    }
    /// How often `what` was written.
    [[nodiscard]] int count(const std::string& what) const {
        const std::string all = text();
        int found = 0;
        for (std::size_t at = all.find(what); at != std::string::npos; at = all.find(what, at + what.size())) {
            ++found;
        }
        return found;
    }

private:
    std::FILE* file_;
    int before_;
};

} // namespace pulse::test
