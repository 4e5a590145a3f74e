package raftlog

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/identity"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/transport"
)

// knownPeers contains what this peer knows about the identities of the other peers. The instance of a peer is
// the random identity of its data directory. knownPeers may be used concurrently.
type knownPeers struct {
	mu       sync.Mutex
	registry identity.Registry
	stored   map[string]string   // the instances of the peers that are stored on the disk, by the ID of the peer
	unstored bool                // the registry differs from the file, because a write has failed
	refusals identity.Refusals   // the refusals of this peer by other peers
	reported transport.Reporters // limits how often refusals are logged, by the ID of the refusing peer

	// instances is a copy of the registry's instances for the loop, which must not wait for the disk.
	instances atomic.Pointer[map[string]string]
}

// publishInstances updates instances. k.mu is held.
func (k *knownPeers) publishInstances() {
	all := k.registry.Instances()
	k.instances.Store(&all)
}

// storePeers writes the peers of the registry to the disk, and updates stored and unstored. k.mu is held.
func (k *knownPeers) storePeers(fsys disk.FS) error {
	err := identity.WritePeers(fsys, k.registry.Peers)
	if k.unstored = err != nil; !k.unstored {
		k.stored = k.registry.Instances()
	}
	return err
}

// readKnownPeers reads the identities of the other peers from the disk.
func (n *Node) readKnownPeers() error {
	peers, err := identity.ReadPeers(n.fs)
	if errors.Is(err, identity.ErrDamaged) {
		return fmt.Errorf("%w: directory %s: %w; if no other peer has lost or replaced its directory, delete this file, and start the peer again: "+
			"it learns its content from the other peers", api.ErrFault, n.cfg.Dir, err)
	}
	if err != nil {
		return fmt.Errorf("raftlog: directory %s: %w", n.cfg.Dir, err)
	}
	n.known.registry = identity.Registry{
		Founding: n.owner.Founding, Founders: n.owner.Founders, Former: n.owner.Former, IsEstablished: func() bool { return n.memberStatus.Load().established }, Peers: peers,
	}
	n.known.stored = n.known.registry.Instances()
	n.known.publishInstances()
	return nil
}

// acceptHandshake decides whether a remote process may participate in the cluster, for incoming and
// outgoing connections, and again when the members have changed. When it returns nil, the instance of a
// remote member that participates is on disk. Nothing that a client, or a process that is not a member
// according to the log, says about itself is stored. acceptHandshake also tries again to store records
// that could not be written before.
func (n *Node) acceptHandshake(h link.Hello) error {
	if !h.Peer {
		return nil
	}
	k := &n.known
	k.mu.Lock()
	defer k.mu.Unlock()
	refused := k.registry.Check(h.ID, h.Claim)
	switch {
	case refused != nil:
		return refused
	case h.Purpose != link.PurposeRaft: // only a connection for the Raft protocol shows which process uses the ID
		return nil
	case n.isMember(h.ID):
		return n.recordClaim(h.ID, h.Claim)
	}
	return nil
}

// recordClaim stores the claim of a member that has connected, which is what the member says about its
// identity. k.mu is held.
func (n *Node) recordClaim(id string, c link.Claim) error {
	k := &n.known
	changed, first, refused := k.registry.Meet(id, c)
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
	n.log.Error("storing the states of other peers failed", "remote", id, "err", err)
	if known, met := k.registry.Peers[id]; !met || k.stored[id] == known.Instance {
		return nil
	}
	if first {
		delete(k.registry.Peers, id)
	}
	return err // the claim must be on disk, because otherwise another directory could use the ID after a restart
}

// learnInstances adds the identities of members that other members have sent.
func (n *Node) learnInstances(received []map[string]string) {
	k := &n.known
	k.mu.Lock()
	defer k.mu.Unlock()
	learned := false
	for _, instances := range received {
		maps.DeleteFunc(instances, func(id, _ string) bool { return id == n.cfg.ID || !n.isMember(id) })
		changed, contradicted := k.registry.Learn(instances)
		learned = learned || changed
		if len(contradicted) > 0 {
			n.log.Error("another peer has recorded other data directories of these peers", "peers", contradicted)
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

// handleRefusal stops the node if the refusal of a connection by another peer means that this peer must not
// participate in the cluster.
func (n *Node) handleRefusal(by string, refused *link.RefusedError) {
	if fatal := n.fatalRefusal(by, refused); fatal != nil {
		n.stopWithFault(fatal)
	}
}

// remedies contains, for each reason for which a peer must stop, what the operator can do.
var remedies = map[link.Reason]string{
	link.ReasonFounding: "",
	link.ReasonInstance: ": it does not have the data of its ID, because its directory was lost or replaced: " +
		"remove the ID from the cluster (raftlog config --delete), and let the peer join with an empty directory under a new ID",
	link.ReasonEarlier: ": its directory is a copy, or was restored to an earlier state: remove the copy; " +
		"if the newer directory is lost, remove the ID from the cluster, and let the peer join with an empty directory under a new ID",
	link.ReasonRecovered: ": remove its directory, and let it join under a new ID",
	link.ReasonRunning:   ": remove the copy of the directory",
}

// minorityRemedies contains what the operator can do if a minority of the voters refuses a peer.
var minorityRemedies = map[link.Reason]string{
	link.ReasonFounding:    "correct the list of peers of one of the two",
	link.ReasonUncommitted: "correct the list of peers of one of the two",
	link.ReasonInstance:    "if no other peer reports this, the " + identity.PeersFile + " of the peer is wrong: stop the peer, delete the file, and start it again",
	link.ReasonEarlier:     "if no other peer reports this, the " + identity.PeersFile + " of the peer is wrong: stop the peer, delete the file, and start it again",
	link.ReasonRecovered:   "if the recovery was intended, stop this peer; otherwise stop the recovered one",
	link.ReasonRunning:     "if there is no other process with this ID, restart the peer that reports this",
}

// fatalRefusal returns an ErrIdentity if the error of a connection to a peer means that this peer must
// stop, and nil otherwise. It logs refusals that concern the identity of this peer.
func (n *Node) fatalRefusal(by string, err error) error {
	var refused *link.RefusedError
	if !errors.As(err, &refused) {
		return nil
	}
	remedy, concerned := remedies[refused.Reason]
	if !concerned && refused.Reason != link.ReasonUncommitted {
		return nil
	}
	own := n.memberStatus.Load()
	k := &n.known
	k.mu.Lock()
	fatal := k.refusals.Add(by, refused.Reason, nodeClock{n}.Now(), own.established, own.voters)
	report := k.reported.ShouldReport(by, refused)
	k.mu.Unlock()
	if fatal {
		who := "peer " + by
		if own.established {
			who = "a majority of the voters refuses this peer; " + who
		}
		details := ""
		if refused.Text != "" {
			details = " (" + refused.Text + ")"
		}
		return identityErrorf("%s reports: %v%s%s", who, refused.Reason, details, remedy)
	}
	if report {
		n.log.Error("another peer refuses this one, which continues", "remote", by, "err", refused, "remedy", minorityRemedies[refused.Reason])
	}
	return nil
}
