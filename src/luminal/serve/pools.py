"""Work that would hold up the event loop, in a pool of threads beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


async def in_pool(pool: ThreadPoolExecutor, function: Callable[[], T]) -> T:
    """What a function gives in one of the pool's threads; others are served meanwhile."""
    return await asyncio.get_running_loop().run_in_executor(pool, function)
