#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include <nccl.h>

#include <pulse/core/error.hpp>

namespace pulse::nccl {

/// An NCCL call failed; the text names the call and NCCL's reason.
struct nccl_error : error {
    nccl_error(ncclResult_t result, const char* call, ncclComm_t of = nullptr) :
        error(std::string{call} + ": " + ncclGetErrorString(result) + reason(of)), code{result} {}

    ncclResult_t code;

private:
    [[nodiscard]] static std::string reason(ncclComm_t of) {
        const char* const last = ncclGetLastError(of);
        return last == nullptr || *last == '\0' ? std::string{} : std::string{" ("} + last + ")";
    }
};

/// Throws nccl_error unless the call has succeeded or is in progress.
inline void check(ncclResult_t result, const char* call, ncclComm_t of = nullptr) {
    if (result != ncclSuccess && result != ncclInProgress) { throw nccl_error{result, call, of}; }
}

/// Called repeatedly while the host waits; throws to end the wait.
using patience = std::function<void()>;

/// Waits until a communicator has nothing in progress. Throws nccl_error when it has failed, or what `go_on` throws.
inline void settle(ncclComm_t of, const char* call, const patience& go_on) {
    for (;;) {
        ncclResult_t state = ncclSuccess;
        check(ncclCommGetAsyncError(of, &state), "ncclCommGetAsyncError", of);
        check(state, call, of);
        if (state == ncclSuccess) { return; }
        go_on();
        std::this_thread::sleep_for(std::chrono::microseconds{50});
    }
}

/// A communicator on the calling thread's device that never blocks the host: settle() waits for what is in progress,
/// and it can be aborted at any time.
class communicator {
public:
    communicator() = default;
    /// Collective. `most_blocks` limits the thread blocks of its kernels; 0 leaves that to NCCL.
    communicator(const ncclUniqueId& id, int rank, int size, int most_blocks, const patience& go_on) {
        ncclConfig_t config = configured(most_blocks);
        check(ncclCommInitRankConfig(&handle_, size, id, rank, &config), "ncclCommInitRankConfig", handle_);
        settle_or_abort("ncclCommInitRankConfig", go_on);
    }
    communicator(communicator&& other) noexcept : handle_{std::exchange(other.handle_, nullptr)} {}
    communicator& operator=(communicator&& other) noexcept {
        communicator taken{std::move(other)};
        std::swap(handle_, taken.handle_);
        return *this;
    }
    /// Aborts what is in progress; call close() first to let it finish.
    ~communicator() { abort(); }

    /// Returns a communicator, with resources of its own, of the ranks that pass the same color, ordered by key.
    /// Collective.
    [[nodiscard]] communicator split(int color, int key, int most_blocks, const patience& go_on) {
        ncclConfig_t config = configured(most_blocks);
        communicator made;
        check(ncclCommSplit(handle_, color, key, &made.handle_, &config), "ncclCommSplit", handle_);
        settle(handle_, "ncclCommSplit", go_on);
        made.settle_or_abort("ncclCommSplit", go_on);
        return made;
    }

    [[nodiscard]] ncclComm_t get() const noexcept { return handle_; }
    [[nodiscard]] explicit operator bool() const noexcept { return handle_ != nullptr; }

    /// Its asynchronous state: ncclSuccess, ncclInProgress or an error.
    [[nodiscard]] ncclResult_t state() const noexcept {
        ncclResult_t now = ncclSuccess;
        if (handle_ == nullptr) { return ncclSuccess; }
        const ncclResult_t asked = ncclCommGetAsyncError(handle_, &now);
        return asked == ncclSuccess ? now : asked;
    }
    /// Aborts it on this rank at once; every other rank must do the same. No other thread may be in a call on it.
    void abort() noexcept {
        if (handle_ != nullptr) { static_cast<void>(ncclCommAbort(std::exchange(handle_, nullptr))); }
    }
    /// Collective. Ends it after its work is done. Throws nccl_error or what `go_on` throws; ~communicator then aborts.
    void close(const patience& go_on) {
        if (handle_ == nullptr) { return; }
        check(ncclCommFinalize(handle_), "ncclCommFinalize", handle_);
        settle(handle_, "ncclCommFinalize", go_on);
        check(ncclCommDestroy(std::exchange(handle_, nullptr)), "ncclCommDestroy");
    }

private:
    [[nodiscard]] static ncclConfig_t configured(int most_blocks) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        if (most_blocks > 0) {
            config.minCTAs = 1;
            config.maxCTAs = most_blocks;
        }
        return config;
    }
    void settle_or_abort(const char* call, const patience& go_on) {
        try {
            settle(handle_, call, go_on);
        } catch (...) {
            abort();
            throw;
        }
    }

    ncclComm_t handle_{};
};

} // namespace pulse::nccl
