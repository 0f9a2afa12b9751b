"""How long other programs take for Dice and surface distances of all labels of two large label maps.

    venv/bin/pip install -r requirements.txt surface-distance==0.1
    venv/bin/python metrics_time.py FIXED.nii MOVING.nii LABELS [--program surface-distance|SimpleITK]

Prints the seconds of reading and of measuring, and the means, to be compared with
`ffdp measure --fixed-labels FIXED.nii --moving-labels MOVING.nii --labels LABELS`.
"""

import argparse
import time

import nibabel
import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("fixed")
    parser.add_argument("moving")
    parser.add_argument("labels", help="comma-separated")
    parser.add_argument("--program", choices=list(PROGRAMS), default="surface-distance")
    request = parser.parse_args()
    start = time.perf_counter()
    images = [nibabel.load(path) for path in (request.fixed, request.moving)]
    maps = [np.asarray(image.dataobj) for image in images]
    spacing = [float(s) for s in images[0].header.get_zooms()[:3]]
    print(f"read in {time.perf_counter() - start:.1f} s", flush=True)
    start, cpu = time.perf_counter(), time.process_time()
    scores = [
        PROGRAMS[request.program](maps[0] == label, maps[1] == label, spacing)
        for label in map(int, request.labels.split(","))
    ]
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    dice, hd95 = np.mean(scores, axis=0)
    print(f"{request.program}: {seconds:.1f} s, {cpu:.1f} s of processor time")
    print(f"Dice {dice:.6f}, HD95 {hd95:.6f} mm over {len(scores)} labels")


def with_surface_distance(fixed, moving, spacing):
    import surface_distance

    surfaces = surface_distance.compute_surface_distances(fixed, moving, spacing)
    return (
        surface_distance.compute_dice_coefficient(fixed, moving),
        surface_distance.compute_robust_hausdorff(surfaces, 95),
    )


def with_sitk(fixed, moving, spacing):
    """Surfaces are the border voxels here, not surfels: the figures differ a little."""
    import SimpleITK as sitk

    voxels = np.count_nonzero(fixed) + np.count_nonzero(moving)
    dice = 2 * np.count_nonzero(fixed & moving) / voxels
    box = bounding_box(fixed | moving)
    images = []
    for mask in (fixed, moving):
        image = sitk.GetImageFromArray(mask[box].astype(np.uint8).transpose(2, 1, 0))
        image.SetSpacing(spacing)
        images.append(image)
    borders = [sitk.GetArrayFromImage(sitk.LabelContour(image)) > 0 for image in images]
    maps = [sitk.SignedMaurerDistanceMap(i, squaredDistance=False, useImageSpacing=True) for i in images]
    distances = [np.abs(sitk.GetArrayFromImage(map)) for map in maps]
    return dice, max(np.percentile(distances[1 - i][borders[i]], 95) for i in (0, 1))


def bounding_box(mask):
    extents = [np.flatnonzero(mask.any(axis=tuple({0, 1, 2} - {axis}))) for axis in range(3)]
    size = mask.shape
    return tuple(slice(max(e[0] - 1, 0), min(e[-1] + 2, n)) for e, n in zip(extents, size))


PROGRAMS = {"surface-distance": with_surface_distance, "SimpleITK": with_sitk}

if __name__ == "__main__":
    main()
