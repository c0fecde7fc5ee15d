#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/cuda/device.cuh>
#include <pulse/launch/process_group.hpp>
#include <pulse/nccl/shared_device.cuh>
#include <pulse/nccl/transport.cuh>

#include "process.hpp"
#include "run_inputs.hpp"

namespace pulse_train {

namespace {

using nccl_transport = pulse::nccl::transport<pulse::launch::control_plane>;

/// The device of this rank: on its machine every rank has the one of its place. Throws input_error where there are
/// less.
int choose_device(const arguments& a, const pulse::launch::member& self) {
    pulse::cuda::widen_queues();
    const int there = pulse::cuda::device_count();
    if (there == 0) { throw pulse::input_error{"--backend cuda: host " + self.host + " has no CUDA device"}; }
    // Launchers may show every process its own device alone: who has which is compared afterwards.
    if (a.gpus.empty() && there == 1) { return 0; }
    const int devices = a.gpus.empty() ? there : static_cast<int>(a.gpus.size());
    if (self.local_size > devices || self.local_rank >= devices) {
        throw pulse::input_error{"--transport nccl: " + std::to_string(self.local_size) + " ranks on host " +
                                 self.host + ", but " +
                                 (a.gpus.empty() ? "it has " + std::to_string(devices) +
                                                       " CUDA devices; to share them, name each in --gpus as "
                                                       "often as ranks are to have it"
                                                 : "--gpus names " + std::to_string(devices))};
    }
    const int chosen = a.gpus.empty() ? self.local_rank : a.gpus[static_cast<std::size_t>(self.local_rank)];
    if (chosen >= there) {
        throw pulse::input_error{"--gpus: there is no CUDA device " + std::to_string(chosen) + " on host " + self.host +
                                 ", there are " + std::to_string(there)};
    }
    return chosen;
}

/// Whether ranks share a device. Collective; throws input_error on every rank when they do and --gpus did not ask for
/// it.
bool devices_are_shared(const arguments& a, pulse::launch::process_group& group, int device) {
    const auto bytes_of = [](const std::string& text) { return std::as_bytes(std::span{text}); };
    const auto text_of = [](const std::vector<std::byte>& bytes) {
        return std::string{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    };
    const std::string mine = std::to_string(group.self().node) + " " + pulse::cuda::properties_of(device).bus_id;
    std::string verdict;
    std::map<std::string, int> owners;
    const auto all = group.control().gather(bytes_of(mine));
    for (int r = 0; r != static_cast<int>(all.size()); ++r) {
        const auto [owner, alone] = owners.emplace(text_of(all[static_cast<std::size_t>(r)]), r);
        if (alone || !verdict.empty()) { continue; }
        verdict = "ranks " + std::to_string(owner->second) + " and " + std::to_string(r) + " have one CUDA device, " +
                  "that with number " + std::to_string(device) + " on host " +
                  group.table().ranks[static_cast<std::size_t>(r)].host +
                  "; to share it, name it in --gpus as often as ranks are to have it";
    }
    std::vector<std::byte> said(bytes_of(verdict).begin(), bytes_of(verdict).end());
    group.control().broadcast(said);
    if (!said.empty() && a.gpus.empty()) { throw pulse::input_error{"--transport nccl: " + text_of(said)}; }
    return !said.empty();
}

class nccl_process final : public rank_collectives {
public:
    nccl_process(const arguments& a, pulse::launch::process_group& group) :
        group_{group}, device_{choose_device(a, group.self())}, shares_{devices_are_shared(a, group, device_)},
        timeout_{group.timeout()} {
        // before anything of CUDA makes a context on another
        pulse::cuda::select_device(device_);
        if (shares_) { pulse::nccl::share_devices(rank(), group.table().one_machine()); }
    }

    [[nodiscard]] int rank() const override { return group_.who().rank; }
    [[nodiscard]] int size() const override { return group_.who().world_size; }
    void sum(std::span<double> values) override { group_.control().sum(values); }
    [[nodiscard]] std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine) override {
        return group_.control().gather(mine);
    }
    void broadcast(std::vector<std::byte>& bytes) override { group_.control().broadcast(bytes); }
    void fail(std::string_view what) noexcept override {
        group_.seen().fail(what);
        group_.control().fail(what);
    }
    void leave() override { group_.control().sum({}); }

    [[nodiscard]] int device() const override { return device_; }
    void run(const run_inputs& in, const std::function<void(pulse::any_transport)>& body) override {
        if (in.ranks() != size()) {
            throw pulse::input_error{"the plan is for " + std::to_string(in.plan.pipeline_degree) + " x " +
                                     std::to_string(in.plan.data_degree) +
                                     " ranks (pipeline_degree x data_degree), there are " + std::to_string(size())};
        }
        nccl_transport world{
            group_.control(),
            {pulse::rank_layout::pipeline_inside, in.plan.pipeline_degree, in.plan.data_degree},
            {.device = device_, .timeout = timeout_, .seen = &group_.seen(), .most_blocks = shares_ ? 4 : 0}};
        try {
            body(world);
        } catch (const std::exception& e) {
            world.fail("rank " + std::to_string(rank()) + ": " + e.what());
            throw;
        }
    }

private:
    pulse::launch::process_group& group_;
    int device_;
    bool shares_;
    std::chrono::milliseconds timeout_;
};

std::unique_ptr<rank_collectives> make(const arguments& a, pulse::launch::process_group& group) {
    return std::make_unique<nccl_process>(a, group);
}

const nccl_registration here{make};

} // namespace

} // namespace pulse_train
