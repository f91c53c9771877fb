"""The command line: what it prints, and how errors leave it."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from luminal.base import config
from luminal.base.errors import InputError
from luminal.cli.compile import Stage
from luminal.cli.main import main
from luminal.models.checkpoint import folder_tensors
from luminal.models.shipped import SHIPPED
from tests.long_share import mostly_long

ROOT = Path(__file__).resolve().parents[3]


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    """Run the command in this process; its exit status, or the message it exits with."""
    monkeypatch.setattr(sys, "argv", ["luminal", *arguments])
    monkeypatch.setattr(sys.modules["__main__"], "__package__", None)  # as a script, not -m pytest
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code


def test_env_names_every_flag(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LUMINAL_THREADS", "3")
    assert run(monkeypatch, "env") == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in config.FLAGS)
    assert "(set)" in printed
    assert "llvmlite 0.50" in printed


def test_brackets_colons_and_long_words_of_data_are_printed_as_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with config.override(LUMINAL_CACHE_DIR=Path("/nowhere/[cuda]/:cat:")):
        assert run(monkeypatch, "env") == 0
    assert "/nowhere/[cuda]/:cat:" in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "60")
    with config.override(LUMINAL_CACHE_DIR=Path("/" + "x" * 70)):
        assert run(monkeypatch, "env") == 0
    assert capsys.readouterr().out.count("x") >= 70


def test_commands_print_by_the_console_that_takes_texts_as_data() -> None:
    files = [path for path in (ROOT / "src/luminal/cli").glob("*.py") if path.stem != "console"]
    assert len(files) > 10
    assert [
        path.name
        for path in files
        if "import rich" in (text := path.read_text()) or "from rich" in text
    ] == []


def test_cache_info_and_clear(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with config.override(LUMINAL_CACHE_DIR=tmp_path, LUMINAL_CACHE_BYTES=1000):
        assert run(monkeypatch, "cache", "info") == 0
        assert run(monkeypatch, "cache", "clear") == 0
    printed = capsys.readouterr().out
    assert str(tmp_path) in printed
    assert "0 of at most 1000 (LUMINAL_CACHE_BYTES)" in printed
    assert "removed 0 entries" in printed


@pytest.mark.parametrize(
    "command",
    """
    generate chat serve convert merge quantize embed transcribe speak classify detect train compile
    run bench info devices env cache completion
    """.split(),
)
def test_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert run(monkeypatch, command, "--help") == 0
    assert command in capsys.readouterr().out


def test_help_names_every_command_and_no_option_that_changes_a_shell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--help") == 0
    printed = capsys.readouterr().out
    assert "generate" in printed
    assert "--install-completion" not in printed


@pytest.mark.parametrize(("words", "completed"), [("gen", "generate"), ("run --thr", "--threads")])
def test_a_shell_completes_commands_and_options(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    completed: str,
) -> None:
    assert run(monkeypatch, "completion", "bash") == 0
    assert "_LUMINAL_COMPLETE=complete_bash" in capsys.readouterr().out
    monkeypatch.setenv("_LUMINAL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"luminal {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
    assert run(monkeypatch) == 0
    assert capsys.readouterr().out.strip() == completed


def test_threads_of_a_command_are_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LUMINAL_THREADS", "7")
    met: list[int | None] = []
    path = "luminal.cli.onnx_inputs.load_model"
    monkeypatch.setattr(path, lambda file: met.append(config.get("LUMINAL_THREADS")))
    for options in ["--threads", "3"], []:
        with pytest.raises(AttributeError):  # of None, which is no model
            run(monkeypatch, "run", "m.onnx", *options)
    assert met == [3, 7]
    assert run(monkeypatch, "run", "m.onnx", "--threads", "0") == 2


def test_info_of_a_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")  # no line is broken, however long a path is
    assert run(monkeypatch, "info", str(SHIPPED)) == 0
    printed = capsys.readouterr().out
    weights = sum(math.prod(array.shape) for array in folder_tensors(SHIPPED).values())
    assert f"LlamaForCausalLM, {weights:,} weights" in printed
    assert "tokenizer: 1,024 tokens" in printed
    assert "model.embed_tokens.weight" in printed
    shutil.copy(SHIPPED / "model.safetensors", tmp_path)
    assert "no config.json in it" in str(run(monkeypatch, "info", str(tmp_path)))
    (tmp_path / "config.json").write_text('{"architectures": ["Fox"], "part": {"width": 3}}')
    assert run(monkeypatch, "info", str(tmp_path)) == 0
    printed = capsys.readouterr().out
    assert "architecture 'Fox' is not supported" in printed
    assert "part.width" in printed


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.startswith("luminal 0.")


def test_a_wrong_option_of_generate_prints_no_prompt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shared_data: Path
) -> None:
    model = ["--model", str(shared_data / "tinystories-656k"), "--prompt", "Once"]
    assert "backend 'gpu': takes" in str(run(monkeypatch, "generate", *model, "--backend", "gpu"))
    assert capsys.readouterr().out == ""
    assert run(monkeypatch, "generate", *model, "--seed", "-1") == 2


def test_wrong_usage_exits_with_2(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "generate") == 2
    assert run(monkeypatch, "compile", "f.py:f", "--dump", "everything") == 2


EXAMPLE = f"{ROOT / 'examples/softmax_of_matmul.py'}:graph"


def test_compile_prints_the_kernels(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "compile", EXAMPLE) == 0
    assert "at s = 512" in capsys.readouterr().out
    assert run(monkeypatch, "compile", EXAMPLE, "--backend", "reference", "--dims", "s=2..16") == 0
    assert "at s = 16" in capsys.readouterr().out


def test_compile_profiles_and_writes_reports(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    options = ["--dims", "s=8", "--profile", "--report", str(path)]
    assert run(monkeypatch, "compile", EXAMPLE, *options) == 0
    assert "a run takes" in capsys.readouterr().out
    facts = json.loads(path.read_text())
    assert facts["dims"] == {"s": 8}
    assert all(row["seconds"] > 0 for row in facts["kernels"])
    page = tmp_path / "report.html"
    assert run(monkeypatch, "compile", EXAMPLE, "--report", str(page)) == 0
    assert page.read_text().lower().startswith("<!doctype html>")


def test_compile_prints_stages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    of_others = (Stage.C, Stage.SASS)
    stages = [word for stage in Stage if stage not in of_others for word in ("--dump", stage)]
    assert run(monkeypatch, "compile", EXAMPLE, *stages, "--dims", "s=40") == 0
    printed = capsys.readouterr().out
    for start in (
        "graph {\n  %0",
        "algebra {",
        "selection {",
        "program {",
        "k0:\nkernel(",
        "digraph",
    ):
        assert start in printed
    assert "f32[40, 64]" in printed
    assert " s " not in printed.partition("k0:")[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["graph.txt:f"], "compile: 'graph.txt:f' must have the form FILE.py:FUNCTION"),
        (["nowhere.py:f"], "compile: nowhere.py: no such file"),
        ([EXAMPLE[:-5] + "grap"], "softmax_of_matmul.py has no function 'grap'"),
        ([f"{ROOT / 'tests/models/numpy_llama.py'}:forward"], "it is called without arguments"),
        (
            [EXAMPLE, "--report", "r.txt"],
            "--report r.txt: takes a name that ends in .html or .json",
        ),
        (
            [EXAMPLE, "--report", "/no/such/folder/r.html"],
            "/no/such/folder/r.html: cannot be written: there is no folder /no/such/folder",
        ),
        ([EXAMPLE, "--dims", "s:3"], "--dims 's:3' must have the form NAME=LO..HI or NAME=VALUE"),
        ([EXAMPLE, "--dims", "t=3"], "t: no such dim; the dims are s"),
        ([EXAMPLE, "--backend", "gpu"], "backend 'gpu': takes"),
        ([EXAMPLE, "--backend", "reference", "--dump", "asm"], "'reference' has no stage 'asm'"),
    ],
)
def test_compile_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    assert message in str(run(monkeypatch, "compile", *arguments))


def test_an_error_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMINAL_THREADS", "0")
    message = run(monkeypatch, "env")
    assert isinstance(message, str)
    assert message.startswith("luminal: LUMINAL_THREADS=0: LUMINAL_THREADS takes an integer >= 1")


@pytest.mark.long
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_an_output_that_is_full_is_one_line() -> None:
    command = [sys.executable, "-m", "luminal.cli.main", "cache", "info"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT
        )
    assert done.returncode == 1
    assert done.stderr == "luminal: the output cannot be written: No space left on device\n"


WRITE = """
import sys, typer
from pathlib import Path
from luminal.cli.output import writing
from luminal.cli import main
main.app.command("write")(lambda: typer.echo("x"))
@main.app.command("file")
def file():
    with writing("--output", Path("/dev/stdout")), open("/dev/stdout", "w") as file:
        file.write("x")
