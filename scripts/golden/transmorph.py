"""Golden values of TransMorph, from an implementation in PyTorch with the tensor names of the published
model and weights from a formula.

    python3 -m venv v && v/bin/pip install torch numpy
    v/bin/python scripts/golden/transmorph.py > crates/ffdp-train/src/import/golden.json

Written from the public description (Chen et al., arXiv 2111.10480; Liu et al., ICCV 2021). Weights come from
a linear congruential generator seeded by the CRC-32 of the tensor's name, images from one seeded by a
number, so that the test makes the same bits and no weights have to be stored. Arrays are [D, H, W].
"""

import json
import sys
import zlib

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CHANNELS, DEPTHS, HEADS = 6, [2, 2, 4, 2], [2, 2, 4, 4]  # Tiny
WINDOW = (4, 4, 4)
SIZE = (32, 64, 32)
SAMPLES = 40


def numbers(seed, count):
    """Numbers in [-1, 1): the upper 24 bits of Numerical Recipes' generator."""
    state, out = seed, np.empty(count)
    for i in range(count):
        state = (1664525 * state + 1013904223) % 2**32
        out[i] = (state >> 8) / 2**23 - 1.0
    return out


class PatchEmbed(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Conv3d(2, CHANNELS, kernel_size=4, stride=4)
        self.norm = nn.LayerNorm(CHANNELS)

    def forward(self, x):
        return self.norm(self.proj(x).permute(0, 2, 3, 4, 1))


class Attention(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        rows = int(np.prod([2 * w - 1 for w in WINDOW]))
        self.relative_position_bias_table = nn.Parameter(torch.zeros(rows, heads))
        self.qkv = nn.Linear(channels, 3 * channels, bias=False)
        self.proj = nn.Linear(channels, channels)
        place = np.stack(np.meshgrid(*[np.arange(w) for w in WINDOW], indexing="ij")).reshape(3, -1)
        offset = place[:, :, None] - place[:, None, :] + np.array(WINDOW).reshape(3, 1, 1) - 1
        d, h, w = [2 * side - 1 for side in WINDOW]
        index = torch.from_numpy((offset[0] * h + offset[1]) * w + offset[2])
        self.register_buffer("relative_position_index", index)

    def forward(self, x, mask):
        windows, tokens, channels = x.shape
        per_head = channels // self.heads
        q, k, v = self.qkv(x).reshape(windows, tokens, 3, self.heads, per_head).permute(2, 0, 3, 1, 4)
        bias = self.relative_position_bias_table[self.relative_position_index].permute(2, 0, 1)
        scores = (q * per_head**-0.5) @ k.transpose(-2, -1) + bias
        if mask is not None:
            scores = scores + mask[:, None]
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(windows, tokens, channels))


class Mlp(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.fc1 = nn.Linear(channels, 4 * channels)
        self.fc2 = nn.Linear(4 * channels, channels)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


def to_windows(x):
    d, h, w, c = x.shape
    a, b, e = WINDOW
    x = x.reshape(d // a, a, h // b, b, w // e, e, c).permute(0, 2, 4, 1, 3, 5, 6)
    return x.reshape(-1, a * b * e, c)


def from_windows(x, size):
    d, h, w = size
    a, b, e = WINDOW
    x = x.reshape(d // a, h // b, w // e, a, b, e, -1).permute(0, 3, 1, 4, 2, 5, 6)
    return x.reshape(d, h, w, -1)


def shift_mask(size, shift):
    region, number = np.zeros(size), 0
    slices = [(slice(0, -w), slice(-w, -s), slice(-s, None)) for w, s in zip(WINDOW, shift)]
    for a in slices[0]:
        for b in slices[1]:
            for c in slices[2]:
                region[a, b, c] = number
                number += 1
    region = to_windows(torch.from_numpy(region)[..., None])[..., 0]
    return torch.where(region[:, :, None] == region[:, None, :], 0.0, -100.0).float()


class Block(nn.Module):
    def __init__(self, channels, heads, shifted):
        super().__init__()
        self.shift = [w // 2 for w in WINDOW] if shifted else None
        self.norm1 = nn.LayerNorm(channels)
        self.attn = Attention(channels, heads)
        self.norm2 = nn.LayerNorm(channels)
        self.mlp = Mlp(channels)

    def forward(self, x):
        y = self.norm1(x)[0]
        size = y.shape[:3]
        padding = [-n % w for n, w in zip(size, WINDOW)]
        y = F.pad(y, (0, 0, 0, padding[2], 0, padding[1], 0, padding[0]))
        padded, mask = y.shape[:3], None
        if self.shift:
            y = torch.roll(y, [-s for s in self.shift], (0, 1, 2))
            mask = shift_mask(padded, self.shift)
        y = from_windows(self.attn(to_windows(y), mask), padded)
        if self.shift:
            y = torch.roll(y, self.shift, (0, 1, 2))
        x = x + y[: size[0], : size[1], : size[2]]
        return x + self.mlp(self.norm2(x))


class Merging(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.reduction = nn.Linear(8 * channels, 2 * channels, bias=False)
        self.norm = nn.LayerNorm(8 * channels)

    def forward(self, x):
        x = F.pad(x, (0, 0, 0, x.shape[3] % 2, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
        corners = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (0, 1, 1), (1, 0, 1), (1, 1, 1)]
        parts = [x[:, a::2, b::2, c::2] for a, b, c in corners]
        return self.reduction(self.norm(torch.cat(parts, -1)))


class Layer(nn.Module):
    def __init__(self, stage):
        super().__init__()
        channels = CHANNELS * 2**stage
        blocks = [Block(channels, HEADS[stage], i % 2 == 1) for i in range(DEPTHS[stage])]
        self.blocks = nn.ModuleList(blocks)
        self.downsample = Merging(channels) if stage < 3 else None


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch_embed = PatchEmbed()
        self.layers = nn.ModuleList([Layer(stage) for stage in range(4)])
        for stage in range(4):
            self.add_module(f"norm{stage}", nn.LayerNorm(CHANNELS * 2**stage))

    def forward(self, x):
        x, out = self.patch_embed(x), []
        for stage, layer in enumerate(self.layers):
            for block in layer.blocks:
                x = block(x)
            out.append(getattr(self, f"norm{stage}")(x).permute(0, 4, 1, 2, 3))
            if layer.downsample is not None:
                x = layer.downsample(x)
        return out


def conv_relu(c_in, c_out):
    conv = nn.Conv3d(c_in, c_out, 3, padding=1, bias=False)
    return nn.Sequential(conv, nn.InstanceNorm3d(c_out), nn.LeakyReLU(0.01))


class Up(nn.Module):
    def __init__(self, c_in, c_skip, c_out):
        super().__init__()
        self.conv1 = conv_relu(c_in + c_skip, c_out)
        self.conv2 = conv_relu(c_out, c_out)

    def forward(self, x, skip):
        x = F.interpolate(x, scale_factor=2, mode="trilinear", align_corners=False)
        return self.conv2(self.conv1(torch.cat([x, skip], 1)))


class TransMorph(nn.Module):
    def __init__(self, full):
        super().__init__()
        c = CHANNELS
        self.full = full
        self.transformer = Transformer()
        self.up0 = Up(8 * c, 4 * c, 4 * c)
        self.up1 = Up(4 * c, 2 * c, 2 * c)
        self.up2 = Up(2 * c, c, c)
        self.up3 = Up(c, c // 2, c // 2 if full else 16)
        if full:
            self.up4 = Up(c // 2, 16, 16)
        self.c1 = conv_relu(2, c // 2)
        self.c2 = conv_relu(2, 16)
        self.reg_head = nn.Sequential(nn.Conv3d(16, 3, 3, padding=1))

    def forward(self, moving, fixed):
        x = torch.cat([moving, fixed], 1)
        skips = self.transformer(x)
        y = self.up0(skips[3], skips[2])
        y = self.up1(y, skips[1])
        y = self.up2(y, skips[0])
        y = self.up3(y, self.c1(F.avg_pool3d(x, 3, stride=2, padding=1)))
        if self.full:
            return self.reg_head(self.up4(y, self.c2(x)))
        return F.interpolate(self.reg_head(y), scale_factor=2, mode="trilinear", align_corners=False)


def fill(model):
    """Weights by name: U(+-1/sqrt(fan-in)), norms around 1, a head of fields of about a voxel."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            values = numbers(zlib.crc32(name.encode()), p.numel())
            if "norm" in name and name.endswith("weight"):
                values = 1 + 0.2 * values
            elif p.dim() > 1 and "table" not in name:
                values = values / np.sqrt(p.numel() / p.shape[0])
            else:
                values = 0.2 * values
            p.copy_(torch.from_numpy(values).reshape(p.shape))


def image(seed):
    """Blocks of 8 voxels with ramps: values in [0, 1)."""
    d, h, w = np.meshgrid(*[np.arange(n) for n in SIZE], indexing="ij")
    blocks = numbers(seed, (SIZE[0] // 8) * (SIZE[1] // 8) * (SIZE[2] // 8))
    blocks = blocks.reshape([n // 8 for n in SIZE])[d // 8, h // 8, w // 8]
    values = 0.25 + 0.25 * blocks + 0.5 * ((d % 8) + (h % 8) + (w % 8)) / 24
    return torch.from_numpy(values).float()[None, None]


def published_warp(moving, flow):
    """Coordinates normalised by n - 1 and sampled without aligned corners."""
    grid = torch.stack(torch.meshgrid(*[torch.arange(n) for n in SIZE], indexing="ij")).float()
    places = grid[None] + flow
    scaled = [2 * (places[:, i] / (n - 1) - 0.5) for i, n in enumerate(SIZE)]
    return F.grid_sample(moving, torch.stack(scaled[::-1], -1), mode="bilinear", align_corners=False)


def golden(full):
    torch.manual_seed(0)
    model = TransMorph(full).eval()
    fill(model)
    moving, fixed = image(1), image(2)
    with torch.no_grad():
        flow = model(moving, fixed)
        moved = published_warp(moving, flow)
    count = flow[0, 0].numel()
    at = [(k * 7919 + 13) % count for k in range(SAMPLES)]
    pick = lambda values: [round(float(v), 7) for v in values.reshape(-1)[at]]
    return {
        "flow_dhw": [pick(flow[0, i]) for i in range(3)],
        "flow_mean_square": float(flow.double().square().mean()),
        "moved_published": pick(moved),
        "shapes": {name: list(p.shape) for name, p in model.named_parameters()},
    }


if __name__ == "__main__":
    torch.set_num_threads(8)
    result = {"torch": torch.__version__, "size_dhw": SIZE, "half": golden(False), "full": golden(True)}
    json.dump(result, sys.stdout)
    print()
