#pragma once

#include <algorithm>
#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#else
#include <dlfcn.h>
#endif

namespace pulse::host {

/// Makes OpenMP regions that the calling thread enters, oneDNN's among them, use this many threads.
///
/// The number belongs to the calling thread, so ranks that are threads of one process set theirs apart. Without OpenMP in
/// the compiler the runtime that oneDNN brings is asked for; a oneDNN without OpenMP has none and is left alone.
inline void use_threads(int threads) noexcept {
#ifdef _OPENMP
    if (omp_get_max_threads() != threads) { omp_set_num_threads(threads); }
#else
    using function = void (*)(int);
    static const auto set = reinterpret_cast<function>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
    if (set != nullptr) { set(threads); }
#endif
}

/// Calls f(worker, i) for i in [0, n); worker is in [0, threads), one thread each. f must not throw.
///
/// Results do not depend on the number of threads when each i writes its own output. One thread enters no region.
template <class F>
void parallel_for(int threads, std::int64_t n, F&& f) {
#ifdef _OPENMP
    if (threads > 1 && n > 1) {
        const int workers = static_cast<int>(std::min<std::int64_t>(threads, n));
#pragma omp parallel for num_threads(workers) schedule(static, 1)
        for (int worker = 0; worker < workers; ++worker) {
            for (std::int64_t i = n * worker / workers; i != n * (worker + 1) / workers; ++i) { f(worker, i); }
        }
        return;
    }
#else
    static_cast<void>(threads);
#endif
    for (std::int64_t i = 0; i != n; ++i) { f(0, i); }
}

} // namespace pulse::host
