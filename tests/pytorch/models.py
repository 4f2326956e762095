#!/usr/bin/env python3
"""Whole networks in unmodified PyTorch: Kiln's libcudnn.so.9 beside NVIDIA's.

    python3 tests/pytorch/models.py PATH/libcudnn.so.9 [--only REGEX] [--jobs N] [--steps N] [--out FILE]

Each of zoo.py's networks, in float32, TF32 and AMP with float16 and bfloat16, contiguous and channels last,
torch.backends.cudnn.benchmark off and on, and with TORCH_CUDNN_V8_API_DISABLED=1:

    gradients  of one step against float64 without cuDNN: no further off than NVIDIA's are, up to FACTOR and ROUNDINGS
    curve      losses of --steps training steps follow NVIDIA's, up to what NVIDIA's own two ways differ by

Every network and precision is a process for each library; --jobs of them at a time. The last line is
"N passed, N failed"; what cannot run has failed. --out writes what was measured as JSON.
"""
import argparse
import concurrent.futures
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time

import in_front
import zoo

# precision -> (type of autocast or None, TF32 allowed, one rounding of it)
PRECISIONS = {"float32": (None, False, 2.0**-24), "tf32": (None, True, 2.0**-11), "float16": ("float16", True, 2.0**-11),
              "bfloat16": ("bfloat16", True, 2.0**-8)}
# Errors of two right libraries are draws of one distribution: that of all gradients together, of some 1e5 numbers
# and more, comes out alike. 1.26 and 0.85 of NVIDIA's were seen of two networks in float32.
FACTOR, ROUNDINGS = 1.5, 4
LOSS_SCALE = 1024.0  # for float16; a power of two, so that it costs nothing
BENCHMARK_LIMIT = 3  # plans that PyTorch times for one convolution


def step_loss(torch, model, images, labels, precision):
    cast = PRECISIONS[precision][0]
    with torch.autocast("cuda", dtype=getattr(torch, cast or "float16"), enabled=cast is not None):
        y = model(images)
    return torch.nn.functional.cross_entropy(y.float() if y.dtype != torch.float64 else y, labels)


def gradients(torch, model):
    return {name: p.grad.detach().double().cpu() for name, p in model.named_parameters()}


def reference(torch, name):
    """In float64, without cuDNN. On the GPU, where it takes seconds, by PyTorch's own kernels."""
    model = zoo.make(torch, name).double().cuda()
    images, labels = (t.cuda() for t in zoo.batch(torch, name, 0))
    with torch.backends.cudnn.flags(enabled=False):
        loss = torch.nn.functional.cross_entropy(model(images.double()), labels)
        loss.backward()
    return {"loss": loss.item(), "gradients": gradients(torch, model)}


def layouts(torch, name):
    last = torch.channels_last_3d if len(zoo.MODELS[name][1]) == 5 else torch.channels_last
    return {"contiguous": torch.contiguous_format, "channels_last": last}


def one_step(torch, name, precision, layout, want):
    """Errors of the gradients, relative to the norm: of all together, and the worst parameter's."""
    model = zoo.make(torch, name).cuda().to(memory_format=layout)
    images, labels = (t.cuda() for t in zoo.batch(torch, name, 0))
    scale = LOSS_SCALE if precision == "float16" else 1.0
    loss = step_loss(torch, model, images.to(memory_format=layout), labels, precision)
    (loss * scale).backward()
    got = {key: g / scale for key, g in gradients(torch, model).items()}
    off = {key: (got[key] - g).square().sum().item() for key, g in want["gradients"].items()}
    size = {key: g.square().sum().item() for key, g in want["gradients"].items()}
    total = sum(size.values())
    worst = max(off, key=lambda key: off[key] / max(size[key], 1e-6 * total))
    return {"loss": loss.item(), "loss_off": abs(loss.item() - want["loss"]), "off": math.sqrt(sum(off.values()) / total),
            "worst": worst, "worst_off": math.sqrt(off[worst] / max(size[worst], 1e-6 * total))}


def curve(torch, name, precision, layout, steps):
    model = zoo.make(torch, name).cuda().to(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "float16")
    losses = []
    for i in range(steps):
        images, labels = (t.cuda() for t in zoo.batch(torch, name, i % 8))
        optimizer.zero_grad()
        loss = step_loss(torch, model, images.to(memory_format=layout), labels, precision)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


def child(request):
    """One network in one precision by the library that this process has: a JSON object on stdout."""
    import torch

    name, precision = request["model"], request["precision"]
    want = torch.load(request["reference"])
    answer = {"libraries": in_front.loaded_cudnn(), "steps": {}, "curves": {}, "errors": {}, "seconds": {}}
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = PRECISIONS[precision][1]
    torch.backends.cudnn.benchmark_limit = BENCHMARK_LIMIT
    for benchmark in (False, True):
        torch.backends.cudnn.benchmark = benchmark
        for key, layout in layouts(torch, name).items():
            way, begin = f"{key}{' benchmark' if benchmark else ''}", time.monotonic()
            try:
                answer["steps"][way] = one_step(torch, name, precision, layout, want)
                if key == request["curve"]:
                    answer["curves"][way] = curve(torch, name, precision, layout, request["steps"])
            except Exception as error:
                answer["errors"][way] = f"{type(error).__name__}: {str(error)[:500]}"
            answer["seconds"][way] = round(time.monotonic() - begin, 1)
            print("ANSWER " + json.dumps(answer), flush=True)  # the last one counts


def last_answer(text):
    lines = [line for line in text.splitlines() if line.startswith("ANSWER ") and line.endswith("}")]
    return json.loads(lines[-1][len("ANSWER "):]) if lines else None


