#!/usr/bin/env python3
"""Whole networks in unmodified PyTorch: Kiln's libcudnn.so.9 beside NVIDIA's.

    python3 tests/pytorch/models.py PATH/libcudnn.so.9 [--only REGEX] [--jobs N] [--steps N] [--seconds N] [--out FILE]

Each of zoo.py's networks, in float32, TF32 and AMP with float16 and bfloat16, by PyTorch's two ways of calling
cuDNN (v7: TORCH_CUDNN_V8_API_DISABLED=1), contiguous and channels last, torch.backends.cudnn.benchmark off and on:

    gradients  of one step against float64 without cuDNN: no further off than NVIDIA's are, or in float32 than
               those of the float64 network itself when its layers round, up to FACTOR and ROUNDINGS
    curve      losses of --steps training steps follow NVIDIA's, up to what NVIDIA's own ways differ by

Every way but the layout is a process for each library, forked (forks.py), since PyTorch keeps what it chose for a
convolution; --jobs of ours at a time, and half as many of NVIDIA's, whose kernels need no compiler. After --seconds
what is under way is ended, and what has not begun is skipped. What died has failed. The last line is "N passed, N failed, N skipped"; --out writes all that was measured as JSON.
"""
import copy
import functools
import itertools
import math
import os
import re
import sys
import tempfile
import time

import forks
import in_front
import zoo
from verdicts import Verdicts, parser, when_complete

# precision -> (type of autocast or None, TF32 allowed, one rounding of it, layout of the curve)
PRECISIONS = {"float32": (None, False, 2.0**-24, "contiguous"), "tf32": (None, True, 2.0**-11, "contiguous"),
              "float16": ("float16", True, 2.0**-11, "channels_last"), "bfloat16": ("bfloat16", True, 2.0**-8, "channels_last")}
APIS, LAYOUTS, CHOICES = ("v8", "v7"), ("contiguous", "channels_last"), ("heuristics", "benchmark")
# Errors of two right libraries are draws of one distribution: that of all gradients together, of some 1e5 numbers
# and more, comes out alike. Results are some dozens of numbers, and the worst parameter is an extreme: twice FACTOR.
FACTOR, ROUNDINGS = 1.5, 4
# In float32 nearly all of the gradients' error is that of some ReLUs and maxima whose inputs are a rounding apart and
# that go the other way; one of them can be half of it. NVIDIA's few steps do not tell how far right ones go: so many
# float64 steps, with each layer's result off by up to ROUNDINGS, are further draws.
DRAWS = 10
LOSS_SCALE = 1024.0  # for float16; a power of two, so that it costs nothing
FAILED = ".failed"  # behind the name of a reference's file
BENCHMARK_LIMIT = 3  # plans that PyTorch times for one convolution


class Watch:
    """Seconds of parts of a process' life, by name."""

    def __init__(self):
        self.seconds, self.last = {}, time.monotonic()

    def part(self, name):
        now = time.monotonic()
        self.seconds[name], self.last = round(now - self.last, 2), now


# ---- in a forked process --------------------------------------------------------------------------------------

made = functools.lru_cache(maxsize=None)(lambda name: zoo.make(__import__("torch"), name))


def network(torch, name, layout=None):
    model = copy.deepcopy(made(name)).cuda()
    return model.to(memory_format=layout) if layout else model


def images_and_labels(torch, name, index, layout=None):
    images, labels = zoo.batch(torch, name, index)
    return (images.cuda().to(memory_format=layout) if layout else images.cuda()), labels.cuda()


def format_of(torch, name, layout):
    if layout == "contiguous":
        return torch.contiguous_format
    return torch.channels_last_3d if len(zoo.MODELS[name].shape) == 5 else torch.channels_last


def results_and_loss(torch, model, images, labels, precision):
    cast = PRECISIONS[precision][0]
    with torch.autocast("cuda", dtype=getattr(torch, cast or "float16"), enabled=cast is not None):
        y = model(images)
    return y, torch.nn.functional.cross_entropy(y.float(), labels)


def reference(request, tell):
    try:
        exact_step(request, tell)
    except BaseException:
        open(request["reference"] + FAILED, "w").close()  # for those who wait
        raise


