package counter

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// operation is what a client asked of the counter, and result what it was told.
type operation struct {
	add int64 // 0 to read
}

type result struct {
	n       int64
	unknown bool
}

var counterModel = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, output any) (bool, any) {
		next := state.(int64) + input.(operation).add
		told := output.(result)
		return told.unknown || told.n == next, next
	},
}

// history plays a seeded schedule: clients add and read while connections break,
// replies get lost and sessions end.
func history(t *testing.T, seed uint64) (events []porcupine.Operation, confirmed int) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(seed, 33))
		srv := zktest.Start(t, zktest.WithLogLimit(0))
		if random.IntN(2) == 0 {
			_, err := connect(t, srv).Create("/app", nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		}
		begin := time.Now()
		var mu sync.Mutex
		var clients, faults sync.WaitGroup
		var conns []*zk.Conn
		for id := range 3 {
			conn := connect(t, srv)
			conns = append(conns, conn)
			r := rand.New(rand.NewPCG(seed, uint64(id)))
			c := newTestCounter(t, conn)
			clients.Go(func() {
				for range 8 {
					op := operation{int64(r.IntN(3))}
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+r.IntN(20))*time.Second)
					called := time.Since(begin)
					var n int64
					var err error
					if op.add == 0 {
						n, err = c.Get(ctx)
					} else {
						n, err = c.Add(ctx, op.add)
					}
					cancel()
					told := porcupine.Operation{ClientId: id, Input: op, Call: int64(called), Output: result{n: n}, Return: int64(time.Since(begin))}
					switch {
					case errors.Is(err, recipes.ErrUnconfirmed) && op.add != 0:
						// It may be carried out at any time, or never, which is later than all.
						told.Output, told.Return = result{unknown: true}, int64(time.Hour)
					case err != nil:
						require.ErrorIs(t, err, context.DeadlineExceeded, "seed %d", seed)
						continue // nothing was carried out
					}
					mu.Lock()
					events = append(events, told)
					if err == nil && op.add != 0 {
						confirmed++
					}
					mu.Unlock()
					time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
				}
			})
		}
		for range 12 {
			time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
			session := conns[random.IntN(len(conns))].SessionID()
			match := zktest.Match{Op: zktest.OpMulti, Session: session, Nth: 1 + random.IntN(2)}
			switch random.IntN(6) {
			case 0:
				srv.DropConnections(session)
			case 1:
				srv.Before(match, zktest.Cut)
			case 2:
				srv.After(match, zktest.Cut)
			case 3:
				_ = srv.ExpireSession(session)
			case 4:
				srv.After(match, func(q *zktest.Request) zktest.Verdict {
					_ = srv.ExpireSession(session)
					return zktest.Cut(q)
				})
			case 5:
				srv.Blackhole(zktest.ToClient, session)
				last := time.Duration(random.IntN(8)) * time.Second
				faults.Go(func() {
					time.Sleep(last)
					srv.Heal(session)
				})
			}
		}
		clients.Wait()
		faults.Wait()
	})
	return events, confirmed
}

func TestLinearizable(t *testing.T) {
	changes := 0
	for seed := range uint64(200) {
		events, confirmed := history(t, seed)
		changes += confirmed
		if !porcupine.CheckOperations(counterModel, events) {
			t.Fatalf("seed %d: not linearizable: %+v", seed, events)
		}
	}
	require.Greater(t, changes, 1000, "the schedules do nothing")
}
