#include <emulated/nccl.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <nccl.h>

#include <emulated/machine.hpp>
#include <emulated/process_clique.hpp>
#include <emulated/rank_folder.hpp>

namespace emulated_nccl {
namespace {

using emulated_cuda::refuse;
using emulated_cuda::the;

struct group;

/// One side of a message.
struct side {
    group* of{};
    void* data{};
    std::size_t bytes{};
    std::size_t round{}; ///< within its group
    bool registered{};   ///< with its communicator
    bool over{};
};

/// What the ranks of a communicator share.
struct clique {
    int size{};
    std::set<int> came{};
    /// Keyed by sender and receiver.
    std::map<std::pair<int, int>, std::vector<std::shared_ptr<side>>> sent{};
    std::map<std::pair<int, int>, std::vector<std::shared_ptr<side>>> received{};
};

struct message {
    bool sends{};
    int peer{};
    std::size_t number{}; ///< within its pair of ranks
    std::shared_ptr<side> mine{};
    bool has_room{}; ///< the room was offered to the sender
};

struct group {
    ncclComm_t with{};
    std::shared_ptr<clique> among{};
    std::shared_ptr<process_clique> between{}; ///< used instead if ranks are processes
    std::shared_ptr<bool> aborted{};
    cudaStream_t stream{};
    std::uint64_t position{}; ///< in its stream
    int rank{};
    bool started{};
    std::size_t round{}; ///< in progress
    bool moving{};
    std::vector<message> messages{};

    /// Starts the next round; returns whether there is one.
    [[nodiscard]] bool next_round() {
        ++round;
        return std::ranges::any_of(messages, [&](const message& m) { return m.mine->round == round; });
    }
};

} // namespace
} // namespace emulated_nccl

struct ncclComm {
    int rank{};
    std::shared_ptr<emulated_nccl::clique> among{};
    std::shared_ptr<emulated_nccl::process_clique> between{}; ///< used instead if ranks are processes
    std::shared_ptr<bool> aborted{std::make_shared<bool>(false)};
    int splits{};
    ncclResult_t failed{ncclSuccess};
    /// Set by a split that not every rank has joined: the other members are not known yet.
    std::map<int, std::tuple<int, int, ncclComm_t>>* partners{};
    int partners_needed{};
};

