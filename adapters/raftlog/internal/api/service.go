package api

import (
	"context"
	"io"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// Service is what a peer does for clients, over the network or in the same process. Its
// methods may be called from any goroutine. Every method returns by the end of its context;
// errors wrap those of this package, or the context's cause.
type Service interface {
	// Propose has an update applied once, and returns the index of its entry, of the first
	// one if the ID was used for the same data before. It waits until the entry is applied
	// at this peer. Peers that do not lead return a NotLeaderError.
	Propose(ctx context.Context, id requestid.ID, data []byte) (index uint64, err error)
	// ChangePeers makes these the voters, by joint consensus, and returns the index of the
	// entry by which the change is complete. Peers that do not lead return a NotLeaderError.
	ChangePeers(ctx context.Context, id requestid.ID, voters []Peer) (index uint64, err error)
	// Membership is who the peers are as far as this peer has applied the log.
	Membership(ctx context.Context) (Membership, error)
	// Info is how things stand at this peer.
	Info(ctx context.Context) (Info, error)
	// Entries streams the log from index from on, from this peer: see Event.
	Entries(ctx context.Context, from uint64) (Events, error)
	// Snapshot returns the newest snapshot, as it is on disk.
	Snapshot(ctx context.Context) (SnapshotStream, error)
}

// Events is a stream. It is not safe for use by several goroutines.
type Events interface {
	// Next waits for the next event. After an error the stream is over.
	Next() (Event, error)
	// Close gives the stream up; Next, waiting or called later, returns an error.
	Close() error
}

// Event is one element of a stream of entries. Exactly one of Entry, Snapshot and Pulse is
// set.
type Event struct {
	// Entry is the next entry: one after the index of the last one, or of the snapshot.
	Entry *Entry
	// Snapshot says that entries before it are gone; the stream goes on after its index. Its
	// state machine's data have to be read before the next event is asked for.
	Snapshot *SnapshotStream
	// Pulse says that there was nothing new for a while, or that the reader has caught up.
	Pulse *Pulse
}

// Pulse says how far a stream is.
type Pulse struct {
	// Commit is the newest index that the peer knows to be committed.
	Commit uint64
	// Term and Leader are the peer's.
	Term   uint64
	Leader Peer
	// Fresh is whether the peer has heard from a leader with a majority lately: what it does
	// not know of is at most an election timeout old.
	Fresh bool
}

// SnapshotStream is a snapshot on its way. Whoever gets it closes Data.
type SnapshotStream struct {
	Index uint64
	Term  uint64
	Size  int64 // of Data
	Data  io.ReadCloser
}
