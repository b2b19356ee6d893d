"""A checked SQLite connection to a store file: right application, right schema, sound file.

Nothing half-made.

Writing: the schema is made or migrated in one transaction; then WAL, so that readers never wait,
and synchronous=FULL, so that a committed trial survives SIGKILL (any setting would do for that) and
a power cut (only FULL does; NORMAL may lose the last commits). FULL costs one fsync a trial: a
fraction of a millisecond to a few, next to tens a candidate. A clean close goes back from WAL to
one plain file, which opens from read-only media and can be copied with ``cp``.

Reading: ``mode=ro``, never ``immutable``. An older schema is migrated in a copy in memory.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tunegrad.db.schema import APPLICATION_ID, FIRST_VERSION, SCHEMA_VERSION, STEPS, migrate
from tunegrad.errors import StoreError

MOUNTS = Path("/proc/self/mounts")
SYNCHRONOUS = "FULL"
"""How a writer waits for the disk; a commit survives the end of its process in any case."""

# fmt: off
_NETWORK = frozenset((
    "nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "afs", "ncpfs", "ceph", "lustre", "gpfs",
    "beegfs",
    "glusterfs", "pvfs2", "davfs", "orangefs", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph",
    "fuse.s3fs",
    "fuse.gcsfuse", "fuse.rclone", "fuse.davfs", "fuse.davfs2", "fuse.smbnetfs", "fuse.cephfs",
    "fuse.goofys",
    "fuse.juicefs", "fuse.curlftpfs", "fuse.nfs", "fuse.lustre", "fuse.gpfs", "fuse.beegfs",
    "fuse.moosefs",
    "fuse.seaweedfs", "fuse.blobfuse2", "fuse.hdfs", "moosefs", "coda", "panfs", "gfs2", "ocfs2",
    "vboxsf", "vmhgfs",
    "fuse.vmhgfs-fuse", "prl_fs", "drvfs",
))
# fmt: on

_REMOTE_SOURCE = re.compile(r"//[^/]+/.*|(\[[0-9a-fA-F:]+\]|[\w.@-]+):/.*")
"""The name of a server's share, whatever its filesystem: ``//server/share``, ``host:/path``."""


class Mount(NamedTuple):
    """A line of the system's mount table: where, type of filesystem, device or server."""

    point: str
    kind: str
    source: str


def is_network(mount: Mount) -> bool:
    """True when other machines, or a machine around this one, may write to what is mounted there.

    9p is how virtual machines and WSL show a folder of their host; as the root it is a sandbox's
    own.
    """
    if mount.kind == "9p":
        return mount.point != "/"
    return mount.kind in _NETWORK or _REMOTE_SOURCE.fullmatch(mount.source) is not None


