"""`python -m manual.examples [--write] [MODULE ...]`: runs the examples of the reference."""

from __future__ import annotations

import sys

from manual import examples

arguments = [each for each in sys.argv[1:] if each != "--write"]
faults = []
for module in arguments or examples.modules():
    if "--write" in sys.argv:
        examples.write(module)
        continue
    names = examples.known()
    for example in examples.read(module).values():
        shown = repr(example.given(names))
        if not example.agrees(shown):
            faults.append(f"{module}.{example.name}: {shown}, not {example.result}")
print("\n".join(faults), end="\n" * bool(faults))
sys.exit(bool(faults))
