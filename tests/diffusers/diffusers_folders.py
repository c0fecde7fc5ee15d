"""Reads pulse's folders with diffusers, and writes folders for pulse, for diffusers_parity.cpp.

    diffusers_folders.py WHEELS FOLDER            (WHEELS: where PyPI's packages are)
Ends with 77 if a package is missing. FOLDER/written gets a folder for each kind of scheduler with betas, and diffusers'
values for it: `levels` and `prediction`. FOLDER/pulse holds a pipeline and components of pulse, which must load without
a message about weights and are saved as FOLDER/diffusers. FOLDER/names holds config.json and a list of names and shapes
of whole models, which must equal those of diffusers' class. FOLDER/schedulers holds schedulers with pulse's noise
levels. FOLDER/NAME.values lists the contents of a component of FOLDER/diffusers: name, dims and values, each after its
size.
"""

import importlib
import inspect
import json
import logging
import struct
import sys
import types
import warnings
from pathlib import Path

from wheels import needed

FOLDER = Path(sys.argv[2])
with needed():
    import diffusers
    import torch
    from transformers import CLIPTextConfig, CLIPTextModel

words = []


class Listener(logging.Handler):
    def emit(self, record):
        words.append(record.getMessage())


for library in ("diffusers", "transformers"):
    importlib.import_module(library).utils.logging.set_verbosity_warning()
    importlib.import_module(library).utils.logging.disable_progress_bar()
    logging.getLogger(library).addHandler(Listener())
warnings.resetwarnings()
warnings.showwarning = lambda message, *_: words.append(str(message))
warnings.filterwarnings("ignore", category=DeprecationWarning)
warnings.filterwarnings("ignore", category=FutureWarning)  # of PyTorch and huggingface_hub


def silent(what):
    assert not words, f"{what}: {words}"


def dump(name, model):
    tensors = sorted(model.state_dict().items())
    with open(FOLDER / f"{name}.values", "wb") as out:
        for key, value in tensors:
            if not value.is_floating_point():
                continue
            flat = value.float().contiguous().numpy().astype("<f4")
            out.write(struct.pack("<I", len(key)) + key.encode() + struct.pack("<I", flat.ndim))
            out.write(struct.pack(f"<{flat.ndim}I", *flat.shape) + flat.tobytes())


torch.manual_seed(14)
pulse = FOLDER / "pulse"
ours = FOLDER / "diffusers"

# first the whole pipeline, then single components; diffusers saves what it loaded, as F32 and as F16
pipeline = diffusers.DiffusionPipeline.from_pretrained(pulse / "ddpm", low_cpu_mem_usage=False)
assert isinstance(pipeline, diffusers.DDPMPipeline)
pipeline.save_pretrained(ours / "ddpm")
silent("ddpm")
for component, name in (("small_sd", "small_sd"), ("small_sdxl", "small_sdxl"), ("half", "small_sd")):
    model, info = diffusers.UNet2DConditionModel.from_pretrained(
        pulse / component / "unet", low_cpu_mem_usage=False, output_loading_info=True
    )
    silent(component)
    assert not any(info.values()), info
    if component == "half":
        model = model.half()
    model.save_pretrained(ours / component / "unet")

vae = diffusers.AutoencoderKL(
    block_out_channels=(4, 8),
    down_block_types=("DownEncoderBlock2D",) * 2,
    up_block_types=("UpDecoderBlock2D",) * 2,
    norm_num_groups=2,
)
vae.save_pretrained(ours / "vae")
dump("vae", vae)
text = CLIPTextModel(
    CLIPTextConfig(
        vocab_size=40, hidden_size=8, intermediate_size=16, num_hidden_layers=3, num_attention_heads=2,
        max_position_embeddings=6, bos_token_id=0, eos_token_id=2,
    )
)
text.save_pretrained(ours / "text_encoder")
dump("text_encoder", text)
text.bfloat16().save_pretrained(ours / "text_encoder_2", max_shard_size="1KB")
dump("text_encoder_2", text)

for written in sorted((FOLDER / "schedulers").iterdir()):
    scheduler = diffusers.DDIMScheduler.from_pretrained(written)
    silent(written)
    levels = torch.tensor([float(line) for line in (written / "levels").read_text().split()])
    assert torch.allclose(scheduler.alphas_cumprod, levels, rtol=1e-4, atol=1e-7), written

