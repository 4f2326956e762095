"""The networks of the corpus, as data: who builds each, what goes in, and in which runs it is traced. A run is
`mode:batch:dtype:layout`, or `mode:batchxtokens:dtype:layout` for text; of fp8 are the operands of linear layers alone.
Called by trace.py.
"""
import dataclasses
import functools
import typing

import corpus


@dataclasses.dataclass(frozen=True)
class Run:
    mode: str  # train: forward and backward; infer: forward
    batch: int
    tokens: int
    dtype: str
    layout: str

    @property
    def trains(self):
        return self.mode == "train"

    def __str__(self):
        batch = f"{self.batch}x{self.tokens}" if self.tokens else str(self.batch)
        return f"{self.mode}:{batch}:{self.dtype}:{self.layout}"

    @staticmethod
    def parse(text):
        mode, batch, dtype, layout = text.split(":")
        batch, _, tokens = batch.partition("x")
        return Run(mode, int(batch), int(tokens or 0), dtype, layout)


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    source: str
    family: str
    kind: str  # of input
    build: typing.Callable
    inputs: list  # of (name or "" for a positional one, float or int, extents with N and T)
    run_text: str

    def runs(self):
        return [Run.parse(text) for text in self.run_text.split()]

    def network(self):
        return corpus.Network(self.name, self.source, self.family, self.kind, self.run_text)


ROWS = []


def add(name, source, family, kind, build, inputs, runs):
    ROWS.append(Row(name, source, family, kind, build, inputs, runs))


def by_name(name):
    return next(row for row in ROWS if row.name == name)


# --- images ----------------------------------------------------------------------------------------------------------
def torchvision_model(name, **options):
    import torchvision
    return torchvision.models.get_model(name, weights=None, **options)


def timm_model(name, **options):
    import timm
    return timm.create_model(name, pretrained=False, **options)


A = "train:64:f16:nhwc infer:1:f16:nhwc"
B = "train:16:bf16:nhwc infer:64:f16:nhwc"
C = "train:256:f16:nhwc infer:4:bf16:nhwc"
D = "train:16:f32:row infer:256:f16:nhwc"
E = "train:4:f16:nhwc infer:16:f16:row"
F = "train:64:bf16:nhwc infer:1:f32:row"
G = "train:16:f16:row infer:4:f16:nhwc"
H = "train:64:f32:nhwc infer:16:bf16:nhwc"

