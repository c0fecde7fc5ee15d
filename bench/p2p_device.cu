// Paths of bench_p2p on devices, compiled by nvcc apart from the command line and JSON, on which nvcc is slow.
#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/cuda/products.cuh>
#include <pulse/cuda/thread_transport.cuh>

#include "p2p_copies.cuh"
#include "p2p_device_tensors.cuh"
#include "p2p_paths.hpp"
#include "p2p_transport.hpp"
#if PULSE_BENCH_NCCL
#include "p2p_nccl.cuh"
#endif

namespace pulse_bench {

namespace {

namespace cuda = pulse::cuda;

/// Square products in bfloat16 by cuBLASLt on a device, several per call so that the device hardly waits for the host.
class device_product {
public:
    device_product(int device, bool quick) : device_{device}, size_{quick ? 16 : 4096} {
        const cuda::device_scope here{device};
        of_ = std::make_shared<parts>(size_);
        on_ = {of_->stream.get(), cuda::properties_of(device).multiprocessors, nullptr};
        for (auto* const tensor : {&of_->x, &of_->weight}) {
            cuda::fill_bytes_async(tensor->data(), 0x3c, tensor->size(), on_.stream); // small numbers
        }
    }
    void operator()() const {
        cuda::select_device(device_);
        for (int i = 0; i != 4; ++i) {
            of_->multiply.forward(on_, of_->scratch, {size_, size_}, size_, size_, of_->x.data(), of_->weight.data(),
                                  nullptr, of_->y.data(), pulse::into::write);
        }
        of_->stream.synchronize();
    }

private:
    struct parts {
        explicit parts(int n) : x(square(n)), weight(square(n)), y(square(n)) {}
        [[nodiscard]] static std::size_t square(int n) {
            return static_cast<std::size_t>(n) * static_cast<std::size_t>(n);
        }

        cuda::stream stream{};
        cuda::scratch_arena scratch{stream.get()};
        cuda::products<__nv_bfloat16> multiply{cuda::engine_options{}, false};
        cuda::device_memory<__nv_bfloat16> x;
        cuda::device_memory<__nv_bfloat16> weight;
        cuda::device_memory<__nv_bfloat16> y;
    };
    int device_;
    int size_;
    std::shared_ptr<parts> of_{};
    cuda::queue on_{};
};

/// Bytes per second of large copies within the card, by its own clock; one read and one write count once.
double copy_rate(int device, std::size_t bytes) {
    const cuda::device_scope here{device};
    const cuda::device_memory<std::byte> from(bytes);
    const cuda::device_memory<std::byte> to(bytes);
    const cuda::stream on;
    cuda::event begin{cuda::timing::on};
    cuda::event end{cuda::timing::on};
    std::vector<double> seconds;
    constexpr int copies = 4;
    for (int round = -1; round != 9; ++round) {
        begin.record(on.get());
        for (int i = 0; i != copies; ++i) { cuda::copy_async(to.data(), from.data(), bytes, on.get()); }
        end.record(on.get());
        end.synchronize();
        if (round >= 0) { seconds.push_back(std::max(cuda::seconds_between(begin, end), 1e-9) / copies); }
    }
    return static_cast<double>(bytes) / median(seconds);
}

/// Lets kernels of device `from` access the memory of device `to`.
void open_memory(int from, int to) {
    if (from == to) { return; }
    int can = 0;
    cuda::check(cudaDeviceCanAccessPeer(&can, from, to), "cudaDeviceCanAccessPeer");
    if (can == 0) {
        throw pulse::input_error("device " + std::to_string(from) + " does not reach the memory of device " +
                                 std::to_string(to) + ": only --path copy and cuda-threads move bytes between them");
    }
    const cuda::device_scope here{from};
    const cudaError_t status = cudaDeviceEnablePeerAccess(to, 0);
    if (status == cudaErrorPeerAccessAlreadyEnabled) {
        static_cast<void>(cudaGetLastError());
    } else {
        cuda::check(status, "cudaDeviceEnablePeerAccess");
    }
}

} // namespace

p2p_devices find_devices() {
    p2p_devices found;
    found.nccl = PULSE_BENCH_NCCL != 0;
    found.count = cuda::device_count();
    if (found.count == 0) { return found; }
    const cuda::device_properties of = cuda::properties_of(0);
    found.name = of.name;
    found.memory_bytes = static_cast<std::int64_t>(of.memory_bytes);
    for (int d = 1; d != found.count; ++d) {
        const auto other = static_cast<std::int64_t>(cuda::properties_of(d).memory_bytes);
        found.memory_bytes = std::min(found.memory_bytes, other);
    }
    found.bulk_copies = of.compute_major >= 9;
    return found;
}

p2p_report measure_device_path(const std::string& path, const p2p_options& options) {
    const std::array<int, 2> devices{0, cuda::device_count() > 1 ? 1 : 0};
    const bool one = devices[0] == devices[1];
    p2p_report report;
    report.path = path;
    const std::string where = one ? "within device 0" : "between devices 0 and 1";
    if (one) {
        report.copy_gb_per_s = 1e-9 * copy_rate(0, options.quick ? std::size_t{1} << 20 : std::size_t{1} << 30);
    }
    const device_product product{devices[0], options.quick};
    if (path == "cuda-threads") {
        report.text = "two threads of this process (cuda::thread_transport), " + where;
        cuda::run_ranks({devices[0], devices[1]}, {}, [&](cuda::thread_transport& t) {
            transport_path<cuda::thread_transport, device_tensors> ends{t, {t.stream()}};
            std::vector<p2p_row> rows = measure_path(ends, options, product);
            if (t.rank() == 0) { report.rows = std::move(rows); }
        });
        return report;
    }
#if PULSE_BENCH_NCCL
    if (path == "nccl" || path == "nccl-registered") {
        const bool registered = path == "nccl-registered";
        report.text = std::string{"two threads of this process (nccl::transport"} +
                      (registered ? ", registered memory), " : "), ") + where;
        report.rows = measure_nccl_path(devices, registered, options, product);
        return report;
    }
#endif
    const copy_engine by = path == "copy"     ? copy_engine::runtime
                           : path == "kernel" ? copy_engine::kernel
                                              : copy_engine::bulk;
    report.text = (by == copy_engine::runtime  ? one ? "cudaMemcpyAsync, " : "cudaMemcpyPeerAsync, "
                   : by == copy_engine::kernel ? "pulse's copy kernel, 16 bytes an access, "
                                               : "pulse's copy kernel by bulk copies (cp.async.bulk), ") +
                  where;
    if (by != copy_engine::runtime) {
        open_memory(devices[0], devices[1]);
        open_memory(devices[1], devices[0]);
    }
    copy_path ends{by, devices};
    report.rows = measure_path(ends, options, product);
    return report;
}

} // namespace pulse_bench
