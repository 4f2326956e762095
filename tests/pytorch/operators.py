#!/usr/bin/env python3
"""PyTorch's operators that may call cuDNN, one by one: Kiln's libcudnn.so.9 beside NVIDIA's.

    python3 tests/pytorch/operators.py PATH/libcudnn.so.9 [--only REGEX] [--jobs N] [--seconds N] [--out FILE]

Each case of operator_cases.py (after PyTorch's own tests of convolutions, batch normalisation and pooling) and
sequence_cases.py (recurrent networks, the CTC loss, attention) in each of
SETTINGS: results, gradients and second gradients against float64 on the CPU, no further off than NVIDIA's are, up to
FACTOR and ROUNDINGS; results as NVIDIA's lie in memory; the same bits again where PyTorch was told to be deterministic;
and no refusal where NVIDIA's has an answer. A few families of cases in a setting are a process for each library (forks.py).
The last line is "N passed, N failed, N skipped"; what died has failed. --out writes all that was measured as JSON.
"""
import collections
import itertools
import math
import os
import re
import sys
import time

import forks
import in_front
import operator_cases
import sequence_cases
from verdicts import Verdicts, parser, when_complete

# choice: how PyTorch chooses, by heuristics or by timing (torch.backends.cudnn.benchmark)
# twice: second derivatives, too
Setting = collections.namedtuple("Setting", "type tf32 layout api choice deterministic twice", defaults=[False])
SETTINGS = {
    "float32": Setting("float32", False, "contiguous", "v8", "heuristics", False, True),
    "tf32_last": Setting("float32", True, "channels_last", "v8", "heuristics", False),
    "float16_last_benchmark": Setting("float16", True, "channels_last", "v8", "benchmark", False),
    "bfloat16_deterministic": Setting("bfloat16", True, "contiguous", "v8", "heuristics", True),
    "float64": Setting("float64", True, "contiguous", "v8", "heuristics", False, True),
    "float16_v7": Setting("float16", True, "contiguous", "v7", "heuristics", False),
    "float32_last_benchmark": Setting("float32", False, "channels_last", "v8", "benchmark", False),
    "tf32_v7_deterministic": Setting("float32", True, "contiguous", "v7", "heuristics", True),
    "bfloat16_last_v7": Setting("bfloat16", True, "channels_last", "v7", "heuristics", False),
    "float32_v7_benchmark": Setting("float32", False, "contiguous", "v7", "benchmark", False),
}
ROUNDING = {"float64": 2.0**-53, "float32": 2.0**-24, "tf32": 2.0**-11, "float16": 2.0**-11, "bfloat16": 2.0**-8}
DRAWS = 6  # see rounded_draws
FACTOR, ROUNDINGS = 1.5, 4  # errors of two right libraries are draws of one distribution, of few numbers here
# PyTorch's CPU, the reference, sums float64 in float64: it is as far off as what it judges, and NVIDIA's answers,
# which have the reference's very bits here and there, are no measure.
FLOAT64_ROUNDINGS = 16

# ---- in a forked process --------------------------------------------------------------------------------------


class Draws:
    """Random tensors that outlive a run: the first run asks for them by shape, the second gets the same."""

    def __init__(self, torch):
        self.torch, self.generator, self.tensors = torch, torch.Generator().manual_seed(11), []

    def of(self, index, shape, kind):
        if index == len(self.tensors):
            self.tensors.append(self.torch.randn(shape, generator=self.generator, dtype=self.torch.float64))
        # On the grid of the narrowest type, so that both runs get the same numbers.
        return self.tensors[index].to(kind)


def results_of(torch, function, leaves, twice, draws, dy_types):
    """name -> tensor: results, gradients and second gradients of random sums of them."""
    leaves = [leaf.detach().clone(memory_format=torch.preserve_format).requires_grad_() for leaf in leaves]
    y = function(*leaves)
    y = [value for value in (y if isinstance(y, (tuple, list)) else [y]) if isinstance(value, torch.Tensor)]
    named = {f"y{i}": value for i, value in enumerate(y)}
    y = [value for value in y if value.requires_grad]
    if not y:
        return named

    def random_like(values, first):
        return [draws.of(first + i, value.shape, dy_types or value.dtype).to(value.device, value.dtype).requires_grad_(twice)
                for i, value in enumerate(values)]

    dy = random_like(y, 0)
    gradients = torch.autograd.grad(y, leaves, dy, create_graph=twice, allow_unused=True)
    named.update({f"d{i}": g for i, g in enumerate(gradients) if g is not None})
    gradients = [g for g in gradients if g is not None and g.requires_grad]
    if twice and gradients:
        second = torch.autograd.grad(gradients, leaves + dy, random_like(gradients, len(dy)), allow_unused=True)
        named.update({f"dd{i}": g for i, g in enumerate(second) if g is not None})
    return named


