"""Flags: values, rules, overrides, and that nobody else reads the environment."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from luminal.base import config
from luminal.base.errors import InputError

PACKAGE = Path(config.__file__).parent


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in config.FLAGS:
        monkeypatch.delenv(name, raising=False)
    with config.override(LUMINAL_VERIFY=None, LUMINAL_POISON=None):
        assert config.get("LUMINAL_DEBUG") == 0
        assert config.get("LUMINAL_THREADS") is None
        assert config.get("LUMINAL_CACHE_BYTES") == 2**30
        assert config.get("LUMINAL_CACHE_DIR").name == "luminal"
        assert config.get("LUMINAL_TARGET") == "native"
        assert config.get("LUMINAL_VERIFY") is False
        assert all(row.is_default for row in config.table())


def test_the_environment_is_read_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMINAL_THREADS", "3")
    assert config.get("LUMINAL_THREADS") == 3
    monkeypatch.setenv("LUMINAL_THREADS", "")
    assert config.get("LUMINAL_THREADS") is None


def test_override_nests_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMINAL_THREADS", "5")
    with config.override(LUMINAL_THREADS=2, LUMINAL_DEBUG=1):
        with config.override(LUMINAL_THREADS=None):
            assert config.get("LUMINAL_THREADS") is None
            assert config.get("LUMINAL_DEBUG") == 1
        assert config.get("LUMINAL_THREADS") == 2
    assert config.get("LUMINAL_THREADS") == 5


def test_override_takes_typed_values(tmp_path: Path) -> None:
    with config.override(LUMINAL_CACHE_DIR=tmp_path, LUMINAL_VERIFY=False):
        assert config.get("LUMINAL_CACHE_DIR") == tmp_path
        assert config.get("LUMINAL_VERIFY") is False


@pytest.mark.parametrize(
    ("name", "text", "rule"),
    [
        ("LUMINAL_DEBUG", "7", "takes an integer from 0 to 6"),
        ("LUMINAL_DEBUG", "much", "takes an integer from 0 to 6"),
        ("LUMINAL_THREADS", "0", "takes an integer >= 1"),
        (
            "LUMINAL_TARGET",
            "sse",
            "takes one of native, avx512, avx2, sve256, v8.6, v8.2, neon, baseline: ",
        ),
        ("LUMINAL_VERIFY", "perhaps", "takes 1 or 0"),
        ("LUMINAL_CACHE_BYTES", "-1", "takes a number of bytes >= 0"),
    ],
)
def test_a_bad_value_is_named_with_its_rule(name: str, text: str, rule: str) -> None:
    with pytest.raises(InputError) as caught, config.override(**{name: text}):
        pass
    assert str(caught.value).startswith(f"{name}={text}: {name} {rule}")


def test_an_unknown_flag_is_refused() -> None:
    with pytest.raises(InputError, match="no flag 'LUMINAL_SPEED'; the flags are LUMINAL_DEBUG"):
        config.get("LUMINAL_SPEED")  # type: ignore[call-overload]


def test_the_cache_key_holds_what_changes_code() -> None:
    with config.override(LUMINAL_TARGET="avx2"):
        assert config.cache_key() == (("LUMINAL_TARGET", "avx2"),)


def test_the_debug_ladder_is_documented() -> None:
    help_text = config.FLAGS["LUMINAL_DEBUG"].help
    assert all(f"{level}: {what}" in help_text for level, what in enumerate(config.DEBUG_LADDER))


READS = ("environ", "getenv", "putenv")


def test_only_config_reads_the_environment() -> None:
    readers = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if any(word in (text := path.read_text(encoding="utf-8")) for word in READS)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and node.attr in READS
    }
    assert readers == {"config.py"}


def test_a_relative_cache_folder_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with config.override(LUMINAL_CACHE_DIR="beside_me"):
        first = config.get("LUMINAL_CACHE_DIR")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert config.get("LUMINAL_CACHE_DIR") == first == tmp_path / "beside_me"
