"""Entry point of the `luminal` command."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

from luminal.base import config, installation
from luminal.base.errors import LuminalError
from luminal.cli import (
    bench,
    cache,
    chat,
    classify,
    compile,
    completion,
    convert,
    detect,
    devices,
    draw,
    embed,
    env,
    generate,
    info,
    launch,
    links,
    merge,
    profile,
    quantize,
    rerank,
    run,
    segment,
    serve,
    simulate,
    speak,
    train,
    transcribe,
    viz,
)
from luminal.cli.ending import ended_in_order
from luminal.cli.options import with_threads
from luminal.loaders.shown import shown

INTERRUPTED = 130  # the status of a process that Ctrl-C ended: 128 + SIGINT

UNREAD = 141  # of one whose output nobody reads any more: 128 + SIGPIPE

app = typer.Typer(
    name="luminal",
    help="A deep-learning compiler that searches.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"luminal {installation.VERSION}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_show_version, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """A deep-learning compiler that searches."""


# This is the order in which --help lists them: models first, then files and graphs, then what
# concerns the installation.
app.command("generate")(with_threads(generate.command))
app.command("chat")(with_threads(chat.command))
app.command("classify")(with_threads(classify.command))
app.command("detect")(with_threads(detect.command))
app.command("segment")(with_threads(segment.command))
app.command("draw")(with_threads(draw.command))
app.command("embed")(with_threads(embed.command))
app.command("rerank")(with_threads(rerank.command))
app.command("transcribe")(with_threads(transcribe.command))
app.command("speak")(with_threads(speak.command))
app.command("convert")(with_threads(convert.command))
app.command("merge")(with_threads(merge.command))
app.command("quantize")(with_threads(quantize.command))
app.command("serve")(with_threads(serve.command))
app.command("train")(with_threads(train.command))
app.command("links")(links.command)
app.command("simulate")(simulate.command)
app.command("launch", context_settings=launch.SETTINGS)(launch.command)
app.command("compile")(with_threads(compile.command))
app.command("viz")(with_threads(viz.command))
app.command("profile", context_settings=profile.SETTINGS)(profile.command)
app.command("run")(with_threads(run.command))
app.command("bench")(bench.command)
app.command("info")(info.command)
app.command("devices")(devices.command)
app.command("env")(env.command)
app.command("completion")(completion.command)
app.add_typer(cache.app, name="cache")


def main() -> None:
    """Run the command. A LuminalError becomes one message on stderr and exit status 1."""
    debug = 0
    if sys.stdin is None:  # it is closed
        sys.stdin = io.StringIO()
    if sys.stdout is None:  # it is closed: whoever writes there shall hear of it
        sys.stdout = open(os.devnull)  # noqa: SIM115
    try:
        # Read inside of the `try`: a value that is no level raises an error for the user like any
        # other.
        debug = config.get("LUMINAL_DEBUG")
        with ended_in_order():
            app()
    except LuminalError as error:
        if debug >= 1:
            raise
        sys.exit(f"luminal: {error}")
    except SystemExit as done:
        if done.code == INTERRUPTED:  # typer ends a command so, without a word
            print("luminal: interrupted", file=sys.stderr)
        if isinstance(done.__context__, BrokenPipeError):  # typer says 1
            sys.exit(UNREAD)
        raise
    except UnicodeDecodeError as error:  # of the input, or a file that is an option
        if debug >= 1:
            raise
        sys.exit(f"luminal: {shown(error.object)} is no UTF-8 from byte {error.start} on")
    except MemoryError as error:
        if debug >= 1:
            raise
        sys.exit(f"luminal: not enough memory: {shown(error)}")
    except OSError as error:  # of the output: commands turn others into errors that name a file
        if debug >= 1 or error.filename is not None:
            raise
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (what is left would fail again)
        sys.exit(f"luminal: the output cannot be written: {error.strerror or error}")


if __name__ == "__main__":
    main()
