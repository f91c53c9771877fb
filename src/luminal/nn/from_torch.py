"""Modules of PyTorch as modules of luminal.nn, with equal values; PyTorch itself is not imported.

Layers of luminal.nn have the names and options of PyTorch's, and PyTorch's keep their options as
attributes: so the twin of a layer is made of what its own attributes say. What has no twin, and
options that the twin lacks, are refused by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from luminal.base.complex_dtypes import any_dtype_of
from luminal.base.dtypes import dtype_of
from luminal.base.errors import InputError
from luminal.memory.parameter import Parameter

if TYPE_CHECKING:
    from luminal.nn.module import Module

Classes = Mapping[str, Any]
"""The classes of luminal.nn by name."""

MEANS_NOTHING = ("enable_nested_tensor", "inplace", "mask_check", "sparse")
"""Options of PyTorch's that change no value."""

ONLY_WITH = {"norm_type": "max_norm"}
"""Options that mean something only where another one is given."""

SAME = {"NonDynamicallyQuantizableLinear": "Linear"}
"""PyTorch's names for what is the same layer."""

CONTAINERS = ("Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict")

HOOKS = ("_forward_hooks", "_forward_pre_hooks")

HARMLESS = ("extra_repr", "reset_parameters", "__init__", "__repr__")
"""What a class of one's own may have of a layer's, and still computes as the layer does."""


def _layer_options(layer: Any) -> dict[str, Any]:
    """The options of a layer of PyTorch's transformers, which keeps parts instead of options."""
    return {
        "d_model": layer.self_attn.embed_dim,
        "nhead": layer.self_attn.num_heads,
        "dim_feedforward": layer.linear1.out_features,
        "activation": layer.activation,
        "layer_norm_eps": layer.norm1.eps,
        "batch_first": layer.self_attn.batch_first,
        "norm_first": layer.norm_first,
        "bias": layer.linear1.bias is not None,
    }


def _attention_options(attention: Any) -> dict[str, Any]:
    names = ("embed_dim", "num_heads", "dropout", "add_zero_attn", "kdim", "vdim", "batch_first")
    return {
        **{name: getattr(attention, name) for name in names},
        "bias": attention.in_proj_bias is not None,
        "add_bias_kv": attention.bias_k is not None,
    }


def _whole_options(whole: Any) -> dict[str, Any]:
    # The layers are twins of their own, which are put in afterwards: made here they would only be
    # thrown away.
    sizes = {"num_encoder_layers": 0, "num_decoder_layers": 0, "dim_feedforward": 1}
    return {
        "d_model": whole.d_model,
        "nhead": whole.nhead,
        "batch_first": whole.batch_first,
        **sizes,
    }


OPTIONS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "MultiheadAttention": _attention_options,
    "PairwiseDistance": lambda m: {"p": m.norm, "eps": m.eps, "keepdim": m.keepdim},
    "TransformerEncoderLayer": _layer_options,
    "TransformerDecoderLayer": _layer_options,
    "TransformerEncoder": lambda m: {"encoder_layer": None, "num_layers": 0},
    "TransformerDecoder": lambda m: {"decoder_layer": None, "num_layers": 0},
    "Transformer": _whole_options,
}
"""Where attributes do not have the options' names; parts are put in afterwards."""


# PyTorch is not imported: a class is known by the module that it was defined in. Classes of a
# user's own count as the layer they derive from where they change none of its methods, or their
# `forward` would be lost.
def twin(module: Any, classes: Classes) -> Any:
    """The module of `classes` that computes what `module` of PyTorch does, with its values.

    Values are copied; dtypes, tied Parameters, modes and requires_grad are as there. Raises
    InputError that names the layer, for what has no twin.
    """
    if not (hasattr(module, "state_dict") and hasattr(module, "_parameters")):
        raise InputError(f"from_torch: takes a module of PyTorch, got a {type(module).__name__}")
    twin_module = _Twins(classes).of(module, "")
    # Before values are loaded: where two names are one Parameter, a loaded value must reach both.
    _tie(module, twin_module)
    # Names are PyTorch's in every layer, so its own state_dict is the way for the values.
    twin_module.load_state_dict(module.state_dict(), adopt_dtypes=True)
    for path, parameter in twin_module.named_parameters(remove_duplicate=False):
        parameter.requires_grad = module.get_parameter(path).requires_grad
    return twin_module


