#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <pulse/runtime/measure_links.hpp>
#include <pulse/threads/transport.hpp>

using namespace pulse;

namespace {

/// A clock of the rank on this thread that only messages advance: a busy machine changes nothing.
struct message_clock {
    using duration = std::chrono::duration<double>;
    using time_point = std::chrono::time_point<message_clock, duration>;

    static time_point now() noexcept { return time_point{passed}; }

    inline static thread_local duration passed{};
};

/// Thread ranks placed on machines: a message takes the time of the link inside a machine, or of that between machines.
class ranks_on_machines : public threads::transport {
public:
    ranks_on_machines(std::shared_ptr<threads::thread_group> group, int rank, std::span<const std::string> machines,
                      pulse::link inside, pulse::link between) :
        threads::transport{std::move(group), rank},
        machines_{machines}, inside_{inside}, between_{between} {}

    void post_send(int peer, message_id message, std::span<message_part> parts) {
        largest_ = std::max(largest_, pass(peer, parts));
        threads::transport::post_send(peer, message, parts);
    }
    void post_recv(int peer, message_id message, std::span<message_part> parts) {
        pass(peer, parts);
        threads::transport::post_recv(peer, message, parts);
    }
    /// Bytes of the largest message sent.
    [[nodiscard]] std::int64_t largest() const noexcept { return largest_; }

private:
    [[nodiscard]] const std::string& at(int r) const { return machines_[static_cast<std::size_t>(r)]; }

    /// Advances this rank's clock by a message's time; returns its bytes.
    std::int64_t pass(int peer, std::span<const message_part> parts) {
        const auto bytes = static_cast<std::int64_t>(parts.front().bytes);
        const pulse::link& taken = at(rank()) == at(peer) ? inside_ : between_;
        message_clock::passed += std::chrono::duration<double, std::micro>{taken.transfer_us(bytes)};
        return bytes;
    }

    std::span<const std::string> machines_;
    pulse::link inside_;
    pulse::link between_;
    std::int64_t largest_{};
};

/// The measurement of ranks on these machines, on which all agree, and the largest message sent.
cluster measure(const std::vector<std::string>& machines, pulse::link inside, pulse::link between, double seconds,
                std::int64_t* largest = nullptr) {
    const auto group =
        std::make_shared<threads::thread_group>(static_cast<int>(machines.size()), threads::link_options{});
    std::vector<cluster> all(machines.size());
    std::vector<std::int64_t> most(machines.size());
    {
        std::vector<std::jthread> ranks;
        for (std::size_t r = 0; r != machines.size(); ++r) {
            ranks.emplace_back([&, r] {
                ranks_on_machines t{group, static_cast<int>(r), machines, inside, between};
                // Ranks 1 and 2 share a device if they are on one machine.
                all[r] = measure_links<message_clock>(t, {.machine = machines[r],
                                                          .memory_bytes = 1000,
                                                          .device = std::to_string(r == 2 ? 1 : r),
                                                          .seconds = seconds});
                most[r] = t.largest();
            });
        }
    }
    for (const cluster& c : all) { CHECK(c == all.front()); }
    CHECK(all.front().memory_bytes == (machines.size() > 2 && machines[1] == machines[2] ? 500 : 1000));
    if (largest != nullptr) { *largest = *std::max_element(most.begin(), most.end()); }
    return all.front();
}

void check_near(const pulse::link& found, const pulse::link& wanted) {
    CHECK(found.latency_us == doctest::Approx(wanted.latency_us).epsilon(1e-6));
    CHECK(found.bandwidth_gb_per_s == doctest::Approx(wanted.bandwidth_gb_per_s).epsilon(1e-6));
}

} // namespace

TEST_CASE("a measured link is the one that messages take") {
    for (const pulse::link& wanted : {pulse::link{2000, 0.5}, pulse::link{3, 400}, pulse::link{40, 0.1}}) {
        const cluster found = measure({"a", "a"}, wanted, {}, 0.4);
        check_near(found.intra_node, wanted);
        CHECK(found.nodes == 1);
        CHECK(found.devices_per_node == 2);
    }
}

