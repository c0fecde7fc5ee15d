#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <pulse/cuda/device.cuh>
#include <pulse/cuda/error.cuh>
#include <pulse/cuda/event.cuh>
#include <pulse/cuda/memory.cuh>

#include "blocks.hpp"
#include "statistics.hpp"

namespace pulse_bench {

/// Whether this error, or one nested in it, means that device memory ran out.
[[nodiscard]] inline bool is_out_of_memory(const std::exception& e) {
    const auto* of_device = dynamic_cast<const pulse::cuda::cuda_error*>(&e);
    if (of_device != nullptr && of_device->code == cudaErrorMemoryAllocation) { return true; }
    try {
        std::rethrow_if_nested(e);
    } catch (const std::exception& inner) { return is_out_of_memory(inner); }
    return false;
}

/// The numbers of every tensor of the bench: a fixed block, repeated from some offset, so that the host knows each
/// number without reading it back.
template <class T>
class endless_numbers {
public:
    endless_numbers() : host_(period), device_(period) {
        std::vector<T> raw(period);
        std::uint64_t state = 88172645463325252U;
        for (std::size_t i = 0; i != period; ++i) {
            double sum = -2.0; // of four uniform numbers: variance 1/3
            for (int k = 0; k != 4; ++k) {
                state ^= state << 13U;
                state ^= state >> 7U;
                state ^= state << 17U;
                sum += static_cast<double>(state >> 40U) / (1 << 24);
            }
            raw[i] = static_cast<T>(static_cast<float>(1.732 * sum));
            host_[i] = static_cast<double>(static_cast<float>(raw[i]));
        }
        pulse::cuda::upload(raw.data(), device_.data(), period);
    }

    /// Number i of tensor `which`.
    [[nodiscard]] double operator()(std::size_t which, std::int64_t i) const {
        return host_[(static_cast<std::size_t>(i) + which * phase) % period];
    }
    void fill(std::size_t which, std::size_t n, T* to, cudaStream_t stream) const {
        for (std::size_t at = 0; at != n;) {
            const std::size_t from = (at + which * phase) % period;
            const std::size_t some = std::min(n - at, period - from);
            pulse::cuda::copy_async(to + at, device_.data() + from, some, stream);
            at += some;
        }
    }

private:
    static constexpr std::size_t period = 4000037;
    static constexpr std::size_t phase = 123457;
    std::vector<double> host_;
    pulse::cuda::device_memory<T> device_;
};

/// Counts the numbers that are further from the wanted ones than rounding explains.
struct tally {
    std::int64_t checked{};
    std::int64_t wrong{};
    std::vector<agreed_number> agreed{}; ///< numbers of a layer to compare

    /// `slack` is the absolute error allowed to the arithmetic, `rounding` the relative error of the last rounding.
    void compare(double got, double wanted, double rounding, double slack) {
        ++checked;
        wrong += std::abs(got - wanted) <= 1.01 * rounding * std::abs(wanted) + slack ? 0 : 1;
    }
};

/// Tensors of one run: `in` holds the inputs, the operation writes `out` and `sums`.
template <class T>
struct block_tensors {
    std::vector<pulse::cuda::device_memory<T>> in{};
    std::vector<pulse::cuda::device_memory<T>> out{};
    std::vector<pulse::cuda::device_memory<float>> sums{};
};

/// Results of a trial on the host.
template <class T>
struct block_results {
    const endless_numbers<T>& numbers;
    std::vector<std::vector<T>> out{};
    std::vector<std::vector<float>> sums{};

    [[nodiscard]] double in(std::size_t which, std::int64_t i) const { return numbers(which, i); }
    [[nodiscard]] double got(std::size_t which, std::int64_t i) const {
        return static_cast<double>(static_cast<float>(out[which][static_cast<std::size_t>(i)]));
    }
    [[nodiscard]] double sum(std::size_t which, std::int64_t i) const {
        return static_cast<double>(sums[which][static_cast<std::size_t>(i)]);
    }
    /// n numbers of tensor `which`, number i from at(i).
    template <class At>
    [[nodiscard]] std::vector<double> gather(std::size_t which, std::int64_t n, At at) const {
        std::vector<double> made(static_cast<std::size_t>(n));
        for (std::int64_t i = 0; i != n; ++i) { made[static_cast<std::size_t>(i)] = in(which, at(i)); }
        return made;
    }
};

/// An operation at a shape: which tensors it takes, how it is run and how a sample of its results is checked.
template <class B>
struct block_case {
    using T = typename B::scalar;

