"""Rows of windows: convolution, pooling, resampling, unfolding."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F

import luminal.nn.functional as ours
from tests.conformance.rows import Draw, Row, Shape, by_torch, function, several

DTYPES = ("float32", "float64", "bfloat16")


def window(
    op: str, *shapes: Shape, name: str = "", dynamic: bool = True, args: tuple[Any, ...] = (),
    note: str = "", **how: Any,
) -> Row:  # fmt: skip
    """A row of nn.functional whose oracle, torch.nn.functional's, takes the same arguments."""
    expected = by_torch(lambda *x: getattr(F, op)(*x, *args, **how))
    return several(name or op, expected, list(shapes), dtypes=DTYPES, dynamic=dynamic,
                   call=lambda *x: getattr(ours, op)(*x, *args, **how), largest=True,
                   against=f"torch.nn.functional.{op}", note=note)  # fmt: skip


CONVOLUTION = [
    window("conv1d", (2, 3, 11), (4, 3, 3), (4,)),
    window("conv2d", (2, 3, 9, 7), (4, 3, 3, 2), (4,)),
    window("conv3d", (1, 2, 5, 6, 7), (3, 2, 2, 3, 2), (3,)),
    window("conv2d", (2, 4, 9, 7), (6, 2, 3, 3), name="conv2d strided, padded, dilated, grouped",
           args=(None, 2, (1, 2), (2, 1), 2), dynamic=False),
    window("conv2d", (2, 4, 9, 7), (4, 1, 3, 3), name="conv2d depthwise, same padding",
           args=(None, 1, "same", 1, 4), dynamic=False),
    window("conv_transpose1d", (2, 3, 5), (3, 4, 3), (4,), stride=2, output_padding=1,
           note="infinite weights meet the zeros around x: NaN there; PyTorch adds only what is "
           "there"),
    window("conv_transpose2d", (2, 4, 5, 3), (4, 2, 3, 3), (4,), stride=2, padding=1,
           groups=2, dynamic=False),
    window("conv_transpose3d", (1, 2, 3, 4, 3), (2, 3, 2, 2, 2), (3,), dilation=2),
]  # fmt: skip

POOLING = [
    window("max_pool1d", (2, 3, 11), args=(3, 2, 1)),
    window("max_pool2d", (2, 3, 9, 7), args=((3, 2), 2, 1)),
    window("max_pool2d", (2, 3, 9, 7), name="max_pool2d with indices",
           args=(3, 2, 1, 1, True, True),
           note="the first of equals, the last of NaN, as PyTorch"),
    window("max_pool3d", (1, 2, 5, 6, 7), args=(2,)),
    window("avg_pool1d", (2, 3, 11), args=(3, 2, 1)),
    window("avg_pool2d", (2, 3, 9, 7), args=((3, 2), 2, 1, True, False)),
    window("avg_pool3d", (1, 2, 5, 6, 7), args=(2,)),
    window("lp_pool2d", (2, 3, 9, 7), args=(2, 3),
           note="of x, not |x|: negative sums give NaN unless p is 1, as PyTorch"),
    window("adaptive_avg_pool1d", (2, 3, 11), args=(4,)),
    window("adaptive_avg_pool2d", (2, 3, 9, 7), args=((4, 3),)),
    window("adaptive_avg_pool3d", (1, 2, 5, 6, 7), args=((2, 3, 4),)),
    window("adaptive_max_pool1d", (2, 3, 11), args=(4,)),
    window("adaptive_max_pool2d", (2, 3, 9, 7), args=((4, 3),)),
    window("adaptive_max_pool3d", (1, 2, 5, 6, 7), args=((2, 3, 4),)),
]  # fmt: skip

SAMPLING = [
    window("interpolate", (2, 3, 5), name="interpolate linear", size=9, mode="linear"),
    window("interpolate", (2, 3, 5, 7), name="interpolate nearest", scale_factor=2),
    window("interpolate", (2, 3, 5, 7), name="interpolate nearest-exact", size=(8, 4),
           mode="nearest-exact"),
    window("interpolate", (2, 3, 5, 7), name="interpolate bilinear", size=(8, 4), mode="bilinear"),
    window("interpolate", (2, 3, 5, 7), name="interpolate bilinear aligned", size=(8, 4),
           mode="bilinear", align_corners=True),
    window("interpolate", (2, 3, 5, 7), name="interpolate bicubic", size=(8, 4), mode="bicubic"),
    window("interpolate", (1, 2, 3, 4, 5), name="interpolate trilinear", size=(4, 6, 3),
           mode="trilinear"),
    window("interpolate", (2, 3, 5, 7), name="interpolate area", size=(3, 4), mode="area"),
    window("pixel_shuffle", (2, 8, 3, 5), args=(2,)),
    window("pixel_unshuffle", (2, 3, 4, 6), args=(2,)),
    window("channel_shuffle", (2, 6, 3, 5), args=(3,)),
    window("unfold", (2, 3, 7, 5), args=((3, 2),), padding=1),
    window("fold", (2, 12, 6), args=((3, 4), (2, 2)), dynamic=False),
]  # fmt: skip

OTHERS = [
    several("grid_sample", by_torch(lambda x, g: F.grid_sample(x, g, align_corners=False)),
            [(2, 3, 5, 7), (2, 4, 3, 2)], [Draw(), Draw(-1.2, 1.2)], dtypes=("float32", "float64"),
            dynamic=False, call=function("nn.functional.grid_sample", align_corners=False),
            largest=True, against="torch.nn.functional.grid_sample"),
    several("scaled_dot_product_attention", by_torch(F.scaled_dot_product_attention),
            [(2, 3, 5, 7), (2, 3, 11, 7), (2, 3, 11, 7)], dtypes=DTYPES, largest=True,
            call=function("nn.functional.scaled_dot_product_attention"),
            against="torch.nn.functional.scaled_dot_product_attention"),
    several("linear", by_torch(F.linear), [(3, 5), (7, 5), (7,)], dtypes=DTYPES, largest=True,
            call=function("nn.functional.linear"), against="torch.nn.functional.linear"),
]  # fmt: skip

ROWS: list[Row] = [*CONVOLUTION, *POOLING, *SAMPLING, *OTHERS]
