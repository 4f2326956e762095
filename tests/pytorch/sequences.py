#!/usr/bin/env python3
"""Networks over sequences that learn, in unmodified PyTorch: Kiln's libcudnn.so.9 beside NVIDIA's.

    python3 tests/pytorch/sequences.py PATH/libcudnn.so.9 [--only REGEX] [--jobs N] [--steps N] [--seconds N] [--out FILE]

    characters   a language model: embedding, two LSTM layers, logits of the next character
    tagger       a GRU in both directions over packed sequences of different lengths
    speech       as DeepSpeech: convolutions, batch normalisation, LSTM in both directions, the CTC loss; made-up utterances
    transformer  causal attention with a mask of the padding, on the backend of cuDNN

each in float32, TF32, and AMP with float16 and bfloat16, for --steps steps. Losses follow NVIDIA's up to what NVIDIA's
and PyTorch's own kernels differ by, and fall. A process for each library and network, forked (forks.py). The last line is "N passed, N failed, N skipped".
"""
import inspect
import itertools
import os
import re
import sys
import time

import forks
import in_front
from models import judge_curve
from verdicts import Verdicts, parser, when_complete

# precision -> (type of autocast or None, TF32 allowed)
PRECISIONS = {"float32": (None, False), "tf32": (None, True), "float16": ("float16", True), "bfloat16": ("bfloat16", True)}
LOSS_SCALE = 256.0  # for float16


# ---- networks: (torch, step) -> loss of a batch that is the same in every process --------------------------------


def characters(torch):
    """The text of a module of Python's library."""
    import argparse

    nn, text = torch.nn, inspect.getsource(argparse)
    letters = sorted(set(text))
    codes = torch.tensor([letters.index(letter) for letter in text])
    embed, lstm, head = nn.Embedding(len(letters), 64), nn.LSTM(64, 192, 2), nn.Linear(192, len(letters))
    net = nn.ModuleList([embed, lstm, head])

    def loss(step):
        starts = torch.randint(0, len(codes) - 61, (32,), generator=torch.Generator().manual_seed(step))
        rows = torch.stack([codes[start:start + 61] for start in starts], 1).cuda()
        y, _ = lstm(embed(rows[:-1]))
        return nn.functional.cross_entropy(head(y).flatten(0, 1).float(), rows[1:].flatten())

    return net, loss, 3e-3


def tagger(torch):
    """A word's tag says whether the word before it is greater, and whether the one behind it is."""
    nn, words, tags = torch.nn, 40, 4
    embed, gru, head = nn.Embedding(words, 32), nn.GRU(32, 48, 2, bidirectional=True), nn.Linear(96, tags)
    net = nn.ModuleList([embed, gru, head])

    def loss(step):
        generator = torch.Generator().manual_seed(step)
        lengths = torch.randint(3, 26, (24,), generator=generator)
        lengths[0] = 25
        x = torch.randint(0, words, (25, 24), generator=generator)
        wanted = 2 * (x.roll(1, 0) > x) + 1 * (x.roll(-1, 0) > x)
        packed = nn.utils.rnn.pack_padded_sequence(embed(x.cuda()), lengths, enforce_sorted=False)
        y, _ = nn.utils.rnn.pad_packed_sequence(gru(packed)[0])
        inner = (torch.arange(25)[:, None] > 0) & (torch.arange(25)[:, None] < lengths - 1)
        return nn.functional.cross_entropy(head(y).float()[inner.cuda()], wanted[inner].cuda())

    return net, loss, 5e-3


def speech(torch):
    """A word is a pattern of 20 frequencies for 6 to 11 frames, under noise."""
    nn, words = torch.nn, 12
    convolutions = nn.Sequential(nn.Conv2d(1, 16, (5, 5), (2, 1), 2, bias=False), nn.BatchNorm2d(16), nn.Hardtanh(0, 20),
                                 nn.Conv2d(16, 16, (5, 5), (2, 2), 2, bias=False), nn.BatchNorm2d(16), nn.Hardtanh(0, 20))
    lstm, head = nn.LSTM(80, 96, 2, bidirectional=True), nn.Linear(192, words)
    net = nn.ModuleList([convolutions, lstm, head])
    patterns = torch.randn(words, 20, generator=torch.Generator().manual_seed(4))

    def batch(step):
        generator = torch.Generator().manual_seed(step)
        labels, spoken = [], torch.randn(16, 1, 20, 120, generator=generator) * 0.3
        for b in range(16):
            at, said = 0, []
            while at < 100:
                word = int(torch.randint(1, words, (1,), generator=generator))
                length = int(torch.randint(6, 12, (1,), generator=generator))
                spoken[b, 0, :, at:at + length] += patterns[word, :, None]
                said.append(word)
                at += length + 3
            labels.append(said)
        return spoken, labels

    def loss(step):
        spoken, labels = batch(step)
        x = convolutions(spoken.cuda())  # batch, channel, frequency, frame
        y, _ = lstm(x.flatten(1, 2).permute(2, 0, 1))
        y = torch.log_softmax(head(y).float(), -1)
        return nn.functional.ctc_loss(y, torch.tensor(sum(labels, []), dtype=torch.int32), [y.shape[0]] * 16, [len(each) for each in labels])

    return net, loss, 3e-3


