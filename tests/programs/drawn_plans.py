"""Plans drawn at random, as pulse_train's options."""


def drawn(draw, pipeline, replicas):
    """Options of a plan of so many ranks and replicas, by a random.Random."""
    placement = draw.choice(["folded", "sequential", "interleaved"])
    orders = {"folded": ["zb-v"], "sequential": ["1f1b"], "interleaved": []}[placement] if pipeline > 1 else []
    schedule = draw.choice(["list", "gpipe", *orders])
    waves = {"folded": 1 if schedule == "zb-v" else draw.choice([1, 2]), "sequential": 1,
             "interleaved": draw.choice([2, 4])}[placement]
    split = "no" if pipeline == 1 else "yes" if schedule == "zb-v" else draw.choice(["yes", "no"])
    options = ["--ranks", pipeline * replicas, "--replicas", replicas, "--placement", placement, "--waves", waves,
               "--schedule", schedule, "--split-backward", split, "--routing", draw.choice(["direct", "relayed"]),
               "--recomputation", draw.choice(["none", "skips", "stages"])]
    if replicas > 1 and draw.random() < 0.5:
        options.append("--shard-optimizer")
    return options
