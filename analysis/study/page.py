from pathlib import Path


def write_page(tables, path):
    return Path(path)
