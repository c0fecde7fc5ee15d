#include <pulse/hardware/check_cluster.hpp>
#include <pulse/hardware/clusters.hpp>

#include <set>
#include <string>

#include <doctest/doctest.h>

#include "../support/check_both.hpp"

using namespace pulse;

TEST_CASE("every named cluster is sound, and found by its name alone") {
    std::set<std::string> names;
    for (const cluster& known : known_clusters) {
        CAPTURE(known.name.str());
        CHECK_NOTHROW(check_cluster(known));
        CHECK(names.insert(known.name.str()).second);
        CHECK(find_cluster(known.name.view()) == &known);
        // The name begins with the structure: the number of nodes, if several, and of devices per node.
        const std::string begin =
            (known.nodes > 1 ? std::to_string(known.nodes) + "x" : "") + std::to_string(known.devices_per_node) + "x";
        CHECK((known.name.str().rfind(begin, 0) == 0 || known.name.view() == "8x910a"));
        // Divided among its devices, the network between nodes is never faster than the links inside.
        if (known.nodes > 1) {
            CHECK(known.inter_node.bandwidth_gb_per_s / known.devices_per_node <= known.intra_node.bandwidth_gb_per_s);
            CHECK(known.inter_node.latency_us >= known.intra_node.latency_us);
        }
    }
    CHECK(find_cluster("") == nullptr);
    CHECK(find_cluster("8xv100") == nullptr);
    CHECK_BOTH(find_cluster("8xv100-nvlink")->intra_node == nvlink2_pair);
}

TEST_CASE("a cluster is checked while compiling too") {
    constexpr auto refused = [](cluster c) {
        check_cluster(c);
        return c.devices();
    };
    CHECK_BOTH(refused(h100_8x8) == 64);
    CHECK_BOTH(a100_8x8.intra_node == nvlink3);
    CHECK_BOTH(a100_8x8.inter_node == bundle(infiniband_hdr, 8));
    CHECK_BOTH(bundle(infiniband_edr, 4).bandwidth_gb_per_s == 50.0);
    CHECK_BOTH(bundle(infiniband_edr, 4).latency_us == infiniband_edr.latency_us);
}
