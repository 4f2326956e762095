#!/usr/bin/env python3
"""Markdown tables from the benchmarks' JSON, on stdout or in a page between its markers.

    bench/report/report.py bench/results/bandwidth.json bench/results/latency.json bench/results/contract.json
                    bench/results/contract_frontend.json [bench/results/attention.json] [bench/results/legacy.json] [bench/results/torch_compile.json]
                    [bench/results/rnn.json] [--into docs/results.md] [--rows README.md] [--pages docs] [--plots FOLDER]

The page holds the lines <!-- bench:begin --> and <!-- bench:end -->; what is between them is replaced. --rows names one with
<!-- rows:begin --> and <!-- rows:end -->, which gets a row for each kind of work. With --pages the
problems of bench/contract get a table (bench_contract.md) in that folder, and the calls of bench/legacy and of
bench/rnn a table each (bench_legacy.md, bench_rnn.md). With --plots bench/contract's roofline and ratios are drawn in that
folder (bench_contract.html); `bazel build //bench/report:plots` does that. Several files of bench/contract on one device, of
runs with --only, count as one; another device has pages of its own. A file that is not there is left out, and named on
stderr.
"""

import argparse
import json
import math
import os
import pathlib
import re
import sys
import textwrap

import report_contract
import report_legacy
import report_rnn
import report_rows


def heading(data):
    return f"{data['device']}, commit {data['commit']}, {data['date']}"


def cudnn(data):
    """NVIDIA's release: 91900 is 9.19.0."""
    number = data.get("nvidia_version", 0)
    return f"cuDNN {number // 10000}.{number // 100 % 100}.{number % 100}" if number else "cuDNN"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join([" --- "] + [" ---: "] * (len(header) - 1)) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def rate(num_bytes, timing):
    """Gigabytes a second of the median, or None where nothing was timed."""
    return num_bytes / timing["median_us"] * 1e-3 if timing else None


def why_not(row, data):
    """Why cuDNN has no time: it was not there, or nothing was timed, or it does not do this graph."""
    if not data["nvidia_version"] or not row["kiln"]:
        return ""
    return "wrong result" if row["nvidia_error"].startswith("wrong: ") else "refused"


def bandwidth(data, torch=None):
    """`torch`: the result of bench/steps/torch_compile.py, for two more columns. A row of another run names its commit."""
    theirs = {(row["name"], row["dtype"]): row["torch"] for row in torch["rows"]} if torch else {}
    rows = []
    for row in data["rows"]:
        ours, copy, nvidia = (rate(row["bytes"], row[key]) for key in ("kiln", "copy", "nvidia"))
        spread = row["kiln"] and (row["kiln"]["q75_us"] - row["kiln"]["q25_us"]) / row["kiln"]["median_us"]
        rows.append([
            row["name"] + (f" ({row['commit']})" if "commit" in row else ""), row["dtype"], f"{row['bytes'] * 1e-6:.0f}",
            f"{ours:.0f}" if ours else row["error"],
            f"{100 * ours / copy:.0f} %" if ours and copy else "",
            f"{100 * spread:.1f} %" if spread is not None else "",
            f"{100 * nvidia / copy:.0f} %" if nvidia and copy else why_not(row, data),
        ])
        if torch:
            other = rate(row["bytes"], theirs.get((row["name"], row["dtype"])))
            faster = max((r for r in (nvidia, other) if r), default=None)
            rows[-1] += [f"{100 * other / copy:.0f} %" if other and copy else "",
                         f"{ours / faster:.2f}" if ours and faster else ""]
    more = [f"torch.compile {torch['torch_version']}, of copy", "ratio to the faster"] if torch else []
    return (f"**Bandwidth** ({heading(data)}); a copy of the same bytes is 100 %\n\n" +
            table(["graph", "type", "MB", "GB/s", "of copy", "spread", f"{cudnn(data)}, of copy", *more], rows))


