"""What a `.keras` file holds, looked at before Keras reads it.

HDF5 and Keras allocate what a file asks for. A dataset of 8 GB that was never written takes a few
bytes of the file, as does the configuration of a layer of that size.
"""

from __future__ import annotations

import importlib
import io
import json
import math
import zipfile
from collections.abc import Iterator
from typing import Any

from .backend import keras

CONFIG, HDF5, NPZ = "config.json", "model.weights.h5", "model.weights.npz"


def check_weights(archive: zipfile.ZipFile) -> None:
    """Nothing in the file is larger than the bytes that are there for it."""
    names = archive.namelist()
    held = sum(archive.getinfo(name).file_size for name in {HDF5, NPZ}.intersection(names))
    if HDF5 in names:
        check_datasets(archive.read(HDF5))
    asked = bytes_of_layers(json.loads(archive.read(CONFIG)))
    if asked > held:
        raise ValueError(f"its layers have {asked:,} bytes of weights, and the file has {held:,}")


def check_datasets(data: bytes) -> None:
    h5py: Any = importlib.import_module("h5py")
    total = 0
    with h5py.File(io.BytesIO(data), "r") as file:
        for dataset in datasets(file, h5py):
            size = math.prod(dataset.shape or ()) * dataset.dtype.itemsize
            stored = dataset.id.get_storage_size()
            if stored < size and dataset.shape is not None:
                raise ValueError(
                    f"{dataset.name} has {size:,} bytes, of which {stored:,} are there"
                )
            total += size
    if total > len(data):
        raise ValueError(f"its weights have {total:,} bytes, and their file {len(data):,}")


def datasets(file: Any, h5py: Any) -> Iterator[Any]:
    """Every dataset once; nothing outside of the file, and no group twice."""
    left, seen = [file], set()
    while left:
        group = left.pop()
        for name in group:
            link = group.get(name, getclass=True, getlink=True)
            if link is not h5py.HardLink:
                raise ValueError(f"{name[:80]!r} among its weights is of type {link.__name__}")
            found = group[name]
            address = h5py.h5o.get_info(found.id).addr
            if address in seen:
                continue
            seen.add(address)
            if isinstance(found, h5py.Group):
                left.append(found)
            elif isinstance(found, h5py.Dataset):
                if found.external or found.is_virtual:
                    raise ValueError(f"{name[:80]!r} among its weights is in another file")
                yield found


def bytes_of_layers(config: Any) -> int:
    """What the variables of the model take; on the device `meta` they take no memory.

    A model that cannot be made there counts as nothing, and Keras says what is wrong with it.
    """
    if not isinstance(config, dict):
        return 0
    bare = config | {"compile_config": None}
    try:
        with keras().device("meta"):
            model = keras().saving.deserialize_keras_object(bare, safe_mode=True)
        return sum(v.value.nbytes for v in model.variables)
    except Exception:  # of any kind: what a file says decides
        return 0
