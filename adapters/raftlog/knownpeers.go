package raftlog

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/identity"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

// knownPeers contains the identities of the other peers that this peer has met. It may be used
// concurrently.
type knownPeers struct {
	mu       sync.Mutex
	registry identity.Registry
	stored   map[string]string    // the instances that are on disk
	unstored bool                 // the registry differs from the file, because a write has failed
	running  map[string]*refusals // refusals with ReasonRunning, by the ID of the peer that sent them

	// instances is a copy of the registry's instances for the loop, which must not wait for the disk.
	instances atomic.Pointer[map[string]string]
}

// publishInstances updates instances. k.mu is held.
func (k *knownPeers) publishInstances() {
	all := k.registry.Instances()
	k.instances.Store(&all)
}

// storePeers writes the registry's peers to the disk. k.mu is held.
func (k *knownPeers) storePeers(fsys disk.FS) error {
	err := identity.WritePeers(fsys, k.registry.Peers)
	if k.unstored = err != nil; !k.unstored {
		k.stored = k.registry.Instances()
	}
	return err
}

// refusals counts consecutive refusals by one peer.
type refusals struct {
	first, last time.Time
	count       int
}

const (
	// A process stops if a peer has refused it with ReasonRunning for copyTime and at least
	// copyCount times. Peers close the connection of a crashed process after three seconds
	// without data, so a restarted process is not refused for that long.
	copyTime  = 10 * time.Second
	copyCount = 4
)

// readKnownPeers reads the identities of the other peers from the disk.
func (n *Node) readKnownPeers() error {
	peers, err := identity.ReadPeers(n.fs)
	if errors.Is(err, identity.ErrDamaged) {
		return fmt.Errorf("%w: directory %s: %w", api.ErrFault, n.cfg.Dir, err)
	}
	if err != nil {
		return fmt.Errorf("raftlog: directory %s: %w", n.cfg.Dir, err)
	}
	n.known.registry = identity.Registry{Founding: n.owner.Founding, Former: n.owner.Former, Peers: peers}
	n.known.stored = n.known.registry.Instances()
	n.known.running = map[string]*refusals{}
	n.known.publishInstances()
	return nil
}

// acceptHandshake decides whether a remote process may participate in the cluster, for incoming and
// outgoing connections. When it returns nil, the instance of a remote peer that participates is on
// disk. It tries again to store records that could not be written before.
func (n *Node) acceptHandshake(h link.Hello) error {
	if !h.Peer {
		return nil
	}
	k := &n.known
	k.mu.Lock()
	defer k.mu.Unlock()
	if h.Purpose.ForClients() { // such a connection does not carry messages of the Raft protocol
		if refused := k.registry.Check(h.ID, h.Claim); refused != nil {
			return refused
		}
		return nil
	}
	changed, first, refused := k.registry.Meet(h.ID, h.Claim)
	if refused != nil {
		return refused
	}
	if !changed && !k.unstored {
		return nil
	}
	defer k.publishInstances()
	err := k.storePeers(n.fs)
	if err == nil {
		return nil
	}
	n.log.Error("storing the states of other peers failed", "peer", h.ID, "err", err)
	if known, met := k.registry.Peers[h.ID]; !met || k.stored[h.ID] == known.Instance {
		return nil
	}
	if first {
		delete(k.registry.Peers, h.ID)
	}
	return err // otherwise a peer with another directory could use the ID after a restart
}

// learnInstances adds the identities that other peers have sent.
func (n *Node) learnInstances(received []map[string]string) {
	k := &n.known
	k.mu.Lock()
	defer k.mu.Unlock()
	learned := false
	for _, instances := range received {
		delete(instances, n.cfg.ID)
		changed, contradicted := k.registry.Learn(instances)
		learned = learned || changed
		if len(contradicted) > 0 {
			n.log.Error("another peer of the cluster has these IDs with other data directories", "peers", contradicted)
		}
	}
	if !learned {
		return
	}
	k.publishInstances()
	if err := k.storePeers(n.fs); err != nil {
		n.log.Error("storing the states of other peers failed", "err", err)
	}
}

// knownInstances returns the instances of the peers that this peer has met, by their IDs.
func (n *Node) knownInstances() map[string]string {
	return *n.known.instances.Load()
}

// handleRefusal handles the refusal of a connection by another peer.
func (n *Node) handleRefusal(by string, refused *link.RefusedError) {
	if fatal := n.fatalRefusal(by, refused); fatal != nil {
		n.stopWithFault(fatal)
	}
}

// fatalRefusal returns an ErrIdentity if the error of a connection to a peer means that this peer must
// stop, and nil otherwise.
func (n *Node) fatalRefusal(by string, err error) error {
	var refused *link.RefusedError
	if !errors.As(err, &refused) {
		return nil
	}
	switch refused.Reason {
	case link.ReasonInstance, link.ReasonEarlier, link.ReasonRecovered:
	case link.ReasonFounding:
		// A peer that has committed entries belongs to an established cluster and continues; the
		// two clusters only refuse each other.
		if s := n.status.Load(); s != nil && s.Commit > 1 {
			return nil
		}
	case link.ReasonRunning:
		if !n.known.recordRunningRefusal(by, time.Now()) {
			return nil
		}
	default:
		return nil
	}
	return identityErrorf("peer %s reports: %v (%s)", by, refused.Reason, refused.Text)
}

// recordRunningRefusal records a ReasonRunning refusal and reports whether this process must stop.
func (k *knownPeers) recordRunningRefusal(by string, now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.running[by]
	if r == nil || now.Sub(r.last) > copyTime {
		r = &refusals{first: now}
		k.running[by] = r
	}
	r.last = now
	r.count++
	return now.Sub(r.first) >= copyTime && r.count >= copyCount
}
