#!/usr/bin/env python3
"""The operations of `benches/ops.rs` in plain PyTorch, timed the same way, with the same columns.

    python benches/peers/torch_ops.py                       CUDA if there is one: 128, 256, 512
    python benches/peers/torch_ops.py --device cpu --size 64 --json torch.json
    python benches/peers/torch_ops.py lncc --compile        rows whose name contains `lncc`; through torch.compile as well

Sampling materialises the normalised grid that F.grid_sample asks for (align_corners=True); the
identity behind it is built once a size, outside the timed runs. LNCC is computed with five
convolutions of w^3 ones as in VoxelMorph, and with separable ones; smoothing is one convolution
per axis. On CUDA a run is timed by events, on a CPU by the clock; every row is the median of
several runs after warm-up. Where fused_lncc (PyPI, a CUDA kernel) is installed, its LNCC is among
the rows. GB/s counts the fewest bytes that the operation must move (f32, every operand once); extra
MB is the peak beyond the inputs (CUDA).
`--check` first compares values and gradients with formulas written out directly.
"""

import argparse
import functools
import json
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F

try:
    from fused_lncc import fused_lncc_loss
except ImportError:
    fused_lncc_loss = None


# ---------------------------------------------------------------- operations


@functools.lru_cache(maxsize=1)
def identity_grid(shape, device, dtype):
    """Voxel indices (x, y, z) of every voxel, [1, D, H, W, 3]."""
    axes = [torch.arange(n, device=device, dtype=dtype) for n in shape]
    z, y, x = torch.meshgrid(*axes, indexing="ij")
    return torch.stack([x, y, z], dim=-1).unsqueeze(0)


@functools.lru_cache(maxsize=1)
def normalisation(shape, device, dtype):
    """From voxel indices (x, y, z) to the range [0, 2]."""
    return torch.tensor([2.0 / max(n - 1, 1) for n in reversed(shape)], device=device, dtype=dtype)


def sample(image, index, padding):
    """Trilinear samples of image [N, C, D, H, W] at voxel indices [N, D, H, W, 3]."""
    grid = index * normalisation(image.shape[2:], image.device, image.dtype) - 1.0
    return F.grid_sample(image, grid, mode="bilinear", padding_mode=padding, align_corners=True)


def warp(image, field, padding="zeros"):
    grid = identity_grid(field.shape[2:], field.device, field.dtype)
    return sample(image, grid + field.permute(0, 2, 3, 4, 1), padding)


def affine(image, matrix):
    grid = identity_grid(image.shape[2:], image.device, image.dtype)
    linear = matrix[:, :, :3].transpose(1, 2).reshape(-1, 1, 1, 3, 3)
    index = grid @ linear + matrix[:, :, 3].reshape(-1, 1, 1, 1, 3)
    return sample(image, index, "zeros")


def compose(outer, inner):
    return warp(outer, inner, "border") + inner


def exponential(velocity, steps=7):
    field = velocity / 2**steps
    for _ in range(steps):
        field = compose(field, field)
    return field


def along(x, kernel, axis):
    """Convolution of every channel along axis 0 = x, 1 = y, 2 = z; zeros outside."""
    n, c = x.shape[:2]
    shape = [1, 1, 1, 1, 1]
    shape[4 - axis] = len(kernel)
    padding = [0, 0, 0]
    padding[2 - axis] = len(kernel) // 2
    flat = x.reshape(n * c, 1, *x.shape[2:])
    return F.conv3d(flat, kernel.reshape(shape), padding=padding).reshape(x.shape)


def gaussian(x, sigma=1.0, truncate=3.0):
    radius = math.ceil(truncate * sigma)
    offsets = torch.arange(-radius, radius + 1, device=x.device, dtype=x.dtype)
    kernel = torch.exp(-0.5 * (offsets / sigma) ** 2)
    kernel = kernel / kernel.sum()
    for axis in range(3):
        ones = torch.ones(1, 1, x.shape[4 - axis], device=x.device, dtype=x.dtype)
        mass = F.conv1d(ones, kernel.reshape(1, 1, -1), padding=radius)
        shape = [1, 1, 1, 1, 1]
        shape[4 - axis] = -1
        x = along(x, kernel, axis) / mass.reshape(shape)
    return x


