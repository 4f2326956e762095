"""What bench/contract measured, as Markdown and as a page with plots. report.py is the program.

The ratio of a problem is NVIDIA's best time over ours, both tuned: above 1 ours is faster. A problem that one side
lacks, or that is wrong, has no ratio and says why.
"""

import html
import math
import subprocess

KILN, NVIDIA, CUBLAS = "kiln", "nvidia", "cublas"


def merged(files):
    """One result from several runs; of a problem that is in two, the later run counts."""
    rows = {}
    for data in files:
        for row in data.get("rows", []):
            rows[row["section"], row["name"]] = row
    commits = sorted({data.get("commit", "unknown") for data in files})
    return dict(files[-1], rows=list(rows.values()), commit=", ".join(commits))


def median(row, side, which="best"):
    timing = (row.get(side) or {}).get(which)
    return timing["median_us"] if timing else None


def ratio(row, other=NVIDIA, which="best"):
    """The other side's time over ours, or None."""
    ours, theirs = median(row, KILN, which), median(row, other, which)
    return theirs / ours if ours and theirs and not row.get("wrong") else None


def of_floor(row, side):
    time = median(row, side)
    return row["floor_us"] / time if time else None


def geomean(values):
    values = [v for v in values if v]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def number(value, digits=2, suffix=""):
    return "" if value is None else f"{value:.{digits}f}{suffix}"


def spread(row, side):
    timing = (row.get(side) or {}).get("best")
    return (timing["p90_us"] - timing["p10_us"]) / timing["median_us"] if timing else None


def trouble(row):
    """Why a row has no ratio, in a few words."""
    if row.get("fault"):
        return "lost: " + row["fault"]
    if row.get("wrong"):
        return "WRONG: " + row["wrong"]
    for side, name in ((KILN, "ours"), (NVIDIA, "cuDNN")):
        error = (row.get(side) or {}).get("error")
        if error and not median(row, side):
            return f"{name}: {error}"
    return ""


def most_plans(data, side):
    """How many plans of one problem a side had at most."""
    return max(((row.get(side) or {}).get("plans", 0) for row in data.get("rows", [])), default=0)


def sections(data):
    found = {}
    for row in data.get("rows", []):
        found.setdefault(row["section"], []).append(row)
    return found


def commits_since(data):
    """How many commits changed generated code since the measurement; None where git does not know."""
    commit = str(data.get("commit", ""))
    if not commit.isalnum():
        return None
    command = ["git", "rev-list", "--count", f"{commit}..HEAD", "--", "compiler", "codegen", "runtime", "ir"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return int(done.stdout)
    except (OSError, subprocess.CalledProcessError, ValueError):
        return None


def heading(data):
    text = f"{data.get('device', 'unknown device')}, commit {data.get('commit', 'unknown')}, {data.get('date', 'no date')}"
    if data.get("driver"):
        text += f", driver {data['driver']}"
    since = commits_since(data)
    if since:
        later = "1 later commit to compiler and runtime is" if since == 1 else f"{since} later commits to compiler and runtime are"
        text += f"; {later} not in these numbers"
    return text


def table(header, rows):
    clean = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join([" --- "] + [" ---: "] * (len(header) - 1)) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in clean])


def summary_row(name, rows):
    ratios = [(ratio(row), row["name"]) for row in rows if ratio(row)]
    least = min(ratios, default=(None, ""))
    wrong = sum(bool(row.get("wrong") or row.get("fault")) for row in rows)
    return [
        name, f"{len(ratios)} of {len(rows)}" + (f", {wrong} wrong" if wrong else ""),
        number(geomean(r for r, _ in ratios)),
        f"{number(least[0])} {least[1]}".strip(),
        number(geomean(ratio(row, which="first") for row in rows)),
        number(geomean(of_floor(row, KILN) for row in rows)),
        number(geomean(of_floor(row, NVIDIA) for row in rows)),
        number(geomean(ratio(row, CUBLAS) for row in rows)),
    ]


SUMMARY_HEADER = ["section", "compared", "ratio", "least", "first", "of floor", "cuDNN's", "cuBLAS / ours"]


def summary(data):
    """The table by section, all sections below it in one line."""
    rows = [summary_row(name, members) for name, members in sections(data).items()]
    return table(SUMMARY_HEADER, rows + [summary_row("**all**", data.get("rows", []))])


