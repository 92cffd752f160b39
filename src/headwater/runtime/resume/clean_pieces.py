"""Pieces that are clean as a whole, and the report about them that a closing runtime leaves.

A runtime that closes reports for each piece that it ran whether all of its demanded nodes are clean and known to the
engine as clean (`report_clean_pieces`). The next runtime with the same code, inputs and users then asks for the piece instead of its
nodes. `fingerprint_piece` is the fingerprint of everything that has to be equal for that; `uncovered_nodes` lists the nodes that the report
cannot cover. An earlier report that does not hold any more is withdrawn. Single nodes are not judged here, and no node
is run.
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
from headwater.runtime.pieces.code_versions import with_children
from headwater.runtime.pieces.handles import WHILE_OPEN
from headwater.runtime.pieces.identity import KEYS, Key, name_of
from headwater.runtime.pieces.idle import instances_of, nodes_of
from headwater.runtime.resume.fingerprint import CodeFingerprints, describe_inputs, inputs_of, owner_of
from headwater.scheduler.node import CLEAN, Node
from headwater.scheduler.run_reporter import RunReporter

if TYPE_CHECKING:
    from headwater.replica.observation_queue import ObservationQueue
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.resume.resume import Resume


def fingerprint_piece(
    codes: CodeFingerprints,
    instance: PieceInstance,
    whom: tuple[str, str],
    identity: str | None,
    generation: int | None = None,
) -> str:
    """A fingerprint of all that fingerprint_piece what runs of a piece besides what it reads. Empty: it cannot be known."""
    # fault+ fingerprint.clean_piece_ignores_code: return "whole"
    code = codes.whole(instance.cls, lambda: _code(codes, instance.cls, identity))
    given = describe_inputs(instance)
    # What was read of another space is asked there, for each node.
    inputs = [each for each in inputs_of(instance) if each[0] == instance.space.name]
    # I7: what makes an input, or what it is by default, is for another class to say.
    defaults = codes.defaults.of_reads(instance.pieces, inputs)
    if not code or given is None or defaults is None:
        return ""
    counted = instance.generation if generation is None else generation
    return derive("whole", code, given, defaults, str(counted), *whom)


def _code(codes: CodeFingerprints, cls: type[Piece], identity: str | None) -> str:
    """The same of all pieces of a class, and of the children that they may have."""
    said = [f"={identity}" if identity is not None else "-"]
    said.append(f"version {cls.__schema__.version}")  # A higher one has to be written to the record.
    for each in with_children(cls):
        schema = each.__schema__
        said.append(schema.name)  # A class without members is another class than every other one, too.
        for member in schema:
            if isinstance(member, CellMember):
                # A link may lead to it, from where nobody names it.
                declared = codes.defaults.of_member(each, member.stored)
                if declared is None:
                    return ""
                said.append(f"{schema.name}.{member.stored} {declared}")
            if isinstance(member, (ResourceMember, ReactionMember, HandlerMember)):
                continue  # What they do is not compared when they come back either.
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


def uncovered_nodes(root: PieceInstance) -> tuple[str, ...] | None:
    """If everything of a piece that anybody here demands is clean, and told as such: what has to be here nevertheless.

    That is what others have to find, since it writes more than its result; what waits for something outside; and what
    read things that neither the class of the piece nor its inputs name, such as another space. None: it is not clean,
    or they are too many.
    """
    own = set(nodes_of(root))
    given = {doc.id for space, doc in inputs_of(root) if space == root.space.name}
    found = [name_of(key) for instance in instances_of(root) for key in _fetching(instance)]
    for node in own:
        reporter = node.reporter
        if not node.live or WHILE_OPEN in node.id or reporter is None:
            continue  # A node without a reporter is fresh each time, with whoever demands it.
        if not _is_told(node, reporter):
            return None
        if _writes_beside(node) or reporter.reads_elsewhere(node) or not _is_own(root, node, given, own):
            at = reporter.describe().node
            found.append(name_of((at.member, at.child, at.scope, at.principal)))
    is_sayable = len(found) <= MOST_AWAKE and all(len(name) <= NAME_LENGTH for name in found)
    return tuple(sorted(found)) if is_sayable else None


def _writes_beside(node: Node) -> bool:
    """Whether it writes cells beside its result. What a fold notes beside it is read by nobody else."""
    return any("/" not in each.key.id.rpartition(":")[2] for each in node.outputs[1:])


def _fetching(instance: PieceInstance) -> Iterator[Key]:
    """The resources of a piece that somebody demands."""
    child = instance.id if instance.parent is not None else ""
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
    """Whether all that it read is the piece's own, or was given to it: its class and its inputs say what that is."""
    for spot in node.reads:
        if spot is not None:
            document = cast(Document, spot.document)
            owner = owner_of(document.key)[0].partition(SEPARATOR)[0]
            if owner and owner != root.id and document.key.id not in given:
                return False
            # What others make is not part of the piece, and would not come with it.
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
    """Tell the engine that a piece is clean as of a seq. No fingerprint: it is not, whatever was said before."""
    node = NodeKey(root.id, root.generation, WHOLE)
    runs.noted(encode_part(About(node, "", fingerprint)), encode_part(Footprint((), uncovered_nodes)), seq)


async def report_clean_pieces(resuming: Resume, instances: list[PieceInstance]) -> None:
    """Say which of some pieces are clean."""
    sleeping = resuming.sleeping
    spoken = {instance.space.name: instance for instance in instances}.values()
    # What landed is soon part of what is confirmed, which has the seq that it is clean as of.
    await resuming.pieces.core.observers.until(
        lambda: (
            not any(_can_report(resuming, instance) and instance.space.replica.has_unconfirmed() for instance in spoken)
        )
    )
    for instance in instances:
        if not _can_report(resuming, instance) or not instance.generation or instance.is_launched:
            continue
        replica, followed = instance.space.replica, sleeping.space_of(instance)
        seq = replica.confirmed.seq
        if (
            replica.has_unconfirmed()
            or not seq
            or (instance.resume_state is not None and not instance.resume_state.is_over)
        ):
            continue
        if sleeping.is_asleep(instance):
            assert followed is not None
            assert instance.resume_state is not None
            seq = followed.through
            ran = any(node.reporter is not None and node.runs for node in instance.nodes)
            # A report of long ago would have the engine look through many commits.
            is_old = seq - instance.resume_state.as_of > resuming.limits.reported_commits
            if not (ran or is_old) or not followed.is_quiet():
                continue
        channel = resuming.pieces.channel(instance.space.name)
        assert channel is not None
        whom = [*dict.fromkeys((user, stable_name(session)) for user, session in instance.opened_for())]
        nodes = uncovered_nodes(instance) if len(whom) == 1 else None
        fingerprint = (
            "" if nodes is None else fingerprint_piece(resuming.fingerprints, instance, whom[0], resuming.identity)
        )
        # I7: what was said of it before does not stand if it cannot be said any more.
        report(channel.driver.session.runs, instance, fingerprint, seq, nodes or ())


def _can_report(resuming: Resume, instance: PieceInstance) -> bool:
    """Whether an engine can be told of a piece now."""
    channel = resuming.pieces.channel(instance.space.name)
    return channel is not None and channel.is_up() and channel.driver.session.runs.is_on
