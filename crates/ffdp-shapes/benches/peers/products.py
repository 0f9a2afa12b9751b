#!/usr/bin/env python3
"""The rows of `benches/products.rs` elsewhere, timed the same way: gaussian, D = E = 3, N = M, f32.

    python products.py --device cuda     the tiled scheme in CUDA C++, and PyTorch with the matrix of all pairs
    python products.py --device cpu      KeOps (pip install numpy pykeops), on all cores

"tiled" is the scheme of the KeOps paper: one thread a row, tiles of y and b in shared memory; the best of four block
sizes, compiled through NVRTC (PyTorch 2.8 or later). Its values are compared with those of PyTorch in f64, at every
size: where they differ, the program ends with status 1 and prints no time for them.
"""

import argparse
import statistics
import sys
import time

WIDTH = 0.1
# c of exp(c r^2).
FACTOR = -1 / WIDTH**2
# Deviation of a kernel's values from PyTorch's, in parts of the largest: sums in f32 with the fast exp.
TOLERANCE = 1e-4
# Pairs that a comparison stores, in f64.
COMPARED = 1e8

# FACTOR becomes a literal: versions of PyTorch hand a Python float over as a float or as a double.
SOURCE = r"""
extern "C" __global__ void forward(const float* x, const float* y, const float* b, const float* e, float* out,
                                   int n, int m) {
    extern __shared__ float tile[];
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = min(i, n - 1);
    float x0 = x[3 * row], x1 = x[3 * row + 1], x2 = x[3 * row + 2];
    float s0 = 0, s1 = 0, s2 = 0;
    for (int start = 0; start < m; start += blockDim.x) {
        int j = start + threadIdx.x;
        if (j < m)
            for (int k = 0; k < 3; k++) {
                tile[6 * threadIdx.x + k] = y[3 * j + k];
                tile[6 * threadIdx.x + 3 + k] = b[3 * j + k];
            }
        __syncthreads();
        int count = min((int)blockDim.x, m - start);
        for (int k = 0; k < count; k++) {
            const float* t = tile + 6 * k;
            float d0 = x0 - t[0], d1 = x1 - t[1], d2 = x2 - t[2];
            float w = __expf(FACTOR * (d0 * d0 + d1 * d1 + d2 * d2));
            s0 += w * t[3]; s1 += w * t[4]; s2 += w * t[5];
        }
        __syncthreads();
    }
    if (i < n) { out[3 * i] = s0; out[3 * i + 1] = s1; out[3 * i + 2] = s2; }
}

extern "C" __global__ void to_x(const float* x, const float* y, const float* b, const float* e, float* out,
                                int n, int m) {
    extern __shared__ float tile[];
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = min(i, n - 1);
    float x0 = x[3 * row], x1 = x[3 * row + 1], x2 = x[3 * row + 2];
    float e0 = e[3 * row], e1 = e[3 * row + 1], e2 = e[3 * row + 2];
    float s0 = 0, s1 = 0, s2 = 0;
    for (int start = 0; start < m; start += blockDim.x) {
        int j = start + threadIdx.x;
        if (j < m)
            for (int k = 0; k < 3; k++) {
                tile[6 * threadIdx.x + k] = y[3 * j + k];
                tile[6 * threadIdx.x + 3 + k] = b[3 * j + k];
            }
        __syncthreads();
        int count = min((int)blockDim.x, m - start);
        for (int k = 0; k < count; k++) {
            const float* t = tile + 6 * k;
            float d0 = x0 - t[0], d1 = x1 - t[1], d2 = x2 - t[2];
            float w = __expf(FACTOR * (d0 * d0 + d1 * d1 + d2 * d2)) * (e0 * t[3] + e1 * t[4] + e2 * t[5]);
            s0 += w * d0; s1 += w * d1; s2 += w * d2;
        }
        __syncthreads();
    }
    float f = 2 * FACTOR;
    if (i < n) { out[3 * i] = f * s0; out[3 * i + 1] = f * s1; out[3 * i + 2] = f * s2; }
}
""".replace("FACTOR", f"({FACTOR:.9e}f)")


def line(name, n, ms):
    print(f"{name:34} {n:9d} {ms:12.3f} {n * n / ms / 1e6:10.1f}", flush=True)


def median_ms(run, sync, pairs):
    """As the bench: short rows ten at a time."""
    run()
    sync()
    queued = 10 if pairs < 1e9 else 1
    times, begin = [], time.perf_counter()
    while len(times) < 3 or (len(times) < 15 and time.perf_counter() - begin < 6):
        start = time.perf_counter()
        kept = [run() for _ in range(queued)]
        sync()
        times.append((time.perf_counter() - start) / queued)
        del kept
    return statistics.median(times) * 1e3


