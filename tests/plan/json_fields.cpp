#include <cstddef>
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/plan/json.hpp>
#include <pulse/plan/plan.hpp>

using nlohmann::json;
using pulse::parse_plan;

namespace {

/// The error for a plan's text after the first `from` is replaced by `to`.
std::string refusal_in_text(std::string all, const std::string& from, const char* to) {
    const std::size_t at = all.find(from);
    REQUIRE(at != std::string::npos);
    all.replace(at, from.size(), to);
    try {
        (void)parse_plan(all, "plan.json");
    } catch (const pulse::input_error& e) { return e.what(); }
    return "accepted";
}

} // namespace

TEST_CASE("what is wrong is named by its field") {
    // Two devices, two stages, one microbatch, unsplit.
    const auto refusal = [](const char* from, const char* to) {
        const std::string all =
            R"({"format":"pulse-plan/1","model":"m","placement":"sequential","pipeline_degree":2,"data_degree":1,
"waves":1,"microbatches":1,"microbatch_size":4,"split_backward":false,
"stages":[{"index":0,"device":0,"first_layer":0,"last_layer":2},{"index":1,"device":1,"first_layer":3,"last_layer":3}],
"schedule":[[{"op":"F","stage":0,"microbatch":0,"start_us":0,"end_us":1.5},
{"op":"B","stage":0,"microbatch":0,"start_us":8,"end_us":9}],
[{"op":"F","stage":1,"microbatch":0,"start_us":2,"end_us":3},
{"op":"B","stage":1,"microbatch":0,"start_us":3,"end_us":7}]],
"predicted":{"step_us":9,"lower_bound_us":9,"bubble_ratio":0.5,"samples_per_s":1,"peak_memory_bytes":[1,2],
"boundary_bytes":0,"skip_bytes":0}})";
        return refusal_in_text(all, from, to);
    };
    CHECK(refusal("0", "0") == "accepted");
    CHECK(refusal("pulse-plan/1", "pulse-plan/2") == "plan.json: format must be pulse-plan/1");
    CHECK(refusal("\"op\":\"B\"", "\"op\":\"X\"") ==
          "plan.json: schedule[0][1].op is 'X'; it must be one of F, B, W, P");
    CHECK(refusal("\"op\":\"B\"", "\"op\":\"W\"") ==
          "plan.json: schedule[0][1].op must not be W when split_backward is false");
    CHECK(refusal("\"start_us\":8", "\"start_us\":-8") == "plan.json: schedule[0][1].start_us must not be negative");
    CHECK(refusal("\"start_us\":8", "\"start_us\":\"8\"") == "plan.json: schedule[0][1].start_us must be a number");
    CHECK(refusal("\"start_us\":8", "\"start_us\":10") == "plan.json: schedule[0][1].end_us is before start_us");
    CHECK(refusal("\"start_us\":8", "\"start_us\":1") ==
          "plan.json: schedule[0][1].start_us is before the end of the pass that is listed before it");
    CHECK(refusal("\"start_us\":8", "\"start_us\":6") ==
          "plan.json: schedule[0][1].start_us is before the end of B of stage 1, microbatch 0");
    CHECK(refusal("\"start_us\":8", "\"start_us\":1e999").find("plan.json: not valid JSON") == 0);
    CHECK(refusal("\"stage\":1", "\"stage\":0") == "plan.json: schedule[1][0].stage is not on device 1");
    CHECK(refusal("\"stage\":1", "\"stage\":7") == "plan.json: schedule[1][0].stage must be from 0 to 1");
    CHECK(refusal("\"microbatch\":0", "\"microbatch\":1") ==
          "plan.json: schedule[0][0].microbatch must be from 0 to 0");
    CHECK(refusal("\"op\":\"B\"", "\"op\":\"F\"") == "plan.json: schedule[0][1] repeats F of stage 0, microbatch 0");
    CHECK(refusal("\"microbatches\":1", "\"microbatches\":2") ==
          "plan.json: schedule has 4 passes; its stages and microbatches need 8");
    CHECK(refusal("\"microbatches\":1", "\"microbatches\":2147483647").find("plan.json: schedule has 4 passes") == 0);
    CHECK(refusal("\"first_layer\":3", "\"first_layer\":4") ==
          "plan.json: stages[1].first_layer must be 3: stages leave no gaps");
    CHECK(refusal("\"device\":1,", "\"device\":2,") ==
          "plan.json: stages[1].device must be 1 under sequential placement");
    CHECK(refusal("\"index\":1", "\"index\":2") == "plan.json: stages[1].index must be 1");
    CHECK(refusal("sequential", "folded") ==
          "plan.json: stages has 2 entries; folded placement over these devices and waves has 4");
    CHECK(refusal("sequential", "circular").find("plan.json: placement is 'circular'; it must be one of folded") == 0);
    CHECK(refusal("\"pipeline_degree\":2", "\"pipeline_degree\":0") ==
          "plan.json: pipeline_degree must be at least 1, not 0");
    CHECK(refusal("\"pipeline_degree\":2", "\"pipeline_degree\":3000000000") ==
          "plan.json: pipeline_degree is out of range");
    for (const char* wrong : {"0", "-2", "2", "3"}) {
        const std::string to = "\"node_replicas\":" + std::string{wrong} + ",\"waves\"";
        CHECK(refusal("\"waves\"", to.c_str()) ==
              "plan.json: node_replicas must be 1 or a power of two below data_degree (1) that divides it, not " +
                  std::string{wrong});
    }
    CHECK(refusal("\"waves\"", "\"node_replicas\":1,\"waves\"") == "accepted");
    CHECK(refusal("\"waves\"", "\"node_replicas\":true,\"waves\"") == "plan.json: node_replicas must be an integer");
    CHECK(refusal("\"waves\":1", "\"waves\":2000000000") == "plan.json: waves is too large");
    CHECK(refusal("\"waves\":1", "\"waves\":1.0") == "plan.json: waves must be an integer");
    CHECK(refusal("[1,2]", "[1]") == "plan.json: predicted.peak_memory_bytes must have one entry for each device");
    CHECK(refusal("[1,2]", "[1,-2]") == "plan.json: predicted.peak_memory_bytes[1] must not be negative");
    CHECK(refusal("0.5", "1.5") == "plan.json: predicted.bubble_ratio must not be above 1");
    CHECK(refusal("\"waves\"", "\"wafes\":1,\"waves\"") ==
          "plan.json: the plan has the field 'wafes', which pulse-plan/1 does not define");
    CHECK(refusal("\"waves\"", "\"recomputation\":\"gone\",\"waves\"").find("plan.json: recomputation is 'gone'") == 0);
    CHECK(refusal("\"waves\"", "\"recomputation\":\"selective\",\"waves\"") ==
          "plan.json: recomputed_stages is missing");
    CHECK(refusal("\"waves\"", "\"recomputation\":\"selective\",\"recomputed_stages\":[true],\"waves\"") ==
          "plan.json: recomputed_stages must have one entry per stage (2), not 1");
    CHECK(refusal("\"waves\"", "\"recomputation\":\"selective\",\"recomputed_stages\":[true,1],\"waves\"")
              .find("plan.json: recomputed_stages[1] must be") == 0);
    CHECK(refusal("\"waves\"", "\"recomputation\":\"stages\",\"recomputed_stages\":[true,true],\"waves\"") ==
          "plan.json: recomputed_stages must be absent unless recomputation is selective");
    CHECK(refusal("\"waves\"", "\"waves\":1,\"waves\"") == "plan.json: the field 'waves' occurs twice");
    CHECK(refusal("\"waves\"", "\"skip_policy\":\"gone\",\"waves\"").find("plan.json: skip_policy is 'gone'") == 0);
    CHECK(refusal("\"waves\"", "\"recomputation\":\"none\",\"skip_policy\":\"resident\",\"waves\"") ==
          "plan.json: skip_policy must be absent when recomputation is given");
}

