"""pulse_plan as its users see it: what it prints and writes, what it refuses, and what a plan must satisfy.

Usage: pulse_plan.py PROGRAM [unittest arguments]
"""

import atexit
import itertools
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree as xml

PROGRAM = sys.argv.pop(1)
# Far longer than any run here takes: a program that hangs must not hang the tests.
PATIENCE = 120

ROOM = pathlib.Path(tempfile.mkdtemp(prefix="pulse_plan."))
atexit.register(shutil.rmtree, ROOM, True)
serial = itertools.count()

OPTIONS = ("--model", "--model-config", "--device", "--profile", "--cascade-with", "--devices", "--cluster",
           "--global-batch", "--pipeline", "--data", "--waves", "--self-conditioning",
           "--microbatch-size", "--microbatches", "--placement", "--split-backward", "--routing", "--recomputation",
           "--shard-optimizer", "--gradient-release", "--frozen", "--memory-limit", "--schedule", "--time-limit",
           "--out", "--svg", "--trace", "--torch")
MODELS = {"sd15": 859520964, "sd21": 865910724, "controlnet_sd15": 361279120,
          "sdxl": 2567463684, "uvit_s2": 44255328,
          "uvit_m4": 130940292, "uvit_l2": 286763172, "uvit_h2": 500832016, "hunyuan_dit_v11": 1516534048,
          "hunyuan_dit_v12": 1499952032, "ddpm_cifar10": 35746307, "ddpm_fmnist": 1623169}
FOLDER = pathlib.Path(__file__).parents[1] / "diffusers/models/ssd_tiny"
SMALL = ("--model", "uvit_s2", "--device", "a100-80gb", "--devices", "4", "--global-batch", "32", "--time-limit", "0")


def fresh(name):
    """A path that does not exist yet."""
    return ROOM / f"{next(serial)}.{name}"


def written(name, value):
    path = fresh(name)
    path.write_text(json.dumps(value))
    return path


