#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <pulse/launch/process_group.hpp>
#include <pulse/nccl/ranks.cuh>
#include <pulse/plan/rank_grid.hpp>

#include "process.hpp"
#include "run_inputs.hpp"

namespace pulse_train {

namespace {

class nccl_process final : public rank_collectives {
public:
    nccl_process(const arguments& a, pulse::launch::process_group& group) :
        group_{group}, process_{group, a.gpus, "--gpus"} {}

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

    [[nodiscard]] int device() const override { return process_.device(); }
    void run(const run_inputs& in, const std::function<void(pulse::any_transport)>& body) override {
        process_.run({pulse::rank_layout::pipeline_inside, in.plan.pipeline_degree, in.plan.data_degree}, body);
    }

private:
    pulse::launch::process_group& group_;
    pulse::nccl::rank_process process_;
};

std::unique_ptr<rank_collectives> make(const arguments& a, pulse::launch::process_group& group) {
    return std::make_unique<nccl_process>(a, group);
}

const nccl_registration here{make};

} // namespace

} // namespace pulse_train
