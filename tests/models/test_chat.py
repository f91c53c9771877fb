"""Chats: templates as transformers renders them, history, and the terminal."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import luminal as lm
from luminal.cli.chat import COMMANDS
from luminal.cli.main import main
from luminal.models import LanguageModel, PromptLookup, load
from luminal.models.chat_template import ChatTemplate
from luminal.runtime.executable import Executable
from tests.long_share import mostly_long
from tests.models.small_models import language_model

pytest.importorskip("jinja2")

MARKED = """\
{%- if tools %}
    {{- 'Tools: ' + (tools | tojson) + '\\n' }}
{%- endif %}
{% for message in messages %}
    {%- if message.role == 'skip' %}{% continue %}{% endif %}
    {{- '<' + message['role'] + '>' + message.content | trim + '</>' }}
{% endfor %}
{% if add_generation_prompt %}
<assistant>{% endif %}"""
ALTERNATING = """\
{{ bos_token }}{% for message in messages %}
{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Roles must alternate: user, assistant, user ...') }}
{% endif %}
{% if message.role == 'user' %}[{{ message.content }}]{% else %}
{% generation %}{{ message.content + eos_token }}{% endgeneration %}{% endif %}
{% endfor %}"""
CHAT = [
    {"role": "user", "content": " Tom & “Lily” <b> "},
    {"role": "assistant", "content": "one\ntwo"},
    {"role": "user", "content": "three"},
]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "für Städte"}}]


@pytest.fixture
def folder(shared_data: Path, tmp_path: Path) -> Path:
    """A small model with a chat template."""
    for file in (shared_data / "tinystories-656k").iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.content }} {% endfor %}"
    )
    return tmp_path


@pytest.mark.parametrize("source", [MARKED, ALTERNATING], ids=["marked", "alternating"])
@pytest.mark.parametrize("tools", [None, TOOLS], ids=["plain", "tools"])
def test_texts_are_those_of_transformers(source: str, tools: Any, shared_data: Path) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(shared_data / "tinystories-656k/tokenizer.json"),
        bos_token="<s>",
        eos_token="</s>",
        chat_template=source,
    )
    ours = ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"})
    for chat in (CHAT[:1], CHAT, [*CHAT[:2], *CHAT]):
        try:
            expected = theirs.apply_chat_template(
                chat, tools=tools, tokenize=False, add_generation_prompt=True
            )
        except Exception as error:
            with pytest.raises(lm.InputError, match=str(error)):
                ours.render(chat, tools)
        else:
            assert ours.render(chat, tools) == expected


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ messages.__class__.__mro__ }}", "access to attribute '__class__' .* is unsafe"),
        ("{{ messages.append(1) }}", "access to attribute 'append' .* is unsafe"),
        ("{% include 'x' %}", "no loader for this environment"),
        ("{% for m in messages %}", "Unexpected end of template"),
        ("{{ messages[0].nothing.more }}", "has no attribute 'nothing'"),
    ],
    ids=["class", "append", "include", "syntax", "missing"],
)
def test_templates_that_are_refused(source: str, message: str) -> None:
    with pytest.raises(lm.InputError, match=f"chat template: .*{message}"):
        ChatTemplate(source).render(CHAT)


BOMBS = {
    "times": "{{ 'a' * 10**10 }}",
    "times_a_list": "{{ 10**10 * [1] }}",
    "power": "{{ 10 ** (10 ** 10) }}",
    "power_of_a_length": "{{ 10 ** (10 ** 10 + messages | length) }}",
    "added": "{% set n = namespace(x='ab') %}{% for i in range(99) %}"
    "{% set n.x = n.x + n.x %}{% endfor %}",
    "joined": "{% set n = namespace(x='ab') %}{% for i in range(99) %}"
    "{% set n.x = n.x ~ n.x %}{% endfor %}",
    "whole": "{% for i in range(10**5) %}{{ 'a' * 10**4 }}{% endfor %}",
    "format": "{{ '{:>999999999}'.format(1) }}",
    "format_precision": "{{ '{0:1.999999999f}'.format(1) }}",
    "percent": "{{ '%999999999d' % 1 }}",
    "percent_precision": "{{ '%5.999999999f' % 1 }}",
    "format_filter": "{{ '%999999999d' | format(1) }}",
    "ljust": "{{ 'a'.ljust(10**10) }}",
    "zfill": "{{ 'a'.zfill(width=10**10) }}",
    "center": "{{ 'a' | center(10**10) }}",
    "indent": "{{ ('\\n' * 10**6) | indent(10**6, True, True) }}",
    "batch": "{{ [1] | batch(10**10, 0) | list }}",
    "json": "{{ [1] | tojson(indent=10**10) }}",
    "lipsum": "{{ lipsum(10**9) }}",
}


@pytest.mark.parametrize("source", BOMBS.values(), ids=BOMBS)
def test_templates_that_would_take_all_memory(source: str) -> None:
    start = time.process_time()
    with pytest.raises(
        lm.InputError, match="chat template: it makes something of more than 16777216 characters"
    ):
        ChatTemplate(source).render("x")
    assert time.process_time() - start < 5


ENDLESS = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "calls": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
    "{{ f(40) }}",
    "searches": "{% set s = 'a' * 10**6 %}{% for i in range(99999) %}"
    "{% if 'b' in s %}{% endif %}{% endfor %}",
    "copies": "{% set s = 'a' * 10**7 %}{% for i in range(99999) %}{% set t = s[1:] %}{% endfor %}",
    "filters": "{{ range(99999) | map('string') | map('upper') | map('lower') | list }}" * 99,
    "tests": "{{ range(99999) | select('odd') | select('even') | list }}" * 99,
}


@pytest.mark.parametrize("source", ENDLESS.values(), ids=ENDLESS)
def test_templates_that_would_take_all_time(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("luminal.models.template_environment.SECONDS", 0.05)
    start = time.process_time()
    with pytest.raises(
        lm.InputError, match=r"chat template: it takes more than 0\.05 s and .* steps"
    ):
        ChatTemplate(source).render("x")
    assert time.process_time() - start < 3


@pytest.mark.parametrize(
    "source",
    ["{{ ('a' * 10**6) | wordwrap(1) }}", "{{ ('(' * 10**6) | urlize }}", "{{ 'a' }}" * 10**6],
    ids=["wordwrap", "urlize", "source"],
)
def test_what_takes_the_square_of_its_length(source: str) -> None:
    start = time.process_time()
    with pytest.raises(
        lm.InputError, match=r"chat template: it (makes something|has 9000000 char)"
    ):
        ChatTemplate(source).render("x")
    assert time.process_time() - start < 1


def test_loops_know_what_they_go_through() -> None:
    source = (
        "{% for a in [1, 2, 3] if a > 1 %}{{ loop.index }}/{{ loop.length }}{{ loop.last }} "
        "{% endfor %}{% for a in nothing %}{% else %}none{% endfor %}"
        "{% for a in [[[]], []] recursive %}<{{ loop(a) if a }}>{% endfor %}"
    )
    assert ChatTemplate(source).render("x") == "1/2False 2/2True none<<>><>"


@pytest.mark.parametrize("source", ["{{ '%*d' % (9, 1) }}", "{{ '{:{}}'.format(1, 9) }}"])
def test_widths_that_are_arguments(source: str) -> None:
    with pytest.raises(lm.InputError, match="a width that is an argument; write it as a number"):
        ChatTemplate(source).render("x")


HARMLESS = {
    "{{ 'a' * 3 ~ 1 + '2' }} {{ [1] * 2 + [3] }} {{ 2 ** 10 % 1000 }}": "aaa12 [1, 1, 3] 24",
    "{{ '{:*>4}|{:%Y}'.format(1, messages[0].content and now) }}": "***1|2026",
    "{{ '%5.1f: 1700000000 %s' % (1, 'a') }}": "  1.0: 1700000000 a",
    "{{ '{}: {:>3}'.format(1700000000, 1) }}": "1700000000:   1",
    "{{ 'a' | center(5) }}{{ 'b'.ljust(2) }}{{ 'c\\nd' | indent(2) }}": "  a  b c\n  d",
    "{{ [1, 2, 3] | batch(2, 0) | list }}": "[[1, 2], [3, 0]]",
    "{{ {'a': [1]} | tojson(indent=2) }}": '{\n  "a": [\n    1\n  ]\n}',
}


@pytest.mark.parametrize("source", HARMLESS)
def test_what_is_bounded_is_what_it_was(source: str) -> None:
    names: Any = {"now": datetime(2026, 1, 1)}
    assert ChatTemplate(source, names).render("x") == HARMLESS[source]


def test_messages_that_are_none() -> None:
    assert ChatTemplate("{{ messages[0].content }}").render("hi") == "hi"
    with pytest.raises(lm.InputError, match="messages: number 1 is 3; each is a dict with a role"):
        ChatTemplate("").render([CHAT[0], 3])  # type: ignore[list-item]


def test_a_chat_reads_only_what_is_new(folder: Path) -> None:
    model: LanguageModel = load(folder, context=120)
    first = [{"role": "user", "content": "Once upon a time there was"}]
    answer = model.chat(first, 8)
    longer = [*first, {"role": "assistant", "content": answer}, *CHAT[2:]]
    ids, read = model.chat_prompt(longer), []
    original = model.programs.read

    def counted(texts: Any, features: Any) -> Any:
        read.append(len(texts[0].unread))
        return original(texts, features)

    model.programs.read = counted  # type: ignore[method-assign]
    found = model.chat(longer, 8)
    assert read[0] < len(ids) - len(model.chat_prompt(first)) + 2
    assert found == "".join(load(folder, context=120).stream(ids, 8))


def test_a_chat_that_is_read_after_another_text(folder: Path) -> None:
    model: LanguageModel = load(folder, context=120)
    question = [{"role": "user", "content": "Once upon a time there was"}]
    answer = model.chat(question, 8)
    pieces = model.stream_chat(question, 8)
    model.generate("Something else that lies in the caches then", 4)
    assert "".join(pieces) == answer


INTERRUPTED = {
    "chat": lambda model, path: model.chat("ABXYZ", 6),
    "text": lambda model, path: model.generate("QRSTUVWXYZ", 6),
    "draft": lambda model, path: model.generate("QRQRQRQRQR", 6, draft=PromptLookup()),
    "prompt of a file": lambda model, path: (model.load_prompt(path), model.generate("XYZZZZ", 0)),
}


@pytest.mark.parametrize("run", mostly_long([1, 0, 2], 1))
@pytest.mark.parametrize("kind", INTERRUPTED)
def test_a_chat_after_a_text_that_was_interrupted(
    kind: str, run: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any of its runs, before anything is noted of it: the caches hold another text."""
    model, path, runs = language_model(), tmp_path / "prompt.safetensors", [0]
    model.chat_template = ChatTemplate("{{ messages[0].content }}")
    model.save_prompt("XYZ", path)
    expected = model.chat("ABCDEFGH", 6)
    original = Executable.__call__

    def interrupted(self: Executable, *args: Any, **named: Any) -> Any:
        found = original(self, *args, **named)
        runs[0] += 1
        if runs[0] == run + 1:
            raise KeyboardInterrupt
        return found

    with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
        patched.setattr(Executable, "__call__", interrupted)
        INTERRUPTED[kind](model, path)
    assert model.chat("ABCDEFGH", 6) == expected


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ 1 / 0 }}", "ZeroDivisionError: division by zero"),
        ("{{ '{a}'.format() }}", "KeyError: 'a'"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError: maximum recursion"),
        ("{{ messages[5].content }}", "list object has no element 5"),
        ("{{ " + "(" * 5000, "RecursionError: maximum recursion"),
        ("{% for", "unexpected 'end of template'"),
    ],
    ids=["number", "key", "endless", "index", "deep", "half"],
)
def test_what_goes_wrong_in_a_template(source: str, message: str) -> None:
    with pytest.raises(lm.InputError, match=f"chat template: {message}"):
        ChatTemplate(source).render("hi")


