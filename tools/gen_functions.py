#!/usr/bin/env python3
"""Writes the table of supported functions, in PhOS's form, and what every parameter is, as JSON.

    tools/gen_functions.py                      rewrites docs/functions.md and api/spec/parameters.json
    tools/gen_functions.py --check              exit status 1 where one is out of date
    tools/gen_functions.py --ran cpu FOLDER     notes which functions succeeded in tests that passed: of the logs
    tools/gen_functions.py --ran h100 FOLDER    (*.log) below FOLDER, made with CUDNN_LOGINFO_DBG=1
    tools/gen_functions.py --ran h200 FOLDER    CUDNN_LOGDEST_DBG=stdout, on the CPU device or on that GPU; tests of
                                                tests/api compute nothing, and count for what has not to

Both follow from api/spec/{functions,legacy,roles}.tsv and bench/results/tested_functions.json, the notes.
"""

import csv
import datetime
import html
import json
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESTED = "bench/results/tested_functions.json"
PAGE = "docs/functions.md"
PARAMETERS = "api/spec/parameters.json"
DEVICES = {"cpu": "the CPU", "h100": "an H100", "h200": "an H200"}

# Libraries of cuDNN 8 as PhOS lists them: title, header, index of the first function, how many it knows. Functions stand
# in the order of their names, whatever their case. Of recurrent networks and attention PhOS's lists name some twice:
# ours have no further indices.
LIBRARIES = [
    ("Operations Inference", "cudnn_ops_infer.h", 1800, 103),
    ("Operations Training", "cudnn_ops_train.h", 2000, 21),
    ("CNN Inference", "cudnn_cnn_infer.h", 2100, 31),
    ("CNN Training", "cudnn_cnn_train.h", 2200, 20),
    ("Advanced Inference", "cudnn_adv_infer.h", 2300, 1),
    ("Advanced Training", "cudnn_adv_train.h", 2400, 1),
    ("Backend API", "cudnn_backend.h", 2500, 7),
]
NOT_IN_PHOS = {"cudnnGetMaxDeviceVersion"}  # 8.9's
# Functions that do not log their calls, for which a test that passed stands.
UNLOGGED = {"cudnnGetVersion", "cudnnGetMaxDeviceVersion", "cudnnGetErrorString", "cudnnGetLastErrorString"}
UNLOGGED_TEST = "[       OK ] Library."
# Functions that leave, or make on their way, more on the device than launches on the caller's stream.
NOT_CHECKPOINT_SAFE = {
    r"cudnnFind\w+": "times candidates with events, and waits for the device",
    r"cudnnCreate": "opens the device's context",
    r"cudnnBackendFinalize": "of a plan: compiles kernels and loads modules",
    r"cudnnMakeFusedOpsPlan": "compiles kernels and loads modules",
    r"cudnnBackend(Populate|Update)CudaGraph": "the client's graph has the launches",
}
NOTES = {
    r"cudnnFindRNN\w+": "measures once, since every algorithm that the network takes runs the same plan",
    r"cudnnGetFoldedConvBackwardDataDescriptors": "groups, dilation and CUDNN_CONVOLUTION are refused, which folding "
                                                  "would not keep",
    r"cudnnReorderFilterAndBias": "INT8x32, outputs in multiples of 32",
}
HEADER = """# Functions

Every function of cuDNN 8's libraries, in the form of PhOS's tables, with its indices and order. *Supported*: exported.
*Test Passed*: a test that passed called it with success, on the CPU device or a GPU; *CPU*: on the CPU device.
*Checkpoint-safe*: all that a call leaves is in the host's memory and in memory of the caller's; kernels that a first
call of its kind loads are like any module of the program. What each parameter is (direction, effect on the object that
it names, how much memory it stands for) is [api/spec/parameters.json](../api/spec/parameters.json). Written by
`tools/gen_functions.py`.

"""

# Ours: NVIDIA's have a second number behind the version.
_CALL = re.compile(r"\(v\d+\) function (cudnn\w+)\(\) (called|returned)")
_ROLE = re.compile(r"(\w+)=(\w+)(?:\[(.+)\])?$")


