package queue

import (
	"sync"

	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
)

// Rotation predicts the predecessors of contenders of one client, which joins a queue again and again. If
// several clients do that, their order usually stays the same. The name of a predecessor's new znode follows
// from the previous one, because the GUIDs of one Rotation are consecutive, and sequence numbers are. So the
// contender can watch it without listing the queue.
//
// A prediction is passed on only if the one before it was correct. The methods may be called from any
// goroutine.
type Rotation struct {
	mu          sync.Mutex
	guid        [16]byte // the GUID of the newest contender; zero before the first contender
	predecessor string   // the last predecessor of a contender
	predicted   string   // the predecessor of the newest contender, until the actual one is known
	reliable    bool     // the last compared prediction was correct, and predict has returned none since
}

// newGUID returns the GUID of a new contender.
func (r *Rotation) newGUID() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.guid == [16]byte{} {
		r.guid = randomGUID()
	}
	r.guid = contender.NextGUID(r.guid)
	return contender.GUIDOf(r.guid)
}

// predict returns the name that the predecessor of the new contender own probably has, or an empty name. Behind
// a single other contender it predicts none: a listing shows then that own is next, so that its turn comes without
// a further request. blocks, unless it is nil, reports whether own waits for a contender with this name; otherwise
// the last predecessor was that of a contender of another kind.
func (r *Rotation) predict(own string, others int32, blocks func(name string) bool) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.predicted = contender.Following(r.predecessor, own)
	if r.predicted != "" && blocks != nil && !blocks(r.predicted) {
		r.predicted = ""
	}
	if r.predicted == "" || !r.reliable || others <= 1 {
		return ""
	}
	r.reliable = false // until observe confirms it: a contender without a predecessor refutes it as well
	return r.predicted
}

// observe records the predecessor of a contender.
func (r *Rotation) observe(predecessor string) {
	if predecessor == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.predicted != "" {
		r.reliable, r.predicted = r.predicted == predecessor, ""
	}
	r.predecessor = predecessor
}
