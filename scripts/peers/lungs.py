"""Lungs, expiration and inspiration, by corresponding points: some guide a deformation of space, others say how good it is.

Of the two pairs of Learn2Reg the keypoints guide (found in the CT images by another program) and the landmarks, set by
readers, are the truth; of those of DIR-Lab COPDgene every other landmark guides and the rest are the truth. The CT images
themselves are not needed. An error is the distance of a landmark from where it was found, mm.

    python scripts/peers/lungs.py --data ../shared/data/lung --ffdp target/release/ffdp
"""

import argparse
import json
import resource
import subprocess
import tempfile
import time
from pathlib import Path

import numpy

# Of a voxel, mm.
SPACING = numpy.array([1.75, 1.25, 1.75])


def points(path):
    return numpy.loadtxt(path, delimiter=",") * SPACING


def save(path, values):
    numpy.savetxt(path, values, delimiter=",", header="x,y,z", comments="", fmt="%.4f")


def pairs(data):
    """Name; guides and truths, each of the fixed (expiration) and of the moving image."""
    for k in (1, 2):
        of = lambda what: [points(data / f"l2r_LungCT_000{k}_000{image}_{what}.csv") for image in (0, 1)]
        yield f"Learn2Reg {k}", of("keypoints"), of("landmarks")
    for k in (1, 2):
        both = [points(data / f"dirlab_copd_0{k}_{image}_landmarks.csv") for image in ("exp", "insp")]
        yield f"COPD {k}", [of[::2] for of in both], [of[1::2] for of in both]


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--ffdp", required=True)
    parser.add_argument("--flags", default="", help="further ones of `ffdp shape register`")
    parser.add_argument("--only", default="", help="pairs whose name has this")
    args = parser.parse_args()
    errors = []
    for name, guides, truths in pairs(args.data):
        if args.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            at = lambda file: Path(folder) / file
            for file, values in zip(("fixed", "moving", "truth"), [*guides, truths[0]]):
                save(at(f"{file}.csv"), values)
            start, begun = processor_seconds(), time.monotonic()
            command = [args.ffdp, "shape", "register", "-f", at("fixed.csv"), "-m", at("moving.csv"), "-o", at("out")]
            subprocess.run([*command, *args.flags.split(), "-q"], check=True)
            used = processor_seconds() - start
            apply = [args.ffdp, "apply", "--landmarks", at("truth.csv"), "--landmark-space", "ras", "-o", at("found.csv")]
            subprocess.run([*apply, "-t", at("out/flow.json")], check=True, stdout=subprocess.DEVNULL)
            found = numpy.loadtxt(at("found.csv"), delimiter=",", skiprows=1, usecols=(0, 1, 2))
            metrics = json.loads(at("out/metrics.json").read_text())
        before, after = [numpy.linalg.norm(of - truths[1], axis=1) for of in (truths[0], found)]
        errors.append(after.mean())
        print(f"{name}: {len(guides[0])} points guide {len(after)}: {before.mean():.2f} -> {after.mean():.2f} mm, median "
              f"{numpy.median(after):.2f}, 95 % {numpy.percentile(after, 95):.2f}; {metrics['carried_grid']['percent']:.3f} % folded; "
              f"{time.monotonic() - begun:.1f} s, {used:.1f} s of processor time", flush=True)
    print(f"mean {numpy.mean(errors):.2f} mm")


if __name__ == "__main__":
    main()
