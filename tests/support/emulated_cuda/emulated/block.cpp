#include <emulated/block.hpp>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include <emulated/fiber.hpp>

namespace emulated_cuda {

namespace {

enum class standing : std::uint8_t { fresh, ready, at_barrier, at_warp, done };

struct thread_state {
    uint3 index{};
    standing now{};
    fiber* on{};
    std::uint32_t warp_calls{}; ///< begun by this thread
};

struct warp_state {
    std::array<std::array<std::array<std::byte, lane_bytes>, warp_size>, 2> values{};
    std::array<warp_call, 2> call{};
    std::array<int, 2> arrived{};
    std::uint32_t finished{}; ///< calls completed by every lane
    int lanes{};
};

std::string place(const uint3& at) {
    return "(" + std::to_string(at.x) + ", " + std::to_string(at.y) + ", " + std::to_string(at.z) + ")";
}

const char* name(warp_call::kind kind) {
    switch (kind) {
    case warp_call::barrier: return "__syncwarp";
    case warp_call::shuffle: return "__shfl_sync";
    case warp_call::shuffle_xor: return "__shfl_xor_sync";
    case warp_call::shuffle_down: return "__shfl_down_sync";
    case warp_call::shuffle_up: return "__shfl_up_sync";
    case warp_call::gather: return "warp_gather";
    }
    return "?";
}

std::string text(const warp_call& call) {
    return std::string(name(call.what)) + " by " + std::to_string(call.amount) + " of width " +
           std::to_string(call.width);
}

/// 0 to n-1, rotated by seed / 2 and, for an odd seed, reversed.
std::vector<int> turned(int n, std::uint64_t seed) {
    std::vector<int> order(static_cast<std::size_t>(n));
    const int first = static_cast<int>(seed / 2 % static_cast<std::uint64_t>(n));
    for (int i = 0; i < n; ++i) { order[static_cast<std::size_t>(i)] = (first + i) % n; }
    if (seed % 2 != 0) { std::ranges::reverse(order); }
    return order;
}

std::uint64_t mixed(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/// The threads of one block, run in turn on the caller's thread.
class block_run {
public:
    block_run(dim3 block, std::size_t shared_bytes, const std::function<void()>& body) :
        size_(block), body_(body), threads_(std::size_t{block.x} * block.y * block.z),
        warps_((threads_.size() + warp_size - 1) / warp_size), shared_bytes_(shared_bytes) {
        if (shared_bytes != 0) {
            void* memory = nullptr;
            if (posix_memalign(&memory, 128, shared_bytes) != 0) { throw std::bad_alloc(); }
            shared_.reset(static_cast<std::byte*>(memory));
        }
        std::size_t t = 0;
        for (unsigned z = 0; z < block.z; ++z) {
            for (unsigned y = 0; y < block.y; ++y) {
                for (unsigned x = 0; x < block.x; ++x) { threads_[t++].index = {x, y, z}; }
            }
        }
        for (std::size_t w = 0; w < warps_.size(); ++w) {
            warps_[w].lanes = static_cast<int>(std::min(threads_.size() - w * warp_size, std::size_t{warp_size}));
        }
    }

    void run(const uint3& at, std::uint64_t seed) {
        at_ = at;
        blockIdx = at;
        if (shared_bytes_ != 0) { std::memset(shared_.get(), 0xff, shared_bytes_); }
        for (thread_state& thread : threads_) {
            thread.now = standing::fresh;
            thread.warp_calls = 0;
        }
        for (warp_state& warp : warps_) {
            warp.finished = 0;
            warp.arrived = {};
        }
        const std::vector<int> warp_order = turned(static_cast<int>(warps_.size()), mixed(seed));
        const std::vector<int> lane_order = turned(warp_size, mixed(seed + 1));
        for (;;) {
            for (const int w : warp_order) { run_warp(static_cast<std::size_t>(w), lane_order); }
            std::size_t ended = 0;
            std::size_t waiting = 0;
            for (const thread_state& thread : threads_) {
                ended += thread.now == standing::done ? 1 : 0;
                waiting += thread.now == standing::at_barrier ? 1 : 0;
            }
            if (ended == threads_.size()) { return; }
            if (waiting != threads_.size()) { fail(stuck()); }
            for (thread_state& thread : threads_) { thread.now = standing::ready; }
        }
    }

    void barrier() {
        thread_state& self = threads_[running_];
        self.now = standing::at_barrier;
        wait(self);
    }

    warp_values exchange(const warp_call& call, const void* bytes, std::size_t size) {
        const std::size_t t = running_;
        thread_state& self = threads_[t];
        warp_state& warp = warps_[t / warp_size];
        const std::uint32_t turn = self.warp_calls++;
        const std::size_t side = turn % 2;
        if (warp.arrived[side] == 0) {
            warp.call[side] = call;
        } else if (!(warp.call[side] == call)) {
            give_up("thread " + place(self.index) + " calls " + text(call) + ", others of its warp " +
                    text(warp.call[side]));
        }
        if (size != 0) { std::memcpy(warp.values[side][t % warp_size].data(), bytes, size); }
        if (++warp.arrived[side] == warp.lanes) {
            warp.arrived[side] = 0;
            warp.finished = turn + 1;
            const std::size_t first = t / warp_size * warp_size;
            for (std::size_t lane = 0; lane < static_cast<std::size_t>(warp.lanes); ++lane) {
                if (first + lane != t) { threads_[first + lane].now = standing::ready; }
            }
        } else {
            self.now = standing::at_warp;
            wait(self);
        }
        return {warp.values[side].data(), warp.lanes};
    }

    /// Called by a running thread: the block cannot continue.
    [[noreturn]] void give_up(const std::string& why) {
        failure_ = why;
        throw abandoned{};
    }

    [[nodiscard]] int lane() const { return static_cast<int>(running_ % warp_size); }
    [[nodiscard]] void* shared() const { return shared_.get(); }

private:
    struct release {
        void operator()(std::byte* memory) const { std::free(memory); }
    };

    /// Thrown to unwind the stack of a thread whose block failed.
    struct abandoned {};

    [[gnu::always_inline]] void wait(const thread_state& self) const {
        self.on->leave();
        if (ending_) { throw abandoned{}; }
    }

    void run_warp(std::size_t w, const std::vector<int>& lane_order) {
        for (bool moved = true; moved;) {
            moved = false;
            for (const int lane : lane_order) {
                if (lane >= warps_[w].lanes) { continue; }
                const std::size_t t = w * warp_size + static_cast<std::size_t>(lane);
                if (threads_[t].now == standing::fresh || threads_[t].now == standing::ready) {
                    go_on(t);
                    moved = true;
                }
            }
        }
    }

    void go_on(std::size_t t) {
        thread_state& thread = threads_[t];
        if (thread.now == standing::fresh) {
            if (idle_.empty()) { idle_.push_back(std::make_unique<fiber>()); }
            fiber* taken = idle_.back().release();
            idle_.pop_back();
            thread.on = taken;
        }
        running_ = t;
        threadIdx = thread.index;
        thread.now = standing::done; // unless it leaves the fiber to wait
        enter(thread);
        if (!failure_.empty()) { fail(failure_); }
    }

    [[gnu::always_inline]] void enter(thread_state& thread) {
        thread.on->enter(
            [](void* self) {
                try {
                    static_cast<block_run*>(self)->body_();
                } catch (const abandoned&) {} // NOLINT(bugprone-empty-catch): the failure is kept
            },
            this);
        if (thread.now == standing::done) {
            idle_.emplace_back(thread.on);
            thread.on = nullptr;
        }
    }

    [[noreturn]] void fail(const std::string& why) {
        ending_ = true;
        for (thread_state& thread : threads_) {
            if (thread.on == nullptr) { continue; }
            thread.now = standing::done;
            enter(thread);
        }
        throw kernel_error("block " + place(at_) + " of " + std::to_string(threads_.size()) + " threads: " + why);
    }

    [[nodiscard]] std::string stuck() const {
        const auto first = [&](standing now) { return std::ranges::find(threads_, now, &thread_state::now); };
        const auto waits = first(standing::at_warp);
        const auto syncs = first(standing::at_barrier);
        const auto ended = first(standing::done);
        std::string why;
        if (waits != threads_.end()) {
            const auto t = static_cast<std::size_t>(waits - threads_.begin());
            why = "thread " + place(waits->index) + " waits at " +
                  text(warps_[t / warp_size].call[(waits->warp_calls + 1) % 2]) + " for lanes that do not come";
        } else {
            why = "thread " + place(syncs->index) + " waits at __syncthreads for threads that do not come";
        }
        if (ended != threads_.end()) { why += ", thread " + place(ended->index) + " has ended"; }
        if (waits != threads_.end() && syncs != threads_.end()) {
            why += ", thread " + place(syncs->index) + " is at __syncthreads";
        }
        return why;
    }

    dim3 size_;
    uint3 at_{};
    const std::function<void()>& body_;
    std::vector<thread_state> threads_;
    std::vector<warp_state> warps_;
    std::size_t shared_bytes_;
    std::unique_ptr<std::byte, release> shared_;
    std::size_t running_{};
    std::string failure_;
    bool ending_{};
    static thread_local std::vector<std::unique_ptr<fiber>> idle_;
};

thread_local std::vector<std::unique_ptr<fiber>> block_run::idle_;

constinit thread_local block_run* current = nullptr;

} // namespace

void block_barrier() { current->barrier(); }

warp_values warp_exchange(const warp_call& call, const void* bytes, std::size_t size) {
    return current->exchange(call, bytes, size);
}

int lane() { return current->lane(); }

void require_full(unsigned mask, const char* call) {
    if (mask != 0xffffffffu) { current->give_up(std::string(call) + " with a partial mask"); }
}

void give_up(const std::string& why) { current->give_up(why); }

void* dynamic_shared() { return current->shared(); }

void run_grid(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& body) {
    static constinit thread_local std::uint64_t launches = 0;
    const std::uint64_t seed = mixed(++launches);
    block_run run(block, shared_bytes, body);
    gridDim = grid;
    blockDim = block;
    struct restore {
        ~restore() { current = nullptr; }
    } const restored;
    current = &run;
    const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
    for (std::uint64_t i = 0; i < blocks; ++i) {
        // every other launch runs its blocks in reverse
        const std::uint64_t b = launches % 2 == 0 ? blocks - 1 - i : i;
        run.run({static_cast<unsigned>(b % grid.x), static_cast<unsigned>(b / grid.x % grid.y),
                 static_cast<unsigned>(b / grid.x / grid.y)},
                seed + 2 * b);
    }
}

} // namespace emulated_cuda
