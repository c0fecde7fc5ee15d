#include "request.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/hardware/json.hpp>
#include <pulse/hardware/link.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/profile/json.hpp>
#include <pulse/tune/scaled_costs.hpp>

#include "catalogue.hpp"

namespace pulse_plan {

namespace {

/// 16-bit weights and gradients, and in 32 bits the weights and AdamW's two moments: 16 bytes for each parameter.
constexpr int scalar_bytes = 2;
constexpr int copies_of_16_bit = 8;
/// 32-bit weights, gradients and the two moments, in a profile whose parameters are 32-bit.
constexpr int copies_of_32_bit = 4;

[[noreturn]] void refuse(const std::string& why) { throw pulse::input_error(why); }

/// What joins devices of one node where no cluster says it: the link that the device is usually sold with.
struct usual_link {
    std::string_view device;
    std::string_view name;
    pulse::link between;
};
constexpr std::array usual_links{usual_link{"v100-16gb", "two NVLinks 2", pulse::nvlink2_pair},
                                 usual_link{"v100-32gb", "two NVLinks 2", pulse::nvlink2_pair},
                                 usual_link{"a100-80gb", "NVLink 3", pulse::nvlink3},
                                 usual_link{"h100-80gb", "NVLink 4", pulse::nvlink4},
                                 usual_link{"h200", "NVLink 4", pulse::nvlink4},
                                 usual_link{"ascend-910a", "HCCS", pulse::hccs}};

pulse::cluster assumed_cluster(int devices, const pulse::device* device, std::vector<std::string>& assumptions) {
    std::string_view name = "PCIe 4.0 x16";
    pulse::link between = pulse::pcie4_x16;
    for (const usual_link& usual : usual_links) {
        if (device != nullptr && usual.device == device->name.view()) {
            name = usual.name;
            between = usual.between;
        }
    }
    pulse::cluster machine{};
    machine.nodes = 1;
    machine.devices_per_node = devices;
    machine.memory_bytes = device == nullptr ? 0 : device->memory_bytes;
    machine.intra_node = between;
    assumptions.emplace_back("one node, every two devices joined by " + std::string{name} +
                             " (--cluster says otherwise)");
    if (machine.memory_bytes == 0) {
        assumptions.emplace_back("memory without limit (--memory-limit or --cluster says otherwise)");
    }
    return machine;
}

/// Degrees that were given must multiply to the devices and to the batch.
void require_products(const arguments& a) {
    const auto is = [](std::int64_t product, std::int64_t whole) { return product == whole; };
    if (a.pipeline && a.data && !is(std::int64_t{*a.pipeline} * *a.data, a.devices)) {
        refuse("--pipeline x --data is " + std::to_string(std::int64_t{*a.pipeline} * *a.data) + ", not the " +
               std::to_string(a.devices) + " of --devices");
    }
    if (a.pipeline && a.devices % *a.pipeline != 0) {
        refuse("--pipeline: " + std::to_string(*a.pipeline) + " does not divide the " + std::to_string(a.devices) +
               " of --devices");
    }
    if (a.data && a.devices % *a.data != 0) {
        refuse("--data: " + std::to_string(*a.data) + " does not divide the " + std::to_string(a.devices) +
               " of --devices");
    }
    const std::optional<int> data = a.data       ? a.data
                                    : a.pipeline ? std::optional{a.devices / *a.pipeline}
                                                 : std::nullopt;
    std::int64_t product = data.value_or(1);
    std::string names = data ? "the data degree" : "";
    const auto factor = [&](const std::optional<int>& value, const char* name) {
        if (!value) { return; }
        product *= *value;
        names += (names.empty() ? "" : " x ") + std::string{name};
    };
    factor(a.microbatch_size, "--microbatch-size");
    factor(a.microbatches, "--microbatches");
    const bool complete = data && a.microbatch_size && a.microbatches;
    if (complete ? product != a.global_batch : a.global_batch % product != 0) {
        refuse(names + " is " + std::to_string(product) + ", which " + (complete ? "is not" : "does not divide") +
               " the " + std::to_string(a.global_batch) + " of --global-batch");
    }
}

} // namespace

request make_request(const arguments& a) {
    require_products(a);
    request made;
    const pulse::device* device = nullptr;
    if (!a.profile.empty()) {
        const pulse::cost_table costs = pulse::load_profile(a.profile);
        device = pulse::find_device(costs.device.view());
        for (const pulse::layer_cost& layer : costs.layers) { made.parameter_bytes += layer.parameter_bytes; }
        made.options.parameter_copies = copies_of_32_bit; // scalars and gradients of 32 bits, the options' own
        const int size = a.microbatch_size.value_or(costs.microbatch_size);
        made.options.microbatch_sizes = {size};
        if (!a.microbatch_size) {
            made.assumptions.emplace_back("microbatches of " + std::to_string(size) +
                                          ", the profile's (--microbatch-size says otherwise)");
        }
        if (size != costs.microbatch_size) {
            made.assumptions.emplace_back("times and bytes in proportion to the microbatch size; the profile's is " +
                                          std::to_string(costs.microbatch_size));
        }
        made.costs_of = [costs](int samples) { return pulse::scaled_costs(costs, samples); };
    } else {
        const backbone model = backbone_of(a.model);
        device = pulse::find_device(a.device);
        if (device == nullptr) { refuse("--device: '" + a.device + "' is not known"); }
        if (device->tflops_16 == 0) { refuse("--device: no 16-bit rate of " + a.device + " is known"); }
        made.parameters = model.parameters;
        made.parameter_bytes = model.parameters * scalar_bytes;
        made.options.parameter_copies = copies_of_16_bit;
        made.options.scalar_bytes = made.options.gradient_bytes = scalar_bytes;
        if (a.microbatch_size) { made.options.microbatch_sizes = {*a.microbatch_size}; }
        made.costs_of = [graph = model.graph, device](int samples) {
            return pulse::analytic_costs(graph, *device, samples, scalar_bytes);
        };
    }
    if (a.cluster.empty()) {
        made.machine = assumed_cluster(a.devices, device, made.assumptions);
    } else {
        made.machine = pulse::load_cluster(a.cluster);
        if (made.machine.devices() < a.devices) {
            refuse("--devices: " + std::to_string(a.devices) + ", but " + a.cluster + " has " +
                   std::to_string(made.machine.devices()));
        }
    }

    pulse::tune_options& options = made.options;
    options.global_batch = a.global_batch;
    options.devices = a.devices;
    if (device == nullptr) {
        made.assumptions.emplace_back("the optimizer takes no time: the profile's device is not known");
    } else {
        options.memory_gb_per_s = device->memory_gb_per_s * device->efficiency;
    }
    options.memory_limit_bytes = a.memory_limit_bytes.value_or(0);
    if (a.pipeline) { options.pipeline_degrees = {*a.pipeline}; }
    if (a.data) { options.data_degrees = {*a.data}; }
    if (a.waves) { options.waves = options.chunks = {*a.waves}; }
    if (a.waves && *a.waves > 1) {
        if (a.placement == pulse::placement::sequential) {
            refuse("--waves: a sequential placement has one stage on each device");
        }
        options.placements = {pulse::placement::folded, pulse::placement::interleaved};
    }
    if (a.microbatches) { options.microbatches = {*a.microbatches}; }
    if (a.placement) { options.placements = {*a.placement}; }
    if (a.split_backward) { options.split_backwards = {*a.split_backward}; }
    if (a.routing) { options.routings = {*a.routing}; }
    if (a.recompute) { options.recomputations = {*a.recompute}; }
    switch (a.optimizer) {
    case sharding::no: break;
    case sharding::yes: options.sharded_optimizers = {true}; break;
    case sharding::tuned: options.sharded_optimizers = {false, true}; break;
    }
    if (a.optimizer == sharding::yes && (a.data == 1 || a.pipeline == a.devices)) {
        refuse("--shard-optimizer: there is one replica, which keeps all of it");
    }
    if (a.pipeline == 1 && a.split_backward == true) {
        refuse("--split-backward: with --pipeline 1 nothing waits for a weight gradient");
    }
    return made;
}

} // namespace pulse_plan
