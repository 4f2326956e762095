#!/usr/bin/env python3
"""A network (docs/tuning.md) of what an application left in KILN_CAPTURE's folder.

    KILN_CAPTURE=capture python3 train.py        one step, from an empty folder
    tools/gen_network.py capture > share/kiln/records/NAME.kiln

Graphs come in the order in which the application first made plans of them, without the names and numbers that it
gave to tensors.
"""
import argparse
import pathlib
import re


def plain(text):
    """The graph with tensors %0, %1 … renamed in the order in which they stand, without uids."""
    names = {}
    for name in re.findall(r"^  tensor %(\w+) ", text, re.MULTILINE):
        names[name] = f"t{len(names)}"
    text = re.sub(r"%(\w+)", lambda m: "%" + names.get(m.group(1), m.group(1)), text)
    return re.sub(r"^graph \w+ \{", "graph network {", text, flags=re.MULTILINE)


def network(folder):
    files = sorted(folder.glob("*.kiln"), key=lambda f: (f.stat().st_mtime_ns, f.name))
    return "".join(plain(f.read_text()) for f in files)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    print(network(parser.parse_args().folder), end="")