def details_at(page):
    return f" Every problem: [table]({page}.md)." if page else ""


def sentence(data, version, page):
    """For the results, of a further device: what the last line of a summary says."""
    rows = data.get("rows", [])
    _, compared, mean, least, first, *_, blas = summary_row("", rows)
    return (f"**The same on {heading(data)}**: ratio {mean} ({compared} compared), least {least}; first choices {first}; "
            f"cuBLAS / ours {blas}.{details_at(page)}")


def markdown(data, version, page):
    """For the results: the summary, and where every problem is; `page` is that without its ending."""
    if not data.get("rows"):
        return "**Convolutions and matrix products**: nothing has been measured yet."
    return (f"**Convolutions and matrix products** ({heading(data)}). Ratio: {version}'s best time of up to "
            f"{most_plans(data, NVIDIA)} plans, in the order of its heuristics, over our best of up to {most_plans(data, KILN)}; "
            "first: each side's first choice, ours with the shipped records; floor: 790 TFLOP/s for f16 (as the type scales "
            f"it) or 4.3 TB/s. Geometric means.{details_at(page)}\n\n" + summary(data))


def details(data, version):
    """Every problem, as a page of its own."""
    def times(row, side):
        return "/".join(number(median(row, side, which), 1) for which in ("first", "best")) if median(row, side) else ""

    parts = [f"# Convolutions and matrix products\n\n{heading(data)}. Written by `bench/report/report.py`. Times are microseconds, "
             f"the first choice and the best of up to {most_plans(data, KILN)} plans of ours and {most_plans(data, NVIDIA)} of "
             f"{version}'s; the ratio is {version}'s best over ours; the spread is that of our best, from the 10th to the 90th "
             "percentile.", summary(data)]
    for name, rows in sections(data).items():
        cells = [[row["name"], number(row["floor_us"], 1), times(row, KILN), times(row, NVIDIA), number(ratio(row)),
                  number(of_floor(row, KILN)), number(spread(row, KILN) and 100 * spread(row, KILN), 1, " %"),
                  number(median(row, CUBLAS), 1), trouble(row)[:160]] for row in rows]
        parts.append(f"## {name}\n\n" + table(["problem", "floor", "Kiln", "cuDNN", "ratio", "of floor", "spread", "cuBLAS", ""], cells))
    return "\n\n".join(parts) + "\n"


# --- plots ------------------------------------------------------------------------------------------------
COLOURS = {KILN: "#0b6e4f", NVIDIA: "#b5651d", CUBLAS: "#5b5ea6"}
STYLE = """body{font:14px sans-serif;max-width:1100px;margin:2em auto;color:#222}table{border-collapse:collapse}
td,th{padding:2px 8px;text-align:right;border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}
svg text{font:11px sans-serif;fill:#333}.wrong{color:#b00020}"""


class LogScale:
    """Positions for values between low and high, to the next powers of `base`."""

    def __init__(self, values, begin, end, base=10.0):
        logs = [math.log(v, base) for v in values if v and v > 0] or [0]
        self.low, self.high = math.floor(min(logs)), max(math.ceil(max(logs)), math.floor(min(logs)) + 1)
        self.begin, self.end, self.base = begin, end, base

    def __call__(self, value):
        at = (math.log(value, self.base) - self.low) / (self.high - self.low)
        return self.begin + at * (self.end - self.begin)

    def ticks(self):
        return [self.base**i for i in range(self.low, self.high + 1)]


def line(x1, y1, x2, y2, colour="#ccc", width=1):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>'


