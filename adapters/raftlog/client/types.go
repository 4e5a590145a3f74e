package client

// The types and errors that a client shares with the peers. Package raftlog has them too, for
// programs that are peers: its engine is nothing for clients to link.

import (
	"errors"
	"fmt"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// What peers and clients say to each other.
type (
	// Entry is a committed entry of the log.
	Entry = api.Entry
	// Kind is the purpose of an entry.
	Kind = api.Kind
	// Peer is a member of the cluster.
	Peer = api.Peer
	// Membership lists the peers of the cluster.
	Membership = api.Membership
	// Info is the status of one peer.
	Info = api.Info
	// Election is the state of an election.
	Election = api.Election
	// Candidate is a participant of an election.
	Candidate = api.Candidate
	// SnapshotStream is a snapshot that is being received. The receiver must close its
	// Data.
	SnapshotStream = api.SnapshotStream
	// NotLeaderError names the leader. It wraps [ErrNotLeader].
	NotLeaderError = api.NotLeaderError
)

// The kinds of entries: an update that was proposed, a change of the membership, the start
// of a leader's term, and a message between the peers.
const (
	KindState      = api.State
	KindConfig     = api.Config
	KindCheckpoint = api.Checkpoint
	KindControl    = api.Control
)

// Errors returned by this package, to be tested with errors.Is.
var (
	// ErrNotLeader is returned if the peers that were contacted are not the leader. Nothing
	// was applied.
	ErrNotLeader = api.ErrNotLeader
	// ErrUnknownOutcome is returned if it is unknown whether the update was or will be
	// applied. It is safe to propose it again with the same ID, which determines the
	// outcome.
	ErrUnknownOutcome = api.ErrUnknownOutcome
	// ErrStale is returned if the peers do not remember the ID and it is older than the
	// deduplication window.
	ErrStale = api.ErrStale
	// ErrFuture is returned if the timestamp of the ID is too far ahead of the leader's
	// clock.
	ErrFuture = api.ErrFuture
	// ErrRequestIDReused is returned if the ID was used for an update with other data.
	ErrRequestIDReused = api.ErrRequestIDReused
	// ErrBusy is returned if the leader is overloaded.
	ErrBusy = api.ErrBusy
	// ErrTooManyIDs is returned if the cluster remembers the maximum number of IDs.
	ErrTooManyIDs = api.ErrTooManyIDs
	// ErrTooLarge is returned if the data is larger than the cluster accepts.
	ErrTooLarge = api.ErrTooLarge
	// ErrNoSpace is returned if the leader's disk is full. Nothing was
	// applied.
	ErrNoSpace = api.ErrNoSpace
	// ErrInvalid is returned if an argument or an option is invalid. Nothing was changed.
	ErrInvalid = api.ErrInvalid
	// ErrChanging is returned if another change of the membership is in progress.
	ErrChanging = api.ErrChanging
	// ErrNoCandidate is returned if a candidate does not exist.
	ErrNoCandidate = api.ErrNoCandidate
	// ErrCompacted is returned if the entries are not available any more because a snapshot
	// contains them.
	ErrCompacted = api.ErrCompacted
	// ErrClosed is returned after the client or the subscription was closed.
	ErrClosed = api.ErrClosed
	// ErrFault is returned if the peer has stopped permanently.
	ErrFault = api.ErrFault
	// ErrRefused is returned if the other side does not belong to this cluster: it has
	// another secret, certificate or cluster name.
	ErrRefused = api.ErrRefused
	// ErrGap is returned if a peer has sent entries that are not consecutive. The error is
	// a [GapError].
	ErrGap = errors.New("raftlog: gap between entries")
)

// GapError is the error of a subscription that has received an unexpected entry. It wraps
// [ErrGap]. The peer, or the connection to it, is faulty.
type GapError struct {
	// Peer is the peer that has sent the entry.
	Peer Peer
	// Want is the expected index, and Got the index of the received entry or snapshot.
	Want, Got uint64
}

func (e *GapError) Error() string {
	return fmt.Sprintf("%s: peer %v has sent index %d where %d has to be; subscribe again at index %d, not at that peer", ErrGap, e.Peer, e.Got, e.Want, e.Want)
}

// Is reports whether target is [ErrGap].
func (e *GapError) Is(target error) bool { return target == ErrGap }
