#include "torch_folder.hpp"

#include <cstddef>
#include <filesystem>
#include <string>
#include <system_error>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/core/pass.hpp>
#include <pulse/io/atomic_file.hpp>
#include <pulse/plan/json.hpp>
#include <pulse/tune/frozen_mode.hpp>
#include <pulse/tune/plan_summary.hpp>

#include "catalogue.hpp"

namespace pulse_plan {

namespace {

using json = nlohmann::ordered_json;

/// The absolute path, without a trailing slash, so that it has a file name.
std::filesystem::path folder_of(const std::string& text) {
    const std::filesystem::path at = std::filesystem::absolute(text);
    return at.has_filename() ? at : at.parent_path();
}

/// A line for each device, in the runtime's letters: I is only the gradient of a stage's input.
std::string schedule_text(const pulse::plan& plan) {
    std::string text;
    for (const auto& passes : plan.order.devices) {
        const char* before = "";
        for (const pulse::timed_pass& p : passes) {
            const bool input_alone = p.op == pulse::pass::backward_input && plan.split_backward;
            text += before + std::to_string(p.stage) + (input_alone ? 'I' : pulse::letter_of(p.op)) +
                    std::to_string(p.microbatch);
            before = ",";
        }
        text += '\n';
    }
    return text;
}

std::string stages_text(const pulse::plan& plan, const pulse::cost_table& costs) {
    const auto name = [&](int layer) { return costs.layers[static_cast<std::size_t>(layer)].name.str(); };
    json stages = json::array();
    for (const pulse::stage& s : plan.cut.stages) {
        json layers = json::array();
        for (int l = s.first_layer; l <= s.last_layer; ++l) { layers.push_back(name(l)); }
        stages.push_back({{"index", s.index}, {"device", s.device}, {"layers", std::move(layers)}});
    }
    json skips = json::array();
    for (const pulse::skip_cost& edge : costs.skips) {
        skips.push_back({{"from", name(edge.from)}, {"to", name(edge.to)}, {"bytes", edge.bytes}});
    }
    const json table{{"format", "pulse-stages/1"}, {"model", plan.model.str()}, {"stages", stages}, {"skips", skips}};
    return table.dump(1) + '\n';
}

std::string readme_text(const pulse::tuning& found) {
    const pulse::plan& plan = found.plan;
    const std::string ranks = std::to_string(plan.pipeline_degree * plan.data_degree);
    const std::string program = "examples/torch_pipeline/train.py --plan PLAN --from DIR";
    const std::string start = "torchrun --nproc-per-node " + ranks + " " + program;
    return "# " + plan.model.str() + " on " + ranks +
           " devices\n\nIn the source folder of pulse, with this folder as `PLAN` and the diffusers folder of the "
           "planned "
           "backbone as `DIR`:\n\n```sh\n# what each device will hold\npython3 " +
           program + " --dry-run\n# loss and gradients against the whole backbone\n" + start +
           " --check\n# training\n" + start + " --data PICTURES --out TUNED\n```\n\n" +
           "`schedule.csv` has the passes of `plan.json` as PyTorch's pipeline runtime reads them, `stages.json` the "
           "layers of\nits stages and the skips between them.\n\n```\n" +
           pulse::plan_summary(found) + "```\n";
}

} // namespace

void require_torch_runs(const arguments& a) {
    const auto refuse = [](bool asked, const char* what) {
        if (asked) { throw pulse::input_error(std::string{"--torch: plans for PyTorch have no "} + what); }
    };
    refuse(!a.cascade_with.empty(), "cascades");
    refuse(a.asked.self_conditioning, "previews of self-conditioning");
    refuse(split_name("--model", a.model.empty() ? a.model_config : a.model).extents.size() > 1,
           "steps of several sizes");
    refuse(a.asked.frozen == pulse::frozen_mode::first || a.asked.frozen == pulse::frozen_mode::bubbles,
           "tasks of frozen networks");
    // train.py runs AdamW in fp32 on every replica.
    refuse(a.asked.sharded_optimizer != false, "sharded optimizer state");
    refuse(a.asked.gradient_release, "gradient release");
    refuse(a.asked.optimizer.moments == pulse::moment_form::dynamic8, "moments in 8 bits");
    refuse(a.asked.optimizer.is_factored(), "factored moments");
    refuse(a.asked.optimizer.weights != pulse::weight_form::float32, "weights without master weights");
    const std::filesystem::path parent = folder_of(a.torch).parent_path();
    std::error_code fault;
    if (!std::filesystem::is_directory(parent, fault)) {
        throw pulse::input_error("--torch: there is no folder " + parent.string());
    }
}

void write_torch_folder(const std::string& folder, const pulse::tuning& found) {
    const std::filesystem::path where = folder_of(folder);
    std::error_code fault;
    std::filesystem::create_directory(where, fault);
    if (fault) { throw pulse::input_error("--torch: " + folder + ": " + fault.message()); }
    pulse::save_plans(found.plans(), where / "plan.json");
    pulse::io::write_file(where / "schedule.csv", schedule_text(found.plan));
    pulse::io::write_file(where / "stages.json", stages_text(found.plan, found.costs));
    pulse::io::write_file(where / "README.md", readme_text(found));
}

} // namespace pulse_plan
