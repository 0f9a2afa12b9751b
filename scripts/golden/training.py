"""Loss curves of 20 training steps in PyTorch, for the test that ours are the same.

    python3 -m venv v && v/bin/pip install torch numpy
    v/bin/python scripts/golden/training.py > crates/ffdp-train/src/tests/curves.json
    v/bin/python scripts/golden/training.py --spread      how far apart PyTorch's own curves are

TransMorph-Tiny (transmorph.py) and a small VoxelMorph from weights of the same generator, a pair of smooth
images with labels from a formula, both directions in turn. The loss is written out from its definition:
LNCC (means over a window of 9^3, zeros outside) + soft Dice of the labels + 1/2 diffusion; the
optimiser is torch.optim.Adam with amsgrad. Everything is f32; `--spread` runs it again in f64, and in f32
from weights that are one rounding apart: no other f32 program can be closer than these are.
"""

import json
import sys
import zlib

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from transmorph import SIZE, TransMorph, fill, numbers

STEPS, WINDOW, SMOOTHNESS, LABELS = 20, 9, 0.5, 3
CASES, RATE = ("transmorph_half", "transmorph_full", "voxelmorph"), 1e-3


class Unit(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv3d(inputs, outputs, 3, padding=1)

    def forward(self, x):
        return F.leaky_relu(self.conv(x), 0.2)


class VoxelMorph(nn.Module):
    """Four levels; every decoder unit is followed by nearest upsampling and a join."""

    def __init__(self, encoder=(4, 8, 8, 8), decoder=(8, 8, 8, 8), last=(8, 4, 4)):
        super().__init__()
        channels = 2
        self.encoder, self.decoder, self.last = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for c in encoder:
            self.encoder.append(Unit(channels, c))
            channels = c
        for c, skip in zip(decoder, reversed(encoder)):
            self.decoder.append(Unit(channels, c))
            channels = c + skip
        for c in last:
            self.last.append(Unit(channels, c))
            channels = c
        self.head = nn.Conv3d(channels, 3, 3, padding=1)

    def forward(self, moving, fixed):
        x, skips = torch.cat([moving, fixed], 1), []
        for unit in self.encoder:
            x = unit(x)
            skips.append(x)
            x = F.max_pool3d(x, 2)
        for unit, skip in zip(self.decoder, reversed(skips)):
            x = torch.cat([F.interpolate(unit(x), scale_factor=2, mode="nearest"), skip], 1)
        for unit in self.last:
            x = unit(x)
        return self.head(x)


def function(places):
    """Waves of three lengths, values in [0, 1]."""
    d, h, w = places
    return 0.5 + 0.2 * np.sin(d / 3 + 1) * np.sin(h / 4) + 0.2 * np.sin(w / 5 - h / 6) + 0.1 * np.sin(w / 1.7)


def pair():
    """The function, and the function seen through a smooth displacement of up to 2.5 voxels."""
    places = np.meshgrid(*[np.arange(n, dtype=np.float64) for n in SIZE], indexing="ij")
    d, h, w = places
    shifted = [d + 1.5 * np.sin(h / 9), h + 2.0 * np.cos(w / 8), w + 1.0 + 1.5 * np.sin(d / 7)]
    return [torch.from_numpy(function(p).astype(np.float32))[None, None] for p in (places, shifted)]


def memberships(image):
    """Label 1 where the image is above 0.3, 2 above 0.5, 3 above 0.7: one channel each, [1, 3, D, H, W]."""
    label = (image > 0.3).int() + (image > 0.5).int() + (image > 0.7).int()
    return torch.cat([(label == k).to(image.dtype) for k in range(1, LABELS + 1)], 1)


def warp(image, flow):
    """Components of the flow are (d, h, w), in voxels; zeros outside."""
    axes = [torch.arange(n, dtype=flow.dtype) for n in SIZE]
    places = torch.stack(torch.meshgrid(*axes, indexing="ij"))[None] + flow
    scaled = [2 * places[:, i] / (n - 1) - 1 for i, n in enumerate(SIZE)]
    return F.grid_sample(image, torch.stack(scaled[::-1], -1), mode="bilinear", align_corners=True)


def lncc(a, b, epsilon=1e-5):
    mean = lambda x: F.avg_pool3d(x, WINDOW, stride=1, padding=WINDOW // 2)
    ma, mb = mean(a), mean(b)
    covariance = mean(a * b) - ma * mb
    va, vb = (mean(a * a) - ma * ma).clamp(min=0), (mean(b * b) - mb * mb).clamp(min=0)
    return 1 - (covariance**2 / (va * vb + epsilon)).mean()


def dice(moved, fixed, epsilon=1e-5):
    both = (moved * fixed).sum((2, 3, 4))
    return 1 - (2 * both / (moved.square().sum((2, 3, 4)) + fixed.sum((2, 3, 4)) + epsilon)).mean()


def diffusion(u):
    return sum(u.diff(dim=axis).square().mean() for axis in (2, 3, 4)) / 3


def curve(name, dtype=torch.float32, nudge=False):
    network = VoxelMorph() if name == "voxelmorph" else TransMorph("full" in name)
    fill(network)
    if nudge:
        generator = torch.Generator().manual_seed(1)
        for p in network.parameters():
            sign = torch.randint(0, 2, p.shape, generator=generator) * 2 - 1
            p.data = torch.nextafter(p.data, p.data + sign * p.data.abs())
    network = network.to(dtype).train()
    # An attention mask and a head of fields of a fraction of a voxel at the start.
    head = network.head if name == "voxelmorph" else network.reg_head[0]
    with torch.no_grad():
        head.weight *= 0.1
        head.bias *= 0.1
    images = [image.to(dtype) for image in pair()]
    labels = [memberships(image) for image in images]
    adam = torch.optim.Adam(network.parameters(), lr=RATE, amsgrad=True, eps=1e-8)
    losses = []
    for step in range(STEPS):
        moving, fixed = step % 2, 1 - step % 2
        flow = network(images[moving], images[fixed])
        loss = lncc(warp(images[moving], flow), images[fixed]) + SMOOTHNESS * diffusion(flow)
        loss = loss + dice(warp(labels[moving], flow), labels[fixed])
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return network, losses


def main():
    torch.manual_seed(0)
    torch.set_num_threads(8)
    result = {"torch": torch.__version__, "steps": STEPS, "rate": RATE, "size_dhw": SIZE, "curves": {}}
    for name in CASES:
        network, losses = curve(name)
        shapes = {key: list(p.shape) for key, p in network.named_parameters()}
        result["curves"][name] = {"losses": losses, "shapes": shapes}
        if "--spread" in sys.argv:
            apart = lambda other: max(abs(a - b) for a, b in zip(losses, other))
            print(name, "%.4f -> %.4f" % (losses[0], losses[-1]), file=sys.stderr)
            print("  f64:    %.1e" % apart(curve(name, torch.float64)[1]), file=sys.stderr)
            print("  nudged: %.1e" % apart(curve(name, nudge=True)[1]), file=sys.stderr)
    json.dump(result, sys.stdout)
    print()


if __name__ == "__main__":
    main()
