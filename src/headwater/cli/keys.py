"""`headwater keys` and `headwater token`: keys of a directory, and tokens that prove a user's name. Needs the extra
`server`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cyclopts import App

from headwater.cli.output import OK, DirectoryPath, Json, print_answer, print_json
from headwater.errors import AbsentError

keys = App(name="keys", help_format="markdown", help="Make and list the keys that tokens are signed with.")


@contextmanager
def server_extra() -> Iterator[None]:
    """Raise AbsentError with the command that installs the extra, if a package of the server is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "headwater":
            raise
        raise AbsentError(
            f"this command needs the package {error.name!r}, which is not installed. "
            "Install it with the other packages of this part:  pip install 'headwater[server]'"
        ) from error


@keys.command(name="new")
def new(directory: DirectoryPath, /, *, json: Json = False) -> int:
    """Make a key. Its private half stays in DIRECTORY/keys, readable by you alone.

    Example: `headwater keys new ./data`
    """
    with server_extra():
        from headwater.server.operation.keys import new_key  # noqa: PLC0415 (an extra)

        id = new_key(directory)
    if json:
        print_json({"key": id})
    else:
        print_answer(f"made key {id} in {directory}/keys. A server that runs already sees it when it starts again.")
    return OK


@keys.command(name="list")
def list_keys(directory: DirectoryPath, /, *, json: Json = False) -> int:
    """The keys that a server of this directory trusts.

    Example: `headwater keys list ./data`
    """
    with server_extra():
        from headwater.server.operation.keys import key_ids  # noqa: PLC0415 (an extra)

        found = key_ids(directory)
    if json:
        print_json(list(found))
    elif found:
        print_answer(*found)
    else:
        print_answer(f"{directory} has no keys yet: headwater keys new {directory}")
    return OK


def make_token(
    directory: DirectoryPath, /, *, user: str, ttl: int = 30 * 24 * 3_600, key: str = "", json: Json = False
) -> int:
    """A token that proves to a server of this directory that its bearer is USER.

    Example: `headwater token ./data --user ann --ttl 3600`

    Parameters
    ----------
    user
        The name that the access document of a space lists.
    ttl
        How many seconds it is good for.
    key
        The id of the key to sign with; without it, the newest.
    """
    with server_extra():
        from headwater.server.operation.keys import new_token  # noqa: PLC0415 (an extra)

        made = new_token(directory, user, ttl_s=ttl, key=key)
    if json:
        print_json({"token": made, "user": user})
    else:
        print_answer(made)
    return OK
