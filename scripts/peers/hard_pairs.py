"""Pairs that local descent cannot find: `ffdp register --preset hard` and ConvexAdam (PyPI) on the same prostates.

MR on ultrasound of eight patients (train_000000 to train_000007 of learn2reg/tutorials2019), from the headers. An overlap
is the Dice of the gland, label 1. Landmarks are the labels from 2 on, small balls that readers set in both images: the mean
distance of their centroids in mm, before and after those of the ultrasound were carried to the MR.

Seconds have two scopes. `registration` is what passes from the images in memory to the transform, for both: of ffdp
`seconds.register` of metrics.json, of ConvexAdam its call, the moving image resampled on the grid of the fixed one before
(by `ffdp apply`). `processor` is that of all threads, which what else the machine does changes little: of ffdp the whole
command, with reading, overlaps and report, of ConvexAdam its call alone. Both programs have so many threads. On a GPU a
process of ConvexAdam calls it twice and counts the second call (`first` has the first one, with the start of its
libraries), and ffdp has registered one pair before, which compiles its kernels.

    python scripts/peers/hard_pairs.py --data ../shared/data/prostate-mr-trus --ffdp target/release/ffdp -o rows.json

`descriptor` compares the MIND-SSC descriptors of both programs, of both images of one pair, voxel by voxel:

    python scripts/peers/hard_pairs.py descriptor --data ../shared/data/prostate-mr-trus --ffdp target/release/ffdp

It needs PyTorch, NumPy and convexadam 0.2.0, nothing else.
"""

import argparse
import gzip
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

import numpy

GLAND = 1
KINDS = ("us", "mr", "us_seg", "mr_seg")
TYPES = {2: "<u1", 4: "<i2", 8: "<i4", 16: "<f4", 64: "<f8", 256: "<i1", 512: "<u2", 768: "<u4"}

# What the modules of ConvexAdam import at their head, and the functions that are called here never use: readers of files
# and masks. Names without a meaning take their place where a package is missing.
NEVER_USED = {
    "SimpleITK": ["Image"],
    "nibabel": ["Nifti1Image"],
    "scipy.ndimage": ["distance_transform_edt", "gaussian_filter"],
}


def module_of_convexadam(name):
    """A module of ConvexAdam."""
    for package, names in NEVER_USED.items():
        try:
            importlib.import_module(package)
        except ImportError:
            stand_in = types.ModuleType(package)
            stand_in.__dict__.update({name: type(name, (), {}) for name in names})
            sys.modules[package] = stand_in
    return importlib.import_module(f"convexAdam.{name}")


def files(folder, name):
    """Image and labels, fixed (ultrasound) and moving (MR)."""
    return {kind: folder / f"{name}_{kind}.nii.gz" for kind in KINDS}


def read(path):
    """Voxels (x, y, z and, of several volumes, their number) and the matrix from indices to RAS mm of a NIfTI-1 file."""
    content = gzip.decompress(Path(path).read_bytes())
    number = lambda kind, at, count: numpy.frombuffer(content, kind, count, at)
    axes, *size = number("<i2", 40, 8).tolist()
    [code], [offset] = number("<i2", 70, 1).tolist(), number("<f4", 108, 1).tolist()
    slope, intercept = number("<f4", 112, 2).tolist()
    scaled = numpy.isfinite(slope) and slope != 0 and (slope, intercept) != (1, 0)
    if number("<i4", 0, 1)[0] != 348 or number("<i2", 254, 1)[0] < 1 or code not in TYPES or scaled:
        sys.exit(f"{path}: no little-endian NIfTI-1 with an sform and values that are stored as they are")
    shape = size[:axes]
    voxels = number(TYPES[code], int(offset), int(numpy.prod(shape))).reshape(shape, order="F")
    return voxels, numpy.vstack([number("<f4", 280, 12).reshape(3, 4).astype(float), [0, 0, 0, 1]])


