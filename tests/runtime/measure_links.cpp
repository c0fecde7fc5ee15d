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

/// Thread ranks on machines: a message to another machine also takes the time of the link between machines.
class ranks_on_machines : public host::thread_transport {
public:
    ranks_on_machines(std::shared_ptr<host::thread_group> group, int rank, std::span<const std::string> machines,
                      pulse::link between) :
        thread_transport{std::move(group), rank},
        machines_{machines}, between_{between} {}

    void post_send(int peer, message_id message, std::span<message_part> parts) {
        if (at(rank()) != at(peer)) {
            const auto bytes = static_cast<std::int64_t>(parts.front().bytes);
            std::this_thread::sleep_for(std::chrono::duration<double, std::micro>{between_.transfer_us(bytes)});
        }
        largest_ = std::max(largest_, static_cast<std::int64_t>(parts.front().bytes));
        thread_transport::post_send(peer, message, parts);
    }
    /// Bytes of the largest message that was sent.
    [[nodiscard]] std::int64_t largest() const noexcept { return largest_; }

private:
    [[nodiscard]] const std::string& at(int r) const { return machines_[static_cast<std::size_t>(r)]; }

    std::span<const std::string> machines_;
    pulse::link between_;
    std::int64_t largest_{};
};

/// What all ranks of these machines measure, which is the same; and the largest message of them.
cluster measure(const std::vector<std::string>& machines, host::link_options inside, pulse::link between,
                double seconds, std::int64_t* largest = nullptr) {
    const auto group = std::make_shared<host::thread_group>(static_cast<int>(machines.size()), inside);
    std::vector<cluster> all(machines.size());
    std::vector<std::int64_t> most(machines.size());
    {
        std::vector<std::jthread> ranks;
        for (std::size_t r = 0; r != machines.size(); ++r) {
            ranks.emplace_back([&, r] {
                ranks_on_machines t{group, static_cast<int>(r), machines, between};
                // Ranks 1 and 2 share a device where they are on one machine.
                all[r] = measure_links(t, {.machine = machines[r],
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

constexpr std::array<std::int64_t, 3> some_sizes{256, 131'072, 1'048'576};

/// Measures until one of the links is found to be `wanted`. A busy machine takes longer for some messages than the link
/// does, which also makes a line through the times of small ones too flat: one measurement in a quiet moment is enough.
template <class Measure>
cluster find_link(pulse::link cluster::*which, const pulse::link& wanted, Measure measure_once) {
    cluster found{};
    bool near = false;
    for (int attempt = 0; attempt != 20 && !near; ++attempt) {
        found = measure_once();
        near = true;
        for (const std::int64_t bytes : some_sizes) {
            const double us = (found.*which).transfer_us(bytes);
            near = near && us >= 0.98 * wanted.transfer_us(bytes) && us <= 1.5 * wanted.transfer_us(bytes) + 500;
        }
    }
    CHECK(near);
    return found;
}

} // namespace

TEST_CASE("a measured link is the one that messages take") {
    for (const bool blocking : {false, true}) {
        const cluster found = find_link(&cluster::intra_node, {2000, 0.5}, [&] {
            return measure({"a", "a"}, {.latency_us = 2000, .bandwidth_gb_per_s = 0.5, .blocking = blocking}, {}, 0.4);
        });
        CHECK(found.nodes == 1);
        CHECK(found.devices_per_node == 2);
    }
}

TEST_CASE("ranks of one machine are a node, and links between machines are measured apart") {
    const pulse::link between{3000, 0.25};
    struct layout {
        std::vector<std::string> machines;
        int devices_per_node;
    };
    for (const layout& each :
         {layout{{"a", "a", "b", "b"}, 2}, layout{{"a", "b"}, 1}, layout{{"a", "b", "a", "b"}, 1},
          layout{{"a", "a", "a", "b"}, 1}, layout{{"a", "a", "a", "a", "b", "b"}, 2}, layout{{"", "", ""}, 3}}) {
        CAPTURE(each.machines.size());
        const auto measure_once = [&] { return measure(each.machines, {.latency_us = 300}, between, 0.3); };
        const int ranks = static_cast<int>(each.machines.size());
        const bool one_node = each.devices_per_node == ranks;
        const cluster found = one_node ? measure_once() : find_link(&cluster::inter_node, {3300, 0.25}, measure_once);
        CHECK(found.devices_per_node == each.devices_per_node);
        CHECK(found.devices() == ranks);
        CHECK((found.intra_node == pulse::link{}) == (each.devices_per_node == 1));
        CHECK((found.inter_node == pulse::link{}) == (found.nodes == 1));
        if (each.devices_per_node > 1) { CHECK(found.intra_node.latency_us >= 290); }
    }
}

TEST_CASE("one rank has no link") {
    const cluster found = measure({"a"}, {}, {}, 1.0);
    CHECK(found == cluster{.memory_bytes = 1000});
}

TEST_CASE("ranks of several kinds are unlike devices, each with its own memory") {
    constexpr std::array kinds{"rtx-4090", "rtx-3090", "rtx-4090", "rtx-4090"};
    for (const bool alike : {false, true}) {
        host::run_ranks(4, {}, [&](host::thread_transport& t) {
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
    std::int64_t largest = 0;
    find_link(&cluster::intra_node, {5000, 0.004}, [&] {
        return measure({"a", "a"}, {.latency_us = 5000, .bandwidth_gb_per_s = 0.004}, {}, 0.5, &largest);
    });
    CHECK(largest > 0);
    CHECK(largest < detail::measured_sizes.back());
}

TEST_CASE("where a rank fails or has no memory, every rank gets an error") {
    const auto ended_by = [](auto body) {
        try {
            host::run_ranks(3, {}, body);
        } catch (const std::exception& e) { return std::string{e.what()}; }
        return std::string{};
    };
    CHECK(ended_by([](host::thread_transport& t) {
              if (t.rank() == 2) { throw error{"gone"}; }
              static_cast<void>(measure_links(t, {.memory_bytes = 1}));
          }) == "gone");
    std::mutex mutex;
    std::multiset<std::string> said;
    CHECK(ended_by([&](host::thread_transport& t) {
              try {
                  static_cast<void>(measure_links(t, {.memory_bytes = t.rank() == 1 ? 0 : 1}));
              } catch (const input_error& e) {
                  const std::lock_guard lock{mutex};
                  said.insert(e.what());
              }
          }).empty());
    CHECK(said.count("measure_links: memory_bytes must be at least 1") == 3);
}
