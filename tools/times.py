#!/usr/bin/env python3
"""Where a run of Bazel spent its time, as lines to read; tools/test.sh prints them.

    tools/times.py PROFILE        PROFILE is what `bazel --profile=PROFILE` left

Seconds are those of the actions, added: with two cores, twice what a clock shows. Shards of a test are one row.
"""

import collections
import gzip
import json
import sys

SLOWEST = 10


def actions(path):
    """Pairs of an action's description and its seconds."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    for event in json.loads(data)["traceEvents"]:
        if event.get("cat") == "action processing" and "dur" in event:
            yield event["name"], event["dur"] / 1e6


def main(path):
    kinds, tests = collections.Counter(), collections.Counter()
    counts = collections.Counter()
    for name, seconds in actions(path):
        verb, _, rest = name.partition(" ")
        kind = verb if verb in ("Compiling", "Linking", "Testing") else "other"
        kinds[kind] += seconds
        counts[kind] += 1
        if kind == "Testing":
            tests[rest.split(" (")[0]] += seconds
    for kind, seconds in kinds.most_common():
        print(f"   {kind:<10} {seconds:8.1f} s  {counts[kind]:5} actions")
    print("   slowest tests:")
    for name, seconds in tests.most_common(SLOWEST):
        print(f"   {seconds:8.1f} s  {name}")


if __name__ == "__main__":
    main(sys.argv[1])
