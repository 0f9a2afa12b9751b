"""Rows of other programs for the table of `ffdp bench registration`.

    python -m venv venv && venv/bin/pip install -r requirements.txt
    venv/bin/python register.py data/1mm/pairs.csv -o results --ffdp path/to/ffdp

Reads the list of pairs that `ffdp bench registration` reads, registers each pair with each method in
a process of its own (its peak memory and processor time are the row's), has the result measured by
`ffdp measure`, and appends the row to results/results.json. Rows that are there are skipped.
`ffdp bench registration` with the same output folder makes the tables and plots of all rows.
"""

import argparse
import csv
import json
import multiprocessing
import os
import resource
import subprocess
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import nibabel

from methods import METHODS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", type=Path, nargs="+", help="lists of pairs (pairs.csv)")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of results.json")
    parser.add_argument("--ffdp", type=program, required=True, help="the ffdp that measures")
    parser.add_argument("--labels", help="labels that count, comma-separated [all]")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    request = parser.parse_args()
    request.output.mkdir(parents=True, exist_ok=True)
    for pairs in request.pairs:
        with open(pairs, newline="") as lines:
            for pair in csv.DictReader(lines):
                for method in request.methods:
                    compare(request, pairs.parent, pair, method)


def program(name: str) -> Path:
    """A Path drops the `./` with which a program next to the script would be found."""
    return Path(name).resolve(strict=True)


def compare(request: argparse.Namespace, folder: Path, pair: dict, method: str) -> None:
    """One row, unless it is there."""
    columns = ("fixed", "moving", "fixed_labels", "moving_labels")
    files = {name: folder / pair[name].strip() for name in columns}
    spacing = nibabel.load(files["fixed"]).header.get_zooms()[:3]
    key = {
        "pair": f"{stem(files['moving'])} to {stem(files['fixed'])}",
        "spacing_mm": round(float(min(spacing)), 6),
        "method": method,
        "device": "cpu",
    }
    if any(all(row[name] == key[name] for name in key) for row in rows(request.output)):
        print(f"{key}: is there", flush=True)
        return
    with tempfile.TemporaryDirectory(dir=request.output) as scratch:
        warp = Path(scratch) / "warp.nii.gz"
        cost = in_own_process(request.threads, method, files["fixed"], files["moving"], warp)
        measures = measured(request, files, warp)
    labels, jacobian = measures["labels"], measures["jacobian"]
    peak_gb, hours = cost["peak_memory_bytes"] / 1e9, cost["seconds"] / 3600
    row = key | {
        "program": version_of(METHODS[method][1]),
        "labels": len(labels["labels"]) - len(labels["absent"]),
        "dice": labels["mean"]["dice"],
        "inverse_volume_dice": labels["inverse_volume_dice"],
        "hd90_cumulative_mm": labels["mean"]["hd90_cumulative"],
        "folds": jacobian["true_folds"],
        "fold_fraction": jacobian["true_fold_fraction"],
        "sd_log_jacobian": jacobian["sd_log"],
        **cost,
        "gb_hours": peak_gb * hours,
    }
    append(request.output, row)
    print(json.dumps(row), flush=True)


def version_of(name: str) -> str:
    """A Python package with its version, or what a program says of itself."""
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        said = subprocess.run([name, "--version"], check=True, capture_output=True, text=True)
        return said.stdout.strip()


def stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".nii")


def in_own_process(threads: int, *arguments) -> dict:
    """Time and memory of a registration that has a process to itself."""
    os.environ["ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS"] = str(threads)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=register, args=(sender, *arguments))
    child.start()
    sender.close()
    try:
        cost = receiver.recv()
    except EOFError:
        child.join()
        raise SystemExit(f"{arguments[0]} failed with exit code {child.exitcode}") from None
    child.join()
    return cost


def register(sender, method: str, fixed: Path, moving: Path, warp: Path) -> None:
    seconds = METHODS[method][0](fixed, moving, warp)
    # Processor time and memory are those of the whole process: imports, reading and writing included. A program that
    # it calls counts as well.
    here, called = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    sender.send(
        {
            "seconds": seconds,
            "cpu_seconds": sum(u.ru_utime + u.ru_stime for u in (here, called)),
            "peak_memory_bytes": max(here.ru_maxrss, called.ru_maxrss) * 1024,
        }
    )


def measured(request: argparse.Namespace, files: dict, warp: Path) -> dict:
    command = [request.ffdp, "measure", "--json", "--warp", warp]
    command += ["--fixed-labels", files["fixed_labels"], "--moving-labels", files["moving_labels"]]
    if request.labels:
        command += ["--labels", request.labels]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def rows(output: Path) -> list:
    path = output / "results.json"
    return json.loads(path.read_text()) if path.exists() else []


def append(output: Path, row: dict) -> None:
    """The file is whole or as it was."""
    path = output / "results.json"
    half = path.with_suffix(f".{time.time_ns()}")
    half.write_text(json.dumps([*rows(output), row], indent=2) + "\n")
    half.replace(path)


if __name__ == "__main__":
    main()
