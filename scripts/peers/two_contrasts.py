"""T1 and T2 of one synthetic head that a known affine map has moved, registered by `ffdp`: the error of the map.

Both images are made of one label map. That of the T2 has the map in its header: it is turned by 10 degrees about an
oblique axis through the middle, larger by 5 % and shifted by 8 mm. Voxels have the same size in both images, so that they
coincide in few places of the head. The error is the distance, at voxels of the head, of where the found map and the true
one send them. Prints a row of JSON. Python 3.11 or later alone, Linux.

    scripts/peers/two_contrasts.py --labels FILE --ffdp target/release/ffdp --spacing 2
    scripts/peers/two_contrasts.py --labels FILE --ffdp target/release/ffdp --spacing 0.16 --device cuda

At 0.16 mm a head of 160x192x224 mm has 1.68 and 1.95 G voxels; the files take 25 GB.
"""

import argparse
import array
import gzip
import json
import math
import statistics
import struct
import tempfile
from pathlib import Path

from brains import cost_of

DEGREES, SHIFT_MM, SCALE = 10.0, 8.0, 1.05
AXIS, ALONG = [1 / math.sqrt(3)] * 3, [2 / 3, -2 / 3, 1 / 3]
# Errors are measured at every so many voxels of the labels along each axis.
STRIDE = 4
# Codes of NIfTI's types, as those of `array`.
TYPES = {2: "B", 4: "h", 8: "i", 256: "b", 512: "H", 768: "I"}


class Labels:
    """A label map in NIfTI-1 whose voxels are placed by its sform."""

    def __init__(self, path: Path):
        self.data = bytearray((gzip.open if path.suffix == ".gz" else open)(path, "rb").read())
        if self.data[344:348] != b"n+1\0" or struct.unpack_from("<i", self.data)[0] != 348:
            raise SystemExit(f"{path}: NIfTI-1, little-endian, in one file, is what is read here")
        if struct.unpack_from("<h", self.data, 254)[0] <= 0:
            raise SystemExit(f"{path}: has no sform")
        self.size = struct.unpack_from("<3h", self.data, 42)
        self.to_mm = [list(struct.unpack_from("<4f", self.data, 280 + 16 * row)) for row in range(3)]

    def head_mm(self) -> list[list[float]]:
        """Every few voxels that have a label, RAS mm."""
        kind = TYPES[struct.unpack_from("<h", self.data, 70)[0]]
        first, (nx, ny, nz) = int(struct.unpack_from("<f", self.data, 108)[0]), self.size
        values = array.array(kind)
        values.frombytes(bytes(self.data[first : first + nx * ny * nz * values.itemsize]))
        places = [range(0, n, STRIDE) for n in self.size]
        return [
            moved(self.to_mm, [x, y, z])
            for z in places[2] for y in places[1] for x in places[0] if values[x + nx * (y + ny * z)]
        ]  # fmt: skip

    def write_moved(self, path: Path, map: list[list[float]]) -> None:
        """The same voxels, seen where `map` sends them."""
        placed = times(map, self.to_mm)
        data = bytearray(self.data)
        edges = [math.hypot(*(row[axis] for row in placed)) for axis in range(3)]
        struct.pack_into("<3f", data, 80, *edges)
        # No qform: it has no scale.
        struct.pack_into("<h", data, 252, 0)
        struct.pack_into("<12f", data, 280, *(value for row in placed for value in row))
        path.write_bytes(data)


def moved(map, point):
    return [sum(a * x for a, x in zip(row, point)) + row[3] for row in map]


def times(a, b):
    """`a` after `b`, each three rows of four numbers."""
    product = [[sum(a[i][k] * b[k][j] for k in range(3)) for j in range(4)] for i in range(3)]
    return [row[:3] + [row[3] + a[i][3]] for i, row in enumerate(product)]


