package group

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// Random faults: members join, leave and crash, lose connections, sessions, requests and replies,
// and the parts change. Fails if a part is granted while an earlier grant of it is valid, if a part
// is not held in the end by the member to which it is assigned, or if something is left behind.
func TestPartitioner_RandomFaults(t *testing.T) {
	for seed := range uint64(80) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			runTest(t, func(w fixture) { w.runRandomFaults(rand.New(rand.NewPCG(seed, 51)), seed%2 == 1) })
		})
	}
}

// worker is a program with a Share.
type worker struct {
	conn  *zk.Conn
	share *Share

	mu      sync.Mutex
	crashed bool     // the program cannot connect any more
	link    net.Conn // the newest connection
}

// crash makes the program unreachable, in any state of its connection: it may not have a session
// yet, by which the server could close it.
func (k *worker) crash() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.crashed = true
	k.link.Close()
}

func (w fixture) worker() *worker {
	k := &worker{}
	dial := w.srv.Dialer()
	k.conn = bubble.Connect(w, w.srv, timeout, zk.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
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
	return k
}

// runRandomFaults runs one schedule. If expireEarly is true, sessions expire before their leases,
// as if an operator had closed them.
func (w fixture) runRandomFaults(r *rand.Rand, expireEarly bool) {
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
		go h.useParts(share, time.Duration(r.IntN(4000))*time.Millisecond)
	}
	randomWorker := func() (string, *worker) {
		ids := slices.Sorted(maps.Keys(workers))
		id := ids[r.IntN(len(ids))]
		return id, workers[id]
	}
	recordExpiry := func(id string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.expired[id] = time.Now()
	}
	var parts []string
	setParts := func() {
		all := numbered(8)
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		parts = all[:1+r.IntN(len(all))]
		require.NoError(w, operator.SetParts(w.Context(), parts))
	}
	setParts()
	join()
	for range 25 {
		time.Sleep(time.Duration(r.IntN(2500)) * time.Millisecond)
		id, k := randomWorker()
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
				require.NoError(w, bubble.Repeated(k.share.Close))
				delete(workers, id)
			}
		case 3:
			if len(workers) > 1 {
				k.crash()
				crashed = append(crashed, k)
				delete(workers, id)
			}
		case 4:
			w.srv.DropConnections(session)
		case 5:
			if expireEarly {
				recordExpiry(id)
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
			setParts()
		}
	}
	time.Sleep(time.Minute)
	require.Equal(w, assigned(parts, slices.Collect(maps.Keys(workers))...), h.current())
	for id, k := range workers {
		require.NoError(w, bubble.Repeated(k.share.Close), id)
	}
	require.Empty(w, h.current())
	for _, k := range crashed {
		k.conn.Close()
		<-k.share.Done()
		require.ErrorIs(w, k.share.Err(), recipes.ErrConnClosed)
	}
	requireNothingLeft(w)
}
