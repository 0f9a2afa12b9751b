"""OME-Zarr 0.6 transforms and images between ffdp, ngff-zarr, zarrs (as zarrista), zarr-python and ome-zarr-py.

    python3 -m venv v && v/bin/pip install -r scripts/peers/ngff.txt
    v/bin/python scripts/peers/ngff.py target/release/ffdp

Makes an image, a matrix and a displacement on an oblique and on a straight grid with numbers of its own, has ffdp write them, and
demands that the others read the same numbers, that their schemas hold, and that ffdp reads what ngff-zarr writes. Ends with 1
and names the first difference.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import dask.array
import nibabel
import ngff_zarr
import numpy as np
import zarr
import zarrista
from jsonschema import Draft202012Validator
from ngff_zarr.v06.zarr_metadata import Affine, CoordinateSystemIdentifier, Displacements, TransformSequence
from ome_zarr.io import parse_url
from ome_zarr.reader import Reader
from referencing import Registry, Resource

LPS = np.diag([-1.0, -1.0, 1.0])
DIMS = ["z", "y", "x"]
SIZE = (70, 40, 20)  # x, y, z: two levels
# Vectors of some mm in f32 through two grids.
CLOSE_MM = 1e-4


def straight():
    """An LPS grid, as images without an orientation have it."""
    affine = np.eye(4)
    affine[:3, :3] = LPS @ np.diag([1.5, 2.0, 3.0])
    affine[:3, 3] = [60.0, 40.0, -30.0]
    return affine


def oblique():
    turned = np.eye(4)
    cos, sin = np.cos(0.3), np.sin(0.3)
    turned[:3, :3] = [[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]]
    return turned @ straight()


def vectors():
    """Displacements in LPS mm, [x, y, z, 3]: smooth, all components different."""
    x, y, z = np.meshgrid(*(np.linspace(0, 3, n) for n in SIZE), indexing="ij")
    return np.stack([np.sin(x + y), 2 * np.cos(y - z), 0.5 * np.sin(z) - x / 3], -1).astype("float32")


# x -> A x + t in LPS mm.
MATRIX = np.array([[1.1, 0.2, 0.0, 5.0], [0.0, 0.9, -0.1, -6.0], [0.05, 0.0, 1.0, 7.0]])


def write_inputs(folder, affine):
    data = np.arange(np.prod(SIZE), dtype="float32").reshape(SIZE)
    nibabel.save(nibabel.Nifti1Image(data, affine), folder / "image.nii.gz")
    warp = nibabel.Nifti1Image(vectors()[:, :, :, None, :], affine)
    warp.header.set_intent(1007)
    nibabel.save(warp, folder / "warp.nii.gz")
    numbers = " ".join(map(str, [*MATRIX[:, :3].ravel(), *MATRIX[:, 3]]))
    (folder / "affine.txt").write_text(
        "#Insight Transform File V1.0\n#Transform 0\nTransform: AffineTransform_double_3_3\n"
        f"Parameters: {numbers}\nFixedParameters: 0 0 0\n"
    )


def same(what, ours, expected, within):
    worst = float(np.abs(np.asarray(ours, "float64") - np.asarray(expected, "float64")).max())
    print(f"{what}: largest difference {worst:.2g}")
    if not worst <= within:
        raise SystemExit(f"{what}: more than {within}")


def check_schema(folder, name):
    """The metadata of a group by the JSON schemas of 0.6 that ngff-zarr brings."""
    schemas = [json.loads(path.read_text()) for path in (Path(ngff_zarr.__file__).parent / "spec/0.6/schemas").iterdir()]
    registry = Registry().with_resources((schema["$id"], Resource.from_contents(schema)) for schema in schemas)
    schema = next(schema for schema in schemas if schema["$id"].endswith(f"/{name}.schema"))
    metadata = json.loads((folder / "zarr.json").read_text())["attributes"]
    Draft202012Validator(schema, registry=registry).validate(metadata)
    print(f"{folder.name}: {name}.schema of 0.6 holds")


def check_image(folder, ffdp):
    ffdp("convert", folder / "image.nii.gz", folder / "image.zarr")
    expected = nibabel.load(folder / "image.nii.gz").get_fdata().transpose(2, 1, 0)
    path = folder / "image.zarr"
    same("image by zarr-python", zarr.open_array(path / "0", mode="r")[:], expected, 0)
    read = zarrista.Array.open(zarrista.store.FilesystemStore(path), "/0")
    same("image by zarrs", np.asarray(read[:]), expected, 0)
    same("image by ngff-zarr", ngff_zarr.from_ome_zarr(path).images[0].data.compute(), expected, 0)
    node = next(iter(Reader(parse_url(path, mode="r"))()))
    same("image by ome-zarr-py", np.asarray(node.data[0]), expected, 0)


def itk(transform, fields=None, images=(None, None)):
    """Matrix and vectors [z, y, x, 3] in LPS mm of a transform, as ngff-zarr makes ITK's of it."""
    [found] = ngff_zarr.ngff_transform_to_itk_transform(
        transform, DIMS, fields=fields, fixed=images[0], moving=images[1]
    )
    return found