def float64_step(torch, name, seed=None):
    """Model and results of one step without cuDNN: on the GPU, where it takes seconds, by PyTorch's own kernels. With a
    seed each layer's result is off by some roundings to float32."""
    model = network(torch, name).double()
    if seed is not None:
        generator = torch.Generator("cuda").manual_seed(seed)
        most = ROUNDINGS * PRECISIONS["float32"][2]

        def rounded(module, args, y):
            noise = torch.rand(y.shape, generator=generator, device="cuda", dtype=torch.float64)
            return y * (1 + most * (2 * noise - 1))

        for module in model.modules():
            if not list(module.children()):
                module.register_forward_hook(rounded)
    images, labels = images_and_labels(torch, name, 0)
    with torch.backends.cudnn.flags(enabled=False):
        y = model(images.double())
        torch.nn.functional.cross_entropy(y, labels).backward()
    return model, y.detach()


def exact_step(request, tell):
    """Results and gradients for those who wait, and how far rounded ones are off."""
    import torch

    watch, name = Watch(), request["model"]
    model, y = float64_step(torch, name)
    watch.part("step")
    answer = {"y": y.cpu(), "gradients": {key: p.grad.cpu() for key, p in model.named_parameters()}}
    torch.save(answer, request["reference"] + ".part")
    os.rename(request["reference"] + ".part", request["reference"])
    watch.part("written")
    rounded = [compare(*float64_step(torch, name, seed), 1.0, answer) for seed in range(DRAWS)]
    watch.part("rounded")
    tell({"seconds": watch.seconds, "rounded": rounded})


def wait_for_reference(torch, path):
    while not os.path.exists(path):
        if os.path.exists(path + FAILED):
            raise RuntimeError("there are no gradients in float64 to compare with")
        time.sleep(0.05)
    return torch.load(path, mmap=True)


def compare(model, y, scale, want):
    """How far results and gradients are off, relative to the norm: all together, and the worst parameter's."""
    off, size = {}, {}
    for key, p in model.named_parameters():
        exact = want["gradients"][key].cuda()
        off[key] = (p.grad.double() / scale - exact).square().sum().item()
        size[key] = exact.square().sum().item()
    total = sum(size.values())
    worst = max(off, key=lambda key: off[key] / max(size[key], 1e-6 * total))
    return {"y_off": ((y.double().cpu() - want["y"]).norm() / want["y"].norm()).item(), "off": math.sqrt(sum(off.values()) / total),
            "worst": worst, "worst_off": math.sqrt(off[worst] / max(size[worst], 1e-6 * total))}


def one_step(torch, request, layout, watch):
    name, precision = request["model"], request["precision"]
    model = network(torch, name, layout)
    batch = images_and_labels(torch, name, 0, layout)
    scale = LOSS_SCALE if precision == "float16" else 1.0
    torch.cuda.synchronize()
    watch.part("start")
    y, loss = results_and_loss(torch, model, *batch, precision)
    (loss * scale).backward()
    torch.cuda.synchronize()
    watch.part("step")
    want = wait_for_reference(torch, request["reference"])
    watch.part("waited")
    answer = compare(model, y.detach(), scale, want)
    watch.part("compared")
    return answer


def curve(torch, request, layout):
    name, precision = request["model"], request["precision"]
    model, longest = network(torch, name, layout), zoo.MODELS[name].longest
    optimizer = torch.optim.SGD(model.parameters(), lr=zoo.MODELS[name].rate, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "float16", init_scale=LOSS_SCALE)
    batches = [images_and_labels(torch, name, i, layout) for i in range(8)]
    losses = []
    for i in range(request["steps"]):
        optimizer.zero_grad()
        _, loss = results_and_loss(torch, model, *batches[i % 8], precision)
        scaler.scale(loss).backward()
        if longest:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), longest)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
    return [round(loss.item(), 5) for loss in losses]


def train(request, tell):
    import torch

    answer = {"libraries": in_front.loaded_cudnn(), "layouts": {}}
    if request["api"] == "v7":
        os.environ["TORCH_CUDNN_V8_API_DISABLED"] = "1"  # read at the first convolution
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = PRECISIONS[request["precision"]][1]
    torch.backends.cudnn.benchmark = request["choice"] == "benchmark"
    torch.backends.cudnn.benchmark_limit = BENCHMARK_LIMIT
    for layout in request["layouts"]:
        answer["layouts"][layout] = part = {}
        try:
            train_in(torch, request, layout, part, lambda: tell(answer))
        except Exception as error:
            part["error"] = f"{type(error).__name__}: {str(error)[:500]}"
            tell(answer)


