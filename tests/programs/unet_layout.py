"""An independent description of ddpm_fmnist_small: the layout of diffusers' UNet2DModel, without pulse's code."""

CHANNELS = (16, 32, 64)
ATTENTION = (False, False, True)
SIZE = 28
TIME = 4 * CHANNELS[0]
FLOAT = 4


class Layout:
    """`layers`: names in order; `outputs`: floats per sample after each; `skips`: (from, to, floats); `weights`:
    shapes."""

    def __init__(self):
        self.layers, self.outputs, self.skips, self.weights = [], [], [], {}
        self._encoder()
        self._middle()
        self._decoder()

    def _add(self, name, channels):
        self.layers.append(name)
        self.outputs.append(channels * self._size * self._size)

    def _affine(self, name, *shape):
        self.weights[name + ".weight"] = list(shape)
        self.weights[name + ".bias"] = [shape[0]]

    def _resnet(self, name, inputs, outputs):
        self._affine(name + ".norm1", inputs)
        self._affine(name + ".conv1", outputs, inputs, 3, 3)
        self._affine(name + ".time_emb_proj", outputs, TIME)
        self._affine(name + ".norm2", outputs)
        self._affine(name + ".conv2", outputs, outputs, 3, 3)
        if inputs != outputs:
            self._affine(name + ".conv_shortcut", outputs, inputs, 1, 1)
        # A cut between its parts sends the residual, too.
        self._add(name + "#0", 2 * outputs)
        self._add(name + "#1", outputs)

    def _attention(self, name, channels):
        self._affine(name + ".group_norm", channels)
        for part in ("to_q", "to_k", "to_v", "to_out.0"):
            self._affine(f"{name}.{part}", channels, channels)
        self._add(name, channels)

    def _push(self, channels):
        self._waiting.append((len(self.layers) - 1, channels))

    def _encoder(self):
        self._size, self._waiting = SIZE, []
        self._affine("time_embedding.linear_1", TIME, CHANNELS[0])
        self._affine("time_embedding.linear_2", TIME, TIME)
        self._affine("conv_in", CHANNELS[0], 1, 3, 3)
        self._add("conv_in", CHANNELS[0])
        self._push(CHANNELS[0])
        width = CHANNELS[0]
        for i, channels in enumerate(CHANNELS):
            for j in range(2):
                self._resnet(f"down_blocks.{i}.resnets.{j}", width, channels)
                width = channels
                if ATTENTION[i]:
                    self._attention(f"down_blocks.{i}.attentions.{j}", channels)
                self._push(channels)
            if i + 1 < len(CHANNELS):
                self._size //= 2
                name = f"down_blocks.{i}.downsamplers.0"
                self._affine(name + ".conv", channels, channels, 3, 3)
                self._add(name, channels)
                self._push(channels)

    def _middle(self):
        width = CHANNELS[-1]
        self._resnet("mid_block.resnets.0", width, width)
        self._attention("mid_block.attentions.0", width)
        self._resnet("mid_block.resnets.1", width, width)

    def _decoder(self):
        width = CHANNELS[-1]
        for i, channels in enumerate(reversed(CHANNELS)):
            for j in range(3):
                source, skipped = self._waiting.pop()
                self.skips.append((source, len(self.layers), skipped * self._size * self._size))
                self._resnet(f"up_blocks.{i}.resnets.{j}", width + skipped, channels)
                width = channels
                if ATTENTION[-1 - i]:
                    self._attention(f"up_blocks.{i}.attentions.{j}", channels)
            if i + 1 < len(CHANNELS):
                self._size *= 2
                name = f"up_blocks.{i}.upsamplers.0"
                self._affine(name + ".conv", channels, channels, 3, 3)
                self._add(name, channels)
        self._affine("conv_norm_out", width)
        self._affine("conv_out", 1, width, 3, 3)
        self._add("conv_out", 1)

    def traffic(self, plan):
        """(boundary, skip) bytes that cross devices in a step of a plan as read from JSON."""
        stages = plan["stages"]
        samples = plan["microbatches"] * plan["microbatch_size"]
        stage_of = {layer: s for s, stage in enumerate(stages)
                    for layer in range(stage["first_layer"], stage["last_layer"] + 1)}
        device = [stage["device"] for stage in stages]
        crossings = [int(device[s] != device[s + 1]) for s in range(len(stages) - 1)]
        boundary = sum(self.outputs[stages[s]["last_layer"]] + TIME for s, crossing in enumerate(crossings) if crossing)
        skip = 0
        for source, target, floats in self.skips:
            first, last = stage_of[source], stage_of[target]
            if device[first] != device[last]:
                skip += floats * (sum(crossings[first:last]) if plan["skip_routing"] == "relayed" else 1)
        # Everything sent forward comes back as a gradient.
        return 2 * FLOAT * samples * boundary, 2 * FLOAT * samples * skip
