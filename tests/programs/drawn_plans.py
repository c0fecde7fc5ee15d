"""Plans drawn at random, as pulse_train's options or as files."""


def drawn(draw, pipeline, replicas):
    """Options of a plan of so many ranks and replicas, by a random.Random."""
    placement = draw.choice(["folded", "sequential", "interleaved"])
    orders = {"folded": ["zb-v", "dualpipe-v", "hanayo"], "sequential": ["1f1b", "zb-h1"],
              "interleaved": []}[placement] if pipeline > 1 else []
    schedule = draw.choice(["list", "gpipe", *orders])
    waves = {"folded": 1 if schedule.endswith("-v") else draw.choice([1, 2]), "sequential": 1,
             "interleaved": draw.choice([2, 4])}[placement]
    always = schedule in ("zb-v", "dualpipe-v", "zb-h1")
    split = "no" if pipeline == 1 else "yes" if always else draw.choice(["yes", "no"])
    options = ["--ranks", pipeline * replicas, "--replicas", replicas, "--placement", placement, "--waves", waves,
               "--schedule", schedule, "--split-backward", split, "--routing", draw.choice(["direct", "relayed"]),
               "--recomputation", draw.choice(["none", "skips", "stages", "selective"])]
    if replicas > 1 and draw.random() < 0.5:
        options.append("--shard-optimizer")
    return options


def scattered(draw, plan, layers):
    """The plan (as JSON) with frozen tasks behind its passes: a device drawn for each of the layers[c] layers of
    component c. Chains pause wherever the device changes, and elsewhere, while those of other samples go on."""
    devices = len(plan["schedule"])
    hosts = [[draw.randrange(devices) for _ in range(count)] for count in layers]
    begun = {(sample, component): 0 for sample in range(plan["microbatches"] * plan["microbatch_size"]) for component in
             range(len(layers))}
    at = max(one["end_us"] for device in plan["schedule"] for one in device)
    tasks = [[] for _ in range(devices)]
    while begun:
        sample, component = draw.choice(list(begun))
        here, first = hosts[component], begun.pop((sample, component))
        last = first
        while last + 1 < len(here) and here[last + 1] == here[first] and draw.random() < 0.7:
            last += 1
        tasks[here[first]].append({"component": component, "first_layer": first, "last_layer": last,
                                   "first_sample": sample, "samples": 1, "start_us": at, "end_us": at + 1})
        at += 1
        if last + 1 < len(here):
            begun[sample, component] = last + 1
    hosted = [sorted({t["component"] for t in device}) for device in tasks]
    return {**plan, "frozen_tasks": tasks, "frozen_hosts": hosted}