# name, family, extent of the image, runs
TORCHVISION = [
    ("resnet18", "ResNet", 224, D), ("resnet50", "ResNet", 224, C + " infer:16:f16:nhwc infer:1:f16:nhwc"),
    ("resnet101", "ResNet", 224, F), ("wide_resnet50_2", "ResNet", 224, H), ("resnext50_32x4d", "ResNeXt", 224, A),
    ("resnext101_64x4d", "ResNeXt", 224, B), ("vgg16", "VGG", 224, A), ("vgg19_bn", "VGG", 224, B),
    ("alexnet", "AlexNet", 224, C), ("squeezenet1_1", "SqueezeNet", 224, A), ("densenet121", "DenseNet", 224, A),
    ("densenet161", "DenseNet", 224, E), ("googlenet", "Inception", 224, B), ("inception_v3", "Inception", 299, A),
    ("mobilenet_v2", "MobileNet", 224, C), ("mobilenet_v3_large", "MobileNet", 224, A),
    ("mobilenet_v3_small", "MobileNet", 224, B), ("mnasnet1_0", "MobileNet", 224, D),
    ("shufflenet_v2_x1_0", "ShuffleNet", 224, A), ("shufflenet_v2_x1_5", "ShuffleNet", 224, H),
    ("efficientnet_b0", "EfficientNet", 224, "train:256:f16:nhwc infer:1:f16:nhwc"),
    ("efficientnet_b4", "EfficientNet", 380, E), ("efficientnet_v2_s", "EfficientNet", 300, A),
    ("regnet_y_3_2gf", "RegNet", 224, A), ("regnet_x_1_6gf", "RegNet", 224, F), ("regnet_y_400mf", "RegNet", 224, B),
    ("convnext_tiny", "ConvNeXt", 224, A), ("convnext_base", "ConvNeXt", 224, B), ("vit_b_16", "ViT", 224, A),
    ("vit_l_32", "ViT", 224, B), ("swin_t", "Swin", 224, A), ("swin_v2_s", "Swin", 256, B), ("maxvit_t", "MaxViT",
     224, E),
]
TIMM = [
    ("resnetv2_50x1_bit", "ResNet", 224, B), ("seresnet50", "ResNet", 224, E), ("resnest50d", "ResNet", 224, G),
    ("res2net50_26w_4s", "ResNet", 224, A), ("xception71", "Xception", 299, E), ("inception_resnet_v2", "Inception",
     299, E),
    ("inception_v4", "Inception", 299, G), ("dpn68b", "DPN", 224, D), ("hrnet_w18", "HRNet", 224, E),
    ("mobilenetv4_conv_medium", "MobileNet", 256, B), ("ghostnetv2_100", "MobileNet", 224, E),
    ("mobileone_s1", "MobileNet", 224, F), ("tinynet_a", "EfficientNet", 192, D),
    ("tf_efficientnet_lite0", "EfficientNet", 224, B), ("nfnet_f0", "NFNet", 192, E), ("regnetz_c16", "RegNet", 256, G),
    ("regnety_032", "RegNet", 288, E), ("convnextv2_tiny", "ConvNeXt", 224, C), ("convnext_nano", "ConvNeXt", 224, H),
    ("convmixer_768_32", "ConvMixer", 224, E), ("repvgg_b0", "VGG", 224, A), ("cspdarknet53", "YOLO", 256, B),
    ("darknet53", "YOLO", 256, E), ("vovnet39a", "DenseNet", 224, B), ("deit3_small_patch16_224", "ViT", 224, C),
    ("vit_large_patch14_dinov2", "ViT", 518, "train:4:bf16:row infer:1:bf16:row"), ("eva02_base_patch14_224", "ViT",
     224, E),
    ("beit_base_patch16_224", "ViT", 224, B), ("mixer_b16_224", "Mixer", 224, A), ("gmlp_s16_224", "Mixer", 224, E),
    ("coatnet_0_rw_224", "CoAtNet", 224, E), ("levit_256", "LeViT", 224, B), ("pvt_v2_b2", "PVT", 224, A),
    ("poolformer_s24", "PoolFormer", 224, E), ("edgenext_small", "EdgeNeXt", 256, D), ("fastvit_t8", "FastViT", 256, B),
    ("efficientformerv2_s1", "EfficientFormer", 224, E), ("twins_svt_small", "Twins", 224, H), ("focalnet_tiny_srf",
     "FocalNet", 224, E),
]


def image(size, channels=3):
    return [("", "float", ("N", channels, size, size))]


for _name, _family, _size, _runs in TORCHVISION:
    _options = {"init_weights": False} if _name in ("inception_v3", "googlenet") else {}
    add(_name, "torchvision", _family, "image", functools.partial(torchvision_model, _name, **_options), image(_size),
        _runs)
for _name, _family, _size, _runs in TIMM:
    add(_name, "timm", _family, "image", functools.partial(timm_model, _name), image(_size), _runs)


# --- segmentation and detection --------------------------------------------------------------------------------------
def segmentation(name):
    return torchvision_model(name, weights_backbone=None)


