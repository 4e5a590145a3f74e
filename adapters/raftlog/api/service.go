package api

import (
	"context"
	"io"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// Service is what a peer provides to clients, over the network or in the same process.
// Its methods may be called from any goroutine. Every method returns when its context is
// done. Errors wrap those of this package, or the cause of the context.
type Service interface {
	// Propose applies an update exactly once and returns the index of its entry. If the
	// ID was used for the same data before, it returns the index of the first entry. It
	// waits until this peer has applied the entry. If the peer is not the leader, it
	// returns a NotLeaderError.
	Propose(ctx context.Context, id requestid.ID, data []byte) (index uint64, err error)
	// ChangePeers replaces the voters by joint consensus, and returns the index of the
	// entry that completes the change. If the peer is not the leader, it returns a
	// NotLeaderError.
	ChangePeers(ctx context.Context, id requestid.ID, voters []Peer) (index uint64, err error)
	// Membership returns the membership according to the entries that this peer has
	// applied.
	Membership(ctx context.Context) (Membership, error)
	// Election returns the state of an election, including all changes that were confirmed
	// before the call.
	Election(ctx context.Context, name string) (Election, error)
	// AskToResign requests a candidate of this peer to resign, and returns when its
	// candidacy is over. When ctx is done, it withdraws the request and returns the cause. If
	// this peer does not have the candidate, it returns ErrNoCandidate.
	AskToResign(ctx context.Context, name, candidate string) error
	// Info returns the state of this peer.
	Info(ctx context.Context) (Info, error)
	// Entries streams the log of this peer, starting at index from. See Event.
	Entries(ctx context.Context, from uint64) (Events, error)
	// Snapshot returns the newest snapshot on disk.
	Snapshot(ctx context.Context) (SnapshotStream, error)
}

// Events is a stream of events. It must be used by one goroutine at a time.
type Events interface {
	// Next blocks until there is an event and returns it. After an error the stream has
	// ended.
	Next() (Event, error)
	// Close ends the stream. A pending or later Next returns an error.
	Close() error
}

// Event is an element of a stream of entries. Exactly one of Entry, Snapshot and Progress
// is set.
type Event struct {
	// Entry is the next entry. Its index is one greater than that of the previous entry
	// or snapshot.
	Entry *Entry
	// Snapshot replaces entries that are not available any more. The stream continues
	// after its index. The data must be read or closed before the next event is
	// requested.
	Snapshot *SnapshotStream
	// Progress is sent when the reader has received all committed entries, and
	// periodically while there are no new entries.
	Progress *Progress
}

// Progress reports the progress of a stream.
type Progress struct {
	// Commit is the greatest index that the peer knows to be committed.
	Commit uint64
	// Term and Leader are those of the peer.
	Term   uint64
	Leader Peer
	// Fresh reports whether the peer had recent contact with a leader that has a
	// majority. Entries that the peer does not know are then at most one election timeout
	// old.
	Fresh bool
}

// SnapshotStream is a snapshot that is being received. The receiver must close Data.
type SnapshotStream struct {
	Index uint64
	Term  uint64
	// Size is the size of Data in bytes.
	Size int64
	Data io.ReadCloser
}