def filesystem_of(path: Path, mounts: Path = MOUNTS) -> Mount:
    """The mount that holds a resolved path; empty texts where there is no mount table."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return Mount("", "", "")
    best = Mount("", "", "")
    for line in lines:
        words = line.split(" ")
        if len(words) < 3:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), words[1])
        # A later mount on the same point hides the earlier one.
        if path.is_relative_to(point) and len(point) >= len(best.point):
            best = Mount(point, words[2], words[0])
    return best


def usable_path(path: str | os.PathLike[str], *, write: bool, mounts: Path = MOUNTS) -> Path:
    """The resolved path of a store. Raises StoreError where none can be used like that."""
    try:
        resolved = Path(path).expanduser().resolve()
        check_location(resolved, write=write, mounts=mounts)
    except (OSError, RuntimeError, ValueError) as error:
        raise StoreError(f"store {os.fspath(path)!r}: no usable path: {error}") from error
    return resolved


def check_location(path: Path, *, write: bool, mounts: Path = MOUNTS) -> None:
    """Raise StoreError unless ``path`` (resolved) can hold a store for this use.

    SQLite's write-ahead log is shared memory between processes of one machine, and its locks are
    the filesystem's. Network filesystems break both, so a store there is read but never written.
    """
    if not path.parent.is_dir():
        hint = "create it first" if write else "`tunegrad tune` makes a store"
        raise StoreError(f"store {path}: directory {path.parent} does not exist; {hint}")
    if path.is_dir():
        raise StoreError(f"store {path}: is a directory; a store is one file")
    if path.exists() and not path.is_file():
        raise StoreError(f"store {path}: is not a regular file")
    _check_side_files(path)
    if not write:
        _check_readable(path)
        return
    mount = filesystem_of(path, mounts)
    if is_network(mount):
        raise StoreError(
            f"store {path}: {mount.point} is a network filesystem ({mount.kind}), where locks "
            "and the write-ahead log "
            "do not hold; put a store that is written on a local disk"
        )
    # The lock and the write-ahead log lie beside the file, so each of two names has its own.
    if path.exists() and (links := path.stat().st_nlink) > 1:
        raise StoreError(
            f"store {path}: the file has {links} names (hard links), so another process may write "
            "to it unseen; copy it, or remove the other names"
        )
    if path.exists() and mount.point == str(path):
        raise StoreError(
            f"store {path}: the file itself is mounted there, so another process may write to it "
            "unseen; mount its directory"
        )
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        raise StoreError(
            f"store {path}: the file can not be written by this user; open it for reading, or "
            "copy it"
        )


def _check_side_files(path: Path) -> None:
    """Raise StoreError where SQLite would wait for a pipe, or remove a file of another name."""
    for side in (path.with_name(path.name + suffix) for suffix in _SIDE_FILES):
        if not side.exists():
            continue
        if not side.is_file():
            raise StoreError(f"store {path}: {side.name} beside it is not a regular file")
        if side.name.endswith("-journal"):
            with side.open("rb") as file:
                file.seek(max(0, side.stat().st_size - len(_SUPER_JOURNAL)))
                if file.read() == _SUPER_JOURNAL:
                    raise StoreError(f"store {path}: {side.name} names a file outside of the store")


def _check_readable(path: Path) -> None:
    if not path.exists():
        raise StoreError(f"store {path}: does not exist; `tunegrad tune --store {path}` makes one")
    if path.stat().st_size == 0:
        raise StoreError(f"store {path}: is empty, not a store")
    if not os.access(path, os.R_OK):
        raise StoreError(f"store {path}: the file can not be read by this user")


MINIMUM_SQLITE = (3, 28, 0)
"""Window functions with NULL-safe ranking and pushed-down filters."""

_BUSY_S = 5.0

_MOST_VALUE_BYTES = 32 << 20
"""The longest value of a row. What tunegrad writes stays below a megabyte."""

_TABLE = re.compile(
    r"CREATE\s+TABLE\b(?!.*\b(CHECK|AS)\b)(?!.*\bDEFAULT\b(?!\s*[-+'\"\w]))",
    re.IGNORECASE | re.DOTALL,
)
_NAME = r"""\s*(\w+|"[^"]*"|'[^']*'|`[^`]*`|\[[^]]*\])"""
_COLUMN = rf"{_NAME}(\s+(ASC|DESC))?\s*"
_INDEX = re.compile(
    rf"CREATE\s+(UNIQUE\s+)?INDEX\s{_NAME}\s+ON\b{_NAME}\s*\({_COLUMN}(,{_COLUMN})*\)",
    re.IGNORECASE,
)
"""Tables and indexes without an expression: one of a generated column, a constraint, a default or
an index is evaluated when rows are read or checked, and may take as long as it likes.
"""

_SIDE_FILES = ("-wal", "-shm", "-journal")

_SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""The end of a journal that names another file, which SQLite removes after it has read both."""

Trace = Callable[[str], None]


class DamagedStore(StoreError):
    """A store whose file SQLite finds malformed: some of it may still be read."""


def connect_writer(path: Path, trace: Trace | None = None) -> sqlite3.Connection:
    """Open or create the store at ``path``; the caller holds its lock.

    Raises StoreError, leaves no new file behind.
    """
    existed = path.exists()
    connection: sqlite3.Connection | None = None
    try:
        connection = _connect(path, "rwc")
        version = _identify(connection, path, may_be_new=True)
        _check_schema(connection, path, version)
        if damage := damage_of(connection):
            raise StoreError(
                f"store {path}: damaged ({damage}), so it is not written to; read it, or "
                "salvage it into a new one"
            )
        connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
        if version < SCHEMA_VERSION:
            migrate(connection)
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StoreError(
                f"store {path}: its filesystem has no write-ahead log (journal mode {mode})"
            )
        connection.execute("PRAGMA foreign_keys = ON")
    except BaseException as error:
        _abandon(connection, path, remove=not existed)
        if isinstance(error, sqlite3.Error | UnicodeDecodeError):
            raise StoreError(f"store {path}: can not be opened for writing: {error}") from error
        raise
    connection.set_trace_callback(trace)
    return connection


def close_writer(connection: sqlite3.Connection) -> None:
    """Close; leave one plain file, or the log as well when a reader still has the store open."""
    with contextlib.suppress(sqlite3.Error):
        connection.execute("PRAGMA busy_timeout = 0")
        connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()


def connect_reader(path: Path, trace: Trace | None = None) -> sqlite3.Connection:
    """Open an existing store read-only.

    Raises StoreError; DamagedStore when the file's structure is not sound.
    """
    connection: sqlite3.Connection | None = None
    try:
        connection = _connect(path, "ro")
        try:
            version = _identify(connection, path, may_be_new=False)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CANTOPEN:
                raise
            connection.close()
            connection = _copy_of_file(path)
            version = _identify(connection, path, may_be_new=False)
        _check_schema(connection, path, version)
        if damage := damage_of(connection):
            raise DamagedStore(f"store {path}: damaged ({damage})")
        if version < SCHEMA_VERSION:
            connection = _migrated_copy(connection)
        connection.execute("PRAGMA query_only = ON")
    except BaseException as error:
        _abandon(connection, path, remove=False)
        if (
            isinstance(error, sqlite3.DatabaseError)
            and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_CORRUPT
        ):
            raise DamagedStore(f"store {path}: damaged ({error})") from error
        if isinstance(error, UnicodeDecodeError):  # a message of SQLite's that quotes the file
            raise DamagedStore(f"store {path}: damaged (its schema is not UTF-8)") from error
        if isinstance(error, sqlite3.Error):
            raise StoreError(f"store {path}: can not be read: {error}") from error
        raise
    connection.set_trace_callback(trace)
    return connection


def connect_memory(trace: Trace | None = None) -> sqlite3.Connection:
    """A new, empty store in memory."""
    connection = _memory()
    connection.deserialize(_empty_store())
    connection.execute("PRAGMA foreign_keys = ON")
    connection.set_trace_callback(trace)
    return connection


@cache
def _empty_store() -> bytes:
    """The image of a new store: copied, since making its tables takes milliseconds."""
    with contextlib.closing(_memory()) as fresh:
        migrate(fresh)
        return fresh.serialize()


def connect_salvager(path: Path) -> sqlite3.Connection:
    """Open a damaged store read-only, as far as SQLite will go.

    Raises StoreError when its tables are not known.
    """
    connection = _connect(path, "ro")
    try:
        # A file shorter than its header says is refused outright unless this is set; nothing is
        # written.
        connection.execute("PRAGMA writable_schema = ON")
        version = _identify(connection, path, may_be_new=False)
        with contextlib.suppress(DamagedStore):  # its views are not read
            _check_schema(connection, path, version)
        connection.execute("SELECT id FROM trials WHERE id = 0")
    except BaseException as error:
        _abandon(connection, path, remove=False)
        if isinstance(error, sqlite3.Error | UnicodeDecodeError):
            raise StoreError(f"store {path}: damaged beyond reading: {error}") from error
        raise
    return connection


def damage_of(connection: sqlite3.Connection) -> str | None:
    """The first thing wrong with the file's structure, or None.

    Indexes are compared with their tables: a damaged index hides sound rows, which would be
    measured again. About one millisecond per thousand trials.
    """
    try:
        (finding,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        return str(error)
    return None if finding == "ok" else " ".join(str(finding).split())


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        timeout=_BUSY_S,
        check_same_thread=False,
    )
    # A flipped bit can make text that is not UTF-8: such a row is reported by its reader, it does
    # not end the query.
    connection.text_factory = _lenient_text
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_VALUE_BYTES)
    return connection


def _memory() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.text_factory = _lenient_text
    return connection


def _lenient_text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _identify(connection: sqlite3.Connection, path: Path, *, may_be_new: bool) -> int:
    """The schema version of a store; 0 for an empty file that may become one.

    Raises StoreError for anything else.
    """
    if sqlite3.sqlite_version_info < MINIMUM_SQLITE:
        needed = ".".join(map(str, MINIMUM_SQLITE))
        raise StoreError(
            f"store {path}: needs SQLite {needed}, this Python has {sqlite3.sqlite_version}"
        )
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_NOTADB:
            raise StoreError(f"store {path}: is not a SQLite file") from error
        raise
    if application == 0 and version == 0 and tables == 0:
        if may_be_new:
            return 0
        raise StoreError(f"store {path}: is an empty SQLite file, not a store")
    if application != APPLICATION_ID:
        raise StoreError(
            f"store {path}: is the SQLite file of another program (application id "
            f"{application:#x}, a store has "
            f"{APPLICATION_ID:#x})"
        )
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"store {path}: schema version {version} is newer than {SCHEMA_VERSION}, the "
            "newest known; upgrade tunegrad"
        )
    if version < FIRST_VERSION:
        raise StoreError(
            f"store {path}: schema version {version} is from before tunegrad 0.1.0, whose version "
            f"{FIRST_VERSION} is the oldest that is read; it is left as it is: use another file "
            "and tune anew"
        )
    return int(version)


def _check_schema(connection: sqlite3.Connection, path: Path, version: int) -> None:
    """Raise StoreError unless what the store has beside its schema is plain tables and indexes.

    A file is data. A view, a trigger, a virtual table or an expression is code, which may never
    end. A view of the schema whose text has changed is damage.
    """
    expected = _schema(version)
    found = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    changed = [row for row in found if row not in expected]
    for kind, name, text in changed:
        if kind == "view" and any((kind, name) == known[:2] for known in expected):
            continue
        plain = {"table": _TABLE.match, "index": _INDEX.fullmatch}.get(kind)
        if plain is None or not (plain(text) if text else kind == "index"):
            raise StoreError(
                f"store {path}: {kind} {name!r:.80} does not belong to schema {version} of a "
                "store; a file may add plain tables and indexes only"
            )
    for kind, name, _ in changed:
        if kind == "view":
            raise DamagedStore(f"store {path}: damaged (view {name} has another text)")


@cache
def _schema(version: int) -> frozenset[tuple[str, str, str | None]]:
    """Return type, name and SQL text of all that a store of this schema version has."""
    fresh = sqlite3.connect(":memory:", isolation_level=None)
    with contextlib.closing(fresh):
        for statement in (s for step in STEPS[: max(0, version - FIRST_VERSION + 1)] for s in step):
            fresh.execute(statement)
        rows = fresh.execute("SELECT type, name, sql FROM sqlite_master")
        return frozenset((kind, name, text) for kind, name, text in rows)


def _migrated_copy(connection: sqlite3.Connection) -> sqlite3.Connection:
    """The store in memory, at the newest schema; the file's connection is closed."""
    copy = _memory()
    connection.backup(copy)
    connection.close()
    migrate(copy)
    return copy


def _copy_of_file(path: Path) -> sqlite3.Connection:
    """The store in memory, for a file in WAL mode in a directory where SQLite can not make the
    log's index.

    That is a store whose writer was killed, moved to read-only media. A log beside it holds commits
    that only SQLite can merge, so then the reason is raised instead of an answer that lacks them.
    """
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size > 0:
        raise StoreError(
            f"store {path}: its log {log.name} is not merged yet and {path.parent} can not be "
            "written; copy both"
        )
    image = bytearray(path.read_bytes())
    image[18:20] = b"\x01\x01"  # file format: rollback journal instead of WAL, which memory has not
    copy = _memory()
    copy.deserialize(bytes(image))
    return copy


def _abandon(connection: sqlite3.Connection | None, path: Path, *, remove: bool) -> None:
    if connection is not None:
        connection.close()
    if remove:
        for suffix in ("", *_SIDE_FILES):
            with contextlib.suppress(OSError):
                os.unlink(f"{path}{suffix}")  # noqa: PTH108  the path is text with a suffix