def start(request, environment, seconds):
    """The child's last answer, with "died": why, where it did not come to its end."""
    process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--child", json.dumps(request)],
                               env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = process.communicate(timeout=seconds)
        died = f"exit status {process.returncode}: {err.strip()[-600:]}" if process.returncode else None
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        died = f"not done after {seconds} s"
    answer = last_answer(out) or {"steps": {}, "curves": {}, "errors": {}, "libraries": [], "seconds": {}}
    return {**answer, "died": died} if died else answer


def smooth(losses):
    return [sum(losses[max(0, i - 4):i + 1]) / len(losses[max(0, i - 4):i + 1]) for i in range(len(losses))]


def apart(a, b):
    """The largest distance of two curves, each the mean of five steps."""
    return max(abs(x - y) for x, y in zip(smooth(a), smooth(b)))


def judge_step(precision, ours, nvidia):
    rounding = PRECISIONS[precision][2]
    text = (f"gradients off by {ours['off']:.2e} (NVIDIA's {nvidia['off']:.2e}), worst {ours['worst_off']:.2e} in "
            f"{ours['worst']} ({nvidia['worst_off']:.2e})")
    right = (ours["off"] <= FACTOR * nvidia["off"] + ROUNDINGS * rounding
             and ours["worst_off"] <= 2 * FACTOR * nvidia["worst_off"] + ROUNDINGS * rounding
             and ours["loss_off"] <= FACTOR * nvidia["loss_off"] + ROUNDINGS * rounding * max(1.0, abs(nvidia["loss"])))
    return right, text


def judge_curves(ours, nvidia):
    """Each of our curves against NVIDIA's without benchmark; what it may be off by is what NVIDIA's two ways are."""
    base, other = [nvidia[key] for key in sorted(nvidia)]
    spread, allowed = apart(base, other), 2 * apart(base, other) + 0.05 * base[0]
    for key, losses in sorted(ours.items()):
        distance = apart(losses, base)
        learned = smooth(losses)[-1] < 0.8 * losses[0]
        yield key, distance <= allowed and learned, (
            f"loss {losses[0]:.3f} -> {smooth(losses)[-1]:.3f} (NVIDIA's {smooth(base)[-1]:.3f}), at most "
            f"{distance:.3f} from NVIDIA's (its two ways {spread:.3f})")


def judge(precision, ours, nvidia):
    """[(what, right, sentence)] of one network, precision and API."""
    for side, answer in (("ours", ours), ("NVIDIA's", nvidia)):
        if "died" in answer:
            yield side, False, answer["died"]
    for way, error in ours["errors"].items():
        yield way, False, error
    for way, step in ours["steps"].items():
        if way in nvidia["steps"]:
            right, text = judge_step(precision, step, nvidia["steps"][way])
            yield way, right, f"{text}; {ours['seconds'][way]} s ({nvidia['seconds'][way]})"
        else:
            yield way, False, f"NVIDIA's did not run: {nvidia['errors'].get(way)}"
    if len(nvidia["curves"]) == 2:
        for way, right, text in judge_curves(ours["curves"], nvidia["curves"]):
            yield f"curve {way}", right, text


def references(names, folder):
    import torch

    for name in names:
        begin = time.monotonic()
        torch.save(reference(torch, name), os.path.join(folder, name))
        print(f"{name} in float64: {time.monotonic() - begin:.1f} s", flush=True)
    torch.cuda.empty_cache()


def requests(names, only, folder, steps):
    for name in names:
        for precision in PRECISIONS:
            for api in ("v8", "v7"):
                if re.search(only, f"{name} {precision} {api}"):
                    curve_of = "channels_last" if precision in ("float16", "bfloat16") else "contiguous"
                    yield api, {"model": name, "precision": precision, "steps": steps, "curve": curve_of,
                                "reference": os.path.join(folder, name)}


def main(options):
    with tempfile.TemporaryDirectory() as folder:
        front = in_front.environment(options.library, folder)
        todo = list(requests(list(zoo.MODELS), options.only, folder, options.steps))
        references(sorted({request["model"] for _, request in todo}), folder)
        rows, failed = [], 0
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            halves = [pool.submit(start, request, {**variables, **extra}, options.seconds)
                      for api, request in todo for extra in [{"TORCH_CUDNN_V8_API_DISABLED": "1"} if api == "v7" else {}]
                      for variables in (front, dict(os.environ))]
            number = {half: i // 2 for i, half in enumerate(halves)}
            first = {}  # of the two of a request, the answer that came before the other
            for half in concurrent.futures.as_completed(halves):
                index = number[half]
                if first.setdefault(index, half) is half:
                    continue
                api, request = todo[index]
                ours, nvidia = (each.result() for each in halves[2 * index:2 * index + 2])
                if ours["libraries"] and os.path.abspath(options.library) not in ours["libraries"]:
                    ours = {**ours, "steps": {}, "died": f"it had {ours['libraries']} and not {options.library}"}
                for what, right, text in judge(request["precision"], ours, nvidia):
                    failed += not right
                    name = f"{request['model']} {request['precision']} {api} {what}"
                    rows.append({"name": name, "right": right, "text": text})
                    print(f"{'ok     ' if right else 'FAILED '} {name}: {text}", flush=True)
                if options.out:
                    with open(options.out, "w") as file:
                        json.dump({"rows": rows}, file, indent=1)
    print(f"{len(rows) - failed} passed, {failed} failed")
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(json.loads(sys.argv[2]))
        sys.exit(0)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--only", default="", help="part of 'network precision v8|v7', a regular expression")
    parser.add_argument("--jobs", type=int, default=max(2, (os.cpu_count() or 2) - 1))
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seconds", type=int, default=600, help="for one network, precision and library")
    parser.add_argument("--out")
    sys.exit(main(parser.parse_args()))