class _Twins:
    """Twins made so far: a module in two places is one in ours."""

    def __init__(self, classes: Classes) -> None:
        self._classes = classes
        self._made: dict[int, Any] = {}

    def of(self, module: Any, path: str) -> Any:
        """The twin of the module at `path`, without its values."""
        # A module used in two places shares its values in both; so does its twin.
        if id(module) not in self._made:
            self._made[id(module)] = self._new(module, path)
        return self._made[id(module)]

    def _new(self, module: Any, path: str) -> Any:
        where = _where(path, module)
        base = _base(module, where)
        name = "" if base is None else SAME.get(base.__name__, base.__name__)
        if base is None or name not in self._classes:
            raise InputError(
                f"from_torch: {where} has no twin in luminal.nn; write it with luminal.nn, and "
                "call load_state_dict(module.state_dict())"
            )
        children = {n: self._child(m, _join(path, n)) for n, m in module._modules.items()}
        kind = self._classes[name]
        if name in CONTAINERS:
            held = _container(kind, name, module, children)
            held.training = module.training
            return held
        _check_lacks(where, base, kind, module)
        layer = kind(**self._options(where, name, kind, module))
        layer.train(module.training)
        for part, child in children.items():
            layer.set_part(part, child)
        for part, parameter in module._parameters.items():
            # A part may have been taken out after the layer was made, and no option says so.
            if parameter is None and getattr(layer, part, None) is not None:
                layer.set_part(part, None)
        for part, buffer in module._buffers.items():
            if buffer is not None and getattr(layer, part).dtype is not dtype_of(buffer):
                layer.set_part(part, getattr(layer, part).rounded(dtype_of(buffer)))
        return layer

    def _child(self, child: Any, path: str) -> Any:
        return None if child is None else self.of(child, path)

    def _options(self, where: str, name: str, kind: Any, module: Any) -> dict[str, Any]:
        if name in OPTIONS:
            options = OPTIONS[name](module)
        else:
            parameters = inspect.signature(kind).parameters
            options = {n: getattr(module, n) for n in parameters if hasattr(module, n)}
            if "bias" in options:  # a Parameter, where there is one
                options["bias"] = options["bias"] is not None and options["bias"] is not False
        return {n: self._option(where, n, value) for n, value in options.items()}

    def _option(self, where: str, name: str, value: Any) -> Any:
        """An option as our layer takes it."""
        if hasattr(value, "_parameters"):
            return self.of(value, name)
        if name == "dim" and value is None:
            raise InputError(f"from_torch: {where} has dim=None, which depends on x; name the dim")
        if callable(value):
            function_name = getattr(value, "__name__", "")
            if function_name not in ("relu", "gelu"):
                raise InputError(
                    f"from_torch: {where} has {name}={function_name or value!r}, a function "
                    "of PyTorch's tensors; give a module of torch.nn, or write the layer with "
                    "luminal.nn"
                )
            return function_name
        return value


def _base(module: Any, where: str) -> Any:
    """PyTorch's layer that `module` is, or computes as; None for what is none.

    Raises InputError for what computes otherwise than its class says.
    """
    # Hooks change what a call computes, and cannot be translated.
    if any(getattr(module, name, None) for name in HOOKS):
        raise InputError(
            f"from_torch: {where} has hooks, as weight_norm makes, and lazy layers before their "
            "first call; remove them, or call the module once"
        )
    if "forward" in vars(module):
        raise InputError(f"from_torch: {where} has a forward set on the object; remove it")
    below: set[str] = set()
    for kind in type(module).__mro__:
        if kind.__module__.startswith("torch.nn.modules."):
            changed = [n for n in below if n not in HARMLESS and n in _behaviour(kind)]
            return None if changed or kind.__name__ == "Module" else kind
        below.update(vars(kind))
    return None


def _behaviour(kind: type) -> set[str]:
    """The names of all methods of a class and those it derives from."""
    named = [item for base in kind.__mro__ for item in vars(base).items()]
    return {name for name, value in named if callable(value) or isinstance(value, property)}


def _check_lacks(where: str, base: Any, kind: Any, module: Any) -> None:
    """Raises InputError where PyTorch's layer has an option that ours does not know."""
    parameters = inspect.signature(kind).parameters
    for name, parameter in inspect.signature(base.__init__).parameters.items():
        if name in parameters or name in MEANS_NOTHING or not hasattr(module, name):
            continue
        needs = ONLY_WITH.get(name)
        if needs is not None and getattr(module, needs) is None:
            continue
        value = getattr(module, name)
        if name in module._parameters or value == parameter.default:
            continue
        raise InputError(
            f"from_torch: {where} has {name}={value!r}; luminal.nn.{kind.__name__} has no {name}"
        )


def _container(kind: Any, name: str, module: Any, children: dict[str, Any]) -> Any:
    if name == "Sequential":
        numbered = [*children] == [str(k) for k in range(len(children))]
        return kind(*children.values()) if numbered else kind(children)
    held = {n: Parameter(tuple(p.shape), any_dtype_of(p), n) for n, p in module._parameters.items()}
    parts = children or held
    return kind(parts.values()) if name.endswith("List") else kind(parts)


def _tie(module: Any, layers: Module) -> None:
    """Makes one Parameter of ours of what is one in PyTorch's module."""
    parts = dict(_parts(layers))
    first: dict[int, Parameter] = {}
    for path, theirs in module.named_parameters(remove_duplicate=False):
        owner, name, ours = parts[path]
        owner.set_part(name, first.setdefault(id(theirs), ours))


def _parts(module: Module) -> Iterator[tuple[str, tuple[Module, str, Parameter]]]:
    """Every Parameter by path: the module that it is a part of, its name there, and itself."""
    for path, owner in module.named_modules(remove_duplicate=False):
        for name, part in owner.parts():
            if isinstance(part, Parameter):
                yield _join(path, name), (owner, name, part)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _where(path: str, module: Any) -> str:
    kind = type(module).__name__
    return f"{path}: {kind}" if path else kind