def test_what_is_no_chat() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.content }};{% endfor %}")
    assert template.render(each for each in CHAT[1:]) == "one\ntwo;three;"  # type: ignore[arg-type]
    with pytest.raises(lm.InputError, match="messages: None is no chat; give a text, or a list"):
        template.render(None)  # type: ignore[arg-type]


def test_names_of_special_tokens(folder: Path) -> None:
    config = {"eos_token": {"content": "<end>"}, "pad_token": "<pad>", "add_bos_token": True}
    (folder / "tokenizer_config.json").unlink(missing_ok=True)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    template = load(folder).chat_template
    assert template.tokens.keys() == {"bos_token", "eos_token", "pad_token"}
    assert (template.tokens["eos_token"], template.tokens["pad_token"]) == ("<end>", "<pad>")
    assert template.tokens["bos_token"].endswith("<|start_story|>")


# --- in the terminal ------------------------------------------------------------------------------


def chat(monkeypatch: pytest.MonkeyPatch, lines: str, folder: Path, *more: str) -> int | str | None:
    """The command with these lines typed; its exit status, or the message it ends with."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    options = ["--max-tokens", "6", "--temperature", "0", "--context", "100", *more]
    monkeypatch.setattr(sys, "argv", ["luminal", "chat", "--model", str(folder), *options])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code


def test_a_chat_in_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    lines = "Once upon a time\n\n/reset\nOnce upon a time\nThe end\n/exit\nnever read\n"
    assert chat(monkeypatch, lines, folder, "--stats") == 0
    printed = capsys.readouterr()
    answers = printed.out.splitlines()
    assert len(answers) == 3
    assert answers[0] == answers[1]
    assert printed.err.count("tokens/s") == 3


def test_commands_of_a_chat(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    folder: Path,
    tmp_path: Path,
) -> None:
    file = tmp_path / "chat.json"
    lines = (
        f"/help\nOnce\n/save {file}\n/system Be brief.\nOnce\n/usr/bin is what?\n"
        f"/save {tmp_path / 'second.json'}\n/system\n/save {tmp_path / 'third.json'}\n/reste\n"
    )
    message = str(chat(monkeypatch, lines, folder))
    assert message.startswith("luminal: /reste: no such command; did you mean '/reset'?; there are")
    told = capsys.readouterr()
    for command in COMMANDS:
        assert f"{command} " in told.err
    saved = [json.loads((tmp_path / f"{n}.json").read_text()) for n in ("chat", "second", "third")]
    assert [message["role"] for message in saved[0]] == ["user", "assistant"]
    assert saved[0][1]["content"] == told.out.splitlines()[0]
    roles = ["system", "user", "assistant", "user", "assistant"]
    assert [message["role"] for message in saved[1]] == roles
    assert [saved[1][k]["content"] for k in (0, 3)] == ["Be brief.", "/usr/bin is what?"]
    assert saved[2] == []
    missing = tmp_path / "none" / "chat.json"
    assert "make the folder first" in str(chat(monkeypatch, f"/save {missing}\n", folder))
    assert "takes the name of a file" in str(chat(monkeypatch, "/save\n", folder))


def test_an_interrupt_stops_the_answer_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    from luminal.models.programs import Programs

    runs, original = [0], Programs.read

    def interrupted(self: Programs, *args: Any) -> Any:
        runs[0] += 1
        if runs[0] == 3:
            raise KeyboardInterrupt
        return original(self, *args)

    monkeypatch.setattr(Programs, "read", interrupted)
    assert chat(monkeypatch, "Once upon a time\nThe end\n", folder) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith(" [stopped]")
    assert second
    assert "[stopped]" not in second


class Terminal(io.StringIO):
    """Lines that a person types."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("line", mostly_long(["a " * 200, "caf\udce9"], 1), ids=["long", "bytes"])