# every class with betas, with the options that change them and options that only affect sampling
MODULES = {
    "DDIM": "ddim", "DDIMInverse": "ddim_inverse", "DDIMParallel": "ddim_parallel", "DDPM": "ddpm",
    "DDPMParallel": "ddpm_parallel", "DEISMultistep": "deis_multistep", "DPMSolverMultistep": "dpmsolver_multistep",
    "DPMSolverMultistepInverse": "dpmsolver_multistep_inverse", "DPMSolverSDE": "dpmsolver_sde",
    "DPMSolverSinglestep": "dpmsolver_singlestep", "EulerAncestralDiscrete": "euler_ancestral_discrete",
    "EulerDiscrete": "euler_discrete", "HeunDiscrete": "heun_discrete",
    "KDPM2AncestralDiscrete": "k_dpm_2_ancestral_discrete", "KDPM2Discrete": "k_dpm_2_discrete", "LCM": "lcm",
    "LMSDiscrete": "lms_discrete", "PNDM": "pndm", "SASolver": "sasolver", "TCD": "tcd",
    "UniPCMultistep": "unipc_multistep",
}
LATENT = {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012}
VARIANTS = [
    {}, {"num_train_timesteps": 77, "timestep_spacing": "trailing", "prediction_type": "v_prediction", **LATENT},
    {"beta_schedule": "squaredcos_cap_v2", "prediction_type": "sample"}, {"trained_betas": [0.01, 0.02, 0.25, 0.5]},
    {"beta_schedule": "sigmoid"}, {"rescale_betas_zero_snr": True, "prediction_type": "v_prediction"},
    {"use_karras_sigmas": True, **LATENT}, {"use_exponential_sigmas": True, **LATENT}, {"thresholding": True},
    {"solver_order": 3, "lower_order_final": True, **LATENT}, {"steps_offset": 1, "clip_sample": False, **LATENT},
    {"final_sigmas_type": "sigma_min", "algorithm_type": "dpmsolver++"}, {"interpolation_type": "log_linear", **LATENT},
]
for library in ("scipy", "torchsde"):  # only needed for sampling
    if importlib.util.find_spec(library) is None:
        sys.modules[library] = types.ModuleType(library)
        for part in ("integrate", "stats"):
            setattr(sys.modules[library], part, types.ModuleType(part))
            sys.modules[f"{library}.{part}"] = getattr(sys.modules[library], part)
for name, module in MODULES.items():
    kind = getattr(importlib.import_module("diffusers.schedulers.scheduling_" + module), f"{name}Scheduler")
    known = inspect.signature(kind.__init__).parameters
    shapes = ("linear", "scaled_linear", "squaredcos_cap_v2", *(("sigmoid",) if name.startswith("DDPM") else ()))
    for number, options in enumerate(VARIANTS):
        if not options.keys() <= known.keys() or options.get("beta_schedule", "linear") not in shapes:
            continue
        steps = {"num_train_timesteps": len(options["trained_betas"])} if "trained_betas" in options else {}
        scheduler = kind(**{**options, **steps})
        folder = FOLDER / "written" / f"{name}{number}"
        scheduler.save_pretrained(folder)
        (folder / "levels").write_text("\n".join(str(float(level)) for level in scheduler.alphas_cumprod))
        (folder / "prediction").write_text(scheduler.config.prediction_type)
words.clear()  # warnings of deprecated classes

# Names and shapes of whole models, without their memory: parameters move to "meta" as they are created.
register = torch.nn.Module.register_parameter


def register_meta(module, name, parameter):
    register(module, name, parameter)
    if parameter is not None:
        module._parameters[name] = torch.nn.Parameter(parameter.to("meta"))


torch.nn.Module.register_parameter = register_meta
for listed in sorted((FOLDER / "names").iterdir()):
    config = json.loads((listed / "config.json").read_text())
    model = getattr(diffusers, config["_class_name"]).from_config(config)
    silent(listed.name)
    wanted = {
        line.split()[0]: [int(extent) for extent in line.split()[1:]]
        for line in (listed / "names").read_text().splitlines()
    }
    found = {key: list(value.shape) for key, value in model.state_dict().items()}
    wrong = sorted(key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key))
    assert not wrong, f"{listed.name}: {len(wrong)} of {len(found)} differ: {wrong[:5]}"
    print(listed.name, len(found))
