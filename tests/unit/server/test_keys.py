"""A token proves who its bearer is, or it proves nothing."""

from __future__ import annotations

import base64
import hmac
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from headwater.clock import VirtualClock
from headwater.errors import AbsentError, AccessError, AuthoringError, StorageError
from headwater.server.operation.keys import AUDIENCE, Keyring, check_user, key_folder, key_ids, new_key, new_token


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def folder(tmp_path: Path, clock: VirtualClock) -> Path:
    new_key(tmp_path, clock)
    return tmp_path


def private(folder: Path) -> Any:
    return load_pem_private_key((key_folder(folder) / f"{key_ids(folder)[0]}.key").read_bytes(), None)


def forged(folder: Path, clock: VirtualClock, **claims: object) -> str:
    """A token with the right key and other claims."""
    now = clock.now_us() // 1_000_000
    body = {"sub": "ann", "aud": AUDIENCE, "iat": now, "exp": now + 60, **claims}
    body = {name: value for name, value in body.items() if value is not None}
    return jwt.encode(body, private(folder), "EdDSA", headers={"kid": key_ids(folder)[0]})


def test_a_token_is_good_for_its_user_until_its_end(folder: Path, clock: VirtualClock) -> None:
    token = new_token(folder, "ann", ttl_s=60, clock=clock)
    ring = Keyring(folder, clock)
    principal = ring.principal(token)
    assert (principal.user, principal.until_us) == ("ann", clock.now_us() + 60_000_000)
    clock.advance(59_999_999)
    assert ring.principal(token).user == "ann"
    clock.advance(1)
    with pytest.raises(AccessError, match="is over"):
        ring.principal(token)


def test_the_private_half_is_for_its_owner_alone(folder: Path) -> None:
    file = key_folder(folder) / f"{key_ids(folder)[0]}.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_server_needs_the_public_half_only(folder: Path, clock: VirtualClock) -> None:
    token = new_token(folder, "ann", clock=clock)
    (key_folder(folder) / f"{key_ids(folder)[0]}.key").unlink()
    assert Keyring(folder, clock).principal(token).user == "ann"
    with pytest.raises(AbsentError, match="headwater keys new"):
        new_token(folder, "ann", clock=clock)


def test_several_keys_are_good_until_they_are_taken_away(folder: Path, clock: VirtualClock) -> None:
    old = key_ids(folder)[0]
    new = new_key(folder, clock)
    tokens = [new_token(folder, "ann", key=key, clock=clock) for key in (old, new)]
    ring = Keyring(folder, clock)
    assert len(ring) == 2
    assert {ring.principal(token).user for token in tokens} == {"ann"}
    (key_folder(folder) / f"{old}.pub").unlink()
    with pytest.raises(AccessError, match="does not know"):
        Keyring(folder, clock).principal(tokens[0])


def without_signature(token: str, folder: Path) -> str:
    head = base64.urlsafe_b64encode(json.dumps({"alg": "none", "kid": key_ids(folder)[0]}).encode()).rstrip(b"=")
    return f"{head.decode()}.{token.split('.')[1]}."


def with_public_key_as_secret(token: str, folder: Path) -> str:
    """The old trick: a symmetric signature whose secret is the public key."""
    secret = (key_folder(folder) / f"{key_ids(folder)[0]}.pub").read_bytes()
    head = base64.urlsafe_b64encode(json.dumps({"alg": "HS256", "kid": key_ids(folder)[0]}).encode()).rstrip(b"=")
    signed = head + b"." + token.split(".")[1].encode()
    mac = base64.urlsafe_b64encode(hmac.digest(secret, signed, "sha256")).rstrip(b"=")
    return (signed + b"." + mac).decode()


def with_another_key(token: str, folder: Path) -> str:
    claims = jwt.decode(token, options={"verify_signature": False})
    return jwt.encode(claims, Ed25519PrivateKey.generate(), "EdDSA", headers={"kid": key_ids(folder)[0]})


def with_another_user(token: str, _: Path) -> str:
    head, body, signature = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    other = base64.urlsafe_b64encode(json.dumps({**claims, "sub": "bob"}).encode()).rstrip(b"=").decode()
    return f"{head}.{other}.{signature}"


@pytest.mark.parametrize(
    "forge",
    [
        without_signature,
        with_public_key_as_secret,
        with_another_key,
        with_another_user,
        lambda token, _: token[:-3],
        lambda token, _: token + "A",
        lambda token, _: "a.b.c",
        lambda token, _: "",
        lambda token, _: "é" * 100,
        lambda token, _: "x" * 10_000,
        lambda token, _: token.replace(".", ""),
    ],
)
def test_a_forged_token_is_refused(folder: Path, clock: VirtualClock, forge: Callable[[str, Path], str]) -> None:
    good = new_token(folder, "ann", clock=clock)
    ring = Keyring(folder, clock)
    assert ring.principal(good).user == "ann"
    with pytest.raises(AccessError):
        ring.principal(forge(good, folder))


@pytest.mark.parametrize(
    "claims",
    [
        {"sub": ""},  # nobody: the engine would take that for itself
        {"sub": "*"},
        {"sub": None},
        {"sub": 7},
        {"sub": "a\nb"},
        {"sub": "x" * 300},
        {"aud": "other"},
        {"aud": None},
        {"exp": None},
        {"exp": "soon"},
        {"exp": 1},
    ],
)
def test_a_signed_token_with_wrong_claims_is_refused(
    folder: Path, clock: VirtualClock, claims: dict[str, object]
) -> None:
    assert Keyring(folder, clock).principal(forged(folder, clock)).user == "ann"
    with pytest.raises(AccessError):
        Keyring(folder, clock).principal(forged(folder, clock, **claims))


@pytest.mark.parametrize("user", ["", "*", "a\x00", "x" * 300])
def test_no_token_is_made_for_a_name_with_another_meaning(folder: Path, user: str) -> None:
    with pytest.raises(AuthoringError):
        check_user(user)
    with pytest.raises(AuthoringError):
        new_token(folder, user)


def test_a_token_of_no_time_is_refused_where_it_is_made(folder: Path) -> None:
    with pytest.raises(AuthoringError, match="at least 1"):
        new_token(folder, "ann", ttl_s=0)


def test_a_damaged_key_is_named(folder: Path) -> None:
    file = key_folder(folder) / f"{key_ids(folder)[0]}.pub"
    file.write_text("nonsense")
    with pytest.raises(StorageError, match=file.name):
        Keyring(folder)


def test_files_that_are_no_keys_are_left_alone(folder: Path) -> None:
    (key_folder(folder) / "README.pub").write_text("nonsense")
    assert len(Keyring(folder)) == 1
