"""A known warp between two contrasts: T1 and T2 of MNI152 at 1 mm, by `ffdp` and by other programs.

`ffdp synth` makes a smooth warp, the T2 is warped by it, and the T1 is registered to the result. The error is the
distance, at every fourth voxel of the brain along each axis, of where a program and the warp send the voxel. Both images
are aligned but for the warp; programs that bring a linear stage may use it.

    scripts/peers/known_warp.py --data ../shared/data/mni152 --ffdp target/release/ffdp -o rows.json

A row that stands in the output is not run again.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import nibabel
import numpy as np
from scipy.ndimage import map_coordinates

import from_scratch

# Flags of `ffdp register` besides `--aligned`.
OURS = {
    "greedy, MI (the preset)": "--multimodal",
    "greedy, NMI": "--multimodal --metric nmi",
    "greedy, MIND": "--multimodal --metric mind",
    "greedy, NGF": "--multimodal --metric ngf",
    "discrete, then MIND": "--preset hard",
    "ffd, NMI, 5 mm": "--multimodal --transform ffd --metric nmi",
    "ffd, NMI, 8 mm": "--multimodal --transform ffd --metric nmi --spacing-mm 8",
}
PEERS = {
    "ANTs SyN (MI)": from_scratch.ants("SyN"),
    "ANTs SyNOnly (MI)": from_scratch.ants("SyNOnly"),
    "elastix affine, B-splines (MI)": from_scratch.elastix("affine", "bspline"),
    "elastix B-splines (MI)": from_scratch.elastix("bspline"),
}


def run(*command):
    subprocess.run([str(part) for part in command], check=True, capture_output=True)


def displacement(path):
    """(x, y, z, 3) in mm, LPS."""
    field = np.asarray(nibabel.load(path).dataobj, dtype=np.float64)
    return field[:, :, :, 0] if field.ndim == 5 else field


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def row(name, found, known, brain, seconds):
    distance = np.linalg.norm(displacement(found) - known, axis=-1)[brain]
    return {"name": name, "mean_mm": round(float(distance.mean()), 3), "median_mm": round(float(np.median(distance)), 3),
            "p90_mm": round(float(np.percentile(distance, 90)), 3), "points": int(brain.sum()),
            "processor_s": round(seconds, 1)}  # fmt: skip


def prepare(args, folder):
    """The warped T2, the known displacement and the voxels where errors are measured."""
    data, ffdp = args.data, args.ffdp
    run(ffdp, "synth", "-o", folder / "w", "--labels", data / "Avgwmparc_aseg.nii.gz", "-n", 2, "--warp-mm", 3.2,
        "--seed", 11)  # fmt: skip
    warp, fixed = folder / "w/warps/subject-000_warp.nii.gz", folder / "fixed.nii.gz"
    t1, t2 = (data / f"MNI152_{of}_1mm_brain.nii.gz" for of in ("T1", "T2"))
    run(ffdp, "apply", "-i", t2, "-r", t1, "-t", warp, "-o", fixed)
    image = nibabel.load(fixed)
    # The warp has another grid.
    to_warp = np.linalg.inv(nibabel.load(warp).affine) @ image.affine
    places = np.tensordot(to_warp[:3, :3], np.indices(image.shape), 1) + to_warp[:3, 3].reshape(3, 1, 1, 1)
    component = lambda of: map_coordinates(of, places, order=1, mode="nearest")
    known = np.stack([component(of) for of in np.moveaxis(displacement(warp), -1, 0)], -1)
    brain = np.zeros(image.shape, bool)
    brain[::4, ::4, ::4] = np.asarray(image.dataobj)[::4, ::4, ::4] > 0
    return fixed, t1, known, brain


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--ffdp", required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", nargs="*", help="names of the table")
    parser.add_argument("--one", nargs=4, metavar=("NAME", "FIXED", "MOVING", "WARP"), help="one peer, in this process")
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    if args.one:
        name, *files = args.one
        PEERS[name](*map(Path, files), args.threads)
        return
    rows = json.loads(args.output.read_text()) if args.output and args.output.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        fixed, moving, known, brain = prepare(args, folder)
        print(f"the warp moves by {np.linalg.norm(known, axis=-1)[brain].mean():.2f} mm in the mean")
        for name in args.rows or [*OURS, *PEERS]:
            if any(done["name"] == name for done in rows):
                continue
            before = processor_seconds()
            if name in OURS:
                run(args.ffdp, "register", "-f", fixed, "-m", moving, "--aligned", *OURS[name].split(),
                    "--device", args.device, "-o", folder / "out", "--overwrite", "--no-inverse", "-q")  # fmt: skip
                found = folder / "out/warp.nii.gz"
            else:
                found = folder / "warp.nii"
                run(sys.executable, __file__, "--data", args.data, "--ffdp", args.ffdp, "--threads", args.threads,
                    "--one", name, fixed, moving, found)  # fmt: skip
                found = found if found.exists() else Path(f"{found}.gz")
            rows.append(row(name, found, known, brain, processor_seconds() - before))
            for left in folder.glob("warp.nii*"):
                left.unlink()
            print(rows[-1], flush=True)
            if args.output:
                args.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
