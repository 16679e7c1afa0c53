"""A Keras model, or a `.keras` file, becomes a PyTorch module."""

from __future__ import annotations

import io
import os
import warnings
import zipfile
from pathlib import Path
from typing import Any

from torch import Tensor

from ...errors import FrontendError
from ..memory import at_most
from ..torch.interpreted import Interpreted
from .backend import keras
from .compiled import compiled
from .inputs import inputs_of, symbolic_inputs
from .walk import KerasWalk, name_of
from .weights import check_weights

LARGEST = 1 << 31  # bytes of a file, and of what it unpacks to
ROOM = 1 << 30  # bytes that reading may take beside several copies of the weights
COPIES = 4
MEMBERS = ("config.json", "metadata.json", "model.weights.h5", "model.weights.npz")


class KerasModel(Interpreted):
    """A Keras model: its trainable variables are parameters, named by path, others are buffers."""

    walk: KerasWalk

    def compiled(self, batch: int = 1) -> dict[str, Any]:
        """What `model.compile` of Keras was told, as arguments for `whet.compile`."""
        return compiled(self, batch)


def from_keras(model: Any) -> KerasModel:
    """A Keras 3 model, or the path of a `.keras` file, as a PyTorch module in eval mode.

    Images keep Keras' order of axes, with the channels last. Files are read in Keras' safe mode.
    `model.example(batch)` makes inputs; `model.compiled()` gives the loss and the optimizer of
    `model.compile` as arguments of `whet.compile`.
    """
    found = keras()
    if isinstance(model, (str, os.PathLike)):
        model = read(Path(model))
    if not isinstance(model, found.Model):
        raise FrontendError(
            f"{type(model).__name__} is not a Keras model", try_="a keras.Model or a .keras file"
        )
    if not is_built(model):
        raise FrontendError(
            "the Keras model has no weights yet",
            why="it is built when it first sees the shape of its input",
            try_="model.build(shape), model(example), or an Input as its first layer",
        )
    return module_of(model)


def is_built(model: Any) -> bool:
    """`build` of a subclass may leave its layers without weights, which a first call makes."""
    whole: bool = model.built
    return whole and (
        symbolic_inputs(model) is not None or all(part.built for part in model._flatten_layers())
    )


def module_of(model: Any) -> KerasModel:
    structure, declared = inputs_of(model)
    refuse_shared_names(model)
    trained = {name_of(v): tensor_of(v) for v in model.trainable_variables}
    others = {name_of(v): v for v in model.non_trainable_variables}
    frozen = {name for name, v in others.items() if is_weight(model, v)}
    parameters = trained | {name: tensor_of(others[name]) for name in others if name in frozen}
    buffers = {name: tensor_of(v) for name, v in others.items() if name not in frozen}
    made = KerasModel(KerasWalk(model, structure), declared, parameters, buffers)
    for name in frozen:
        made.tensor(name).requires_grad_(False)
    made.eval()
    return made


def is_weight(model: Any, variable: Any) -> bool:
    """Whether this is a weight of a layer that was frozen, and no statistic or seed."""
    return any(
        variable is weight
        for layer in model._flatten_layers()
        for weight in getattr(layer, "_trainable_variables", ())
    )


def tensor_of(variable: Any) -> Tensor:
    found: Tensor = variable.value.detach().to("cpu").clone()
    return found


def refuse_shared_names(model: Any) -> None:
    seen: set[str] = set()
    for variable in model.variables:
        name = name_of(variable)
        if name in seen:
            raise FrontendError(
                f"two variables of the Keras model have the path {name!r}",
                try_="a name of its own for each layer",
            )
        seen.add(name)


def to_keras(module: KerasModel) -> Any:
    """The Keras model that `module` came from, with the module's weights in it."""
    if not isinstance(module, KerasModel):
        raise FrontendError(
            f"{type(module).__name__} did not come from Keras", try_="a model of from_keras"
        )
    model = module.walk.model
    for variable in model.variables:
        variable.assign(module.tensor(name_of(variable)).detach().cpu().numpy())
    return model


def read(place: Path) -> Any:
    """The model of a `.keras` file that nobody has vouched for."""
    try:
        if place.suffix != ".keras":
            raise FrontendError(
                f"{place} is no .keras file", why="the name says so", try_='model.save("net.keras")'
            )
        if not place.is_file():
            why = "it is a folder" if place.is_dir() else "there is no such file"
            raise FrontendError(f"cannot read {place}", why=why)
        if place.stat().st_size >= LARGEST:
            raise FrontendError(f"cannot read {place}", why="it is larger than 2 GiB")
        data = place.read_bytes()
    except OSError as error:
        raise FrontendError(f"cannot read {place}", why=str(error.strerror)) from error
    return parse(data, place)


def parse(data: bytes, place: Path) -> Any:
    """Keras' safe mode runs no code of a file; what it raises becomes one kind of error."""
    found = keras()
    try:
        size = check_archive(data)
        with at_most(ROOM + COPIES * size), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                check_weights(archive)
            return found.saving.load_model(str(place), safe_mode=True)
    except FrontendError:
        raise
    except MemoryError as error:
        raise not_read(place, "it asks for more memory than there is") from error
    except Exception as error:  # of zipfile, json, h5py, PyTorch and Keras
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        why = f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
        raise not_read(place, why[:300]) from error


def not_read(place: Path, why: str) -> FrontendError:
    return FrontendError(
        f"cannot read {place} as a Keras model", why=why, try_='model.save("model.keras")'
    )


def check_archive(data: bytes) -> int:
    """The bytes in the archive, before Keras looks at it: nothing large out of something small."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        total = 0
        for member in archive.infolist():
            total += member.file_size
            if member.filename not in MEMBERS and not member.filename.startswith("assets/"):
                raise ValueError(f"a member {member.filename[:80]!r} that Keras does not write")
        if total >= LARGEST:
            raise ValueError(f"it unpacks to {total:,} bytes")
        broken = archive.testzip()
        if broken is not None:
            raise ValueError(f"{broken} is damaged")
    return total
