#include <emulated/process_clique.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <stop_token>
#include <thread>

#include <emulated/machine.hpp>

namespace emulated_nccl {

using emulated_cuda::the;
using clock = std::chrono::steady_clock;

std::shared_ptr<process_clique> process_clique::joined(const std::string& folder, int rank, int size) {
    std::shared_ptr<process_clique> made{new process_clique{rank_folder{folder}}};
    made->rank_ = rank;
    made->size_ = size;
    for (int r = 0; r != size; ++r) { made->world_ranks_.push_back(r); }
    return made->folder_.live(came(rank)) ? made : nullptr;
}

std::shared_ptr<process_clique> process_clique::split(int number, int colour, int key) const {
    std::shared_ptr<process_clique> made{new process_clique{folder_}};
    made->rank_ = rank_;
    made->world_ranks_ = world_ranks_;
    made->split_ = name_ + std::to_string(number) + ".";
    const std::string mine = std::to_string(colour) + " " + std::to_string(key);
    return folder_.put(made->split_ + std::to_string(rank_), mine.data(), mine.size()) ? made : nullptr;
}

bool process_clique::complete() {
    if (complete_) { return true; }
    if (split_.empty()) {
        for (const int r : world_ranks_) {
            if (!folder_.has(came(r))) { return false; }
        }
        return complete_ = true;
    }
    std::vector<std::array<int, 3>> said; // colour, key, parent's rank
    for (int r = 0; r != static_cast<int>(world_ranks_.size()); ++r) {
        const std::optional<std::string> one = folder_.get(split_ + std::to_string(r));
        if (!one) { return false; }
        said.push_back({0, 0, r});
        std::istringstream{*one} >> said.back()[0] >> said.back()[1];
    }
    const int colour = said[static_cast<std::size_t>(rank_)][0];
    std::erase_if(said, [&](const auto& one) { return one[0] != colour; });
    std::sort(said.begin(), said.end());
    std::vector<int> ranks;
    int mine = 0;
    for (const auto& one : said) {
        if (one[2] == rank_) { mine = static_cast<int>(ranks.size()); }
        ranks.push_back(world_ranks_[static_cast<std::size_t>(one[2])]);
    }
    name_ = split_ + "c" + std::to_string(colour) + ".";
    rank_ = mine;
    size_ = static_cast<int>(ranks.size());
    world_ranks_ = std::move(ranks);
    return complete_ = true;
}

std::string process_clique::file(bool sends, int peer, std::size_t number, const char* what) const {
    const std::string from = std::to_string(sends ? rank_ : peer);
    const std::string to = std::to_string(sends ? peer : rank_);
    return name_ + "m" + from + "." + to + "." + std::to_string(number) + what;
}

namespace {

std::string room_of(std::size_t bytes, bool registered) {
    return std::to_string(bytes) + (registered ? " registered" : "");
}

} // namespace

bool process_clique::offer_room(int peer, std::size_t number, std::size_t bytes, bool registered) const {
    const std::string room = room_of(bytes, registered);
    return folder_.put(file(false, peer, number, ".room"), room.data(), room.size());
}

process_clique::progress process_clique::move(bool sends, int peer, std::size_t number, void* data, std::size_t bytes,
                                              bool registered) const {
    const std::string room = file(sends, peer, number, ".room");
    const std::string sent = file(sends, peer, number, ".data");
    const std::optional<std::string> found = folder_.get(sends ? room : sent);
    if (!found) { return progress::waits; }
    folder_.remove(sends ? room : sent);
    if (sends) {
        return *found == room_of(bytes, registered) && folder_.put(sent, data, bytes) ? progress::over
                                                                                      : progress::wrong;
    }
    if (found->size() != bytes) { return progress::wrong; }
    std::memcpy(data, found->data(), bytes);
    return progress::over;
}

bool process_clique::died(int peer) {
    const clock::time_point now = clock::now();
    if (now - looked_[peer] < std::chrono::milliseconds{10}) { return false; }
    looked_[peer] = now;
    return folder_.died(came(world_ranks_[static_cast<std::size_t>(peer)]));
}

namespace {

class device_thread {
public:
    device_thread() : thread_{[this](const std::stop_token& stop) { run(stop); }} {}

    void look_at(cudaStream_t stream) { streams_.insert(stream); }

private:
    void run(const std::stop_token& stop) {
        std::chrono::microseconds pause{0};
        while (!stop.stop_requested()) {
            pause = advance() ? std::chrono::microseconds{0} : std::min(2 * pause, longest) + shortest;
            if (pause.count() != 0) { std::this_thread::sleep_for(pause); }
        }
    }
    /// Runs one operation of every stream that is ready; returns whether it ran any.
    bool advance() {
        const std::scoped_lock lock(the().guard);
        std::erase_if(streams_, [](cudaStream_t s) { return !the().streams.contains(s) || s->operations.empty(); });
        bool any = false;
        for (cudaStream_t s : streams_) {
            if (s->operations.empty()) { continue; } // another stream's operation ran it
            emulated_cuda::deferring([&] {
                try {
                    emulated_cuda::run_until(*s, s->completed + 1);
                    any = true;
                } catch (const emulated_cuda::not_ready&) {}
            });
        }
        return any;
    }

    static constexpr std::chrono::microseconds shortest{20};
    static constexpr std::chrono::microseconds longest{200};
    std::set<cudaStream_t> streams_{};
    std::jthread thread_;
};

} // namespace

void let_device_run(cudaStream_t stream) {
    static device_thread instance;
    instance.look_at(stream);
}

} // namespace emulated_nccl