TEST_CASE("links that ranks of threads measure take the time that they were given, or more") {
    for (const bool blocking : {false, true}) {
        constexpr double least_us = 2000;
        threads::run_ranks(2, {.latency_us = least_us, .blocking = blocking}, [&](threads::transport& t) {
            const cluster found = measure_links(t, {.memory_bytes = 2, .seconds = 0.1});
            CHECK(found.devices_per_node == 2);
            CHECK(found.intra_node.transfer_us(detail::measured_sizes.back()) >= 0.9 * least_us);
        });
    }
}

TEST_CASE("ranks of one machine are a node, and links between machines are measured apart") {
    const pulse::link inside{300, 4};
    const pulse::link between{3000, 0.25};
    struct layout {
        std::vector<std::string> machines;
        int devices_per_node;
    };
    for (const layout& each :
         {layout{{"a", "a", "b", "b"}, 2}, layout{{"a", "b"}, 1}, layout{{"a", "b", "a", "b"}, 1},
          layout{{"a", "a", "a", "b"}, 1}, layout{{"a", "a", "a", "a", "b", "b"}, 2}, layout{{"", "", ""}, 3}}) {
        CAPTURE(each.machines.size());
        const cluster found = measure(each.machines, inside, between, 0.3);
        const int ranks = static_cast<int>(each.machines.size());
        CHECK(found.devices_per_node == each.devices_per_node);
        CHECK(found.devices() == ranks);
        check_near(found.intra_node, each.devices_per_node == 1 ? pulse::link{} : inside);
        check_near(found.inter_node, each.devices_per_node == ranks ? pulse::link{} : between);
    }
}

TEST_CASE("one rank has no link") {
    const cluster found = measure({"a"}, {}, {}, 1.0);
    CHECK(found == cluster{.memory_bytes = 1000});
}

TEST_CASE("ranks of several kinds are unlike devices, each with its own memory") {
    constexpr std::array kinds{"rtx-4090", "rtx-3090", "rtx-4090", "rtx-4090"};
    for (const bool alike : {false, true}) {
        threads::run_ranks(4, {}, [&](threads::transport& t) {
            const auto r = static_cast<std::size_t>(t.rank());
            const cluster found = measure_links(t, {.memory_bytes = t.rank() == 1 ? 600 : 1000,
                                                    .device = std::to_string(t.rank() == 3 ? 2 : t.rank()),
                                                    .kind = alike ? kinds[0] : kinds[r],
                                                    .seconds = 0.01});
            CHECK(found.memory_bytes == 500);
            CHECK(found.memory_of(1) == (alike ? 500 : 600));
            if (alike) {
                CHECK(found.unlike.empty());
                return;
            }
            CHECK(found.unlike ==
                  std::vector<unlike_device>{
                      {"rtx-4090", 1000, 1}, {"rtx-3090", 600, 1}, {"rtx-4090", 500, 1}, {"rtx-4090", 500, 1}});
        });
    }
}

TEST_CASE("on a slow link large messages are left out") {
    const pulse::link wanted{5000, 0.004};
    std::int64_t largest = 0;
    check_near(measure({"a", "a"}, wanted, {}, 0.5, &largest).intra_node, wanted);
    CHECK(largest > 0);
    CHECK(largest < detail::measured_sizes.back());
}

TEST_CASE("where a rank fails or has no memory, every rank gets an error") {
    const auto ended_by = [](auto body) {
        try {
            threads::run_ranks(3, {}, body);
        } catch (const std::exception& e) { return std::string{e.what()}; }
        return std::string{};
    };
    CHECK(ended_by([](threads::transport& t) {
              if (t.rank() == 2) { throw error{"gone"}; }
              static_cast<void>(measure_links(t, {.memory_bytes = 1}));
          }) == "gone");
    std::mutex mutex;
    std::multiset<std::string> said;
    CHECK(ended_by([&](threads::transport& t) {
              try {
                  static_cast<void>(measure_links(t, {.memory_bytes = t.rank() == 1 ? 0 : 1}));
              } catch (const input_error& e) {
                  const std::lock_guard lock{mutex};
                  said.insert(e.what());
              }
          }).empty());
    CHECK(said.count("measure_links: memory_bytes must be at least 1") == 3);
}
