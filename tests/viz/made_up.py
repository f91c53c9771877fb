"""A made-up document of the viewer, of any size, with something in every view."""

from __future__ import annotations

from typing import Any

OPS = ("Input", "Weight", "Constant", "View", "Mul", "Sum", "Add", "Exp2", "Recip")
PARTS = ("attn.q", "attn.k", "attn.v", "attn.o", "mlp.gate", "mlp.up", "mlp.down", "norm")
STEP = 20e-6  # seconds of the shortest launch
PEAKS = {"flops": 2.1e11, "memory": 1.9e10, "cache": 8.8e10, "cache_bytes": 1 << 20}


def document(nodes: int = 400, layers: int = 4) -> dict[str, Any]:
    """A chain of `nodes` values in `layers` equal layers, and all that is said of them."""
    modules = _modules(layers)
    values = _values(nodes, layers, {module["path"]: k for k, module in enumerate(modules)})
    kernels, launches = _kernels(values), _launches()
    buffers = _buffers()
    total = sum(row["seconds"] for row in launches)
    return {
        "format": 1,
        "title": "model.py:made_up",
        "made": "2026-11-30T09:00:00",
        "luminal": "0.0",
        "machine": {"cpu": "a CPU", "threads": 2, "device": "cpu"},
        "dims": {"s": 4},
        "files": [{"path": "model.py", "lines": {str(n): f"    line {n}" for n in range(1, 60)}}],
        "modules": modules,
        "values": values,
        "stages": [_stage("algebra", values), _stage("selection", values), _program(kernels)],
        "kernels": kernels,
        "launches": launches,
        "prologue": [],
        "timeline": _timeline(launches),
        "memory": _memory(buffers),
        "peaks": PEAKS,
        "run_seconds": 1.2 * total,
        "doubts": [],
        "spellings": _spellings(),
        "search": _search(total),
        "other": {
            "title": "fast",
            "run_seconds": 1.4 * total,
            "launches": [{**row, "seconds": row["seconds"] * (0.7 + 0.2 * k)}
                         for k, row in enumerate(launches[:-1])],
        },
    }  # fmt: skip


def _modules(layers: int) -> list[dict[str, str]]:
    paths = ["", "embed", "layers"]
    for layer in range(layers):
        paths += [f"layers.{layer}", f"layers.{layer}.attn", f"layers.{layer}.mlp"]
        paths += [f"layers.{layer}.{part}" for part in PARTS]
    kinds = {"": "Model", "embed": "Embedding", "layers": "ModuleList"}
    return [{"path": path, "class": kinds.get(path, _kind(path))} for path in [*paths, "head"]]


def _kind(path: str) -> str:
    last = path.rsplit(".", 1)[-1]
    return "Block" if last.isdigit() else {"attn": "Attention", "mlp": "MLP"}.get(last, "Linear")


