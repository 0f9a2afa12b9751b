"""Rigid and affine errors of `ffdp` and of ITK and ANTs, on real pairs with references by other people.

    python scripts/peers/linear.py DATA MS --ffdp target/release/ffdp --transform rigid

DATA has t1-epi (an EPI and a T1 with the matrix of FSL's FLIRT) and the MNI152 templates, MS the visits of a patient of
open_ms_data (`p01_study*`, references in ITK's format). The error of a map is the mean distance, over 3000 voxels of
the fixed image above a quarter of its 99th percentile, of where it and the reference send a point.
"""

import argparse
import resource
import subprocess
import tempfile
from pathlib import Path

import nibabel
import numpy
import SimpleITK

LPS = numpy.diag([-1.0, -1.0, 1.0, 1.0])


def matrix(transform):
    """The 4x4 matrix (RAS mm) of an affine transform of ITK."""
    origin = numpy.array(transform.TransformPoint((0, 0, 0)))
    columns = [numpy.array(transform.TransformPoint(tuple(e))) - origin for e in numpy.eye(3)]
    affine = numpy.eye(4)
    affine[:3, :3], affine[:3, 3] = numpy.array(columns).T, origin
    return LPS @ affine @ LPS


def read(path):
    return matrix(SimpleITK.ReadTransform(str(path)))


def of_flirt(path, source, target):
    """From points of the source to those of the target: FLIRT's matrix is one of voxels in mm, x from the right."""

    def scaled(image):
        zooms = image.header.get_zooms()[:3]
        scale = numpy.diag([*zooms, 1.0])
        if numpy.linalg.det(image.affine[:3, :3]) <= 0:
            return scale
        flip = numpy.eye(4)
        flip[0, 0], flip[0, 3] = -1, (image.shape[0] - 1) * zooms[0]
        return flip @ scale

    source, target = nibabel.load(source), nibabel.load(target)
    voxels = numpy.linalg.inv(scaled(target)) @ numpy.loadtxt(path) @ scaled(source)
    return target.affine @ voxels @ numpy.linalg.inv(source.affine)


def processor_seconds():
    """Of this process and those it waited for: what else the machine does changes them little."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(of.ru_utime + of.ru_stime for of in used)


def pairs(data, ms):
    """Fixed, moving and the reference, from points of the fixed to those of the moving image."""
    for visit in (1, 2):
        for contrast in ("T1W", "T2W"):
            moving = ms / f"p01_study{visit}_{contrast}.nii.gz"
            reference = read(ms / f"p01_study{visit}_{contrast}_intrastudy_to_FLAIR.txt")
            yield f"FLAIR, {contrast}, visit {visit}", ms / f"p01_study{visit}_FLAIR.nii.gz", moving, reference
    to_both = [read(ms / f"p01_study{visit}_FLAIR_to_common_space.txt") for visit in (1, 2)]
    visits = [ms / f"p01_study{visit}_FLAIR.nii.gz" for visit in (1, 2)]
    yield "FLAIR of two visits", *visits, to_both[1] @ numpy.linalg.inv(to_both[0])
    t1, epi = data / "t1-epi/highres_t1.nii.gz", data / "t1-epi/example_func_epi.nii.gz"
    to_epi = of_flirt(data / "t1-epi/highres2example_func.mat", t1, epi)
    yield "EPI, T1", epi, t1, numpy.linalg.inv(to_epi)
    yield "T1, EPI", t1, epi, to_epi
    mni = data / "mni152"
    yield "MNI T1, T2, 1 mm", *(mni / f"MNI152_{c}_1mm_brain.nii.gz" for c in ("T1", "T2")), numpy.eye(4)
    t1 = data / "cfireants/MNI152_T1_2mm.nii.gz"
    yield "MNI T1, T2, 2 mm", t1, mni / "MNI152_T2_2mm.nii.gz", numpy.eye(4)


def by_ffdp(program, fixed, moving, transform):
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "register", "-f", fixed, "-m", moving, "-o", folder, "--transform", transform]
        subprocess.run([*command, "--device", "cpu", "-q"], check=True)
        return read(Path(folder) / "affine.txt")


def by_itk(fixed, moving, transform):
    """Mattes' mutual information as ITK's examples have it: 50 bins, a fifth of the voxels, three levels."""
    fixed, moving = (SimpleITK.ReadImage(str(path), SimpleITK.sitkFloat32) for path in (fixed, moving))
    kind = SimpleITK.Euler3DTransform() if transform == "rigid" else SimpleITK.AffineTransform(3)
    centred = SimpleITK.CenteredTransformInitializerFilter.GEOMETRY
    found = SimpleITK.CenteredTransformInitializer(fixed, moving, kind, centred)
    method = SimpleITK.ImageRegistrationMethod()
    method.SetMetricAsMattesMutualInformation(50)
    method.SetMetricSamplingStrategy(method.RANDOM)
    method.SetMetricSamplingPercentage(0.2, 1)
    method.SetInterpolator(SimpleITK.sitkLinear)
    method.SetOptimizerAsRegularStepGradientDescent(1.0, 1e-4, 200)
    method.SetOptimizerScalesFromPhysicalShift()
    method.SetInitialTransform(found, True)
    method.SetShrinkFactorsPerLevel([4, 2, 1])
    method.SetSmoothingSigmasPerLevel([2, 1, 0])
    method.SmoothingSigmasAreSpecifiedInPhysicalUnitsOn()
    method.Execute(fixed, moving)
    return matrix(found)


def by_ants(fixed, moving, transform):
    import ants

    images = [ants.image_read(str(path)) for path in (fixed, moving)]
    found = ants.registration(*images, type_of_transform=transform.capitalize())
    return read(found["fwdtransforms"][0])


def points(path):
    image = nibabel.load(path)
    values = image.get_fdata()
    voxels = numpy.argwhere(values > 0.25 * numpy.percentile(values, 99))
    voxels = voxels[numpy.random.default_rng(0).choice(len(voxels), 3000)]
    return voxels @ image.affine[:3, :3].T + image.affine[:3, 3]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("ms", type=Path)
    parser.add_argument("--ffdp", required=True)
    parser.add_argument("--transform", choices=["rigid", "affine"], default="rigid")
    parser.add_argument("--no-ants", action="store_true", help="leave out the slowest")
    arguments = parser.parse_args()
    methods = {"ffdp": lambda *pair: by_ffdp(arguments.ffdp, *pair), "ITK": by_itk, "ANTs": by_ants}
    if arguments.no_ants:
        del methods["ANTs"]
    for name, fixed, moving, reference in pairs(arguments.data, arguments.ms):
        here = points(fixed)
        moved = lambda map: here @ map[:3, :3].T + map[:3, 3]
        error = lambda map: numpy.linalg.norm(moved(map) - moved(reference), axis=1).mean()
        row = [name, f"{error(numpy.eye(4)):.2f}"]
        for method in methods.values():
            start = processor_seconds()
            found = error(method(fixed, moving, arguments.transform))
            row.append(f"{found:.2f} ({processor_seconds() - start:.1f} s)")
        print(" | ".join(row), flush=True)


if __name__ == "__main__":
    main()