def known_map(centre):
    """From points of the T1 to those of the T2, RAS mm."""
    c, s = math.cos(math.radians(DEGREES)), math.sin(math.radians(DEGREES))
    x, y, z = AXIS
    cross = [[0, -z, y], [z, 0, -x], [-y, x, 0]]
    linear = [
        [SCALE * (c * (i == j) + s * cross[i][j] + (1 - c) * AXIS[i] * AXIS[j]) for j in range(3)] for i in range(3)
    ]
    turned = [sum(a * x for a, x in zip(row, centre)) for row in linear]
    return [row + [centre[i] - turned[i] + SHIFT_MM * ALONG[i]] for i, row in enumerate(linear)]


def of_itk(path: Path):
    """An affine map of ITK's text (LPS), in RAS."""
    lines = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
    values, centre = ([float(v) for v in lines[name].split()] for name in ("Parameters", "FixedParameters"))
    linear = [values[0:3], values[3:6], values[6:9]]
    offset = [values[9 + i] + centre[i] - sum(a * x for a, x in zip(linear[i], centre)) for i in range(3)]
    sign = [-1, -1, 1]
    return [[sign[i] * sign[j] * linear[i][j] for j in range(3)] + [sign[i] * offset[i]] for i in range(3)]


def errors(found, known, points):
    apart = [math.dist(moved(found, point), moved(known, point)) for point in points]
    return round(statistics.fmean(apart), 4), round(max(apart), 4)


def run(command, device, result: Path):
    said, seconds, cost = cost_of([str(part) for part in command], device)
    if not result.exists():
        raise SystemExit(f"{' '.join(map(str, command))}\n{said}")
    return seconds, cost


def synthesize(args, labels: Path, modality: str, folder: Path, seed: int):
    # Voxels above 1 mm are means of finer ones: no image is coarser than its labels alone.
    finest = args.spacing / math.ceil(args.spacing)
    spacings = sorted({finest, args.spacing})
    command = [args.ffdp, "synth", "-o", folder, "--labels", labels, "--modality", modality, "--spacing", *spacings,
               "--format", "ome-zarr", "--seed", seed, "-n", 1, "-q"]  # fmt: skip
    seconds, _ = run(command, "cpu", folder / "manifest.json")
    return folder / f"{args.spacing:g}mm/subject-000.zarr", seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=Path, required=True, help="a label map of FreeSurfer's aseg, NIfTI")
    parser.add_argument("--ffdp", required=True)
    parser.add_argument("--spacing", type=float, default=2.0, help="of both images, mm")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--folder", type=Path, help="for the files, which are kept [default: one that is removed]")
    args = parser.parse_args()
    labels = Labels(args.labels)
    centre = moved(labels.to_mm, [(n - 1) / 2 for n in labels.size])
    known, points = known_map(centre), labels.head_mm()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        labels.write_moved(folder / "moved.nii", known)
        t1, first = synthesize(args, args.labels, "t1", folder / "t1", 1)
        t2, second = synthesize(args, folder / "moved.nii", "t2", folder / "t2", 2)
        out = folder / "out"
        command = [args.ffdp, "register", "-f", t1, "-m", t2, "--transform", "affine", "--multimodal", "--format", "ome-zarr",
                   "--device", args.device, "-o", out, "-q"]  # fmt: skip
        seconds, cost = run(command, args.device, out / "metrics.json")
        metrics, found = json.loads((out / "metrics.json").read_text()), of_itk(out / "affine.txt")
    still = [[float(i == j) for j in range(4)] for i in range(3)]
    (before, before_most), (mean, most) = (errors(map, known, points) for map in (still, found))
    print(json.dumps({
        "spacing_mm": args.spacing, "points": len(points), "before_mean_mm": before, "before_max_mm": before_most,
        "mean_mm": mean, "max_mm": most, "verdict": metrics["verdict"], "synthesis_s": round(first + second, 1),
        "seconds": metrics["seconds"], "whole_s": round(seconds, 1), **cost,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
