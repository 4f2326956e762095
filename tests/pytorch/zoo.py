"""The networks of models.py.

All but the U-Net are torchvision's. What draws random numbers in training (dropout, stochastic depth) is turned
off, that one step has one answer.
"""
import collections
import functools

CLASSES = 10

# maker of the module, shape of one batch of images, learning rate with which fifty steps of SGD learn, and the norm that
# gradients are cut down to, where a network without normalisation would run away
Network = collections.namedtuple("Network", "maker shape rate longest", defaults=[None])


def unet(torch):
    """Two levels, channels doubled going down, transposed convolutions going up; one logit a class and pixel."""
    nn = torch.nn

    def twice(c, k):
        layers = []
        for source in (c, k):
            layers += [nn.Conv2d(source, k, 3, padding=1, bias=False), nn.BatchNorm2d(k), nn.ReLU()]
        return nn.Sequential(*layers)

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down1, self.down2, self.bottom = twice(3, 32), twice(32, 64), twice(64, 128)
            self.up2, self.up1 = nn.ConvTranspose2d(128, 64, 2, 2), nn.ConvTranspose2d(64, 32, 3, 2, 1, 1)
            self.join2, self.join1 = twice(128, 64), twice(64, 32)
            self.head = nn.Conv2d(32, CLASSES, 1)
            self.pool = nn.MaxPool2d(2)

        def forward(self, x):
            a = self.down1(x)
            b = self.down2(self.pool(a))
            y = self.bottom(self.pool(b))
            y = self.join2(torch.cat([self.up2(y), b], 1))
            y = self.join1(torch.cat([self.up1(y), a], 1))
            return self.head(y).mean((2, 3))

    return UNet()


def _vision(name, **settings):
    def make(torch):
        import torchvision

        maker = getattr(torchvision.models, name, None) or getattr(torchvision.models.video, name)
        return maker(weights=None, num_classes=CLASSES, **settings)

    return make


MODELS = {
    "resnet50": Network(_vision("resnet50"), (8, 3, 96, 96), 0.001),
    "unet": Network(unet, (4, 3, 72, 56), 0.01),
    "resnet18_3d": Network(_vision("r3d_18"), (4, 3, 8, 56, 56), 0.001),
    "vgg16": Network(_vision("vgg16", dropout=0.0), (8, 3, 96, 96), 0.005, 1.0),
    "resnext50": Network(_vision("resnext50_32x4d"), (8, 3, 96, 96), 0.001),
    "densenet121": Network(_vision("densenet121"), (8, 3, 96, 96), 0.001),
    "efficientnet_b0": Network(_vision("efficientnet_b0", dropout=0.0, stochastic_depth_prob=0.0), (8, 3, 96, 96), 0.001),
}


def make(torch, name):
    """The model in float32 on the CPU, of the same weights in every process."""
    torch.manual_seed(7)
    model = MODELS[name].maker(torch)
    model.train()
    return model


@functools.lru_cache(maxsize=None)
def batch(torch, name, index):
    """Images and labels number `index`: each class has a colour and a pattern of its own under noise, which fifty steps
    can learn."""
    shape = MODELS[name].shape
    generator = torch.Generator().manual_seed(1000 + index)
    labels = torch.randint(0, CLASSES, shape[:1], generator=generator)
    classes = torch.Generator().manual_seed(5)
    colours = torch.randn(CLASSES, shape[1], *[1] * len(shape[2:]), generator=classes)
    patterns = colours + torch.randn(CLASSES, *shape[1:], generator=classes)
    return torch.randn(shape, generator=generator) + patterns[labels], labels
