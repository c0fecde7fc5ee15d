// Trains a text-conditioned UNet on a folder of captioned pictures, and leaves a diffusers folder.
//   train_on_pictures FOLDER PICTURES STEPS OUT
// FOLDER is a diffusers folder to begin with.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <pulse/onednn/backend.hpp>
#include <pulse/pictures.hpp>
#include <pulse/planner.hpp>
#include <pulse/pulse.hpp>
#include <pulse/zoo/stable_diffusion.hpp>

// example-begin train-on-pictures
using net = pulse::sd_fmnist; // or pulse::sd15, pulse::sd21
using backend = pulse::host::onednn_backend;
const pulse::ranks::threads ranks;

int main(int argc, char** argv) try {
    if (argc != 5) { throw pulse::input_error{"train_on_pictures FOLDER PICTURES STEPS OUT"}; }
    const std::filesystem::path folder = argv[1];
    const std::filesystem::path out = argv[4];

    pulse::pictures<net> pictures{{.data = argv[2], .networks = folder, .seed = 1, .caption_dropout = 0.1}};
    const auto weights = pulse::diffusers::open_backbone<net>(folder);
    const auto scheduler = pulse::diffusers::read_scheduler(folder / "scheduler");
    const auto noise = pulse::train::schedule_of(scheduler);
    pulse::diffusers::require_exportable(folder, out);
    const auto plan = pulse::plan_for<net, backend>(
        {.devices = 2, .global_batch = 8, .device = pulse::cpu_core, .seconds = 0}, pictures);

    pulse::run(plan, ranks, [&](pulse::rank& self) {
        if (self.leads()) { std::puts(pulse::plan_summary(plan).c_str()); }
        pulse::trainer<net, backend> train{
            self, plan, {.seed = 1, .learning_rate = {1e-4}, .adamw = {.weight_decay = 0}, .clip_norm = 1}};
        pulse::pictures_task<net, backend> task{
            pictures, self, plan, noise, {.seed = 1, .prediction = scheduler.prediction}};
        train.start(weights);
        while (train.steps() < std::atoi(argv[3])) {
            const auto step = train.step(task);
            if (self.leads()) { std::printf("step %d  loss %.9g\n", int(train.steps()), step.loss); }
        }
        const auto saved = train.save(out.string() + ".checkpoints");
        if (self.leads()) { pulse::diffusers::export_checkpoint<net>(saved.folder, folder, out); }
    });
} catch (const pulse::input_error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
}
// example-end train-on-pictures
