"""Arrays that are computed once and kept on disk."""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np


def cached_array(
    folder: str | os.PathLike, key: object, shape: tuple[int, ...], compute: Callable[[np.ndarray], None]
) -> np.ndarray:
    """A float32 array, memory-mapped and read-only: from its file, or computed and written.

    The file's name is a hash of the key. It is written under a temporary name and renamed, so that a run killed in
    between leaves nothing that could be taken for it.

    Args:
        key: everything that the array depends on, as JSON values.
        compute: fills a new array.
    Raises:
        ValueError: the file is there but cut off or of another shape.
    """
    folder = Path(folder)
    path = folder / f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]}.npy"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            array = np.lib.format.open_memmap(Path(temporary) / "array.npy", "w+", np.float32, shape)
            compute(array)
            array.flush()
            os.replace(Path(temporary) / "array.npy", path)
    try:
        array = np.load(path, mmap_mode="r")
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is cut off or no array ({error}): delete it, and it is computed again") from None
    if array.shape != shape:
        raise ValueError(f"{path} holds an array of {array.shape}, not {shape}: delete it, and it is computed again")
    return array
