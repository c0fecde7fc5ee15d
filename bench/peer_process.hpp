#pragma once

#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
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
        if (pipe(to) != 0) { throw std::runtime_error{"pipe failed"}; }
        if (pipe(from) != 0) {
            close_all({to[0], to[1]});
            throw std::runtime_error{"pipe failed"};
        }
        child_ = fork();
        if (child_ < 0) {
            close_all({to[0], to[1], from[0], from[1]});
            throw std::runtime_error{"fork failed"};
        }
        if (child_ == 0) {
            dup2(to[0], STDIN_FILENO);
            dup2(from[1], STDOUT_FILENO);
            close_all({to[0], to[1], from[0], from[1]});
            std::vector<char*> arguments;
            for (const std::string& word : command) { arguments.push_back(const_cast<char*>(word.c_str())); }
            arguments.push_back(nullptr);
            execvp(arguments[0], arguments.data());
            _exit(127);
        }
        close_all({to[0], from[1]});
        std::signal(SIGPIPE, SIG_IGN);
        to_ = fdopen(to[1], "w");
        from_ = fdopen(from[0], "r");
        if (to_ == nullptr || from_ == nullptr) {
            if (to_ == nullptr) { close(to[1]); }
            if (from_ == nullptr) { close(from[0]); }
            finish();
            throw std::runtime_error{"fdopen failed"};
        }
    }
    ~peer_process() { finish(); }
    peer_process(const peer_process&) = delete;
    peer_process& operator=(const peer_process&) = delete;

    /// The next line. Throws std::runtime_error when the program has ended.
    [[nodiscard]] std::string read() {
        std::string line;
        for (int c = std::fgetc(from_); c != EOF; c = std::fgetc(from_)) {
            line += static_cast<char>(c);
            if (c == '\n') { break; }
        }
        if (line.empty()) { throw std::runtime_error{"the peer process has ended"}; }
        return line;
    }
    [[nodiscard]] std::string ask(const std::string& line) {
        if (std::fprintf(to_, "%s\n", line.c_str()) < 0 || std::fflush(to_) != 0) {
            throw std::runtime_error{"the peer process has ended"};
        }
        return read();
    }
    /// Asks for a positive number. Throws std::runtime_error when the answer is anything else.
    [[nodiscard]] double ask_number(const std::string& line) {
        const std::string answer = ask(line);
        char* end = nullptr;
        const double value = std::strtod(answer.c_str(), &end);
        if (end == answer.c_str() || std::string{end} != "\n" || !std::isfinite(value) || value <= 0) {
            throw std::runtime_error{"the peer answers '" + answer.substr(0, answer.find('\n')) +
                                     "', which is not a time"};
        }
        return value;
    }

private:
    static void close_all(std::initializer_list<int> ends) noexcept {
        for (const int end : ends) { close(end); }
    }
    void finish() noexcept {
        if (to_ != nullptr) { std::fclose(to_); }
        if (from_ != nullptr) { std::fclose(from_); }
        waitpid(child_, nullptr, 0);
    }

    pid_t child_{};
    std::FILE* to_{};
    std::FILE* from_{};
};

} // namespace pulse_bench