def matrix_of(transform):
    found = itk(transform)
    parameters, centre = np.asarray(found.parameters), np.asarray(found.fixedParameters)
    linear = parameters[:9].reshape(3, 3)
    return np.column_stack([linear, parameters[9:] + centre - linear @ centre])


def check_field(folder, ffdp, is_straight):
    ffdp("convert", folder / "warp.nii.gz", folder / "warp.zarr")
    path = folder / "warp.zarr"
    check_schema(path, "image")
    field = ngff_zarr.from_ome_zarr(path, validate=True)
    [transform] = field.metadata.coordinateTransformations
    assert isinstance(transform, Displacements), transform
    assert len(field.images) == 2 and field.images[0].axes_units["z"] == "millimeter"
    if is_straight:
        found = itk(transform, {transform.path: field})
        read = np.asarray(found.parameters).reshape(*reversed(SIZE), 3)
        same("field by ngff-zarr, as ITK's", read, vectors().transpose(2, 1, 0, 3), CLOSE_MM)
        origin = LPS @ straight()[:3, 3]
        same("its origin", np.asarray(found.fixedParameters)[3:6], origin, CLOSE_MM)
    else:
        # Along the axes of its grid, which only the images could place for ngff-zarr.
        turned = np.einsum("xyzi,ij->xyzj", vectors(), LPS @ oblique()[:3, :3] @ np.diag([1 / 1.5, 1 / 2.0, 1 / 3.0]))
        read = field.images[0].data.compute().transpose(3, 2, 1, 0)[..., ::-1]
        same("field by ngff-zarr, along its axes", read, turned, CLOSE_MM)
    read = zarrista.Array.open(zarrista.store.FilesystemStore(path), "/1")
    same("coarse level by zarrs", np.asarray(read[:]), zarr.open_array(path / "1", mode="r")[:], 0)


