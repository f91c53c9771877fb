"""Schedules of learning rates, with the names and values of torch.optim.lr_scheduler.

They are plain numbers, made from base rates instead of an optimizer: the rate is an input of the
step, so nothing is compiled again.

    scheduler = CosineAnnealingLR(1e-3, T_max=1000)
    step({"x": x, "y": y, "lr": scheduler.lr})
    scheduler.step()
"""

from luminal.optim.lr_scheduler.combined import ChainedScheduler, SequentialLR
from luminal.optim.lr_scheduler.cosine import CosineAnnealingLR, CosineAnnealingWarmRestarts
from luminal.optim.lr_scheduler.factors import (
    ConstantLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from luminal.optim.lr_scheduler.one_cycle import OneCycleLR
from luminal.optim.lr_scheduler.plateau import ReduceLROnPlateau
from luminal.optim.lr_scheduler.schedule import LRScheduler

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]