def detector(name):
    """The parts of a detector whose shapes data do not decide: backbone, pyramid and heads."""
    from torch import nn

    class Parts(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.backbone, self.head = model.backbone, model.head if hasattr(model, "head") else model.rpn.head
            self.boxes = getattr(getattr(model, "roi_heads", None), "box_head", None)
            self.masks = getattr(getattr(model, "roi_heads", None), "mask_head", None)

        def forward(self, x):
            levels = list(self.backbone(x).values())
            outputs = [self.head(levels)]
            if self.boxes is not None:
                outputs.append(self.boxes(x.new_empty(512 * len(x), 256, 7, 7)))
            if self.masks is not None:
                outputs.append(self.masks(x.new_empty(64 * len(x), 256, 14, 14)))
            return outputs

    return Parts(torchvision_model(name, weights_backbone=None))


for _name, _size, _runs in [("fcn_resnet50", 520, "train:4:f16:nhwc infer:1:f16:nhwc"),
                            ("deeplabv3_resnet101", 520, "train:4:bf16:nhwc infer:1:f16:row"),
                            ("deeplabv3_mobilenet_v3_large", 520, "train:16:f16:nhwc infer:1:f32:row"),
                            ("lraspp_mobilenet_v3_large", 520, "train:16:bf16:nhwc infer:4:f16:nhwc")]:
    add(_name, "torchvision", "segmentation", "image", functools.partial(segmentation, _name), image(_size), _runs)
for _name, _size, _runs in [("retinanet_resnet50_fpn", 800, "train:4:f16:nhwc infer:1:f16:nhwc"),
                            ("fcos_resnet50_fpn", 800, "train:4:bf16:nhwc infer:1:bf16:nhwc"),
                            ("maskrcnn_resnet50_fpn_v2", 800, "train:4:f16:row infer:1:f16:nhwc"),
                            ("ssd300_vgg16", 300, "train:16:f16:nhwc infer:4:f16:nhwc"),
                            ("ssdlite320_mobilenet_v3_large", 320, "train:64:f16:nhwc infer:1:f16:nhwc")]:
    add(_name, "torchvision", "detection", "image", functools.partial(detector, _name), image(_size), _runs)


# --- modules of the corpus -------------------------------------------------------------------------------------------
def module(name, *args, **kwargs):
    import modules
    return getattr(modules, name)(*args, **kwargs)


MODULES = [
    ("unet_image", "U-Net", "image", ("UNet", 2, 3, 2, [64, 128, 256, 512, 1024]), (3, 512, 512),
     "train:4:f16:nhwc infer:1:f16:row"),
    ("unet_narrow", "U-Net", "image", ("UNet", 2, 1, 4, [24, 48, 96, 192, 384]), (1, 384, 384),
     "train:16:f16:nhwc train:4:f32:row"),
    ("unet_volume", "3-D", "volume", ("UNet", 3, 1, 3, [32, 64, 128, 256, 320]), (1, 96, 96, 96),
     "train:4:f16:nhwc infer:1:f16:nhwc"),
    ("unet_volume_odd", "3-D", "volume", ("UNet", 3, 4, 4, [30, 60, 120, 240]), (4, 128, 96, 80),
     "train:1:bf16:row infer:1:f32:row"),
    ("yolo_n", "YOLO", "image", ("Yolo", 16, 1), (3, 640, 640), "train:16:f16:nhwc infer:1:f16:nhwc"),
    ("yolo_m", "YOLO", "image", ("Yolo", 48, 2), (3, 640, 640), "train:16:bf16:nhwc infer:4:f16:nhwc"),
    ("yolo_l", "YOLO", "image", ("Yolo", 64, 3), (3, 640, 640), "train:4:f16:nhwc infer:1:f16:row"),
    ("yolov3", "YOLO", "image", ("Darknet",), (3, 416, 416), "train:16:f16:nhwc infer:1:f16:nhwc"),
    ("hifigan_v1", "vocoder", "audio", ("Vocoder", 512, [8, 8, 2, 2], [3, 7, 11]), (80, 256),
     "train:16:f32:row infer:1:f16:row"),
    ("hifigan_v2", "vocoder", "audio", ("Vocoder", 128, [8, 8, 2, 2], [3, 7, 11]), (80, 32),
     "train:16:f16:row infer:4:f32:row"),
    ("hifigan_v3", "vocoder", "audio", ("Vocoder", 256, [8, 8, 4], [3, 5, 7]), (80, 777),
     "train:4:bf16:row infer:1:f16:row"),
    ("conv_tasnet", "speech 1-D", "audio", ("TemporalStack", 512, 128, 512, 24), (1, 32000),
     "train:4:f16:row infer:1:f32:row"),
    ("temporal_odd", "speech 1-D", "audio", ("TemporalStack", 200, 100, 300, 8, 9), (1, 16000),
     "train:16:f16:row train:4:f32:row"),
    ("dcgan", "GAN", "image", ("Generator",), (100, 1, 1), "train:64:f16:nhwc train:256:f32:row"),
    ("large_filters", "large filters", "image", ("LargeFilters", [(64, 31), (128, 29), (256, 27), (512, 13)]), (3,
     224, 224),
     "train:16:f16:nhwc infer:1:f16:nhwc"),
    ("large_filters_volume", "large filters", "volume", ("LargeFilters", [(32, 7), (64, 7), (128, 5)], 3), (1, 64, 64,
     64),
     "train:4:f16:nhwc infer:1:bf16:nhwc"),
    ("edsr", "super-resolution", "image", ("SuperResolution", 64, 4), (3, 192, 192),
     "train:16:f16:nhwc infer:1:f16:row"),
    ("edsr_wide", "super-resolution", "image", ("SuperResolution", 256, 4, 4), (3, 48, 48),
     "train:16:bf16:nhwc infer:1:f32:nhwc"),
]
for _name, _family, _kind, _build, _extents, _runs in MODULES:
    add(_name, "corpus", _family, _kind, functools.partial(module, *_build), [("", "float", ("N",) + _extents)], _runs)

# Decoders: width, heads, heads of keys, hidden, vocabulary, then options; prefill, training and decode, where each
# sequence brings one token and has `cached` behind it.
PREFILL = "infer:1x8192:bf16:row infer:1x777:bf16:row infer:4x512:f16:row infer:1x33:bf16:row"
DECODE = ("infer:1x1:bf16:row infer:4x1:bf16:row infer:16x1:f16:row infer:64x1:bf16:row infer:256x1:bf16:row "
          "infer:13x1:f16:row")
TRAIN = "train:4x2048:bf16:row train:1x1000:bf16:row"
PREFILL_FP8 = "infer:1x4096:fp8:row infer:1x777:fp8:row infer:16x100:fp8:row"
DECODE_FP8 = "infer:1x1:fp8:row infer:16x1:fp8:row infer:64x1:fp8:row infer:256x1:fp8:row"
DECODERS = [
    ("llama3_8b", (4096, 32, 8, 14336, 128256), {}, [PREFILL, TRAIN, DECODE, PREFILL_FP8, DECODE_FP8]),
    ("llama3_70b", (8192, 64, 8, 28672, 128256), {"cached": 4095}, [PREFILL, DECODE, PREFILL_FP8, DECODE_FP8]),
    ("llama2_7b", (4096, 32, 32, 11008, 32000), {}, [TRAIN, "infer:1x2000:f16:row", "infer:8x1:f16:row"]),
    ("qwen2_7b", (3584, 28, 4, 18944, 152064), {"cached": 1000}, [PREFILL, DECODE, PREFILL_FP8, "infer:7x1:fp8:row"]),
    ("gemma2_2b", (2304, 8, 4, 9216, 256000), {"head": 256}, [PREFILL, DECODE,
     "infer:4x2048:fp8:row infer:64x7:fp8:row"]),
    ("phi3_mini", (3072, 32, 32, 8192, 32064), {"head": 96}, [PREFILL, "train:4x1000:f16:row infer:16x1:f16:row"]),
    ("mistral_7b", (4096, 32, 8, 14336, 32768), {"cached": 8192}, ["infer:1x2047:bf16:row train:4x1024:f32:row",
     DECODE_FP8]),
    ("mixtral_8x7b", (4096, 32, 8, 14336, 32000), {"experts": 8},
     ["infer:1x4096:bf16:row infer:1x777:bf16:row train:1x2048:bf16:row",
      "infer:1x1:bf16:row infer:16x1:bf16:row infer:64x1:bf16:row"]),
    ("qwen3_30b_a3b", (2048, 32, 4, 768, 151936), {"experts": 128, "top": 8, "cached": 4096},
     ["infer:1x2048:bf16:row infer:1x1000:bf16:row train:4x1024:bf16:row",
      "infer:1x1:bf16:row infer:16x1:bf16:row infer:256x1:bf16:row"]),
    ("olmoe_1b_7b", (2048, 16, 16, 1024, 50304), {"experts": 64, "top": 8},
     ["infer:4x512:bf16:row train:1x4096:bf16:row infer:64x1:bf16:row"]),
    ("dbrx_like", (6144, 48, 8, 10752, 100352), {"experts": 16, "top": 4},
     ["infer:1x2048:bf16:row infer:1x333:bf16:row infer:4x1:bf16:row"]),
]
for _name, _build, _options, _runs in DECODERS:
    _family = "MoE" if "experts" in _options else "Llama"
    add(_name, "corpus", _family, "text", functools.partial(module, "Decoder", *_build, **_options),
        [("", "float", ("N", "T", _build[0]))], " ".join(_runs))


# --- video -----------------------------------------------------------------------------------------------------------
for _name, _extents, _runs in [("r3d_18", (3, 16, 112, 112), "train:16:f16:nhwc infer:4:f16:row"),
                               ("r2plus1d_18", (3, 16, 112, 112), "train:4:f16:nhwc infer:1:f16:nhwc"),
                               ("mc3_18", (3, 16, 112, 112), "train:4:f32:row infer:16:f16:nhwc"),
                               ("s3d", (3, 16, 224, 224), "train:4:bf16:nhwc infer:1:f16:row"),
                               ("mvit_v2_s", (3, 16, 224, 224), "train:4:f16:row infer:1:f16:nhwc"),
                               ("swin3d_t", (3, 16, 224, 224), "train:4:bf16:row infer:1:f16:row")]:
    add(_name, "torchvision", "video", "video", functools.partial(torchvision_model, _name),
        [("", "float", ("N",) + _extents)], _runs)


# --- transformers ----------------------------------------------------------------------------------------------------
def transformers_model(model, config, attention="sdpa", **options):
    import transformers
    # It asks for values of positions, which are always those of one sequence here.
    transformers.masking_utils.find_packed_sequence_indices = lambda position_ids: None
    options = dict(options, use_cache=False) if config not in VISION_CONFIGS else options
    made = getattr(transformers, config)(**options)
    made._attn_implementation = attention
    found = transformers
    for part in model.split("."):
        found = getattr(found, part)
    return found(made)


VISION_CONFIGS = {"ViTConfig", "SegformerConfig", "DPTConfig", "CLIPVisionConfig", "SiglipVisionConfig",
"Wav2Vec2Config",
                  "HubertConfig", "ASTConfig", "DetrConfig", "SwinConfig", "UperNetConfig", "EncodecConfig",
                  "SpeechT5HifiGanConfig",
                  "ConvNextV2Config", "VideoMAEConfig", "Dinov2Config", "WavLMConfig", "ClapAudioConfig"}
TOKENS = [("input_ids", "int", ("N", "T"))]
TEXT_A = "train:16x512:f16:row infer:1x128:bf16:row infer:64x77:f16:row"
TEXT_B = "train:4x1000:bf16:row infer:1x777:f16:row infer:16x33:f32:row"
TRANSFORMERS = [
    ("bert_base", "BERT", "text", "BertModel", "BertConfig", {}, TOKENS, TEXT_A),
    ("bert_large", "BERT", "text", "BertModel", "BertConfig",
     {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}, TOKENS,
     "train:64x128:f16:row infer:4x384:f16:row infer:1x13:bf16:row"),
    ("distilbert", "BERT", "text", "DistilBertModel", "DistilBertConfig", {}, TOKENS,
     "infer:256x64:f16:row infer:1x511:f32:row"),
    ("roberta_base", "BERT", "text", "RobertaModel", "RobertaConfig", {"max_position_embeddings": 2050}, TOKENS,
     TEXT_B),
    ("electra_small", "BERT", "text", "ElectraModel", "ElectraConfig", {}, TOKENS,
     "train:256x128:f16:row infer:4x100:bf16:row"),
    ("modernbert_base", "BERT", "text", "ModernBertModel", "ModernBertConfig", {}, TOKENS,
     "train:4x1024:bf16:row infer:1x8192:bf16:row"),
    ("gpt2", "GPT", "text", "GPT2LMHeadModel", "GPT2Config", {}, TOKENS,
     "train:4x1024:f16:row infer:1x1000:bf16:row infer:16x1:f16:row"),
    ("gpt_neox_1b", "GPT", "text", "GPTNeoXForCausalLM", "GPTNeoXConfig",
     {"attention": "eager", "hidden_size": 2048, "num_hidden_layers": 2, "num_attention_heads": 16,
      "intermediate_size": 8192}, TOKENS,
     "train:4x2048:bf16:row infer:1x2047:f16:row"),
    ("opt_1b", "GPT", "text", "OPTForCausalLM", "OPTConfig",
     {"hidden_size": 2048, "ffn_dim": 8192, "num_hidden_layers": 2, "num_attention_heads": 32,
      "word_embed_proj_dim": 2048}, TOKENS,
     "train:4x512:f32:row infer:1x300:f16:row"),
    ("t5_encoder", "T5", "text", "T5EncoderModel", "T5Config", {"d_model": 1024, "d_ff": 2816, "d_kv": 64,
     "num_heads": 16,
     "num_layers": 2, "feed_forward_proj": "gated-gelu"}, TOKENS, "train:16x512:bf16:row infer:1x77:bf16:row"),
    ("clip_text", "CLIP", "text", "CLIPTextModel", "CLIPTextConfig", {}, TOKENS,
     "infer:1x77:f16:row infer:64x77:f16:row"),
    ("clip_vision", "CLIP", "image", "CLIPVisionModel", "CLIPVisionConfig",
     {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
      "patch_size": 14},
     [("pixel_values", "float", ("N", 3, 224, 224))], "train:64:f16:row infer:1:f16:row"),
    ("siglip_vision", "CLIP", "image", "SiglipVisionModel", "SiglipVisionConfig",
     {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 4, "num_attention_heads": 16,
      "image_size": 384, "patch_size": 14},
     [("pixel_values", "float", ("N", 3, 384, 384))], "train:16:bf16:row infer:1:bf16:row"),
    ("segformer_b2", "segmentation", "image", "SegformerForSemanticSegmentation", "SegformerConfig",
     {"hidden_sizes": [64, 128, 320, 512], "depths": [3, 4, 6, 3], "decoder_hidden_size": 768},
     [("pixel_values", "float", ("N", 3, 512, 512))], "train:4:f16:row infer:1:f16:nhwc"),
    ("dpt_large", "depth", "image", "DPTForDepthEstimation", "DPTConfig", {}, [("pixel_values", "float", ("N", 3, 384,
     384))],
     "train:4:f16:row infer:1:f16:nhwc"),
    ("wav2vec2_base", "speech 1-D", "audio", "Wav2Vec2Model", "Wav2Vec2Config",
     {"apply_spec_augment": False, "layerdrop": 0.0}, [("input_values", "float", ("N", 160000))],
     "train:4:f16:row infer:1:f32:row"),
    ("hubert_large", "speech 1-D", "audio", "HubertModel", "HubertConfig",
     {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
      "feat_extract_norm": "layer",
      "do_stable_layer_norm": True, "conv_bias": True, "apply_spec_augment": False, "layerdrop": 0.0},
     [("input_values", "float", ("N", 240000))], "train:4:bf16:row infer:16:f16:row"),
    ("ast_base", "speech 1-D", "audio", "ASTModel", "ASTConfig", {}, [("input_values", "float", ("N", 1024, 128))],
     "train:16:f16:row infer:1:bf16:row"),
    ("whisper_small_encoder", "speech 1-D", "audio", "models.whisper.modeling_whisper.WhisperEncoder", "WhisperConfig",
     {"d_model": 768, "encoder_layers": 12, "encoder_attention_heads": 12, "encoder_ffn_dim": 3072},
     [("input_features", "float", ("N", 80, 3000))], "train:16:f16:row infer:1:f16:row"),
    ("speecht5_hifigan", "vocoder", "audio", "SpeechT5HifiGan", "SpeechT5HifiGanConfig", {"attention": "eager",
     "normalize_before": False},
     [("", "float", ("N", 400, 80))], "train:4:f16:row infer:1:f16:row"),
    ("videomae_base", "video", "video", "VideoMAEModel", "VideoMAEConfig", {}, [("pixel_values", "float", ("N", 16, 3,
     224, 224))],
     "train:4:f16:row infer:1:bf16:row"),
]
for _name, _family, _kind, _model, _config, _options, _inputs, _runs in TRANSFORMERS:
    add(_name, "transformers", _family, _kind,
        functools.partial(transformers_model, _model, _config, **_options), _inputs, _runs)


# --- diffusers -------------------------------------------------------------------------------------------------------
def diffusers_model(name, **options):
    import diffusers
    return getattr(diffusers, name)(**options)


CROSS, UP_CROSS = "CrossAttnDownBlock2D", "CrossAttnUpBlock2D"
SD = {"sample_size": 64, "cross_attention_dim": 768}
SDXL = {"sample_size": 128, "cross_attention_dim": 2048, "block_out_channels": (320, 640, 1280), "layers_per_block": 2,
        "down_block_types": ("DownBlock2D", CROSS, CROSS), "up_block_types": (UP_CROSS, UP_CROSS, "UpBlock2D"),
        "transformer_layers_per_block": (1, 2, 4), "attention_head_dim": (5, 10, 20), "use_linear_projection": True}
VAE = {"block_out_channels": (128, 256, 512, 512), "layers_per_block": 2, "latent_channels": 4,
       "down_block_types": ("DownEncoderBlock2D",) * 4, "up_block_types": ("UpDecoderBlock2D",) * 4}


def latent(size, channels, rows, width):
    return [("sample", "float", ("N", channels, size, size)), ("timestep", "int", ("N",)),
            ("encoder_hidden_states", "float", ("N", rows, width))]


DIFFUSERS = [
    ("sd15_unet", "diffusion UNet", "UNet2DConditionModel", SD, latent(64, 4, 77, 768),
     "train:4:f16:nhwc infer:1:f16:row infer:16:f16:nhwc"),
    ("sd21_unet", "diffusion UNet", "UNet2DConditionModel",
     dict(SD, cross_attention_dim=1024, attention_head_dim=(5, 10, 20, 20), use_linear_projection=True, sample_size=96),
     latent(96, 4, 77, 1024), "infer:4:f16:nhwc infer:1:bf16:nhwc"),
    ("sdxl_unet", "diffusion UNet", "UNet2DConditionModel", SDXL, latent(128, 4, 77, 2048),
     "infer:1:f16:nhwc train:4:bf16:nhwc"),
    ("ddpm_unet", "diffusion UNet", "UNet2DModel",
     {"sample_size": 32, "block_out_channels": (128, 256, 256, 256), "down_block_types": ("DownBlock2D",
      "AttnDownBlock2D", "DownBlock2D", "DownBlock2D"),
      "up_block_types": ("UpBlock2D", "UpBlock2D", "AttnUpBlock2D", "UpBlock2D"), "in_channels": 3, "out_channels": 3},
     latent(32, 3, 1, 1)[:2], "train:64:f16:nhwc train:16:f32:row"),
    ("ldm_narrow_unet", "diffusion UNet", "UNet2DModel",
     {"sample_size": 64, "block_out_channels": (96, 192, 288, 384), "norm_num_groups": 32,
      "down_block_types": ("DownBlock2D",) * 2 + ("AttnDownBlock2D",) * 2,
      "up_block_types": ("AttnUpBlock2D",) * 2 + ("UpBlock2D",) * 2, "in_channels": 3, "out_channels": 3},
     latent(64, 3, 1, 1)[:2], "train:16:bf16:nhwc infer:1:f16:nhwc"),
    ("sd_vae", "VAE", "AutoencoderKL", VAE, [("sample", "float", ("N", 3, 512, 512))],
     "train:4:f16:nhwc infer:1:f16:row"),
    ("sd_vae_768", "VAE", "AutoencoderKL", VAE, [("sample", "float", ("N", 3, 768, 768))],
     "infer:1:f32:row infer:4:bf16:nhwc"),
    ("tiny_vae", "VAE", "AutoencoderTiny", {}, [("sample", "float", ("N", 3, 512, 512))],
     "infer:4:f32:nhwc train:4:f32:row"),
    ("dit_xl_2", "DiT", "DiTTransformer2DModel", {"num_layers": 4},
     [("hidden_states", "float", ("N", 4, 32, 32)), ("timestep", "int", ("N",)), ("class_labels", "int", ("N",))],
     "train:16:bf16:row infer:4:f16:row"),
    ("pixart_alpha", "DiT", "PixArtTransformer2DModel", {"num_layers": 4, "sample_size": 64,
     "use_additional_conditions": False},
     [("hidden_states", "float", ("N", 4, 64, 64)), ("encoder_hidden_states", "float", ("N", 120, 1152)), ("timestep",
      "int", ("N",))],
     "infer:4:f16:row infer:1:bf16:row"),
    ("controlnet_sd15", "diffusion UNet", "ControlNetModel", {"cross_attention_dim": 768},
     latent(64, 4, 77, 768) + [("controlnet_cond", "float", ("N", 3, 512, 512))], "train:4:f16:nhwc infer:1:f16:nhwc"),
]
for _name, _family, _model, _options, _inputs, _runs in DIFFUSERS:
    add(_name, "diffusers", _family, "video" if _family == "video" else "image",
        functools.partial(diffusers_model, _model, **_options), _inputs, _runs)
