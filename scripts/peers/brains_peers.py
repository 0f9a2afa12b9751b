"""Real brains, each registered to the next and back, from scratch: other programs, for the table of `brains.py`.

`run` registers pairs and appends a line of JSON for each row and pair; what stands there is not run again. Every result
is one displacement file that `ffdp measure` measures, so that all rows are measured by one program. `table` makes a
measurement of the lines, and keeps the other rows of one that is there; `plot` makes the plots of its rows and ours. Packages: requirements.txt, and for FireANTs and
ConvexAdam pytorch.txt.

    scripts/peers/brains_peers.py run --data FOLDER --ffdp target/release/ffdp -o peers.jsonl --rows "PICSL greedy"
    scripts/peers/brains_peers.py table peers.jsonl -o benchmarks/brains-peers.json --device "one NVIDIA H100, 16 cores"
    scripts/peers/brains_peers.py run --data FOLDER --ffdp target/release/ffdp -o more.jsonl --pairs 2 --rows elastix demons
    scripts/peers/brains_peers.py table more.jsonl -o benchmarks/brains-peers.json --device "the same, and two cores" --shared
    scripts/peers/brains_peers.py plot benchmarks/brains.json benchmarks/brains-peers.json -o docs/images
"""

import argparse
import datetime
import json
import multiprocessing
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from brains import CORTEX, SETS, pairs
from from_scratch import METHODS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="register pairs")
    run.set_defaults(command=run_rows)
    run.add_argument("--data", type=Path, required=True)
    run.add_argument("--set", choices=SETS, default="test")
    run.add_argument("--ffdp", type=program, required=True, help="the ffdp that measures")
    run.add_argument("--ffdp-device", default="cpu", help="where ffdp aligns the pairs of ConvexAdam")
    run.add_argument("--rows", nargs="+", choices=METHODS, default=list(METHODS), metavar="ROW")
    run.add_argument("--pairs", type=int, help="so many of the pairs, the first ones")
    run.add_argument("--most-seconds", type=float, default=1e9, help="begin no pair after so many")
    run.add_argument("--jobs", type=int, default=1, help="pairs at a time, for rows of the CPU")
    run.add_argument("--threads", type=int, help="for each of them [default: the cores over --jobs]")
    run.add_argument("-o", "--output", type=Path, required=True, help="lines of JSON")
    table = commands.add_parser("table", help="rows of a measurement")
    table.set_defaults(command=write_table)
    table.add_argument("lines", type=Path, nargs="+")
    table.add_argument("--device", required=True, help="the machine, in words")
    table.add_argument("--shared", action="store_true", help="with other work: seconds of the processor alone")
    table.add_argument("--note", action="append", default=[])
    table.add_argument("--recorded-in")
    table.add_argument("-o", "--output", type=Path, required=True)
    plot = commands.add_parser("plot", help="Dice over seconds, and over folds")
    plot.set_defaults(command=write_plots)
    plot.add_argument("measurements", type=Path, nargs="+")
    plot.add_argument("-o", "--output", type=Path, required=True, help="folder")
    request = parser.parse_args()
    request.command(request)


def program(name: str) -> Path:
    return Path(name).resolve(strict=True)


def read_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


# Running.


