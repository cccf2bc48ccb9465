"""Short runs with checkpoints."""

import json

import topofl
from tests.engine import killed
from topofl.engine import checkpoint


def arguments(**changes):
    return killed.settings("clique_averaging") | changes


def train(folder, resume=False):
    return killed.trained(arguments(), saving=topofl.Saving(folder, every=2, resume=resume))


def rewrite(folder, **changes):
    for path in folder.glob("*/marker.json"):
        marker = json.loads(path.read_text()) | changes
        del marker["checksum"]
        path.write_text(json.dumps(marker | {"checksum": checkpoint.checksum_of(marker)}))


def dsgd_arguments(**changes):
    return killed.settings("dsgd over a period") | changes
