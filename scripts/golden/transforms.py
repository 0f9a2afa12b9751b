"""Transforms of SimpleITK as an oracle, and SimpleITK as a reader of what ffdp writes.

    python -m venv v && v/bin/pip install SimpleITK==2.5.7 numpy==2.4.6
    v/bin/python scripts/golden/transforms.py make            # writes tests/golden/*, and kinds_expected.rs
    v/bin/python scripts/golden/transforms.py splines         # only tests/golden/bspline*
    v/bin/python scripts/golden/transforms.py check target/release/ffdp    # prints differences, fails above 1e-4

`make` writes what `tests/golden.rs` reads. `check` gives the binary files of SimpleITK, lets SimpleITK read
what the binary writes, and compares images and points.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import SimpleITK as sitk

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
KINDS = ROOT / "crates/ffdp-image/src/io/transform_file/tests/kinds_expected.rs"
FLIP = np.diag([-1.0, -1.0, 1.0])  # LPS to RAS and back


def rotation(degrees, axis):
    versor = sitk.VersorTransform(axis, np.radians(degrees))
    return np.array(versor.GetMatrix()).reshape(3, 3)


def grid(size, spacing, center, direction):
    image = sitk.Image(size, sitk.sitkFloat32)
    image.SetSpacing(spacing)
    image.SetDirection(direction.flatten().tolist())
    image.SetOrigin([0.0, 0.0, 0.0])
    middle = image.TransformContinuousIndexToPhysicalPoint([(n - 1) / 2 for n in size])
    image.SetOrigin((np.array(center) - middle).tolist())
    return image


# Voxel axes in LPS: LIA and LAS, each turned a little; sizes, spacings and centres differ.
LIA = np.array([[1.0, 0, 0], [0, 0, -1], [0, -1, 0]])
LAS = np.diag([1.0, -1.0, 1.0])


def fixed_grid():
    return grid([22, 18, 20], [2.0, 1.7, 2.3], [3.0, -4.0, 6.0], rotation(12, [0.3, 1, 0.2]) @ LIA)


def moving_grid():
    return grid([24, 26, 21], [1.9, 2.2, 2.5], [-2.0, 5.0, 1.0], rotation(-9, [1, 0.1, 0.5]) @ LAS)


def warp_grid():
    """Around the fixed grid, coarser and turned otherwise: no point of the fixed grid leaves it."""
    return grid([14, 12, 14], [4.2, 4.4, 4.4], [3.0, -4.0, 6.0], rotation(20, [1, 0.4, -0.3]) @ LIA)


def physical(image):
    """Points of all voxels in LPS mm, [z, y, x, 3]."""
    n = image.GetSize()
    index = np.stack(np.meshgrid(*[np.arange(k) for k in n[::-1]], indexing="ij")[::-1], -1)
    matrix = np.array(image.GetDirection()).reshape(3, 3) * np.array(image.GetSpacing())
    return index @ matrix.T + np.array(image.GetOrigin())


def waves(x, seed, count, length):
    """Smooth, of any number of components: a sum of plane waves of at least `length` mm."""
    random = np.random.default_rng(seed)
    value = 0.0
    for _ in range(5):
        k = random.normal(size=3)
        k *= 2 * np.pi / length / np.linalg.norm(k)
        phase, amplitude = random.uniform(0, 6, count), random.normal(size=count)
        value = value + amplitude * np.sin((x @ k)[..., None] + phase)
    return value


def moving_image():
    image = moving_grid()
    values = sitk.GetImageFromArray((1000 + 250 * waves(physical(image), 1, 1, 16.0)[..., 0]).astype(np.int16))
    values.CopyInformation(image)
    return values


def affine():
    transform = sitk.AffineTransform(3)
    matrix = rotation(8, [0.2, -1, 0.4]) @ np.array([[1.05, 0.03, 0], [0, 0.94, -0.02], [0.01, 0, 1.02]])
    transform.SetMatrix(matrix.flatten().tolist())
    transform.SetCenter([4.0, -7.0, 11.0])
    transform.SetTranslation([-3.0, 2.5, 1.5])
    return transform


def warp(grid_of, seed):
    vectors = (1.1 * waves(physical(grid_of), seed, 3, 34.0)).astype(np.float32)
    field = sitk.GetImageFromArray(vectors, isVector=True)
    field.CopyInformation(grid_of)
    return field


def displacement(field):
    # The transform takes over the image it is given: hand it a copy, in double.
    return sitk.DisplacementFieldTransform(sitk.Cast(field, sitk.sitkVectorFloat64))


def points():
    random = np.random.default_rng(5)
    matrix = np.array(fixed_grid().GetDirection()).reshape(3, 3) * np.array(fixed_grid().GetSpacing())
    index = random.uniform(1.0, 16.0, size=(20, 3))
    return index @ matrix.T + np.array(fixed_grid().GetOrigin())


def save_points(path, values):
    rows = [",".join(repr(float(v)) for v in row) + ",0" for row in values]
    path.write_text("x,y,z,t\n" + "\n".join(rows) + "\n")


def resample(image, reference, transform):
    return sitk.Resample(image, reference, transform, sitk.sitkLinear, 0.0, sitk.sitkFloat32)


def spline():
    """A control grid around the fixed grid, turned otherwise; its cells cover all points."""
    around = warp_grid()
    mesh = [5, 4, 6]
    transform = sitk.BSplineTransform(3, 3)
    size, spacing = around.GetSize(), around.GetSpacing()
    transform.SetTransformDomainOrigin(around.GetOrigin())
    transform.SetTransformDomainDirection(around.GetDirection())
    transform.SetTransformDomainPhysicalDimensions([(n - 1) * s for n, s in zip(size, spacing)])
    transform.SetTransformDomainMeshSize(mesh)
    random = np.random.default_rng(11)
    transform.SetParameters(random.normal(size=len(transform.GetParameters())).round(6).tolist())
    return transform


def around_the_domain():
    """Points within the domain of the spline and beyond it, where ITK does not move them."""
    random = np.random.default_rng(12)
    matrix = np.array(warp_grid().GetDirection()).reshape(3, 3) * np.array(warp_grid().GetSpacing())
    index = random.uniform(-2.0, 14.0, size=(40, 3))
    return index @ matrix.T + np.array(warp_grid().GetOrigin())


def make_splines():
    """Only the files of the B-spline."""
    sitk.WriteTransform(spline(), str(GOLDEN / "bspline.tfm"))
    sitk.WriteTransform(spline(), str(GOLDEN / "bspline.h5"))
    save_points(GOLDEN / "bspline_points.csv", around_the_domain())
    moved = [spline().TransformPoint(p) for p in around_the_domain().tolist()]
    save_points(GOLDEN / "bspline_mapped.csv", moved)


def make():
    GOLDEN.mkdir(exist_ok=True)
    make_splines()
    field = warp(warp_grid(), 3)
    chain = sitk.CompositeTransform([affine(), displacement(field)])  # the last is applied first
    sitk.WriteTransform(affine(), str(GOLDEN / "affine.txt"))
    sitk.WriteTransform(affine(), str(GOLDEN / "affine.mat"))
    sitk.WriteTransform(chain, str(GOLDEN / "composite.h5"))
    sitk.WriteImage(field, str(GOLDEN / "warp.nii.gz"), useCompression=True)
    moving = moving_image()
    sitk.WriteImage(moving, str(GOLDEN / "moving.nii.gz"), useCompression=True)
    warped = resample(moving, fixed_grid(), chain)
    sitk.WriteImage(warped, str(GOLDEN / "warped.nii.gz"), useCompression=True)
    back = sitk.CompositeTransform([inverse(field), affine().GetInverse()])
    save_points(GOLDEN / "back.csv", [back.TransformPoint(chain.TransformPoint(p)) for p in points().tolist()])
    save_points(GOLDEN / "points.csv", points())
    save_points(GOLDEN / "mapped.csv", [chain.TransformPoint(p) for p in points().tolist()])
    write_kinds()


def inverse(field):
    return displacement(
        sitk.InvertDisplacementField(sitk.Cast(field, sitk.sitkVectorFloat64), 200, 1e-6, 1e-4, False)
    )


def kinds():
    """One of each kind, with every parameter in use."""
    versor, shift, scale = [0.1, -0.2, 0.15], [1.0, -2.0, 3.0], [1.1, 0.9, 1.2]
    skew, center = [0.01, 0.02, 0.03, 0.04, 0.05, 0.06], [4.0, 5.0, -6.0]
    quaternion = [*versor, float(np.sqrt(1 - np.dot(versor, versor)))]
    yield "AffineTransform", sitk.AffineTransform(3), [1.1, 0.1, 0.2, -0.1, 0.9, 0.3, 0, 0.05, 1.2, *shift], center
    yield "Euler3DTransform", sitk.Euler3DTransform(), [0.1, 0.2, 0.3, *shift], [*center, 0.0]
    yield "Euler3DTransform", sitk.Euler3DTransform(), [0.1, 0.2, 0.3, *shift], [*center, 1.0]
    yield "VersorRigid3DTransform", sitk.VersorRigid3DTransform(), [*versor, *shift], center
    yield "VersorTransform", sitk.VersorTransform(), versor, center
    yield "QuaternionRigidTransform", None, [*quaternion, *shift], center
    yield "Similarity3DTransform", sitk.Similarity3DTransform(), [*versor, *shift, 1.3], center
    yield "ScaleVersor3DTransform", sitk.ScaleVersor3DTransform(), [*versor, *shift, *scale], center
    yield "ScaleSkewVersor3DTransform", sitk.ScaleSkewVersor3DTransform(), [*versor, *shift, *scale, *skew], center
    composed = [*versor, *shift, *scale, 0.05, -0.03, 0.02]
    yield "ComposeScaleSkewVersor3DTransform", sitk.ComposeScaleSkewVersor3DTransform(), composed, center
    yield "ScaleTransform", sitk.ScaleTransform(3), scale, center
    yield "TranslationTransform", sitk.TranslationTransform(3), shift, []
    yield "IdentityTransform", sitk.Transform(), [], []


def write_kinds():
    lines = [
        "//! Written by `scripts/golden/transforms.py` with SimpleITK 2.5.7.",
        "",
        "use super::kinds::Case;",
        "",
        "pub(super) const KINDS: &[Case] = &[",
    ]
    for name, transform, parameters, fixed in kinds():
        if transform is None:  # SimpleITK has no class of its own for it, but reads it
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "t.txt"
                numbers = " ".join(map(str, parameters)), " ".join(map(str, fixed))
                path.write_text(
                    "#Insight Transform File V1.0\n#Transform 0\n"
                    f"Transform: {name}_double_3_3\nParameters: {numbers[0]}\nFixedParameters: {numbers[1]}\n"
                )
                transform = sitk.ReadTransform(str(path))
        else:
            transform.SetFixedParameters(fixed)
            transform.SetParameters(parameters)
        origin = np.array(transform.TransformPoint([0.0, 0.0, 0.0]))
        matrix = np.array([transform.TransformPoint(e) for e in np.eye(3).tolist()]).T - origin[:, None]
        rows = np.hstack([FLIP @ matrix @ FLIP, (FLIP @ origin)[:, None]])
        numbers = [" ".join(map(repr, map(float, v))) for v in (parameters, fixed)]
        lines.append(f'    ("{name}_double_3_3", "{numbers[0]}", "{numbers[1]}", [')
        lines += ["        [" + ", ".join(repr(float(v) + 0.0) for v in row) + "]," for row in rows]
        lines.append("    ]),")
    KINDS.write_text("\n".join([*lines, "];", ""]))


def check(ffdp):
    run = lambda *arguments: subprocess.run([ffdp, *map(str, arguments)], check=True)
    golden = lambda name: str(GOLDEN / name)
    moving = sitk.ReadImage(golden("moving.nii.gz"))
    with tempfile.TemporaryDirectory() as folder:
        out = lambda name: str(Path(folder) / name)
        chain = ["-t", golden("warp.nii.gz"), "-t", golden("affine.txt")]
        # Through files that ffdp writes: an affine one, a displacement, and the chain as one displacement.
        run("compose", "-t", golden("affine.mat"), "-o", out("affine.txt"))
        run("compose", "-t", golden("affine.txt"), "-o", out("affine.mat"))
        run("compose", "-t", golden("warp.nii.gz"), "-r", golden("warp.nii.gz"), "-o", out("warp.nii.gz"))
        run("compose", *chain, "-r", golden("warped.nii.gz"), "-o", out("whole.nii.gz"))
        run("compose", *chain, "-o", out("composite.h5"))
        run("apply", "-i", golden("moving.nii.gz"), "-r", golden("warped.nii.gz"), *chain, "-o", out("warped.nii.gz"))
        ours = sitk.ReadImage(out("warped.nii.gz"))
        read = lambda name: displacement(sitk.ReadImage(out(name)))
        chains = {
            "affine.txt, warp": sitk.CompositeTransform([sitk.ReadTransform(out("affine.txt")), read("warp.nii.gz")]),
            "affine.mat, warp": sitk.CompositeTransform([sitk.ReadTransform(out("affine.mat")), read("warp.nii.gz")]),
            "one displacement": read("whole.nii.gz"),
            "composite.h5": sitk.ReadTransform(out("composite.h5")),
        }
        for name, transform in chains.items():
            compare(f"image, {name}", ours, resample(moving, ours, transform), transform, moving)
        # A B-spline that ffdp wrote moves points as the one that it read.
        run("compose", "-t", golden("bspline.tfm"), "-o", out("bspline.h5"))
        check_spline(sitk.ReadTransform(out("bspline.h5")))
        # The inverse of the chain: solved by ours, and read from our file by SimpleITK.
        run("apply", "-i", golden("warped.nii.gz"), "-r", golden("moving.nii.gz"), *chain, "--inverse", "-o", out("back.nii.gz"))
        run("invert", *chain, "-r", golden("moving.nii.gz"), "-o", out("inverse.nii.gz"))
        ours = sitk.ReadImage(out("back.nii.gz"))
        warped, inverted = sitk.ReadImage(golden("warped.nii.gz")), read("inverse.nii.gz")
        compare("inverse", ours, resample(warped, ours, inverted), inverted, warped)
        run("apply", "--landmarks", golden("points.csv"), "--landmark-space", "lps", *chain, "-o", out("mapped.csv"))
        mapped, expected = (np.loadtxt(p, delimiter=",", skiprows=1) for p in (out("mapped.csv"), golden("mapped.csv")))
        print(f"points: {np.abs(mapped - expected).max():.1e} mm")
        assert np.abs(mapped - expected).max() < 1e-4


def check_spline(transform):
    moved = [transform.TransformPoint(p) for p in around_the_domain().tolist()]
    expected = np.loadtxt(GOLDEN / "bspline_mapped.csv", delimiter=",", skiprows=1)[:, :3]
    difference = np.abs(np.array(moved) - expected).max()
    print(f"B-spline: {difference:.1e} mm")
    assert difference < 1e-5


def compare(name, ours, theirs, transform, moving):
    """Where the whole cell lies in the image: beyond, ITK repeats the border and ffdp fades to zero."""
    there = np.array([transform.TransformPoint(p) for p in physical(ours).reshape(-1, 3).tolist()])
    index = np.array([moving.TransformPhysicalPointToContinuousIndex(p) for p in there.tolist()])
    inside = np.all((index >= 0) & (index <= np.array(moving.GetSize()) - 1), axis=1)
    ours, theirs = (sitk.GetArrayFromImage(i).reshape(-1).astype(float) for i in (ours, theirs))
    image = sitk.GetArrayFromImage(moving)
    difference = np.abs(ours - theirs)[inside] / (image.max() - image.min())
    print(f"{name}: {inside.sum()} voxels, largest difference {difference.max():.1e} of the range")
    assert difference.max() < 1e-4


if __name__ == "__main__":
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    if command == "make":
        make()
    elif command == "splines":
        make_splines()
    elif command == "check" and len(sys.argv) == 3:
        check(sys.argv[2])
    else:
        sys.exit(__doc__)
