package watch

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/candidacy/limit"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// Watches are verified in rounds, while the connection has a connection.Subscription. The znodes
// that are watched when a round begins are read once in it, at even distances and in random
// order. The duration of a round is random, so that many clients do not read at the same time.
const (
	minRound = 3 * time.Minute
	maxRound = 5 * time.Minute
	// minStep is the least time between two reads. It makes the rounds of a connection with
	// more than minRound/minStep watched znodes longer.
	minStep = 100 * time.Millisecond

	// MaxDelay is how late a lost event is noticed, at most, if the connection is up and has no
	// more watches than that: a watch that is set after the beginning of a round is verified in
	// the next one.
	MaxDelay = 2 * maxRound
)

func init() { connection.Verify = verify }

// Round returns the random duration of a round. Other requests that are repeated because no event may
// report a change use it as their interval.
func Round() time.Duration { return minRound + rand.N(maxRound-minRound) }

// state returns what a watch of this kind compares, given the Stat of its znode, which is nil if
// the znode does not exist.
func (k key) state(stat *zk.Stat) int64 {
	switch {
	case stat == nil:
		return 0
	case k.kind == children:
		return stat.Pzxid
	}
	return stat.Mzxid
}

// verify verifies the watches of a connection until ctx is done. It calls notify when watches were
// lost.
func verify(ctx context.Context, conn *zk.Conn, notify func()) {
	p := pools.Of(conn)
	for ctx.Err() == nil {
		paths := p.watched()
		round := Round()
		if len(paths) == 0 {
			_ = limit.Pause(ctx, round)
		}
		for path := range paths {
			if limit.Pause(ctx, max(round/time.Duration(len(paths)), minStep)) != nil {
				return
			}
			if p.verify(ctx, conn, path) {
				notify()
			}
		}
	}
}

// watched returns the paths of all watches that have not fired.
func (p *pool) watched() map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	paths := map[string]bool{}
	for k := range p.watches {
		if p.of(k) != nil {
			paths[k.path] = true
		}
	}
	return paths
}

// verify compares the watches on a znode with its Stat. A server sends the event of a change
// before a reply that shows the change. So a watch that has not fired was lost if the reply shows a
// change: then it fires. verify reports whether that is the case.
func (p *pool) verify(ctx context.Context, conn *zk.Conn, path string) (lost bool) {
	kinds := [...]key{{path, data}, {path, creation}, {path, children}}
	var before [len(kinds)]*Watch
	p.mu.Lock()
	for i, k := range kinds {
		before[i] = p.of(k)
	}
	p.mu.Unlock()
	if before == [len(kinds)]*Watch{} {
		return false
	}
	stat, err := connection.Do(ctx, func() (*zk.Stat, error) {
		exists, stat, err := conn.Exists(path) // needs no permission
		if !exists {
			stat = nil
		}
		return stat, err
	})
	if err != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, k := range kinds {
		// A watch that was set after the request may know of later changes.
		if w := p.of(k); w != nil && w == before[i] && w.state != k.state(stat) {
			w.take(zk.Event{Type: zk.EventNodeDataChanged, State: zk.StateHasSession, Path: path})
			delete(p.watches, k)
			lost = true
		}
	}
	return lost
}
