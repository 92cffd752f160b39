"""Pieces that are clean as a whole, and the report about them that a closing runtime leaves.

A runtime that closes reports for each piece that it ran whether all of its demanded nodes are clean and known to the
engine as clean (`report_clean_pieces`). The next runtime with the same code, inputs and users then queries the piece
instead of its nodes. `fingerprint_piece` covers everything that has to be equal for that; `uncovered_nodes` lists the
nodes that the report cannot cover. An earlier report that does not hold any more is withdrawn. Single nodes are not
judged here, and no node is run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from headwater.data.address import NAME_LENGTH
from headwater.data.ids import derive
from headwater.pieces.declarations import (
    CellMember,
    EachMember,
    EffectMember,
    FoldMember,
    FunctionMember,
    HandlerMember,
    ReactionMember,
    ResourceMember,
)
from headwater.pieces.names import SEPARATOR
from headwater.pieces.piece import Piece
from headwater.protocol.observations import MOST_AWAKE, WHOLE, About, Footprint, NodeKey, encode_part
from headwater.replica.document import Document
from headwater.runtime.channel.sessions import stable_name
from headwater.runtime.pieces.classes import with_children
from headwater.runtime.pieces.identity import KEYS, Key, name_of
from headwater.runtime.pieces.view import WHILE_OPEN
from headwater.runtime.resume.fingerprint import CodeFingerprints, describe_inputs, inputs_of, owner_of
from headwater.scheduler.node import CLEAN, Node
from headwater.scheduler.run_reporter import RunReporter

if TYPE_CHECKING:
    from headwater.replica.observation_queue import ObservationQueue
    from headwater.runtime.core.core import Core
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.resume.resume import Resume


def fingerprint_piece(
    codes: CodeFingerprints,
    core: Core,
    instance: PieceInstance,
    whom: tuple[str, str],
    identity: str | None,
    generation: int | None = None,
) -> str:
    """Return a fingerprint of everything besides values that decides which nodes of a piece run. Empty: unknown."""
    # fault+ fingerprint.clean_piece_ignores_code: return "whole"
    code = codes.whole(instance.cls, lambda: _code(codes, instance.cls, identity))
    given = describe_inputs(core, instance)
    # Reads of other spaces are compared there, for each node.
    inputs = [each for each in inputs_of(core, instance) if each[0] == instance.space.name]
    # I7: another class declares the writers and the defaults of an input.
    defaults = codes.defaults.of_reads(inputs)
    if not code or given is None or defaults is None:
        return ""
    counted = instance.generation if generation is None else generation
    return derive("whole", code, given, defaults, str(counted), *whom)


def _code(codes: CodeFingerprints, cls: type[Piece], identity: str | None) -> str:
    """Return the fingerprint of the code of a class and of the classes of its children. Empty: unknown."""
    said = [f"={identity}" if identity is not None else "-"]
    said.append(f"version {cls.__schema__.version}")  # A higher version has to be written to the record.
    for each in with_children(cls):
        schema = each.__schema__
        said.append(schema.name)  # Two classes without members differ, too.
        for member in schema:
            if isinstance(member, CellMember):
                # A link may lead to it without naming its class.
                declared = codes.defaults.of_member(each, member.stored)
                if declared is None:
                    return ""
                said.append(f"{schema.name}.{member.stored} {declared}")
            if isinstance(member, (ResourceMember, ReactionMember, HandlerMember)):
                continue  # Their code is not compared when their nodes are resumed either.
            if isinstance(member, EffectMember) and (identity is None or member.every_start):
                continue  # It runs at each start.
            if isinstance(member, (FunctionMember, FoldMember)):
                names = [member.stored, *([KEYS + member.stored] if isinstance(member, EachMember) else ())]
                for name in names:
                    known = codes.of(each, name)
                    if known is None:
                        return ""
                    said.append(f"{schema.name}.{name} {known}")
                times = [getattr(member, time, 0) for time in ("debounce_ms", "throttle_ms")]
                said.append(f"{times[0]:g}/{times[1]:g}")
    return derive("code", *said)


def uncovered_nodes(core: Core, root: PieceInstance) -> tuple[str, ...] | None:
    """Return the nodes of a clean piece that have to be registered when it is opened. None: it is not clean.

    These are nodes that write more than their results, resources that wait for a value from outside, and nodes that
    read documents that neither the class of the piece nor its inputs name, such as those of another space. None, too,
    if they are too many.
    """
    own = set(root.all_nodes())
    given = {doc.id for space, doc in inputs_of(core, root) if space == root.space.name}
    found = [name_of(key) for instance in root.with_descendants() for key in _fetching(instance)]
    for node in own:
        reporter = node.reporter
        if not node.live or WHILE_OPEN in node.id or reporter is None:
            continue  # A node without a reporter is made anew with each reader.
        if not _is_told(node, reporter):
            return None
        if _writes_beside(node) or reporter.reads_elsewhere(node) or not _is_own(root, node, given, own):
            at = reporter.describe().node
            found.append(name_of((at.member, at.child, at.scope, at.principal)))
    is_sayable = len(found) <= MOST_AWAKE and all(len(name) <= NAME_LENGTH for name in found)
    return tuple(sorted(found)) if is_sayable else None


def _writes_beside(node: Node) -> bool:
    """Return True if a node writes cells beside its result. The checkpoint of a fold does not count."""
    return any("/" not in each.key.id.rpartition(":")[2] for each in node.outputs[1:])


def _fetching(instance: PieceInstance) -> Iterator[Key]:
    """Yield the demanded resources of a piece."""
    child = instance.child_id
    for view in instance.views():
        for member, handle in view.handles.items():
            if isinstance(member, ResourceMember) and view.scope != "session":
                writers = handle.document.writers
                if any(
                    isinstance(each, Node) and each.live and each.home is instance.space.replica for each in writers
                ):
                    is_users = view.scope == "user"
                    yield (member.stored, child, "user" if is_users else "", view.user if is_users else "")


def _is_own(root: PieceInstance, node: Node, given: set[str], own: set[Node]) -> bool:
    """Return True if a node read only documents of its piece and of its inputs."""
    for spot in node.reads:
        if spot is not None:
            document = cast(Document, spot.document)
            owner = owner_of(document.key)[0].partition(SEPARATOR)[0]
            if owner and owner != root.id and document.key.id not in given:
                return False
            # Writers in other pieces are not resumed with this one.
            if any(writer not in own for writer in document.writers):
                return False
    return True


def _is_told(node: Node, reporter: RunReporter) -> bool:
    if node.status != CLEAN or node.error is not None or node.loading is not None:
        return False
    return bool(reporter.is_told if node.runs else node.as_of)


def report(
    runs: ObservationQueue, root: PieceInstance, fingerprint: str, seq: int, uncovered_nodes: tuple[str, ...]
) -> None:
    """Report to the engine that a piece is clean as of a seq. Without a fingerprint: withdraw an earlier report."""
    node = NodeKey(root.id, root.generation, WHOLE)
    runs.noted(encode_part(About(node, "", fingerprint)), encode_part(Footprint((), uncovered_nodes)), seq)


async def report_clean_pieces(resuming: Resume, instances: list[PieceInstance]) -> None:
    """Report which of some pieces are clean."""
    core, channel_of = resuming.parts.core, resuming.parts.channel

    def can_report(instance: PieceInstance) -> bool:
        """Return True if reports about a piece can be sent now."""
        channel = channel_of(instance.space.name)
        return channel is not None and channel.is_up() and channel.driver.session.runs.is_on

    sleeping = resuming.sleeping
    spoken = {instance.space.name: instance for instance in instances}.values()
    # Wait until accepted commits are confirmed, so that the confirmed seq covers them.
    await core.observers.until(
        lambda: not any(can_report(instance) and instance.space.replica.has_unconfirmed() for instance in spoken)
    )
    for instance in instances:
        if not can_report(instance) or not instance.generation or instance.is_launched:
            continue
        replica, followed = instance.space.replica, sleeping.space_of(instance)
        seq = replica.confirmed.seq
        state = resuming.states.get(instance)
        if replica.has_unconfirmed() or not seq or (state is not None and not state.is_over):
            continue
        if sleeping.is_asleep(instance):
            assert followed is not None
            assert state is not None
            seq = followed.through
            ran = any(node.reporter is not None and node.runs for node in instance.nodes)
            # With an old report the engine would have to examine many commits.
            is_old = seq - state.as_of > resuming.parts.limits.reported_commits
            if not (ran or is_old) or not followed.is_quiet():
                continue
        channel = channel_of(instance.space.name)
        assert channel is not None
        whom = [*dict.fromkeys((user, stable_name(session)) for user, session in instance.opened_for())]
        nodes = uncovered_nodes(core, instance) if len(whom) == 1 else None
        fingerprint = (
            ""
            if nodes is None
            else fingerprint_piece(resuming.fingerprints, core, instance, whom[0], resuming.identity)
        )
        # I7: a report that does not hold any more is withdrawn.
        report(channel.driver.session.runs, instance, fingerprint, seq, nodes or ())
