"""A series with known motion: errors and processor seconds of `ffdp register` and of ANTs' motion correction.

The object is a formula (waves and balls in an ellipsoid), so every volume is exact at any position; then comes noise. A
rigid map that all volumes share is no error of motion correction, and is taken out before the error is measured: the
distance at the eight corners of the box in the ellipsoid.

Of a real series (`--image`) nobody knows the motion. All volumes are sampled by one program (SciPy, cubic splines)
through the maps of each, and what still changes is measured where the mean is bright: the standard deviation over time,
its linear trend taken out, and the change from a volume to the next, both in percent of the mean.

With `--known` the real series is moved: its mean, sampled through motion of so many mm and degrees (SciPy, cubic
splines), with what every volume differs from the mean as its noise. Errors are measured as those of the
object, at the corners of a box in the middle of the grid.

    python scripts/peers/series.py --ffdp target/release/ffdp --volumes 20 --ants
    python scripts/peers/series.py --ffdp target/release/ffdp --image bold.nii.gz --ants
    python scripts/peers/series.py --ffdp target/release/ffdp --image bold.nii.gz --known 2 --ants
"""

import argparse
import csv
import resource
import subprocess
import tempfile
import time
from multiprocessing.pool import ThreadPool
from pathlib import Path

import nibabel
import numpy
from scipy.ndimage import map_coordinates

SIZE = (64, 64, 40)
SPACING = numpy.array([3.3, 3.3, 3.5])
FIRST = -(numpy.array(SIZE) - 1) / 2 * SPACING
HALF_AXES = numpy.array([68.0, 82.0, 58.0])
BALLS = ((20, 10, 5), (-25, -20, 10), (0, 30, -15), (10, -40, 20))


def processor_seconds():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(of.ru_utime + of.ru_stime for of in used)


def rotation(angles):
    """Rx Ry Rz, as the table of `ffdp register` has it."""
    (cx, cy, cz), (sx, sy, sz) = numpy.cos(angles), numpy.sin(angles)
    about_x = numpy.array([[1, 0, 0], [0, cx, -sx], [0, sx, cx]])
    about_y = numpy.array([[cy, 0, sy], [0, 1, 0], [-sy, 0, cy]])
    about_z = numpy.array([[cz, -sz, 0], [sz, cz, 0], [0, 0, 1]])
    return about_x @ about_y @ about_z


def rigid(angles, translation):
    map = numpy.eye(4)
    map[:3, :3], map[:3, 3] = rotation(angles), translation
    return map


def motion(random, volumes, most):
    """Maps of a head that drifts up to so many mm and degrees, with three jumps of a third of it."""
    def walk():
        steps = numpy.cumsum(random.normal(size=(volumes, 3)), 0)
        steps -= steps.mean(0)
        return most * steps / numpy.abs(steps).max()

    translations, angles = walk(), numpy.deg2rad(walk())
    for jump in random.integers(1, volumes, 3):
        translations[jump:] += 0.35 * most * random.normal(size=3)
        angles[jump:] += numpy.deg2rad(0.35 * most * random.normal(size=3))
    return numpy.array([rigid(*of) for of in zip(angles, translations)])


def series(volumes, noise):
    """The volumes, and for each the map from the object at rest to where it is."""
    random = numpy.random.default_rng(1)
    lengths, directions = random.uniform(12, 50, 40), random.normal(size=(40, 3))
    directions /= numpy.linalg.norm(directions, axis=1)[:, None]
    waves, phases = 2 * numpy.pi * directions / lengths[:, None], random.uniform(0, 2 * numpy.pi, 40)
    heights = 6 * lengths / lengths.sum()

    def at(points):
        reach = numpy.linalg.norm(points / HALF_AXES, axis=1)
        edge = 1 / (1 + numpy.exp((reach - 0.9) * 65 / 4))
        texture = (heights * numpy.cos(points @ waves.T + phases)).sum(1)
        balls = sum(-0.5 * numpy.exp(-((points - ball) ** 2).sum(1) / 162) for ball in BALLS)
        return 1000 * edge * numpy.clip(1 + 0.25 * texture + balls, 0.05, None)

    truth = motion(random, volumes, 2)
    points = numpy.indices(SIZE).reshape(3, -1).T * SPACING + FIRST
    images = numpy.zeros((*SIZE, volumes), numpy.int16)
    moved = lambda k: at((points - truth[k, :3, 3]) @ truth[k, :3, :3])
    # The arithmetic of arrays runs in parallel; the noise comes in the order of the volumes.
    for k, values in enumerate(ThreadPool().imap(moved, range(volumes))):
        values += noise * random.normal(size=len(values))
        images[..., k] = numpy.round(values).reshape(SIZE)
    return images, truth


