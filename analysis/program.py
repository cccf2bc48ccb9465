"""The name under which a study is started: ``python -m analysis.NAME``, or as installed."""

__all__ = ["as_installed"]


def as_installed(text: str | None) -> str:
    """Return text in which commands ``python -m analysis.NAME`` are named as they are installed.

    The studies are the package ``analysis`` in a checkout, and ``topofl.analysis`` in a wheel.
    """
    own = (__package__ or "").removesuffix("analysis")
    return (text or "").replace("python -m analysis", f"python -m {own}analysis")
