#pragma once

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pulse/launch/deadline.hpp>
#include <pulse/launch/identity.hpp>
#include <pulse/launch/socket.hpp>

namespace pulse::test {

using namespace std::chrono_literals;

inline launch::rank_identity rank_of(int rank, int world) { return {rank, world, -1, -1, -1, "the test"}; }

/// A free port outside the system's range for outgoing connections.
inline std::uint16_t free_port() {
    static unsigned tried = static_cast<unsigned>(::getpid()) * 17U;
    for (;;) {
        auto port = static_cast<std::uint16_t>(10000U + tried++ % 10000U);
        try {
            const launch::detail::descriptor probe = launch::detail::listen_on("127.0.0.1", port);
            return port;
        } catch (const launch::launch_error&) { continue; }
    }
}

/// The result of a body, or "error: ..." if it throws.
template <class Body>
std::string outcome_of(Body& body, int which) {
    try {
        return body(which);
    } catch (const std::exception& e) { return std::string{"error: "} + e.what(); }
}

/// Runs body(0), body(1), ... on a thread each; returns their results or errors.
template <class Body>
std::vector<std::string> on_threads(int many, Body body) {
    std::vector<std::string> said(static_cast<std::size_t>(many));
    std::vector<std::thread> threads;
    for (int i = 0; i != many; ++i) {
        threads.emplace_back([&body, &said, i] { said[static_cast<std::size_t>(i)] = outcome_of(body, i); });
    }
    for (std::thread& t : threads) { t.join(); }
    return said;
}

/// A rank as a process: the result or error of its body is sent back as text.
class process {
public:
    template <class Body>
    process(Body& body, int which) {
        int ends[2];
        if (::pipe(ends) != 0) { std::abort(); }
        id_ = ::fork();
        if (id_ < 0) { std::abort(); }
        if (id_ == 0) {
            ::close(ends[0]);
            const std::string text = outcome_of(body, which);
            const bool sent = ::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
            ::_exit(sent ? 0 : 1);
        }
        ::close(ends[1]);
        said_ = launch::detail::descriptor{ends[0]};
    }
    process(process&& other) noexcept :
        id_{std::exchange(other.id_, -1)}, said_{std::move(other.said_)}, text_{std::move(other.text_)} {}
    process& operator=(process&&) = delete;
    ~process() {
        if (id_ < 0) { return; }
        ::kill(id_, SIGKILL);
        ::waitpid(id_, nullptr, 0);
    }

    void signal(int number) const { ::kill(id_, number); }
    /// Its output once it ends; if it does not end in time, its output so far and "hangs".
    std::string text(launch::deadline::duration longest = 20s) {
        const launch::deadline until{longest};
        char room[4096];
        while (launch::detail::wait_ready(said_.get(), POLLIN, until)) {
            const ssize_t n = ::read(said_.get(), room, sizeof room);
            if (n == 0) { return text_; }
            if (n > 0) { text_.append(room, static_cast<std::size_t>(n)); }
        }
        return text_ + "hangs";
    }

private:
    pid_t id_{-1};
    launch::detail::descriptor said_{};
    std::string text_{};
};

template <class Body>
std::vector<process> on_processes(int many, Body body) {
    std::vector<process> all;
    for (int i = 0; i != many; ++i) { all.emplace_back(body, i); }
    return all;
}

inline double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

} // namespace pulse::test
