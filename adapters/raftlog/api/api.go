// Package api defines the types and errors that the packages raftlog, client and offline have
// in common. It does not link the Raft library, which only peers need.
package api

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// Kind says what an entry contains.
type Kind byte

// The kinds of entries of the log.
const (
	// KindState is an update that a program has proposed. Data is the data of the update.
	KindState Kind = iota
	// KindConfig changes the membership. Data describes the change as JSON.
	KindConfig
	// KindCheckpoint starts the term of a leader, and commits earlier entries that were not
	// committed yet. It has no Data.
	KindCheckpoint
	// KindControl is an entry that peers write themselves, for example to add a candidate to an election. Its
	// Data is empty for programs.
	KindControl
)

var kinds = []string{"STATE", "CONFIG", "CHECKPOINT", "CONTROL"}

func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k]
	}
	return fmt.Sprintf("Kind(%d)", byte(k))
}

// Entry is a committed entry of the log.
type Entry struct {
	// Index is the position in the log. It starts at 1.
	Index uint64
	// Term is the term of the leader that has written the entry.
	Term uint64
	// Kind is the kind of the entry.
	Kind Kind
	// ID is the request ID. It is zero for a Checkpoint.
	ID RequestID
	// Time is the time at which the leader received the update, by the leader's clock. It is zero for a
	// Checkpoint.
	Time time.Time
	// Data is the data of the entry, which the Kind describes. It must not be modified.
	Data []byte
	// Skipped reports that a State entry changes nothing, because its ID was already
	// known or outside of the deduplication window. State machines do not receive such an
	// entry.
	Skipped bool
}

// Peer is a current or future member of the cluster.
type Peer struct {
	ID string `json:"id" yaml:"id"`
	// Addr is the peer's address, host:port.
	Addr string `json:"addr" yaml:"addr"`
}

// String returns "id@addr", or the address if the ID is not known.
func (p Peer) String() string {
	if p.ID == "" {
		return p.Addr
	}
	return p.ID + "@" + p.Addr
}

// Membership lists the peers of a cluster.
type Membership struct {
	// Index is the index of the entry that made this membership effective.
	Index uint64 `json:"index"`
	// Voters lists the peers that elect the leader. While a change is in progress, it lists the new voters.
	Voters []Peer `json:"voters"`
	// Outgoing lists the voters before a change that is in progress. It is empty
	// otherwise.
	Outgoing []Peer `json:"outgoing,omitempty"`
	// Learners lists the peers that receive the log and do not vote.
	Learners []Peer `json:"learners,omitempty"`
	// Removed lists the IDs of removed peers, which cannot be used again.
	Removed []string `json:"removed,omitempty"`
}

// Election is the state of an election.
type Election struct {
	// Ended reports whether the election was ended and not restarted.
	Ended bool
	// Candidates lists the candidates in the order of succession. The first one is the
	// leader, or is about to become the leader.
	Candidates []Candidate
}

// Candidate is a participant of an election.
type Candidate struct {
	// ID is unique. It consists of the ID of the candidate's peer, a slash and a random
	// number.
	ID string
	// Name is the name that the candidate has chosen, and Value the value that it advertises.
	Name, Value string
	// Token is the fencing token of the first candidate, and 0 for the other candidates.
	Token uint64
}

// Info describes the state of one peer.
type Info struct {
	Peer    Peer   `json:"peer"`
	Cluster string `json:"cluster"`
	// Role is learner, follower, candidate, leader or removed.
	Role string `json:"role"`
	// Leader is the leader, or zero if the peer does not know one.
	Leader Peer `json:"leader"`
	// Lease is the remaining time of this peer's lease, or 0 without a lease.
	Lease time.Duration `json:"lease"`
	// Term is the newest term that the peer knows.
	Term uint64 `json:"term"`
	// FirstIndex and LastIndex are the indexes of the first and the last entry of the
	// peer's log. Entries after CommitIndex may still be replaced.
	FirstIndex uint64 `json:"firstIndex"`
	// LastApplied is the index of the last entry that the peer has applied.
	LastApplied uint64 `json:"lastApplied"`
	// CommitIndex is the greatest index that the peer knows to be committed.
	CommitIndex uint64 `json:"commitIndex"`
	LastIndex   uint64 `json:"lastIndex"`
	// PruneIndex precedes the oldest entry whose request ID is within the deduplication
	// window.
	PruneIndex uint64 `json:"pruneIndex"`
	// SnapshotIndex is the index of the newest snapshot on disk, and SnapshotSize its size in bytes. Both are 0
	// if there is no snapshot.
	SnapshotIndex uint64 `json:"snapshotIndex"`
	SnapshotSize  int64  `json:"snapshotSize"`
	// RequestIDs is the number of request IDs that the log stores for deduplication.
	RequestIDs int `json:"requestIDs"`
	// Fault is the reason why the peer has stopped, or empty.
	Fault string `json:"fault,omitempty"`
}