def profile(layers=8, **changes):
    """A U of equal layers, each with a skip to its mirror image."""
    value = {"format": "pulse-profile/1", "model": "eight", "device": "of mine", "microbatch_size": 2,
             "layers": [{"name": f"layer{i}", "forward_us": 100, "backward_input_us": 110, "backward_weight_us": 90,
                         "parameter_bytes": 4000, "saved_bytes": 5000, "output_bytes": 3000} for i in range(layers)],
             "skips": [{"from": f"layer{i}", "to": f"layer{layers - 1 - i}", "bytes": 3000}
                       for i in range(layers // 2 - 1)],
             "conditioning_bytes": 16}
    value.update(changes)
    return value


def cluster(**changes):
    value = {"format": "pulse-cluster/1", "nodes": 2, "devices_per_node": 2, "memory_bytes": 10 ** 9,
             "intra_node": {"bandwidth_gb_per_s": 100, "latency_us": 2},
             "inter_node": {"bandwidth_gb_per_s": 10, "latency_us": 5}}
    value.update(changes)
    return value


def encoders():
    """Encoders with half the load of `profile`: images, one by one, and text, which reads its weights once a call."""
    pictures = [{"name": f"part{i}", "call_us": 0, "sample_us": us, "parameter_bytes": 100, "output_bytes": 50,
                 "live_bytes": 200} for i, us in enumerate((150, 300, 250, 100))]
    text = [{"name": f"block{i}", "call_us": 20, "sample_us": 40, "parameter_bytes": 5000, "output_bytes": 10,
             "live_bytes": 40} for i in range(3)]
    return [{"name": "pictures", "feeds": "input", "input_bytes": 64, "result_bytes": 32, "max_chunk": 1,
             "layers": pictures},
            {"name": "text", "feeds": "context", "input_bytes": 16, "result_bytes": 48, "max_chunk": 4, "layers": text}]


class Case(unittest.TestCase):
    longMessage = True

    def invoke(self, *words, code=0):
        line = [str(word) for word in (PROGRAM, *words)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, code, f"{' '.join(line)}\n{done.stdout}\n{done.stderr}")
        return done

    def refused(self, *words, code=2, naming):
        done = self.invoke(*words, code=code)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, r"^pulse_plan: [^\n]+\n$")
        self.assertIn(naming, done.stderr)

    def plan(self, *words):
        out = fresh("plan.json")
        done = self.invoke(*words, "--out", out)
        return done.stdout, json.loads(out.read_text())

    def check_plan(self, plan, devices, batch):
        """Checks what any plan must satisfy, recomputed from its file."""
        degree, data, waves = plan["pipeline_degree"], plan["data_degree"], plan["waves"]
        self.assertEqual(degree * data, devices)
        self.assertEqual(plan["microbatches"] * plan["microbatch_size"] * data, batch)
        stages = plan["stages"]
        wanted = {"folded": 2 * degree * waves, "sequential": degree, "interleaved": degree * waves}[plan["placement"]]
        self.assertEqual(len(stages), wanted)
        self.assertEqual([s["index"] for s in stages], list(range(wanted)))
        if plan["placement"] == "folded":
            for s in stages:
                self.assertEqual(s["device"], stages[wanted - 1 - s["index"]]["device"], "mirror stages share a device")
            self.assertEqual(plan["predicted"]["skip_bytes"], 0)
        passes = [p for device in plan["schedule"] for p in device]
        kinds = "FBW" if plan["split_backward"] else "FB"
        self.assertEqual(sorted((p["op"], p["stage"], p["microbatch"]) for p in passes),
                         sorted(itertools.product(kinds, range(wanted), range(plan["microbatches"]))))
        for number, device in enumerate(plan["schedule"]):
            end = 0
            for p in device:
                self.assertEqual(stages[p["stage"]]["device"], number)
                self.assertGreaterEqual(p["start_us"], end - 1e-6)
                end = p["end_us"]
        predicted = plan["predicted"]
        makespan = max(p["end_us"] for p in passes)
        if "frozen_tasks" not in plan:  # with tasks, passes may start later or earlier: the simulator decides
            self.assertGreaterEqual(predicted["step_us"], makespan * (1 - 1e-9))
        self.assertGreater(predicted["lower_bound_us"], 0)
        self.assertGreaterEqual(predicted["step_us"], predicted["lower_bound_us"] * (1 - 1e-9))
        self.assertAlmostEqual(predicted["samples_per_s"], batch / predicted["step_us"] * 1e6, delta=1e-6 * batch * 1e6)
        self.assertEqual(len(predicted["peak_memory_bytes"]), degree)


class Models(Case):
    def test_every_backbone_is_planned_and_its_parameters_are_stated(self):
        for name, total in MODELS.items():
            with self.subTest(name):
                text, plan = self.plan("--model", name, "--device", "h100-80gb", "--devices", 2, "--global-batch", 8,
                                       "--pipeline", 2, "--microbatch-size", 1, "--placement", "folded",
                                       "--time-limit", 0)
                self.assertIn(f"{total:,} parameters", text)
                self.assertEqual(plan["model"], name)
                self.check_plan(plan, 2, 8)


    def test_a_folder_is_planned_as_its_model_of_the_zoo(self):
        sd15 = {"_class_name": "UNet2DConditionModel", "block_out_channels": [320, 640, 1280, 1280],
                "cross_attention_dim": 768, "down_block_types": ["CrossAttnDownBlock2D"] * 3 + ["DownBlock2D"],
                "up_block_types": ["UpBlock2D"] + ["CrossAttnUpBlock2D"] * 3, "sample_size": 64}
        folder = fresh("models") / "sd15"
        (folder / "unet").mkdir(parents=True)
        (folder / "unet/config.json").write_text(json.dumps(sd15))
        words = ("--device", "a100-80gb", "--devices", 2, "--global-batch", 8, "--pipeline", 2, "--microbatch-size", 1,
                 "--placement", "folded", "--frozen", "none", "--time-limit", 0)
        for same in (folder, f"{folder}/", f"{folder}@64", f"{folder}@64x64"):
            text, plan = self.plan("--model-config", same, *words)
            self.assertEqual(plan, self.plan("--model", "sd15", *words)[1])
            self.assertIn("859,520,964 parameters", text)
        larger = self.plan("--model-config", f"{folder}@96x128", *words)[1]
        self.assertEqual(larger, self.plan("--model", "sd15@96x128", *words)[1])
        self.assertGreater(larger["predicted"]["step_us"], 2 * plan["predicted"]["step_us"])
        self.check_plan(larger, 2, 8)
        text, plan = self.plan("--model-config", FOLDER, *words)
        self.assertEqual(plan["model"], "ssd_tiny")
        self.check_plan(plan, 2, 8)


    def test_pictures_of_another_size_cost_more_in_every_network(self):
        words = ("--device", "a100-80gb", "--devices", 2, "--global-batch", 8, "--pipeline", 2, "--microbatch-size", 1,
                 "--placement", "folded", "--time-limit", 0)
        usual, same, small = (self.plan("--model", name, *words, "--frozen", "bubbles")[1]
                              for name in ("sd21", "sd21@96", "sd21@64"))
        self.assertEqual(same, usual)
        self.assertIn("frozen_tasks", small)
        self.assertGreater(usual["predicted"]["step_us"], 1.5 * small["predicted"]["step_us"])
        none = [self.plan("--model", name, *words, "--frozen", "none")[1]["predicted"]["step_us"]
                for name in ("sd21", "sd21@64")]
        frozen = [plan["predicted"]["step_us"] - step for plan, step in zip((usual, small), none)]
        # Tasks encode for either size and count with the mean time.
        both = self.plan("--model", "sd21@96:1,64:3", *words, "--frozen", "bubbles")[1]["extents"]
        self.assertEqual(both[0]["frozen_tasks"], both[1]["frozen_tasks"])
        self.assertGreater(frozen[0], 1.5 * frozen[1])  # the autoencoder's images have 2.25 times the pixels
        for name in ("uvit_s2", "uvit_s2@32", "uvit_s2@64"):
            self.assertEqual("assumed: learned positions are resampled" in self.plan("--model", name, *words)[0],
                             name.endswith("@64"))
        self.refused("--model", "controlnet_sd15@96", *words, naming="--model: ")
        self.refused("--model", "sd21@60x64", *words, naming="(56 or 64)")
        self.refused("--model", "sd21@", *words, naming="--model")
        self.refused("--model", "sd21", "--cascade-with", "sd15@60", *words,
                     naming="--cascade-with: model sd15 cannot read 60 x 60")


class Choices(Case):
    def test_what_is_given_is_kept_and_the_rest_is_tuned(self):
        for fixed in (("--pipeline", 2), ("--data", 2), ("--pipeline", 4, "--waves", 2), ("--microbatch-size", 2),
                      ("--microbatches", 8), ("--placement", "sequential", "--pipeline", 4),
                      ("--placement", "interleaved", "--pipeline", 2, "--waves", 3),
                      ("--split-backward", "no", "--pipeline", 4),
                      ("--split-backward", "yes", "--pipeline", 4), ("--recomputation", "stages", "--pipeline", 2),
                      ("--recomputation", "selective", "--pipeline", 2),
                      ("--routing", "relayed", "--placement", "sequential", "--pipeline", 2), ()):
            with self.subTest(fixed):
                _, plan = self.plan(*SMALL, *fixed)
                self.check_plan(plan, 4, 32)
                for option, value in zip(fixed[::2], fixed[1::2]):
                    unlike = {"--pipeline": "pipeline_degree", "--data": "data_degree", "--routing": "skip_routing"}
                    field = unlike.get(option, option[2:].replace("-", "_"))
                    value = {"yes": True, "no": False}.get(value, value)
                    self.assertEqual(plan[field], value)

    def test_every_schedule_gives_a_plan(self):
        steps = {}
        for method in ("ilp", "list", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v", "hanayo"):
            with self.subTest(method):
                _, plan = self.plan(*SMALL[:-2], "--pipeline", 4, "--microbatch-size", 2, "--schedule", method,
                                    "--time-limit", 1)
                self.check_plan(plan, 4, 32)
                steps[method] = plan["predicted"]["step_us"]
                placement = {"1f1b": "sequential", "zb-h1": "sequential", "interleaved": "interleaved",
                             "zb-v": "folded", "dualpipe-v": "folded", "hanayo": "folded"}.get(method)
                if placement:
                    self.assertEqual(plan["placement"], placement)
        self.assertLessEqual(steps["ilp"], steps["gpipe"])
        self.assertLess(steps["list"], steps["gpipe"])

    def test_more_time_never_makes_the_schedule_worse(self):
        fixed = ("--model", "sd21", "--device", "v100-32gb", "--devices", 4, "--global-batch", 16, "--pipeline", 4,
                 "--microbatch-size", 2, "--waves", 2, "--placement", "folded", "--split-backward", "no")
        _, quick = self.plan(*fixed, "--frozen", "none", "--schedule", "list", "--time-limit", 0)
        _, long = self.plan(*fixed, "--frozen", "none", "--schedule", "ilp", "--time-limit", 2)
        self.assertLessEqual(long["predicted"]["step_us"], quick["predicted"]["step_us"] * (1 + 1e-9))


class Frozen(Case):
    def words(self, parts=None):
        at = written("profile.json", profile(frozen=encoders() if parts is None else parts))
        return ("--profile", at, "--devices", 4, "--global-batch", 16, "--pipeline", 4, "--microbatch-size", 1,
                "--placement", "folded", "--time-limit", 0)

    def check_tasks(self, plan, parts):
        """Every layer must run once on every sample, in order, on a host, while the device is otherwise idle."""
        samples = plan["microbatches"] * plan["microbatch_size"]
        ran = {}
        for d, (tasks, passes) in enumerate(zip(plan["frozen_tasks"], plan["schedule"])):
            busy = sorted((x["start_us"], x["end_us"]) for x in tasks + passes)
            for (_, end), (start, _) in zip(busy, busy[1:]):
                self.assertGreaterEqual(start, end - 1e-6)
            for t in tasks:
                part = parts[t["component"]]
                self.assertIn(t["component"], plan["frozen_hosts"][d])
                self.assertLessEqual(t["samples"], part["max_chunk"])
                layers = part["layers"][t["first_layer"]:t["last_layer"] + 1]
                self.assertAlmostEqual(t["end_us"] - t["start_us"],
                                       sum(l["call_us"] + t["samples"] * l["sample_us"] for l in layers), delta=1e-3)
                for layer in range(t["first_layer"], t["last_layer"] + 1):
                    for sample in range(t["first_sample"], t["first_sample"] + t["samples"]):
                        self.assertNotIn((t["component"], sample, layer), ran)
                        ran[t["component"], sample, layer] = t
        every = {(c, s, l) for c, part in enumerate(parts) for s in range(samples) for l in range(len(part["layers"]))}
        self.assertEqual(set(ran), every)
        for (c, s, l), t in ran.items():
            if l > 0 and ran[c, s, l - 1] is not t:
                self.assertGreaterEqual(t["start_us"], ran[c, s, l - 1]["end_us"] - 1e-6)

    def test_encoders_of_a_profile_run_in_the_bubbles_unless_it_is_said_otherwise(self):
        plans = {}
        for mode in ("none", "first", "bubbles", "tuned"):
            with self.subTest(mode):
                text, plan = self.plan(*self.words(), "--frozen", mode)
                self.check_plan(plan, 4, 16)
                plans[mode] = plan
                self.assertEqual("frozen_tasks" in plan, mode != "none")
                self.assertEqual("frozen components, encoded" in text, mode != "none")
                if mode != "none":
                    self.check_tasks(plan, encoders())
                    self.assertIn("80 B a sample", text)
        default_text, default = self.plan(*self.words())
        self.assertEqual(default, plans["tuned"])
        self.assertRegex(default_text, r"encoded in the bubbles: .* hidden")
        self.assertRegex(default_text, r"against .* with all ranks encoding first, alike: 1\.\d+x")
        _, without = self.plan(*self.words([]))
        self.assertEqual(without, plans["none"])
        step = {mode: plan["predicted"]["step_us"] for mode, plan in plans.items()}
        self.assertLessEqual(step["tuned"], step["first"] * (1 + 1e-9))
        self.assertLess(step["none"], step["tuned"])
        for d, tasks in enumerate(plans["first"]["frozen_tasks"]):
            self.assertLessEqual(max(t["end_us"] for t in tasks), plans["first"]["schedule"][d][0]["start_us"] + 1e-6)

    def test_picture_and_trace_show_every_task(self):
        svg, trace = fresh("plan.svg"), fresh("plan.trace.json")
        _, plan = self.plan(*self.words(), "--svg", svg, "--trace", trace)
        tasks = sum(len(device) for device in plan["frozen_tasks"])
        passes = sum(len(device) for device in plan["schedule"])
        titles = [t.text for t in xml.fromstring(svg.read_text()).iter("{http://www.w3.org/2000/svg}title")]
        self.assertEqual(sum(1 for t in titles if t.startswith("encode ")), tasks)
        self.assertEqual(sum(1 for t in titles if re.match(r"(forward|backward)", t)), passes)
        events = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]
        self.assertEqual(sum(1 for e in events if e["name"].startswith("encode ")), tasks)
        self.assertEqual(sum(1 for e in events if re.match(r"(forward|backward)", e["name"])), passes)
        # On the simulator's clock: with messages, and the step ends with the last event.
        self.assertTrue(any(e["name"].startswith("send ") for e in events))
        self.assertAlmostEqual(max(e["ts"] + e["dur"] for e in events), plan["predicted"]["step_us"], delta=1)

    def test_backbones_have_their_encoders(self):
        text, plan = self.plan("--model", "sd21", "--device", "a100-80gb", "--devices", 4, "--global-batch", 16,
                               "--pipeline", 4, "--microbatch-size", 1, "--placement", "folded", "--waves", 1,
                               "--time-limit", 0)
        self.check_plan(plan, 4, 16)
        self.assertEqual({c for device in plan["frozen_hosts"] for c in device}, {0, 1})
        self.assertRegex(text, r"wins from epoch \d+ on|never wins")

    def test_a_component_that_no_device_holds_whole_is_split_by_layers(self):
        parts = encoders()
        for layer in parts[1]["layers"]:
            layer["parameter_bytes"] = 10 ** 9
        for mode in ("first", "tuned"):
            with self.subTest(mode):
                text, plan = self.plan(*self.words(parts), "--frozen", mode, "--memory-limit", 2 * 10 ** 9 + 10 ** 8)
                self.check_plan(plan, 4, 16)
                self.check_tasks(plan, parts)
                self.assertRegex(text, r"text +devices \d, \d( by layers|, \d by layers)")
                for peak, tasks in zip(plan["predicted"]["peak_memory_bytes"], plan["frozen_tasks"]):
                    layers = {l for t in tasks if t["component"] == 1
                              for l in range(t["first_layer"], t["last_layer"] + 1)}
                    self.assertLess(len(layers), 3)
                    self.assertGreaterEqual(peak, len(layers) * 10 ** 9)
                    self.assertLess(peak, len(layers) * 10 ** 9 + 10 ** 8)

    def test_encoders_without_room_are_named(self):
        self.refused(*self.words(), "--memory-limit", 50000, code=3, naming="need more memory")
        parts = encoders()
        parts[1]["layers"][0]["parameter_bytes"] = 10 ** 9
        self.refused(*self.words(parts), "--memory-limit", 10 ** 8, code=3,
                     naming="no room for the frozen components, whole or by layers: their parameters are")
        self.refused(*SMALL, "--frozen", "first", naming="--frozen first: the model has no frozen components")
        self.refused(*SMALL, "--frozen", "later", naming="--frozen")


class Cascades(Case):
    def test_two_profiles_are_planned_together_and_compared_with_one_after_the_other(self):
        one, other = written("one.json", profile(12)), written("other.json", profile(8, model="other"))
        sizes = ("--devices", 4, "--global-batch", 8, "--time-limit", 0)
        for devices in (2, 1):
            words = ("--devices", devices, "--global-batch", 8, "--time-limit", 0)
            text, plan = self.plan("--profile", one, "--cascade-with", other, *words)
            self.assertEqual(plan["model"], "eight+other")
            self.assertEqual(plan["further_chains"], [2 * devices])
            self.assertEqual(len(plan["stages"]), 4 * devices)
            self.assertEqual(plan["pipeline_degree"], devices)
            self.assertEqual(plan["microbatches"] * plan["microbatch_size"], 8)
            self.assertRegex(text, r"step [^\n]+, lower bound [^\n]+gap")
            self.assertRegex(text, r"one after the other [^\n]+: [0-9.]+x the cascade's step")
        self.refused("--profile", one, "--cascade-with", "no.json", *sizes, naming="no.json")
        cascade = ("--profile", one, "--cascade-with", other, *sizes)
        for words, naming in ((("--data", 2), "--data"), (("--waves", 2), "--waves"),
                              (("--placement", "sequential"), "placement"), (("--schedule", "gpipe"), "--schedule"),
                              (("--frozen", "bubbles"), "--frozen"),
                              (("--shard-optimizer", "yes"), "--shard-optimizer"),
                              (("--gradient-release", "yes"), "--gradient-release")):
            with self.subTest(words):
                self.refused(*cascade, *words, naming=f"{naming}: a cascade")
        self.refused(*SMALL, "--cascade-with", "sd22", naming="--cascade-with: 'sd22' is not a backbone")
        self.refused("--profile", one, "--cascade-with", written("x.json", profile(8, microbatch_size=4)), *sizes,
                     naming="choose one with --microbatch-size")


class Inputs(Case):
    def test_a_profile_and_a_cluster_are_planned(self):
        at = written("profile.json", profile())
        text, plan = self.plan("--profile", at, "--cluster", written("cluster.json", cluster()), "--devices", 4,
                               "--global-batch", 16, "--pipeline", 4, "--time-limit", 0)
        self.check_plan(plan, 4, 16)
        self.assertEqual((plan["model"], plan["microbatch_size"]), ("eight", 2))
        self.assertNotIn("assumed: one node", text)
        self.assertIn("assumed: the optimizer takes no time", text)
        self.assertIn("assumed: microbatches of 2", text)
        self.assertIn("20 bytes kept of each (value 4, gradient 4, optimizer 12)", text)

    def test_unlike_devices_have_work_by_their_speed(self):
        devices = [{"device": "fast", "memory_bytes": 10 ** 9, "relative_speed": 1},
                   {"device": "slow", "memory_bytes": 10 ** 8, "relative_speed": 0.25}]
        unlike = cluster(nodes=1, devices=devices)
        del unlike["memory_bytes"]
        at, file = written("profile.json", profile(16)), written("cluster.json", unlike)
        words = ("--profile", at, "--cluster", file, "--devices", 2, "--global-batch", 16, "--pipeline", 2,
                 "--time-limit", 0)
        text, plan = self.plan(*words)
        layers = [0, 0]
        for stage in plan["stages"]:
            layers[stage["device"]] += stage["last_layer"] + 1 - stage["first_layer"]
        self.assertGreater(layers[0], 2 * layers[1])
        self.assertIn("device  speed", text)
        self.assertLess(plan["predicted"]["peak_memory_bytes"][1], 10 ** 8)
        both = written("frozen.json", profile(16, frozen=encoders()))
        text, plan = self.plan("--profile", both, *words[2:])
        self.assertIn("assumed: frozen components do not run as tasks", text)
        self.assertNotIn("frozen_tasks", plan)
        self.refused("--profile", both, *words[2:], "--frozen", "bubbles", naming="--frozen bubbles")
        self.refused("--profile", at, "--cascade-with", written("other.json", profile(16, model="other")), *words[2:],
                     naming=f"{file}: a cascade")

    def test_a_memory_limit_is_kept_or_said_to_bind(self):
        words = ("--model", "sd15", "--device", "v100-32gb", "--devices", 2, "--global-batch", 4,
                 "--microbatch-size", 1, "--time-limit", 0)
        limit = 14 * 10 ** 9
        _, plan = self.plan(*words, "--memory-limit", limit)
        self.assertLessEqual(max(plan["predicted"]["peak_memory_bytes"]), limit)
        self.refused(*words, "--memory-limit", 10 ** 9, code=3, naming="emory")

    def test_replicas_may_share_the_optimizers_state(self):
        words = (*SMALL, "--pipeline", 2, "--data", 2, "--microbatch-size", 4, "--placement", "folded", "--waves", 1,
                 "--recomputation", "none", "--split-backward", "no", "--schedule", "gpipe")
        text, plan = self.plan(*words)
        self.assertNotIn("sharded optimizer", text)
        self.assertRegex(text, r"device .* replicas ")
        shared_text, shared = self.plan(*words, "--shard-optimizer", "yes")
        self.assertIn("sharded optimizer", shared_text)
        # 16 of a parameter's 22 bytes are state; for each layer the last replica may have one element more than half.
        self.assertIn("22 bytes kept of each (value 2, gradient 4, optimizer 16)", text)
        saved = sum(plan["predicted"]["peak_memory_bytes"]) - sum(shared["predicted"]["peak_memory_bytes"])
        self.assertTrue(0 <= 8 * MODELS["uvit_s2"] - saved <= 16 * 50, saved)
        limit = max(shared["predicted"]["peak_memory_bytes"])
        self.refused(*words, "--memory-limit", limit, code=3, naming="need more memory")
        _, tuned = self.plan(*words, "--memory-limit", limit, "--shard-optimizer", "tuned")
        self.assertLessEqual(max(tuned["predicted"]["peak_memory_bytes"]), limit)
        self.refused(*SMALL, "--pipeline", 4, "--shard-optimizer", "yes", naming="--shard-optimizer")

    def test_an_optimizer_that_keeps_less_fits_where_another_does_not(self):
        # larger microbatches only need more
        asked = ("--model", "sdxl", "--device", "rtx-4090", "--devices", 2, "--global-batch", 16, "--time-limit", 0,
                 "--microbatch-size", 1)
        self.refused(*asked, code=3, naming="need more memory")
        # some of the refused plans
        asked += ("--pipeline", 2, "--placement", "folded", "--waves", 1, "--recomputation", "stages")
        for weights, kept in (("kahan", "10 bytes kept of each (value 2, gradient 4, optimizer 4 and 8 of 256)"),
                              ("stochastic", "8 bytes kept of each (value 2, gradient 4, optimizer 2 and 8 of 256)")):
            text, plan = self.plan(*asked, "--optimizer", "adamw8", "--averages", "no", "--weights", weights)
            self.assertIn(kept, text)
            self.assertLessEqual(max(plan["predicted"]["peak_memory_bytes"]), 24 * 10 ** 9)

        text, plan = self.plan(*asked, "--optimizer", "adafactor", "--averages", "no", "--weights", "kahan")
        self.assertIn("8 bytes kept of each (value 2, gradient 4, optimizer 2 and 4 of each row and column)", text)
        self.assertLessEqual(max(plan["predicted"]["peak_memory_bytes"]), 24 * 10 ** 9)

        at = written("profile.json", profile(4))
        self.refused("--profile", at, "--devices", 2, "--global-batch", 16, "--weights", "kahan", naming="--weights")
        self.refused("--profile", at, "--devices", 2, "--global-batch", 16, "--optimizer", "adafactor",
                     naming="factored_elements is missing")
        self.refused(*SMALL, "--data", 2, "--optimizer", "adafactor", "--shard-optimizer", "yes",
                     naming="--shard-optimizer: adafactor")

    def test_gradients_that_are_released_take_less_where_a_step_has_one_microbatch(self):
        words = (*SMALL[:-6], "--devices", 2, "--global-batch", 4, "--microbatch-size", 4, "--time-limit", 0,
                 "--pipeline", 2, "--placement", "folded", "--split-backward", "no", "--recomputation", "none")
        _, keeping = self.plan(*words)
        text, releasing = self.plan(*words, "--gradient-release", "yes")
        self.assertNotIn("gradient_release", keeping)
        self.assertTrue(releasing["gradient_release"])
        self.assertIn("gradient release", text)
        bytes_of = [max(one["predicted"]["peak_memory_bytes"]) for one in (keeping, releasing)]
        self.assertLess(bytes_of[1], bytes_of[0])
        # Its own need is sufficient as a limit.
        self.refused(*words, "--memory-limit", bytes_of[1], code=3, naming="need more memory")
        _, fitted = self.plan(*words, "--gradient-release", "yes", "--memory-limit", bytes_of[1])
        self.assertLessEqual(max(fitted["predicted"]["peak_memory_bytes"]), bytes_of[1])

    def test_a_model_that_cannot_be_cut_says_so(self):
        at = written("profile.json", profile(4))
        self.refused("--profile", at, "--devices", 8, "--global-batch", 16, "--pipeline", 8, code=3, naming="layers")


class Errors(Case):
    def test_a_wrong_argument_is_named_in_one_line(self):
        model = ("--model", "sd21", "--device", "h200")
        sizes = ("--devices", "8", "--global-batch", "64")
        for words, naming in (
                ((), "--devices"), (sizes, "--model-config or --profile"),
                ((*model, *sizes, "--model-config", "x"), "--model-config"),
                (("--model-config", "/no/such/folder", "--device", "h200", *sizes), "/no/such/folder"),
                (("--model-config", "x", *sizes), "--device"),
                (("--model-config", FOLDER, "--device", "h200", *sizes, "--cascade-with", "sd15"), "--cascade-with"),
                (("--model-config", f"{FOLDER}@6x8", "--device", "h200", *sizes), "6 x 8"),
                ((*model, "--devices", "8"), "--global-batch"),
                (("--model", "sd22", "--device", "h200", *sizes), "--model"),
                (("--model", "sd21", "--device", "h300", *sizes), "--device"),
                (("--model", "sd21", *sizes), "--device"),
                ((*model, *sizes, "--pipeline", "3"), "--pipeline"),
                ((*model, *sizes, "--pipeline", "-1"), "--pipeline"),
                ((*model, *sizes, "--pipeline", "4", "--data", "4"), "--data"),
                ((*model, *sizes, "--microbatch-size", "7"), "--microbatch-size"),
                ((*model, *sizes, "--data", "2", "--microbatch-size", "4", "--microbatches", "4"), "--microbatches"),
                ((*model, *sizes, "--waves", "0"), "--waves"),
                ((*model, *sizes, "--waves", "2", "--placement", "sequential"), "--waves"),
                ((*model, *sizes, "--placement", "round"), "--placement"),
                ((*model, *sizes, "--split-backward", "maybe"), "--split-backward"),
                ((*model, *sizes, "--memory-limit", "1e9"), "--memory-limit"),
                ((*model, *sizes, "--memory-limit", "0"), "--memory-limit"),
                ((*model, *sizes, "--schedule", "best"), "--schedule"),
                ((*model, *sizes, "--time-limit", "nan"), "--time-limit"),
                ((*model, *sizes, "--schedule", "1f1b", "--placement", "folded"), "--schedule"),
                ((*model, *sizes, "--schedule", "1f1b", "--waves", "2"), "--schedule 1f1b"),
                ((*model, *sizes, "--schedule", "zb-v", "--waves", "2"), "--schedule zb-v"),
                ((*model, *sizes, "--schedule", "zb-v", "--split-backward", "no"), "--schedule zb-v"),
                ((*model, *sizes, "--schedule", "zb-v", "--pipeline", "1"), "--schedule zb-v"),
                ((*model, *sizes, "--schedule", "ilp", "--time-limit", "0"), "--time-limit"),
                ((*model, *sizes, "--pipeline", "1", "--split-backward", "yes"), "--split-backward"),
                ((*model, *sizes, "--profile", "p.json"), "--profile"),
                ((*model, *sizes, "--colour", "red"), "--colour"),
                ((*model, *sizes, "--out", "/no/such/folder/plan.json"), "/no/such/folder"),
                ((*model, *sizes, "--svg", "/no/such/folder/plan.svg"), "/no/such/folder"),
                ((*model, *sizes, "--torch", "/no/such/folder/plan"), "/no/such/folder"),
                ((*model, *sizes, "--torch", ROOM / "none", "--cascade-with", "sd15"),
                 "--torch: plans for PyTorch have no cascades"),
                ((*model, *sizes, "--torch", ROOM / "none", "--self-conditioning"), "no previews"),
                ((*model, *sizes, "--torch", ROOM / "none", "--frozen", "bubbles"), "no tasks of frozen networks"),
                ((*model, *sizes, "--torch", ROOM / "none", "--shard-optimizer", "tuned"),
                 "no sharded optimizer state"),
                ((*model, *sizes, "--torch", ROOM / "none", "--gradient-release", "yes"), "no gradient release"),
                ((*model, *sizes, "--gradient-release", "maybe"), "--gradient-release"),
                ((*model, *sizes, "--torch", ROOM / "none", "--optimizer", "adamw8"), "no moments in 8 bits"),
                ((*model, *sizes, "--torch", ROOM / "none", "--optimizer", "adafactor"), "no factored moments"),
                ((*model, *sizes, "--torch", ROOM / "none", "--weights", "kahan"), "no weights without master weights"),
                (("--model", "sd21@64x64,64x96", "--device", "h200", *sizes, "--torch", ROOM / "none"),
                 "no steps of several sizes"),
                ((*model, *sizes, "--cluster", "/no/such/file.json"), "/no/such/file.json")):
            with self.subTest(words):
                self.refused(*words, naming=naming)

    def test_a_report_that_cannot_be_written_is_a_failure(self):
        words = (PROGRAM, "--profile", written("profile.json", profile()), "--devices", "2", "--global-batch", "4",
                 "--time-limit", "0")
        with open("/dev/full", "w") as full:
            done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"\Apulse_plan: [^\n]*standard output\n\Z")

    def test_a_wrong_file_is_named_with_its_field(self):
        good = written("profile.json", profile())
        sizes = ("--devices", 4, "--global-batch", 16)
        for value, field in ((profile(format="pulse-profile/2"), "format"),
                             (profile(microbatch_size=0), "microbatch_size"),
                             (profile(layers=0), "layers"), (profile(speed=1), "speed"),
                             (profile(skips=[{"from": "layer5", "to": "layer1", "bytes": 1}]), "skips[0].to")):
            at = written("bad.json", value)
            with self.subTest(field):
                self.refused("--profile", at, *sizes, naming=field)
                self.refused("--profile", at, *sizes, naming=str(at))
        for value, field in ((cluster(nodes=0), "nodes"), (cluster(memory_bytes="much"), "memory_bytes"),
                             (cluster(intra_node={"latency_us": 1}), "intra_node.bandwidth_gb_per_s"),
                             (cluster(inter_node={"latency_us": -1, "bandwidth_gb_per_s": 1}),
                              "inter_node.latency_us")):
            at = written("bad.json", value)
            with self.subTest(field):
                self.refused("--profile", good, "--cluster", at, *sizes, naming=field)
        for speed in (0, 1e9):
            value = cluster(nodes=1, devices_per_node=1,
                            devices=[{"device": "x", "memory_bytes": 1, "relative_speed": speed}])
            del value["memory_bytes"]
            self.refused("--profile", good, "--cluster", written("bad.json", value), *sizes,
                         naming="devices[0].relative_speed")
        self.refused("--profile", good, "--cluster", written("small.json", cluster(nodes=1)), *sizes,
                     naming="--devices")

    def test_help_tells_of_every_option(self):
        text = self.invoke("--help").stdout
        for option in OPTIONS:
            self.assertRegex(text, rf"(?m)^\s+{option}\b")
        for name in MODELS:
            self.assertIn(name, text)