def moved_mean(images, spacing, most):
    """The mean of a real series under known motion, with each volume's own noise; and the maps."""
    size = numpy.array(images.shape[:3])
    mean = images.mean(3, dtype=numpy.float32)
    truth = motion(numpy.random.default_rng(1), images.shape[3], most)
    points = (numpy.indices(size).reshape(3, -1).T - (size - 1) / 2) * spacing

    def moved(k):
        at = (points - truth[k, :3, 3]) @ truth[k, :3, :3] / spacing + (size - 1) / 2
        return map_coordinates(mean, at.T, mode="nearest").reshape(size) + images[..., k] - mean

    return numpy.stack(list(ThreadPool().imap(moved, range(len(truth)))), 3).astype(numpy.float32), truth


def by_ffdp(program, file, reference, device, flags=""):
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "register", "-m", file, "-o", f"{folder}/out", "--reference", reference]
        subprocess.run([*command, "--device", device, "-q", *flags.split()], check=True)
        with open(f"{folder}/out/motion.tsv") as table:
            rows = list(csv.DictReader(table, delimiter="\t"))
    numbers = lambda row, what, unit: [float(row[f"{what}_{axis}_{unit}"]) for axis in "xyz"]
    # The middle of the grid, about which it turns, is the origin here.
    return numpy.array([rigid(numbers(row, "rotation", "rad"), numbers(row, "translation", "mm")) for row in rows])


def by_ants(images, spacing):
    import ants

    first = -(numpy.array(images.shape[:3]) - 1) / 2 * spacing
    image = ants.from_numpy(images.astype(numpy.float32), spacing=(*spacing, 1.0), origin=(*first, 0.0))
    found = ants.motion_correction(image)["motion_parameters"]
    maps = []
    for files in found:
        transform = ants.read_transform(files[0] if isinstance(files, (list, tuple)) else files)
        at = lambda point: numpy.array(ants.apply_ants_transform_to_point(transform, tuple(point)))
        map = numpy.eye(4)
        map[:3, 3] = at(numpy.zeros(3))
        map[:3, :3] = numpy.array([at(axis) - map[:3, 3] for axis in numpy.eye(3)]).T
        maps.append(map)
    return numpy.array(maps)


def errors(found, truth, half_axes=HALF_AXES):
    """Mean error at the corners, mm, of each volume."""
    shared = numpy.mean([numpy.linalg.inv(of) @ map for of, map in zip(truth, found)], 0)
    left, _, right = numpy.linalg.svd(shared[:3, :3])
    shared[:3, :3] = left @ right
    signs = numpy.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    corners = numpy.c_[signs * half_axes / numpy.sqrt(3), numpy.ones(8)]
    apart = lambda of, map: (corners @ (of @ shared).T - corners @ map.T)[:, :3]
    return numpy.array([numpy.linalg.norm(apart(*pair), axis=1).mean() for pair in zip(truth, found)])


