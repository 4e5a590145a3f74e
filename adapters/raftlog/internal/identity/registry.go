package identity

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

// Known is what a peer knows about the identities of another peer.
type Known struct {
	// Instance identifies the directory of the other peer. The same peer ID never has another instance
	// later.
	Instance string `json:"instance"`
	// Start and Process describe the newest process of the other peer that has connected. They are zero
	// if only a third peer has reported the instance.
	Start   uint64 `json:"start,omitempty"`
	Process string `json:"process,omitempty"`
}

// Registry contains the identities of the peers that this peer knows. It is not safe for concurrent
// use. When a method reports that the registry has changed, the caller stores Peers on disk.
type Registry struct {
	// Founding is the identity of the cluster. It is empty until this peer has joined a cluster.
	Founding string
	// Former contains the identities that the cluster had before it was recovered.
	Former []string
	// Founders describes the configuration with which the cluster was founded, for error messages.
	Founders string
	// IsEstablished reports whether this peer is a voter whose log has entries after the first one, which
	// founds the cluster. Any other peer may have been founded by mistake, and must not make other peers
	// stop.
	IsEstablished func() bool
	// Peers contains what this peer knows about other peers, by peer ID.
	Peers map[string]Known
}

// Check returns nil if a process with the claim c may connect as the peer with the given ID, and the
// reason otherwise. It does not change the registry.
func (r *Registry) Check(id string, c link.Claim) *link.RefusedError {
	refuse := func(reason link.Reason, format string, args ...any) *link.RefusedError {
		return &link.RefusedError{Reason: reason, Text: fmt.Sprintf(format, args...)}
	}
	known, met := r.Peers[id]
	switch {
	case r.Founding != "" && c.Founding != "" && c.Founding != r.Founding && slices.Contains(r.Former, c.Founding):
		return refuse(link.ReasonRecovered, "peer %s is of cluster %s, which was recovered as cluster %s", id, c.Founding, r.Founding)
	case r.Founding != "" && c.Founding != "" && c.Founding != r.Founding:
		reason, text := link.ReasonFounding, ""
		if r.IsEstablished != nil && !r.IsEstablished() {
			reason, text = link.ReasonUncommitted, "; no update was committed there"
		}
		return refuse(reason, "peer %s is of the cluster founded with %s, and this peer of the cluster founded with %s%s",
			id, cmp.Or(c.Founders, c.Founding), cmp.Or(r.Founders, r.Founding), text)
	case c.Instance == "":
		return refuse(link.ReasonInstance, "peer %s does not say which directory it uses", id)
	case met && c.Instance != known.Instance:
		return refuse(link.ReasonInstance, "peer %s uses the directory with the instance %s, and the ID belongs to the instance %s", id, c.Instance, known.Instance)
	case met && c.Start < known.Start:
		return refuse(link.ReasonEarlier, "peer %s has started its directory %d times, and a process that has started it %d times was connected", id, c.Start, known.Start)
	case met && c.Start == known.Start && c.Process != known.Process && known.Process != "":
		return refuse(link.ReasonEarlier, "another process with a copy of the directory of peer %s was connected: both are start %d of the directory", id, c.Start)
	}
	return nil
}

// Meet decides, like Check, whether a process may connect as the peer with the given ID, and stores the
// claim of the process if it may. It reports whether the registry has changed, and whether the registry
// did not contain the peer before.
func (r *Registry) Meet(id string, c link.Claim) (changed, first bool, refused *link.RefusedError) {
	if refused := r.Check(id, c); refused != nil {
		return false, false, refused
	}
	if c.Founding == "" { // a peer without a founding identity has not joined a cluster yet
		return false, false, nil
	}
	now := Known{Instance: c.Instance, Start: c.Start, Process: c.Process}
	known, met := r.Peers[id]
	if met && known == now {
		return false, false, nil
	}
	r.set(id, now)
	return true, !met, nil
}

// Instances returns the instances of all known peers by peer ID. This peer sends them to other peers,
// which pass them to Learn.
func (r *Registry) Instances() map[string]string {
	all := make(map[string]string, len(r.Peers))
	for id, k := range r.Peers {
		all[id] = k.Instance
	}
	return all
}

// Learn adds the instances of unknown peers, which another peer of the cluster has sent. It reports
// whether the registry has changed, and returns the IDs of the peers for which the registry contains
// another instance. Learn does not replace such an instance.
func (r *Registry) Learn(instances map[string]string) (changed bool, contradicted []string) {
	for _, id := range slices.Sorted(maps.Keys(instances)) {
		known, met := r.Peers[id]
		switch {
		case instances[id] == "" || met && known.Instance == instances[id]:
		case met:
			contradicted = append(contradicted, id)
		default:
			r.set(id, Known{Instance: instances[id]})
			changed = true
		}
	}
	return changed, contradicted
}

func (r *Registry) set(id string, k Known) {
	if r.Peers == nil {
		r.Peers = map[string]Known{}
	}
	r.Peers[id] = k
}