// Errors of the packages raftlog and client, to be tested with errors.Is.
var (
	// ErrNotLeader is returned if the peer is not the leader, or if no leader is known. Nothing was applied.
	// The error is a [NotLeaderError] if a peer has returned it.
	ErrNotLeader = errors.New("not the leader")
	// ErrUnknownOutcome is returned if it is unknown whether the update was or will be
	// applied. It is safe to propose the update again with the same ID, which determines
	// the outcome.
	ErrUnknownOutcome = errors.New("the outcome of the request is unknown")
	// ErrStale is returned if the peers do not remember the ID and it is older than the
	// deduplication window. It is unknown whether the update was applied long ago; the
	// update is not applied now.
	ErrStale = errors.New("request ID is older than the deduplication window")
	// ErrFuture is returned if the timestamp of the ID is more than 15 minutes ahead of the
	// leader's clock. Nothing was applied.
	ErrFuture = errors.New("timestamp of the request ID is too far in the future")
	// ErrRequestIDReused is returned if the ID was used for an update with other data.
	ErrRequestIDReused = errors.New("request ID was used for other data")
	// ErrFenced is returned if the leadership that guards the update is over. Nothing was
	// applied. Programs receive it together with leaderelection.ErrNotLeader.
	ErrFenced = errors.New("leadership is over")
	// ErrBusy is returned while the cluster is overloaded, while the leader transfers its leadership, and
	// while the same update is in progress as an update of another leadership, or of none. The request has
	// changed nothing; it can be retried.
	ErrBusy = errors.New("the peer cannot serve the request now")
	// ErrTooManyIDs is returned if the maximum number of IDs is within the deduplication
	// window (raftlog.Config.MaxRequestIDs). Nothing was applied. The peers do not discard
	// such IDs to make room.
	ErrTooManyIDs = errors.New("too many request IDs in the deduplication window")
	// ErrTooLarge is returned if the data exceeds a limit (raftlog.Config.MaxData).
	ErrTooLarge = errors.New("data is too large")
	// ErrNoSpace is returned if the disk of the leader, or the disks of a majority, are
	// full. Nothing was applied. Updates are accepted again, without a restart, when
	// there is space.
	ErrNoSpace = errors.New("no space on the disk")
	// ErrInUse is returned if another process uses the directory of a peer.
	ErrInUse = errors.New("directory is in use by another peer")
	// ErrInvalid is returned if an argument or an option is invalid. Nothing was changed.
	ErrInvalid = errors.New("invalid")
	// ErrChanging is returned if another change of the membership is in progress.
	ErrChanging = errors.New("another change of the peers is in progress")
	// ErrNoCandidate is returned if a candidate does not exist.
	ErrNoCandidate = errors.New("candidate does not exist")
	// ErrCompacted is returned if the entries are not available any more because a snapshot
	// contains them.
	ErrCompacted = errors.New("entries were compacted")
	// ErrClosed is returned after the node, the client or the subscription was closed.
	ErrClosed = errors.New("closed")
	// ErrFault is returned if the node has stopped permanently. The error wraps the reason:
	// its disk has failed, its data is damaged, its state machine has returned an error, or
	// the Raft library has panicked. Functions that read the files of a peer that does not run
	// return ErrFault if the files are damaged.
	ErrFault = errors.New("permanent fault")
	// ErrIdentity is returned if the peer must not join the cluster with its data: it was
	// founded separately, its directory or its log was lost, its directory is a copy or was
	// restored from an earlier state, the cluster was recovered without it, or it has
	// applied other entries than a majority of the peers. The error contains the reason and
	// the remedy. It also wraps [ErrFault].
	ErrIdentity error = identityError{}
	// ErrRefused is returned if the remote program does not belong to this cluster, because it has another
	// secret, certificate or cluster name, or if the peer was removed from this cluster.
	ErrRefused = errors.New("refused")
	// ErrUnproven is wrapped together with ErrRefused if the remote program has not authenticated
	// itself as a peer of the cluster. Any program can use the address of the peer, so the refusal
	// only means that there is no connection.
	ErrUnproven = errors.New("the remote program has not authenticated itself as a peer")
)

// Secrets contains the secrets of a cluster. Peers and clients have separate secrets: a secret of
// clients never permits a process to act as a peer, and peers do not accept their own secret from
// clients. This process makes connections with the first secret of a role, and accepts all secrets of
// the role, so that a secret can be replaced at one process after another. Each secret has at least
// 16 random bytes.
type Secrets struct {
	Peers, Clients [][]byte
}

// identityError is the type of ErrIdentity.
type identityError struct{}

func (identityError) Error() string { return "raftlog: this peer must not participate in the cluster" }

// Is reports whether target is ErrFault.
func (identityError) Is(target error) bool { return target == ErrFault }

// NotLeaderError is the error of a peer that is not the leader. It wraps [ErrNotLeader].
type NotLeaderError struct {
	// Leader is the current leader according to the peer, or zero if it does not know
	// one.
	Leader Peer
}

func (e *NotLeaderError) Error() string {
	if e.Leader == (Peer{}) {
		return ErrNotLeader.Error() + ", and no leader is known"
	}
	return fmt.Sprintf("%s: %v leads", ErrNotLeader, e.Leader)
}

// Is reports whether target is ErrNotLeader.
func (e *NotLeaderError) Is(target error) bool { return target == ErrNotLeader }

// Event is an element of a stream of entries. Exactly one of Entry, Snapshot and Progress
// is set.
type Event struct {
	// Entry is the next entry. Its index is one greater than the index of the previous entry or snapshot.
	Entry *Entry
	// Snapshot replaces entries that are not available any more. The stream continues
	// after the index of the snapshot. The data must be read or closed before the next
	// event is requested.
	Snapshot *SnapshotStream
	// Progress is sent when the reader has received all committed entries, and
	// periodically while there are no new entries.
	Progress *Progress
}

// Progress reports the progress of a stream.
type Progress struct {
	// Commit is the greatest index that the peer knows to be committed.
	Commit uint64
	// Term is the newest term that the peer knows, and Leader the leader that it knows.
	Term   uint64
	Leader Peer
	// Fresh reports whether the peer had recent contact with a leader that has a
	// majority. Entries that the peer does not know are then at most one election timeout
	// old.
	Fresh bool
}

// SnapshotStream is a snapshot that is being received. The receiver must close Data.
type SnapshotStream struct {
	// Index and Term are the index and the term of the last entry that the snapshot contains.
	Index uint64
	Term  uint64
	// Size is the size of Data in bytes.
	Size int64
	Data io.ReadCloser
}
