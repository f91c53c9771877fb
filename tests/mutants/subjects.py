"""What is mutated, and the tests that are to notice: quick ones that say what it must do."""

from __future__ import annotations

from dataclasses import dataclass

COUNT = 40


@dataclass(frozen=True, slots=True)
class Subject:
    """Some modules, a sample of whose mutants the tests must kill.

    `count`: the sample's size.
    """

    name: str
    files: tuple[str, ...]
    tests: tuple[str, ...]
    count: int = COUNT


_NAMED_GUARDS = "tests/rules/test_guards.py::test_terms_are_named_for_all_guards_that_need_one"
_RUNTIME = "tests/backends/cpu/runtime"
_EXECUTABLE = f"{_RUNTIME}/test_executable.py"
_SEARCH = (
    "tests/unit/search/test_comparisons.py",
    "tests/unit/search/test_sides.py",
    "tests/unit/search/test_strategy.py",
)
_RUNNER = "tests/unit/search/test_runner.py"

SUBJECTS = (
    Subject("barriers", ("src/luminal/program/launch_list.py",),
            ("tests/unit/program/test_barriers.py", "tests/unit/program/test_memory_plan.py",
             _EXECUTABLE)),
    Subject("memory_plan", ("src/luminal/program/memory_plan.py",),
            ("tests/unit/program/test_memory_plan.py", _EXECUTABLE)),
    Subject("order", ("src/luminal/program/order.py",), ("tests/unit/program/test_order.py",)),
    Subject("in_place", ("src/luminal/program/in_place.py",),
            ("tests/backends/cpu/program/test_in_place.py",
             "tests/unit/program/test_partition.py")),
    Subject("prologue", ("src/luminal/runtime/prologue.py",),
            (f"{_RUNTIME}/test_prologue.py", f"{_RUNTIME}/test_poison.py"), count=100),
    Subject("device", ("src/luminal/backends/cpu/device.py", "src/luminal/backends/cpu/frame.py",
                       "src/luminal/backends/cpu/launch_rows.py"),
            ("tests/backends/cpu/test_device.py", f"{_RUNTIME}/test_poison.py", _EXECUTABLE,
             "tests/backends/cpu/frontend/test_custom_kernels.py",
             f"{_RUNTIME}/test_profile.py")),
    Subject("binding", ("src/luminal/runtime/binding.py",),
            ("tests/unit/runtime/test_binding.py", "tests/unit/session/test_session.py")),
    Subject("merge", ("src/luminal/selection/merge.py", "src/luminal/program/kernel_graph.py"),
            ("tests/unit/selection/test_merges.py", "tests/unit/program/test_kernel_graph.py",
             "tests/unit/selection/test_fast.py", "tests/unit/program/test_partition.py")),
    Subject("guards", ("src/luminal/kernel/guards.py",),
            ("tests/unit/kernel/test_guards.py",), count=200),
    Subject("rules", ("src/luminal/rules/casts.py", "src/luminal/rules/commutes.py",
                      "src/luminal/rules/constants.py", "src/luminal/rules/contractions.py",
                      "src/luminal/rules/exponentials.py", "src/luminal/rules/identities.py",
                      "src/luminal/rules/maxima.py", "src/luminal/rules/moves.py",
                      "src/luminal/rules/sums.py", "src/luminal/rules/notation.py"),
            ("tests/rules/test_notation.py", _NAMED_GUARDS, "tests/rules/test_rules.py",
             "tests/rules/test_guards.py", "tests/rules/test_unsound.py"), count=52),
    Subject("measure", ("src/luminal/search/measure.py", "src/luminal/search/runner.py"),
            (_RUNNER, *_SEARCH)),
    Subject("oracle", ("src/luminal/search/oracle.py", "src/luminal/search/distance.py"),
            ("tests/unit/search/test_verdicts.py", "tests/unit/search/test_oracle.py")),
    Subject("strategy", ("src/luminal/search/strategy.py",), _SEARCH),
    Subject("sampling", ("src/luminal/models/choice.py", "src/luminal/models/sampling.py"),
            ("tests/models/test_choice.py", "tests/models/test_generate_options.py")),
    Subject("loaders", ("src/luminal/loaders/safetensors_file.py", "src/luminal/loaders/gguf.py",
                        "src/luminal/loaders/llama2c.py", "src/luminal/loaders/gguf_tokenizer.py",
                        "src/luminal/models/gguf/read.py",
                        "src/luminal/models/gguf/changes.py",
                        "src/luminal/models/gguf/tensors.py",
                        "src/luminal/loaders/mapped.py", "src/luminal/loaders/json_file.py"),
            ("tests/unit/loaders/test_safetensors_file.py", "tests/unit/loaders/test_gguf.py",
             "tests/unit/loaders/test_llama_loaders.py",
             "tests/unit/loaders/test_gguf_tokenizers.py",
             "tests/models/test_gguf_models.py"), count=140),
)  # fmt: skip