def dice(a, b):
    return 2 * (a & b).sum() / (a.sum() + b.sum())


def on_grid(program, path, grid, interpolation):
    """An image as its header places it on the grid of another one, (x, y, z)."""
    with tempfile.TemporaryDirectory() as folder:
        output = f"{folder}/on_grid.nii.gz"
        command = [program, "apply", "-i", path, "-r", grid, "-o", output, "--interpolation", interpolation]
        subprocess.run([str(word) for word in [*command, "--device", "cpu"]], check=True)
        return read(output)[0]


def mapped(matrix, points):
    return points @ matrix[:3, :3].T + matrix[:3, 3]


def centroids(path):
    """Where the landmarks of a label map lie, by label, RAS mm."""
    labels, matrix = read(path)
    ids = [int(k) for k in numpy.unique(labels) if k > GLAND]
    return {k: mapped(matrix, numpy.argwhere(labels == k).mean(0)).tolist() for k in ids}


def landmarks(of):
    """Those of both label maps, fixed and moving, in one order."""
    fixed, moving = (centroids(of[kind]) for kind in ("us_seg", "mr_seg"))
    both = sorted(fixed.keys() & moving.keys())
    return [fixed[k] for k in both], [moving[k] for k in both]


def mean_distance(a, b):
    """Of points in mm; nothing where there are none."""
    return sum(sum((x - y) ** 2 for x, y in zip(p, q)) ** 0.5 for p, q in zip(a, b)) / len(a) if a else None


def between_voxels(field, index):
    """A field (x, y, z, component) at a place in voxels, linearly; beyond its border that of the border."""
    last = numpy.array(field.shape[:3]) - 1
    index = numpy.clip(index, 0, last)
    low = numpy.minimum(index.astype(int), last - 1)
    part = index - low
    corners = numpy.stack(numpy.meshgrid([0, 1], [0, 1], [0, 1], indexing="ij"), -1).reshape(8, 3)
    weights = numpy.where(corners == 1, part, 1 - part).prod(1)
    return weights @ field[tuple((low + corners).T)]


def carried(points, field, matrix):
    """RAS points of the fixed image through a field in voxels on its grid, (x, y, z, component)."""
    there = []
    for point in points:
        index = mapped(numpy.linalg.inv(matrix), numpy.array(point))
        there.append(mapped(matrix, index + between_voxels(field, index)).tolist())
    return there


def warped(labels, places):
    """A mask of the moving image, on the grid of the fixed one already, at the nearest voxels of places (3, x, y, z)."""
    nearest = numpy.rint(places).astype(int)
    size = numpy.array(labels.shape).reshape(3, 1, 1, 1)
    inside = ((nearest >= 0) & (nearest < size)).all(0)
    return labels[tuple(numpy.clip(nearest, 0, size - 1))] & inside


def timed(call):
    """What it returns, and its processor seconds and seconds."""
    start = time.process_time(), time.perf_counter()
    found = call()
    return found, time.process_time() - start[0], time.perf_counter() - start[1]


def convex_adam(args, name):
    """A row of the default settings of ConvexAdam."""
    import torch

    convex_adam_pt = module_of_convexadam("convex_adam_MIND").convex_adam_pt
    of = files(args.data, name)
    voxels, matrix = read(of["us"])
    fixed = voxels.astype(numpy.float32, order="C")
    moving = on_grid(args.ffdp, of["mr"], of["us"], "linear").astype(numpy.float32, order="C")
    labels = [on_grid(args.ffdp, of[kind], of["us"], "nearest") == GLAND for kind in ("us_seg", "mr_seg")]
    torch.set_num_threads(args.threads)
    device = torch.device(args.device)
    # Its last step brings the field to the host: nothing is left to wait for.
    call = lambda: convex_adam_pt(torch.from_numpy(fixed), torch.from_numpy(moving), device=device)
    field, processor, registration = timed(call)
    first = registration
    if args.device == "cuda":
        field, processor, registration = timed(call)
    field = numpy.asarray(field, float)
    places = numpy.moveaxis(field, -1, 0) + numpy.indices(fixed.shape)
    rows = [numpy.stack(numpy.gradient(place), -1) for place in places]
    folds = int((numpy.linalg.det(numpy.stack(rows, -2)) <= 0).sum())
    points, answers = landmarks(of)
    return {
        "before": dice(*labels),
        "after": dice(labels[0], warped(labels[1], places)),
        "landmarks": len(points),
        "landmarks_before": mean_distance(points, answers),
        "landmarks_after": mean_distance(carried(points, field, matrix), answers),
        "registration": registration,
        "first": first,
        "processor": processor,
        "folds": folds,
    }


