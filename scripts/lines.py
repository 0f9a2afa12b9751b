"""Lines of Rust by crate at a commit: code, documentation comments and tests, without blanks and comments.

    python scripts/lines.py HEAD

Tests are files of a folder `tests` or of that name, and what follows the first `mod tests {` of another file; benches and
examples are counted apart. Python 3.9 or later alone.
"""
import collections
import re
import subprocess
import sys

KINDS = ["code", "docs", "tests"]


def git(*words):
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout


def place(path):
    """What the file is counted with."""
    parts = path.split("/")
    if parts[0] == "crates":
        return "benches and examples" if parts[2] in ("benches", "examples") else parts[1]
    return {"src": "ffdp", "tests": "ffdp"}.get(parts[0], "benches and examples")


def count(path, text):
    """Lines of each kind."""
    found, is_test = collections.Counter(), bool(re.search(r"(^|/)tests(/|\.rs$)", path))
    for line in map(str.strip, text.splitlines()):
        is_test |= line == "mod tests {"
        if line.startswith(("///", "//!")):
            found["docs"] += not is_test
        elif line and not line.startswith("//"):
            found["tests" if is_test else "code"] += 1
    return found


def main(commit="HEAD"):
    crates = collections.defaultdict(collections.Counter)
    for path in git("ls-tree", "-r", "--name-only", commit).splitlines():
        if path.endswith(".rs") and not path.startswith(("vendor/", "fuzz/")):
            crates[place(path)] += count(path, git("show", f"{commit}:{path}"))
    print(f"{'':24}" + "".join(f"{kind:>9}" for kind in KINDS))
    total = sum(crates.values(), collections.Counter())
    for name, found in [*sorted(crates.items()), ("all", total)]:
        print(f"{name:24}" + "".join(f"{found[kind]:>9}" for kind in KINDS))


if __name__ == "__main__":
    main(*sys.argv[1:])