def label(x, y, text, anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'


def svg(width, height, parts):
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">' + "".join(parts) + "</svg>"


def roofline(data, bytes_per_second=4.3e12):
    """FLOP/s over FLOP/byte: a dot for each problem and side, and the roof of each data type."""
    width, height, left, bottom = 1000, 460, 60, 420
    dots = []
    for row in data["rows"]:
        for side in (NVIDIA, KILN):
            time = median(row, side)
            if time and row["flops"] and row["bytes"]:
                dots.append((row["flops"] / row["bytes"], row["flops"] / time * 1e-6, side, row))
    if not dots:
        return "<p>Nothing was timed.</p>"
    roofs = sorted({row["roof_tflops"] for row in data["rows"] if row.get("roof_tflops")})
    x = LogScale([d[0] for d in dots], left, width - 20)
    y = LogScale([d[1] for d in dots] + roofs, bottom, 20)
    parts = [line(left, y(t), width - 20, y(t)) + label(left - 6, y(t) + 4, f"{t:g}", "end") for t in y.ticks()]
    parts += [line(x(t), 20, x(t), bottom) + label(x(t), bottom + 16, f"{t:g}", "middle") for t in x.ticks()]
    parts += [label(left, 14, "TFLOP/s"), label(width - 20, bottom + 32, "FLOP a byte", "end")]
    for roof in roofs:
        knee = roof * 1e12 / bytes_per_second
        lowest = max(x.base**x.low, y.base**y.low * 1e12 / bytes_per_second)
        if lowest < knee < x.base**x.high:
            parts.append(line(x(lowest), y(lowest * bytes_per_second * 1e-12), x(knee), y(roof), "#888", 1.5))
            parts.append(line(x(knee), y(roof), width - 20, y(roof), "#888", 1.5))
        parts.append(label(width - 24, y(roof) - 4, f"{roof:g}", "end"))
    for intensity, rate, side, row in dots:
        title = html.escape(f"{row['section']}/{row['name']}: {rate:.1f} TFLOP/s, {side}")
        parts.append(f'<circle cx="{x(intensity):.1f}" cy="{y(rate):.1f}" r="3" fill="{COLOURS[side]}" '
                     f'fill-opacity="0.7"><title>{title}</title></circle>')
    for i, (side, name) in enumerate(((KILN, "Kiln"), (NVIDIA, "cuDNN"))):
        parts.append(f'<circle cx="{left + 20}" cy="{34 + 16 * i}" r="4" fill="{COLOURS[side]}"/>' + label(left + 30, 38 + 16 * i, name))
    return svg(width, height, parts)


def ratios(data):
    """A bar for each problem, from 1 to its ratio, section by section."""
    rows = [row for members in sections(data).values() for row in members if ratio(row)]
    if not rows:
        return "<p>No problem ran on both sides.</p>"
    left, width, step = 330, 1000, 14
    scale = LogScale([ratio(row) for row in rows], left, width - 60, base=2.0)
    height = 40 + step * len(rows)
    parts = [line(scale(t), 20, scale(t), height, "#333" if t == 1 else "#ccc") + label(scale(t), 14, f"{t:g}", "middle")
             for t in scale.ticks()]
    for i, row in enumerate(rows):
        value, top = ratio(row), 26 + step * i
        # A bar begins at 1, or at the edge that is nearest to it.
        one = min(max(scale(1), left), width - 60)
        begin, end = sorted((one, scale(value)))
        colour = COLOURS[KILN] if value >= 1 else "#b00020"
        parts.append(label(left - 6, top + 9, f"{row['section']}/{row['name']}", "end"))
        parts.append(f'<rect x="{begin:.1f}" y="{top}" width="{max(end - begin, 1):.1f}" height="{step - 4}" fill="{colour}"/>')
        parts.append(label(end + 4, top + 9, f"{value:.2f}"))
    return svg(width, height, parts)


def html_table(header, rows):
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell)).replace('**', '')}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def page(data, version):
    """A page without external resources."""
    rows = [summary_row(name, members) for name, members in sections(data).items()]
    bad = [f"<li>{html.escape(row['section'] + '/' + row['name'] + ': ' + trouble(row))}</li>" for row in data.get("rows", []) if trouble(row)]
    body = [f"<h1>Convolutions and matrix products</h1><p>{html.escape(heading(data))}; beside {html.escape(version)}</p>"]
    if not rows:
        body.append("<p>Nothing has been measured yet.</p>")
    else:
        body += [html_table(SUMMARY_HEADER, rows + [summary_row("all", data["rows"])]),
                 "<h2>Roofline</h2>", roofline(data), f"<h2>Ratio: {html.escape(version)}'s best time over ours</h2>", ratios(data)]
    if bad:
        body.append('<h2>Without a ratio</h2><ul class="wrong">' + "".join(bad) + "</ul>")
    return ('<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Kiln: convolutions and matrix products</title>'
            f"<style>{STYLE}</style></head><body>{''.join(body)}</body></html>\n")
