"""Compare this version of topofl with a checkout of another, to prove that nothing is lost.

``python -m analysis.same_as_before SUBJECT --before FOLDER`` compares the checkout in a folder with
the version that is imported. The Python of the other version is ``.venv/bin/python`` of its folder,
else the current one. The exit code is 1 if anything differs. Subjects:

- ``histories``: trains every algorithm, batched and looped, with attackers, compressors, clocks,
  cohorts, parts of models, all evaluations and checkpoints, on one process and on two ranks. All
  numbers of histories and final models must be equal to ``--tolerance`` (1e-12).
- ``methods``: the same for six methods that are written from the documentation only.
- ``names``: public names and parameters of the other version, or of a file with one per line
  (``--file``), must still be there, or be in a table of CHANGELOG.md whose first column is headed
  "renamed or dropped".
- ``tests``: runs the tests of the other version against this one, those that use no private names.
"""
