package queue

import (
	"sync"

	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
)

// Rotation predicts the predecessors of the contenders of one client that joins a queue again and again. If several
// clients do so, their order usually stays the same. The name of a predecessor's new znode follows from the name of
// the previous one, because the GUIDs of one Rotation are consecutive, and so are sequence numbers. So the
// contender can watch its predecessor without listing the queue.
//
// Rotation returns a prediction only if the previous prediction was correct. Its methods may be called from any
// goroutine.
type Rotation struct {
	mu          sync.Mutex
	guid        [16]byte // the GUID of the newest contender; zero before the first contender
	predecessor string   // the name of the newest known predecessor
	predicted   string   // the predicted predecessor of the newest contender, until the actual predecessor is known
	reliable    bool     // the last prediction was correct; predict returns nothing unless this is set
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

// predict returns the name that the predecessor of the new contender own probably has, or an empty name. With only
// one other contender in the queue, predict returns an empty name, because a list of the queue then shows that own is
// next, so that its turn begins without a further request. blocks, unless it is nil, reports whether own waits for a
// contender with the given name. If it returns false for the predicted name, predict returns an empty name, because
// the last predecessor was a contender of another kind.
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
	r.reliable = false // until observe confirms the prediction, which it does not if there is no predecessor
	return r.predicted
}

// observe records the actual predecessor of a contender.
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