class Pictures(Case):
    def test_picture_and_trace_show_every_pass(self):
        svg, trace = fresh("plan.svg"), fresh("plan.trace.json")
        _, plan = self.plan(*SMALL, "--pipeline", 4, "--microbatch-size", 4, "--svg", svg, "--trace", trace)
        passes = sum(len(device) for device in plan["schedule"])
        root = xml.fromstring(svg.read_text())
        titles = [t.text for t in root.iter("{http://www.w3.org/2000/svg}title")]
        self.assertEqual(sum(1 for t in titles if re.match(r"(forward|backward)", t)), passes)
        self.assertGreater(sum(1 for t in titles if t.startswith("send ")), 0)
        self.assertGreater(len(list(root.iter("{http://www.w3.org/2000/svg}polygon"))), 0, "memory over time")
        events = json.loads(trace.read_text())["traceEvents"]
        self.assertEqual(sum(1 for e in events if e["ph"] == "X" and e["tid"] == 0), passes)
        self.assertGreater(sum(1 for e in events if e["ph"] == "C"), 0)


class Torch(Case):
    def test_the_folder_says_what_the_plan_says(self):
        for split in ("yes", "no"):
            folder, out = fresh("torch"), fresh("plan.json")
            done = self.invoke("--model", "sd21", "--device", "a100-80gb", "--devices", 4, "--global-batch", 32,
                               "--time-limit", 0, "--pipeline", 4, "--placement", "folded", "--split-backward", split,
                               "--torch", folder, "--out", out)
            self.assertIn(f"wrote {folder}\n", done.stdout)
            self.assertEqual({path.name for path in folder.iterdir()},
                             {"plan.json", "schedule.csv", "stages.json", "README.md"})
            self.assertEqual((folder / "plan.json").read_text(), out.read_text())
            plan, table = json.loads(out.read_text()), json.loads((folder / "stages.json").read_text())
            self.assertNotIn("frozen_tasks", plan)
            letter = {"F": "F", "B": "I" if split == "yes" else "B", "W": "W"}
            self.assertEqual((folder / "schedule.csv").read_text().splitlines(), [
                ",".join(f"{one['stage']}{letter[one['op']]}{one['microbatch']}" for one in device)
                for device in plan["schedule"]])
            self.assertEqual((table["format"], table["model"]), ("pulse-stages/1", "sd21"))
            layers = [name for stage in table["stages"] for name in stage["layers"]]
            for stage, known in zip(table["stages"], plan["stages"], strict=True):
                self.assertEqual((stage["index"], stage["device"]), (known["index"], known["device"]))
                self.assertEqual(stage["layers"], layers[known["first_layer"]:known["last_layer"] + 1])
            self.assertEqual((layers[0], layers[-1], len(set(layers))),
                             ("conv_in", "conv_out", plan["stages"][-1]["last_layer"] + 1))
            self.assertEqual(len(table["skips"]), 12)
            for edge in table["skips"]:
                self.assertLess(layers.index(edge["from"]), layers.index(edge["to"]))
            self.assertIn("torchrun --nproc-per-node 4 examples/torch_pipeline/train.py",
                          (folder / "README.md").read_text())


