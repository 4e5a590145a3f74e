package discovery

import (
	"math/rand/v2"
	"sync/atomic"
)

// Strategy chooses an instance. Pick is given at least one and returns the index of
// the one chosen; it must not change what it was given, and may be called from
// several goroutines at once.
type Strategy interface {
	Pick(from []Instance) int
}

// RoundRobin returns the strategy that takes one after another, in the order of the
// znodes' names.
func RoundRobin() Strategy { return &roundRobin{} }

type roundRobin struct{ next atomic.Uint64 }

func (s *roundRobin) Pick(from []Instance) int {
	return int((s.next.Add(1) - 1) % uint64(len(from)))
}

// Random returns the strategy that takes any.
func Random() Strategy { return random{} }

type random struct{}

func (random) Pick(from []Instance) int { return rand.IntN(len(from)) }

// Sticky returns the strategy that stays with the instance that over has picked, as
// long as it can be chosen. One that was registered anew is another; one with a new
// payload is the same. nil stands for RoundRobin.
func Sticky(over Strategy) Strategy {
	if over == nil {
		over = RoundRobin()
	}
	return &sticky{over: over}
}

type sticky struct {
	over Strategy
	ours atomic.Pointer[identity]
}

func (s *sticky) Pick(from []Instance) int {
	for {
		was := s.ours.Load()
		if was != nil {
			for i := range from {
				if from[i].identity() == *was {
					return i
				}
			}
		}
		i := s.over.Pick(from)
		id := from[i].identity()
		if s.ours.CompareAndSwap(was, &id) {
			return i
		}
	}
}

// identity tells instances apart, over updates of one and the same.
type identity struct {
	name, id   string
	registered int64
}

func (i Instance) identity() identity { return identity{i.Name, i.ID, i.Registered} }
