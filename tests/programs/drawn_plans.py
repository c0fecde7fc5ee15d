"""Random plans, as options of pulse_train or as files."""


def drawn(draw, pipeline, replicas):
    """Options of a random plan with so many ranks and replicas; `draw` is a random.Random."""
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


def scattered(draw, plan, parts):
    """The plan (as JSON) with frozen tasks after its passes, a random device for each layer of `parts`, a profile's
    frozen components. Chains pause wherever the device changes, and sometimes elsewhere, while other samples' chains
    continue. A call has up to four samples, if its part takes as many, and after a pause others."""
    devices = len(plan["schedule"])
    samples = plan["microbatches"] * plan["microbatch_size"]
    hosts = [[draw.randrange(devices) for _ in part["layers"]] for part in parts]
    begun = {(sample, component): 0 for sample in range(samples) for component in range(len(parts))}
    at = max(one["end_us"] for device in plan["schedule"] for one in device)
    tasks = [[] for _ in range(devices)]
    while begun:
        sample, component = draw.choice(list(begun))
        here, first = hosts[component], begun[sample, component]
        count = 1
        while (count < min(4, parts[component]["max_chunk"]) and begun.get((sample + count, component)) == first and
               draw.random() < 0.7):
            count += 1
        for i in range(count):
            del begun[sample + i, component]
        last = first
        while last + 1 < len(here) and here[last + 1] == here[first] and draw.random() < 0.7:
            last += 1
        tasks[here[first]].append({"component": component, "first_layer": first, "last_layer": last,
                                   "first_sample": sample, "samples": count, "start_us": at, "end_us": at + 1})
        at += 1
        if last + 1 < len(here):
            begun |= {(sample + i, component): last + 1 for i in range(count)}
    hosted = [sorted({t["component"] for t in device}) for device in tasks]
    return {**plan, "frozen_tasks": tasks, "frozen_hosts": hosted}