def run_rows(request: argparse.Namespace) -> None:
    begun = time.monotonic()
    request.output.parent.mkdir(parents=True, exist_ok=True)
    done = {(line["row"], line["fixed"], line["moving"]) for line in read_lines(request.output)}
    todo = pairs(SETS[request.set], both_ways=True)[: request.pairs]
    for row in request.rows:
        jobs = request.jobs if METHODS[row].device == "cpu" else 1
        threads = request.threads or max(1, os.cpu_count() // jobs)
        waiting = queue.SimpleQueue()
        for fixed, moving in todo:
            if (row, fixed, moving) not in done:
                waiting.put((fixed, moving))
        job = Job(request, row, jobs, threads, waiting, begun + request.most_seconds)
        workers = [threading.Thread(target=job.work) for _ in range(min(jobs, waiting.qsize()))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


class Job:
    """Pairs of a row, taken from a queue by workers that have a process each."""

    lock = threading.Lock()

    def __init__(self, request, row: str, jobs: int, threads: int, waiting, until: float):
        self.request, self.row, self.waiting, self.until = request, row, waiting, until
        self.jobs, self.threads = jobs, threads

    def work(self) -> None:
        os.environ["ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS"] = str(self.threads)
        os.environ["OMP_NUM_THREADS"] = os.environ["RAYON_NUM_THREADS"] = str(self.threads)
        os.environ["PEERS_FFDP"] = str(self.request.ffdp)
        os.environ["PEERS_FFDP_DEVICE"] = self.request.ffdp_device
        # A new interpreter: its threads and memory are those of the program alone.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, self.row, self.threads), daemon=True)
        process.start()
        theirs.close()
        while (pair := self.next()) and self.one(ours, *pair):
            pass
        ours.close()
        process.join()

    def next(self) -> tuple[str, str] | None:
        if time.monotonic() > self.until:
            return None
        try:
            return self.waiting.get_nowait()
        except queue.Empty:
            return None

    def one(self, connection, fixed: str, moving: str) -> bool:
        """Registers a pair and writes its line; whether the process still answers."""
        data = self.request.data.resolve()
        with tempfile.TemporaryDirectory() as folder:
            # Not compressed: that takes longer than some registrations.
            warp = Path(folder) / "warp.nii"
            connection.send((data / f"{fixed}_t1.nii.gz", data / f"{moving}_t1.nii.gz", warp))
            try:
                cost = connection.recv()
            except EOFError:
                print(f"{self.row}, {moving} to {fixed}: the process ended", file=sys.stderr, flush=True)
                return False
            if "error" in cost:
                print(f"{self.row}, {moving} to {fixed}: {cost['error']}", file=sys.stderr, flush=True)
                return True
            labels = [data / f"{name}_seg.nii.gz" for name in (fixed, moving)]
            (written,) = Path(folder).glob("warp.nii*")
            found = measured(self.request.ffdp, written, *labels)
        line = {
            "row": self.row, "fixed": fixed, "moving": moving, "program": programs(self.row),
            "device": cost.pop("device"), "jobs": self.jobs, "threads": self.threads, **found, **cost,
        }  # fmt: skip
        with Job.lock, self.request.output.open("a") as lines:
            lines.write(json.dumps(line) + "\n")
        print(f"{self.row}, {moving} to {fixed}: dice {line['dice']:.4f} folds {line['folds']} "
              f"register {line['register_s']:.1f} s, pair {line['pair_s']:.1f} s, cpu {line['cpu_s']:.0f} s, "
              f"memory {line['memory_gb']:.2f} GB", flush=True)  # fmt: skip
        return True


def serve(connection, row: str, threads: int) -> None:
    """Registers the pairs that come, in a process of its own."""
    first = True
    while True:
        try:
            fixed, moving, warp = connection.recv()
        except EOFError:
            return
        try:
            connection.send(register(row, fixed, moving, warp, threads) | {"first": first})
        except Exception as error:  # noqa: BLE001: a pair that fails must not end the others
            connection.send({"error": f"{type(error).__name__}: {error}"[:400]})
        first = False


def register(row: str, fixed: Path, moving: Path, warp: Path, threads: int) -> dict:
    """A pair and what it costs: from the files to the file of the displacement, imports on the first pair."""
    forget_peak()
    start, processor = time.perf_counter(), os.times()
    seconds = METHODS[row].run(fixed, moving, warp, threads)
    whole, now = time.perf_counter() - start, os.times()
    cost = {
        "device": "cpu", "register_s": round(seconds, 3), "pair_s": round(whole, 3),
        "cpu_s": round(sum(now[:4]) - sum(processor[:4]), 2), "memory_gb": round(peak_gb(), 3), "gpu_memory_gb": None,
    }  # fmt: skip
    if METHODS[row].device == "cuda":
        import torch

        if torch.cuda.is_available():
            cost["device"] = torch.cuda.get_device_name()
            cost["gpu_memory_gb"] = round(torch.cuda.max_memory_reserved() / 1e9, 3)
            torch.cuda.reset_peak_memory_stats()
    return cost


def forget_peak() -> None:
    """Lets Linux count the peak of the memory anew."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass


def peak_gb() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e9


def programs(row: str) -> str:
    """The packages of a row with their versions."""
    found = []
    for name in METHODS[row].packages:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            there = find_spec(name.replace("-", "_")) is not None
            found.append(name if there else f"without {name}")
    return ", ".join(found)


def measured(ffdp: Path, warp: Path, fixed_labels: Path, moving_labels: Path) -> dict:
    """What `ffdp` says of a displacement, with the names of `brains.py`."""
    files = ["--warp", warp, "--fixed-labels", fixed_labels, "--moving-labels", moving_labels]
    ran = subprocess.run([ffdp, "measure", *files, "--json"], capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(ran.stderr)
    report = json.loads(ran.stdout)
    labels, jacobian = report["labels"], report["jacobian"]
    dice = [(label["id"], label["dice"]) for label in labels["labels"] if label["dice"] is not None]
    return {
        "dice": labels["mean"]["dice"], "labels": len(dice), "hd95_mm": labels["mean"]["hd95"],
        "cortex": statistics.fmean(d for i, d in dice if i >= CORTEX),
        "deep": statistics.fmean(d for i, d in dice if i < CORTEX),
        "folds": jacobian["true_folds"], "folds_percent": 100 * jacobian["true_fold_fraction"],
        "folds_central": jacobian["central"]["folds"],
        "folds_central_percent": 100 * jacobian["central"]["fold_fraction"],
        "sd_log_jacobian": jacobian["sd_log"],
    }  # fmt: skip


# The table.

COLUMNS = [
    "method", "program", "device", "pairs", "Dice", "SD", "worst", "cortex", "deep", "HD95 (mm)", "folds", "folds (%)",
    "sd ln J", "register (s)", "a pair (s)", "processor (s)", "memory (GB)",
]  # fmt: skip


def write_table(request: argparse.Namespace) -> None:
    lines = [line for path in request.lines for line in read_lines(path)]
    # A pair that was run twice counts once.
    lines = {(line["row"], line["fixed"], line["moving"]): line for line in lines}.values()
    before = json.loads(request.output.read_text()) if request.output.exists() else {"rows": [], "notes": []}
    rows = {row[0]: row for row in before["rows"]}
    for name in METHODS:
        if row := table_row(name, [line for line in lines if line["row"] == name], request.shared):
            rows[name] = row
    missing = [name for name in METHODS if name not in rows]
    notes = NOTES + ([NOT_RUN + ", ".join(missing) + "."] if missing else [])
    notes += [note for note in before["notes"] if note not in NOTES and not note.startswith(NOT_RUN)]
    measurement = {
        "what": "Other programs on the pairs of brains.json, from scratch, measured by `ffdp measure`",
        "date": datetime.date.today().isoformat(),
        "recorded_in": before.get("recorded_in", "") if request.recorded_in is None else request.recorded_in,
        "device": request.device,
        "command": [
            "python scripts/peers/brains_peers.py run --data FOLDER --set test --ffdp target/release/ffdp -o peers.jsonl",
            "python scripts/peers/brains_peers.py run --data FOLDER --ffdp target/release/ffdp -o more.jsonl --pairs 1 --rows elastix demons \"ANTs SyN (CC)\"",
            "python scripts/peers/brains_peers.py run --data FOLDER --set test --ffdp target/release/ffdp -o fused.jsonl --rows \"FireANTs SyN\" \"FireANTs greedy\"",
            "python scripts/peers/brains_peers.py table peers.jsonl more.jsonl -o benchmarks/brains-peers.json",
        ],
        "notes": notes + request.note,
        "columns": COLUMNS,
        "rows": list(rows.values()),
    }
    request.output.write_text(json.dumps(measurement, indent=1) + "\n")
    print(json.dumps(list(rows.values()), indent=1))


NOTES = [
    "Each program with the settings of its documentation for such images (scripts/peers/from_scratch.py), none tuned on "
    "these brains. The result is one displacement of the whole map, measured by the same program as our rows; labels "
    "warped by greedy itself have the same Dice.",
    "Register: from the images in memory to the transform, for PICSL greedy with reading; a pair: from the files to the "
    "file of the displacement, median of the pairs; processor: seconds of all threads; memory: peak of the process, on "
    "a GPU that of its pool.",
    "Folds: voxels of the whole map that fold in any of nine stencils, as in brains.json.",
    "ConvexAdam is made for aligned pairs: it starts from the affine map of `ffdp`, which counts in the seconds of a pair.",
    "Inverse consistency of these programs was not computed: their inverses were not asked for.",
]
NOT_RUN = "Not run on these brains: "


def table_row(name: str, lines: list[dict], shared: bool) -> list[str] | None:
    if not lines:
        return None
    column = lambda key: [line[key] for line in lines]
    mean = lambda key, digits: f"{statistics.fmean(column(key)):.{digits}f}"
    # The first pair of a process has its imports and compilations.
    typical = lambda key, digits: f"{statistics.median(column(key)):.{digits}f}"
    dice, first = column("dice"), lines[0]
    device = first["device"] if first["device"] != "cpu" else f"{first['threads']} cores"
    memory = "memory_gb" if first["device"] == "cpu" else "gpu_memory_gb"
    seconds = ["", ""] if shared else [typical("register_s", 2), typical("pair_s", 2)]
    return [
        name, first["program"], device, str(len(lines)), mean("dice", 4), f"{statistics.pstdev(dice):.4f}" if len(dice) > 1 else "",
        f"{min(dice):.3f}", mean("cortex", 3), mean("deep", 3), mean("hd95_mm", 2), mean("folds", 0),
        mean("folds_percent", 4), mean("sd_log_jacobian", 3), *seconds, typical("cpu_s", 0), f"{max(column(memory)):.2f}",
    ]  # fmt: skip


# The plots.

# Pixels from the middle of a point to its edge, of a letter of a name, and from line to line.
MARKER, NAME_WIDTH, NAME_HEIGHT = 5, 5.2, 11
# A map without folds has no place on a logarithmic axis: it is drawn here (%).
NO_FOLDS_PERCENT = 3e-5


def write_plots(request: argparse.Namespace) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "brains"
    points = [point for path in request.measurements for point in points_of(path)]
    request.output.mkdir(parents=True, exist_ok=True)
    for key, label in (("seconds", "seconds of a pair"), ("folds", "voxels that fold (%)")):
        plot(points, key, label, request.output / f"brains_{key}.svg")


def points_of(path: Path) -> list[dict]:
    measurement = json.loads(path.read_text())
    rows = [dict(zip(measurement["columns"], row)) for row in measurement["rows"]]
    return [
        {
            "name": row["method"].replace("`", "").replace("ffdp register", "default").replace("--", "").removeprefix("transform "),
            "ours": "program" not in row,
            "gpu": not row.get("device", "").endswith("cores"),
            "dice": float(row["Dice"]),
            # Of a machine that was shared there are none.
            "seconds": float(row["a pair (s)"]) if row["a pair (s)"] else None,
            "folds": max(float(row["folds (%)"]), NO_FOLDS_PERCENT),
        }
        for row in rows
        # Far below all that deform, it would press them together.
        if "affine" not in row["method"]
    ]


def plot(points: list[dict], key: str, label: str, file: Path) -> None:
    from matplotlib import pyplot

    points = [point for point in points if point[key] is not None]
    figure, axes = pyplot.subplots(figsize=(8, 5))
    for ours, colour, owner in ((True, "#1f77b4", "ffdp"), (False, "#d62728", "other programs")):
        for gpu, marker, device in ((True, "o", "GPU"), (False, "s", "CPU")):
            some = [p for p in points if (p["ours"], p["gpu"]) == (ours, gpu)]
            if some:
                places = ([p[key] for p in some], [p["dice"] for p in some])
                axes.scatter(*places, c=colour, marker=marker, s=36, label=f"{owner}, {device}", zorder=3)
    axes.set_xscale("log")
    if key == "folds":
        axes.axvline(0.01, color="grey", linewidth=0.8, linestyle="--")
        ticks = [NO_FOLDS_PERCENT, 1e-4, 1e-3, 1e-2, 1e-1, 1]
        axes.set_xticks(ticks, ["0", *(f"{tick:g}" for tick in ticks[1:])])
    left, right = axes.get_xlim()
    # Names stand right of their points.
    axes.set_xlim(left, right * (right / left) ** 0.25)
    axes.set_xlabel(label)
    axes.set_ylabel("mean Dice of 138 structures")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize=8)
    # Room for the names above the best.
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.2 * (high - low))
    figure.tight_layout()
    apart(axes, [(p[key], p["dice"], p["name"]) for p in points])
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)


def apart(axes, named: list[tuple[float, float, str]]) -> None:
    """Names right or left of their points, each moved up or down until it lies on no other, on no point and on no axis,
    with a line to its point: where it moves least."""
    points = [axes.transData.transform((x, dice)) for x, dice, _ in named]
    placed = [(x - MARKER, x + MARKER, y) for x, y in points]
    box = axes.bbox
    for x, dice, name in sorted(named, key=lambda point: -point[1]):
        at, y = axes.transData.transform((x, dice))
        width = NAME_WIDTH * len(name)
        places = []
        # Of equal moves the first.
        for left in (at + 10, at - 10 - width):
            for step in (1, -1):
                free, right = y, left + width
                while any(abs(free - other) < NAME_HEIGHT and left < end and begin < right for begin, end, other in placed):
                    free += step
                if box.x0 < left and right < box.x1 and box.y0 + NAME_HEIGHT < free < box.y1 - NAME_HEIGHT:
                    places.append((abs(free - y), free, left))
        _, free, left = min(places, key=lambda place: place[0])
        placed.append((left, left + width, free))
        side, end = ("left", left) if left > at else ("right", left + width)
        end = axes.transData.inverted().transform((end, free))
        line = {"arrowstyle": "-", "linewidth": 0.4, "color": "grey"}
        axes.annotate(name, (x, dice), end, fontsize=7, va="center", ha=side, arrowprops=line)


if __name__ == "__main__":
    main()
