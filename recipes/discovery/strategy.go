package discovery

import (
	"math/rand/v2"
	"sync/atomic"
)

// Strategy chooses an instance. Its implementations must be safe for concurrent use.
type Strategy interface {
	// Pick returns the index of the chosen instance. from is not empty and must not be
	// modified.
	Pick(from []Instance) int
}

// RoundRobin returns a strategy that chooses the instances in turn, in the order of the
// names of their znodes.
func RoundRobin() Strategy { return &roundRobin{} }

type roundRobin struct{ next atomic.Uint64 }

func (s *roundRobin) Pick(from []Instance) int {
	return int((s.next.Add(1) - 1) % uint64(len(from)))
}

// Random returns a strategy that chooses randomly.
func Random() Strategy { return random{} }

type random struct{}

func (random) Pick(from []Instance) int { return rand.IntN(len(from)) }

// Sticky returns a strategy that lets over choose an instance, and keeps this instance as
// long as it is available. An instance that was registered again counts as a different
// instance, one with a new payload does not. If over is nil, it is RoundRobin.
func Sticky(over Strategy) Strategy {
	if over == nil {
		over = RoundRobin()
	}
	return &stickyStrategy{over: over}
}

type stickyStrategy struct {
	over    Strategy
	current atomic.Pointer[identity]
}

func (s *stickyStrategy) Pick(from []Instance) int {
	for {
		was := s.current.Load()
		if was != nil {
			for i := range from {
				if from[i].identity() == *was {
					return i
				}
			}
		}
		i := s.over.Pick(from)
		id := from[i].identity()
		if s.current.CompareAndSwap(was, &id) {
			return i
		}
	}
}

// identity distinguishes instances. The identity of an instance remains the same when the instance
// is updated.
type identity struct {
	name, id   string
	registered int64
}

func (i Instance) identity() identity { return identity{i.Name, i.ID, i.Registered} }
