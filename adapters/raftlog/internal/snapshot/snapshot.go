// Package snapshot stores the newest snapshot of a log in a file, and replaces it atomically: after any
// error or crash there is a complete snapshot, either the old one or the new one.
//
// The file is named snap. A new snapshot is written to snap.tmp-N, made durable, and renamed. The
// replaced snapshot is kept as a backup, snap-<time>-N.bak. The package does not delete backups.
//
// Only one goroutine at a time may change the snapshots of a directory, by a [Writer], [Install],
// [InstallFile] or [Open]. Readers can be used concurrently.
package snapshot

import (
	"errors"
	"time"

	raftpb "go.etcd.io/raft/v3/raftpb"
)

// Name is the name of the file of the newest snapshot.
const Name = "snap"

// Meta is the metadata of a snapshot.
type Meta struct {
	// Cluster is the ID of the cluster to which the snapshot belongs.
	Cluster string
	// Index and Term are the index and the term of the last entry of the log whose effect the snapshot
	// contains. Index is not 0.
	Index, Term uint64
	// Conf is the Raft configuration at Index. A nil Conf means an empty configuration.
	Conf *raftpb.ConfState
	// Created is the time when the snapshot was created, by the clock of the peer that created it or of
	// the leader. The name of a backup contains this time. The location and the monotonic reading of
	// the time are not stored.
	Created time.Time
}

// These are the errors of package snapshot.
var (
	// ErrCorrupt is returned if a file or a stream is not a complete and undamaged snapshot.
	ErrCorrupt = errors.New("snapshot: the file is damaged")
	// ErrVersion is returned if this program does not know the format of a snapshot.
	ErrVersion = errors.New("snapshot: the file has an unknown format")
	// ErrOlder is returned if the current snapshot has a higher index than the new one. Nothing was
	// changed.
	ErrOlder = errors.New("snapshot: the new snapshot is older than the current snapshot")
	// ErrOtherCluster is returned if the current snapshot and the new one belong to different clusters.
	// Nothing was changed.
	ErrOtherCluster = errors.New("snapshot: the new snapshot belongs to another cluster")
)
