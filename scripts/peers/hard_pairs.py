"""Pairs that local descent cannot find: `ffdp register --preset hard` and ConvexAdam (PyPI) on the same prostates.

MR on ultrasound of eight patients (train_000000 to train_000007 of learn2reg/tutorials2019), from the headers. An overlap
is the Dice of the gland, label 1. Landmarks are the labels from 2 on, small balls that readers set in both images: the mean
distance of their centroids in mm, before and after those of the ultrasound were carried to the MR.

Seconds have two scopes. `registration` is what passes from the images in memory to the transform, for both: of ffdp
`seconds.register` of metrics.json, of ConvexAdam its call, the moving image resampled on the grid of the fixed one before.
`processor` is that of all threads, which what else the machine does changes little: of ffdp the whole command, with
reading, overlaps and report, of ConvexAdam its call alone. Both programs have so many threads.

    python scripts/peers/hard_pairs.py --data ../shared/data/prostate-mr-trus --ffdp target/release/ffdp -o rows.json
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GLAND = 1
KINDS = ("us", "mr", "us_seg", "mr_seg")


def files(folder, name):
    """Image and labels, fixed (ultrasound) and moving (MR)."""
    return {kind: folder / f"{name}_{kind}.nii.gz" for kind in KINDS}


def dice(a, b):
    return 2 * (a & b).sum() / (a.sum() + b.sum())


def on_grid(path, grid, interpolator):
    """An image as its header places it on another grid, (x, y, z)."""
    import SimpleITK

    image = SimpleITK.Resample(SimpleITK.ReadImage(str(path)), grid, SimpleITK.Transform(), interpolator, 0)
    return SimpleITK.GetArrayFromImage(image).T


def centroids(path):
    """Where the landmarks of a label map lie, by label, LPS mm."""
    import numpy
    import SimpleITK

    image = SimpleITK.ReadImage(str(path))
    labels = SimpleITK.GetArrayFromImage(image).T
    ids = [int(k) for k in numpy.unique(labels) if k > GLAND]
    means = {k: numpy.argwhere(labels == k).mean(0).tolist() for k in ids}
    return {k: image.TransformContinuousIndexToPhysicalPoint(mean) for k, mean in means.items()}


def landmarks(of):
    """Those of both label maps, fixed and moving, in one order."""
    fixed, moving = (centroids(of[kind]) for kind in ("us_seg", "mr_seg"))
    both = sorted(fixed.keys() & moving.keys())
    return [fixed[k] for k in both], [moving[k] for k in both]


def mean_distance(a, b):
    """Of points in mm; nothing where there are none."""
    return sum(sum((x - y) ** 2 for x, y in zip(p, q)) ** 0.5 for p, q in zip(a, b)) / len(a) if a else None


def carried(points, field, grid):
    """LPS points of the fixed image through a field in voxels on its grid, (x, y, z, component)."""
    import numpy
    from scipy.ndimage import map_coordinates

    there = []
    for point in points:
        index = numpy.array(grid.TransformPhysicalPointToContinuousIndex(point))
        at = index[:, None]
        shift = [map_coordinates(field[..., i], at, order=1, mode="nearest")[0] for i in range(3)]
        there.append(grid.TransformContinuousIndexToPhysicalPoint((index + shift).tolist()))
    return there


def convex_adam(folder, name, threads):
    """A row of the default settings of ConvexAdam."""
    import numpy
    import SimpleITK
    import torch
    from convexAdam.convex_adam_MIND import convex_adam_pt
    from scipy.ndimage import map_coordinates

    of = files(folder, name)
    grid = SimpleITK.ReadImage(str(of["us"]))
    fixed = SimpleITK.GetArrayFromImage(grid).T.astype(numpy.float32)
    moving = on_grid(of["mr"], grid, SimpleITK.sitkLinear).astype(numpy.float32)
    labels = [on_grid(of[kind], grid, SimpleITK.sitkNearestNeighbor) == GLAND for kind in ("us_seg", "mr_seg")]
    torch.set_num_threads(threads)
    start = time.process_time(), time.perf_counter()
    field = convex_adam_pt(torch.from_numpy(fixed), torch.from_numpy(moving), device=torch.device("cpu"))
    processor, registration = time.process_time() - start[0], time.perf_counter() - start[1]
    field = numpy.asarray(field, float)
    places = numpy.moveaxis(field, -1, 0) + numpy.indices(fixed.shape)
    warped = map_coordinates(labels[1].astype(numpy.uint8), places, order=0) == 1
    rows = [numpy.stack(numpy.gradient(place), -1) for place in places]
    folds = int((numpy.linalg.det(numpy.stack(rows, -2)) <= 0).sum())
    points, answers = landmarks(of)
    return {
        "before": dice(*labels),
        "after": dice(labels[0], warped),
        "landmarks": len(points),
        "landmarks_before": mean_distance(points, answers),
        "landmarks_after": mean_distance(carried(points, field, grid), answers),
        "registration": registration,
        "processor": processor,
        "folds": folds,
    }


def ffdp_command(program, of, out, points=None):
    command = [program, "register", "-f", of["us"], "-m", of["mr"]]
    command += ["--fixed-labels", of["us_seg"], "--moving-labels", of["mr_seg"], "--labels", GLAND]
    if points:
        command += ["--landmarks", *points, "--landmark-space", "lps"]
    command += ["-o", out, "--no-inverse", "--preset", "hard", "--aligned", "--device", "cpu", "-q", "--overwrite"]
    return [str(word) for word in command]


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def ffdp(program, folder, name, out, threads):
    """A row of `ffdp register --preset hard`."""
    of = files(folder, name)
    both = landmarks(of)
    points = [out / f"{side}.csv" for side in ("fixed", "moving")] if both[0] else None
    for file, rows in zip(points or [], both):
        file.write_text("x,y,z\n" + "".join(",".join(map(repr, row)) + "\n" for row in rows))
    start = processor_seconds()
    environment = {**os.environ, "RAYON_NUM_THREADS": str(threads)}
    subprocess.run(ffdp_command(program, of, out / "out", points), check=True, env=environment)
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
        if args.ffdp:
            print(" ".join(ffdp_command(args.ffdp, of, "OUT/out", ("OUT/fixed.csv", "OUT/moving.csv"))))
    if missing:
        sys.exit("missing: " + ", ".join(missing))


def one_command(args, name):
    command = [sys.executable, __file__, "--data", args.data, "--threads", args.threads, "--one", name]
    return [str(word) for word in command]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the images and label maps")
    parser.add_argument("--ffdp", help="the program; without, ConvexAdam alone")
    parser.add_argument("--pairs", type=int, default=8, help="how many of the eight")
    parser.add_argument("--threads", type=int, default=2, help="of either program")
    parser.add_argument("--one", help="one pair by ConvexAdam, in this process")
    parser.add_argument("--dry", action="store_true", help="print the commands, look for the files, run nothing")
    parser.add_argument("-o", "--output", type=Path, help="rows of all pairs, JSON")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(convex_adam(args.data, args.one, args.threads)))
        return
    names = [f"train_{k:06d}" for k in range(args.pairs)]
    if args.dry:
        dry(args, names)
        return
    rows = {"hard": [], "ConvexAdam": []}
    for name in names:
        done = subprocess.run(one_command(args, name), check=True, capture_output=True, text=True)
        rows["ConvexAdam"].append(json.loads(done.stdout.splitlines()[-1]))
        if args.ffdp:
            with tempfile.TemporaryDirectory() as out:
                rows["hard"].append(ffdp(args.ffdp, args.data, name, Path(out), args.threads))
        print(name, {program: of[-1] for program, of in rows.items() if of}, flush=True)
    for program, of in rows.items():
        if of:
            print(program, {key: mean(of, key) for key in of[0]})
    if args.output:
        args.output.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