def train_in(torch, request, layout, part, tell):
    watch, memory_format = Watch(), format_of(torch, request["model"], layout)
    part["seconds"] = watch.seconds
    part["step"] = one_step(torch, request, memory_format, watch)
    tell()
    if layout in request["curves"]:
        part["curve"] = curve(torch, request, memory_format)
        watch.part("curve")
        tell()


def serve(jobs):
    import torch
    import torchvision  # noqa: F401  for all that will be forked

    torch.set_num_threads(1)  # a pool of threads would not survive either
    forks.serve(lambda request, tell: globals()[request["what"]](request, tell), jobs, lambda request: made(request["model"]))


# ---- judging ---------------------------------------------------------------------------------------------------


def smooth(losses):
    return [sum(losses[max(0, i - 4):i + 1]) / len(losses[max(0, i - 4):i + 1]) for i in range(len(losses))]


def apart(a, b):
    """The largest distance of two curves, each the mean of five steps; infinite where one has no number."""
    distances = [abs(x - y) for x, y in zip(smooth(a), smooth(b))]
    return max(distances) if all(map(math.isfinite, distances)) else math.inf


def judge_step(precision, ours, nvidia, all_nvidias, rounded):
    """`all_nvidias`: of the same network and precision; in float16 the ways differ, and each is a right one. `rounded`:
    float64 steps whose layers round to float32."""
    rounding = ROUNDINGS * PRECISIONS[precision][2]
    draws = rounded if precision == "float32" else []

    def limit(key, factor):
        return factor * max(step[key] for step in all_nvidias + draws) + rounding

    def most(key):
        return f", {max(step[key] for step in draws):.2e} by rounding alone" if draws else ""

    text = (f"gradients off by {ours['off']:.2e} (NVIDIA's {nvidia['off']:.2e}{most('off')}), worst "
            f"{ours['worst_off']:.2e} in {ours['worst']} ({nvidia['worst_off']:.2e}{most('worst_off')}), results "
            f"{ours['y_off']:.2e} ({nvidia['y_off']:.2e}{most('y_off')})")
    right = (ours["off"] <= limit("off", FACTOR) and ours["worst_off"] <= limit("worst_off", 2 * FACTOR)
             and ours["y_off"] <= limit("y_off", 2 * FACTOR))
    return right, text


def judge_curve(ours, nvidia, all_nvidias):
    """Ours against NVIDIA's of the same way. Training magnifies roundings: it may be off by what NVIDIA's own ways are."""
    spread = max(filter(math.isfinite, (apart(a, b) for a, b in itertools.combinations(all_nvidias, 2))), default=0.0)
    distance, last = apart(ours, nvidia), smooth(nvidia)[-1]
    text = (f"loss {ours[0]:.3f} -> {smooth(ours)[-1]:.3f} (NVIDIA's {last:.3f}), at most {distance:.3f} from NVIDIA's "
            f"(its {len(all_nvidias)} ways {spread:.3f})")
    if last > 0.9 * nvidia[0]:
        return False, f"{text}; NVIDIA's does not learn, so that this shows nothing"
    right = distance <= 2 * spread + 0.05 * nvidia[0]
    learns = math.isfinite(distance) and smooth(ours)[-1] <= 0.9 * ours[0]
    if not right and learns and len(all_nvidias) < 2:
        return None, f"{text}; one way of NVIDIA's does not tell how far right ones go apart"
    return right, text


