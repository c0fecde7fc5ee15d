// Trains a text-conditioned UNet on a folder of captioned pictures.
//   train_on_pictures FOLDER PICTURES STEPS OUT
// FOLDER is the diffusers folder to start from; OUT receives one like it, model, and checkpoints.
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <pulse/onednn/backend.hpp>
#include <pulse/pictures.hpp>
#include <pulse/planner.hpp>
#include <pulse/pulse.hpp>
#include <pulse/zoo/stable_diffusion.hpp>

// example-begin train-on-pictures
using net = pulse::sd_fmnist;
using backend = pulse::onednn::backend;
const pulse::ranks::threads ranks;

int main(int argc, char** argv) try {
    const int steps = argc == 5 ? std::atoi(argv[3]) : 0;
    if (steps < 1) { throw pulse::input_error{"train_on_pictures FOLDER PICTURES STEPS OUT"}; }
    const std::filesystem::path folder = argv[1];
    const std::filesystem::path out = argv[4];

    const pulse::pictures_options options{.data = argv[2], .networks = folder, .seed = 1, .caption_dropout = 0.1};
    pulse::pictures<net> pictures{options};
    const auto weights = pulse::diffusers::open_backbone<net>(folder);
    const auto scheduler = pulse::diffusers::read_scheduler(folder / "scheduler");
    const auto noise = pulse::train::process_of(scheduler);
    pulse::diffusers::require_exportable<net>(folder, out / "model");
    const auto plan = pulse::plan_for<net, backend>(
        {.devices = 2, .global_batch = 8, .device = pulse::cpu_core, .seconds = 0}, options);

    pulse::run(plan, ranks, [&](pulse::rank& self) {
        if (self.leads()) { std::puts(pulse::plan_summary(plan).c_str()); }
        pulse::pictures_task<net, backend> task{
            pictures, self, plan, noise, {.seed = 1, .prediction = scheduler.prediction}};
        pulse::trainer<net, backend> train{
            self, plan, {.seed = 1, .learning_rate = {1e-4}, .adamw = {.weight_decay = 0}, .clip_norm = 1}};
        train.start(weights);
        while (train.steps() < steps) {
            const auto step = train.step(task);
            if (self.leads()) { std::printf("step %d  loss %.9g\n", int(train.steps()), step.loss); }
        }
        const auto saved = train.save(out / "checkpoints");
        if (self.leads()) { pulse::diffusers::export_checkpoint<net>(saved.folder, folder, out / "model"); }
    });
} catch (const pulse::error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
}
// example-end train-on-pictures
