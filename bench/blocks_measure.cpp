// Measures the operations and layers of bench_blocks.
#include <vector>

#include <pulse/cuda/device.cuh>

#include "block_layers.cuh"
#include "block_list.cuh"
#include "blocks.hpp"
#include "device_operations.cuh"

namespace pulse_bench {

namespace {

namespace cuda = pulse::cuda;
using backend = device_operations;

/// Bytes read and written per second by copies of 1 GiB.
double copy_rate(const backend& b, int rounds, std::size_t bytes) {
    const cuda::device_memory<std::byte> from(bytes);
    const cuda::device_memory<std::byte> to(bytes);
    cuda::fill_bytes_async(from.data(), 1, bytes, b.stream());
    b.synchronize();
    const auto [seconds, spread] =
        time_in_graph(b.stream(), 4, rounds, [&](int) { cuda::copy_async(to.data(), from.data(), bytes, b.stream()); });
    return 2.0 * static_cast<double>(bytes) / seconds;
}

/// FLOP per second of a square product.
double product_rate(backend& b, const endless_numbers<backend::scalar>& numbers, int rounds, int size) {
    const auto square = linear_case<backend>(size, 1, size, size, layer_pass::forward);
    const block_row row = run_case(b, numbers, square, 0, rounds);
    return row.flops / row.seconds;
}

} // namespace

bool has_device() { return cuda::device_count() != 0; }

block_report measure_blocks(const block_options& options) {
    block_report report;
    const auto properties = cuda::properties_of(cuda::current_device());
    report.device = properties.name;
    cuda::check(cudaDriverGetVersion(&report.driver), "cudaDriverGetVersion");
    backend b{};
    const endless_numbers<backend::scalar> numbers;
    report.bytes_per_second = copy_rate(b, options.rounds, std::size_t{options.quick ? 1U : 1024U} << 20U);
    report.flops_per_second = product_rate(b, numbers, options.rounds, options.quick ? 64 : 8192);
    const std::size_t cache = options.quick ? 0 : properties.l2_bytes;
    for (const int batch : options.batches) {
        for (const block_place& place : places_of(options.quick)) {
            std::vector<block_case<backend>> cases;
            add_memory_cases(place, batch, cases);
            add_product_cases(place, batch, cases);
            for (const auto& one : cases) {
                if (!options.operations || !options.wants(one.row.operation)) { continue; }
                report.rows.push_back(run_case(b, numbers, one, cache, options.rounds));
            }
        }
        for (const block_layer& l : layers_of(options.quick)) {
            if (!options.layers || !options.wants(l.operation)) { continue; }
            try {
                const auto one =
                    l.is_transformer() ? transformer_case<backend>(l, batch) : resnet_case<backend>(l, batch);
                report.layers.push_back(run_case(b, numbers, one, cache, options.rounds));
            } catch (const std::exception& e) {
                if (!is_out_of_memory(e)) { throw; }
                report.layers.push_back({.operation = l.operation, .shape = l.text(), .batch = batch});
                report.layers.back().failure = "out of memory";
            }
        }
    }
    report.attention = b.attention_report();
    return report;
}

} // namespace pulse_bench
