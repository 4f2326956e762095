#!/usr/bin/env python3
"""Unmodified JAX with Kiln's libcudnn.so.9 in front of NVIDIA's, and with NVIDIA's.

    python3 tests/pytorch/jax_programs.py PATH/libcudnn.so.9 [--only REGEX] [--seconds N] [--out FILE]

Needs JAX with its CUDA plug-in.

    lstm         jax.experimental.rnn, one and two layers, both ways, of equal and of different lengths
    convolution  jax.lax.conv_general_dilated, plain, strided, dilated, in groups
    attention    jax.nn.dot_product_attention(implementation="cudnn"), with biases, masks, lengths, windows, shared keys

each with all gradients, against JAX's own in float64 on the CPU: no further off than NVIDIA's, up to operators.py's
FACTOR and ROUNDINGS. A process for each library. The last line is "N passed, N failed, N skipped".
"""
import json
import os
import re
import subprocess
import sys
import time

import in_front
from operators import ROUNDING, judge_case
from verdicts import Verdicts, parser

MARK = "ANSWER "


# ---- in a process of one library ---------------------------------------------------------------------------------


def off(numpy, got, want):
    """[relative to the norm, the farthest relative to the largest]"""
    got, want = (numpy.asarray(each).astype(numpy.float64) for each in (got, want))
    if got.shape != want.shape:
        raise AssertionError(f"a result is {got.shape} and should be {want.shape}")
    difference = numpy.where(numpy.isnan(got) & ~numpy.isnan(want), numpy.inf, numpy.abs(got - want))
    return [float(numpy.linalg.norm(difference) / max(numpy.linalg.norm(want), 1e-300)), float(difference.max() / max(numpy.abs(want).max(), 1e-300))]


class Runner:
    def __init__(self):
        import jax
        import numpy

        jax.config.update("jax_enable_x64", True)
        self.jax, self.numpy, self.random = jax, numpy, numpy.random.default_rng(3)
        self.cpu, self.gpu = jax.devices("cpu")[0], jax.devices("cuda")[0]

    def draw(self, *shape):
        return self.random.standard_normal(shape)

    def compare(self, function, inputs, kind, exact=None):
        """How far results and gradients of random sums of them are off."""
        inputs = [x.astype(kind) if x.dtype == self.numpy.float64 else x for x in inputs]
        floating = [i for i, x in enumerate(inputs) if self.jax.numpy.issubdtype(x.dtype, self.jax.numpy.floating)]
        weights = {}

        def run(call, device, cast):
            with self.jax.default_device(device):
                given = [self.jax.device_put(x.astype(cast) if i in floating else x, device) for i, x in enumerate(inputs)]

                def total(*leaves):
                    y = call(*leaves)
                    y = y if isinstance(y, (tuple, list)) else [y]
                    for i, each in enumerate(y):
                        weights.setdefault(i, self.draw(*each.shape).astype(kind))
                    return sum((each.astype(cast) * weights[i].astype(cast)).astype(self.numpy.float64).sum() for i, each in enumerate(y)), y

                (_, y), slopes = self.jax.value_and_grad(total, argnums=tuple(floating), has_aux=True)(*given)
                return {**{f"y{i}": each for i, each in enumerate(y)}, **{f"d{i}": each for i, each in zip(floating, slopes)}}

        want, got = run(exact or function, self.cpu, self.numpy.float64), run(function, self.gpu, kind)
        return {"off": {name: off(self.numpy, got[name], want[name]) for name in want}, "strides": []}