def off(got, want):
    """[relative to the norm, the farthest relative to the largest]"""
    if got.shape != want.shape:
        raise AssertionError(f"a result is {tuple(got.shape)} and should be {tuple(want.shape)}")
    if want.numel() == 0:
        return [0.0, 0.0]
    difference = (got.detach().double().cpu() - want.detach()).abs()
    difference[difference.isnan() & ~want.isnan()] = math.inf
    scale = max(want.abs().max().item(), 1e-300)
    return [(difference / scale).square().sum().sqrt().item() / max((want / scale).square().sum().sqrt().item(), 1e-300),
            difference.max().item() / scale]


def inputs_of(torch, case, setting):
    """(on the CPU in float64, on the device in the setting's type): the same numbers."""
    kind, exact, given = getattr(torch, setting.type), [], []
    narrow = setting.type in ("float16", "bfloat16")
    for i, tensor in enumerate(case.inputs):
        own = torch.float32 if narrow and i in case.keeps_float32 else kind
        rounded = tensor.to(own)
        exact.append(rounded.double())
        on_device = rounded.cuda()
        if setting.layout == "channels_last" and tensor.dim() in (4, 5) and not case.keeps_layout:
            on_device = on_device.to(memory_format=torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d)
        given.append(on_device)
    return exact, given


def rounding_of(setting):
    return ROUNDING["tf32" if setting.type == "float32" and setting.tf32 else setting.type]


def rounded_draws(torch, case, setting, exact, want, twice, draws, kind):
    """How far float64's own results are off when the inputs are, by some roundings: what right libraries may differ by."""
    most = ROUNDINGS * (ROUNDING[case.rounds_to] if case.rounds_to else rounding_of(setting))
    generator, rows = torch.Generator().manual_seed(5), []
    for _ in range(DRAWS):
        moved = [x * (1 + most * (2 * torch.rand(x.shape, generator=generator, dtype=torch.float64) - 1)) for x in exact]
        got = results_of(torch, case.exact or case.function, moved, twice, draws, kind)
        rows.append({name: off(got[name], want[name]) for name in want})
    return rows


def run_case(torch, case, setting):
    exact, given = inputs_of(torch, case, setting)
    draws, kind, twice = Draws(torch), getattr(torch, setting.type), case.twice and setting.twice
    want = results_of(torch, case.exact or case.function, exact, twice, draws, kind)
    got = results_of(torch, case.function, given, twice, draws, kind)
    if case.exact is not None:
        want = {name: value for name, value in want.items() if name in got}
    if sorted(want) != sorted(got):
        raise AssertionError(f"there are {sorted(got)} and should be {sorted(want)}")
    answer = {"off": {name: off(got[name], want[name]) for name in want},
              "rounded": rounded_draws(torch, case, setting, exact, want, twice, draws, kind) if case.has_kinks else [],
              "strides": [got["y0"].stride()] if got["y0"].numel() else []}
    if setting.deterministic and not case.is_random:
        again = results_of(torch, case.function, given, twice, draws, kind)
        answer["differs"] = [name for name in got if not torch.equal(got[name].nan_to_num(), again[name].nan_to_num())]
    return answer


def families(request, tell):
    import torch

    setting = SETTINGS[request["setting"]]
    if setting.api == "v7":
        os.environ["TORCH_CUDNN_V8_API_DISABLED"] = "1"  # read at the first convolution
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = setting.tf32
    torch.backends.cudnn.benchmark, torch.backends.cudnn.benchmark_limit = setting.choice == "benchmark", 3
    torch.backends.cudnn.deterministic = setting.deterministic
    answer = {"libraries": in_front.loaded_cudnn(), "cases": {}}
    for name in request["families"]:
        torch.manual_seed(1)
        for case in operator_cases.FAMILIES[name](torch):
            if setting.type not in case.types:
                continue
            try:
                row = run_case(torch, case, setting)
            except Exception as error:
                row = {"error": f"{type(error).__name__}: {str(error)[:400]}"}
            answer["cases"][f"{name} {case.name}"] = row
            tell(answer)