def window_mean(x, window, separable):
    if separable:
        kernel = torch.full((window,), 1.0 / window, device=x.device, dtype=x.dtype)
        for axis in range(3):
            x = along(x, kernel, axis)
        return x
    shape = (1, 1, window, window, window)
    kernel = torch.full(shape, window**-3.0, device=x.device, dtype=x.dtype)
    return F.conv3d(x, kernel, padding=window // 2)


def lncc(moved, fixed, window, separable, epsilon=1e-5):
    def mean(x):
        return window_mean(x, window, separable)

    f, m = mean(fixed), mean(moved)
    a = mean(fixed * moved) - f * m
    b = (mean(fixed * fixed) - f * f).clamp(min=0)
    c = (mean(moved * moved) - m * m).clamp(min=0)
    return 1 - (a * a / (b * c + epsilon)).mean()


def parzen(image, bins):
    """Cubic B-spline shares of every voxel over the bins, [N, B, V]; two bins of padding."""
    x = image.flatten(1).unsqueeze(1).clamp(0, 1) * (bins - 4) + 1.5
    centres = torch.arange(bins, device=image.device, dtype=image.dtype).reshape(1, -1, 1)
    t = (centres - x).abs()
    return ((2 - t).clamp(min=0) ** 3 - 4 * (1 - t).clamp(min=0) ** 3) / 6


def mutual_information(moved, fixed, bins=32, tiny=1e-10):
    """Negative mutual information in nats; every Parzen block is stored."""
    joint = parzen(moved, bins) @ parzen(fixed, bins).transpose(1, 2) / moved[0].numel()

    def entropy(p):
        return -(p * (p + tiny).log()).flatten(1).sum(1)

    return (entropy(joint) - entropy(joint.sum(2)) - entropy(joint.sum(1))).mean()


SPACING = 5  # voxels between control points


def control_points(size):
    """How many cover an axis of so many voxels: one spacing before the first, and two cells more."""
    return max(math.ceil((size - 1) / SPACING), 1) + 3


def spline_field(controls, image):
    """The field of control points: cubic B-splines as a transposed convolution an axis."""
    m = torch.arange(4 * SPACING - 1, device=controls.device, dtype=controls.dtype)
    t = ((m - (2 * SPACING - 1)) / SPACING).abs()
    kernel = ((2 - t).clamp(min=0) ** 3 - 4 * (1 - t).clamp(min=0) ** 3) / 6
    x = controls.reshape(-1, 1, *controls.shape[2:])
    for axis, extent in enumerate(image.shape[2:]):
        shape, stride = [1, 1, 1, 1, 1], [1, 1, 1]
        shape[2 + axis], stride[axis] = len(m), SPACING
        x = F.conv_transpose3d(x, kernel.reshape(shape), stride=stride)
        # Control point k is centred at voxel (k - 1) SPACING.
        x = x.narrow(2 + axis, 3 * SPACING - 1, extent)
    return x.reshape(*controls.shape[:2], *image.shape[2:])


def deformed_votes(controls, fixed, moving, bins=32):
    """The joint distribution of a fixed image and of one that control points deform."""
    moved = warp(moving, spline_field(controls, fixed))
    return parzen(moved, bins) @ parzen(fixed, bins).transpose(1, 2) / moved[0].numel()


def greedy(fixed, moving, steps=10):
    """Greedy iterations of LNCC w7 with Adam, each of the operations above and autograd's gradient."""
    field = torch.zeros(1, 3, *fixed.shape[2:], device=fixed.device, dtype=fixed.dtype)
    mean, square = torch.zeros_like(field), torch.zeros_like(field)
    for count in range(1, steps + 1):
        with torch.enable_grad():
            tracked = field.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(lncc(warp(moving, tracked), fixed, 7, True), tracked)
        gradient = gaussian(gradient, 1.0)
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.99 * square + 0.01 * gradient * gradient
        step = mean / (1 - 0.9**count) / ((square / (1 - 0.99**count)).sqrt() + 1e-8)
        step = step * (-0.25 / step.square().sum(1).max().sqrt().clamp(min=1.0))
        field = gaussian(compose(field, step), 0.5)
    return field


# --------------------------------------------------------------------- cases

# (operation, variant, inputs with `*` where a gradient is wanted, floor bytes a voxel, function)
CASES = [
    ("warp, gradient to the field", "torch", ["image", "field*"], (20, 52), warp),
    ("warp, gradient to both", "torch", ["image*", "field*"], (20, 56), warp),
    ("affine, gradient to the map", "torch", ["image", "map*"], (8, 16), affine),
    ("compose", "torch", ["field*", "field*"], (36, 96), compose),
    ("exp, 7 squarings", "torch", ["field*"], (168, 420), exponential),
    ("gaussian of a field, sigma 1", "torch separable", ["field*"], (24, 48), gaussian),
    ("lncc w7", "torch separable", ["image*", "image"], (8, 12), lambda m, f: lncc(m, f, 7, True)),
    ("lncc w7", "torch conv3d", ["image*", "image"], (8, 12), lambda m, f: lncc(m, f, 7, False)),
    ("lncc w9", "torch separable", ["image*", "image"], (8, 12), lambda m, f: lncc(m, f, 9, True)),
    ("lncc w9", "torch conv3d", ["image*", "image"], (8, 12), lambda m, f: lncc(m, f, 9, False)),
    ("mi 32 bins", "torch parzen", ["image*", "image"], (8, 20), mutual_information),
    ("field of control points", "torch transposed", ["controls*", "image"], (12, 24), spline_field),
    ("votes of a deformed image, 32 bins", "torch", ["controls*", "image", "image"], (8, 40),
     deformed_votes),
    ("mse", "torch", ["image*", "image"], (8, 12), lambda m, f: F.mse_loss(m, f)),
    ("10 greedy iterations, lncc w7", "torch", ["image", "image"], (800, 800), greedy),
]


if fused_lncc_loss:
    for window in (7, 9):
        of = functools.partial(fused_lncc_loss, kernel_size=window)
        CASES.append((f"lncc w{window}", "fused_lncc", ["image*", "image"], (8, 12), of))


def compiled(case):
    """A case through torch.compile; what is a kernel already stays as it is."""
    op, variant, kinds, floors, function = case
    return (op, f"{variant}, compiled", kinds, floors, torch.compile(function))


def make(kind, size, device, tracked):
    if kind == "image":
        x = torch.rand(1, 1, size, size, size, device=device)
    elif kind == "controls":
        n = control_points(size)
        x = torch.rand(1, 3, n, n, n, device=device).mul_(3).sub_(1.5)
    elif kind == "field":
        x = torch.rand(1, 3, size, size, size, device=device).mul_(3).sub_(1.5)
    else:
        rows = [[0.99, 0.01, 0.0, 0.3], [-0.01, 0.98, 0.02, 0.1], [0.0, 0.01, 1.0, -0.2]]
        x = torch.tensor([rows], device=device)
    return x.requires_grad_(tracked)


# --------------------------------------------------------------- measurement


def timed(work, device):
    """Milliseconds of one run; its results live until the clock has stopped."""
    if device.type == "cuda":
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        kept = work()
        stop.record()
        torch.cuda.synchronize()
        del kept
        return start.elapsed_time(stop)
    start = time.perf_counter()
    kept = work()
    elapsed = time.perf_counter() - start
    del kept
    return 1e3 * elapsed


def median(work, device, runs, seconds):
    timed(work, device)
    timed(work, device)
    times, start = [], time.perf_counter()
    while len(times) < 3 or (len(times) < runs and time.perf_counter() - start < seconds):
        times.append(timed(work, device))
    return statistics.median(times), len(times)


def peak_mb(work, device):
    """Memory beyond what is held now, at the peak; None where PyTorch does not count."""
    if device.type != "cuda":
        return None
    identity_grid.cache_clear()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kept = work()
    torch.cuda.synchronize()
    del kept
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def copy_bandwidth(device):
    x = torch.rand(1 << 26, device=device)
    y = torch.empty_like(x)
    ms, _ = median(lambda: y.copy_(x), device, 9, 1e9)
    return 2 * x.numel() * 4 / ms / 1e6


def measure(case, size, backward, device, options):
    _, _, kinds, floors, function = case
    inputs = [make(k.rstrip("*"), size, device, backward and k.endswith("*")) for k in kinds]
    tracked = [x for x in inputs if x.requires_grad]

    def work():
        with torch.set_grad_enabled(backward):
            y = function(*inputs)
            if not backward:
                return y
            return y, torch.autograd.grad(y, tracked, torch.ones_like(y))

    peak = peak_mb(work, device)
    ms, runs = median(work, device, options.runs, options.seconds)
    floor = floors[int(backward)]
    return {"ms": ms, "runs": runs, "bytes_per_voxel": floor, "extra_mb": peak,
            "gb_per_s": floor * size**3 / ms / 1e6}


# --------------------------------------------------------------------- check


def check(device):
    """Values against formulas written out, and gradients against differences, in f64."""
    torch.manual_seed(0)
    double = {"device": device, "dtype": torch.float64}
    image = torch.rand(1, 1, 4, 5, 6, **double)
    shift = torch.zeros(1, 3, 4, 5, 6, **double)
    shift[:, 0] = 1.0
    moved = warp(image, shift)
    assert torch.allclose(moved[..., :-1], image[..., 1:]) and moved[..., -1].abs().max() < 1e-9
    matrix = torch.tensor([[[1.0, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0]]], **double)
    assert torch.allclose(affine(image, matrix), moved, atol=1e-9)
    u, v = torch.full_like(shift, 0.75), torch.full_like(shift, -2.5)
    assert torch.allclose(compose(u, v), u + v)
    assert torch.allclose(exponential(u), u)
    ones = torch.ones(1, 3, 4, 5, 6, **double)
    assert torch.allclose(gaussian(ones, 1.5), ones)
    pair = [torch.rand(1, 1, 4, 5, 6, **double) for _ in range(2)]
    values = [lncc(*pair, 3, separable) for separable in (True, False)]
    total, (d, h, w) = 0.0, (4, 5, 6)
    for z, y, x in ((z, y, x) for z in range(d) for y in range(h) for x in range(w)):
        around = (0, 0, *(slice(max(i - 1, 0), i + 2) for i in (z, y, x)))
        m, f = (image[around] for image in pair)
        em, ef = m.sum() / 27, f.sum() / 27
        a = (m * f).sum() / 27 - em * ef
        b, c = (f * f).sum() / 27 - ef * ef, (m * m).sum() / 27 - em * em
        total += a * a / (b * c + 1e-5)
    for value in values:
        assert torch.allclose(value, 1 - total / (d * h * w)), (value, total)
    field = (torch.rand(1, 3, 3, 3, 3, **double) * 0.8 + 0.1).requires_grad_()
    small = torch.rand(1, 1, 3, 3, 3, **double).requires_grad_()
    assert torch.autograd.gradcheck(warp, (small, field))
    other = torch.rand(1, 1, 3, 3, 3, **double)
    assert torch.autograd.gradcheck(lambda m: lncc(m, other, 3, True, 1e-2), (small,))
    # Cubic B-splines reproduce linear fields.
    places = (torch.arange(control_points(13), **double) - 1) * SPACING
    n, voxels = len(places), torch.arange(13, **double)
    ramp = (places * 0.3 - 1).reshape(1, 1, 1, 1, n).expand(1, 3, n, n, n)
    splines = spline_field(ramp, torch.zeros(1, 1, 13, 13, 13, **double))
    assert torch.allclose(splines[0, 1, 7, 3], voxels * 0.3 - 1)
    levels = (torch.arange(4, **double) + 0.5) / 4
    first, second = levels.repeat(4, 1), levels.repeat(4, 1).T
    # Levels at the centres of bins 2 to 5 of 8, every pair once: independent.
    kernel = torch.zeros(8, **double)
    kernel[1:4] = torch.tensor([1, 4, 1], **double) / 6
    assert torch.allclose(parzen(levels[None], 8)[0, :, 0], kernel)
    assert mutual_information(first[None, None], second[None, None], 8).abs() < 1e-7
    assert mutual_information(first[None, None], first[None, None], 8) < -0.1
    smooth = torch.rand(1, 1, 3, 3, 3, **double)
    pair = ((smooth * 0.9 + 0.05).requires_grad_(), 1 - smooth**2)
    assert torch.autograd.gradcheck(lambda m: mutual_information(m, pair[1], 8), pair[:1])
    print("check: passed", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("filter", nargs="?", default="", help="only rows whose name contains this")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", type=lambda s: [int(n) for n in s.split(",")], default=None)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=2.0, help="that a row's runs may take")
    parser.add_argument("--tf32", action="store_true", help="let convolutions round to TF32")
    parser.add_argument("--compile", action="store_true", help="each row through torch.compile as well")
    parser.add_argument("--check", action="store_true", help="prove the operations first")
    parser.add_argument("--json", default=None)
    options = parser.parse_args()
    device = torch.device(options.device)
    torch.backends.cudnn.allow_tf32 = options.tf32
    torch.backends.cuda.matmul.allow_tf32 = options.tf32
    if options.check:
        check(device)
    copy = copy_bandwidth(device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    print(f"device {name}, PyTorch {torch.__version__}, copy {copy:.1f} GB/s (read + write)")
    print(f"{'operation':<28} {'variant':<26} {'size':>4} {'pass':<18} {'ms':>10} {'B/voxel':>7} "
          f"{'GB/s':>9} {'of copy':>8} {'extra MB':>10}")
    rows = []
    cases = [case for case in CASES if options.filter in f"{case[0]} {case[1]}"]
    if options.compile:
        cases += [compiled(case) for case in cases if case[1] != "fused_lncc"]
    for size in options.size or ([64, 128] if device.type == "cpu" else [128, 256, 512]):
        for case in cases:
            op, variant = case[:2]
            passes = (False, True) if any("*" in kind for kind in case[2]) else (False,)
            for backward in passes:
                label = "forward + backward" if backward else "forward"
                row = {"op": op, "variant": variant, "size": size, "pass": label}
                line = f"{op:<28} {variant:<26} {size:>4} {label:<18} "
                try:
                    figures = measure(case, size, backward, device, options)
                except RuntimeError as error:  # out of memory, or a shape cuDNN refuses
                    if device.type == "cuda":
                        torch.cuda.empty_cache()
                    row["note"] = f"failed: {str(error).splitlines()[0][:90]}"
                    print(line + row["note"], flush=True)
                else:
                    figures["of_copy"] = figures["gb_per_s"] / copy
                    row["figures"] = figures
                    extra = "" if figures["extra_mb"] is None else f"{figures['extra_mb']:.1f}"
                    print(f"{line}{figures['ms']:>10.3f} {figures['bytes_per_voxel']:>7} "
                          f"{figures['gb_per_s']:>9.2f} {100 * figures['of_copy']:>7.1f}% "
                          f"{extra:>10}", flush=True)
                rows.append(row)
    if options.json:
        document = {"bench": "torch_ops", "torch": torch.__version__, "device": name,
                    "tf32": options.tf32, "copy_gb_per_s": copy, "rows": rows}
        with open(options.json, "w") as file:
            json.dump(document, file, indent=2)


if __name__ == "__main__":
    main()
