"""A program of several MPI ranks: all cases of the table, and those of groups."""

import numpy as np

import luminal as lm
from luminal.base import config
from tests.distributed.engine_cases import check, check_groups

engine = lm.distributed.init(timeout=20)
check(engine)
if engine.size % 2 == 0:
    check_groups(engine)
with config.override(LUMINAL_VERIFY=True):  # all ranks tell what they start
    check(engine.split([list(range(engine.size))], "compared"), dtypes=[np.float32])
print(f"rank {lm.distributed.rank()} of {lm.distributed.size()}: all cases", flush=True)
