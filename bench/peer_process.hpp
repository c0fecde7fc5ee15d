#pragma once

#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace pulse_bench {

/// Another program that answers one line for each line it is given.
class peer_process {
public:
    /// Throws std::runtime_error when it cannot be started.
    explicit peer_process(const std::vector<std::string>& command) {
        int to[2];
        int from[2];
        if (pipe(to) != 0 || pipe(from) != 0) { throw std::runtime_error{"pipe failed"}; }
        child_ = fork();
        if (child_ < 0) { throw std::runtime_error{"fork failed"}; }
        if (child_ == 0) {
            dup2(to[0], STDIN_FILENO);
            dup2(from[1], STDOUT_FILENO);
            for (const int end : {to[0], to[1], from[0], from[1]}) { close(end); }
            std::vector<char*> arguments;
            for (const std::string& word : command) { arguments.push_back(const_cast<char*>(word.c_str())); }
            arguments.push_back(nullptr);
            execvp(arguments[0], arguments.data());
            _exit(127);
        }
        close(to[0]);
        close(from[1]);
        std::signal(SIGPIPE, SIG_IGN);
        to_ = fdopen(to[1], "w");
        from_ = fdopen(from[0], "r");
    }
    ~peer_process() {
        std::fclose(to_);
        std::fclose(from_);
        waitpid(child_, nullptr, 0);
    }
    peer_process(const peer_process&) = delete;
    peer_process& operator=(const peer_process&) = delete;

    /// The next line. Throws std::runtime_error when the program has ended.
    [[nodiscard]] std::string read() {
        char line[256];
        if (std::fgets(line, sizeof line, from_) == nullptr) { throw std::runtime_error{"the peer has ended"}; }
        return line;
    }
    [[nodiscard]] std::string ask(const std::string& line) {
        std::fprintf(to_, "%s\n", line.c_str());
        std::fflush(to_);
        return read();
    }

private:
    pid_t child_{};
    std::FILE* to_{};
    std::FILE* from_{};
};

} // namespace pulse_bench
