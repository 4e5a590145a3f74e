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

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// In these tests, clients repeat each update, across changes of the leader, until its outcome is
// known. The checker porcupine searches for one order of all updates that agrees with all reads and
// contains each update once.

// operation is an update, or a read of all updates, by one client.
type operation struct {
	update string // the update; empty for a read
	read   []string
}

// updateListModel models the log as a list: an update appends itself once, although clients repeat it, and a
// read returns the whole list.
var updateListModel = porcupine.Model{
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

// TestHistories_AreLinearizable checks that updates that clients retry across leaders are applied exactly once
// in an order that all reads agree with.
func TestHistories_AreLinearizable(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runHistory(t, seed) })
		})
	}
}

func runHistory(t *testing.T, seed uint64) {
	h := newHarness(t, 3)
	h.startAll()
	var mu sync.Mutex
	var events []porcupine.Operation
	start := time.Now()
	random := rand.New(rand.NewPCG(seed, 7))
	var clients sync.WaitGroup
	for c := range 4 {
		r := rand.New(rand.NewPCG(seed, uint64(c)))
		clients.Go(func() {
			for i := range 12 {
				op := operation{}
				call := time.Since(start)
				if i%3 < 2 {
					op.update = fmt.Sprintf("c%d-%d", c, i)
					proposeAtAnyPeer(t, h, r, op.update)
				} else {
					op.read = readAtAnyPeer(t, h, r)
				}
				mu.Lock()
				events = append(events, porcupine.Operation{
					ClientId: c, Input: operation{update: op.update}, Output: op, Call: int64(call), Return: int64(time.Since(start)),
				})
				mu.Unlock()
				time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
			}
		})
	}
	done := make(chan struct{})
	go func() { clients.Wait(); close(done) }()
	for disturbing := true; disturbing; {
		p := h.peers[random.IntN(3)]
		if random.IntN(2) == 0 {
			heal := h.isolate(p)
			time.Sleep(time.Duration(random.IntN(900)) * time.Millisecond)
			heal()
		} else {
			require.NoError(t, h.stopPeer(p))
			time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
			h.startPeer(p)
		}
		select {
		case <-done:
			disturbing = false
		case <-time.After(time.Duration(random.IntN(1500)) * time.Millisecond):
		}
	}
	require.Len(t, events, 48)
	require.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(updateListModel, events, 0))
	final := readAtAnyPeer(t, h, random)
	require.Len(t, final, 32)
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(final))), 32, "each update is applied once")
}

// proposeAtAnyPeer proposes an update at one peer after another, with the same request ID, until a peer
// confirms it.
func proposeAtAnyPeer(t *testing.T, h *harness, r *rand.Rand, update string) {
	id := api.NewRequestID()
	for {
		n := h.nodeOf(h.peers[r.IntN(3)])
		if n == nil { // the peer is not running at the moment
			time.Sleep(time.Millisecond)
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(50+r.IntN(500))*time.Millisecond)
		_, err := n.Propose(ctx, id, []byte(update))
		cancel()
		if err == nil {
			return
		}
		if !wrapsAny(err, api.ErrUnknownOutcome, api.ErrNotLeader, api.ErrBusy, api.ErrClosed, context.DeadlineExceeded) {
			t.Errorf("update %s: %v", update, err)
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// readAtAnyPeer reads, at an arbitrary peer, a list of updates that contains all updates that were confirmed
// before the call.
func readAtAnyPeer(t *testing.T, h *harness, r *rand.Rand) []string {
	for {
		p := h.peers[r.IntN(3)]
		n := h.nodeOf(p)
		sm := h.machine(p) // read after n: if the machine belongs to a later node of p, n has stopped, and Sync fails
		if n == nil {
			time.Sleep(time.Millisecond)
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(50+r.IntN(500))*time.Millisecond)
		err := n.Sync(ctx)
		cancel()
		if err == nil {
			return sm.recordedUpdates()
		}
		time.Sleep(time.Millisecond)
	}
}

func wrapsAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(t error) bool { return errors.Is(err, t) })
}