def transformer(torch):
    """Two blocks, over text as `characters`; sequences end early, and the keys behind are masked."""
    import argparse

    nn, text, size, heads, steps = torch.nn, inspect.getsource(argparse), 128, 4, 64
    letters = sorted(set(text))
    codes = torch.tensor([letters.index(letter) for letter in text])

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(size), nn.LayerNorm(size)])
            self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
            self.inner = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))

        def forward(self, x, mask):
            q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, heads, size // heads)).permute(2, 0, 3, 1, 4)
            y = attend(q, k, v, mask)
            x = x + self.out(y.transpose(1, 2).flatten(2))
            return x + self.inner(self.norms[1](x))

    def attend(q, k, v, mask):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        # cuDNN's attention is of 16 bits.
        fused = torch.backends.cudnn.enabled and q.dtype in (torch.float16, torch.bfloat16)
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION if fused else SDPBackend.MATH):
            return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    embed, places, head = nn.Embedding(len(letters), size), nn.Embedding(steps, size), nn.Linear(size, len(letters))
    blocks = nn.ModuleList([Block(), Block()])

    def loss(step):
        generator = torch.Generator().manual_seed(step)
        starts = torch.randint(0, len(codes) - steps - 1, (16,), generator=generator)
        rows = torch.stack([codes[start:start + steps + 1] for start in starts]).cuda()
        lengths = torch.randint(8, steps + 1, (16,), generator=generator).cuda()
        inside = torch.arange(steps, device="cuda") < lengths[:, None]
        mask = inside[:, None, None, :] & torch.ones(steps, steps, dtype=torch.bool, device="cuda").tril()
        x = embed(rows[:, :-1]) + places(torch.arange(steps, device="cuda"))
        for block in blocks:
            x = block(x, mask)
        return nn.functional.cross_entropy(head(x).float()[inside], rows[:, 1:][inside])

    return nn.ModuleList([embed, places, head, blocks]), loss, 2e-3


NETWORKS = {each.__name__: each for each in (characters, tagger, speech, transformer)}


# ---- in a forked process -----------------------------------------------------------------------------------------


def train(request, tell):
    import torch

    answer = {"libraries": in_front.loaded_cudnn(), "curves": {}}
    begin = time.monotonic()
    for precision in request["precisions"]:
        cast, torch.backends.cudnn.allow_tf32 = PRECISIONS[precision]
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32
        for own in (False, True) if request["own"] else (False,):
            with torch.backends.cudnn.flags(enabled=not own, allow_tf32=PRECISIONS[precision][1]):
                answer["curves"][f"{precision}{' own' if own else ''}"] = curve(torch, request["network"], cast, request["steps"])
            tell({**answer, "seconds": round(time.monotonic() - begin, 1)})


def curve(torch, name, cast, steps):
    torch.manual_seed(7)
    net, loss_of, rate = NETWORKS[name](torch)
    net.cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    scaler = torch.amp.GradScaler("cuda", enabled=cast == "float16", init_scale=LOSS_SCALE)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=getattr(torch, cast or "float16"), enabled=cast is not None):
            loss = loss_of(step)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
    return [round(loss.item(), 5) for loss in losses]


def serve(jobs):
    import torch

    torch.set_num_threads(1)  # a pool of threads would not survive a fork
    forks.serve(train, jobs)


# ---- judging -----------------------------------------------------------------------------------------------------


def judge(library, precisions, ours, nvidia):
    if "not_begun" in ours or "not_begun" in nvidia:
        yield "", None, "not begun in time"
        return
    if ours.get("libraries") and os.path.abspath(library) not in ours["libraries"]:
        yield "", False, f"the process had {ours['libraries']} and not {library}"
        return
    for side, answer in (("ours", ours), ("NVIDIA's", nvidia)):
        if "died" in answer:
            yield "", False, f"{side}: {answer['died']}"
    for precision in precisions:
        mine, theirs = (side.get("curves", {}).get(precision) for side in (ours, nvidia))
        right_ones = [each for key, each in nvidia.get("curves", {}).items() if key.split()[0] == precision]
        if mine and theirs:
            yield precision, *judge_curve(mine, theirs, right_ones)


def main(options):
    until = time.monotonic() + options.seconds
    chosen = {}
    for name, precision in itertools.product(NETWORKS, PRECISIONS):
        if re.search(options.only, f"{name} {precision}"):
            chosen.setdefault(name, []).append(precision)
    todo = [{"network": name, "precisions": precisions, "steps": options.steps, "until": until} for name, precisions in chosen.items()]
    sides = [forks.Side(__file__, environment, options.jobs).ask([{**request, "own": own} for request in todo])
             for environment, own in ((in_front.environment(options.library), False), (dict(os.environ), True))]
    verdicts = Verdicts(options.out)
    for i in when_complete(dict(enumerate(zip(*sides)))):
        mine, nvidia = (side[i].result() for side in sides)
        print(f"        {todo[i]['network']}: {mine.get('seconds')} s (NVIDIA's and PyTorch's own {nvidia.get('seconds')})", flush=True)
        for precision, right, text in judge(options.library, todo[i]["precisions"], mine, nvidia):
            verdicts.add(f"{todo[i]['network']} {precision}", right, text)
        verdicts.keep([{**todo[i], "ours": mine, "nvidia": nvidia}])
    return verdicts.end()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(int(sys.argv[2]))
        sys.exit(0)
    options = parser(__doc__, "network precision")
    options.add_argument("--steps", type=int, default=200)
    sys.exit(main(options.parse_args()))
