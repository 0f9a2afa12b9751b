#!/usr/bin/env python3
"""The rows of `benches/products.rs` elsewhere, timed the same way: gaussian, D = E = 3, N = M, f32.

    python products.py --device cuda     the tiled scheme in CUDA C++, and PyTorch with the matrix of all pairs
    python products.py --device cpu      KeOps (pip install numpy pykeops), on all cores

"tiled" is the scheme of the KeOps paper: one thread a row, tiles of y and b in shared memory; the best of four block
sizes, compiled through NVRTC (PyTorch 2.8 or later).
"""

import argparse
import statistics
import time

WIDTH = 0.1

SOURCE = r"""
extern "C" __global__ void forward(const float* x, const float* y, const float* b, const float* e, float* out,
                                   int n, int m, float c) {
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
            float w = __expf(c * (d0 * d0 + d1 * d1 + d2 * d2));
            s0 += w * t[3]; s1 += w * t[4]; s2 += w * t[5];
        }
        __syncthreads();
    }
    if (i < n) { out[3 * i] = s0; out[3 * i + 1] = s1; out[3 * i + 2] = s2; }
}

extern "C" __global__ void to_x(const float* x, const float* y, const float* b, const float* e, float* out,
                                int n, int m, float c) {
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
            float w = __expf(c * (d0 * d0 + d1 * d1 + d2 * d2)) * (e0 * t[3] + e1 * t[4] + e2 * t[5]);
            s0 += w * d0; s1 += w * d1; s2 += w * d2;
        }
        __syncthreads();
    }
    float f = 2 * c;
    if (i < n) { out[3 * i] = f * s0; out[3 * i + 1] = f * s1; out[3 * i + 2] = f * s2; }
}
"""


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
    """Launchers by name: f(x, y, b, e, out, n, m, c, block)."""
    import torch

    def launcher(name):
        kernel = torch.cuda._compile_kernel(SOURCE, name, nvcc_options=["--use_fast_math"])

        def launch(x, y, b, e, out, n, m, c, block):
            grid = ((n + block - 1) // block, 1, 1)
            kernel(grid, (block, 1, 1), (x, y, b, e, out, n, m, c), shared_mem=24 * block)

        return launch

    return {name: launcher(name) for name in ("forward", "to_x")}


def cuda(sizes):
    import torch

    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__)
    kernels = tiled_kernels()
    c = -1 / WIDTH**2
    for n in sizes:
        torch.manual_seed(0)
        x, y = (torch.rand(n, 3, device="cuda") for _ in range(2))
        b, e = (torch.randn(n, 3, device="cuda") for _ in range(2))

        def dense(x):
            return torch.exp(c * torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist") ** 2) @ b

        for name, launch in kernels.items():
            best = None
            for block in (64, 128, 256, 512):
                out = torch.empty(n, 3, device="cuda")
                ms = median_ms(lambda: launch(x, y, b, e, out, n, n, c, block), torch.cuda.synchronize, n * n)
                if best is None or ms < best[0]:
                    best = (ms, block, out)
            line(f"tiled CUDA C++, {name}, block {best[1]}", n, best[0])
            if n <= 10_000 and name == "forward":
                print(f"    deviation from PyTorch {(dense(x) - best[2]).abs().max().item():.1e}")
        if n <= 30_000:
            line("PyTorch, dense", n, median_ms(lambda: dense(x), torch.cuda.synchronize, n * n))
            z = x.clone().requires_grad_()

            def gradient():
                return torch.autograd.grad((dense(z) * e).sum(), z)

            line("PyTorch, dense, with gradient to x", n, median_ms(gradient, torch.cuda.synchronize, n * n))


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
        c = numpy.array([-1 / WIDTH**2], dtype=numpy.float32)
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