def tiled_kernels():
    """Launchers by name: f(x, y, b, e, out, n, m, block)."""
    import torch

    def launcher(name):
        kernel = torch.cuda._compile_kernel(SOURCE, name, nvcc_options=["--use_fast_math"])

        def launch(x, y, b, e, out, n, m, block):
            grid = ((n + block - 1) // block, 1, 1)
            kernel(grid, (block, 1, 1), (x, y, b, e, out, n, m), shared_mem=24 * block)

        return launch

    return {name: launcher(name) for name in ("forward", "to_x")}


def dense(x, y, b):
    import torch

    return torch.exp(FACTOR * torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist") ** 2) @ b


def dense_gradient(x, y, b, e):
    import torch

    x = x.detach().requires_grad_()
    return torch.autograd.grad((dense(x, y, b) * e).sum(), x)[0]


def compare(name, out, expected):
    """Ends the program where a kernel computes something else; nan is something else."""
    deviation = ((out - expected).abs().max() / expected.abs().max()).item()
    if not deviation <= TOLERANCE:
        sys.exit(f"{name}: values deviate from PyTorch's by {deviation:.1e} of the largest, more than {TOLERANCE:.0e}")
    return deviation


def cuda(sizes):
    import torch

    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__)
    kernels = tiled_kernels()
    for n in sizes:
        torch.manual_seed(0)
        x, y = (torch.rand(n, 3, device="cuda") for _ in range(2))
        b, e = (torch.randn(n, 3, device="cuda") for _ in range(2))
        # All rows, or as many, spread over all, as the matrix of pairs has room for.
        rows = torch.linspace(0, n - 1, min(n, max(1, int(COMPARED / n))), device="cuda", dtype=torch.float64).long()
        x64, y64, b64, e64 = x[rows].double(), y.double(), b.double(), e[rows].double()
        expected = {"forward": dense(x64, y64, b64), "to_x": dense_gradient(x64, y64, b64, e64)}
        for name, launch in kernels.items():
            best, worst = None, 0.0
            for block in (64, 128, 256, 512):
                out = torch.full((n, 3), float("nan"), device="cuda")
                ms = median_ms(lambda: launch(x, y, b, e, out, n, n, block), torch.cuda.synchronize, n * n)
                deviation = compare(f"tiled CUDA C++, {name}, block {block}", out[rows].double(), expected[name])
                worst = max(worst, deviation)
                if best is None or ms < best[0]:
                    best = (ms, block)
            line(f"tiled CUDA C++, {name}, block {best[1]}", n, best[0])
            print(f"    deviation from PyTorch {worst:.1e} of the largest value, {len(rows)} rows compared")
        if n <= 30_000:
            line("PyTorch, dense", n, median_ms(lambda: dense(x, y, b), torch.cuda.synchronize, n * n))
            both = median_ms(lambda: dense_gradient(x, y, b, e), torch.cuda.synchronize, n * n)
            line("PyTorch, dense, with gradient to x", n, both)


def cpu(sizes):
    import numpy
    import pykeops
    from pykeops.numpy import Genred

    print("KeOps", pykeops.__version__)
    variables = ["x = Vi(3)", "y = Vj(3)", "b = Vj(3)", "c = Pm(1)"]
    product = "Exp(c * SqDist(x, y)) * b"
    forward = Genred(product, variables, reduction_op="Sum", axis=1)
    to_x = Genred(f"Grad({product}, x, e)", variables + ["e = Vi(3)"], reduction_op="Sum", axis=1)
    second = Genred(
        f"Grad(Grad({product}, x, e), x, v)", variables + ["e = Vi(3)", "v = Vi(3)"], reduction_op="Sum", axis=1
    )
    soft = Genred("h - c * SqDist(x, y)", ["x = Vi(3)", "y = Vj(3)", "h = Vj(1)", "c = Pm(1)"],
                  reduction_op="LogSumExp", axis=1)
    generator = numpy.random.default_rng(0)
    for n in sizes:
        x, y, h = (generator.random((n, d), dtype=numpy.float32) for d in (3, 3, 1))
        b, e, v = (generator.standard_normal((n, 3), dtype=numpy.float32) for _ in range(3))
        c = numpy.array([FACTOR], dtype=numpy.float32)
        rows = [
            ("KeOps, forward", lambda: forward(x, y, b, c)),
            ("KeOps, gradient to x", lambda: to_x(x, y, b, c, e)),
            ("KeOps, gradient of gradient, to x", lambda: second(x, y, b, c, e, v)),
            ("KeOps, log-sum-exp", lambda: soft(x, y, h, -c)),
        ]
        for name, run in rows:
            line(name, n, median_ms(run, lambda: None, n * n))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--size", help="points, separated by commas")
    arguments = parser.parse_args()
    default = "1e4,1e5,1e6" if arguments.device == "cuda" else "1e3,1e4"
    sizes = [int(float(n)) for n in (arguments.size or default).split(",")]
    print(f"{'':34} {'N = M':>9} {'ms':>12} {'Gpairs/s':>10}")
    {"cuda": cuda, "cpu": cpu}[arguments.device](sizes)


main()
