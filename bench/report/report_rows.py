"""The README's five rows: a line for each kind of work, of all that its benchmark compared."""

import report_contract
import report_rnn

HEADER = ["what", "measured on", "compared", "cuDNN's time over ours", "least"]


def times(data):
    """(ratio, name) of a benchmark whose rows have a time of ours and one of cuDNN's."""
    return [(row["nvidia"]["median_us"] / row["kiln"]["median_us"], row["name"])
            for row in data["rows"] if row.get("kiln") and row.get("nvidia")]


def contract(data):
    return [(report_contract.ratio(row), row["name"]) for row in data["rows"] if report_contract.ratio(row)]


def recurrent(data):
    """The calls of networks, beside the fastest of cuDNN's algorithms."""
    return [(ratio, f"{row['name']} {phase['name']}") for row, phase in report_rnn.phases(data)
            if (ratio := report_rnn.ratio(report_rnn.best(phase)[1], phase)) and not row["name"].startswith(("ctc", "attention"))]


def steps(data):
    return [(row["nvidia"]["median_ms"] / row["ours"]["median_ms"], row["name"])
            for row in data["rows"] if "error" not in row and isinstance(row["ours"], dict) and "median_ms" in row["ours"]]


ROWS = {
    "contract": ("convolutions and matrix products", contract),
    "bandwidth": ("pointwise graphs, reductions, norms, pooling", times),
    "attention": ("attention, forward and backward", times),
    "rnn": ("recurrent networks, the fastest algorithm", recurrent),
    "torch_steps": ("training steps of unmodified PyTorch", steps),
}


def markdown(results, table, links):
    """`results`: data by benchmark, contract's runs on one device as one. Benchmarks that are not there have no row.
    `links`: the page of a benchmark, or of all that have none of their own (None)."""
    rows = []
    for benchmark, (what, ratios_of) in ROWS.items():
        data = results.get(benchmark)
        ratios = ratios_of(data) if data else []
        if ratios:
            least = min(ratios)
            page = links.get(benchmark, links.get(None))
            rows.append([f"[{what}]({page})" if page else what, data["device"].removeprefix("NVIDIA "), str(len(ratios)),
                         report_contract.number(report_contract.geomean(ratio for ratio, _ in ratios)),
                         f"{least[0]:.2f} {least[1]}"])
    return table(HEADER, rows)
