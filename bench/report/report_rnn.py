"""The table of bench/rnn, a row for each family and phase, and the page with one row a call."""

import math


def mean(values):
    return math.prod(values) ** (1 / len(values)) if values else None


def microseconds(timing):
    return timing["median_us"] if timing else None


def of_torch(phase):
    """cuDNN's time with the algorithm that PyTorch asks for; with the first where it declines."""
    variants = phase["nvidia"]
    return microseconds(variants.get(phase["torch"])) or microseconds(next(iter(variants.values()), None))


def best(phase):
    """The fastest algorithm's name and time; None for both where nothing was timed."""
    times = [(microseconds(timing), name) for name, timing in phase["nvidia"].items() if timing]
    time, name = min(times, default=(None, None))
    return name, time


def ratio(theirs, phase):
    """Theirs over ours; None where one of them has none."""
    ours = microseconds(phase["kiln"])
    return theirs / ours if theirs and ours else None


def phases(data):
    for row in data["rows"]:
        for phase in row["phases"]:
            yield row, phase


def families(data):
    """Phases with their rows by the first part of the row's name and the phase's."""
    parts = {}
    for row, phase in phases(data):
        parts.setdefault(f"{row['name'].split('/')[0]}, {phase['name']}", []).append((row, phase))
    return parts


def number(value, form="{:.2f}"):
    return "" if value is None else form.format(value)


def markdown(data, heading, cudnn, table, page):
    rows = []
    for name, part in families(data).items():
        torch = [r for r in (ratio(of_torch(phase), phase) for _, phase in part) if r]
        fastest = sorted((r, row["name"].partition("/")[2]) for row, phase in part if (r := ratio(best(phase)[1], phase)))
        host = [phase["kiln_host_us"] for _, phase in part if phase["kiln"]]
        rows.append([name, f"{len(fastest)} of {len(part)}", number(mean(torch)), number(mean([r for r, _ in fastest])),
                     f"{fastest[0][0]:.2f} {fastest[0][1]}" if fastest else "", number(min(host, default=None))])
    more = f"; [each of them]({page})" if page else ""
    return (f"**Recurrent networks, CTC and multi-head attention** ({heading}): {cudnn}'s time over ours, geometric means{more}\n\n" +
            table(["calls", "compared", "of PyTorch's algorithm", "of the fastest", "least", "host, µs, at least"], rows))


def details(data, heading, cudnn, table):
    rows = []
    for row, phase in phases(data):
        name, time = best(phase)
        ours = microseconds(phase["kiln"])
        remark = row["error"] or "; ".join(f"{variant}: {text}" for variant, text in row["differences"].items() if text)
        rows.append([row["name"], phase["name"], number(ours, "{:.1f}"),
                     number(ours / row["steps"] if ours and row["steps"] else None), number(of_torch(phase), "{:.1f}"),
                     phase["torch"], number(time, "{:.1f}"), name or "", number(ratio(of_torch(phase), phase)),
                     number(ratio(time, phase)), number(phase["kiln_host_us"]), remark.replace("|", "/")])
    return (f"# Recurrent networks, CTC and multi-head attention\n\nWritten by `bench/report/report.py` from `bench/results/rnn.json` ({heading}): "
            f"`bench/rnn` beside {cudnn}, interleaved, the L2 flushed before each\ncall. A step is one of a layer. Names say type, steps T, "
            "sequences B (N), hidden H, layers L, symbols A, labels L of a CTC loss.\n\n" +
            table(["problem", "call", "Kiln, µs", "a step", f"{cudnn}, PyTorch's, µs", "", "fastest, µs", "", "ratio", "to the fastest", "host, µs", ""],
                  rows) + "\n")
