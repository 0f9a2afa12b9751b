"""Pairs that local descent cannot find: `ffdp register --preset hard` and ConvexAdam (PyPI) on the same prostates.

MR on ultrasound of eight patients (train_000000 to train_000007 of learn2reg/tutorials2019), from the headers. An overlap
is the Dice of the gland; seconds are those of all threads of the processor, which what else the machine does changes
little: of ffdp the whole command, of ConvexAdam its call alone, in a process of its own.

    python scripts/peers/hard_pairs.py --data ../shared/data/prostate-mr-trus --ffdp target/release/ffdp -o rows.json
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy
import SimpleITK
from scipy.ndimage import map_coordinates


def dice(a, b):
    return 2 * (a & b).sum() / (a.sum() + b.sum())


def on_grid(path, grid, interpolator):
    """An image as its header places it on another grid, (x, y, z)."""
    image = SimpleITK.Resample(SimpleITK.ReadImage(str(path)), grid, SimpleITK.Transform(), interpolator, 0)
    return SimpleITK.GetArrayFromImage(image).T


def convex_adam(folder, name):
    """Dice before and after, processor seconds and folds of the default settings of ConvexAdam."""
    import torch
    from convexAdam.convex_adam_MIND import convex_adam_pt

    grid = SimpleITK.ReadImage(str(folder / f"{name}_us.nii.gz"))
    fixed = SimpleITK.GetArrayFromImage(grid).T.astype(numpy.float32)
    moving = on_grid(folder / f"{name}_mr.nii.gz", grid, SimpleITK.sitkLinear).astype(numpy.float32)
    labels = [
        on_grid(folder / f"{name}_{of}_seg.nii.gz", grid, SimpleITK.sitkNearestNeighbor) == 1 for of in ("us", "mr")
    ]
    torch.set_num_threads(2)
    start = time.process_time()
    field = convex_adam_pt(torch.from_numpy(fixed), torch.from_numpy(moving), device=torch.device("cpu"))
    seconds = time.process_time() - start
    places = numpy.moveaxis(numpy.asarray(field, float), -1, 0) + numpy.indices(fixed.shape)
    warped = map_coordinates(labels[1].astype(numpy.uint8), places, order=0) == 1
    rows = [numpy.stack(numpy.gradient(place), -1) for place in places]
    folds = int((numpy.linalg.det(numpy.stack(rows, -2)) <= 0).sum())
    return {"before": dice(*labels), "after": dice(labels[0], warped), "seconds": seconds, "folds": folds}


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def ffdp(program, folder, name, out):
    """The same of `ffdp register --preset hard`, the whole command."""
    start = processor_seconds()
    command = [program, "register", "-f", folder / f"{name}_us.nii.gz", "-m", folder / f"{name}_mr.nii.gz"]
    command += ["--fixed-labels", folder / f"{name}_us_seg.nii.gz", "--moving-labels", folder / f"{name}_mr_seg.nii.gz"]
    command += ["-o", out, "--no-inverse", "--preset", "hard", "--aligned", "--device", "cpu", "-q", "--overwrite"]
    subprocess.run(command, check=True)
    seconds = processor_seconds() - start
    metrics = json.loads((out / "metrics.json").read_text())
    gland = next(label for label in metrics["dice"]["labels"] if label["id"] == 1)
    folds = metrics["folds"]["voxels"]
    return {"before": gland["before"], "after": gland["after"], "seconds": seconds, "folds": folds}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--ffdp", help="the program; without, ConvexAdam alone")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--one", help="one pair by ConvexAdam, in this process")
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(convex_adam(args.data, args.one)))
        return
    rows = {"hard": [], "ConvexAdam": []}
    for k in range(args.pairs):
        name = f"train_{k:06d}"
        command = [sys.executable, __file__, "--data", args.data, "--one", name]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        rows["ConvexAdam"].append(json.loads(done.stdout.splitlines()[-1]))
        if args.ffdp:
            with tempfile.TemporaryDirectory() as out:
                rows["hard"].append(ffdp(args.ffdp, args.data, name, Path(out) / "out"))
        print(name, {program: of[-1] for program, of in rows.items() if of}, flush=True)
    for program, of in rows.items():
        if of:
            mean = {key: sum(row[key] for row in of) / len(of) for key in of[0]}
            print(program, {key: round(value, 3) for key, value in mean.items()})
    if args.output:
        args.output.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
