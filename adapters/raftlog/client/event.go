package client

import (
	"errors"
	"fmt"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// EventKind is the kind of an Event.
type EventKind int

const (
	// EventEntry delivers the next entry.
	EventEntry EventKind = iota
	// EventSnapshot delivers a snapshot, which replaces the previous state, including
	// earlier snapshots that could not be read completely. The next event follows when the
	// receiver has read the Data completely or closed it. Reading fails if the connection
	// is lost; then the snapshot is delivered again.
	EventSnapshot
	// EventFresh reports that all entries that the peer knows to be committed were delivered, and that the
	// peer has had recent contact with a leader that has a majority. It is not repeated before the next
	// EventStale.
	EventFresh
	// EventStale follows an EventFresh and reports that there may be newer entries. Err is
	// the reason: the peer has lost its leader, the connection was lost, or a snapshot
	// skips entries.
	EventStale
	// EventTimeout reports that the peer has sent nothing for the time of [WithKeepaliveTimeout]. The
	// subscription then tries another peer.
	EventTimeout
)

var eventKinds = []string{"entry", "snapshot", "fresh", "stale", "timeout"}

// String returns the name of the kind.
func (k EventKind) String() string {
	if k >= 0 && int(k) < len(eventKinds) {
		return eventKinds[k]
	}
	return fmt.Sprintf("EventKind(%d)", int(k))
}

// Event is an element of a subscription.
type Event struct {
	// Kind is the kind of the event.
	Kind EventKind
	// Peer is the peer from which the event was received.
	Peer api.Peer
	// Entry is set for EventEntry. It must not be modified.
	Entry *api.Entry
	// Snapshot is set for EventSnapshot.
	Snapshot *api.SnapshotStream
	// Leader is the leader that the peer knows. It is set for EventFresh.
	Leader api.Peer
	// Term is the term of the leader. It is set for EventFresh.
	Term uint64
	// Err is the reason of EventStale and EventTimeout.
	Err error
}

// ErrGap is returned if a peer has sent entries that are not consecutive. The error is a
// [GapError].
var ErrGap = errors.New("raftlog: gap between entries")

// GapError is the error of a subscription that has received an unexpected entry. It wraps
// [ErrGap]. The peer, or the connection to it, is faulty.
type GapError struct {
	// Peer is the peer that has sent the entry.
	Peer api.Peer
	// Want is the expected index, and Got the index of the received entry or snapshot.
	Want, Got uint64
}

func (e *GapError) Error() string {
	return fmt.Sprintf("%s: peer %v has sent index %d instead of %d; subscribe again at index %d, not at that peer", ErrGap, e.Peer, e.Got, e.Want, e.Want)
}

// Is reports whether target is [ErrGap].
func (e *GapError) Is(target error) bool { return target == ErrGap }