class Interrupt(Case):
    def test_ctrl_c_prints_the_best_plan_so_far(self):
        out = fresh("plan.json")
        line = [PROGRAM, "--model", "sdxl", "--device", "a100-80gb", "--devices", "8", "--global-batch", "64",
                "--pipeline", "8", "--waves", "2", "--placement", "folded", "--split-backward", "no",
                "--microbatch-size", "1", "--schedule", "ilp", "--time-limit", "100", "--out", str(out)]
        started = time.monotonic()
        running = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(3)
        running.send_signal(signal.SIGINT)
        text, errors = running.communicate(timeout=PATIENCE)
        self.assertEqual(running.returncode, 0, errors)
        self.assertLess(time.monotonic() - started, 60)
        self.assertIn("stopped", text)
        self.check_plan(json.loads(out.read_text()), 8, 64)

    def test_a_plan_that_was_found_is_written(self):
        """Also if Ctrl-C comes while a second one is made, which the first is compared with."""
        out = fresh("plan.json")
        line = [PROGRAM, "--model", "sd21", "--device", "h200", "--devices", "8", "--global-batch", "64",
                "--time-limit", "0", "--frozen", "bubbles", "--out", str(out)]
        terminal, other = pty.openpty()
        running = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=other, text=True)
        self.addCleanup(running.kill)
        os.close(other)
        shown = b""
        while b"\r\033[K\r\033[K" not in shown:  # the first search's line is erased, then the second one's begins
            shown += os.read(terminal, 1)
        running.send_signal(signal.SIGINT)
        text, _ = running.communicate(timeout=PATIENCE)
        os.close(terminal)
        self.assertEqual(running.returncode, 0, text)
        self.assertIn("plan: ", text)
        self.check_plan(json.loads(out.read_text()), 8, 64)


if __name__ == "__main__":
    unittest.main()
