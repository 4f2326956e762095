"""The table of bench/legacy, one row a family of calls, and the page with one row a call."""

import math


def mean(values):
    return math.prod(values) ** (1 / len(values)) if values else None


def ratio(row):
    """NVIDIA's time over ours; None where one of them has none, or they differ in what they computed."""
    if row["difference"] or not row["kiln"] or not row["nvidia"]:
        return None
    return row["nvidia"]["median_us"] / row["kiln"]["median_us"]


def of_copy(row):
    return row["copy"]["median_us"] / row["kiln"]["median_us"] if row["kiln"] and row["copy"] else None


def families(data):
    """Rows by the first part of their names, and then all of them."""
    parts = {}
    for row in data["rows"]:
        parts.setdefault(row["name"].split("/")[0], []).append(row)
    return {**parts, "all": data["rows"]}


def number(value, form):
    return "" if value is None else form.format(value)


def label(name, rows):
    """With the commit of rows that are of another run."""
    commits = {row.get("commit") for row in rows}
    return f"{name} ({commits.pop()})" if len(commits) == 1 and None not in commits else name


def markdown(data, heading, cudnn, table, page):
    rows = []
    for name, part in families(data).items():
        ratios = sorted((ratio(row), row["name"]) for row in part if ratio(row) is not None)
        host = [row["kiln_host_us"] for row in part if row["kiln"]]
        theirs = [row["nvidia_host_us"] for row in part if row["nvidia"]]
        rows.append([label(name, part), f"{len(ratios)} of {len(part)}", number(mean([r for r, _ in ratios]), "{:.2f}"),
                     f"{ratios[0][0]:.2f} {ratios[0][1].partition('/')[2]}" if ratios else "",
                     number(mean([of_copy(row) for row in part if of_copy(row)]), "{:.2f}"),
                     number(max(host, default=None), "{:.2f}"), number(max(theirs, default=None), "{:.2f}")])
    more = f"; [each of them]({page})" if page else ""
    return (f"**Calls of the legacy API** ({heading}): {cudnn}'s time over ours, geometric means{more}\n\n" +
            table(["calls", "compared", "ratio", "least", "of a copy", "host, µs, at most", f"{cudnn}'s"], rows))


def details(data, heading, cudnn, table):
    rows = []
    for row in data["rows"]:
        ours, nvidia = row["kiln"], row["nvidia"]
        remark = row["error"] or row["difference"] or row["nvidia_error"]
        rows.append([label(row["name"], [row]), f"{row['bytes'] * 1e-6:.0f}", f"{ours['median_us']:.1f}" if ours else "",
                     f"{nvidia['median_us']:.1f}" if nvidia else "", number(ratio(row), "{:.2f}"),
                     number(of_copy(row), "{:.2f}"), f"{row['kiln_host_us']:.2f}" if ours else "",
                     f"{row['nvidia_host_us']:.2f}" if nvidia else "", remark.replace("|", "/")])
    return (f"# Calls of the legacy API\n\nWritten by `bench/report/report.py` from `bench/results/legacy.json` ({heading}): `bench/legacy` beside "
            f"{cudnn}, interleaved, the L2 flushed before each call. MB is what a call must read and write once; a copy moves as\n"
            "many. Host time is that of a repeated call, the median of batches.\n\n" +
            table(["call", "MB", "Kiln, µs", f"{cudnn}, µs", "ratio", "of a copy", "host, µs", f"{cudnn}'s", ""], rows) + "\n")
