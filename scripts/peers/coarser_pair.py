"""A pair with labels at a coarser spacing, as a list for `ffdp bench registration`.

    python coarser_pair.py FIXED MOVING FIXED_LABELS MOVING_LABELS --factor 2 -o FOLDER

An intensity becomes the mean of a block of voxels, a label that of the voxel in its middle. Writes the images and
FOLDER/pairs.csv.
"""

import argparse
from pathlib import Path

import nibabel
import numpy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs=4, help="fixed, moving, and their labels")
    parser.add_argument("--factor", type=int, required=True, help="voxels of a block along each axis")
    parser.add_argument("-o", "--output", type=Path, required=True)
    request = parser.parse_args()
    request.output.mkdir(parents=True, exist_ok=True)
    names = [path.name for path in request.files]
    for path in request.files[:2]:
        coarsen(path, request, lambda blocks: blocks.mean(axis=(1, 3, 5)).astype(numpy.float32))
    half = request.factor // 2
    for path in request.files[2:]:
        coarsen(path, request, lambda blocks: blocks[:, half, :, half, :, half].astype(numpy.int16))
    heading = "fixed,moving,fixed_labels,moving_labels"
    (request.output / "pairs.csv").write_text(f"{heading}\n{','.join(names)}\n")


def coarsen(path: Path, request: argparse.Namespace, reduce) -> None:
    image, factor = nibabel.load(path), request.factor
    size = [extent // factor for extent in image.shape[:3]]
    values = numpy.asanyarray(image.dataobj)[tuple(slice(n * factor) for n in size)]
    blocks = values.reshape(size[0], factor, size[1], factor, size[2], factor)
    # The centre of the first block in voxels of the image.
    step = numpy.diag([factor, factor, factor, 1.0])
    step[:3, 3] = (factor - 1) / 2
    coarse = nibabel.Nifti1Image(reduce(blocks), image.affine @ step)
    nibabel.save(coarse, request.output / path.name)


if __name__ == "__main__":
    main()