namespace emulated_nccl {
namespace {

/// Memory registered with a communicator.
struct registration {
    ncclComm_t with{};
    const std::byte* data{};
    std::size_t bytes{};
};

struct state {
    std::map<std::string, std::shared_ptr<clique>> cliques{};
    /// By parent and number of the split: colour, key and new communicator of every parent rank.
    std::map<std::pair<clique*, int>, std::map<int, std::tuple<int, int, ncclComm_t>>> splits{};
    std::set<ncclComm_t> alive{};
    std::map<void*, registration> handles{};
    std::uintptr_t last_handle{};
    std::vector<std::shared_ptr<group>> groups{};
    int ids{};
    int many{};
    std::map<int, int> by_ranks{}; ///< groups by the size of their communicator
    int hung_aborts{};
    int good_groups{-1};
    bool memory{true};
};
state& all() {
    static state instance;
    return instance;
}

thread_local int depth = 0;
thread_local std::vector<std::pair<ncclComm_t, std::shared_ptr<group>>> open;
thread_local cudaStream_t stream_of_open = nullptr;

bool is_registered(ncclComm_t comm, const void* data, std::size_t bytes) {
    const auto* const first = static_cast<const std::byte*>(data);
    return std::ranges::any_of(all().handles, [&](const auto& known) {
        const registration& r = known.second;
        return r.with == comm && first >= r.data && first + bytes <= r.data + r.bytes;
    });
}

/// Whether every rank has joined the communicator.
bool complete(ncclComm_t comm) {
    if (comm->between) { return comm->between->complete(); }
    if (comm->partners != nullptr) {
        if (static_cast<int>(comm->partners->size()) != comm->partners_needed) { return false; }
        std::vector<std::tuple<int, int, ncclComm_t>> mine; // key, parent's rank
        int colour = -1;
        for (const auto& [rank, of] : *comm->partners) {
            if (std::get<2>(of) == comm) { colour = std::get<0>(of); }
        }
        for (const auto& [rank, of] : *comm->partners) {
            if (std::get<0>(of) == colour) { mine.emplace_back(std::get<1>(of), rank, std::get<2>(of)); }
        }
        std::sort(mine.begin(), mine.end());
        const auto together = std::make_shared<clique>();
        together->size = static_cast<int>(mine.size());
        for (int r = 0; r != together->size; ++r) {
            ncclComm_t one = std::get<2>(mine[static_cast<std::size_t>(r)]);
            one->partners = nullptr;
            one->rank = r;
            one->among = together;
            together->came.insert(r);
        }
    }
    return static_cast<int>(comm->among->came.size()) == comm->among->size;
}
/// Requires a complete communicator.
int ranks_of(ncclComm_t comm) { return comm->between ? comm->between->size() : comm->among->size; }

/// Runs a group whose ranks are processes.
void run_between(group& g) {
    do {
        bool over = true;
        for (message& m : g.messages) {
            side& mine = *m.mine;
            if (mine.over || mine.round != g.round) { continue; }
            if (!m.sends && !m.has_room) {
                if (!g.between->offer_room(m.peer, m.number, mine.bytes, mine.registered)) { refuse(cudaErrorUnknown); }
                m.has_room = true;
            }
            const auto now = g.between->move(m.sends, m.peer, m.number, mine.data, mine.bytes, mine.registered);
            if (now == process_clique::progress::wrong) { refuse(cudaErrorInvalidValue); }
            mine.over = now == process_clique::progress::over;
            over = over && mine.over;
            if (!mine.over && g.between->died(m.peer) && all().alive.contains(g.with)) {
                g.with->failed = ncclRemoteError;
            }
        }
        if (!over) { throw emulated_cuda::not_ready{}; }
    } while (g.next_round());
}

/// Advances a started group to its round `last`, or to its end.
void move(group& g, std::size_t last) {
    if (g.moving) { throw emulated_cuda::not_ready{}; } // a circular wait
    struct while_moving {
        group& of;
        explicit while_moving(group& g) : of{g} { of.moving = true; }
        ~while_moving() { of.moving = false; }
    };
    const while_moving now{g};
    while (g.round != last) {
        for (message& m : g.messages) {
            if (m.mine->over || m.mine->round != g.round) { continue; }
            auto& others = m.sends ? g.among->received : g.among->sent;
            const auto pair = m.sends ? std::pair{g.rank, m.peer} : std::pair{m.peer, g.rank};
            const auto at = others.find(pair);
            if (at == others.end() || at->second.size() <= m.number) { throw emulated_cuda::not_ready{}; }
            side& theirs = *at->second[m.number];
            if (theirs.of->stream == nullptr || *theirs.of->aborted) {
                throw emulated_cuda::not_ready{};
            } // its group has not ended, or never goes on
            if (!theirs.of->started) {
                emulated_cuda::run_until(emulated_cuda::stream_of(theirs.of->stream), theirs.of->position - 1);
                theirs.of->started = true;
            }
            if (theirs.of->round < theirs.round) { move(*theirs.of, theirs.round); }
            side& out = m.sends ? *m.mine : theirs;
            side& in = m.sends ? theirs : *m.mine;
            if (out.bytes != in.bytes || out.registered != in.registered) { refuse(cudaErrorInvalidValue); }
            std::memcpy(in.data, out.data, out.bytes);
            in.over = out.over = true;
        }
        if (!g.next_round()) { return; }
    }
}

/// The group's operation in its stream.
void run(group& g) {
    if (*g.aborted) { return; }
    if (g.between) { return run_between(g); }
    g.started = true;
    move(g, g.messages.size());
}

ncclResult_t add(bool sends, void* data, std::size_t bytes, int peer, ncclComm_t comm, cudaStream_t stream) {
    const std::scoped_lock lock(the().guard);
    if (depth == 0 || !all().alive.contains(comm) || !complete(comm)) { return ncclInvalidUsage; }
    const int me = comm->between ? comm->between->rank() : comm->rank;
    if (peer < 0 || peer >= ranks_of(comm) || peer == me) { return ncclInvalidArgument; }
    if (emulated_cuda::allocation_of(data, bytes) == nullptr) { return ncclInvalidArgument; }
    if (open.empty() || open.back().first != comm) {
        if (!open.empty()) { return ncclInvalidUsage; } // emulated groups have a single communicator
        open.emplace_back(comm, std::make_shared<group>());
    }
    group& g = *open.back().second;
    g.with = comm;
    g.among = comm->among;
    g.aborted = comm->aborted;
    g.between = comm->between;
    g.rank = me;
    const auto before =
        std::ranges::count_if(g.messages, [&](const message& m) { return m.sends == sends && m.peer == peer; });
    const auto mine = std::make_shared<side>(
        side{&g, data, bytes, static_cast<std::size_t>(before), is_registered(comm, data, bytes), false});
    if (comm->between) {
        g.messages.push_back({sends, peer, comm->between->next(sends, peer), mine});
    } else {
        auto& queue = sends ? comm->among->sent[{me, peer}] : comm->among->received[{peer, me}];
        queue.push_back(mine);
        g.messages.push_back({sends, peer, queue.size() - 1, mine});
    }
    if (g.messages.size() == 1) { stream_of_open = stream; }
    return stream_of_open == stream ? ncclSuccess : ncclInvalidUsage;
}

/// How long an abort waits for its streams before it reports a hang.
constexpr std::chrono::seconds abort_limit{10};

/// Runs the streams of a communicator's groups up to its last group; returns whether that was possible.
bool groups_are_over(const bool& aborted) {
    for (const auto& g : all().groups) {
        if (g->aborted.get() != &aborted || !the().streams.contains(g->stream)) { continue; }
        try {
            emulated_cuda::deferring([&] { emulated_cuda::run_until(*g->stream, g->position); });
        } catch (const emulated_cuda::not_ready&) { return false; }
    }
    return true;
}

} // namespace

void fail_group_after(int groups) {
    const std::scoped_lock lock(the().guard);
    all().good_groups = groups;
}
int registered_blocks() {
    const std::scoped_lock lock(the().guard);
    return static_cast<int>(all().handles.size());
}
int communicators() {
    const std::scoped_lock lock(the().guard);
    return static_cast<int>(all().alive.size());
}
int groups_of_many() {
    const std::scoped_lock lock(the().guard);
    return all().many;
}
int groups_among(int ranks) {
    const std::scoped_lock lock(the().guard);
    return all().by_ranks[ranks];
}
int hung_aborts() {
    const std::scoped_lock lock(the().guard);
    return all().hung_aborts;
}
void allow_memory(bool allowed) {
    const std::scoped_lock lock(the().guard);
    all().memory = allowed;
}

} // namespace emulated_nccl

