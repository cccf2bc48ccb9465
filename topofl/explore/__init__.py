"""``topofl explore``: two topologies on the same data, side by side, in a browser.

``model`` has what can be chosen and builds it; ``results`` has the numbers, pictures and code of
what was chosen. Neither needs marimo: ``app`` is the notebook, ``widgets`` has its parts, and
``serve`` starts it.
"""