main.main()"""


@pytest.mark.parametrize("subcommand", ["write", "file"])
def test_an_output_that_nobody_reads_ends_as_sigpipe_does(subcommand: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", WRITE, subcommand]
    done = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.long
def test_an_output_that_is_closed_is_one_line() -> None:
    command = ["sh", "-c", 'exec "$0" -c "$1" write >&-', sys.executable, WRITE]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    expected = "luminal: the output cannot be written: not writable\n"
    assert (done.returncode, done.stderr) == (1, expected)


def test_an_option_s_file_that_is_no_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_bytes(b'{"type\xff')
    options = ["--prompt", "a", "--json-schema", str(tmp_path / "schema.json")]
    message = str(run(monkeypatch, "generate", *options))
    assert message == "luminal: b'{\"type\\xff' is no UTF-8 from byte 6 on"


def test_an_interrupt_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("luminal.runtime.object_cache.info", interrupted)
    assert run(monkeypatch, "cache", "info") == 130
    assert capsys.readouterr().err.strip() == "luminal: interrupted"


HALF_WRITTEN = """
import sys, time, luminal.runtime.object_cache
from luminal.cli.main import main
from luminal.models.checkpoint import folder_tensors
from luminal.models.shipped import SHIPPED
from luminal.loaders.write_atomic import replacing