def attention(data):
    def teraflops(row, key):
        return f"{row['flops'] / row[key]['median_us'] * 1e-6:.0f}" if row[key] else ""

    rows, ratios = [], {}
    for row in data["rows"]:
        ours, nvidia = row["kiln"], row["nvidia"]
        ratio = nvidia["median_us"] / ours["median_us"] if ours and nvidia else None
        if ratio:
            ratios.setdefault(row["name"].split("_")[0], []).append(ratio)
        rows.append([row["name"].replace("_", " "), f"{ours['median_us']:.0f}" if ours else row["error"], teraflops(row, "kiln"),
                     f"{nvidia['median_us']:.0f}" if nvidia else why_not(row, data), f"{ratio:.2f}" if ratio else ""])
    means = "; ".join(f"{name} {math.prod(all) ** (1 / len(all)):.2f} in the geometric mean, {min(all):.2f} at least"
                      for name, all in ratios.items())
    return (f"**Attention**, bf16 ({heading(data)}); batch x heads / heads of k x length x depth. {cudnn(data)}'s time over ours: {means}\n\n" +
            table(["", "Kiln, µs", "TFLOP/s", f"{cudnn(data)}, µs", "ratio"], rows))


def latency(data):
    def microseconds(value):
        if value is None:
            return ""
        return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 100 else f"{value:,.0f}"

    rows = [[row["meaning"], microseconds(row["kiln_us"]), microseconds(row["nvidia_us"])] for row in data["rows"]]
    return f"**Host time** ({heading(data)})\n\n" + table(["", "Kiln, µs", f"{cudnn(data)}, µs"], rows)


def torch_steps(data):
    """Steps and first calls in PyTorch; the ratio is cuDNN's time over ours."""
    meanings = {
        "resnet50": "ResNet-50, AMP f16, channels last, 256 images: a training step",
        "efficientnet_b0": "EfficientNet-B0, AMP f16, channels last, 128 images, benchmark on: a training step",
        "first": "the first convolution of a process, our kernels on disk",
        "forward": "a batch size not seen before, of a convolution seen before",
        "backward": "the same, forward and both gradients",
        "conv2d": "host time of a repeated small `conv2d`",
        "batch_norm": "host time of a repeated small `batch_norm`",
    }
    rows = []

    def add(name, commit, ours, nvidia, more=""):
        label = meanings[name] + more + ("" if commit == data["commit"] else f" ({commit})")
        rows.append([label, f"{1e3 * ours:.3g}", f"{1e3 * nvidia:.3g}", f"{nvidia / ours:.2f}"])

    for row in data["rows"]:
        if "error" in row:
            continue
        ours, nvidia, commit = row["ours"], row["nvidia"], row.get("commit", data["commit"])
        if not isinstance(ours, dict):
            add(row["name"], commit, ours, nvidia, f" (from an empty kernel cache {1e3 * row['cold_s']:.0f} ms)")
        elif "median_ms" in ours:
            add(row["name"], commit, ours["median_ms"] / 1e3, nvidia["median_ms"] / 1e3)
            cold = f", the first one of a process (from an empty kernel cache {row['cold_s']:.1f} s)"
            add(row["name"], commit, ours["first_s"], nvidia["first_s"], cold)
        else:
            for name in ours:
                add(name, commit, ours[name], nvidia[name])
    return f"**Unmodified PyTorch** ({heading(data)})\n\n" + table(["", "Kiln, ms", f"{cudnn(data)}, ms", "ratio"], rows)


def contract_frontend(data):
    def teraflops(row, key):
        return f"{row['flops'] / row[key] * 1e-6:.0f}"

    rows = [[row["name"], f"{row['kiln_us']:.1f}", teraflops(row, "kiln_us"), f"{row['torch_us']:.1f}", teraflops(row, "torch_us")]
            for row in data["rows"]]
    return (f"**Contractions**, f16, through cudnn-frontend ({heading(data)}); PyTorch {data['torch']} with cuBLAS and its own "
            "cuDNN beside it. The engine is `contract_mma`.\n\n" +
            table(["", "Kiln, µs", "TFLOP/s", "PyTorch, µs", "TFLOP/s"], rows))


def wrapped(text):
    """Markdown with its paragraphs at 120 columns; tables and headings stay as they are."""
    blocks = [block if block.startswith(("|", "#")) else textwrap.fill(block, 120, break_long_words=False, break_on_hyphens=False)
              for block in text.strip("\n").split("\n\n")]
    return "\n\n".join(blocks) + "\n"


