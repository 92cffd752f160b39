"""Keys and tokens: Ed25519 keys in a folder of the data directory, and JWTs that prove a user's name.

A server needs only the public keys; the holder of a private key can make a token for any user. A token names its key,
its user and its expiry; other claims are ignored. This module authenticates users; `engine.admission.access` decides
about their rights.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from headwater.clock import Clock, RealClock
from headwater.data.address import check_scope
from headwater.engine.admission.access import EVERYBODY
from headwater.errors import AbsentError, AccessError, AuthoringError, InvalidValueError, StorageError
from headwater.server.operation.limits import DEFAULT_SERVER_LIMITS, ServerLimits

FOLDER: Final = "keys"
ALGORITHM: Final = "EdDSA"
AUDIENCE: Final = "headwater"
LOCAL: Final = "local"
"""The user of every client of a server without keys."""

_ID: Final = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """A user whom a token proved, and the token's expiry."""

    user: str
    until_us: int


def key_folder(directory: str | Path) -> Path:
    return Path(directory) / FOLDER


def new_key(directory: str | Path, clock: Clock | None = None) -> str:
    """Create a key pair and return its id. Only the owner of the files can read the private key."""
    id = (clock or RealClock()).new_token(8)
    private = Ed25519PrivateKey.generate()
    folder = key_folder(directory)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        secret = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        _write_new(folder / f"{id}.key", secret, 0o600)
        public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        _write_new(folder / f"{id}.pub", public, 0o644)
    except OSError as error:
        raise StorageError(f"no key could be written to {folder}: {error}") from error
    return id


def _write_new(file: Path, content: bytes, mode: int) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def key_ids(directory: str | Path) -> list[str]:
    """Return the ids of all keys whose public key is in the directory."""
    return sorted(file.stem for file in key_folder(directory).glob("*.pub") if _ID.fullmatch(file.stem))


def new_token(
    directory: str | Path,
    user: str,
    *,
    ttl_s: int = DEFAULT_SERVER_LIMITS.token_s,
    key: str = "",
    clock: Clock | None = None,
) -> str:
    """Return a token that proves to a server with the public key that its bearer is `user`, for `ttl_s` seconds."""
    check_user(user)
    if ttl_s < 1:
        raise AuthoringError(f"a token that lasts {ttl_s} s is of no use: write at least 1")
    folder = key_folder(directory)
    files = [folder / f"{key}.key"] if key else sorted(folder.glob("*.key"), key=lambda file: file.stat().st_mtime_ns)
    if not files or not files[-1].is_file():
        wanted = f"key {key}" if key else "private key"
        raise AbsentError(f"there is no {wanted} in {folder}. Make one: headwater keys new {directory}")
    private = load_pem_private_key(files[-1].read_bytes(), None)
    if not isinstance(private, Ed25519PrivateKey):
        raise AuthoringError(f"{files[-1]} holds no Ed25519 key. Make one: headwater keys new {directory}")
    now_s = (clock or RealClock()).now_us() // 1_000_000
    claims = {"sub": user, "aud": AUDIENCE, "iat": now_s, "exp": now_s + ttl_s}
    return jwt.encode(claims, private, ALGORITHM, headers={"kid": files[-1].stem})


def check_user(user: str) -> None:
    """Raise AuthoringError unless `user` can own documents. The empty name and `*` have other meanings."""
    try:
        check_scope(f"user:{user}")
    except InvalidValueError as error:
        raise AuthoringError(f"{user!r} cannot be a user: {error}") from error
    if user == EVERYBODY:
        raise AuthoringError(f"{EVERYBODY!r} means all users and cannot be a user")


class Keyring:
    """The public keys that a server trusts."""

    __slots__ = ("_clock", "_keys", "_limits")

    def __init__(
        self, directory: str | Path, clock: Clock | None = None, limits: ServerLimits = DEFAULT_SERVER_LIMITS
    ) -> None:
        self._limits = limits
        self._clock = clock or RealClock()
        self._keys: dict[str, Ed25519PublicKey] = {}
        for id in key_ids(directory):
            file = key_folder(directory) / f"{id}.pub"
            try:
                public = load_pem_public_key(file.read_bytes())
            except (OSError, ValueError, UnsupportedAlgorithm) as error:
                raise StorageError(f"{file} holds no key: {error}") from error
            if not isinstance(public, Ed25519PublicKey):
                raise StorageError(f"{file} holds no Ed25519 key")
            self._keys[id] = public

    def __len__(self) -> int:
        return len(self._keys)

    def principal(self, token: str) -> Principal:
        """Return the user of a token. The text of AccessError says why it was refused, and nothing about the keys."""
        if not token:
            raise AccessError("this server wants a token. Ask its operator for one: headwater token DIR --user NAME")
        if len(token) > self._limits.token_characters:
            raise AccessError("this is not a token of this server")
        try:
            key = self._keys.get(str(jwt.get_unverified_header(token).get("kid")))
            if key is None:
                raise AccessError("the token was signed with a key that this server does not know")
            # Times are compared below, with the clock of this server.
            claims = jwt.decode(
                token,
                key,
                algorithms=[ALGORITHM],
                audience=AUDIENCE,
                options={"require": ["sub", "exp"], "verify_exp": False, "verify_iat": False, "verify_nbf": False},
            )
        except (jwt.PyJWTError, ValueError) as error:
            raise AccessError("this is not a token of this server") from error
        until = claims["exp"]
        if type(until) is not int or until * 1_000_000 <= self._clock.now_us():
            raise AccessError("the token is over. Ask for a new one.")
        user = claims["sub"]
        try:
            check_user(user)
        except AuthoringError as error:
            raise AccessError(str(error)) from error
        return Principal(user=user, until_us=until * 1_000_000)
