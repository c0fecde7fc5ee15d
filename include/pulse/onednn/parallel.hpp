#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>

#ifdef _OPENMP
#include <omp.h>
#else
#include <dlfcn.h>
#endif

namespace pulse::onednn {

/// Sets the number of threads of the OpenMP regions that the calling thread enters, including oneDNN's.
///
/// The number belongs to the calling thread, so ranks that are threads of one process set it independently. Without
/// OpenMP in the compiler, the runtime that oneDNN loads is called; if oneDNN has no OpenMP either, nothing is set.
inline void use_threads(int threads) noexcept {
#ifdef _OPENMP
    if (omp_get_max_threads() != threads) { omp_set_num_threads(threads); }
#else
    using function = void (*)(int);
    static const auto set = reinterpret_cast<function>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
    if (set != nullptr) { set(threads); }
#endif
}

/// Calls f(worker, i) for i in [0, n); worker is in [0, threads), one thread each.
///
/// Results do not depend on the number of threads when each i writes its own output. One thread enters no region.
/// Exceptions of f are rethrown once every thread is done, the lowest worker's if there are several. A worker that
/// throws skips its remaining calls.
template <class F>
void parallel_for(int threads, std::int64_t n, F&& f) {
#ifdef _OPENMP
    if (threads > 1 && n > 1) {
        const int workers = static_cast<int>(std::min<std::int64_t>(threads, n));
        std::exception_ptr failure{}; // an exception that leaves an OpenMP region ends the program
        int failed = workers;
#pragma omp parallel for num_threads(workers) schedule(static, 1)
        for (int worker = 0; worker < workers; ++worker) {
            try {
                for (std::int64_t i = n * worker / workers; i != n * (worker + 1) / workers; ++i) { f(worker, i); }
            } catch (...) {
#pragma omp critical(pulse_host_parallel_for)
                if (worker < failed) {
                    failed = worker;
                    failure = std::current_exception();
                }
            }
        }
        if (failure) { std::rethrow_exception(failure); }
        return;
    }
#else
    static_cast<void>(threads);
#endif
    for (std::int64_t i = 0; i != n; ++i) { f(0, i); }
}

} // namespace pulse::onednn