def changes(images, maps, spacing):
    """What changes over time through maps, in percent of the mean: standard deviation without trend, and from one
    volume to the next; medians over the voxels whose mean is above half of its 98th percentile. Sampled half a voxel off
    the grid: there interpolation takes as much of the noise from a volume that has not moved as from one that has."""
    size = numpy.array(images.shape[:3])
    points = (numpy.indices(size).reshape(3, -1).T - size / 2) * spacing
    sampled = lambda k: map_coordinates(
        images[..., k].astype(numpy.float32),
        ((points @ maps[k][:3, :3].T + maps[k][:3, 3]) / spacing + (size - 1) / 2).T, mode="nearest")
    values = numpy.array(list(ThreadPool().imap(sampled, range(len(maps)))))
    mean = values.mean(0)
    bright = mean > 0.5 * numpy.percentile(mean, 98)
    values, mean = values[:, bright], mean[bright]
    times = numpy.vander(numpy.linspace(-1, 1, len(values)), 2)
    rest = values - times @ numpy.linalg.lstsq(times, values, rcond=None)[0]
    steps = numpy.sqrt((numpy.diff(values, axis=0) ** 2).mean(0))
    return [100 * numpy.median(of / mean) for of in (rest.std(0), steps)]


def programs(arguments, file, images, spacing):
    """Names, and what finds the maps."""
    by = lambda to, flags="": lambda: by_ffdp(arguments.ffdp, file, to, arguments.device, flags)
    rows = [(f"ffdp, onto the {to}", by(to)) for to in ("mean", "middle")]
    rows += [(f"ffdp {flags}", by("mean", flags)) for flags in arguments.flags]
    if arguments.device != "cpu":
        # The first run compiles kernels, which are kept on disk.
        rows.insert(0, rows[0])
    if arguments.ants:
        rows.append(("ANTs motion_correction", lambda: by_ants(images, spacing)))
    return rows


def compare(arguments, images, spacing, truth, half_axes):
    """Each program on one series; without the truth by what still changes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "series.nii.gz"
        grid = numpy.diag([*spacing, 1.0])
        grid[:3, 3] = -(numpy.array(images.shape[:3]) - 1) / 2 * spacing
        nibabel.save(nibabel.Nifti1Image(images, grid), file)
        rest = numpy.array([numpy.eye(4)] * images.shape[3])
        others = None
        for name, method in [("as it is", lambda: rest), *programs(arguments, file, images, spacing)]:
            start, begun = processor_seconds(), time.monotonic()
            maps = method()
            used, seconds = processor_seconds() - start, time.monotonic() - begun
            if truth is None:
                deviation, step = changes(images, maps, spacing)
                apart = errors(maps, maps if others is None else others, half_axes).mean()
                others = maps
                result = f"{deviation:.3f} % over time, {step:.3f} % a step; {apart:.3f} mm from the row above"
            else:
                found = errors(maps, truth, half_axes)
                result = f"mean {found.mean():.3f}, 95 % {numpy.percentile(found, 95):.3f}, most {found.max():.3f} mm"
            print(f"{name}: {result}; {seconds:.1f} s, {used:.1f} s of processor time", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ffdp", required=True)
    parser.add_argument("--volumes", type=int, default=20)
    parser.add_argument("--noise", type=float, default=20, help="standard deviation; the object has about 1000")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--ants", action="store_true", help="ANTs as well")
    parser.add_argument("--image", help="a real series in place of the object")
    parser.add_argument("--known", type=float, help="moved by so many mm and degrees, with --image")
    parser.add_argument("--flags", action="append", default=[], help="of a further row by `ffdp register`")
    arguments = parser.parse_args()
    if not arguments.image:
        images, truth = series(arguments.volumes, arguments.noise)
        return compare(arguments, images, SPACING, truth, HALF_AXES)
    image = nibabel.load(arguments.image)
    images, spacing = numpy.asanyarray(image.dataobj), numpy.array(image.header.get_zooms()[:3], float)
    half_axes, truth = numpy.array(images.shape[:3]) / 2 * spacing, None
    if arguments.known:
        images, truth = moved_mean(images, spacing, arguments.known)
    compare(arguments, images, spacing, truth, half_axes)


if __name__ == "__main__":
    main()
