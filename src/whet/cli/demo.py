"""`whet demo`: see it work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="See it work.")


@app.command("mcu")
def mcu_command(
    person: Annotated[int | None, typer.Option(help="who wears the watch, 1 to 10")] = None,
    vision: Annotated[bool, typer.Option("--vision", help="MCUNet and flowers instead")] = False,
    data: Annotated[
        Path | None, typer.Option(help="folder of backbones and pictures, or WHET_DATA")
    ] = None,
) -> None:
    """A watch learns its wearer, in int8, on an emulated microcontroller.

    Example: [cyan]whet demo mcu --person 3[/]
    """
    if vision:
        from ..demo import vision as flowers

        flowers.main(data)
        return
    from ..demo import watch

    watch.main(watch.WEARER if person is None else person)


@app.command("llm")
def llm_command() -> None:
    """A language model learns to talk like an old sailor, and answers in C.

    Example: [cyan]whet demo llm[/]
    """
    from ..demo import llm

    llm.main()


@app.command("pictures")
def pictures_command() -> None:
    """A MobileNetV2 that knows ImageNet learns Fashion-MNIST.

    Example: [cyan]whet demo pictures[/]
    """
    from ..demo import pictures

    pictures.main()


@app.command("web")
def web_command(
    output: Annotated[Path, typer.Option("--output", "-o", help="folder to write")] = Path(
        "out/demo-web"
    ),
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="of the server on this machine")
    ] = 8000,
    serve: Annotated[bool, typer.Option(help="serve the folder, too")] = True,
) -> None:
    """A page in which a pretrained network learns from drawings, the camera and files.

    Example: [cyan]whet demo web[/]
    """
    from ..demo import web

    web.main(output, port if serve else None)
