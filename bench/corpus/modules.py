"""Small networks that no library of the table in networks.py has: U-Nets, YOLO-like detectors, vocoders, stacks of
speech layers, decoders with experts. Structure and extents are those that such networks have; weights are never used.
"""
import torch
import torch.nn.functional as F
from torch import nn


def conv_block(rank, inputs, outputs, kernel=3, stride=1, norm=True, act=nn.ReLU, **options):
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1]
    batch_norm = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[rank - 1]
    layers = [conv(inputs, outputs, kernel, stride, kernel // 2, bias=not norm, **options)]
    return nn.Sequential(*layers, *([batch_norm(outputs)] if norm else []), act())


class UNet(nn.Module):
    """Ronneberger's shape, padded, with transposed convolutions; rank 2 for images and 3 for volumes."""

    def __init__(self, rank, inputs, classes, widths):
        super().__init__()
        up = (None, nn.ConvTranspose2d, nn.ConvTranspose3d)[rank - 1]
        self.pool = (None, nn.MaxPool2d, nn.MaxPool3d)[rank - 1](2)
        ends = [inputs] + widths
        self.down = nn.ModuleList(nn.Sequential(conv_block(rank, a, b), conv_block(rank, b, b))
                                  for a, b in zip(ends, widths))
        pairs = list(zip(widths[::-1], widths[-2::-1]))
        self.up = nn.ModuleList(up(a, b, 2, 2) for a, b in pairs)
        self.merge = nn.ModuleList(nn.Sequential(conv_block(rank, 2 * b, b), conv_block(rank, b, b)) for _, b in pairs)
        self.head = (None, nn.Conv2d, nn.Conv3d)[rank - 1](widths[0], classes, 1)

    def forward(self, x):
        kept = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else self.pool(x))
            kept.append(x)
        for up, merge, skip in zip(self.up, self.merge, kept[-2::-1]):
            x = merge(torch.cat([skip, up(x)], 1))
        return self.head(x)


class CrossStage(nn.Module):
    """YOLO's C2f/C3-like block: a part of the channels goes through bottlenecks, everything is joined by a 1x1."""

    def __init__(self, inputs, outputs, depth):
        super().__init__()
        self.half = outputs // 2
        self.first = conv_block(2, inputs, outputs, 1, act=nn.SiLU)
        self.blocks = nn.ModuleList(nn.Sequential(conv_block(2, self.half, self.half, act=nn.SiLU),
                                                  conv_block(2, self.half, self.half, act=nn.SiLU))
                                    for _ in range(depth))
        self.last = conv_block(2, (2 + depth) * self.half, outputs, 1, act=nn.SiLU)

    def forward(self, x):
        parts = list(self.first(x).chunk(2, 1))
        for block in self.blocks:
            parts.append(parts[-1] + block(parts[-1]))
        return self.last(torch.cat(parts, 1))


class Yolo(nn.Module):
    """A detector with a pyramid and a decoupled head at strides 8, 16 and 32."""

    def __init__(self, width, depth, classes=80):
        super().__init__()
        w = [width * 2**i for i in range(5)]
        self.stem = conv_block(2, 3, w[0], 3, 2, act=nn.SiLU)
        self.stages = nn.ModuleList(nn.Sequential(conv_block(2, a, b, 3, 2, act=nn.SiLU), CrossStage(b, b, depth))
                                    for a, b in zip(w, w[1:]))
        self.spp = conv_block(2, w[4], w[4] // 2, 1, act=nn.SiLU)
        self.spp_out = conv_block(2, 2 * w[4], w[4], 1, act=nn.SiLU)
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.top4, self.top3 = CrossStage(w[4] + w[3], w[3], depth), CrossStage(w[3] + w[2], w[2], depth)
        self.heads = nn.ModuleList(nn.ModuleList([
            nn.Sequential(conv_block(2, c, w[2], act=nn.SiLU), conv_block(2, w[2], w[2], act=nn.SiLU),
                          nn.Conv2d(w[2], out, 1)) for out in (64, classes)]) for c in (w[2], w[3], w[4]))

    def forward(self, x):
        x, levels = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            levels.append(x)
        parts = [self.spp(levels[3])]
        for _ in range(3):
            parts.append(F.max_pool2d(parts[-1], 5, 1, 2))
        p5 = self.spp_out(torch.cat(parts, 1))
        p4 = self.top4(torch.cat([self.up(p5), levels[2]], 1))
        p3 = self.top3(torch.cat([self.up(p4), levels[1]], 1))
        return [branch(x) for x, head in zip((p3, p4, p5), self.heads) for branch in head]


class Darknet(nn.Module):
    """YOLOv3's backbone with one head: leaky ReLU, filters of 1 and 3."""

    def __init__(self, outputs=255):
        super().__init__()
        act, layers, channels = lambda: nn.LeakyReLU(0.1), [], 32
        self.stem = conv_block(2, 3, 32, act=act)
        for count in (1, 2, 8, 8, 4):
            layers.append(conv_block(2, channels, 2 * channels, 3, 2, act=act))
            channels *= 2
            layers += [nn.Sequential(conv_block(2, channels, channels // 2, 1, act=act),
                                     conv_block(2, channels // 2, channels, act=act)) for _ in range(count)]
        self.layers, self.head = nn.ModuleList(layers), nn.Conv2d(channels, outputs, 1)

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            y = layer(x)
            x = y + x if y.shape == x.shape else y
        return self.head(x)


class Vocoder(nn.Module):
    """HiFi-GAN's generator: transposed convolutions, and residual stacks of dilated ones behind each."""

    def __init__(self, width, rates, kernels, mels=80):
        super().__init__()
        self.first, ups, stacks = nn.Conv1d(mels, width, 7, 1, 3), [], []
        for rate in rates:
            ups.append(nn.ConvTranspose1d(width, width // 2, 2 * rate, rate, rate // 2))
            width //= 2
            stacks.append(nn.ModuleList(nn.ModuleList(nn.Conv1d(width, width, k, 1, d * (k - 1) // 2, d)
                                                      for d in (1, 3, 5)) for k in kernels))
        self.ups, self.stacks, self.last = nn.ModuleList(ups), nn.ModuleList(stacks), nn.Conv1d(width, 1, 7, 1, 3)

    def forward(self, x):
        x = self.first(x)
        for up, stack in zip(self.ups, self.stacks):
            x, total = up(F.leaky_relu(x, 0.1)), 0
            for convs in stack:
                y = x
                for conv in convs:
                    y = conv(F.leaky_relu(y, 0.1)) + y
                total = total + y
            x = total / len(stack)
        return torch.tanh(self.last(F.leaky_relu(x, 0.1)))


class TemporalStack(nn.Module):
    """Conv-TasNet's separator, or a QuartzNet: 1x1, dilated depthwise, 1x1, in one dimension."""

    def __init__(self, inputs, width, hidden, depth, kernel=3):
        super().__init__()
        self.encode = nn.Conv1d(1, inputs, 16, 8, bias=False)
        self.narrow = nn.Conv1d(inputs, width, 1)
        self.blocks = nn.ModuleList(nn.Sequential(
            nn.Conv1d(width, hidden, 1), nn.ReLU(), nn.BatchNorm1d(hidden),
            nn.Conv1d(hidden, hidden, kernel, 1, 2**(i % 8) * (kernel // 2), 2**(i % 8), hidden), nn.ReLU(),
            nn.BatchNorm1d(hidden), nn.Conv1d(hidden, width, 1)) for i in range(depth))
        self.decode = nn.ConvTranspose1d(inputs, 1, 16, 8, bias=False)
        self.mask = nn.Conv1d(width, inputs, 1)

    def forward(self, x):
        code = self.encode(x)
        y = self.narrow(code)
        for block in self.blocks:
            y = y + block(y)
        return self.decode(code * torch.sigmoid(self.mask(y)))


class Generator(nn.Module):
    """DCGAN's generator: 4x4 transposed convolutions of stride 2."""

    def __init__(self, latent=100, width=64):
        super().__init__()
        widths, layers = [8 * width, 4 * width, 2 * width, width], [nn.ConvTranspose2d(latent, 8 * width, 4)]
        for a, b in zip(widths, widths[1:] + [3]):
            layers += [nn.BatchNorm2d(a), nn.ReLU(), nn.ConvTranspose2d(a, b, 4, 2, 1)]
        self.layers = nn.Sequential(*layers, nn.Tanh())

    def forward(self, x):
        return self.layers(x)


class SuperResolution(nn.Module):
    """EDSR: 3x3 convolutions at one size, pixels shuffled at the end."""

    def __init__(self, width, depth, factor=2):
        super().__init__()
        self.head = nn.Conv2d(3, width, 3, 1, 1)
        self.body = nn.ModuleList(nn.Sequential(nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(),
                                                nn.Conv2d(width, width, 3, 1, 1)) for _ in range(depth))
        self.tail = nn.Sequential(nn.Conv2d(width, width * factor**2, 3, 1, 1), nn.PixelShuffle(factor),
                                  nn.Conv2d(width, 3, 3, 1, 1))

    def forward(self, x):
        x = kept = self.head(x)
        for block in self.body:
            x = x + block(x)
        return self.tail(x + kept)


class LargeFilters(nn.Module):
    """RepLKNet's shape, and MedNeXt's in three dimensions: depthwise filters as large as 31 between 1x1 convolutions.
    The first layer has filters as large as their stride."""

    def __init__(self, stages, rank=2):
        super().__init__()
        inputs, layers, conv = 3 if rank == 2 else 1, [], (nn.Conv2d, nn.Conv3d)[rank - 2]
        for index, (width, kernel) in enumerate(stages):
            factor = 4 if index == 0 and rank == 2 else 2
            layers += [conv(inputs, width, factor, factor), conv_block(rank, width, width, 1),
                       conv_block(rank, width, width, kernel, groups=width), conv_block(rank, width, width, 1)]
            inputs = width
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


class Linear8(nn.Module):
    """A linear layer with e4m3 operands and a scale for each, as inference servers run it."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, dtype=torch.float8_e4m3fn), requires_grad=False)

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1]).to(torch.float8_e4m3fn)
        scale = torch.ones((), dtype=torch.float32, device=x.device)
        y = torch._scaled_mm(rows, self.weight.t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)
        return y.reshape(*x.shape[:-1], -1)


class Experts(nn.Module):
    """A feed-forward layer of experts: each token goes to `top` of `count`, by one grouped product a matrix."""

    def __init__(self, width, hidden, count, top):
        super().__init__()
        self.router, self.top = nn.Linear(width, count, bias=False), top
        self.gate, self.up = (nn.Parameter(torch.empty(count, hidden, width)) for _ in range(2))
        self.down = nn.Parameter(torch.empty(count, width, hidden))

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        weights, _ = self.router(rows).softmax(-1).topk(self.top, -1)
        sent = rows.repeat_interleave(self.top, 0)
        ends = torch.empty(self.router.out_features, dtype=torch.int32, device=x.device)
        product = lambda t, w: torch._grouped_mm(t, w.transpose(-2, -1), offs=ends)
        y = product(F.silu(product(sent, self.gate)) * product(sent, self.up), self.down)
        return (y.view(len(rows), self.top, -1) * weights.unsqueeze(-1)).sum(1).view(x.shape)


class Decoder(nn.Module):
    """One layer of a decoder of language, and its output matrix; a layer is enough, because all are alike. A sequence
    of one token has `cached` tokens behind it."""

    def __init__(self, width, heads, kv_heads, hidden, vocabulary, head=128, cached=2048, experts=0, top=2, fp8=False):
        super().__init__()
        linear = Linear8 if fp8 else (lambda a, b: nn.Linear(a, b, bias=False))
        self.shape, self.cached = (heads, kv_heads, head), cached
        self.q, self.k, self.v = (linear(width, n * head) for n in (heads, kv_heads, kv_heads))
        self.o, self.norm1, self.norm2 = linear(heads * head, width), nn.RMSNorm(width), nn.RMSNorm(width)
        self.experts = Experts(width, hidden, experts, top) if experts else None
        if not experts:
            self.gate, self.up, self.down = linear(width, hidden), linear(width, hidden), linear(hidden, width)
        self.head = linear(width, vocabulary)

    def attend(self, x):
        batch, tokens, _ = x.shape
        heads, kv_heads, head = self.shape
        q = self.q(x).view(batch, tokens, heads, head).transpose(1, 2)
        k, v = (m(x).view(batch, tokens, kv_heads, head).transpose(1, 2) for m in (self.k, self.v))
        if tokens == 1:
            k, v = (torch.empty(batch, kv_heads, self.cached + tokens, head, dtype=x.dtype, device=x.device)
                    for _ in range(2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=tokens > 1, enable_gqa=True)
        return self.o(y.transpose(1, 2).reshape(batch, tokens, heads * head))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        y = self.norm2(x)
        x = x + (self.experts(y) if self.experts else self.down(F.silu(self.gate(y)) * self.up(y)))
        return self.head(x if self.training else x[:, -1:])
