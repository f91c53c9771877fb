"""What families share in reading a `config.json`."""

from __future__ import annotations

from luminal.base.errors import LoadError
from luminal.loaders.fields import Fields


def head_dim(fields: Fields, hidden: str, heads: str) -> int:
    """The width of a head: these keys' quotient. Raises LoadError where it is no integer."""
    width, count = fields.integer(hidden), fields.integer(heads)
    if width % count:
        raise LoadError(f"{fields.path}: {hidden} {width} does not divide among {heads} {count}")
    return width // count


MAX_SIZE = 1 << 16
"""Of a kernel, a stride or a count of bands: a damaged file may speak of any number."""


def odd_size(fields: Fields, key: str, default: int) -> int:
    """The size of a kernel that lies around its middle. Raises LoadError for an even one."""
    size = fields.integer(key, default, most=MAX_SIZE)
    if size % 2 == 0:
        raise LoadError(f"{fields.path}: {key} is {size}; it must be odd, to have a middle")
    return size


MAX_LABELS = 1_000_000  # a damaged file may speak of any number


def labels_of(fields: Fields) -> list[str]:
    """Names of a classifier's outputs, by `id2label`; numbered where there is none."""
    names = fields.section("id2label").values
    if not names:
        count = fields.integer("num_labels", 2)
        if count > MAX_LABELS:
            raise LoadError(f"{fields.path}: num_labels is {count}, at most {MAX_LABELS}")
        return [f"LABEL_{number}" for number in range(count)]
    missing = [n for n in range(len(names)) if not isinstance(names.get(str(n)), str)]
    if missing:
        raise LoadError(f"{fields.path}: id2label has no text for {missing[0]}")
    return [names[str(number)] for number in range(len(names))]


def are_independent(fields: Fields) -> bool:
    """Whether a classifier's labels have each a probability of their own, as one label has."""
    kind = fields.text("problem_type", "")
    return kind == "multi_label_classification" or len(labels_of(fields)) == 1