def lstm_cases(run):
    from jax.experimental import rnn

    jnp = run.jax.numpy
    for name, inputs, hidden, layers, both, lengths in (("plain", 5, 7, 1, False, [9] * 4), ("both_ways", 6, 8, 1, True, [9] * 4),
                                                        ("two_layers", 5, 7, 2, False, [9] * 4), ("ragged", 5, 7, 1, False, [9, 3, 1, 7]),
                                                        ("ragged_two_layers_both_ways", 8, 16, 2, True, [9, 3, 1, 7]),
                                                        ("wide", 64, 128, 2, True, [20, 11, 20, 5])):
        batch, steps, ways = len(lengths), max(lengths), 2 if both else 1
        count = rnn.get_num_params_in_lstm(inputs, hidden, layers, both)
        weights = run.random.uniform(-1, 1, count) / hidden**0.5
        arrays = [run.draw(batch, steps, inputs), run.draw(ways * layers, batch, hidden), run.draw(ways * layers, batch, hidden), weights,
                  run.numpy.array(lengths, run.numpy.int32)]
        sizes = {"input_size": inputs, "hidden_size": hidden, "num_layers": layers, "dropout": 0.0, "bidirectional": both}

        def cudnn(x, h, c, w, lengths, sizes=sizes):
            return rnn.lstm(x, h, c, w, lengths, *sizes.values(), run.jax.lax.Precision.HIGHEST)

        def exact(x, h, c, w, lengths, sizes=sizes):
            unpacked = rnn.unpack_lstm_weights(w, *[sizes[key] for key in ("input_size", "hidden_size", "num_layers", "bidirectional")])
            y, h, c = rnn.lstm_ref(x, h, c, *unpacked, lengths, *sizes.values())
            seen = (jnp.arange(x.shape[1])[None, :] < lengths[:, None])[..., None]
            return jnp.where(seen, y, 0), h, c

        yield name, lambda a=arrays, c=cudnn, e=exact: run.compare(c, a, run.numpy.float32, e)


def convolution_cases(run):
    rows = {"plain": ((4, 8, 14, 13), (16, 8, 3, 3), {"window_strides": (1, 1), "padding": "SAME"}),
            "strided": ((4, 8, 14, 13), (16, 8, 3, 3), {"window_strides": (2, 2), "padding": "VALID"}),
            "dilated": ((4, 8, 14, 13), (16, 8, 3, 3), {"window_strides": (1, 1), "padding": "SAME", "rhs_dilation": (2, 2)}),
            "groups": ((4, 8, 14, 13), (16, 2, 3, 3), {"window_strides": (1, 1), "padding": "SAME", "feature_group_count": 4}),
            "transposed": ((4, 8, 14, 13), (16, 8, 3, 3), {"window_strides": (1, 1), "padding": ((1, 2), (1, 2)), "lhs_dilation": (2, 2)}),
            "volumes": ((2, 4, 6, 7, 5), (8, 4, 3, 3, 3), {"window_strides": (1, 1, 1), "padding": "SAME"})}
    for kind in ("float32", "float16", "bfloat16"):
        for name, (x, w, options) in rows.items():
            def convolve(x, w, options=options):
                return run.jax.lax.conv_general_dilated(x, w, precision=run.jax.lax.Precision.HIGHEST, **options)

            arrays = [run.draw(*x), run.draw(*w) / run.numpy.prod(w[1:])**0.5]
            yield f"{kind} {name}", lambda a=arrays, c=convolve, kind=kind: run.compare(c, a, run.jax.numpy.dtype(kind))


