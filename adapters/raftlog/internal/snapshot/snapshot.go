// Package snapshot keeps the newest snapshot of a log in a file, and replaces it so that
// whatever fails, and whenever the power does, there is a whole one: the old or the new.
//
// The file is called snap. A new one is written beside it, as snap.tmp-N, made durable, and
// then renamed. The one that it replaces stays as a backup, snap-<time>-N.bak; nothing ever
// deletes backups.
//
// One goroutine at a time may change the snapshots of a directory: by a [Writer], [Install],
// [InstallFile] or [Open]. Readers do not mind.
package snapshot

import (
	"errors"
	"time"

	raftpb "go.etcd.io/raft/v3/raftpb"
)

// Name is the file of the newest snapshot, in its directory.
const Name = "snap"

// Meta says what a snapshot is of.
type Meta struct {
	// Cluster is the ID of the cluster.
	Cluster string
	// Index and Term are those of the last entry that is in the snapshot. Index is not 0.
	Index, Term uint64
	// Conf is who the members are at that index; nil is the same as an empty one.
	Conf *raftpb.ConfState
	// Created is when it was made, by the leader's clock or the peer's own. The backup of
	// the snapshot has it in its name. Locations and monotonic readings are not kept.
	Created time.Time
}

// The errors, for errors.Is.
var (
	// ErrCorrupt: a file, or a stream, is not a whole and undamaged snapshot.
	ErrCorrupt = errors.New("snapshot: damaged")
	// ErrVersion: a snapshot is of a format that this program does not know.
	ErrVersion = errors.New("snapshot: unknown format")
	// ErrOlder: there is a snapshot of a higher index; nothing was changed.
	ErrOlder = errors.New("snapshot: older than the current snapshot")
	// ErrOtherCluster: the present snapshot is of another cluster; nothing was changed.
	ErrOtherCluster = errors.New("snapshot: belongs to another cluster")
)
