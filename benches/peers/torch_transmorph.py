#!/usr/bin/env python3
"""The cases of `benches/transmorph_step.rs` in plain PyTorch, timed the same way.

    python benches/peers/torch_transmorph.py                  CUDA, 160x192x224, all cases
    python benches/peers/torch_transmorph.py base --layers    and the layers of the decoder
    python benches/peers/torch_transmorph.py --check          parameter counts, on the CPU

Written from the paper (Chen et al. 2022, arXiv 2111.10480). Convolutions and matrix products use
TF32 (`--no-tf32` turns that off); cuDNN chooses its algorithms itself, or by trying them with
`--cudnn-benchmark` (faster steps, a slow first one, more memory). LNCC is VoxelMorph's: five conv3d of 9^3 ones; mutual information
is a Gaussian Parzen table of 32 x 32 bins by one matrix product; Dice warps one-hot labels; the warp
materialises the grid for F.grid_sample. A step is forward, backward and Adam (amsgrad), batch 1;
the figures are medians after warm-up and PyTorch's peak of allocated memory.
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

CHANNELS = {"tiny": 6, "small": 48, "base": 96, "large": 128}
DEPTHS = {"large": (2, 2, 12, 2)}
HEADS = {"tiny": (2, 2, 4, 4), "small": (4, 4, 4, 4), "base": (4, 4, 8, 8), "large": (4, 4, 8, 16)}
LABELS = 36


# ---------------------------------------------------------------- network


class Attention(nn.Module):
    def __init__(self, channels, heads, window):
        super().__init__()
        self.heads, self.scale = heads, (channels // heads) ** -0.5
        wd, wh, ww = window
        self.table = nn.Parameter(torch.zeros((2 * wd - 1) * (2 * wh - 1) * (2 * ww - 1), heads))
        nn.init.trunc_normal_(self.table, std=0.02)
        axes = [torch.arange(n) for n in window]
        at = torch.stack(torch.meshgrid(*axes, indexing="ij")).flatten(1)
        offset = at[:, :, None] - at[:, None, :] + torch.tensor([wd - 1, wh - 1, ww - 1])[:, None, None]
        rows = (offset[0] * (2 * wh - 1) + offset[1]) * (2 * ww - 1) + offset[2]
        self.register_buffer("rows", rows.flatten(), persistent=False)
        self.qkv = nn.Linear(channels, 3 * channels, bias=False)
        self.proj = nn.Linear(channels, channels)

    def forward(self, x, mask):
        n, t, c = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q * self.scale) @ k.transpose(-2, -1)
        scores = scores + self.table[self.rows].view(t, t, -1).permute(2, 0, 1)
        if mask is not None:
            windows = mask.shape[0]
            scores = scores.view(n // windows, windows, self.heads, t, t) + mask[None, :, None]
            scores = scores.view(n, self.heads, t, t)
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, c))


def cut(x, window):
    n, d, h, w, c = x.shape
    a, b, e = window
    x = x.view(n, d // a, a, h // b, b, w // e, e, c).permute(0, 1, 3, 5, 2, 4, 6, 7)
    return x.reshape(-1, a * b * e, c)


def join(x, window, size):
    d, h, w = size
    a, b, e = window
    x = x.view(-1, d // a, h // b, w // e, a, b, e, x.shape[-1]).permute(0, 1, 4, 2, 5, 3, 6, 7)
    return x.reshape(-1, d, h, w, x.shape[-1])


def drop_path(x, probability, training):
    if probability == 0 or not training:
        return x
    kept = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(1 - probability)
    return x * (kept / (1 - probability))


class Block(nn.Module):
    def __init__(self, channels, heads, window, shift, drop):
        super().__init__()
        self.window, self.shift, self.drop = window, shift, drop
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.attn = Attention(channels, heads, window)
        self.mlp = nn.Sequential(nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels))

    def forward(self, x, mask):
        size = x.shape[1:4]
        padded = [-(-s // w) * w for s, w in zip(size, self.window)]
        y = self.norm1(x)
        y = F.pad(y, (0, 0, 0, padded[2] - size[2], 0, padded[1] - size[1], 0, padded[0] - size[0]))
        if self.shift:
            y = torch.roll(y, [-s for s in self.shift], (1, 2, 3))
        y = join(self.attn(cut(y, self.window), mask if self.shift else None), self.window, padded)
        if self.shift:
            y = torch.roll(y, self.shift, (1, 2, 3))
        y = y[:, : size[0], : size[1], : size[2]]
        x = x + drop_path(y, self.drop, self.training)
        return x + drop_path(self.mlp(self.norm2(x)), self.drop, self.training)


class Merging(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.LayerNorm(8 * channels)
        self.reduction = nn.Linear(8 * channels, 2 * channels, bias=False)

    def forward(self, x):
        order = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (0, 1, 1), (1, 0, 1), (1, 1, 1)]
        x = F.pad(x, (0, 0, 0, x.shape[3] % 2, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
        return self.reduction(self.norm(torch.cat([x[:, a::2, b::2, c::2] for a, b, c in order], -1)))


def region_mask(size, window, shift, device):
    padded = [-(-s // w) * w for s, w in zip(size, window)]
    regions = torch.zeros(1, *padded, 1, device=device)
    count = 0
    spans = lambda a: (slice(0, -window[a]), slice(-window[a], -shift[a]), slice(-shift[a], None))
    for a in spans(0):
        for b in spans(1):
            for c in spans(2):
                regions[:, a, b, c] = count
                count += 1
    regions = cut(regions, window).squeeze(-1)
    return (regions[:, None, :] != regions[:, :, None]) * -100.0


class Encoder(nn.Module):
    def __init__(self, variant, window):
        super().__init__()
        c, depths, heads = CHANNELS[variant], DEPTHS.get(variant, (2, 2, 4, 2)), HEADS[variant]
        self.window, self.shift = window, [w // 2 for w in window]
        self.embed, self.norm = nn.Conv3d(2, c, 4, 4), nn.LayerNorm(c)
        drops = iter(torch.linspace(0, 0.3, sum(depths)).tolist())
        self.stages, self.merges, self.norms = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for s, depth in enumerate(depths):
            shifts = [self.shift if i % 2 else None for i in range(depth)]
            blocks = [Block(c << s, heads[s], window, shift, next(drops)) for shift in shifts]
            self.stages.append(nn.ModuleList(blocks))
            self.norms.append(nn.LayerNorm(c << s))
            if s < 3:
                self.merges.append(Merging(c << s))

    def forward(self, x):
        x = self.norm(self.embed(x).permute(0, 2, 3, 4, 1))
        outputs = []
        for s, blocks in enumerate(self.stages):
            mask = region_mask(x.shape[1:4], self.window, self.shift, x.device)
            for block in blocks:
                x = block(x, mask)
            outputs.append(self.norms[s](x).permute(0, 4, 1, 2, 3).contiguous())
            if s < 3:
                x = self.merges[s](x)
        return outputs


def unit(inputs, outputs):
    conv = nn.Conv3d(inputs, outputs, 3, padding=1, bias=False)
    return nn.Sequential(conv, nn.InstanceNorm3d(outputs), nn.LeakyReLU(0.01))


class Up(nn.Module):
    def __init__(self, inputs, skip, outputs):
        super().__init__()
        self.first, self.second = unit(inputs + skip, outputs), unit(outputs, outputs)
        self.up = nn.Upsample(scale_factor=2, mode="trilinear", align_corners=False)

    def forward(self, x, skip):
        return self.second(self.first(torch.cat([self.up(x), skip], 1)))


class TransMorph(nn.Module):
    def __init__(self, variant, full, window):
        super().__init__()
        c = CHANNELS[variant]
        self.full = full
        self.encoder = Encoder(variant, window)
        self.pool = nn.AvgPool3d(3, 2, 1)
        self.c1, self.c2 = unit(2, c // 2), unit(2, 16)
        self.up0, self.up1, self.up2 = Up(8 * c, 4 * c, 4 * c), Up(4 * c, 2 * c, 2 * c), Up(2 * c, c, c)
        self.up3 = Up(c, c // 2, c // 2 if full else 16)
        self.up4 = Up(c // 2, 16, 16) if full else None
        self.head = nn.Conv3d(16, 3, 3, padding=1)
        nn.init.normal_(self.head.weight, 0, 1e-5)
        nn.init.zeros_(self.head.bias)

    def forward(self, moving, fixed):
        images = torch.cat([moving, fixed], 1)
        s0, s1, s2, s3 = self.encoder(images)
        x = self.up2(self.up1(self.up0(s3, s2), s1), s0)
        x = self.up3(x, self.c1(self.pool(images)))
        if self.full:
            return self.head(self.up4(x, self.c2(images)))
        return F.interpolate(self.head(x), scale_factor=2, mode="trilinear", align_corners=False)


# ---------------------------------------------------------------- losses


class Warp(nn.Module):
    def __init__(self, size, device):
        super().__init__()
        axes = [torch.arange(n, device=device, dtype=torch.float32) for n in size]
        z, y, x = torch.meshgrid(*axes, indexing="ij")
        self.grid = torch.stack([x, y, z], -1)[None]
        self.scale = torch.tensor([2.0 / (n - 1) for n in reversed(size)], device=device)

    def forward(self, image, u):
        grid = (self.grid + u.permute(0, 2, 3, 4, 1)) * self.scale - 1.0
        return F.grid_sample(image, grid, mode="bilinear", align_corners=True)


def lncc(a, b, window=9):
    ones = torch.ones(1, 1, window, window, window, device=a.device)
    box = lambda x: F.conv3d(x, ones, padding=window // 2)
    n = window**3
    sa, sb, saa, sbb, sab = box(a), box(b), box(a * a), box(b * b), box(a * b)
    ma, mb = sa / n, sb / n
    cross = sab - mb * sa - ma * sb + ma * mb * n
    va = saa - 2 * ma * sa + ma * ma * n
    vb = sbb - 2 * mb * sb + mb * mb * n
    return -(cross * cross / (va * vb + 1e-5)).mean()


def mutual_information(a, b, bins=32):
    centres = torch.linspace(0, 1, bins, device=a.device)
    weight = lambda x: torch.softmax(-((x.reshape(-1, 1) - centres) ** 2) * (bins - 1) ** 2 / 0.5, 1)
    joint = weight(a).t() @ weight(b) / a.numel()
    pa, pb = joint.sum(1, keepdim=True), joint.sum(0, keepdim=True)
    return -(joint * torch.log(joint / (pa * pb + 1e-10) + 1e-10)).sum()


def diffusion(u):
    dz, dy, dx = u.diff(dim=2), u.diff(dim=3), u.diff(dim=4)
    return (dz.square().mean() + dy.square().mean() + dx.square().mean()) / 3


def dice(moved, fixed):
    cross = 2 * (moved * fixed).sum((2, 3, 4))
    total = moved.square().sum((2, 3, 4)) + fixed.square().sum((2, 3, 4))
    return 1 - (cross / (total + 1e-5)).mean()


# ---------------------------------------------------------------- measuring

CASES = [
    ("tiny full, LNCC", "tiny", True, lncc, False),
    ("base full, LNCC", "base", True, lncc, False),
    ("small half, LNCC + Dice", "small", False, lncc, True),
    ("large half, LNCC", "large", False, lncc, False),
    ("large half, LNCC + Dice", "large", False, lncc, True),
    ("large half, MI + Dice", "large", False, mutual_information, True),
]


def clock():
    torch.cuda.synchronize()
    return time.perf_counter()


def measure(case, size, steps):
    name, variant, full, similarity, with_dice = case
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    window = tuple(-(-n // 32) for n in size)
    network = TransMorph(variant, full, window).cuda().train()
    adam = torch.optim.Adam(network.parameters(), lr=1e-4, amsgrad=True)
    warp = Warp(size, "cuda")
    moving, fixed = torch.rand(1, 1, *size, device="cuda"), torch.rand(1, 1, *size, device="cuda")
    blocks = [torch.randint(0, LABELS, [-(-n // 8) for n in size], device="cuda") for _ in range(2)]
    spread = lambda x: x.repeat_interleave(8, 0).repeat_interleave(8, 1).repeat_interleave(8, 2)
    labels = [spread(x)[: size[0], : size[1], : size[2]] for x in blocks]
    times = []
    for _ in range(3 + steps):
        start = clock()
        u = network(moving, fixed)
        loss = similarity(warp(moving, u), fixed) + diffusion(u)
        if with_dice:
            one_hot = [F.one_hot(x, LABELS).permute(3, 0, 1, 2)[None].float() for x in labels]
            loss = loss + dice(warp(one_hot[0], u), one_hot[1])
        forward = clock()
        adam.zero_grad()
        loss.backward()
        backward = clock()
        adam.step()
        end = clock()
        times.append((end - start, forward - start, backward - forward, end - backward))
    figures = [statistics.median(t[i] for t in times[3:]) for i in range(4)]
    peak = torch.cuda.max_memory_allocated() / 1e9
    first = times[0][0]
    print(f"{name:<34} " + " ".join(f"{f:9.4f}" for f in figures) + f" {first:9.1f} {peak:12.2f}", flush=True)
    keys = ("step_s", "forward_s", "backward_s", "optimizer_s")
    return {"case": name, **dict(zip(keys, figures)), "peak_gb": peak}


def time_layer(name, layer, *inputs):
    times = []
    for _ in range(7):
        start = clock()
        output = layer(*inputs)
        middle = clock()
        output.backward(torch.ones_like(output))
        times.append((middle - start, clock() - middle))
    forward, backward = (1e3 * statistics.median(t[i] for t in times[2:]) for i in range(2))
    print(f"{name:<44} {forward:10.2f} {backward:10.2f}", flush=True)


def layers(size):
    print(f"\n{'layer':<44} {'forward':>10} {'backward':>10}  ms")
    volume = lambda c, s: torch.randn(1, c, *(n // s for n in size), device="cuda", requires_grad=True)
    for i, o, s in [(96, 64, 2), (384, 128, 4), (1536, 512, 16), (80, 16, 1), (16, 16, 1), (16, 3, 1)]:
        conv = nn.Conv3d(i, o, 3, padding=1, bias=False).cuda()
        time_layer(f"conv {i}->{o}, extents / {s}", conv, volume(i, s))
    norm = nn.Sequential(nn.InstanceNorm3d(16), nn.LeakyReLU(0.01))
    time_layer("InstanceNorm + LeakyReLU, 16 channels", norm, volume(16, 1))
    time_layer("upsampling of 48 channels", nn.Upsample(scale_factor=2, mode="trilinear"), volume(48, 2))
    window = tuple(-(-n // 32) for n in size)
    grid = [n // 4 for n in size]
    mask = region_mask(grid, window, [w // 2 for w in window], "cuda")
    tokens = torch.randn(mask.shape[0], mask.shape[1], 96, device="cuda", requires_grad=True)
    time_layer("windowed attention, 96 channels, 4 heads", Attention(96, 4, window).cuda(), tokens, mask)
    del tokens, mask
    a, b = (torch.rand(1, 1, *size, device="cuda", requires_grad=k) for k in (True, False))
    time_layer("LNCC, window 9", lncc, a, b)


def check():
    counts = {"tiny": (244527, 239235), "base": (46771251, 46556979), "large": (108343907, 107949923)}
    for variant, expected in counts.items():
        networks = [TransMorph(variant, full, (5, 6, 7)) for full in (True, False)]
        found = tuple(sum(p.numel() for p in network.parameters()) for network in networks)
        assert found == expected, (variant, found, expected)
    network = TransMorph("tiny", False, (4, 4, 4))
    assert network(torch.rand(1, 1, 40, 32, 48)[..., :32, :32, :32], torch.rand(1, 1, 32, 32, 32)).shape[1] == 3
    print("parameter counts are the published ones")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("filter", nargs="?", default="")
    parser.add_argument("--size", default="160,192,224")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--layers", action="store_true")
    parser.add_argument("--no-tf32", action="store_true")
    parser.add_argument("--cudnn-benchmark", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json")
    args = parser.parse_args()
    if args.check:
        return check()
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = not args.no_tf32
    torch.backends.cudnn.benchmark = args.cudnn_benchmark
    size = tuple(int(n) for n in args.size.split(","))
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}, TF32 {not args.no_tf32}, "
          f"cuDNN benchmark {args.cudnn_benchmark}")
    columns = ("s/step", "forward", "backward", "Adam", "first s", "peak GB")
    print(f"{'case':<34} " + " ".join(f"{c:>9}" for c in columns[:5]) + f" {columns[5]:>12}")
    results = [measure(case, size, args.steps) for case in CASES if args.filter in case[0]]
    if args.layers:
        layers(size)
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"torch": torch.__version__, "size": size, "steps": results}, file, indent=1)


if __name__ == "__main__":
    main()
