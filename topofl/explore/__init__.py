"""``topofl explore``: two topologies on the same data, side by side, in a browser.

``datasets`` and ``choices`` list what can be chosen, ``setup`` builds it, ``compared`` computes
what is shown, ``pictures`` draws it and ``code`` is the Python that does the same. None of them
needs marimo: ``app`` is the notebook, ``widgets`` has its parts, and ``serve`` starts it.
"""
