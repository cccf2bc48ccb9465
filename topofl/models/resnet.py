"""ResNet-18 with GroupNorm."""

from collections import OrderedDict

from torch import Tensor, nn

from topofl._support.check import check_int
from topofl._support.public import public
from topofl.models.building import Conv2d, GroupNorm, Linear, built_from_seed_0, check_image_shape

__all__ = ["resnet18_gn"]


@public
def resnet18_gn(
    in_shape: tuple[int, int, int] = (3, 32, 32), n_classes: int = 10, *, groups: int = 32
) -> nn.Sequential:
    """Return ResNet-18 with GroupNorm for small images such as CIFAR-10 and CIFAR-100.

    This is the network of the DFedPGP and PFedDST papers: a 3 x 3 convolution of stride 1 without
    pooling, four stages of two residual blocks (64, 128, 256 and 512 channels; strides 1, 2, 2, 2),
    1 x 1 convolutions where the shape changes, the mean over the image, and one linear layer.

    Parameters
    ----------
    in_shape
        Channels, height, width of an image; at least 8 x 8 pixels.
    n_classes
        Number of classes.
    groups
        Number of groups of every GroupNorm, a divisor of 64. The papers do not specify it; the
        authors' code uses 32.

    References
    ----------
    Liu et al., "DFedPGP" (2024), section 5.1; "PFedDST" (2025), section III-A; He et al., "Deep
    residual learning for image recognition" (2016), for the network; Wu and He, "Group
    normalization" (2018).

    Examples
    --------
    >>> [sum(p.numel() for p in resnet18_gn(n_classes=c).parameters()) for c in (10, 100, 200)]
    [11173962, 11220132, 11271432]
    """
    channels, _, _ = check_image_shape(in_shape, smallest=8)
    n_classes = check_int("n_classes", n_classes, minimum=2)
    groups = check_int("groups", groups, minimum=1)
    if 64 % groups:
        raise ValueError(
            f"`groups` must divide 64, the channels of the first stage, got {groups}; 32 is usual"
        )
    with built_from_seed_0():
        return nn.Sequential(
            OrderedDict(
                conv=Conv2d(channels, 64, 3, padding=1, bias=False),
                norm=GroupNorm(groups, 64),
                relu=nn.ReLU(),
                stage1=_stage(64, 64, 1, groups),
                stage2=_stage(64, 128, 2, groups),
                stage3=_stage(128, 256, 2, groups),
                stage4=_stage(256, 512, 2, groups),
                pool=nn.AdaptiveAvgPool2d(1),
                flatten=nn.Flatten(),
                head=Linear(512, n_classes),
            )
        )


def _stage(channels: int, wide: int, stride: int, groups: int) -> nn.Sequential:
    """Return two residual blocks; the first changes the shape."""
    return nn.Sequential(
        _Residual(channels, wide, stride, groups), _Residual(wide, wide, 1, groups)
    )


class _Residual(nn.Module):
    """Residual block: two convolutions and a shortcut."""

    def __init__(self, channels: int, wide: int, stride: int, groups: int) -> None:
        super().__init__()
        self.conv1 = Conv2d(channels, wide, 3, stride, padding=1, bias=False)
        self.norm1 = GroupNorm(groups, wide)
        self.conv2 = Conv2d(wide, wide, 3, padding=1, bias=False)
        self.norm2 = GroupNorm(groups, wide)
        self.relu = nn.ReLU()
        self.shortcut = nn.Sequential()
        if stride > 1 or channels != wide:
            projection = Conv2d(channels, wide, 1, stride, bias=False)
            self.shortcut = nn.Sequential(
                OrderedDict(conv=projection, norm=GroupNorm(groups, wide))
            )

    def forward(self, x: Tensor) -> Tensor:
        inside = self.relu(self.norm1(self.conv1(x)))
        return self.relu(self.norm2(self.conv2(inside)) + self.shortcut(x))
