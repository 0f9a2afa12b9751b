r"""Real brains, each registered to the next and back, from scratch: our methods, one row each.

The images are those of the MICCAI 2012 multi-atlas challenge (138 structures drawn by hand), as NNNN_t1.nii.gz and
NNNN_seg.nii.gz in one folder. A row that stands in the output (its name, device and number of pairs) is not run again,
so that a run that was cut off goes on with the same command. Python 3.11 or later alone, Linux.

    scripts/peers/brains.py --data FOLDER --set test --ffdp target/release/ffdp --device cuda -o test.json

On a GPU, the rows that the table of 2026-11-27 lacks or has with an older default; on 16 cores, three pairs of each row:

    scripts/peers/brains.py --data FOLDER --set test --ffdp target/release/ffdp --device cuda -o test.json \
        --most-seconds 400 --rows multimodal hard discrete "gnk, MSE" "gnk, LNCC"
    scripts/peers/brains.py --data FOLDER --set test --ffdp target/release/ffdp --device cpu --pairs 3 -o cpu.json \
        --most-seconds 400 --rows default quality svf syn "ffd, NMI" "ffd, LNCC, 3 mm" multimodal hard fast discrete affine
    scripts/peers/brains.py --data FOLDER --set test --ffdp target/release/ffdp --device cpu --pairs 3 -o cpu.json \
        --most-seconds 400 --rows "gnk, MSE" "gnk, LNCC"

Both write the rows of the table again from all that was run, and keep what the table has besides:

    scripts/peers/brains.py --table test.json cpu.json -o benchmarks/brains.json
"""
import argparse, json, os, pathlib, statistics, subprocess, tempfile, threading, time

SETS = {
    "train": "1000 1001 1002 1006 1007 1008 1009 1010 1011 1012 1013 1014 1015 1017 1036".split(),
    "test": "1003 1004 1005 1018 1019 1023 1024 1025 1038 1039".split(),
}
# What the table has; the flags of `ffdp register`.
ROWS = {
    "affine": "--transform affine",
    "fast": "--preset fast",
    "default": "",
    "quality": "--preset quality",
    "syn": "--transform syn",
    "svf": "--transform svf",
    "ffd, NMI": "--transform ffd --metric nmi",
    "ffd, LNCC, 3 mm": "--transform ffd --metric lncc --spacing-mm 3",
    "gnk, MSE": "--transform gnk --metric mse --match-histograms",
    "gnk, LNCC": "--transform gnk --metric lncc",
    "multimodal": "--preset multimodal",
    "hard": "--preset hard",
    "discrete": "--transform discrete",
}
# What the table calls a row: its flags, but for these.
METHODS = {"default": "greedy (`ffdp register`)", "quality": "`--preset quality` (svf)"}
# Labels of the cortex in this protocol start here.
CORTEX = 100


def pairs(names, both_ways):
    there = list(zip(names, names[1:] + names[:1]))
    return there + [(b, a) for a, b in there] if both_ways else there


def of_pair(folder):
    m = json.loads((folder / "metrics.json").read_text())
    dice = [(label["id"], label["after"]) for label in m["dice"]["labels"] if label["after"] is not None]
    mean = lambda values: statistics.fmean(values) if values else float("nan")
    return {
        "dice": m["dice"]["mean"]["after"], "before": m["dice"]["mean"]["before"],
        "cortex": mean([d for i, d in dice if i >= CORTEX]), "deep": mean([d for i, d in dice if i < CORTEX]),
        "hd95_mm": m["dice"]["surfaces"]["hd95_mm"]["after"], "folds": m["folds"]["voxels"],
        "folds_percent": m["folds"]["percent"], "sd_log_jacobian": m["folds"]["sd_log_jacobian"],
        "inverse_p95_voxels": (m.get("inverse") or {}).get("p95_voxels"),
        "register_s": m["seconds"]["register"], "total_s": m["seconds"]["total"], "verdict": m["verdict"],
    }


