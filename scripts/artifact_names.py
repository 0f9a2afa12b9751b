"""Names for executables that Cargo has built, none twice: reads its messages (--message-format=json), prints NAME<tab>EXECUTABLE.

A program, an example and a bench bear their own names; tests begin with "test-". The unit tests of a program bear the name
of its package: a library of another package may have that of the program.
"""

import json
import sys

for line in sys.stdin:
    item = json.loads(line)
    if not item.get("executable"):
        continue
    name, kind = item["target"]["name"], item["target"]["kind"]
    # Cargo builds benches as tests.
    if item["profile"]["test"] and "bench" not in kind:
        package = item["package_id"].split("#")[0].split("/")[-1]
        name = "test-" + (package if "bin" in kind else name)
    print(name, item["executable"], sep="\t")
