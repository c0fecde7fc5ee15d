#include <pulse/plan/json.hpp>

#include "reader.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr std::array<std::string_view, 23> fields{
        "microbatch_size", "format",         "model",          "placement",    "pipeline_degree", "data_degree",
        "waves",           "microbatches",   "split_backward", "skip_routing", "recomputation",   "recomputed_stages",
        "stages",          "schedule",       "predicted",      "skip_policy",  "the plan",        "previews",
        "spare_sends",     "further_chains", "frozen_tasks",   "frozen_hosts", "node_replicas"};
    return pulse_fuzz::feed(
        data, size, [](const std::string& text) { return pulse::parse_plan(text, "input.json"); },
        [](const pulse::plan& planned) { return pulse::print_plan(planned); }, fields);
}