def check_chain(folder, ffdp):
    ffdp("compose", "-t", folder / "affine.txt", "-o", folder / "affine.zarr")
    transform = ngff_zarr.from_ome_zarr(folder / "affine.zarr", kind="transformation", validate=True)
    same("matrix by ngff-zarr", matrix_of(transform), MATRIX, 1e-9)
    ffdp("compose", "-t", folder / "warp.nii.gz", "-t", folder / "affine.txt", "-o", folder / "chain.zarr")
    transform = ngff_zarr.from_ome_zarr(folder / "chain.zarr", kind="transformation", validate=True)
    assert isinstance(transform, TransformSequence), transform
    # By the specification: point after point through the steps, at the centres of the voxels of the field.
    grid = (oblique if len(transform.transformations) == 3 else straight)()
    index = np.stack(np.meshgrid(*map(np.arange, SIZE), indexing="ij"), -1)
    points = ((index @ grid[:3, :3].T + grid[:3, 3]) @ LPS)[..., ::-1]
    for step in transform.transformations:
        if isinstance(step, Displacements):
            check_schema(folder / "chain.zarr" / step.path, "image")
            field = ngff_zarr.from_ome_zarr(f"{folder / 'chain.zarr'}/{step.path}", validate=True)
            points = points + field.images[0].data.compute().transpose(3, 2, 1, 0)
        else:
            rows = np.array(step.affine)
            points = points @ rows[:, :3].T + rows[:, 3]
    before = (index @ grid[:3, :3].T + grid[:3, 3]) @ LPS
    expected = (before + vectors()) @ MATRIX[:, :3].T + MATRIX[:, 3]
    same("chain, step by step", points[..., ::-1], expected, CLOSE_MM)
    # The same chain by ffdp, from what it wrote.
    ffdp("compose", "-t", folder / "chain.zarr", "-r", folder / "image.nii.gz", "-o", folder / "whole.nii.gz")
    whole = nibabel.load(folder / "whole.nii.gz").get_fdata()[:, :, :, 0]
    same("chain read by ffdp", whole, expected - before, CLOSE_MM)


def check_theirs(folder, ffdp):
    """A matrix and a field that ngff-zarr writes, the field in micrometres."""
    order = [2, 1, 0]
    rows = np.column_stack([MATRIX[order][:, order], MATRIX[order, 3]])
    ends = [CoordinateSystemIdentifier(name=name) for name in ("fixed", "moving")]
    theirs = Affine(affine=rows.tolist(), input=ends[0], output=ends[1])
    ngff_zarr.to_ome_zarr(folder / "theirs.zarr", theirs)
    ffdp("compose", "-t", folder / "theirs.zarr", "-o", folder / "theirs.txt")
    line = next(line for line in (folder / "theirs.txt").read_text().splitlines() if line.startswith("Parameters"))
    numbers = np.array(line.split()[1:], float)
    same("matrix of ngff-zarr", np.column_stack([numbers[:9].reshape(3, 3), numbers[9:]]), MATRIX, 1e-9)
    origin = LPS @ straight()[:3, 3]
    field = ngff_zarr.NgffImage(
        dask.array.from_array(1000 * vectors().transpose(3, 2, 1, 0)[::-1]),
        dims=["c", *DIMS],
        scale={"c": 1.0, "z": 3000.0, "y": 2000.0, "x": 1500.0},
        translation={"c": 0.0, "z": 1000 * origin[2], "y": 1000 * origin[1], "x": 1000 * origin[0]},
        axes_units={name: "micrometer" for name in DIMS},
        axes_types={"c": "displacement"},
    )
    declared = ngff_zarr.declare_field_transform(ngff_zarr.to_multiscales(field, scale_factors=[]))
    ngff_zarr.to_ome_zarr(folder / "their_warp.zarr", declared, version="0.6")
    ffdp("convert", folder / "their_warp.zarr", folder / "their_warp.nii.gz")
    read = nibabel.load(folder / "their_warp.nii.gz")
    same("field of ngff-zarr in micrometres", read.get_fdata()[:, :, :, 0], vectors(), CLOSE_MM)
    same("its grid", read.affine, straight(), CLOSE_MM)


def main():
    program = str(Path(sys.argv[1]).resolve())

    def ffdp(*words):
        subprocess.run([program, *map(str, words)], check=True, stdout=subprocess.DEVNULL)

    for name, affine in [("straight", straight()), ("oblique", oblique())]:
        print(f"== a {name} grid")
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            write_inputs(folder, affine)
            check_image(folder, ffdp)
            check_field(folder, ffdp, name == "straight")
            check_chain(folder, ffdp)
            if name == "straight":
                check_theirs(folder, ffdp)
            for words in (["info", folder / "warp.zarr"], ["apply", "-i", folder / "image.zarr", "-r", folder / "image.zarr",
                          "-t", folder / "chain.zarr", "-o", folder / "moved.zarr"]):
                ffdp(*words)


if __name__ == "__main__":
    main()
