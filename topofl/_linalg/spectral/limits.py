"""Limits of the solvers: orders of matrices, steps and tolerances."""

__all__ = ["DENSE_LIMIT", "NEAR", "SPECTRUM_LIMIT", "STEPS", "SUSPECT", "TOLERANCE"]

DENSE_LIMIT = 1500
"""Largest order of matrices that are decomposed densely (under a second).

Lanczos or Arnoldi iterations are used for larger ones.
"""

SPECTRUM_LIMIT = 6000
"""Largest order of matrices whose eigenvalues are all computed densely (minutes).

This is done if all eigenvalues are requested, or if no other method succeeds.
"""

STEPS = 3000
"""Lanczos steps before shift-invert takes over."""

TOLERANCE = 1e-9
"""Residual at which the Lanczos iteration stops.

The error of the eigenvalue is smaller: about the square of the residual over the next gap.
"""

SUSPECT = 0.25
"""Modulus below which an eigenvalue from iterations may be a zero of a defective matrix.

The conditioning of such an eigenvalue is checked.
"""

NEAR = 1e-8
"""Distance from 1 and -1 of the shift of shift-invert.

The shift lies outside the spectrum, so the shifted matrix is nonsingular.
"""
