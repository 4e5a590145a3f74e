package group

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// Seeded schedules: members join, leave, crash, lose connections, sessions, requests and
// replies, and the parts change. No part is granted while another's grant of it stands;
// after calm each is held by the member that the hashing names; nothing is left.
func TestSchedules(t *testing.T) {
	for seed := range uint64(80) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			play(t, func(w world) { w.schedule(rand.New(rand.NewPCG(seed, 51)), seed%2 == 1) })
		})
	}
}

// worker is a program that takes part.
type worker struct {
	conn  *zk.Conn
	share *Share

	mu      sync.Mutex
	crashed bool     // it cannot connect any more
	link    net.Conn // the latest
}

// crash ends it for everybody else, wherever its connection is at the moment: it may
// not have a session yet by which the server could drop it.
func (k *worker) crash() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.crashed = true
	k.link.Close()
}

func (w world) worker() *worker {
	k := &worker{}
	dial := w.srv.Dialer()
	conn, _, err := w.srv.Connect(timeout, zk.WithMaxBufferSize(64<<10), zk.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.crashed {
			return nil, net.ErrClosed
		}
		link, err := dial(network, address, limit)
		if err == nil {
			k.link = link
		}
		return link, err
	}))
	require.NoError(w, err)
	synctest.Wait()
	k.conn = conn
	return k
}

// schedule plays one; with forced, sessions end while their leases last, as when an
// operator ends them, and otherwise in their time.
func (w world) schedule(r *rand.Rand, forced bool) {
	h := w.holders()
	operator := w.partitioner(w.connect())
	workers := map[string]*worker{}
	var crashed []*worker
	joined := 0
	join := func() {
		id := fmt.Sprint("m", joined)
		joined++
		k := w.worker()
		share, err := w.partitioner(k.conn).Join(w.Context(), id, time.Duration(r.IntN(3000))*time.Millisecond)
		require.NoError(w, err)
		k.share = share
		workers[id] = k
		go h.use(share, time.Duration(r.IntN(4000))*time.Millisecond)
	}
	one := func() (string, *worker) {
		ids := slices.Sorted(maps.Keys(workers))
		id := ids[r.IntN(len(ids))]
		return id, workers[id]
	}
	kill := func(id string) {
		h.mu.Lock()
		h.killed[id] = time.Now()
		h.mu.Unlock()
	}
	var parts []string
	divide := func() {
		all := numbered(8)
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		parts = all[:1+r.IntN(len(all))]
		require.NoError(w, operator.SetParts(w.Context(), parts))
	}
	divide()
	join()
	for range 25 {
		time.Sleep(time.Duration(r.IntN(2500)) * time.Millisecond)
		id, k := one()
		session := k.conn.SessionID()
		op := []zktest.Op{zktest.OpCreate, zktest.OpDelete, zktest.OpMulti, zktest.OpGetData, zktest.OpGetChildren2, zktest.OpSync, zktest.OpSetWatches}[r.IntN(7)]
		match := zktest.Match{Session: session, Op: op, Nth: 1 + r.IntN(3)}
		switch r.IntN(10) {
		case 0, 1:
			if len(workers) < 5 {
				join()
			}
		case 2:
			if len(workers) > 1 {
				require.NoError(w, k.share.Close(w.Context()))
				delete(workers, id)
			}
		case 3:
			if len(workers) > 1 { // it crashes
				k.crash()
				crashed = append(crashed, k)
				delete(workers, id)
			}
		case 4:
			w.srv.DropConnections(session)
		case 5:
			if forced {
				kill(id)
				_ = w.srv.ExpireSession(session)
				break
			}
			w.srv.Partition(session)
			time.AfterFunc(time.Duration(r.IntN(10000))*time.Millisecond, func() { w.srv.Heal(session) })
		case 6:
			w.srv.Blackhole(zktest.BothWays, session)
			time.AfterFunc(time.Duration(r.IntN(8000))*time.Millisecond, func() { w.srv.Heal(session) })
		case 7:
			w.srv.Before(match, zktest.Cut)
		case 8:
			w.srv.After(match, zktest.Cut)
		case 9:
			divide()
		}
	}
	time.Sleep(time.Minute)
	require.Equal(w, assigned(parts, slices.Collect(maps.Keys(workers))...), h.held())
	for id, k := range workers {
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		require.NoError(w, k.share.Close(ctx), id)
		cancel()
	}
	require.Empty(w, h.held())
	for _, k := range crashed {
		k.conn.Close()
		<-k.share.Done()
		require.ErrorIs(w, k.share.Err(), recipes.ErrConnClosed)
	}
	left(w)
}
