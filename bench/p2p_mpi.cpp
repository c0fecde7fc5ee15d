// The path of bench_p2p between two processes, by MPI.
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include <pulse/core/error.hpp>
#include <pulse/mpi/run_rank.hpp>
#include <pulse/mpi/transport.hpp>

#include "p2p_measure.hpp"
#include "p2p_paths.hpp"
#include "p2p_transport.hpp"

namespace pulse_bench {

namespace {

/// Whether the two ranks are on hosts of different names; both get the answer.
bool are_on_two_hosts(pulse::mpi::transport& t) {
    std::array<char, 256> name{};
    static_cast<void>(::gethostname(name.data(), name.size() - 1));
    const auto all = t.gather(std::as_bytes(std::span{name}));
    double two = t.rank() == 0 && all[0] != all[1] ? 1 : 0;
    t.sum({&two, 1});
    return two != 0;
}

} // namespace

int run_mpi_path(const std::function<void(const mpi_side&)>& body) {
    const auto rank_main = [&](pulse::mpi::transport& t) {
        if (t.size() != 2) {
            throw pulse::input_error("--path mpi measures between two processes (mpirun -n 2), not " +
                                     std::to_string(t.size()));
        }
        mpi_side side{t.rank(), are_on_two_hosts(t), {}};
        side.measure = [&](const p2p_options& options) {
            p2p_report report;
            report.path = "mpi";
            report.text = side.between_hosts ? "two processes on two hosts (mpi::transport)"
                                             : "two processes on this host (mpi::transport)";
            report.between_hosts = side.between_hosts;
            transport_path<pulse::mpi::transport, host_tensors> path{t};
            report.rows = measure_path(path, options, host_product(options.quick));
            return report;
        };
        body(side);
    };
    return pulse::mpi::run_rank({}, rank_main,
                                [](const std::exception& e) { std::fprintf(stderr, "bench_p2p: %s\n", e.what()); });
}

} // namespace pulse_bench
