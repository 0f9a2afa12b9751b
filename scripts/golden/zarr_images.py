"""OME-Zarr as zarr-python and ome-zarr-py write and read it.

    python3 -m venv v && v/bin/pip install zarr==3.1.3 ome-zarr==0.12.2
    v/bin/python scripts/golden/zarr_images.py make                      # writes tests/golden/ome-zarr/*
    v/bin/python scripts/golden/zarr_images.py check target/release/ffdp # lets both read what ffdp writes

`make` writes small images whose voxel (z, y, x) has the value 100 z + 10 y + x, which
`crates/ffdp-image/src/io/images/zarr/tests/of_others.rs` reads: every compressor in Zarr 2 and Zarr 3, shards, orders, types.
`check` converts one of them by ffdp to an OME-Zarr and compares every level that zarr-python sees, then lets
ome-zarr-py's reader open it.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import zarr
from numcodecs import Blosc, GZip, Zlib, Zstd
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec

GOLDEN = Path(__file__).parents[2] / "tests" / "golden" / "ome-zarr"
SHAPE, CHUNK = (9, 10, 11), (4, 5, 6)
# Blocks of Blosc are split only where they are long enough: one array has a long chunk.
LONG = (16, 32, 32)


def values(shape, dtype):
    z, y, x = np.indices(shape)
    return (100 * z + 10 * y + x).astype(dtype)


def metadata(path):
    axes = [{"name": name, "type": "space", "unit": "micrometer"} for name in "zyx"]
    transformations = [
        {"type": "scale", "scale": [4.0, 3.0, 2.0]},
        {"type": "translation", "translation": [40.0, 30.0, 20.0]},
    ]
    return {"axes": axes, "datasets": [{"path": path, "coordinateTransformations": transformations}]}


def two(name, dtype, shape=SHAPE, chunk=CHUNK, **settings):
    group = zarr.open_group(GOLDEN / name, mode="w", zarr_format=2)
    array = group.create_array("0", shape=shape, chunks=chunk, dtype=dtype, fill_value=0, **settings)
    array[:] = values(shape, dtype)
    group.attrs["multiscales"] = [{"version": "0.4", **metadata("0")}]


def three(name, dtype, shape=SHAPE, chunk=CHUNK, **settings):
    group = zarr.open_group(GOLDEN / name, mode="w", zarr_format=3)
    array = group.create_array("0", shape=shape, chunks=chunk, dtype=dtype, fill_value=0, **settings)
    array[:] = values(shape, dtype)
    group.attrs["ome"] = {"version": "0.5", "multiscales": [metadata("0")]}


def make():
    shutil.rmtree(GOLDEN, ignore_errors=True)
    for cname in ("blosclz", "lz4", "lz4hc", "zlib", "zstd"):
        for shuffle in (Blosc.NOSHUFFLE, Blosc.SHUFFLE, Blosc.BITSHUFFLE):
            blosc = Blosc(cname=cname, clevel=5, shuffle=shuffle)
            two(f"2-{cname}-{shuffle}.zarr", "<u2", LONG, LONG, compressors=blosc)
    two("2-gzip.zarr", ">i2", compressors=GZip())
    two("2-zlib-fortran.zarr", "<f4", compressors=Zlib(), order="F")
    two("2-zstd.zarr", "|u1", compressors=Zstd())
    two("2-plain.zarr", "<f8", compressors=None)
    three("3-gzip.zarr", "uint16", compressors=GzipCodec())
    three("3-zstd.zarr", "int32", compressors=ZstdCodec(checksum=True))
    three("3-shards.zarr", "float32", shards=(8, 10, 12), compressors=[ZstdCodec(), Crc32cCodec()])
    three("3-blosc.zarr", "float64", compressors=BloscCodec(cname="zstd", typesize=8, shuffle="shuffle"))
    three(
        "3-transposed.zarr", "int16", filters=TransposeCodec(order=(2, 0, 1)),
        serializer=BytesCodec(endian="big"), compressors=None,
    )
    files = [file for file in GOLDEN.rglob("*") if file.is_file()]
    print(f"{len(files)} files, {sum(file.stat().st_size for file in files)} bytes")


def check(binary):
    from ome_zarr.io import parse_url
    from ome_zarr.reader import Reader

    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "source.zarr", Path(folder) / "made.zarr"
        shape = (70, 130, 140)
        group = zarr.open_group(source, mode="w", zarr_format=3)
        array = group.create_array("0", shape=shape, chunks=(16, 64, 64), dtype="uint16", shards=(32, 128, 128))
        array[:] = values(shape, "uint16")
        group.attrs["ome"] = {"version": "0.5", "multiscales": [metadata("0")]}
        subprocess.run([binary, "convert", source, made], check=True)
        ours = zarr.open_group(made, mode="r")
        datasets = ours.attrs["ome"]["multiscales"][0]["datasets"]
        expected = values(shape, "float64")
        for dataset in datasets:
            level = ours[dataset["path"]][:]
            assert level.shape == expected.shape, (level.shape, expected.shape)
            difference = np.abs(level - expected).max()
            # Every level is rounded to integers once more.
            assert difference <= 1.0, difference
            print(dataset["path"], level.shape, "largest difference", difference)
            grown = np.pad(expected, [(0, n % 2) for n in expected.shape], mode="edge")
            d, h, w = (n // 2 for n in grown.shape)
            expected = grown.reshape(d, 2, h, 2, w, 2).mean(axis=(1, 3, 5))
        scale, translation = (t[t["type"]] for t in datasets[0]["coordinateTransformations"])
        assert np.allclose(scale, [0.004, 0.003, 0.002]), scale
        assert np.allclose(translation, [0.04, 0.03, 0.02]), translation
        nodes = list(Reader(parse_url(made))())
        assert len(nodes) == 1 and len(nodes[0].data) == len(datasets), nodes
        assert np.array_equal(np.asarray(nodes[0].data[0]), values(shape, "uint16"))
        print("ome-zarr-py reads", nodes[0].metadata["axes"])


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["make"]:
            make()
        case ["check", binary]:
            check(binary)
        case _:
            sys.exit(__doc__)
