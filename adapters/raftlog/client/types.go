package client

// The types and errors that a client shares with the peers. Package raftlog has them too, for
// programs that are peers: its engine is nothing for clients to link.

import (
	"errors"
	"fmt"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/api"
)

// What peers and clients say to each other.
type (
	// Entry is one entry of the log, committed.
	Entry = api.Entry
	// Kind is what an entry is for.
	Kind = api.Kind
	// Peer is a member of the cluster.
	Peer = api.Peer
	// Membership is who the peers are.
	Membership = api.Membership
	// Info is how things stand at one peer.
	Info = api.Info
	// SnapshotStream is a snapshot on its way. Whoever gets it closes Data.
	SnapshotStream = api.SnapshotStream
	// NotLeaderError tells who leads instead. It is ErrNotLeader.
	NotLeaderError = api.NotLeaderError
)

// The kinds of entries.
const (
	KindState      = api.State
	KindConfig     = api.Config
	KindCheckpoint = api.Checkpoint
	KindControl    = api.Control
)

// The errors, for errors.Is.
var (
	// ErrNotLeader: the peers that were asked do not lead; nothing was done.
	ErrNotLeader = api.ErrNotLeader
	// ErrUnknownOutcome: it is not known whether the update was, or will be, applied.
	// Proposing it again with the same ID is safe, and tells.
	ErrUnknownOutcome = api.ErrUnknownOutcome
	// ErrStale: the ID is older than what peers remember, and they do not know it.
	ErrStale = api.ErrStale
	// ErrFuture: the ID is of a time to come, by the leader's clock.
	ErrFuture = api.ErrFuture
	// ErrRequestIDReused: the ID is known, from an update with other data.
	ErrRequestIDReused = api.ErrRequestIDReused
	// ErrBusy: the leader has too much under way.
	ErrBusy = api.ErrBusy
	// ErrTooManyIDs: the log remembers as many IDs as it may.
	ErrTooManyIDs = api.ErrTooManyIDs
	// ErrTooLarge: the data are larger than the cluster takes.
	ErrTooLarge = api.ErrTooLarge
	// ErrNoSpace: the leader's disk has no space for updates; nothing was applied.
	ErrNoSpace = api.ErrNoSpace
	// ErrInvalid: an argument or an option cannot work; nothing was done.
	ErrInvalid = api.ErrInvalid
	// ErrChanging: another change of the peers is under way.
	ErrChanging = api.ErrChanging
	// ErrCompacted: the entries are in a snapshot by now.
	ErrCompacted = api.ErrCompacted
	// ErrClosed: the client, or the subscription, was closed.
	ErrClosed = api.ErrClosed
	// ErrFault: the peer has stopped for good.
	ErrFault = api.ErrFault
	// ErrRefused: the other side is not of this cluster: it has another secret, certificate
	// or cluster ID.
	ErrRefused = api.ErrRefused
	// ErrGap: a peer has sent entries that do not follow each other. GapError says which.
	ErrGap = errors.New("raftlog: entries do not follow each other")
)

// GapError is the error of a subscription to which a peer has sent another entry than the
// one that had to follow. It is ErrGap. The peer, or what is between, is broken.
type GapError struct {
	Peer Peer
	// Want is the index that had to follow, Got the one that came, of an entry or a snapshot.
	Want, Got uint64
}

func (e *GapError) Error() string {
	return fmt.Sprintf("%s: peer %v has sent index %d where %d has to be; subscribe again at index %d, not at that peer", ErrGap, e.Peer, e.Got, e.Want, e.Want)
}

// Is tells that e is ErrGap.
func (e *GapError) Is(target error) bool { return target == ErrGap }
