package rpctest

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
)

// Network connects clients to the peers of a Cluster in memory.
type Network struct {
	*Cluster

	ctx    context.Context
	cancel context.CancelFunc
	served sync.WaitGroup

	mu      sync.Mutex
	servers map[string]*rpc.Server
	ends    map[string]map[*End]bool
	down    map[string]error
	deaf    map[string]bool
	dials   map[string]int
}

// NewNetwork returns a network in which all peers of c are reachable.
func NewNetwork(c *Cluster) *Network {
	n := &Network{Cluster: c, servers: map[string]*rpc.Server{}, ends: map[string]map[*End]bool{}, down: map[string]error{}, deaf: map[string]bool{}, dials: map[string]int{}}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n
}

// Close closes all connections, and waits until the servers have ended.
func (n *Network) Close() {
	n.cancel()
	n.served.Wait()
}

// Connect connects a client named "client" to the peer with the ID of p, for the given purpose.
func (n *Network) Connect(_ context.Context, p api.Peer, purpose link.Purpose) (rpc.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dials[p.ID]++
	if err := n.down[p.ID]; err != nil {
		return nil, fmt.Errorf("dial %v: %w", p, err)
	}
	near, far := Pipe()
	if n.ends[p.ID] == nil {
		n.ends[p.ID] = map[*End]bool{}
	}
	n.ends[p.ID][far] = true
	if n.servers[p.ID] == nil {
		n.servers[p.ID] = rpc.NewServer(n.Peer(p))
	}
	server, deaf := n.servers[p.ID], n.deaf[p.ID]
	n.served.Go(func() {
		switch {
		case deaf:
			defer context.AfterFunc(n.ctx, func() { far.Close() })()
			for err := error(nil); err == nil; {
				_, err = far.ReadFrame()
			}
		case purpose == link.PurposeStream:
			_ = server.Stream(n.ctx, far, "client")
		default:
			_ = server.Calls(n.ctx, far, "client")
		}
		n.mu.Lock()
		delete(n.ends[p.ID], far)
		n.mu.Unlock()
	})
	return near, nil
}

// Down closes the connections of a peer, and makes later attempts to connect to the peer fail with err.
// If err is nil, later attempts succeed.
func (n *Network) Down(id string, err error) {
	n.mu.Lock()
	n.down[id] = err
	n.mu.Unlock()
	n.Cut(id)
}

// Deaf closes the connections of a peer. If deaf is true, the peer accepts later connections but does
// not answer on them.
func (n *Network) Deaf(id string, deaf bool) {
	n.mu.Lock()
	n.deaf[id] = deaf
	n.mu.Unlock()
	n.Cut(id)
}

// Cut closes the connections of a peer, and returns how many there were.
func (n *Network) Cut(id string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	for end := range n.ends[id] {
		end.Close()
	}
	return len(n.ends[id])
}

// Dials returns the number of attempts to connect to a peer.
func (n *Network) Dials(id string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials[id]
}
