"""LDDMM of structures of a hundred thousand points: two synthetic bodies, made here and matched by `ffdp shape register`.

A body is an ellipsoid of 70, 50 and 40 mm; the other is it under a known smooth map that bends and swells it. One row
compares the surfaces with all their cells (varifolds), one has all points as landmarks, each with a momentum of its own.
Python 3.11 with numpy; a row that stands in the output is not run again.

    python scripts/large_shapes.py --ffdp target/release/ffdp --device cuda --machine "one NVIDIA H200" -o shapes-large.json
"""

import argparse
import datetime
import itertools
import json
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

# The name of a row, what the files hold, flags.
ROWS = {
    "surfaces, varifolds": ("surfaces", ["-a", "varifolds", "--coarsen", "0"]),
    "landmarks, a momentum each": ("clouds", ["-a", "landmarks", "--control-spacing", "0", "-s", "8,4"]),
}
COLUMNS = [
    "structures", "points", "cells", "control points", "iterations", "matching (s)", "an iteration (s)", "whole command (s)",
    "distance before (mm)", "after (mm)", "95 % below (mm)", "self-intersections", "voxels folded",
]  # fmt: skip


def ellipsoid(edge: int) -> tuple[np.ndarray, np.ndarray]:
    """The faces of a cube in `edge` times `edge` squares, blown up: 6 edge^2 + 2 points, facing outwards."""
    ticks = np.tan(np.linspace(-np.pi / 4, np.pi / 4, edge + 1))
    u, v = (grid.ravel() for grid in np.meshgrid(ticks, ticks, indexing="ij"))
    at = np.arange((edge + 1) ** 2).reshape(edge + 1, edge + 1)
    a, b, c, d = (at[i : i + edge, j : j + edge].ravel() for i, j in ((0, 0), (1, 0), (1, 1), (0, 1)))
    square = np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])
    points, cells = [], []
    for axis, side in itertools.product(range(3), (-1, 1)):
        face = np.empty((len(u), 3))
        face[:, axis], face[:, (axis + 1) % 3], face[:, (axis + 2) % 3] = side, u, v
        cells.append((square if side > 0 else square[:, ::-1]) + len(u) * len(points))
        points.append(face)
    # Points of edges and corners belong to several faces.
    points, once = np.unique(np.round(np.concatenate(points), 12), axis=0, return_inverse=True)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return points * [35, 25, 20], once.reshape(-1)[np.concatenate(cells)]


def bent(points: np.ndarray) -> np.ndarray:
    """A map without folds: bent upwards, turned about its length, thicker at one end."""
    x, y, z = points.T
    angle, thick = x / 100, 1 + x / 150
    y, z = thick * (np.cos(angle) * y - np.sin(angle) * z), thick * (np.sin(angle) * y + np.cos(angle) * z)
    return np.stack([1.05 * x, y, z + x**2 / 120 + np.sin(y / 8)], 1)


def write_ply(path: Path, points: np.ndarray, cells: np.ndarray) -> None:
    heading = ["ply", "format binary_little_endian 1.0", f"element vertex {len(points)}"]
    heading += [f"property float {axis}" for axis in "xyz"]
    if len(cells):
        heading += [f"element face {len(cells)}", "property list uchar int vertex_indices"]
    faces = np.empty(len(cells), dtype=[("count", "u1"), ("corners", "<i4", 3)])
    faces["count"], faces["corners"] = 3, cells
    text = "\n".join([*heading, "end_header", ""])
    path.write_bytes(text.encode() + points.astype("<f4").tobytes() + faces.tobytes())


def match(name: str, request: argparse.Namespace) -> list[str]:
    kind, flags = ROWS[name]
    source, cells = ellipsoid(request.edge)
    cells = cells if kind == "surfaces" else cells[:0]
    with tempfile.TemporaryDirectory() as folder:
        moving, fixed, out = (Path(folder) / name for name in ("source.ply", "target.ply", "out"))
        write_ply(moving, source, cells)
        write_ply(fixed, bent(source), cells)
        command = [request.ffdp, "shape", "register", "-f", fixed, "-m", moving, "-o", out, "--device", request.device, *flags]
        start = time.monotonic()
        subprocess.run([*command, "-i", str(request.iterations)], check=True)
        whole = time.monotonic() - start
        found = json.loads((out / "metrics.json").read_text())
    before, after = (found["distance_mm"][when] for when in ("before", "after"))
    iterations = len(found["costs"]) - 1
    return [
        name, str(len(source)), str(len(cells)), str(found["control_points"]), str(iterations), f"{found['seconds']:.1f}",
        f"{found['seconds'] / max(iterations, 1):.3f}", f"{whole:.1f}", f"{before['mean']:.3f}", f"{after['mean']:.3f}",
        f"{after['p95']:.3f}", str(found["self_intersections"]["after"]), str(found["carried_grid"]["voxels"]),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ffdp", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--machine", default="", help="in words, for the table")
    parser.add_argument("--edge", type=int, default=130, help="6 edge^2 + 2 points [default: 130, 101402 points]")
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("-o", "--output", type=Path, required=True, help="a measurement, as in benchmarks/")
    request = parser.parse_args()
    measurement = {
        "what": "Synthetic structures of a hundred thousand points, deformed onto each other by LDDMM",
        "date": datetime.date.today().isoformat(),
        "recorded_in": "",
        "device": request.machine or request.device,
        "command": [f"python scripts/large_shapes.py --ffdp target/release/ffdp --device {request.device} -o shapes-large.json"],
        "notes": [
            "Matching is without reading, distances and files. Distances are those of the surfaces, of landmarks to the "
            "nearest one. Nothing is coarsened: all cells or points are compared.",
        ],
        "columns": COLUMNS,
        "rows": [],
    }  # fmt: skip
    if request.output.exists():
        measurement["rows"] = json.loads(request.output.read_text())["rows"]
    for name in ROWS:
        if all(row[0] != name for row in measurement["rows"]):
            measurement["rows"].append(match(name, request))
            request.output.write_text(json.dumps(measurement, indent=1) + "\n")
            print(dict(zip(COLUMNS, measurement["rows"][-1])), flush=True)


if __name__ == "__main__":
    main()
