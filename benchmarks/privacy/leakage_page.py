from pathlib import Path


def write_page(out: Path, records):
    pass
