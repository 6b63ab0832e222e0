# SPDX-License-Identifier: Apache-2.0
"""Networks for images and videos: torchvision's and timm's, and torchvision's operators."""
import functools

import torch

from . import base
from .base import Training, forward, program, without_zeros

CLASSIFIERS = ("resnet18", "mobilenet_v3_small", "efficientnet_b0", "convnext_tiny", "vit_b_32",
               "swin_t", "densenet121", "squeezenet1_1", "shufflenet_v2_x1_0", "regnet_y_400mf",
               "googlenet", "vgg11", "maxvit_t")
TIMM = ("vit_tiny_patch16_224", "mixer_s32_224", "resmlp_12_224", "convnextv2_atto",
        "edgenext_xx_small", "tf_efficientnetv2_b0", "mobilevit_xxs", "levit_128s", "ghostnet_050",
        "coatnet_nano_rw_224")


def images(rows=2, side=224, dtype=torch.float32):
    return torch.zeros(rows, 3, side, side, dtype=dtype)


def classifier(name):
    import torchvision
    more = {"init_weights": False} if name == "googlenet" else {}
    model = getattr(torchvision.models, name)(weights=None, **more)
    return forward(without_zeros(model), "x", x=images())


def of_timm(name):
    import timm
    return forward(without_zeros(timm.create_model(name, pretrained=False)), "x", x=images())


for _name in CLASSIFIERS:
    program("torchvision." + _name, ("torchvision",))(functools.partial(classifier, _name))
for _name in TIMM:
    program("timm." + _name, ("timm",))(functools.partial(of_timm, _name))


@program("torchvision.resnet50, fp16, channels last, cuDNN's search", ("torchvision",))
def half_resnet():
    import torchvision
    torch.backends.cudnn.benchmark = True
    model = torchvision.models.resnet50(weights=None).to(memory_format=torch.channels_last)
    x = images(4, dtype=torch.float16).to(memory_format=torch.channels_last)
    return forward(model, "x", dtype=torch.float16, x=x)


@program("torchvision.deeplabv3_mobilenet_v3_large", ("torchvision",))
def segmentation():
    import torchvision
    model = torchvision.models.segmentation.deeplabv3_mobilenet_v3_large(
        weights=None, weights_backbone=None)
    return forward(model, "x", x=images(1))


@program("torchvision.r3d_18", ("torchvision",))
def video():
    import torchvision
    return forward(torchvision.models.video.r3d_18(weights=None), "x",
                   x=torch.zeros(1, 3, 8, 112, 112))


@program("torchvision.ops.deform_conv2d", ("torchvision",))
def deformed():
    from torchvision.ops import deform_conv2d
    weight = torch.randn(8, 4, 3, 3)
    return forward(lambda x, offset: deform_conv2d(x, offset, weight), "x", "offset",
                   x=torch.zeros(2, 4, 32, 32), offset=torch.zeros(2, 18, 30, 30))


@program("torchvision.ops.roi_align", ("torchvision",))
def regions():
    from torchvision.ops import roi_align
    boxes = torch.tensor([[0, 1.0, 2.0, 20.0, 25.0], [1, 4.0, 4.0, 30.0, 31.0]])
    return forward(lambda x: roi_align(x, boxes, 7, 1.0, 2), "x", x=torch.zeros(2, 8, 32, 32))


@program("torchvision.resnet18, training with SGD", ("torchvision",), pinned=True)
def resnet_training():
    import torchvision
    model = torchvision.models.resnet18(weights=None, num_classes=10)
    x, t = images(8, 64), torch.zeros(8, dtype=torch.int64)
    return Training(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
                    lambda m: torch.nn.functional.cross_entropy(m(x), t), {"x": x, "t": t})


@program("timm.vit_tiny_patch16_224, training with AdamW, drop path", ("timm",))
def vit_training():
    import timm
    model = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=10,
                              drop_path_rate=0.1, depth=4)
    x, t = images(4), torch.zeros(4, dtype=torch.int64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=base.CAPTURABLE)
    return Training(model, optimizer, lambda m: torch.nn.functional.cross_entropy(m(x), t),
                    {"x": x, "t": t})