    block_row row{};
    std::vector<std::int64_t> in{};
    std::vector<std::int64_t> out{};
    std::vector<std::int64_t> sums{};                           ///< of float, zeroed before the run
    std::function<void(B&, const block_tensors<T>&)> prepare{}; ///< empty: nothing
    std::function<void(B&, const block_tensors<T>&)> run{};
    /// Empty, or makes the library call that does the same work and no more.
    std::function<std::function<void(const block_tensors<T>&)>(cudaStream_t, const block_tensors<T>&)> library{};
    bool library_gives_the_same{}; ///< on the same tensors; otherwise it takes weights in another order
    std::function<void(const block_results<T>&, tally&)> check{};
};

/// Seconds of one run, median and spread over `rounds`: all runs, work(0) to work(runs - 1), are captured in one graph,
/// so that the host is not measured.
template <class Work>
[[nodiscard]] std::pair<double, double> time_in_graph(cudaStream_t stream, int runs, int rounds, const Work& work) {
    namespace cuda = pulse::cuda;
    cudaGraph_t graph{};
    cudaGraphExec_t exec{};
    cuda::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    try {
        for (int i = 0; i != runs; ++i) { work(i); }
    } catch (...) {
        static_cast<void>(cudaStreamEndCapture(stream, &graph));
        throw;
    }
    cuda::check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    cuda::check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
    cuda::check(cudaGraphDestroy(graph), "cudaGraphDestroy");
    cuda::event begin{cuda::timing::on};
    cuda::event end{cuda::timing::on};
    std::vector<double> seconds;
    for (int round = -2; round != rounds; ++round) {
        begin.record(stream);
        cuda::check(cudaGraphLaunch(exec, stream), "cudaGraphLaunch");
        end.record(stream);
        end.synchronize();
        if (round >= 0) { seconds.push_back(cuda::seconds_between(begin, end) / runs); }
    }
    cuda::check(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
    return {median(seconds), spread(seconds)};
}

/// Times a case on tensors that fill a cache of `cache_bytes` three times, so that none stays in it, and checks it.
template <class B>
[[nodiscard]] block_row run_case(B& b, const endless_numbers<typename B::scalar>& numbers, const block_case<B>& of,
                                 std::size_t cache_bytes, int rounds) {
    using T = typename B::scalar;
    namespace cuda = pulse::cuda;
    std::size_t bytes = 0;
    for (const auto& n : of.in) { bytes += sizeof(T) * static_cast<std::size_t>(n); }
    for (const auto& n : of.out) { bytes += sizeof(T) * static_cast<std::size_t>(n); }
    for (const auto& n : of.sums) { bytes += sizeof(float) * static_cast<std::size_t>(n); }
    const auto sets = static_cast<int>(std::clamp<std::size_t>(3 * cache_bytes / bytes + 1, 2, 4096));
    std::vector<block_tensors<T>> tensors(static_cast<std::size_t>(sets));
    const auto clear_sums = [&](const block_tensors<T>& set) {
        for (const auto& s : set.sums) { cuda::fill_bytes_async(s.data(), 0, s.size(), b.stream()); }
    };
    for (block_tensors<T>& set : tensors) {
        for (std::size_t i = 0; i != of.in.size(); ++i) {
            set.in.emplace_back(static_cast<std::size_t>(of.in[i]));
            numbers.fill(i, set.in[i].size(), set.in[i].data(), b.stream());
        }
        for (const auto& n : of.out) {
            set.out.emplace_back(static_cast<std::size_t>(n));
            cuda::fill_bytes_async(set.out.back().data(), 0xff, set.out.back().size(), b.stream());
        }
        for (const auto& n : of.sums) { set.sums.emplace_back(static_cast<std::size_t>(n)); }
        clear_sums(set);
        if (of.prepare) { of.prepare(b, set); }
        of.run(b, set); // chooses plans, grows the scratch
    }
    b.synchronize();
    block_row row = of.row;
    std::tie(row.seconds, row.spread_percent) =
        time_in_graph(b.stream(), sets, rounds, [&](int i) { of.run(b, tensors[static_cast<std::size_t>(i)]); });
    const block_tensors<T>& set = tensors.front();
    tally found;
    const auto check_once = [&](const auto& run) {
        for (const auto& o : set.out) { cuda::fill_bytes_async(o.data(), 0xff, o.size(), b.stream()); }
        clear_sums(set);
        if (of.prepare) { of.prepare(b, set); }
        run();
        b.synchronize();
        block_results<T> results{numbers};
        for (const auto& o : set.out) {
            results.out.emplace_back(o.size());
            cuda::download<T>(o.data(), results.out.back().data(), o.size());
        }
        for (const auto& sum : set.sums) {
            results.sums.emplace_back(sum.size());
            cuda::download<float>(sum.data(), results.sums.back().data(), sum.size());
        }
        of.check(results, found);
    };
    check_once([&] { of.run(b, set); });
    if (of.library) {
        const auto alone = of.library(b.stream(), set);
        for (const block_tensors<T>& each : tensors) { alone(each); }
        b.synchronize();
        row.library_seconds =
            time_in_graph(b.stream(), sets, rounds, [&](int i) { alone(tensors[static_cast<std::size_t>(i)]); }).first;
        if (of.library_gives_the_same) {
            check_once([&] { alone(set); });
        }
    }
    row.checked = found.checked;
    row.wrong = found.wrong;
    row.agreed = found.agreed;
    return row;
}

} // namespace pulse_bench