TEST_CASE("what is wrong with a frozen task is named by its field") {
    // Two devices, unsplit, two samples; component 0 has two layers, component 1 one and two samples per call.
    const auto refusal = [](const char* from, const char* to) {
        const std::string all =
            R"({"format":"pulse-plan/1","model":"m","placement":"sequential","pipeline_degree":2,"data_degree":1,
"waves":1,"microbatches":1,"microbatch_size":2,"split_backward":false,
"stages":[{"index":0,"device":0,"first_layer":0,"last_layer":2},{"index":1,"device":1,"first_layer":3,"last_layer":3}],
"schedule":[[{"op":"F","stage":0,"microbatch":0,"start_us":0,"end_us":1.5},
{"op":"B","stage":0,"microbatch":0,"start_us":8,"end_us":9}],
[{"op":"F","stage":1,"microbatch":0,"start_us":2,"end_us":3},
{"op":"B","stage":1,"microbatch":0,"start_us":3,"end_us":7}]],
"frozen_tasks":[[
{"component":0,"first_layer":0,"last_layer":1,"first_sample":0,"samples":1,"start_us":2,"end_us":4},
{"component":0,"first_layer":0,"last_layer":0,"first_sample":1,"samples":1,"start_us":4,"end_us":5},
{"component":1,"first_layer":0,"last_layer":0,"first_sample":0,"samples":2,"start_us":5,"end_us":7}],
[{"component":0,"first_layer":1,"last_layer":1,"first_sample":1,"samples":1,"start_us":7.5,"end_us":8}]],
"frozen_hosts":[[0,1],[0]],
"predicted":{"step_us":9,"lower_bound_us":9,"bubble_ratio":0.5,"samples_per_s":1,"peak_memory_bytes":[1,2],
"boundary_bytes":0,"skip_bytes":0}})";
        return refusal_in_text(all, from, to);
    };
    CHECK(refusal("0", "0") == "accepted");
    CHECK(refusal(",[0]]", ",[0],[]]") == "plan.json: frozen_hosts must have one list per device (2)");
    CHECK(refusal("7.5,\"end_us\":8}]]", "7.5,\"end_us\":8}],[]]") ==
          "plan.json: frozen_tasks must have one list per device (2)");
    CHECK(refusal(",[0]]", ",[-1]]") == "plan.json: frozen_hosts[1][0] must be from 0 to 1023");
    CHECK(refusal(",[0]]", ",[2000000000]]") == "plan.json: frozen_hosts[1][0] must be from 0 to 1023");
    CHECK(refusal(",[0]]", ",[0,0]]") == "plan.json: frozen_hosts[1][1] repeats component 0");
    CHECK(refusal(",[0]]", ",[1]]") ==
          "plan.json: frozen_tasks[1][0].component is not hosted by device 1 (frozen_hosts)");
    CHECK(refusal(",[0]]", ",[0,2]]") == "plan.json: frozen_tasks run no layer of component 2");
    CHECK(refusal("\"component\":1", "\"component\":-1") ==
          "plan.json: frozen_tasks[0][2].component is not hosted by device 0 (frozen_hosts)");
    CHECK(refusal("\"first_layer\":0,\"last_layer\":1", "\"first_layer\":-1,\"last_layer\":1") ==
          "plan.json: frozen_tasks[0][0].first_layer must not be negative");
    CHECK(refusal("\"first_layer\":0,\"last_layer\":1", "\"first_layer\":2,\"last_layer\":1") ==
          "plan.json: frozen_tasks[0][0].last_layer must be from first_layer to 2^30");
    CHECK(refusal("\"last_layer\":1,\"first_sample\":0", "\"last_layer\":2147483647,\"first_sample\":0") ==
          "plan.json: frozen_tasks[0][0].last_layer must be from first_layer to 2^30");
    CHECK(refusal("\"first_sample\":1", "\"first_sample\":2") ==
          "plan.json: frozen_tasks[0][1].first_sample must be from 0 to 1");
    CHECK(refusal("\"samples\":2,", "\"samples\":3,") ==
          "plan.json: frozen_tasks[0][2].samples must be at least 1 and end within the 2 samples of a step");
    CHECK(refusal("\"samples\":2,", "\"samples\":2147483647,") ==
          "plan.json: frozen_tasks[0][2].samples must be at least 1 and end within the 2 samples of a step");
    CHECK(refusal("\"samples\":2,", "\"samples\":0,") ==
          "plan.json: frozen_tasks[0][2].samples must be at least 1 and end within the 2 samples of a step");
    CHECK(refusal("\"start_us\":2,\"end_us\":4", "\"start_us\":-2,\"end_us\":4") ==
          "plan.json: frozen_tasks[0][0].start_us must not be negative");
    CHECK(refusal("\"start_us\":2,\"end_us\":4", "\"start_us\":2,\"end_us\":1") ==
          "plan.json: frozen_tasks[0][0].end_us is before start_us");
    CHECK(refusal("\"start_us\":2,\"end_us\":4", "\"start_us\":1,\"end_us\":4") ==
          "plan.json: frozen_tasks[0][0].start_us makes the task overlap schedule[0][0] on its device");
    CHECK(refusal("\"start_us\":5,\"end_us\":7", "\"start_us\":5,\"end_us\":8.5") ==
          "plan.json: frozen_tasks[0][2].start_us makes the task overlap schedule[0][1] on its device");
    CHECK(refusal("\"start_us\":4,\"end_us\":5", "\"start_us\":3,\"end_us\":5") ==
          "plan.json: frozen_tasks[0][1].start_us is before the end of the task that is listed before it");
    CHECK(refusal("\"start_us\":4,\"end_us\":5}", "\"start_us\":4,\"end_us\":5,\"device\":0}") ==
          "plan.json: frozen_tasks[0][1] has the field 'device', which pulse-plan/1 does not define");
    CHECK(refusal("7.5,\"end_us\":8", "0,\"end_us\":0.5") ==
          "plan.json: frozen_tasks[1][0].start_us is before the end of frozen_tasks[0][1], whose result it reads");
    CHECK(refusal("\"first_layer\":1,\"last_layer\":1", "\"first_layer\":0,\"last_layer\":1") ==
          "plan.json: frozen_tasks[1][0] runs a layer of component 0 again on sample 1");
    CHECK(
        refusal("\"first_sample\":1,\"samples\":1,\"start_us\":4", "\"first_sample\":0,\"samples\":1,\"start_us\":4") ==
        "plan.json: frozen_tasks[0][1] runs a layer of component 0 again on sample 0");
    CHECK(refusal("\"samples\":2,", "\"samples\":1,") ==
          "plan.json: frozen_tasks leave out a layer of component 1 on sample 1");
    CHECK(refusal("\"first_layer\":1,\"last_layer\":1", "\"first_layer\":2,\"last_layer\":2") ==
          "plan.json: frozen_tasks leave out a layer of component 0 on sample 0");
}