def test_a_message_that_is_refused_ends_no_chat_of_a_person(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    lines = f"Once upon a time\n{line}\nThe end\n"
    message = str(chat(monkeypatch, lines, folder))
    capsys.readouterr()
    monkeypatch.setattr(io, "StringIO", Terminal)
    assert chat(monkeypatch, lines, folder) == 0
    told = capsys.readouterr()
    assert f"{message} (left out; /reset forgets the chat)" in told.err
    assert len(told.out.splitlines()) == 3  # two answers, and the last prompt


@pytest.mark.long
def test_lines_are_edited_and_remembered(folder: Path) -> None:
    """In a terminal of its own: the arrow up brings the last line again."""
    import os
    import pty

    pid, terminal = pty.fork()
    if pid == 0:
        options = ["--model", str(folder), "--max-tokens", "2"]
        os.execv(sys.executable, [sys.executable, "-m", "luminal.cli.main", "chat", *options])
    seen = b""
    for typed in (b"Once upon\n", b"\x1b[A\n", b"/exit\n"):
        end = len(seen)
        while b"> " not in seen[end:]:
            seen += os.read(terminal, 4096)
        os.write(terminal, typed)
    with contextlib.suppress(OSError):  # it ends
        while piece := os.read(terminal, 4096):
            seen += piece
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert seen.count(b"Once upon") == 2
    assert b"^[" not in seen


def test_a_model_without_a_template(
    monkeypatch: pytest.MonkeyPatch, shared_data: Path, tmp_path: Path
) -> None:
    plain = shared_data / "tinystories-656k"
    message = chat(monkeypatch, "hi\n", plain)
    assert message == "luminal: chat: the model has no chat template; use generate, or give it one"
    (tmp_path / "chat.jinja").write_text("{{ messages[0].content }}")
    assert chat(monkeypatch, "hi\n", plain, "--template", str(tmp_path / "chat.jinja")) == 0
