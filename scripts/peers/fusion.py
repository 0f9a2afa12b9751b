"""A brain labelled by five others: `ffdp fuse` by both rules, and ANTs' joint label fusion.

The images are those of the MICCAI 2012 multi-atlas challenge, as NNNN_t1.nii.gz and NNNN_seg.nii.gz in one folder, made
coarser by antspyx. Each program registers the atlases on its own, ANTs by its default SyN; both fuse in its grid. ANTs
registers once for its rows, and each counts that and its own fusion. Dice is the mean over the labels drawn by hand on
the target, all of them measured here. Prints a measurement as benchmarks/fusion.json.

    python scripts/peers/fusion.py --data FOLDER --ffdp target/release/ffdp
"""

import argparse
import csv
import datetime
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ants
import numpy


def processor_seconds():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(of.ru_utime + of.ru_stime for of in used)


def timed(work):
    """What the work returns, its seconds, and its seconds of processor time."""
    begun, start = time.monotonic(), processor_seconds()
    found = work()
    return found, numpy.array([time.monotonic() - begun, processor_seconds() - start])


def coarser(data, folder, brain, spacing):
    """The image and its labels with voxels of `spacing` mm; their files."""
    image = ants.smooth_image(ants.image_read(str(data / f"{brain}_t1.nii.gz")), 0.4 * spacing)
    labels = ants.image_read(str(data / f"{brain}_seg.nii.gz"))
    files = [folder / f"{brain}.nii.gz", folder / f"{brain}_seg.nii.gz"]
    for file, of, interpolation in zip(files, (image, labels), (0, 1)):
        ants.image_write(ants.resample_image(of, (spacing,) * 3, False, interpolation), str(file))
    return files


def mean_dice(found, drawn):
    """Over the labels that were drawn; one that was not found counts 0."""
    overlap = lambda a, b: 2 * (a & b).sum() / (a.sum() + b.sum())
    labels = numpy.unique(drawn[drawn > 0])
    return numpy.mean([overlap(found == label, drawn == label) for label in labels]), len(labels)


def by_ffdp(program, target, atlases, flags):
    """The command of the table, its labels, and what it took."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        with open(folder / "atlases.csv", "w") as table:
            csv.writer(table).writerows([("image", "labels"), *atlases])
        words = ["fuse", "-f", str(target), "-i", str(folder / "atlases.csv"), "-o", str(folder / "out")]
        run = [program, *words, "--device", "cpu", *flags.split(), "-q"]
        _, took = timed(lambda: subprocess.run(run, check=True))
        return ants.image_read(str(folder / "out" / "labels.nii.gz")).numpy(), took


def registered_by_ants(target, atlases):
    """Images and labels of the atlases on the target."""
    images, labels = [], []
    for image, drawn in atlases:
        image = ants.image_read(str(image))
        maps = ants.registration(target, image, type_of_transform="SyN")["fwdtransforms"]
        images.append(ants.apply_transforms(target, image, maps))
        drawn = ants.image_read(str(drawn))
        labels.append(ants.apply_transforms(target, drawn, maps, interpolator="nearestNeighbor"))
    return images, labels


def majority(labels):
    """The label that most atlases have; of those that as many have, the smallest."""
    labels = numpy.array([of.numpy().astype(int) for of in labels])
    known = numpy.unique(labels)
    return known[numpy.argmax([(labels == label).sum(0) for label in known], 0)]


def rows_of_ants(target, atlases):
    """Names, labels and times. ANTs joins labels where an atlas has any."""
    target = ants.image_read(str(target))
    (images, labels), registering = timed(lambda: registered_by_ants(target, atlases))
    mask = ants.threshold_image(sum(labels[1:], labels[0]), 0.5, None)
    joint = lambda **how: ants.joint_label_fusion(
        target, mask, images, label_list=labels, **how)["segmentation"].numpy()
    fusions = {
        "ANTs, joint_label_fusion (`beta=4, r_search=3`)": joint,
        "ANTs, `beta=2, rho=0.1, r_search=1`": lambda: joint(beta=2, rho=0.1, r_search=1),
        "ANTs, the same labels by majority": lambda: majority(labels),
    }
    for name, fusion in fusions.items():
        found, took = timed(fusion)
        yield name, found, registering + took


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--ffdp", required=True)
    parser.add_argument("--target", default="1004")
    parser.add_argument("--atlases", nargs="+", default=["1000", "1001", "1002", "1003", "1005"])
    parser.add_argument("--spacing", type=float, default=3, help="mm")
    parser.add_argument("--device", default="two CPU cores", help="the machine, in words")
    arguments = parser.parse_args()
    joint, fast = "--search-radius 1", "--shrink 4,2,1 --iterations 40,20,5"
    flags = [joint, "--search-radius 3", "--method majority", f"{joint} {fast}", f"--method majority {fast}"]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        # ANTs leaves its files in the folder of temporary ones.
        tempfile.tempdir = folder
        files = lambda brain: coarser(arguments.data, Path(folder), brain, arguments.spacing)
        (target, drawn), atlases = files(arguments.target), [files(of) for of in arguments.atlases]
        drawn = ants.image_read(str(drawn)).numpy()

        def add(name, found, took):
            score, labels = mean_dice(found, drawn)
            rows.append([name, f"{score:.3f}", f"{took[0]:.0f}", f"{took[1]:.0f}"])
            print(*rows[-1], sep="; ", file=sys.stderr, flush=True)
            return labels

        for of in flags:
            add(f"`ffdp fuse {of}`", *by_ffdp(arguments.ffdp, target, atlases, of))
        for row in rows_of_ants(target, atlases):
            labels = add(*row)
    command = "ffdp fuse -f {}.nii.gz -i atlases.csv -o out --device cpu"
    print(json.dumps({
        "what": f"A brain of MICCAI 2012 ({arguments.target}) at {arguments.spacing:g} mm, labelled by others "
                f"({', '.join(arguments.atlases)}): mean Dice of {labels} labels with those drawn by hand",
        "date": str(datetime.date.today()),
        "device": arguments.device,
        "peer": f"ANTs (antspyx {ants.__version__}): registration(type_of_transform=\"SyN\"), joint_label_fusion",
        "command": [
            "python scripts/peers/fusion.py --data FOLDER --ffdp target/release/ffdp",
            *(f"{command.format(arguments.target)} {of}" for of in flags),
        ],
        "notes": [],
        "columns": ["program", "mean Dice", "seconds", "processor time, s"],
        "rows": rows,
    }, indent=2))


if __name__ == "__main__":
    main()