def judge(library, precision, ours, nvidia, rounded=()):
    """(way, right, sentence) of all ways of one network in one precision; right is None for what was skipped. Both sides are
    answers by (API, choice); `rounded` as judge_step takes it."""
    parts = [part for answer in nvidia.values() for part in answer.get("layouts", {}).values()]
    steps, curves = ([part[key] for part in parts if key in part] for key in ("step", "curve"))
    for way, answer in ours.items():
        name, other = " ".join(way), nvidia[way]
        if "not_begun" in answer or "not_begun" in other:
            yield name, None, "not begun in time"
            continue
        if answer.get("libraries") and os.path.abspath(library) not in answer["libraries"]:
            yield name, False, f"the process had {answer['libraries']} and not {library}"
            continue
        for side, each in (("ours", answer), ("NVIDIA's", other)):
            if "died" in each:
                yield name, False, f"{side}: {each['died']}"
        for layout, mine in answer.get("layouts", {}).items():
            theirs = other.get("layouts", {}).get(layout, {})
            if "error" in mine and mine["error"] == theirs.get("error"):
                yield f"{name} {layout}", None, f"refused by both: {mine['error']}"
                continue
            for side, part in (("ours", mine), ("NVIDIA's", theirs)):
                if "error" in part:
                    yield f"{name} {layout}", False, f"{side}: {part['error']}"
            if "step" in mine and "step" in theirs:
                right, text = judge_step(precision, mine["step"], theirs["step"], steps, list(rounded))
                yield f"{name} {layout}", right, f"{text}; {seconds_of(mine)} (NVIDIA's {seconds_of(theirs)})"
            if "curve" in mine and "curve" in theirs:
                yield f"{name} {layout} curve", *judge_curve(mine["curve"], theirs["curve"], curves)


def seconds_of(answer):
    return "s: " + ", ".join(f"{name} {value}" for name, value in answer["seconds"].items())


# ---- what is asked ---------------------------------------------------------------------------------------------


def ways(only):
    """(network, precision, API, choice) -> layouts. One API after the other, whose kernels are the same for the most part."""
    chosen = {}
    for api, choice, name, precision, layout in itertools.product(APIS, CHOICES, zoo.MODELS, PRECISIONS, LAYOUTS):
        if re.search(only, f"{name} {precision} {api} {choice} {layout}"):
            chosen.setdefault((name, precision, api, choice), []).append(layout)
    return chosen


def train_request(way, layouts, folder, options, until, is_nvidia):
    name, precision, api, choice = way
    is_draw = is_nvidia and (api, choice) == ("v8", "heuristics")  # for what NVIDIA's ways differ by
    curves = (LAYOUTS if is_draw else [PRECISIONS[precision][3]]) if options.steps else []
    return {"what": "train", "model": name, "precision": precision, "api": api, "choice": choice, "layouts": layouts,
            "curves": curves, "steps": options.steps, "reference": os.path.join(folder, name), "until": until}


def main(options):
    until = time.monotonic() + options.seconds
    todo = ways(options.only)
    with tempfile.TemporaryDirectory() as folder:
        front = in_front.environment(options.library)
        names = sorted({way[0] for way in todo})
        exact = [{"what": "reference", "model": name, "reference": os.path.join(folder, name), "until": until} for name in names]
        ours, nvidias = ([train_request(*way, folder, options, until, side) for way in todo.items()] for side in (False, True))
        ours = forks.Side(__file__, front, options.jobs).ask(ours)
        theirs = forks.Side(__file__, dict(os.environ), max(options.jobs // 2, 2)).ask(exact + nvidias)
        rounded = {}
        for name, future in zip(names, theirs):
            answer = future.result()
            rounded[name] = answer.get("rounded", [])
            print(f"{name} in float64: {answer.get('died') or answer.get('seconds')}", flush=True)
        return report(options, todo, ours, theirs[len(exact):], rounded)


def report(options, todo, ours, theirs, rounded):
    """Judges each network and precision when all of it is there."""
    ways_of, verdicts = {}, Verdicts(options.out)
    for way, *futures in zip(todo, ours, theirs):
        ways_of.setdefault(way[:2], {})[way[2:]] = futures
    for key in when_complete({key: [future for pair in group.values() for future in pair] for key, group in ways_of.items()}):
        mine, nvidia = ({way: pair[i].result() for way, pair in ways_of[key].items()} for i in (0, 1))
        for way in mine:
            print("        " + " ".join((*key, *way)) + ": " + "; NVIDIA's ".join(
                f"{side[way].get('wall_s')} s, CPU {side[way].get('cpu_s')}" for side in (mine, nvidia)), flush=True)
        for way, right, text in judge(options.library, key[1], mine, nvidia, rounded[key[0]]):
            verdicts.add(f"{' '.join(key)} {way}", right, text)
        verdicts.keep([{"way": [*key, *way], "ours": mine[way], "nvidia": nvidia[way]} for way in mine])
    return verdicts.end()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(int(sys.argv[2]))
        sys.exit(0)
    options = parser(__doc__, "network precision v8|v7 heuristics|benchmark layout")
    options.add_argument("--steps", type=int, default=50)
    sys.exit(main(options.parse_args()))
