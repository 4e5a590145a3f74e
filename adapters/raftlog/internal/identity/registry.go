package identity

import (
	"fmt"
	"maps"
	"slices"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

// Known is what a peer knows of another one.
type Known struct {
	// Instance is the data directory that belongs to the ID, for ever.
	Instance string `json:"instance"`
	// Start and Process are the newest that have connected; zero if the instance is known from
	// a third peer only.
	Start   uint64 `json:"start,omitempty"`
	Process string `json:"process,omitempty"`
}

// Registry is what a peer knows of the others. It belongs to one goroutine at a time. Peers is
// to be kept on disk.
type Registry struct {
	// Founding is the cluster's identity; empty while the peer has not joined.
	Founding string
	// Former are the identities that the cluster had before it was recovered.
	Former []string
	Peers  map[string]Known
}

// Check decides whether a process may connect as the peer with that ID. A nil error says yes.
// It changes nothing.
func (r *Registry) Check(id string, c link.Claim) *link.RefusedError {
	refuse := func(reason link.Reason, format string, args ...any) *link.RefusedError {
		return &link.RefusedError{Reason: reason, Text: fmt.Sprintf(format, args...)}
	}
	known, met := r.Peers[id]
	switch {
	case r.Founding != "" && c.Founding != "" && c.Founding != r.Founding && slices.Contains(r.Former, c.Founding):
		return refuse(link.ReasonRecovered, "peer %s is of cluster %s, which was recovered as cluster %s", id, c.Founding, r.Founding)
	case r.Founding != "" && c.Founding != "" && c.Founding != r.Founding:
		return refuse(link.ReasonFounding, "peer %s is of the cluster with the identity %s, not %s", id, c.Founding, r.Founding)
	case c.Instance == "":
		return refuse(link.ReasonInstance, "peer %s does not say which directory it uses", id)
	case met && c.Instance != known.Instance:
		return refuse(link.ReasonInstance, "peer %s uses the directory with the instance %s, and the ID belongs to the instance %s", id, c.Instance, known.Instance)
	case met && (c.Start < known.Start || c.Start == known.Start && c.Process != known.Process && known.Process != ""):
		return refuse(link.ReasonEarlier, "peer %s uses its directory for the %d. time, and another process has used it for the %d. time", id, c.Start, known.Start)
	}
	return nil
}

// Meet is Check of a peer that connects in order to take part. If it may, Meet remembers the
// claim, and tells whether that has changed anything, and whether the instance was not known
// before.
func (r *Registry) Meet(id string, c link.Claim) (changed, first bool, refused *link.RefusedError) {
	if refused := r.Check(id, c); refused != nil {
		return false, false, refused
	}
	if c.Founding == "" { // it joins only later
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

// Instances are the instances of all known peers, by their IDs, to be told to others.
func (r *Registry) Instances() map[string]string {
	all := make(map[string]string, len(r.Peers))
	for id, k := range r.Peers {
		all[id] = k.Instance
	}
	return all
}

// Learn takes over the instances of peers that this one has not met, from another peer of the
// cluster. It tells whether anything has changed, and returns the IDs of which this peer knows
// another instance, which it keeps.
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
