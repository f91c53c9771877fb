"""The code of a kernel that a library computes: what a driver asks the library for."""

from __future__ import annotations

from luminal.base.records import dataclass
from luminal.hlir.library_product import LibraryProduct
from luminal.shape.expression import Expression, Symbol


@dataclass(frozen=True, slots=True)
class LibraryCode:
    """A driver's Code without lanes. The library is given `scratch` bytes of working memory, which
    lie as launches' do: what a queue runs one after the other takes turns with them.
    """

    product: LibraryProduct
    scratch: Expression
    lanes: int = 0
    params: tuple[Symbol, ...] = ()