def channels():
    """Of each channel of ffdp the one of ConvexAdam that compares the same two neighbours."""
    neighbours = [(axis, to) for axis in range(3) for to in (1, -1)]
    ours = [{a, b} for i, a in enumerate(neighbours) for b in neighbours[i:] if a[0] != b[0]]
    # Its six neighbours in their order, those of pairs in that of its mask, and its permutation.
    six = [(0, -1), (2, -1), (1, -1), (2, 1), (0, 1), (1, 1)]
    theirs = [{a, b} for i, a in enumerate(six) for b in six[:i] if a[0] != b[0]]
    theirs = [theirs[k] for k in (6, 8, 1, 11, 2, 10, 0, 7, 9, 4, 5, 3)]
    return [theirs.index(pair) for pair in ours]


def descriptor(args, name):
    """Differences of the descriptors of both programs, for both images of a pair.

    Both are the published ones: radius 1, dilation 2, the nearest voxel beyond the border, bounds of the variance by its
    mean. They differ by the order of the channels, and by rounding: ConvexAdam computes in f32 throughout.
    """
    import torch

    if args.device == "cuda":
        torch.backends.cudnn.allow_tf32 = False  # eleven bits of a convolution would be compared otherwise
    mindssc = module_of_convexadam("convex_adam_utils").MINDSSC
    rows = {}
    for kind in ("us", "mr"):
        path = files(args.data, name)[kind]
        with tempfile.TemporaryDirectory() as folder:
            output = f"{folder}/mind.nii.gz"
            command = [args.ffdp, "convert", path, output, "--features", "mind", "--device", args.device]
            subprocess.run([str(word) for word in command], check=True)
            ours = numpy.moveaxis(read(output)[0], -1, 0)
        image = torch.from_numpy(read(path)[0].astype(numpy.float32, order="C"))[None, None].to(args.device)
        theirs = mindssc(image, 1, 2, device=args.device)[0].cpu().numpy().astype(float)
        off = numpy.abs(ours - theirs[channels()])
        rows[kind] = {
            "values": off.size,
            "largest difference": float(off.max()),
            "mean difference": float(off.mean()),
            "part above 1e-4": float((off > 1e-4).mean()),
            "mean value": float(theirs.mean()),
            "mean difference, channels as they come": float(numpy.abs(ours - theirs).mean()),
        }
        print(name, kind, rows[kind], flush=True)
    return rows


