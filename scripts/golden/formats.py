"""Images of other formats as their own libraries write them.

    python3 -m venv v && v/bin/pip install nibabel tifffile pydicom pillow SimpleITK
    v/bin/python scripts/golden/formats.py

writes small images to tests/golden/formats, whose voxel (x, y, z) of volume v has the value
1000 v + 100 z + 10 y + x, one picture in colour in several formats (colours/), and affine.json: from voxel to RAS mm as
nibabel (MGZ) and SimpleITK (DICOM) read them.
`crates/ffdp-image/src/io/images/tests/golden_formats.rs` compares. Made with nibabel 5.4.2, tifffile 2026.3.3,
pydicom 3.0.2, Pillow 13.0.0, SimpleITK 2.5.7.
"""

import json
import shutil
import struct
import zlib
from pathlib import Path

import nibabel as nib
import numpy as np
import pydicom
import SimpleITK as sitk
import tifffile
from PIL import Image
from pydicom.dataset import FileDataset, FileMetaDataset

GOLDEN = Path(__file__).parents[2] / "tests" / "golden" / "formats"
SIZE = (6, 5, 4)
LPS = np.diag([-1.0, -1.0, 1.0, 1.0])


def voxels(dtype, volumes=1):
    """Axes x, y, z, and the volume where there are several."""
    x, y, z, v = np.meshgrid(*[np.arange(n) for n in (*SIZE, volumes)], indexing="ij")
    values = (1000 * v + 100 * z + 10 * y + x).astype(dtype)
    return values if volumes > 1 else values[..., 0]


def rotation():
    a, b = np.deg2rad(20), np.deg2rad(-35)
    about_z = np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]])
    about_x = np.array([[1, 0, 0], [0, np.cos(b), -np.sin(b)], [0, np.sin(b), np.cos(b)]])
    return about_z @ about_x


def mgz():
    affine = np.eye(4)
    affine[:3, :3] = rotation() * [0.8, 1.0, 1.7]
    affine[:3, 3] = [-12.5, 30.25, 7.0]
    for name, dtype in [("uchar.mgz", np.uint8), ("short.mgz", np.int16), ("int.mgz", np.int32), ("float.mgh", np.float32)]:
        volumes = 1 if dtype == np.uint8 else 2
        nib.save(nib.MGHImage(voxels(dtype, volumes), affine), GOLDEN / name)
    return nib.load(GOLDEN / "short.mgz").affine.tolist()


def tiff():
    one = voxels(np.uint16).transpose(2, 1, 0)
    tifffile.imwrite(GOLDEN / "stack.tif", one, photometric="minisblack")
    tifffile.imwrite(GOLDEN / "deflate.tif", one.astype(np.float32), compression="deflate", tile=(16, 16), photometric="minisblack")
    tifffile.imwrite(GOLDEN / "big-endian.tif", one, byteorder=">", bigtiff=True, photometric="minisblack")
    # Volume: time + 2 channel.
    four = voxels(np.uint16, 4).transpose(3, 2, 1, 0).reshape(2, 2, *one.shape)
    sizes = {"PhysicalSizeX": 2.0, "PhysicalSizeXUnit": "µm", "PhysicalSizeY": 3.0, "PhysicalSizeYUnit": "µm",
             "PhysicalSizeZ": 0.004, "PhysicalSizeZUnit": "mm"}
    tifffile.imwrite(GOLDEN / "czt.ome.tif", four.transpose(1, 2, 0, 3, 4), metadata={"axes": "TZCYX", **sizes})
    tifffile.imwrite(GOLDEN / "zct.ome.tif", four.transpose(1, 0, 2, 3, 4), metadata={"axes": "TCZYX", **sizes})
    tifffile.imwrite(GOLDEN / "imagej.tif", four.transpose(1, 2, 0, 3, 4), imagej=True, resolution=(1 / 2.0, 1 / 3.0),
                     metadata={"axes": "TZCYX", "spacing": 4.0, "unit": "um"})


def planes():
    for kind, suffix, dtype in [("png8", "png", np.uint8), ("png16", "png", np.uint16)]:
        (GOLDEN / kind).mkdir()
        for z in range(SIZE[2]):
            Image.fromarray(voxels(dtype)[:, :, z].T.copy()).save(GOLDEN / kind / f"plane{8 + z}.{suffix}")
    Image.fromarray((voxels(np.uint8)[:, :, 0].T % 2).astype(bool)).save(GOLDEN / "bits.png")
    (GOLDEN / "jpeg").mkdir()
    for z in range(SIZE[2]):
        Image.fromarray(np.full((16, 24), 40 * z, np.uint8)).save(GOLDEN / "jpeg" / f"{z}.jpg", quality=100)


# Of squares of 16 x 16 pixels in rows of three: primaries, and stains.
COLOURS = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [200, 120, 160], [240, 230, 235], [90, 40, 110]], np.uint8)


def interlaced(pixels):
    """A PNG of 8 bits in the seven passes that Pillow does not write."""
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    rows = [b"\0" + row.tobytes() for y, x, dy, dx in passes for row in pixels[y::dy, x::dx]]
    head = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 2, 0, 0, 1)
    data = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"".join(rows))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + data


