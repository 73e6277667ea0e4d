"""Execute the notebooks and store their outputs: ``python notebooks/execute.py [NAME ...]``.

Each must run without an error and take at most 300 kB with its outputs. If one takes more than
60 processor seconds, the output says so; that is not an error, because machines differ.
"""

import base64
import io
import os
import re
import resource
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from PIL import Image

HERE = Path(__file__).parent
SECONDS, BYTES = 60, 300_000


def smaller(picture: str) -> str:
    """Return a base64 PNG with 256 colours, a third of the size."""
    stored = io.BytesIO()
    image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    image.quantize(256, dither=Image.Dither.NONE).save(stored, "PNG", optimize=True)
    return base64.b64encode(stored.getvalue()).decode()


def processor_seconds() -> float:
    """Return those of all kernels that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def execute(path: Path) -> str:
    """Run a notebook in place, without metadata that differ between runs; return its cost."""
    notebook = nbformat.read(path, as_version=4)
    before = processor_seconds()
    NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(HERE)}},
    ).execute()
    seconds = processor_seconds() - before
    for output in (o for cell in notebook.cells for o in cell.get("outputs", ())):
        if output.output_type == "stream":  # warnings name the temporary file of their cell
            output.text = re.sub(r"^\S*ipykernel\S*: (?=\w+Warning)", "", output.text, flags=re.M)
        elif output.output_type in ("execute_result", "display_data"):
            output.metadata = {}
            if "image/png" in output.data:
                output.data["image/png"] = smaller(output.data["image/png"])
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    nbformat.write(notebook, path)
    size = path.stat().st_size
    slow = f", more than {SECONDS}" * (seconds > SECONDS)
    print(f"{path.name}: {seconds:.0f} CPU s{slow}, {size / 1000:.0f} kB", flush=True)
    return f"{path.name} takes more than {BYTES // 1000} kB" if size > BYTES else ""


def main(names: list[str]) -> int:
    """Execute the named notebooks, or all."""
    os.environ["SOC_PYMC_PROGRESS"] = "0"
    paths = [HERE / name for name in names] or sorted(HERE.glob("*.ipynb"))
    complaints = [text for path in paths if (text := execute(path))]
    print(*complaints, sep="\n")
    return len(complaints)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