def rows(root, name):
    with open(root / "api/spec" / name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def succeeded(log):
    """The functions that a log's calls of succeeded: those that no line about a failure follows."""
    names, last = set(), None
    for name, what in _CALL.findall(log):
        if what == "called":
            names.add(last)
            last = name
        elif name == last:
            last = None
    names |= {last} | (UNLOGGED if UNLOGGED_TEST in log else set())
    return names - {None}


def note(device, folder):
    logs = sorted(pathlib.Path(folder).rglob("*.log"))
    found, date = set(), 0.0
    computing = {r["function"] for name in ("legacy.tsv", "roles.tsv") for r in rows(ROOT, name)
                 if r["effect"] == "compute"}
    for path in logs:
        text = path.read_text(errors="replace")
        if "[  FAILED  ]" in text or "[  PASSED  ]" not in text:
            continue
        found |= succeeded(text) - (computing if "tests/api/" in str(path) else set())
        date = max(date, path.stat().st_mtime)
    if not found:
        sys.exit(f"no passed test below {folder} logged a call")
    tested = read(ROOT)
    tested[device] = {"date": datetime.datetime.fromtimestamp(date).strftime("%Y-%m-%d %H:%M"),
                      "functions": sorted(found)}
    (ROOT / TESTED).write_text(json.dumps(tested, indent=1, sort_keys=True) + "\n")


def read(root):
    path = root / TESTED
    return json.loads(path.read_text()) if path.exists() else {}


def text_of(table, name):
    return next((text for pattern, text in table.items() if re.fullmatch(pattern, name)), "")


def cells(row, index, tested):
    name = row["function"]
    exported = row["implemented"] == "y"
    unsafe = text_of(NOT_CHECKPOINT_SAFE, name) if exported else ""
    on = {device: name in notes["functions"] for device, notes in tested.items()}
    notes = [unsafe, text_of(NOTES, name) if exported else ""]
    if exported and any(on.values()) and not any(seen for device, seen in on.items() if device != "cpu"):
        notes.append("not yet seen on a GPU")
    if exported and not row["in_9"]:
        notes.append("8 alone")

    def mark(condition):
        return "✓" if condition else "✗"
    return [str(index) if index else "", mark(exported), mark(exported and any(on.values())),
            mark(exported and not unsafe), mark(exported and on.get("cpu")), "; ".join(filter(None, notes))]


def library(root, tested, title, header, first, known):
    functions = sorted((r for r in rows(root, "functions.tsv") if r["in_8"] and r["header_8"] == header),
                       key=lambda r: (r["function"] in NOT_IN_PHOS, r["function"].lower()))
    exported = sum(r["implemented"] == "y" for r in functions)
    lines = [f"<h2>Kiln Support: cuDNN 8.0 - {title} ({exported}/{len(functions)})</h2>", "", "<table>", "<tr>"]
    lines += [f"<th>{c}</th>" for c in ("Index", "Supported", "Test Passed", "Checkpoint-safe", "CPU", "Notes")]
    lines += ["</tr>"]
    for i, row in enumerate(functions):
        index = first + i if i < known else 0
        signature = row["signature"].replace("(", f" {row['function']}(", 1).replace("* ", "*")
        section = f"<br>\nReference {row['reference_section']}." if row["reference_section"] else ""
        lines += ["", "<tr>", f"<td colspan=6>\n<code>{html.escape(signature, quote=False)}</code>{section}\n</td>",
                  "</tr>", "<tr>"]
        lines += [f"<td>{cell}</td>" for cell in cells(row, index, tested)]
        lines += ["</tr>"]
    return "\n".join(lines + ["", "</table>", ""])


def page(root):
    tested = read(root)
    runs = [f"* on {DEVICES[d]}: {len(t['functions'])} functions, {t['date']}" for d, t in sorted(tested.items())]
    only_9 = [r for r in rows(root, "functions.tsv") if not r["in_8"]]

    def names(implemented):
        return ", ".join(f"`{r['function']}`" for r in only_9 if r["implemented"] == implemented)
    tail = "\n" + textwrap.fill(f"9 adds, which are there: {names('y')}.", 120) + "\n"
    if names("refused"):
        tail += f"\nExported too, but not there yet, so that every call is CUDNN_STATUS_NOT_SUPPORTED: {names('refused')}.\n"
    return HEADER + "".join(run + "\n" for run in runs) + "\n" + "\n".join(
        library(root, tested, *row) for row in LIBRARIES) + tail


def parameter(type_, name, role, size):
    memory = "device" if role.startswith("device_") else "host" if role in ("in", "out", "inout") else None
    direction = role.removeprefix("device_") if memory else "out" if role == "create" else "in"
    found = {"name": name, "type": type_, "direction": direction}
    if memory:
        found.update(memory=memory, size=size)
    elif role != "value":
        found["handle"] = role
        if size:
            found["size"] = size
    return found


def parameters(root):
    """Of every exported function."""
    roles = {r["function"]: r for name in ("legacy.tsv", "roles.tsv") for r in rows(root, name)}
    out = {}
    for row in rows(root, "functions.tsv"):
        if not row["implemented"]:
            continue
        name = row["function"]
        if name not in roles:
            sys.exit(f"{name} is exported, and no row of legacy.tsv or roles.tsv says what its parameters are")
        inside = re.match(r".*?\((.*)\)$", row["signature"]).group(1)
        declared = [re.match(r"(.*?) ?(\w+)$", p).groups() for p in inside.split(", ")] if inside else []
        said = [_ROLE.match(p).groups() for p in filter(None, roles[name]["parameters"].split("; "))]
        if [n for _, n in declared] != [n for n, _, _ in said]:
            sys.exit(f"{name}: the parameters are {[n for _, n in declared]}")
        out[name] = {
            "generations": [g for g in (8, 9) if row[f"in_{g}"]],
            "effect": roles[name]["effect"],
            "parameters": [parameter(t, n, role, size) for (t, n), (_, role, size) in zip(declared, said)],
        }
    lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in sorted(out.items())]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def expected(root):
    return {PAGE: page(root), PARAMETERS: parameters(root)}


def stale(root):
    return [path for path, text in expected(root).items()
            if not (root / path).exists() or (root / path).read_text(encoding="utf-8") != text]


def main(arguments):
    if arguments[:1] == ["--ran"]:
        note(*arguments[1:3])
    if arguments[:1] == ["--check"]:
        for path in stale(ROOT):
            print(f"{path} is out of date: tools/gen_functions.py")
        return 1 if stale(ROOT) else 0
    for path, text in expected(ROOT).items():
        (ROOT / path).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