def attention_cases(run):
    np = run.numpy
    seen = np.random.default_rng(4).random((2, 4, 96, 160)) > 0.3
    seen[..., 0] = True
    rows = {"plain": ((2, 128, 4, 64), None, {}), "causal": ((2, 128, 4, 128), None, {"is_causal": True}),
            "keys": ((2, 96, 4, 64), (2, 160, 4, 64), {}), "shared_keys": ((2, 128, 8, 64), (2, 128, 2, 64), {"is_causal": True}),
            "mask": ((2, 96, 4, 64), (2, 160, 4, 64), {"mask": seen}), "one_mask": ((2, 96, 4, 64), (2, 160, 4, 64), {"mask": seen[:1, :1]}),
            "bias": ((2, 96, 4, 64), (2, 160, 4, 64), {"bias": True}),
            "lengths": ((2, 128, 4, 64), None, {"query_seq_lengths": np.array([128, 70], np.int32), "key_value_seq_lengths": np.array([50, 128], np.int32)}),
            "window": ((2, 256, 4, 64), None, {"is_causal": True, "local_window_size": (40, 0)}), "scale": ((2, 64, 4, 64), None, {"scale": 0.3})}
    for kind in ("float16", "bfloat16"):
        for name, (q, kv, options) in rows.items():
            options, arrays = dict(options), [run.draw(*q), run.draw(*(kv or q)), run.draw(*(kv or q))]
            if options.pop("bias", False):
                arrays.append(run.draw(1, q[2], q[1], (kv or q)[1]))

            def attend(q, k, v, bias=None, options=options, implementation=None):
                return run.jax.nn.dot_product_attention(q, k, v, bias, implementation=implementation, **options)

            def cudnn(*operands, attend=attend):
                return run.jax.jit(lambda *each: attend(*each, implementation="cudnn"))(*operands)

            yield f"{kind} {name}", lambda a=arrays, c=cudnn, e=attend, kind=kind: run.compare(c, a, run.jax.numpy.dtype(kind), lambda *each: e(*each, implementation="xla"))


FAMILIES = {"lstm": lstm_cases, "convolution": convolution_cases, "attention": attention_cases}


def serve(only):
    run, answer, begin = Runner(), {"cases": {}}, time.monotonic()
    for family, cases in FAMILIES.items():
        for name, case in cases(run):
            if not re.search(only, f"{family} {name}"):
                continue
            try:
                row = case()
            except Exception as error:
                row = {"error": f"{type(error).__name__}: {str(error)[:400]}"}
            row["at_s"] = round(time.monotonic() - begin, 1)
            answer["cases"][f"{family} {name}"] = row
            answer["libraries"] = in_front.loaded_cudnn()
            print(MARK + json.dumps(answer), flush=True)


# ---- judging -----------------------------------------------------------------------------------------------------


def answer_of(process, seconds):
    try:
        out = process.communicate(timeout=max(seconds, 0))[0]
    except subprocess.TimeoutExpired:
        process.kill()
        out = process.communicate()[0]
    answers = [line[len(MARK):] for line in out.splitlines() if line.startswith(MARK)]
    answer = json.loads(answers[-1]) if answers else {"cases": {}}
    if process.returncode != 0:
        answer["died"] = f"exit status {process.returncode}"
    return answer


def rounding_of(name):
    return ROUNDING[next((kind for kind in ROUNDING if kind in name), "float32")]


def judge(library, ours, nvidia):
    """NVIDIA's own library may be open too, which JAX opens by its path; its parts are not, when nobody calls it."""
    loaded = ours.get("libraries", [])
    others = [path for path in loaded if os.path.basename(path).startswith("libcudnn_")]
    if loaded and (os.path.abspath(library) not in loaded or others):
        yield "libraries", False, f"the process had {loaded}"
    for side, answer in (("ours", ours), ("NVIDIA's", nvidia)):
        if "died" in answer:
            yield "process", False, f"{side} after {len(answer['cases'])} cases: {answer['died']}"
    for name, case in ours["cases"].items():
        if name in nvidia["cases"]:
            yield name, *judge_case(rounding_of(name), case, nvidia["cases"][name])


def main(options):
    until = time.monotonic() + options.seconds
    answers = [answer_of(process, until - time.monotonic()) for process in [
        subprocess.Popen([sys.executable, os.path.abspath(__file__), "--serve", options.only], env={**environment, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
                         stdout=subprocess.PIPE, text=True) for environment in (in_front.environment(options.library), os.environ)]]
    verdicts = Verdicts(options.out)
    for name, right, text in judge(options.library, *answers):
        verdicts.add(name, right, text)
    verdicts.keep([{"ours": answers[0], "nvidia": answers[1]}])
    return verdicts.end()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
        sys.exit(0)
    sys.exit(main(parser(__doc__, "family case").parse_args()))
