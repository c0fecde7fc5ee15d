// Paths of bench_p2p between threads of one process, on the host.
#include <unistd.h>

#include <cstddef>
#include <memory>
#include <vector>

#include <pulse/threads/transport.hpp>

#include "p2p_measure.hpp"
#include "p2p_paths.hpp"
#include "p2p_transport.hpp"

namespace pulse_bench {

std::function<void()> host_product(bool quick) {
    const std::size_t n = quick ? 64 : 256;
    struct matrices {
        std::vector<float> a;
        std::vector<float> b;
        std::vector<float> c;
    };
    const auto of = std::make_shared<matrices>();
    of->a.assign(n * n, 0.5F);
    of->b.assign(n * n, 0.25F);
    of->c.assign(n * n, 0.0F);
    return [of, n] {
        for (std::size_t i = 0; i != n; ++i) {
            float* const c = of->c.data() + i * n;
            for (std::size_t k = 0; k != n; ++k) {
                const float a = of->a[i * n + k];
                const float* const b = of->b.data() + k * n;
                for (std::size_t j = 0; j != n; ++j) { c[j] = 0.5F * c[j] + a * b[j]; }
            }
        }
    };
}

std::int64_t host_memory_bytes() {
    return static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
}

p2p_report measure_thread_path(const p2p_options& options) {
    p2p_report report;
    report.path = "threads";
    report.text = "two threads of this process (threads::transport)";
    pulse::threads::run_ranks(2, {}, [&](pulse::threads::transport& t) {
        transport_path<pulse::threads::transport, host_tensors> path{t};
        std::vector<p2p_row> rows = measure_path(path, options, host_product(options.quick));
        if (t.rank() == 0) { report.rows = std::move(rows); }
    });
    return report;
}

} // namespace pulse_bench
