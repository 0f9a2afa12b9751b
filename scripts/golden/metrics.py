"""Golden values of `ffdp_image::metrics`, from independent implementations.

    python3 -m venv v
    v/bin/pip install numpy==1.26.4 scipy==1.13.1 scikit-image==0.24.0 SimpleITK==2.5.7 \
        surface-distance==0.1
    v/bin/python scripts/golden/metrics.py > crates/ffdp-image/src/metrics/tests/golden.json

and, for the constants of `tests/real_labels.rs`, the means over the labels of a real pair:

    v/bin/python scripts/golden/metrics.py FIXED.nii.gz MOVING.nii.gz LABELS.csv

Inputs come from integer formulas and a linear congruential generator that the tests repeat, so that
both sides have the same bits. Arrays are [z, y, x]; sizes and spacings are given as (x, y, z).
"""

import json
import sys
from importlib.metadata import version

import numpy as np
import scipy.ndimage as ndi
import scipy.stats
import SimpleITK as sitk
import surface_distance
from skimage import metrics as skm
from surface_distance import lookup_tables


class Lcg:
    """Numbers of 24 bits: the upper bits of Knuth's and Numerical Recipes' generator."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (1664525 * self.state + 1013904223) % 2**32
        return self.state >> 8

    def array(self, shape):
        return np.array([self.next() for _ in range(int(np.prod(shape)))]).reshape(shape)


# --- inputs, repeated in crates/ffdp-image/src/metrics/tests/inputs.rs ---

def noise_labels(size, seed):
    """Labels 0..3, every voxel on its own."""
    return Lcg(seed).array(size[::-1]) >> 22


def shape_labels(size, shift):
    """1 ellipsoid, 2 slab along the border, 3 single voxel, 4 corner block, 5 plate inside 1."""
    z, y, x = np.indices(size[::-1])
    s = shift
    labels = np.zeros(size[::-1], int)
    labels[(x - 11 - 2 * s) ** 2 * 2 + (y - 9 - s) ** 2 * 3 + (z - 8 + s) ** 2 * 4 < 150] = 1
    labels[x < 3 + s] = 2
    labels[(x == 20) & (y == 3 + 4 * s) & (z == 5)] = 3
    labels[(x > 19) & (y > 14 + s) & (z > 13)] = 4
    labels[(x > 8) & (x < 14) & (y == 8 + s) & (abs(z - 8) < 3)] = 5
    labels[(x == 17) & (y == 17) & (z == 2)] = 6 + s  # 6 only in the fixed map, 7 only in the moved
    # Single voxels, the same in both maps: some of them are lost by a warp.
    for k, (i, j, l) in enumerate([(23, 0, 0), (0, 19, 17), (23, 0, 17), (0, 0, 0)]):
        labels[l, j, i] = 8 + k
    return labels


def field(size, seed, amplitude):
    """[3, z, y, x] in -amplitude..amplitude, a power of two: exact in f32."""
    return (Lcg(seed).array((3, *size[::-1])) - 2**23) / 2**23 * amplitude


def smooth_field(size, amplitude):
    """[3, z, y, x] in sixteenths: a triangle wave along a diagonal, other in each component."""
    z, y, x = np.indices(size[::-1])
    wave = lambda c: abs((x * (1 + c) + 2 * y + 3 * z + 5 * c) % 32 - 16) - 8
    return np.stack([wave(c) for c in range(3)]) / 16 * amplitude


def images(size):
    """Two related images in 0..1, of 8 and 9 bits."""
    a, b = Lcg(11).array(size[::-1]) >> 16, Lcg(12).array(size[::-1]) >> 16
    return a / 256, (256 - a + b) / 512


def landmarks(size, count, seed):
    """Voxel coordinates (x, y, z) in quarters, inside the grid."""
    draw = Lcg(seed)
    return np.array([[draw.next() % (4 * (n - 1) + 1) / 4 for n in size] for _ in range(count)])


# --- measures ---

def surfaces(fixed, moved, ids, spacing):
    rows = []
    for label in ids:
        a, b = fixed == label, moved == label
        d = surface_distance.compute_surface_distances(a, b, spacing[::-1])
        there, back = d["distances_gt_to_pred"], d["distances_pred_to_gt"]
        areas = d["surfel_areas_gt"], d["surfel_areas_pred"]
        means = surface_distance.compute_average_surface_distance(d)
        moments = [(dist * area).sum() for dist, area in zip((there, back), areas)]
        lowest = lambda dist: dist[: int(np.floor(0.9 * len(dist)))].mean()
        rows.append({
            "id": label,
            "hd100": surface_distance.compute_robust_hausdorff(d, 100),
            "hd95": surface_distance.compute_robust_hausdorff(d, 95),
            "hd90": surface_distance.compute_robust_hausdorff(d, 90),
            "hd90_cumulative": max(lowest(there), lowest(back)),
            "assd": sum(moments) / sum(area.sum() for area in areas),
            "fixed_to_moved": means[0],
            "moved_to_fixed": means[1],
            "dice": surface_distance.compute_dice_coefficient(a, b),
        })
    return rows


def surfel_checksums(spacing):
    """Sums over all codes of the area of a surface element, times powers of the code."""
    table = lookup_tables.create_table_neighbour_code_to_surface_area(spacing[::-1])
    kernel = lookup_tables.ENCODE_NEIGHBOURHOOD_3D_KERNEL
    sums = np.zeros(3)
    for code in range(256):
        # Bit 4 x + y + 2 z of the code is the vertex (x, y, z).
        theirs = sum(int(kernel[z, y, x]) for x in (0, 1) for y in (0, 1) for z in (0, 1)
                     if code >> (4 * x + y + 2 * z) & 1)
        sums += table[theirs] * np.array([1.0, code, code**2])
    return sums.tolist()


def distance_transform(size, spacing, seed, every):
    marked = Lcg(seed).array(size[::-1]) % every == 0
    d = ndi.distance_transform_edt(~marked, sampling=spacing[::-1])
    weights = np.arange(d.size).reshape(d.shape) % 17
    return {"size": size, "spacing": spacing, "seed": seed, "every": every,
            "sum": d.sum(), "weighted": (d * weights).sum(), "max": d.max()}


def determinants(u, difference):
    """det(1 + du/dp) by numpy alone; u [3, z, y, x], components x, y, z."""
    def derivative(a, axis):
        if difference == "central":
            return np.gradient(a, axis=axis)
        ends = {"forward": (0, 1), "backward": (1, 0)}[difference]
        d = np.diff(a, axis=axis)
        pad = [(0, 0)] * 3
        pad[axis] = ends
        return np.pad(d, pad, mode="edge")
    rows = [[derivative(u[c], 2 - axis) + (c == axis) for axis in range(3)] for c in range(3)]
    return np.linalg.det(np.moveaxis(np.array(rows), (0, 1), (-2, -1)))


def distribution(det):
    q = np.percentile(det, [0, 1, 50, 99, 100])
    return {"min": q[0], "p1": q[1], "p50": q[2], "p99": q[3], "max": q[4],
            "folds": int((det <= 0).sum())}


def jacobian(size, seed):
    u = field(size, seed, 1.0)
    crop = (slice(2, -2),) * 3
    central = determinants(u, "central")
    image = sitk.GetImageFromArray(np.moveaxis(u, 0, -1), isVector=True)
    itk = sitk.GetArrayFromImage(sitk.DisplacementFieldJacobianDeterminant(image))
    assert abs(itk - central)[1:-1, 1:-1, 1:-1].max() < 1e-12, "numpy and ITK agree inside"
    quiet = determinants(field(size, seed, 0.25), "central")[crop]
    return {
        "size": size, "seed": seed,
        "forward": distribution(determinants(u, "forward")),
        "backward": distribution(determinants(u, "backward")),
        "central": distribution(central),
        "sd_log_of_quarter": np.log(quiet).std(),
        "sd_log_learn2reg": np.log((central[crop] + 3).clip(1e-9, 1e9)).std(),
    }


def transform(u, spacing, origin):
    """An ITK transform from a displacement in voxels, axes along those of physical space."""
    mm = np.moveaxis(u, 0, -1) * spacing
    image = sitk.GetImageFromArray(mm.astype(np.float64), isVector=True)
    image.SetSpacing(spacing)
    image.SetOrigin(origin)
    reference = sitk.GetImageFromArray(np.zeros(u.shape[1:], np.uint8))
    reference.CopyInformation(image)
    return sitk.DisplacementFieldTransform(image), reference


def inverse_consistency():
    spacing, origin = [1.0, 1.5, 2.0], [-3.0, 2.0, 5.0]
    inverse, grid = transform(smooth_field([14, 12, 10], 1.0), spacing, origin)
    forward_spacing, forward_origin = [1.25, 1.0, 1.5], [-2.13, 1.07, 5.91]
    forward, other = transform(smooth_field([13, 15, 12], -0.5), forward_spacing, forward_origin)
    errors, outside = [], 0
    for index in np.ndindex(*grid.GetSize()):
        x = grid.TransformIndexToPhysicalPoint(index)
        y = inverse.TransformPoint(x)
        at = np.array(other.TransformPhysicalPointToContinuousIndex(y))
        # ITK counts the upper face as outside.
        if (at < -0.5).any() or (at >= np.array(other.GetSize()) - 0.5).any():
            outside += 1
            continue
        errors.append(np.linalg.norm(np.array(forward.TransformPoint(y)) - x))
    return {"mean": np.mean(errors), "p95": np.percentile(errors, 95), "max": np.max(errors),
            "outside": outside, "inside": len(errors)}


def tre_of(errors):
    q = np.percentile(errors, [25, 50, 75, 95])
    return {"mean": errors.mean(), "sd": errors.std(), "p25": q[0], "median": q[1], "p75": q[2],
            "p95": q[3], "max": errors.max()}


def tre():
    size, spacing, count = [14, 12, 10], np.array([1.0, 1.5, 2.0]), 40
    fixed, moving = landmarks(size, count, 21), landmarks(size, count, 22)
    moving = fixed + (moving - fixed) / 8
    u = smooth_field(size, 1.0)
    sample = lambda c: ndi.map_coordinates(u[c], fixed.T[::-1], order=1, mode="nearest")
    moved = fixed + np.stack([sample(c) for c in range(3)], axis=1)
    length = lambda v: np.linalg.norm(v * spacing, axis=1)
    before, after = length(fixed - moving), length(moved - moving)
    worst = np.argsort(-before, kind="stable")[: round(0.3 * count)]
    return {"before": tre_of(before), "after": tre_of(after), "tre30": after[worst].mean()}


def learn2reg():
    """The measures of the Learn2Reg evaluation, by its definitions."""
    size, count, ids = [24, 20, 18], 25, range(1, 12)
    fixed, moving = shape_labels(size, 0), shape_labels(size, 1)
    u = smooth_field(size, 2.5)
    # Learn2Reg's arrays are [x, y, z].
    points = np.indices(size).astype(float) + u.transpose(0, 3, 2, 1)
    moved = ndi.map_coordinates(moving.transpose(2, 1, 0).astype(float), points, order=0)
    moved = np.rint(moved).astype(int).transpose(2, 1, 0)
    rows = []
    for label in ids:
        a, m, b = fixed == label, moving == label, moved == label
        if not a.any() or not m.any():
            rows.append({"id": label, "dice": None, "hd95": None})
            continue
        d = surface_distance.compute_surface_distances(a, b, [1, 1, 1])
        hd95 = surface_distance.compute_robust_hausdorff(d, 95)
        rows.append({"id": label, "dice": surface_distance.compute_dice_coefficient(a, b),
                     "hd95": hd95 if np.isfinite(hd95) else "inf"})
    lm_fixed, lm_moving = landmarks(size, count, 31), landmarks(size, count, 32)
    lm_moving = lm_fixed + (lm_moving - lm_fixed) / 8
    spacing = [1.75, 1.25, 1.5]
    sample = lambda c: ndi.map_coordinates(u[c], lm_fixed.T[::-1])
    disp = np.stack([sample(c) for c in range(3)], axis=1)
    errors = np.linalg.norm((lm_fixed + disp - lm_moving) * spacing, axis=1)
    det = determinants(u, "central")[2:-2, 2:-2, 2:-2]
    return {"labels": rows, "tre": tre_of(errors), "sdlogj": np.log((det + 3).clip(1e-9, 1e9)).std()}


def similarity():
    size = [17, 15, 13]
    a, b = images(size)
    box = lambda v: ndi.uniform_filter(v, 7, mode="constant")
    va, vb, cab = box(a * a) - box(a) ** 2, box(b * b) - box(b) ** 2, box(a * b) - box(a) * box(b)
    counts = np.histogramdd([a.ravel(), b.ravel()], bins=32)[0]
    entropy = lambda h: scipy.stats.entropy(h.ravel())
    joint = entropy(counts)
    marginals = entropy(counts.sum(0)) + entropy(counts.sum(1))
    ssim = skm.structural_similarity(a, b, data_range=1.0, gaussian_weights=True, sigma=1.5,
                                     use_sample_covariance=False)
    return {
        "ncc": scipy.stats.pearsonr(a.ravel(), b.ravel())[0],
        "local_ncc": (cab**2 / (va * vb)).mean(),
        "mse": skm.mean_squared_error(a, b),
        "psnr": skm.peak_signal_noise_ratio(a, b, data_range=1.0),
        "ssim": ssim,
        "mi": marginals - joint,
        "nmi": skm.normalized_mutual_information(a, b, bins=32),
    }


def label_case(name, fixed, moved, ids, spacing):
    size = list(fixed.shape[::-1])
    return {"name": name, "size": size, "spacing": spacing,
            "labels": surfaces(fixed, moved, ids, spacing)}


def real_pair(fixed, moving, ids):
    """Means over the labels listed in a text file, one id in a line."""
    ids = [int(line) for line in open(ids) if line.strip().isdigit()]
    images = [sitk.ReadImage(path) for path in (fixed, moving)]
    maps = [sitk.GetArrayFromImage(image).astype(int) for image in images]
    rows = surfaces(*maps, ids, list(images[0].GetSpacing()))
    return {measure: np.mean([row[measure] for row in rows]) for measure in rows[0]}


def main():
    if len(sys.argv) == 4:
        print(json.dumps(real_pair(*sys.argv[1:]), indent=1))
        return
    packages = ["numpy", "scipy", "scikit-image", "SimpleITK", "surface-distance"]
    small, large = [13, 11, 9], [24, 20, 18]
    shapes = shape_labels(large, 0), shape_labels(large, 1)
    noise = noise_labels(small, 1), noise_labels(small, 2)
    result = {
        "versions": {name: version(name) for name in packages},
        "surfel_checksums": [{"spacing": s, "sums": surfel_checksums(s)}
                             for s in ([1, 1, 1], [0.7, 1.0, 2.3], [3.1, 0.4, 0.9])],
        "distance_transforms": [
            distance_transform([19, 17, 23], [1, 1, 1], 5, 97),
            distance_transform([19, 17, 23], [0.7, 1.0, 2.3], 6, 211),
            distance_transform([40, 1, 7], [2.0, 1.0, 0.3], 7, 31),
        ],
        "surfaces": [
            label_case("noise", *noise, [0, 1, 2, 3], [1.0, 1.0, 1.0]),
            label_case("noise", *noise, [0, 1, 2, 3], [0.7, 1.0, 2.3]),
            label_case("shapes", *shapes, [1, 2, 3, 4, 5], [1.0, 1.0, 1.0]),
            label_case("shapes", *shapes, [1, 2, 3, 4, 5], [0.7, 1.0, 2.3]),
        ],
        "jacobian": jacobian([11, 9, 10], 3),
        "inverse_consistency": inverse_consistency(),
        "tre": tre(),
        "learn2reg": learn2reg(),
        "similarity": similarity(),
    }
    # Integers of numpy are none of json's.
    json.dump(result, sys.stdout, indent=1, default=lambda v: v.item())
    print()


if __name__ == "__main__":
    main()
