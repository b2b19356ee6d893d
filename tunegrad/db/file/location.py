"""Places in which a store may live: a file in an existing directory, for writing on a local
filesystem.

SQLite's write-ahead log is shared memory between processes of one machine, and its locks are the
filesystem's. Network filesystems break both, so a store there is read but never written.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from tunegrad.errors import StoreError

__all__ = ["MOUNTS", "Mount", "check_location", "filesystem_of", "is_network"]

MOUNTS = Path("/proc/self/mounts")

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
"""The name of a server's share, whatever its filesystem's type: ``//server/share``,
``host:/path``.
"""


class Mount(NamedTuple):
    """A line of the system's mount table: where, what type of filesystem, and of what device or
    server.
    """

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
    """The mount that holds a resolved path; one of empty texts where the system has no mount
    table.
    """
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


def check_location(path: Path, *, write: bool, mounts: Path = MOUNTS) -> None:
    """Raise StoreError unless ``path`` (resolved) can hold a store for this use."""
    if not path.parent.is_dir():
        raise StoreError(f"store {path}: directory {path.parent} does not exist; create it first")
    if path.is_dir():
        raise StoreError(f"store {path}: is a directory; a store is one file")
    if path.exists() and not path.is_file():
        raise StoreError(f"store {path}: is not a regular file")
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


def _check_readable(path: Path) -> None:
    if not path.exists():
        raise StoreError(f"store {path}: does not exist; `tunegrad tune --store {path}` makes one")
    if path.stat().st_size == 0:
        raise StoreError(f"store {path}: is empty, not a store")
    if not os.access(path, os.R_OK):
        raise StoreError(f"store {path}: the file can not be read by this user")
