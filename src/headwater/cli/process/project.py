"""`headwater new NAME`: a project that runs at once: an application, its page, its tests and a few words about it.

Owns which files those are; what is in them is in the folder `templates`. It never touches what is there already.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from string import Template
from typing import Final

from headwater.cli.output import OK, print_json, say
from headwater.cli.parameters import Json
from headwater.data.address import check_space
from headwater.errors import AuthoringError, StorageError

FILES: Final = {
    "app.py": "app.py.txt",
    "page/index.html": "page/index.html.txt",
    "test_app.py": "test_app.py.txt",
    "README.md": "README.md.txt",
    ".gitignore": "gitignore.txt",
}


def new(name: str, /, *, json: Json = False) -> int:
    """Make a project: a shared list with a page and tests, to change into what you want.

    Example: `headwater new groceries`

    Parameters
    ----------
    name
        The folder to make. Its last part names the space of the application too: lower-case letters, digits, - and _.
    """
    folder = Path(name)
    space = check_space(folder.name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise AuthoringError(f"{folder} is there already: choose another name, or an empty folder")
    templates = resources.files("headwater.cli") / "templates"
    try:
        for file, template in FILES.items():
            text = (templates / template).read_text(encoding="utf-8")
            target = folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(Template(text).substitute(name=space), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{folder} cannot be made: {error}") from error
    if json:
        print_json({"folder": str(folder), "files": list(FILES)})
    else:
        say(
            f"{folder} is there. Try it:",
            f"  cd {folder}",
            "  headwater run app.py --insecure-local --reload",
            "  headwater test .",
        )
    return OK