def ffdp_command(args, of, out, points=None):
    command = [args.ffdp, "register", "-f", of["us"], "-m", of["mr"]]
    command += ["--fixed-labels", of["us_seg"], "--moving-labels", of["mr_seg"], "--labels", GLAND]
    if points:
        command += ["--landmarks", *points, "--landmark-space", "ras"]
        if args.landmark_sigma:
            command += ["--landmark-sigma", args.landmark_sigma]
    command += ["-o", out, "--no-inverse", "--preset", "hard", "--aligned", "--device", args.device]
    command += ["-q", "--overwrite", *args.flags.split()]
    return [str(word) for word in command]


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def ffdp(args, name, out):
    """A row of `ffdp register --preset hard`."""
    of = files(args.data, name)
    both = landmarks(of)
    points = [out / f"{side}.csv" for side in ("fixed", "moving")] if both[0] else None
    for file, rows in zip(points or [], both):
        file.write_text("x,y,z\n" + "".join(",".join(map(repr, row)) + "\n" for row in rows))
    start = processor_seconds()
    environment = {**os.environ, "RAYON_NUM_THREADS": str(args.threads)}
    subprocess.run(ffdp_command(args, of, out / "out", points), check=True, env=environment)
    processor = processor_seconds() - start
    metrics = json.loads((out / "out" / "metrics.json").read_text())
    gland = next(label for label in metrics["dice"]["labels"] if label["id"] == GLAND)
    distances = metrics["landmarks_mm"] if points else {}
    mean = {when: distances.get(when, {}).get("mean") for when in ("before", "after")}
    return {
        "before": gland["before"],
        "after": gland["after"],
        "landmarks": len(both[0]),
        "landmarks_before": mean["before"],
        "landmarks_after": mean["after"],
        "registration": metrics["seconds"]["register"],
        "processor": processor,
        "folds": metrics["folds"]["voxels"],
    }


def mean(rows, key):
    """Of the rows that have a value."""
    values = [row[key] for row in rows if row[key] is not None]
    return round(sum(values) / len(values), 3) if values else None


def dry(args, names):
    """What would be run; every file that is missing."""
    missing = []
    for name in names:
        of = files(args.data, name)
        missing += [str(path) for path in of.values() if not path.is_file()]
        print(" ".join(one_command(args, name)))
        print(" ".join(ffdp_command(args, of, "OUT/out", ("OUT/fixed.csv", "OUT/moving.csv"))))
    if missing:
        sys.exit("missing: " + ", ".join(missing))


def one_command(args, name):
    command = [sys.executable, __file__, "--data", args.data, "--ffdp", args.ffdp, "--device", args.device]
    return [str(word) for word in [*command, "--threads", args.threads, "--one", name]]


def pairs(args, names):
    """Rows of both programs, one pair after the other."""
    rows = {"hard": [], "ConvexAdam": []}
    if args.device == "cuda":
        with tempfile.TemporaryDirectory() as out:
            ffdp(args, names[0], Path(out))
    for name in names:
        done = subprocess.run(one_command(args, name), check=True, stdout=subprocess.PIPE, text=True)
        rows["ConvexAdam"].append(json.loads(done.stdout.splitlines()[-1]))
        with tempfile.TemporaryDirectory() as out:
            rows["hard"].append(ffdp(args, name, Path(out)))
        print(name, {program: of[-1] for program, of in rows.items()}, flush=True)
    for program, of in rows.items():
        print(program, {key: mean(of, key) for key in of[0]})
        marked = [row for row in of if row["landmarks"]]
        print(program, "pairs with landmarks:", {key: mean(marked, key) for key in of[0]})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["pairs", "descriptor"], default="pairs")
    parser.add_argument("--data", type=Path, required=True, help="folder of the images and label maps")
    parser.add_argument("--ffdp", required=True, help="the program")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="of either program")
    parser.add_argument("--pairs", type=int, default=8, help="how many of the eight")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--flags", default="", help="more flags of ffdp, as --flags=\"--transform discrete\"")
    parser.add_argument("--landmark-sigma", help="landmarks drive ffdp, known to so many mm; the gland is then the truth")
    parser.add_argument("--threads", type=int, default=cores, help="of either program [default: all cores]")
    parser.add_argument("--one", help="one pair by ConvexAdam, in this process")
    parser.add_argument("--dry", action="store_true", help="print the commands, look for the files, run nothing")
    parser.add_argument("-o", "--output", type=Path, help="rows of all pairs, JSON")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(convex_adam(args, args.one)))
        return
    names = [f"train_{k:06d}" for k in range(args.pairs)]
    if args.dry:
        dry(args, names)
        return
    rows = descriptor(args, names[0]) if args.what == "descriptor" else pairs(args, names)
    if args.output:
        args.output.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