def contract(files, pages, links, plots):
    """The part of the results; writes the pages. The first device has a table, each other one a sentence."""
    by_device = {}
    for data in files:
        by_device.setdefault(data.get("device", "unknown device"), []).append(data)
    parts = []
    for device, runs in by_device.items():
        data, stem = report_contract.merged(runs), "bench_contract"
        if parts:
            stem += "_" + re.sub(r"\W+", "_", device.removeprefix("NVIDIA ").lower())
        if pages is not None:
            pages.mkdir(parents=True, exist_ok=True)
            (pages / f"{stem}.md").write_text(wrapped(report_contract.details(data, cudnn(data))))
        if plots is not None:
            plots.mkdir(parents=True, exist_ok=True)
            (plots / f"{stem}.html").write_text(report_contract.page(data, cudnn(data)))
        write = report_contract.sentence if parts else report_contract.markdown
        parts.append(write(data, cudnn(data), pages and links / stem))
    return "\n\n".join(parts)


def calls(report, data, pages, links):
    """The part of the results; writes the page."""
    if pages is not None:
        pages.mkdir(parents=True, exist_ok=True)
        (pages / f"bench_{data['benchmark']}.md").write_text(wrapped(report.details(data, heading(data), cudnn(data), table)))
    return report.markdown(data, heading(data), cudnn(data), table, pages and links / f"bench_{data['benchmark']}.md")


WRITERS = {"attention": attention, "bandwidth": bandwidth, "latency": latency, "contract_frontend": contract_frontend,
           "torch_steps": torch_steps}
# Each call has a row on a page of its own.
CALLS = {"legacy": report_legacy, "rnn": report_rnn}


def fill(path, marker, text):
    """Replaces what a page has between its two marks."""
    begin, end = f"<!-- {marker}:begin -->", f"<!-- {marker}:end -->"
    page = path.read_text()
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        sys.exit(f"{path}: needs one {begin} and one {end} after it")
    head, rest = page.split(begin)
    path.write_text(f"{head}{begin}\n{wrapped(text)}{end}{rest.split(end)[1]}")


def links_of_rows(arguments):
    """The pages that rows link to, as paths from the page that has the rows: benchmark's name or None to path."""
    def path(page):
        return os.path.relpath(page, arguments.rows.parent)

    links = {}
    if arguments.into:
        links[None] = path(arguments.into)
    if arguments.pages:
        links |= {name: path(arguments.pages / f"bench_{name}.md") for name in ("contract", "rnn")}
    return links


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--into", type=pathlib.Path, help="a page with the two markers")
    parser.add_argument("--rows", type=pathlib.Path, help="a page with the two markers of rows")
    parser.add_argument("--pages", type=pathlib.Path, help="the folder for the pages of bench/contract, bench/legacy and bench/rnn")
    parser.add_argument("--plots", type=pathlib.Path, help="the folder for the plots of bench/contract")
    arguments = parser.parse_args()

    parts, contracts, torch, results = [], [], None, []
    for path in arguments.files:
        if not path.exists():
            print(f"{path}: not there, left out", file=sys.stderr)
            continue
        data = json.loads(path.read_text())
        if data.get("benchmark") == "torch_compile":
            torch = data
        else:
            results.append((path, data))
    # Links are those of the page that has them.
    pages, links = arguments.pages, arguments.pages
    if pages and arguments.into:
        links = pathlib.Path(os.path.relpath(pages, arguments.into.parent))
    for path, data in results:
        name = data.get("benchmark")
        if name == "contract":
            contracts.append(data)
        elif name == "bandwidth":
            parts.append(bandwidth(data, torch))
        elif name in CALLS:
            parts.append(calls(CALLS[name], data, pages, links))
        elif name in WRITERS:
            parts.append(WRITERS[name](data))
        else:
            sys.exit(f"{path}: '{name}' is no benchmark; known are {', '.join(sorted([*WRITERS, *CALLS, 'contract', 'torch_compile']))}")
    if contracts:
        parts.append(contract(contracts, pages, links, arguments.plots))
    if arguments.rows:
        by_benchmark = {data["benchmark"]: data for _, data in reversed(results)}
        links_of = links_of_rows(arguments)
        fill(arguments.rows, "rows", report_rows.markdown(by_benchmark, table, links_of))
    text = "\n\n".join(parts)
    if arguments.into is None:
        print(text)
        return
    fill(arguments.into, "bench", text)


if __name__ == "__main__":
    main()
