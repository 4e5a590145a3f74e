package raftlog_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// Histories of clients who repeat their updates across leaders, until they know: is there an
// order in which each was applied exactly once, and which all readers have seen?

// operation is one client's: an update, or a read of all updates.
type operation struct {
	update string // empty for a read
	read   []string
}

// once is a list to which updates are appended: each once, whatever its client has had to
// repeat; a read is of the whole list.
var once = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		in, all := input.(operation), state.(string)
		if in.update != "" {
			return true, all + in.update + " "
		}
		read := ""
		for _, u := range output.(operation).read {
			read += u + " "
		}
		return read == all, all
	},
}

func TestHistoriesAreLinear(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { history(t, seed) })
		})
	}
}

func history(t *testing.T, seed uint64) {
	w := newWorld(t, 3)
	w.startAll()
	var mu sync.Mutex
	var events []porcupine.Operation
	began := time.Now()
	random := rand.New(rand.NewPCG(seed, 7))
	var clients sync.WaitGroup
	for c := range 4 {
		r := rand.New(rand.NewPCG(seed, uint64(c)))
		clients.Go(func() {
			for i := range 12 {
				op := operation{}
				call := time.Since(began)
				if i%3 < 2 {
					op.update = fmt.Sprintf("c%d-%d", c, i)
					insistOn(t, w, r, op.update)
				} else {
					op.read = readAll(t, w, r)
				}
				mu.Lock()
				events = append(events, porcupine.Operation{
					ClientId: c, Input: operation{update: op.update}, Output: op, Call: int64(call), Return: int64(time.Since(began)),
				})
				mu.Unlock()
				time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
			}
		})
	}
	done := make(chan struct{})
	go func() { clients.Wait(); close(done) }()
	for weather := true; weather; {
		p := w.peers[random.IntN(3)]
		if random.IntN(2) == 0 {
			heal := w.isolate(p)
			time.Sleep(time.Duration(random.IntN(900)) * time.Millisecond)
			heal()
		} else {
			require.NoError(t, w.stop(p))
			time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
			w.start(p)
		}
		select {
		case <-done:
			weather = false
		case <-time.After(time.Duration(random.IntN(1500)) * time.Millisecond):
		}
	}
	require.Len(t, events, 48)
	require.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(once, events, 0))
	final := readAll(t, w, random)
	require.Len(t, final, 32)
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(final))), 32, "each once")
}

// insistOn proposes at one peer after another, always under the same ID, until one confirms.
func insistOn(t *testing.T, w *world, r *rand.Rand, update string) {
	id := requestid.New()
	for {
		n := w.node(w.peers[r.IntN(3)])
		if n == nil { // it is down
			time.Sleep(time.Millisecond)
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(50+r.IntN(500))*time.Millisecond)
		_, err := n.Propose(ctx, id, []byte(update))
		cancel()
		if err == nil {
			return
		}
		if !isAny(err, api.ErrUnknownOutcome, api.ErrNotLeader, api.ErrBusy, api.ErrClosed, context.DeadlineExceeded) {
			t.Errorf("update %s: %v", update, err)
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// readAll reads what all updates of before have made, at any peer.
func readAll(t *testing.T, w *world, r *rand.Rand) []string {
	for {
		p := w.peers[r.IntN(3)]
		n := w.node(p)
		sm := w.sm(p) // a newer one than n's, if at all, and then n has ended
		if n == nil {
			time.Sleep(time.Millisecond)
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(50+r.IntN(500))*time.Millisecond)
		err := n.Sync(ctx)
		cancel()
		if err == nil {
			return sm.all()
		}
		time.Sleep(time.Millisecond)
	}
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(t error) bool { return errors.Is(err, t) })
}