def colours():
    y, x = np.meshgrid(np.arange(21), np.arange(37), indexing="ij")
    pixels = COLOURS[x // 16 + 3 * (y // 16)]
    (GOLDEN / "colours").mkdir()
    image, folder = Image.fromarray(pixels), GOLDEN / "colours"
    image.save(folder / "subsampled.jpg", quality=100, subsampling="4:2:0")
    image.save(folder / "progressive.jpg", quality=100, subsampling="4:2:2", progressive=True)
    image.save(folder / "rgb.jpg", quality=100, keep_rgb=True)
    image.save(folder / "jpeg.tif", compression="jpeg", quality=100)
    image.convert("YCbCr").save(folder / "ycbcr.tif", compression="jpeg", quality=100)
    image.quantize(6, dither=Image.Dither.NONE).save(folder / "palette.png")
    (folder / "interlaced.png").write_bytes(interlaced(pixels))
    tifffile.imwrite(folder / "tiles.tif", pixels, photometric="rgb", tile=(16, 16), compression="deflate")
    planes = (257 * pixels.astype(np.uint16)).transpose(2, 0, 1)
    tifffile.imwrite(folder / "separate16.tif", planes, photometric="rgb", planarconfig="separate", byteorder=">",
                     tile=(16, 16), compression="deflate")
    stack = np.stack([pixels, pixels])
    tifffile.imwrite(folder / "stack.ome.tif", stack, photometric="rgb", compression="deflate", metadata={"axes": "ZYXS"})
    image.convert("CMYK").save(folder / "cmyk.jpg", quality=100)


def dicom():
    """Signed integers of 12 bits with other bits above, a scale, planes in another order than their names."""
    R = rotation()
    for kind in ["dicom", "dicom-rle", "dicom-implicit"]:
        (GOLDEN / kind).mkdir()
        for z in range(SIZE[2]):
            meta = FileMetaDataset()
            meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.2"
            meta.MediaStorageSOPInstanceUID = f"1.2.3.{z + 1}"
            explicit, implicit = pydicom.uid.ExplicitVRLittleEndian, pydicom.uid.ImplicitVRLittleEndian
            meta.TransferSyntaxUID = implicit if kind == "dicom-implicit" else explicit
            data = FileDataset(None, {}, file_meta=meta, preamble=b"\0" * 128)
            data.SOPClassUID, data.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
            data.SeriesInstanceUID, data.SeriesDescription, data.Modality = "1.2.9", "golden", "CT"
            data.StudyInstanceUID, data.FrameOfReferenceUID = "1.2.8", "1.2.7"
            # A sequence, whose items have elements of the same names.
            item = pydicom.Dataset()
            item.Rows, item.ImagePositionPatient = 99, [9, 9, 9]
            data.ReferencedImageSequence = pydicom.Sequence([item, item])
            data["ReferencedImageSequence"].is_undefined_length = True
            data.Rows, data.Columns, data.SamplesPerPixel = SIZE[1], SIZE[0], 1
            data.BitsAllocated, data.BitsStored, data.HighBit, data.PixelRepresentation = 16, 12, 11, 1
            data.PhotometricInterpretation = "MONOCHROME2"
            data.PixelSpacing = [1.25, 0.75]
            data.ImageOrientationPatient = [f"{v:.10f}" for v in [*R[:, 0], *R[:, 1]]]
            data.ImagePositionPatient = [f"{v:.9f}" for v in np.array([10.0, -20.0, 5.0]) + 2.5 * z * R[:, 2]]
            data.RescaleSlope, data.RescaleIntercept = 2, -1024
            # value = 2 stored - 1024, stored of 12 bits with sign; even values are exact.
            stored = (voxels(np.int32)[:, :, z].T.copy() * 2 - 1000)
            data.PixelData = (stored.astype(np.int16)).tobytes()
            if kind == "dicom-rle":
                data.compress(pydicom.uid.RLELossless)
            data.save_as(GOLDEN / kind / f"{(7 * z) % 4}.dcm", enforce_file_format=True)
    reader = sitk.ImageSeriesReader()
    reader.SetFileNames(reader.GetGDCMSeriesFileNames(str(GOLDEN / "dicom")))
    image = reader.Execute()
    lps = np.eye(4)
    lps[:3, :3] = np.array(image.GetDirection()).reshape(3, 3) * np.array(image.GetSpacing())
    lps[:3, 3] = image.GetOrigin()
    values = sitk.GetArrayFromImage(image).transpose(2, 1, 0)
    expected = 2 * (2 * voxels(np.int32) - 1000) - 1024
    assert (values == expected).all()
    return (LPS @ lps).tolist()


shutil.rmtree(GOLDEN, ignore_errors=True)
GOLDEN.mkdir(parents=True)
affines = {"mgz": mgz(), "dicom": dicom()}
tiff()
planes()
colours()
(GOLDEN / "affine.json").write_text(json.dumps(affines, indent=1) + "\n")