using namespace emulated_nccl;

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    const std::scoped_lock lock(the().guard);
    std::memset(id, 0, sizeof *id);
    const char* const folder = std::getenv("PULSE_EMULATED_NCCL");
    const std::string name =
        folder != nullptr ? rank_folder::made_below(folder) : "clique " + std::to_string(++all().ids);
    if (name.empty() || name.size() >= sizeof id->internal) { return ncclSystemError; }
    std::memcpy(id->internal, name.data(), name.size());
    return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
    const std::scoped_lock lock(the().guard);
    if (config->blocking != 0 || rank < 0 || rank >= size) { return ncclInvalidArgument; }
    auto made = std::make_unique<ncclComm>();
    made->rank = rank;
    if (id.internal[0] == '/') {
        made->between = process_clique::joined(id.internal, rank, size);
        if (!made->between) { return ncclInvalidUsage; }
    } else {
        auto& among = all().cliques[id.internal];
        if (!among) { among = std::make_shared<clique>(); }
        if (among->size != 0 && among->size != size) { return ncclInvalidArgument; }
        among->size = size;
        if (!among->came.insert(rank).second) { return ncclInvalidUsage; }
        made->among = among;
    }
    *comm = made.get();
    all().alive.insert(made.release());
    return ncclInProgress;
}
ncclResult_t ncclCommSplit(ncclComm_t parent, int colour, int key, ncclComm_t* made, ncclConfig_t* config) {
    const std::scoped_lock lock(the().guard);
    if (!all().alive.contains(parent) || !complete(parent) || config->blocking != 0) { return ncclInvalidUsage; }
    auto comm = std::make_unique<ncclComm>();
    if (parent->between) {
        comm->between = parent->between->split(parent->splits++, colour, key);
        if (!comm->between) { return ncclSystemError; }
    } else {
        auto& partners = all().splits[{parent->among.get(), parent->splits++}];
        comm->partners = &partners;
        comm->partners_needed = parent->among->size;
        partners[parent->rank] = {colour, key, comm.get()};
    }
    *made = comm.get();
    all().alive.insert(comm.release());
    return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
    const std::scoped_lock lock(the().guard);
    if (!all().alive.contains(comm)) { return ncclInvalidArgument; }
    *state = comm->failed != ncclSuccess ? comm->failed : complete(comm) ? ncclSuccess : ncclInProgress;
    return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    const std::scoped_lock lock(the().guard);
    return all().alive.contains(comm) ? ncclSuccess : ncclInvalidArgument;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    const std::scoped_lock lock(the().guard);
    if (all().alive.erase(comm) == 0) { return ncclInvalidArgument; }
    delete comm;
    return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    std::unique_lock lock(the().guard);
    if (all().alive.erase(comm) == 0) { return ncclInvalidArgument; }
    *comm->aborted = true;
    const auto end = std::chrono::steady_clock::now() + abort_limit;
    while (!groups_are_over(*comm->aborted)) {
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds{50});
        lock.lock();
        if (std::chrono::steady_clock::now() > end) {
            ++all().hung_aborts;
            return ncclInternalError;
        }
    }
    std::erase_if(all().handles, [&](const auto& registered) { return registered.second.with == comm; });
    if (comm->partners != nullptr) {
        for (auto& [rank, of] : *comm->partners) {
            if (std::get<2>(of) == comm) { std::get<0>(of) = -2; } // matches no other rank's colour
        }
    }
    delete comm;
    return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
    return result == ncclSuccess ? "no error" : result == ncclRemoteError ? "remote error" : "an error of NCCL";
}
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGroupStart() {
    ++depth;
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
    if (--depth != 0) { return depth < 0 ? ncclInvalidUsage : ncclSuccess; }
    const std::scoped_lock lock(the().guard);
    for (auto& [comm, g] : open) {
        all().groups.push_back(g); // messages point into it
        if (all().good_groups >= 0 && all().good_groups-- == 0) {
            comm->failed = ncclRemoteError;
            open.clear();
            return ncclRemoteError;
        }
        all().many += g->messages.size() > 1 ? 1 : 0;
        ++all().by_ranks[ranks_of(comm)];
        g->stream = stream_of_open;
        emulated_cuda::enqueue(emulated_cuda::stream_of(g->stream), [g = g] { run(*g); });
        g->position = emulated_cuda::stream_of(g->stream).issued;
        emulated_cuda::stream_of(g->stream).last_message = g->position;
        if (g->between) { let_device_run(g->stream); }
    }
    open.clear();
    return ncclSuccess;
}
ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    if (type != ncclUint8) { return ncclInvalidArgument; }
    return add(true, const_cast<void*>(data), count, peer, comm, stream);
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    if (type != ncclUint8) { return ncclInvalidArgument; }
    return add(false, data, count, peer, comm, stream);
}

ncclResult_t ncclMemAlloc(void** data, size_t bytes) {
    if (!all().memory) { return ncclUnhandledCudaError; }
    return cudaMalloc(data, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclMemFree(void* data) { return cudaFree(data) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError; }
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* data, size_t bytes, void** handle) {
    const std::scoped_lock lock(the().guard);
    if (!all().alive.contains(comm) || emulated_cuda::allocation_of(data, bytes) == nullptr) {
        return ncclInvalidArgument;
    }
    *handle = reinterpret_cast<void*>(++all().last_handle);
    all().handles.emplace(*handle, registration{comm, static_cast<const std::byte*>(data), bytes});
    return ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
    const std::scoped_lock lock(the().guard);
    if (!all().alive.contains(comm) || all().handles.erase(handle) == 0) { return ncclInvalidArgument; }
    return ncclSuccess;
}

} // extern "C"
