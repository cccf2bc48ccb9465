"""Sparse matrices of scipy as tensors of torch."""

import warnings
from functools import cache
from threading import Lock

import scipy.sparse as sparse
import torch


def sparse_tensor(
    matrix: sparse.csr_array, device: torch.device, dtype: torch.dtype
) -> torch.Tensor:
    """Return a sparse matrix as a tensor on a device.

    Examples
    --------
    >>> identity = sparse_tensor(sparse.eye_array(2).tocsr(), torch.device("cpu"), torch.float32)
    >>> identity @ torch.ones(2)
    tensor([1., 1.])
    """
    parts = (torch.from_numpy(part.copy()) for part in (matrix.indptr, matrix.indices, matrix.data))
    with _CREATION_LOCK:
        _drop_csr_warning()
        csr = torch.sparse_csr_tensor(
            *parts, size=matrix.shape, dtype=dtype, device="cpu", check_invariants=True
        )
    return csr.to(device)  # checked on the CPU, since a check on a GPU would wait for it


_CREATION_LOCK = Lock()
"""Held while torch checks the invariants of a sparse tensor, a setting of the whole process."""


@cache
def _drop_csr_warning() -> None:
    """Trigger and ignore torch's warning that CSR tensors are in beta, given once per process.

    Done only once, since ``warnings.catch_warnings`` is not thread-safe.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Sparse CSR tensor support is in beta", category=UserWarning
        )
        torch.zeros(1, 1, device="cpu").to_sparse_csr()