class Memory(threading.Thread):
    """The most memory of a GPU in use, in MiB, above that at the start; nothing without `nvidia-smi`."""

    def __init__(self, device):
        super().__init__(daemon=True)
        self.first, self.most, self.smi = None, None, None
        kind, _, index = device.partition(":")
        query = ["nvidia-smi", "-i", index or "0", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-lms", "200"]
        try:
            self.smi = subprocess.Popen(query, stdout=subprocess.PIPE, text=True) if kind == "cuda" else None
        except OSError:
            return
        if self.smi and (line := self.smi.stdout.readline()).strip().isdigit():
            self.first = self.most = int(line)
            self.start()

    def run(self):
        for line in self.smi.stdout:
            self.most = max(self.most, int(line))

    def end(self):
        if self.smi:
            self.smi.kill()
            self.smi.wait()
        return None if self.first is None else self.most - self.first


def cost_of(command, device):
    """Runs it: what it wrote to stderr, and the seconds, processor seconds and memory of all of it."""
    memory, start = Memory(device), time.time()
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        _, _, usage = os.wait4(child.pid, 0)
        seconds = time.time() - start
        errors.seek(0)
        said = errors.read()
    gpu = memory.end()
    return said, seconds, {
        "processor_s": usage.ru_utime + usage.ru_stime,
        "memory_gb": round(usage.ru_maxrss * 1024 / 1e9, 3),
        "gpu_memory_gb": None if gpu is None else round(gpu * 2**20 / 1e9, 3),
    }


# Means of these, with their standard deviation and the worst.
SPREAD = [("hd95_mm", 3), ("folds", 1), ("sd_log_jacobian", 4), ("register_s", 3), ("total_s", 3)]
MEANS = [("before", 4), ("cortex", 4), ("deep", 4), ("folds_percent", 5), ("inverse_p95_voxels", 3)]


def row_of(found, seconds, cost):
    """A row of all pairs."""
    column = lambda key: [pair[key] for pair in found if pair[key] is not None]
    mean = lambda key, digits: round(statistics.fmean(column(key)), digits) if column(key) else None
    dice = column("dice")
    row = {"seconds_a_pair": round(seconds / len(found), 2), "dice": mean("dice", 4),
           "dice_sd": round(statistics.pstdev(dice), 4), "dice_worst": round(min(dice), 4)}
    for key, digits in SPREAD:
        row |= {key: mean(key, digits), key + "_sd": round(statistics.pstdev(column(key)), digits),
                key + "_worst": round(max(column(key)), digits)}
    row |= {key: mean(key, digits) for key, digits in MEANS}
    row |= cost | {"processor_s": round(cost["processor_s"] / len(found), 2)}
    return row | {"not_aligned": sum(verdict != "aligned" for verdict in column("verdict"))}


def run_row(args, flags):
    """All pairs by one command; nothing if none came through."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        lines = ["fixed,moving,name,fixed_labels,moving_labels"]
        asked = pairs(SETS[args.set], not args.one_way)[: args.pairs]
        for a, b in asked:
            files = [args.data.resolve() / f"{x}_{kind}.nii.gz" for kind in ("t1", "seg") for x in (a, b)]
            lines.append(f"{files[0]},{files[1]},{b}_to_{a},{files[2]},{files[3]}")
        (folder / "pairs.csv").write_text("\n".join(lines) + "\n")
        command = [args.ffdp, "register", "--pairs", folder / "pairs.csv", "-o", folder / "out", "--device", args.device,
                   "-q", *flags.split()]
        said, seconds, cost = cost_of(command, args.device)
        found = [of_pair(f.parent) for f in sorted((folder / "out").glob("*/metrics.json"))]
    if len(found) < len(asked):
        print(f"{len(asked) - len(found)} of {len(asked)} pairs failed:", said.strip()[-300:])
    return found and {"pairs": len(found), "failed": len(asked) - len(found), **row_of(found, seconds, cost)}


# The table.

COLUMNS = [
    "method", "device", "pairs", "Dice", "SD", "worst", "cortex", "deep", "HD95 (mm)", "HD95 SD", "HD95 worst", "folds",
    "folds SD", "folds worst", "folds (%)", "sd ln J", "sd ln J SD", "sd ln J worst", "inverse p95 (voxels)",
    "register (s)", "register SD (s)", "register worst (s)", "a pair (s)", "processor (s)", "memory (GB)",
    "GPU memory (GB)",
]


def cells(row):
    method = METHODS.get(row["method"], f"`{row['flags']}`") + (", CPU" if row["device"] == "cpu" else "")
    said = lambda key, digits: "" if row[key] is None else f"{row[key]:.{digits}f}"
    spread = lambda key, digits: [said(key + end, digits) for end in ("", "_sd", "_worst")]
    return [
        method, f"{row['cores']} cores" if row["device"] == "cpu" else "GPU", str(row["pairs"]), said("dice", 4),
        said("dice_sd", 4), said("dice_worst", 3), said("cortex", 3), said("deep", 3), *spread("hd95_mm", 2),
        *spread("folds", 0), said("folds_percent", 4), *spread("sd_log_jacobian", 3), said("inverse_p95_voxels", 2),
        *spread("register_s", 2), said("seconds_a_pair", 2), said("processor_s", 0), said("memory_gb", 2),
        said("gpu_memory_gb", 2),
    ]


def write_table(files, output):
    """Rows of the output that were run anew are replaced; others keep their cells, the new columns empty."""
    measurement = json.loads(output.read_text())
    rows = {}
    for values in measurement["rows"]:
        row = dict(zip(measurement["columns"], values))
        rows[row["method"]] = [row.get(column, "GPU" if column == "device" else "") for column in COLUMNS]
    for file in files:
        for row in json.loads(file.read_text())["rows"]:
            found = cells(row)
            rows[found[0]] = found
    measurement |= {"columns": COLUMNS, "rows": list(rows.values())}
    head = json.dumps(measurement | {"rows": []}, indent=1).removesuffix("[]\n}")
    lines = ",\n".join("  " + json.dumps(row) for row in measurement["rows"])
    output.write_text(f"{head}[\n{lines}\n ]\n}}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--set", choices=SETS, default="test")
    parser.add_argument("--ffdp")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", nargs="*", help="names of the table, or NAME=FLAGS")
    parser.add_argument("--one-way", action="store_true")
    parser.add_argument("--pairs", type=int, help="so many of the pairs, the first ones")
    parser.add_argument("--most-seconds", type=float, default=1e9, help="begin no row after so many")
    parser.add_argument("--table", nargs="+", type=pathlib.Path, help="run nothing: outputs, into the table of -o")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    args = parser.parse_args()
    if args.table:
        return write_table(args.table, args.output)
    if not (args.data and args.ffdp):
        parser.error("--data and --ffdp are needed to run rows")
    done = json.loads(args.output.read_text()) if args.output.exists() else {"set": args.set, "rows": []}
    wanted = {}
    for row in args.rows or ROWS:
        name, given, flags = row.partition("=")
        wanted[name] = flags if given else ROWS[name]
    asked, begun = len(pairs(SETS[args.set], not args.one_way)[: args.pairs]), time.time()
    for method, flags in wanted.items():
        name = method + (", CPU" if args.device == "cpu" else "")
        same = lambda row: (row["name"], row["device"], row["pairs"] + row.get("failed", 0)) == (name, args.device, asked)
        if any(map(same, done["rows"])):
            continue
        if time.time() - begun > args.most_seconds:
            print("no time for", name)
            continue
        row = run_row(args, flags)
        if not row:
            continue
        row = {"name": name, "method": method, "flags": flags, "device": args.device, "cores": len(os.sched_getaffinity(0)), **row}
        done["rows"].append(row)
        args.output.write_text(json.dumps(done, indent=1) + "\n")
        print(f"{name:28} {row['pairs']} pairs  dice {row['dice']:.4f} (sd {row['dice_sd']:.3f}, worst {row['dice_worst']:.3f}; "
              f"cortex {row['cortex']:.3f}, deep {row['deep']:.3f})  hd95 {row['hd95_mm']:.2f}  folds {row['folds']:.0f} "
              f"({row['folds_worst']:.0f} worst, {row['folds_percent']:.4f} %)  sd lnJ {row['sd_log_jacobian']:.3f}  "
              f"{row['seconds_a_pair']:.2f} s, processor {row['processor_s']:.1f} s, {row['memory_gb']:.2f} GB, "
              f"GPU {row['gpu_memory_gb']} GB  doubtful {row['not_aligned']}", flush=True)


if __name__ == "__main__":
    main()
