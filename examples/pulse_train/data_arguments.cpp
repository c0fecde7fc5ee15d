#include "option_adder.hpp"

#include <string>

#include <CLI/CLI.hpp>

#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/open_pictures.hpp>
#include <pulse/train/draw_images.hpp>

#include "../command_line.hpp"

namespace pulse_train {

using pulse_examples::extents;
using pulse_examples::number;
using pulse_examples::whole;

void add_data_options(option_adder& add, arguments& a, said_arguments& said) {
    static const choices<pulse::train::sampler_kind> samplers{{"ddim", pulse::train::sampler_kind::ddim},
                                                              {"dpm++", pulse::train::sampler_kind::dpm_solver}};
    static const choices<pulse::train::tensor_part> parts{{"averages", pulse::train::tensor_part::average},
                                                          {"weights", pulse::train::tensor_part::weight}};

    add.app.option_defaults()->group("Data and result");
    add.file_or_folder("--data", a.data, "DIR",
                       "Folder with train-images-idx3-ubyte, plain or .gz, or, for a model that reads text, with "
                       "captioned pictures (metadata.jsonl or .csv, .txt, .caption or .json beside them, .tar shards), "
                       "which the networks of --from encode, or with pictures in one folder per class; 'synthetic': "
                       "samples and their conditions made up from the seed");
    add.value("--size", a.size, extents(),
              "Height and width in pixels of training images and drawn pictures, or one number for both; with "
              "--buckets, of drawn pictures only")
        ->type_name("HEIGHTxWIDTH")
        ->default_str("sample_size of --from, else the model's");
    const auto are_buckets = [](std::string& text) {
        return pulse_examples::buckets_in(text).area != pulse::extent{}
                   ? std::string{}
                   : "'" + text + "' is not an AREA[:STEP[:MIN-MAX]] such as 1024, 1024:64 or 1024x1024:64:512-2048";
    };
    add.value("--buckets", a.buckets, CLI::Validator{are_buckets, ""},
              "Train on each captioned picture in the size, of several, that is nearest to its shape; all have about "
              "as many pixels as AREA, a size or one number for both sides, are multiples of STEP (64) and have sides "
              "from MIN to MAX (half and twice those of AREA). All samples of a step have one size")
        ->type_name("AREA[:STEP[:MIN-MAX]]")
        ->default_str("all pictures have --size");
    add.app.add_flag(
        "--resample-positions", a.pictures.resample_positions,
        "Let a model with learned positions of one size, such as U-ViT, read other sizes, with interpolated positions");
    static const choices<encode_when> encodings{
        {"each-step", encode_when::each_step}, {"once", encode_when::once}, {"bubbles", encode_when::bubbles}};
    add.choice("--encode", a.encode, encodings, "bubbles if such a plan fits",
               "When captioned pictures are encoded: before each step; once, before the first step, into --cache; or "
               "in the bubbles of the step before, if --plan has such tasks or such a plan fits into memory");
    add.file_or_folder("--cache", a.cache, "DIR",
                       "Folder for the results of --encode once; those already there are not computed again");
    static const choices<bool> crops{{"random", true}, {"centre", false}};
    static const choices<pulse::data::bad_picture> bad_pictures{{"skip", pulse::data::bad_picture::skip},
                                                                {"stop", pulse::data::bad_picture::stop}};
    add.choice("--crop", a.pictures.random_crop, crops, "centre", "Which part of a captioned picture is used");
    add.choice("--flip", a.pictures.horizontal_flip, yes_or_no(), "no",
               "Whether half of the captioned pictures are mirrored");
    add.choice("--masked-loss", a.pictures.masked_loss, yes_or_no(), "no",
               "Whether errors in captioned pictures are weighted by the alpha of their pixels, so that transparent "
               "ones do not count");
    add.value("--caption-dropout", a.pictures.caption_dropout, number(0.0, 1.0, "from 0 to 1"),
              "Probability that a picture is used without its caption");
    add.value("--shuffle-tags", a.pictures.shuffle_tags_behind, whole(0, 1000),
              "Shuffle the comma-separated tags of a caption each time it is used, except for this many at its start");
    pulse::data::caption_options& captions = a.pictures.captions;
    static const choices<pulse::data::folder_names> caption_sources{{"files", pulse::data::folder_names::nothing},
                                                                    {"class", pulse::data::folder_names::captions}};
    static const choices<pulse::data::missing_caption> lacking{{"stop", pulse::data::missing_caption::stop},
                                                               {"empty", pulse::data::missing_caption::empty},
                                                               {"skip", pulse::data::missing_caption::skip}};
    add.choice("--captions", captions.folders, caption_sources, "files",
               "Where captions come from: metadata and files beside pictures or in shards, or, in data without these, "
               "the names of class folders; 10_cat is cat, ten times per epoch");
    add.common.add("--caption-column", captions.column);
    add.app
        .add_option("--caption-column", captions.column,
                    "Field of metadata, and of JSON beside pictures, that holds the caption")
        ->type_name("NAME")
        ->default_str("text, else caption, else prompt");
    add.choice("--on-missing-caption", captions.on_missing, lacking, "stop",
               "What to do about a picture without a caption: stop, give it an empty one, or leave it out");
    add.choice("--on-bad-picture", a.pictures.on_bad_picture, bad_pictures, "stop",
               "What to do about a picture that cannot be read: stop, or skip it, with another one in its place");
    add.file_or_folder("--validate", said.validation, "DIR or SHARE",
                       "Validation data: a folder with pictures as in --data, or with t10k-images-idx3-ubyte, or a "
                       "share of the pictures of --data, such as 0.05, which is held out of training. Their loss is "
                       "measured with the same noise each time: before the first step of a run that is not resumed, "
                       "every --validate-every steps, and after the last step unless the run is stopped")
        ->default_str("none");
    add.value("--validate-every", a.validate_every, count(),
              "Steps between validations; 0: only at the start and the end");
    add.value("--validate-times", a.validate_times, whole(1, 64),
              "At how many evenly spaced timesteps a validation measures the loss");
    add.choice("--keep-best", a.keep_best, yes_or_no(), "no",
               "Whether the checkpoint with the lowest validation loss is kept, in the folder best");
    add.file_or_folder("--out", a.out, "DIR", "Folder for everything that the run writes");
    add.file_or_folder(
        "--resume", a.resume, "PATH",
        "Continue from this checkpoint: a folder of checkpoints (the last one), one of them, or a merged file");
    add.choice("--data-changed", a.data_changed, yes_or_no(), "no",
               "Whether a resumed run goes on if the pictures or captions of --data have changed");
    add.file_or_folder("--from", a.from, "PATH",
                       "Diffusers folder (model_index.json, unet, scheduler, ...) to begin from, or a checkpoint of "
                       "one file (.safetensors) of Stable Diffusion 1.x, 2.x or XL: its weights and noise");
    add.file_or_folder("--config-of", a.config_of, "DIR",
                       "Diffusers folder with what such a file lacks: configs, tokenizers and scheduler; its weights "
                       "are not read. Without it, the folder that contains the file");
    add.file_or_folder("--control-from", a.control_from, "DIR",
                       "Folder of a ControlNet whose weights the one of --model starts from; without it, it starts "
                       "from those of the UNet of --from, which is never trained");
    add.file_or_folder("--control-data", said.control_data, "DIR",
                       "Folder with a conditioning image for each picture of --data, with the same name, for a "
                       "ControlNet; without it, metadata.jsonl or metadata.csv name the images in conditioning_image, "
                       "as they always do for a folder of --validate");
    add.common.add("--control-picture", a.control_pictures);
    add.app
        .add_option("--control-picture", a.control_pictures,
                    "Conditioning image of a drawn picture; may be given several times, one for each prompt in turn")
        ->type_name("FILE")
        ->allow_extra_args(false)
        ->default_str("");
    add.file_or_folder("--cascade-from", a.cascade_from, "DIR",
                       "Diffusers folder of a cascade's second backbone, like --from for the first");
    add.file_or_folder("--cascade-export", a.cascade_export, "DIR",
                       "Write the diffusers folder of a cascade's second backbone here, like --export for the first");
    add.app.add_flag("--init", a.init,
                     "Start from random weights (--seed) instead of those of --from; without --from, but with --steps "
                     "0 and --export: write a folder of such weights for --model, with its frozen networks and the "
                     "noise settings of --prediction and related options");
    add.file_or_folder(
        "--tokenizer", a.tokenizer, "DIR",
        "Folder with the tokenizer files that a new folder gets (vocab.json and merges.txt, vocab.txt, spiece.model or "
        "tokenizer.json), or with a folder for each of several tokenizers: tokenizer, tokenizer_2");
    add.file_or_folder("--export", a.export_to, "PATH",
                       "Write a diffusers folder at the end, or a one-file checkpoint if PATH ends in .safetensors: "
                       "that of --from with the trained backbone");
    add.choice("--export-of", a.export_part, parts, "averages", "Which weights of the backbone --export writes");
    static const choices<bool> export_types{{"fp32", false}, {"fp16", true}};
    add.choice("--export-type", said.export_halves, export_types, "fp32", "Type of the numbers that --export writes");
    add.value("--export-shard", a.export_shard_bytes, count(),
              "Most bytes in one file of weights, above which several are written; 0: always one file");
    add.value("--checkpoint-every", a.checkpoint_every, count(), "Steps between checkpoints; 0: only at the end");
    add.value("--log-every", a.log_every, whole(1, 1'000'000),
              "Steps between lines of metrics.jsonl, which TensorBoard shows too");
    add.value("--keep", a.keep, whole(0, 1000000), "How many of the last checkpoints are kept; 0: all");
    add.value("--sample", a.sample, whole(0, 4096), "Images to draw at the end; 0: none")
        ->default_str("64, or with --from one for each prompt, class or --control-picture");
    add.value("--sample-every", a.sample_every, count(),
              "Steps between drawings before the end, which take the memory of one more pipeline; each gets its own "
              "folder. 0: none");
    add.common.add("--prompt", a.prompts);
    add.app
        .add_option("--prompt", a.prompts,
                    "Draw a picture of this text, with the networks of --from; may be given several times")
        ->type_name("TEXT")
        ->allow_extra_args(false)
        ->default_str("");
    add.file_or_folder("--prompts", said.prompt_file, "FILE", "Draw a picture of each line of this file");
    add.common.add("--class", a.classes);
    add.app
        .add_option("--class", a.classes,
                    "Draw a picture of this class, the index of its folder among those of --data sorted by name, with "
                    "the vae of --from; may be given several times")
        ->check(whole(0, 1'000'000))
        ->type_name("NUMBER")
        ->allow_extra_args(false)
        ->default_str("");
    add.common.add("--negative", a.negative);
    add.app.add_option("--negative", a.negative, "Text that pictures are guided away from")->type_name("TEXT");
    add.value("--guidance", a.guidance, not_negative(),
              "How strongly pictures are guided to their prompts or classes; 1: not at all");
    add.value("--sample-steps", a.sample_steps, whole(1, 1000), "Steps of the sampler for each image");
    add.choice("--sampler", a.sampler, samplers, "ddim",
               "How images are drawn: DDIM, or DPM-Solver++(2M), which needs fewer steps");
}

} // namespace pulse_train
