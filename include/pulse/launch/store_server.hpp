#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/launch/deadline.hpp>
#include <pulse/launch/frames.hpp>
#include <pulse/launch/socket.hpp>
#include <pulse/launch/wake_up.hpp>

namespace pulse::launch::detail {

/// The messages between a rank and the store.
enum class store_word : std::uint64_t { hello, welcome, refused, set, was_set, get_first, found, none, lost, goodbye };

[[nodiscard]] inline frame_writer begin(store_word word) {
    frame_writer made;
    made.number(static_cast<std::uint64_t>(word));
    return made;
}

/// The store's server on rank 0: a thread that keeps the values and answers the ranks of one run.
///
/// A client that does not greet as a rank of this run within five seconds is disconnected. When a rank's connection
/// ends without a goodbye, every rank that waits for a missing value gets an error.
class store_server {
public:
    /// Listens on `port` (0: a free one), as listen_on. `secret` proves this server to the `ranks` ranks that connect
    /// within `timeout`.
    store_server(const std::string& host, std::uint16_t port, std::string run_id, std::uint64_t secret, int ranks,
                 deadline::duration timeout);
    store_server(const store_server&) = delete;
    store_server& operator=(const store_server&) = delete;
    /// Waits at most two seconds more for the ranks to leave.
    ~store_server() { close(deadline::duration{2000}); }

    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

    /// Returns when all clients have left and every rank has come or used up its connect timeout, at the latest after
    /// `linger`. So a rank that comes late still hears why the others are gone.
    void close(deadline::duration linger);

private:
    struct client {
        frame_stream stream;
        deadline greet_until{deadline::duration{5000}};
        bool greeted{};
        bool left{};
        std::string who{};
        /// The keys it waits for.
        std::vector<std::string> keys{};
        std::optional<deadline> answer_until{};
    };

    void serve();

    void wait_for_events(const std::optional<deadline>& end);

    void accept_all();

    void attend(client& c);

    void answer(client& c, const std::string& frame);

    void answer_wait(client& c);

    void lose(client& c);

    static constexpr std::size_t most_clients = 16384;

    std::uint16_t port_;
    descriptor listener_;
    std::string run_id_;
    std::uint64_t secret_;
    std::size_t ranks_;
    deadline all_tried_;
    std::set<int> came_{};
    wake_up wake_{};
    std::atomic<bool> closing_{false};
    std::atomic<std::int64_t> linger_ms_{0};
    std::list<client> clients_{};
    std::vector<pollfd> polled_{};
    std::map<std::string, std::string> values_{};
    std::string lost_{};
    std::thread thread_;
};

} // namespace pulse::launch::detail

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/launch/store_server.ipp> // IWYU pragma: keep
#endif
