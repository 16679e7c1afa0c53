"""The demo of `whet demo web`: a page in which a pretrained network learns new classes."""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch import nn

import whet

from ..emit.program import Program
from ..errors import BuildError, DataError
from ..ir import Role
from ..names import quoted
from ..targets.wasm.build import build
from ..targets.wasm.project import Memory
from .screen import say

CLASSES = 4
SIDE = 96  # pixels
FIRST_TRAINED = 17  # the last blocks of MobileNetV2 and the classifier learn
LEARNING_RATE = 0.0005
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
FILES = ("index.html", "style.css", "page.js", "sources.js", "charts.js", "worker.js", "program.js")
KINDS = {".js": "text/javascript", ".wasm": "application/wasm"}
OURS = "`whet demo web`"  # in program.js
OUT = Path("out/demo-web")


def pretrained() -> nn.Module:
    """MobileNetV2 with ImageNet features and a new classifier; its end may train."""
    from ..models import mobilenet_v2
    from .pictures import imagenet_weights

    weights = imagenet_weights()
    torch.manual_seed(0)
    model = mobilenet_v2(num_classes=CLASSES)
    model.load_state_dict(weights, strict=False)
    model.features[:FIRST_TRAINED].requires_grad_(False)
    return model.eval()


def compiled(model: nn.Module, side: int = SIDE, rate: float = LEARNING_RATE) -> Program:
    """A program for one picture at a time, which keeps what the frozen layers make of each."""
    trained = [p for p in model.parameters() if p.requires_grad]
    sgd = torch.optim.SGD(trained, lr=rate, momentum=0.9)
    example = (torch.zeros(1, 3, side, side),)
    return whet.compile(model, example, optimizer=sgd, target="wasm", cache_prefix=True)


def write_page(program: Program, folder: Path, words: str) -> Path:
    """A folder for any web server: the page, and the network that it trains."""
    described = description(program, words)
    refuse_foreign(folder)
    net = folder / "net"
    with tempfile.TemporaryDirectory(prefix="whet-") as made:
        package = build(program, Path(made)).parent
        net.mkdir(parents=True, exist_ok=True)
        for path in package.iterdir():
            shutil.copyfile(path, net / path.name)
    root = resources.files(__package__) / "page"
    texts = {name: (root / name).read_text() for name in FILES}
    texts["program.js"] = texts["program.js"].replace("@program@", json.dumps(described))
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder


def refuse_foreign(folder: Path) -> None:
    """A folder may have files besides the page's, but no others in their place."""
    script = folder / "program.js"
    if script.is_file() and OURS in script.read_text(errors="replace"):
        return
    if found := [name for name in (*FILES, "net") if (folder / name).exists()]:
        raise BuildError(
            f"{folder} has {found[0]}, which is not this demo's",
            why="the page would replace it",
            try_="another --output",
        )


def description(program: Program, words: str) -> dict[str, Any]:
    """What the page knows of the program."""
    step, predict = program.entries["train_step"], program.entries["predict"]
    shape = step.leaves_of(Role.INPUT)[0].type.shape
    if len(shape) != 4 or shape[0] != 1 or shape[1] != shape[2] or shape[3] != 3:
        raise DataError(f"the page takes one square picture in colour at a time, not {shape}")
    return {
        "side": shape[1],
        "classes": predict.outputs[0].type.elements,
        "mean": MEAN,
        "deviation": DEVIATION,
        "rate": program.lr,
        "words": words,
        "memory": memory_parts(program),
        "plan": plan_of(program),
    }


def memory_parts(program: Program) -> list[tuple[str, int]]:
    """The module's memory by kind; the last part is what pages and alignment add."""
    memory = program.memory
    parts = [
        ("weights", memory["flash"]),
        ("trained", memory["trained"]),
        ("optimizer", memory["state"]),
        ("arena", memory["arena"]),
        ("stack", memory["stack"]),
    ]
    rest = Memory.of(program).initial - sum(size for _, size in parts)
    return [*parts, ("arrays and rest", rest)]


def plan_of(program: Program) -> dict[str, Any]:
    """The arena of a training step, block by block."""
    plan = program.plans["train_step"]
    nodes = plan.graph.nodes
    losses = plan.graph.outputs[0]
    loss = next(i for i, node in enumerate(nodes) if losses in node.outs)
    return {
        "arena": plan.arena,
        "calls": len(nodes),
        "loss": loss,
        "blocks": [
            {
                "name": quoted(b.values[0].name),
                "first": b.first,
                "last": b.last,
                "offset": b.offset,
                "bytes": b.bytes,
            }
            for b in plan.buffers
        ],
    }


class Handler(SimpleHTTPRequestHandler):
    extensions_map = SimpleHTTPRequestHandler.extensions_map | KINDS

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not worth a line."""


def server(folder: Path, port: int) -> ThreadingHTTPServer:
    """For this machine alone."""
    handler = functools.partial(Handler, directory=str(folder))
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError as error:
        raise BuildError(
            f"cannot serve on port {port}",
            why=str(error.strerror),
            try_=f"another port: whet demo web --port {port + 1}",
        ) from error


def main(folder: Path = OUT, port: int | None = 8000) -> None:
    """Write the page, and serve it unless `port` is None."""
    serving = None if port is None else server(folder, port)  # before the work: it may be taken
    program = compiled(pretrained())
    write_page(program, folder, "It starts from a MobileNetV2 that has seen ImageNet.")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    say(f"wrote {folder}, {size / 1e6:.1f} MB: any web server can serve it")
    if serving is None:
        return
    with serving:
        say(f"open http://localhost:{serving.server_port}/ in a browser; Ctrl-C ends it")
        try:
            serving.serve_forever()
        except KeyboardInterrupt:
            say("")
