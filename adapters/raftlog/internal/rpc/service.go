package rpc

import (
	"context"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// Service is what a peer provides to clients, over the network or in the same process. Any goroutine
// may call its methods. Every method returns when its context is done. Errors wrap those of package
// api, or the cause of the context.
type Service interface {
	// Propose applies an update exactly once, and returns the index of its entry. If the ID was used
	// for the same data before, it returns the index of the first entry. Propose returns when this peer
	// has applied the entry. If the peer is not the leader, it returns an [api.NotLeaderError].
	Propose(ctx context.Context, id api.RequestID, data []byte) (index uint64, err error)
	// ChangePeers replaces the voters by joint consensus, and returns the index of the entry that
	// completes the change. If the peer is not the leader, it returns an [api.NotLeaderError].
	ChangePeers(ctx context.Context, id api.RequestID, voters []api.Peer) (index uint64, err error)
	// Membership returns the membership according to the entries that this peer has
	// applied.
	Membership(ctx context.Context) (api.Membership, error)
	// Election returns the state of an election, including all changes that were confirmed
	// before the call.
	Election(ctx context.Context, name string) (api.Election, error)
	// RequestResign asks a candidate of this peer to resign, and returns when the candidacy is over.
	// When ctx is done, it withdraws the request and returns the cause. If this peer does not have the
	// candidate, it returns [api.ErrNoCandidate].
	RequestResign(ctx context.Context, name, candidate string) error
	// Info returns the state of this peer for display.
	Info(ctx context.Context) (api.Info, error)
	// Entries passes the log of this peer, from the index from on, to the function send, and returns
	// when ctx is done or send returns an error. Each call of send receives at least one event, or a
	// single event with a snapshot, whose data send must close. The function send must not keep the
	// slice.
	Entries(ctx context.Context, from uint64, send func([]api.Event) error) error
	// Snapshot returns the newest snapshot that is on the disk of this peer.
	Snapshot(ctx context.Context) (api.SnapshotStream, error)
}