def serve(jobs):
    import torch

    torch.set_num_threads(1)  # a pool of threads would not survive a fork
    forks.serve(families, jobs)


# ---- judging ---------------------------------------------------------------------------------------------------


def judge_case(rounding, ours, nvidia, roundings=ROUNDINGS):
    if "error" in ours:  # what both refuse shows nothing
        return None if "error" in nvidia else False, ours["error"] + (f"; NVIDIA's: {nvidia['error']}" if "error" in nvidia else "")
    if "error" in nvidia:
        return True, f"NVIDIA's refuses: {nvidia['error']}"
    if ours.get("differs"):
        return bool(nvidia.get("differs")), f"another run gives other bits of {', '.join(ours['differs'])}"
    if ours["strides"] != nvidia["strides"]:
        return False, f"strides {ours['strides']}, NVIDIA's {nvidia['strides']}"
    wrong, worst = [], 0.0
    for name, (norm, farthest) in ours["off"].items():
        theirs = [max(values) for values in zip(nvidia["off"][name], *(draw[name] for draw in nvidia.get("rounded", [])))]
        worst = max(worst, farthest / rounding)
        few = roundings * rounding
        if not (norm <= FACTOR * theirs[0] + few and farthest <= 2 * FACTOR * theirs[1] + few):
            wrong.append(f"{name} off by {norm / rounding:.2g} roundings, at most {farthest / rounding:.2g} "
                         f"(NVIDIA's {theirs[0] / rounding:.2g}, {theirs[1] / rounding:.2g})")
    return not wrong, "; ".join(wrong) or f"off by {worst:.2g} roundings at most"


def judge(library, setting, ours, nvidia):
    if "not_begun" in ours or "not_begun" in nvidia:
        yield "", None, "not begun in time"
        return
    if ours.get("libraries") and os.path.abspath(library) not in ours["libraries"]:
        yield "", False, f"the process had {ours['libraries']} and not {library}"
        return
    for side, answer in (("ours", ours), ("NVIDIA's", nvidia)):
        if "died" in answer:
            yield "", False, f"{side} after {len(answer.get('cases', {}))} cases: {answer['died']}"
    rounding = rounding_of(setting)
    for name, case in ours.get("cases", {}).items():
        if name in nvidia.get("cases", {}):
            yield name, *judge_case(rounding, case, nvidia["cases"][name], FLOAT64_ROUNDINGS if setting.type == "float64" else ROUNDINGS)


def is_asked(setting, family):
    """The older way of asking for convolutions is no other for sequences."""
    return SETTINGS[setting].api == "v8" or family not in sequence_cases.FAMILIES


def main(options):
    until = time.monotonic() + options.seconds
    todo = [{"setting": setting, "families": chosen, "until": until}
            for setting, together in itertools.product(SETTINGS, operator_cases.TOGETHER)
            if (chosen := [name for name in together if is_asked(setting, name) and re.search(options.only, f"{setting} {name}")])]
    sides = [forks.Side(__file__, environment, jobs).ask(todo)
             for environment, jobs in ((in_front.environment(options.library), options.jobs),
                                       (dict(os.environ), max(options.jobs // 2, 2)))]
    return report(options, todo, *sides)


def report(options, todo, ours, theirs):
    verdicts = Verdicts(options.out)
    for i in when_complete(dict(enumerate(zip(ours, theirs)))):
        mine, nvidia = ours[i].result(), theirs[i].result()
        setting = todo[i]["setting"]
        place = f"{setting} {' '.join(todo[i]['families'])}"
        print(f"        {place}: {mine.get('wall_s')} s, CPU {mine.get('cpu_s')} (NVIDIA's {nvidia.get('wall_s')}, {nvidia.get('cpu_s')})", flush=True)
        for name, right, text in judge(options.library, SETTINGS[setting], mine, nvidia):
            verdicts.add(f"{setting} {name}" if name else place, right, text, prints=not right)
        verdicts.keep([{**todo[i], "ours": mine, "nvidia": nvidia}])
    return verdicts.end()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(int(sys.argv[2]))
        sys.exit(0)
    sys.exit(main(parser(__doc__, "setting family").parse_args()))