def info():
    with replacing("result") as file:
        file.write(b"half")
        print("begun", flush=True)
        time.sleep(60)

luminal.runtime.object_cache.info = info
sys.argv = ["luminal", "cache", "info"]
main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("nohup", mostly_long([False, True], 1))
def test_a_command_that_is_told_to_end_leaves_nothing_half_written(
    tmp_path: Path, number: signal.Signals, nohup: bool
) -> None:
    command = [sys.executable, "-c", HALF_WRITTEN]
    if nohup:
        command = ["nohup", *command]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        assert len(list(tmp_path.iterdir())) == 1
        process.send_signal(number)
        ignored = number == signal.SIGHUP and (
            nohup or signal.getsignal(number) is signal.SIG_IGN  # these tests run under nohup
        )
        if ignored:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.5)
            process.send_signal(signal.SIGTERM)
        assert process.wait(20) == -(signal.SIGTERM if ignored else number)
    assert list(tmp_path.iterdir()) == []


def test_memory_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy() -> None:
        raise MemoryError("Unable to allocate 7 TiB")

    monkeypatch.setattr("luminal.runtime.object_cache.info", greedy)
    message = run(monkeypatch, "cache", "info")
    assert message == "luminal: not enough memory: Unable to allocate 7 TiB"


def test_a_prompt_that_is_no_text(monkeypatch: pytest.MonkeyPatch, shared_data: Path) -> None:
    model = ["--model", str(shared_data / "tinystories-656k"), "--prompt", "Once \udcff"]
    message = str(run(monkeypatch, "generate", *model))
    assert message == r"luminal: text: character 5 is no text ('\udcff'); give UTF-8"


def test_what_a_continuation_must_match(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    shared_data: Path,
    tmp_path: Path,
) -> None:
    pytest.importorskip("llguidance")
    model = ["--model", str(shared_data / "stories-260k/stories260K.gguf"), "--prompt", "Tom"]
    schema = tmp_path / "schema.json"
    schema.write_text('{"enum": ["yes", "no"]}')
    constrained = ["generate", *model, "--json-schema", str(schema), "--max-tokens", "9"]
    assert run(monkeypatch, *constrained) == 0
    assert capsys.readouterr().out in ('Tom"yes"\n', 'Tom"no"\n')
    message = str(run(monkeypatch, *constrained, "--regex", "a+"))
    assert message == "luminal: generate: --regex and --json-schema; give one of both"


def test_a_model_that_does_not_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    class Vectors:
        """A model that writes no text."""

    monkeypatch.setattr("luminal.models.load", lambda *_, **__: Vectors())
    message = str(run(monkeypatch, "chat", "--model", "vectors"))
    assert message == "luminal: chat: vectors is a Vectors, which does not chat"


@pytest.mark.long
def test_drafts_and_stops_of_generate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shared_data: Path
) -> None:
    path = str(shared_data / "stories-260k/stories260K.gguf")
    texts = []
    for more in ([], ["--draft", "lookup"], ["--draft", path], ["--stop", " so", "--stop", "he"]):
        options = ["--model", path, "--prompt", "Tom and his dog", "--max-tokens", "20", *more]
        assert run(monkeypatch, "generate", *options) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] == texts[2]
    assert texts[0].startswith(texts[3].rstrip("\n"))
    assert len(texts[3]) < len(texts[0])


def test_debug_lets_the_error_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMINAL_THREADS", "0")
    monkeypatch.setattr(sys, "argv", ["luminal", "env"])
    with config.override(LUMINAL_DEBUG=1), pytest.raises(InputError):
        main()


def test_the_process_exits_with_1_and_no_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "luminal.cli.main", "env"],
        env={"LUMINAL_DEBUG": "9", "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == "luminal: LUMINAL_DEBUG=9: LUMINAL_DEBUG takes an integer from 0 to 6\n"


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.15, 0.3])
def test_ctrl_c_at_the_start_is_one_line(seconds: float) -> None:
    """While the package is imported, or once the command runs: never a traceback."""
    code = "import luminal_command; print('begun', flush=True); luminal_command.main()"
    command = [sys.executable, "-c", code, "env"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        said, error = process.communicate()
    ended = "LUMINAL_THREADS" in said  # then Python itself, which ends, may die of the signal
    assert process.returncode in (0, 130, -signal.SIGINT if ended else 0)
    assert error in ("", "luminal: interrupted\n")
    assert (process.returncode == 130) == bool(error)
