"""Small files in the layouts of CIFAR-10 and CIFAR-100."""

import pickle

import numpy as np

CIFAR10 = {f"data_batch_{i}": (0, 1, 1, 0, 2, 3) for i in range(1, 6)} | {
    "test_batch": (0, 1, 2, 3)
}


def images(classes, seed):
    return np.random.default_rng(seed).integers(0, 256, (len(classes), 3072)).astype(np.uint8)


def batches(files):
    """Return name, pixels, fine and coarse labels (the class modulo 20) of each file."""
    for seed, (name, classes) in enumerate(files.items()):
        yield name, images(classes, seed), list(classes), [label % 20 for label in classes]


def save_pickles(folder, files=CIFAR10, protocol=4, **changes):
    """Write small files of the pickled layout; `changes` replace entries, None removes them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, pixels, fine, coarse in batches(files):
        labels = (
            {b"labels": fine}
            if files is CIFAR10
            else {b"fine_labels": fine, b"coarse_labels": coarse}
        )
        entries = {
            b"batch_label": b"x",
            **labels,
            b"data": pixels,
            b"filenames": [b"a.png"] * len(fine),
        }
        entries |= {key.encode(): value for key, value in changes.items()}
        entries = {key: value for key, value in entries.items() if value is not None}
        (folder / name).write_bytes(pickle.dumps(entries, protocol=protocol))
    return folder


def save_binaries(folder, files=CIFAR10):
    """Write small files of the binary layout: a byte for each kind of label, then the pixels."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, pixels, fine, coarse in batches(files):
        labels = [fine] if files is CIFAR10 else [coarse, fine]
        (folder / f"{name}.bin").write_bytes(
            np.column_stack([*labels, pixels]).astype(np.uint8).tobytes()
        )
    return folder