def _values(nodes: int, layers: int, module: dict[str, int]) -> dict[str, Any]:
    """Groups of a weight, its view, a product, a sum and what follows."""
    ops, where = [0], [module["embed"]]
    inputs: list[list[int]] = [[]]
    last, begin = 0, 0
    each = max(1, nodes // layers)
    while len(ops) < nodes:
        layer = min(layers - 1, len(ops) // each)
        part = PARTS[len(ops) % each * len(PARTS) // each]
        at = len(ops)
        group: list[tuple[str, list[int]]] = [
            ("Weight", []), ("View", [at]), ("Mul", [last, at + 1]), ("Sum", [at + 2]),
            ("Constant", []), ("Mul", [at + 3, at + 4]), ("Exp2", [at + 5]),
            ("Add", [at + 6, begin]),
        ]  # fmt: skip
        for op, read in group[: nodes - at]:
            ops.append(OPS.index(op))
            inputs.append(read)
            where.append(module[f"layers.{layer}.{part}"])
        last = len(ops) - 1
        if len(ops) // 40 != at // 40:  # a sum for every few groups
            begin = last
    count = len(ops)
    names = ["x", *(f"w{n}" if ops[n] == 1 else "" for n in range(1, count))]
    return {
        "ops": list(OPS), "op": ops, "inputs": inputs, "module": where, "name": names,
        "shape": ["8, 32" if n % 3 else "4, 8, 32" for n in range(count)],
        "dtype": ["f32"] * count, "file": [0] * count, "line": [3 + n % 50 for n in range(count)],
        "call": ["linear" if op == 4 else "" for op in ops], "loop": [-1] * count,
    }  # fmt: skip


def _stage(name: str, values: dict[str, Any]) -> dict[str, Any]:
    """The same without Views: what reads one reads what it shows."""
    kept = [n for n, op in enumerate(values["op"]) if OPS[op] != "View"]
    number = {n: k for k, n in enumerate(kept)}
    for n, op in enumerate(values["op"]):
        if OPS[op] == "View":
            number[n] = number[values["inputs"][n][0]]
    inputs = [[number[i] for i in values["inputs"][n]] for n in kept]
    end = " @ inline" if name == "selection" else ""
    texts = [
        f"%{k} = {OPS[values['op'][n]]} {', '.join(f'%{i}' for i in read)} : f32{end}"
        for k, (n, read) in enumerate(zip(kept, inputs, strict=True))
    ]
    return {
        "name": name, "ops": list(OPS), "op": [values["op"][n] for n in kept], "text": texts,
        "inputs": inputs, "of": [[n] for n in kept], "loop": [-1] * len(kept),
        "module": [values["module"][n] for n in kept],
    }  # fmt: skip


KERNELS = 9


def _kernels(values: dict[str, Any]) -> list[dict[str, Any]]:
    count = len(values["op"])
    made = []
    for k in range(KERNELS):
        of = list(range(count * k // KERNELS, count * (k + 1) // KERNELS))
        code = "\n".join(f"  %{n}: f32[i{n}] = Mul %{n} %{n + 1}" for n in range(40))
        made.append({
            "number": k, "label": "Contract.Add.Exp2", "of": of,
            "origin": f"layers.*.{PARTS[k % len(PARTS)]}: linear, add (model.py:{10 + k})",
            "lines": [[0, 10 + k], [0, 11 + k]],
            "causes": [f"8 numbers side by side, along i{k}"],
            "texts": {"tile": f"kernel k{k}\n{code}", "expanded": code, "llvm": f"; k{k}\n{code}",
                      "asm": "vfmadd231ps\n" * 5},
            "rows": [k],
        })  # fmt: skip
    return made


def _launches() -> list[dict[str, Any]]:
    rows = []
    for k in range(KERNELS):
        seconds = STEP * (1 + 3 * (k % 5) + k)
        flops, size = int(4e5 * 3**k), 40_000 * (1 + k * k)
        bound = "compute" if flops / PEAKS["flops"] > size / PEAKS["memory"] else "memory"
        least = max(flops / PEAKS["flops"], size / PEAKS["memory"])
        seconds = max(seconds, 0.8 * least)
        rows.append({
            "kernel": k, "label": "Contract.Add.Exp2", "trips": 32 if k == 2 else 1, "chunks": 4,
            "origin": f"layers.*.{PARTS[k % len(PARTS)]}: linear, add (model.py:{10 + k})",
            "flops": 0 if k == 1 else flops, "bytes": size, "seconds": seconds, "share": None,
            "bound": bound, "roofline": least / seconds, "least_seconds": least, "loop": -1,
            "reads": [0, k], "writes": [k + 1], "occupancy": _occupancy(k), "impossible": False,
        })  # fmt: skip
    return rows


def _occupancy(k: int) -> dict[str, Any] | None:
    """What of a device's unit a launch takes; a collective takes nothing."""
    if k == KERNELS - 1:
        return None
    limit = ("registers", "shared memory", "lanes", "chunks")[k % 4]
    return {"registers": 32 + k, "shared_bytes": 1024 * k, "lanes": 128, "held": 4, "groups": 4,
            "share": 0.25, "limit": limit}  # fmt: skip


def _timeline(launches: list[dict[str, Any]]) -> dict[str, Any]:
    run, now = [], 0.0
    for k, row in enumerate(launches):
        each = row["seconds"] / row["trips"]
        for trip in range(row["trips"]):
            wait = 0.1 * each
            run.append({"launch": k, "trip": trip, "track": f"thread {k % 2}", "wait": wait,
                        "start": now + wait, "end": now + wait + each})  # fmt: skip
            now += each + wait
    compiled = [
        {"name": "compile", "start": 0.0, "end": 1.02, "depth": 0},
        {"name": "lower", "start": 0.0, "end": 0.2, "depth": 1},
        {"name": "saturate", "start": 0.2, "end": 0.7, "depth": 1},
        {"name": "llvm", "start": 0.7, "end": 1.0, "depth": 1},
    ]
    return {"run": run, "compile": compiled, "search": []}


def _buffers() -> list[dict[str, Any]]:
    made = []
    for k in range(KERNELS + 1):
        made.append({
            "name": f"b{k}", "bytes": 100_000 * (1 + k % 4), "offset": 400_000 * (k % 3),
            "first": max(0, k - 1), "last": min(KERNELS - 1, k + 1), "kind": "arena",
            "of": [3 * k], "origin": f"layers.*.{PARTS[k % len(PARTS)]}", "lines": [[0, 10 + k]],
        })  # fmt: skip
    made.append({"name": "w0", "bytes": 2_000_000, "offset": None, "first": 0, "last": 0,
                 "kind": "weight", "of": [1], "origin": "", "lines": []})  # fmt: skip
    return made


def _memory(buffers: list[dict[str, Any]]) -> dict[str, Any]:
    arena = [b for b in buffers if b["kind"] == "arena"]
    held = [
        [n for n, b in enumerate(arena) if b["first"] <= k <= b["last"]] for k in range(KERNELS)
    ]
    sizes = [sum(arena[n]["bytes"] for n in ids) for ids in held]
    at = sizes.index(max(sizes))
    return {
        "arena_bytes": max(b["offset"] + b["bytes"] for b in arena),
        "sum_bytes": sum(b["bytes"] for b in arena),
        "peak": {"at": at, "bytes": sizes[at], "buffers": held[at]},
        "buffers": buffers,
        "report": {"input_bytes": 1024, "weight_bytes": 2_000_000, "derived_bytes": 0,
                   "state_bytes": 50_000, "arena_bytes": 1_200_000, "scratch_bytes": 4096,
                   "output_pool_bytes": 8192},
    }  # fmt: skip


def _spellings() -> list[dict[str, Any]]:
    nodes = [
        {"text": "Sum{a1} (%2 * %3)", "rule": "", "kind": "", "cost": 1.8e-5, "chosen": False,
         "why_not": "costs 1.8x: reads w twice"},
        {"text": "%3 * Sum{a1} %2", "rule": "sum-distribute", "kind": "rounding", "cost": 1e-5,
         "chosen": True, "why_not": ""},
    ]  # fmt: skip
    return [{"of": [4], "nodes": nodes}, {"of": [12], "nodes": nodes}]


def _search(total: float) -> dict[str, Any]:
    best = [(0.5, 1, 1.4), (4.0, 30, 1.31), (9.0, 90, 1.1), (21.0, 300, 1.02), (30.0, 512, 1.0)]
    outcomes = [("slower", 0.92, ""), ("kept", 1.07, ""), ("rejected", None, "wrong by 0.03")]
    genes = [
        {"candidate": n, "seconds": 30 * n / 512, "changed": f"k{n % KERNELS}: tile 4x16 to 8x32",
         "run_seconds": None if gain is None else 1.1 * total / gain, "gain": gain,
         "outcome": outcome, "reason": reason}
        for n in range(0, 512, 16)
        for outcome, gain, reason in [outcomes[n // 16 % 3]]
    ]  # fmt: skip
    return {
        "mode": "30s", "seed": 0, "candidates": 512, "kernels_built": 211,
        "rejected": [{"reason": "wrong result", "candidates": 7, "example": "k3: 0.03 off"}],
        "history": [{"seconds": s, "candidates": c, "best_seconds": b * total} for s, c, b in best],
        "fast_seconds": 1.4 * total, "best_seconds": total, "decision": "found 1.40x over fast",
        "rules": [{"name": "sum-distribute", "kind": "rounding", "matches": 12, "new_nodes": 30,
                   "seconds": 0.004}],
        "genes": genes,
        "difference": [
            {"text": "Kernel 3 works on tiles of 8x32 instead of 4x16", "without": 1.02},
            {"text": "Sum of mlp: down (model.py:12) is stored", "without": 1.31},
            {"text": "Loops are written out in the launch list", "without": None},
        ],
    }  # fmt: skip


def database(count: int = 30) -> dict[str, Any]:
    """A document of a database: searches that gained, that did not, and that failed."""
    made: list[dict[str, Any]] = []
    for n in range(count):
        search = _search(1e-3 * (n + 1)) | {"seed": 2**60 + n}
        decision = ("found 1.40x over fast", "nothing beat the fast program", "failed: it hung")
        made.append({
            "title": f"graph{n}", "of": f"layers.{n}: linear (model.py:{n})", "gain": None,
            "machine": "cpu: znver3", "dims": {"s": n}, "ended": f"2026-11-30 15:{59 - n}:00",
            "search": search | {"decision": decision[n % 3], "difference": [], "genes": []},
        })  # fmt: skip
        if n % 3 == 0:
            made[-1] |= {"gain": 1.4, "search": search}
    facts = {"title": "search.sqlite3", "made": "2026-11-30T16:00:00", "luminal": "0.0"}
    return {**facts, "searches": made}


def _program(kernels: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": "program", "ops": [f"k{k['number']}" for k in kernels],
        "op": list(range(len(kernels))), "of": [k["of"] for k in kernels],
        "text": [f"k{k['number']}[4](in b{k['number']}, out b{k['number'] + 1})  # {k['label']}"
                 for k in kernels],
        "inputs": [[n - 1] if n else [] for n in range(len(kernels))],
        "kernel": [k["number"] for k in kernels], "launch": list(range(len(kernels))),
        "loop": [-1] * len(kernels), "module": [-1] * len(kernels),
    }  # fmt: skip
