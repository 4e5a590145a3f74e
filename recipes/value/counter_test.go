package value

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestCounter_HasFormatsOfCuratorAndKazoo checks that counters read and write the formats of Curator and kazoo,
// and that Add rejects results that do not fit.
func TestCounter_HasFormatsOfCuratorAndKazoo(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		conn := h.Connect()
		int32Counter, err := NewCounter(conn, "/app/int", WithInt32())
		require.NoError(h, err)
		for _, test := range []struct {
			path, data string
			counter    *Counter
		}{
			{"/app/count", "\xff\xff\xff\xff\xff\xff\xfe\xfe", counterOn(h, conn)},
			{"/app/int", "\xff\xff\xfe\xfe", int32Counter},
		} {
			require.Zero(h, get(h, test.counter), "the znode does not exist")
			require.Equal(h, int64(-258), addTo(h, test.counter, -258))
			data, _, err := conn.Get(test.path)
			require.NoError(h, err)
			require.Equal(h, test.data, string(data))
		}
		kazoo, err := NewCounter(conn, "/app/kazoo", recipes.WithKazooLayout())
		require.NoError(h, err)
		require.NoError(h, kazoo.Set(h.Context(), 12))
		data, _, err := conn.Get("/app/kazoo")
		require.NoError(h, err)
		require.Equal(h, "12", string(data))

		_, err = int32Counter.Add(h.Context(), math.MaxInt32+259)
		require.ErrorIs(h, err, ErrOverflow)
		_, err = counterOn(h, conn).Add(h.Context(), math.MinInt64)
		require.ErrorIs(h, err, ErrOverflow)
		_, err = conn.Set(node, []byte("words"), -1)
		require.NoError(h, err)
		_, err = counterOn(h, conn).Add(h.Context(), 1)
		require.ErrorIs(h, err, recipes.ErrFormat)
	})
}

// TestNewCounter_RejectsInvalidArguments checks that NewCounter and New return ErrInvalid for invalid arguments.
func TestNewCounter_RejectsInvalidArguments(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		_, err := NewCounter(nil, node)
		require.ErrorIs(h, err, recipes.ErrInvalid)
		_, err = NewCounter(h.Connect(), "count")
		require.ErrorIs(h, err, recipes.ErrInvalid)
		_, err = New(h.Connect(), node, recipes.Codec[int]{})
		require.ErrorIs(h, err, recipes.ErrInvalid)
		c, err := NewCounter(h.Connect(), node, recipes.WithACL(zk.WorldACL(zk.PermRead)))
		require.NoError(h, err)
		_, err = c.Add(h.Context(), 1)
		require.ErrorIs(h, err, recipes.ErrPermission)
	})
}

// TestCounter_CompareAndSetUsesNewestValue checks that CompareAndSet compares with the newest value, even if the
// counter has an older value in memory.
func TestCounter_CompareAndSetUsesNewestValue(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		ctx, a, b := h.Context(), newCounter(h), newCounter(h)
		require.NoError(h, a.CompareAndSet(ctx, 0, 5))
		require.ErrorIs(h, a.CompareAndSet(ctx, 4, 5), ErrChanged)
		require.NoError(h, b.CompareAndSet(ctx, 5, 6))
		require.NoError(h, a.CompareAndSet(ctx, 6, 7), "the last value that a has read is 5")
	})
}

// TestCounter_AddSendsOneRequest checks that Add sends one transaction and no other request.
func TestCounter_AddSendsOneRequest(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		c := newCounter(h)
		addTo(h, c, 1)
		begin := len(h.Server.Log())
		for range 10 {
			addTo(h, c, 1)
		}
		require.Len(h, h.Server.Log()[begin:], 10, "%v", h.Server.Log()[begin:])
	})
}

// TestCounter_LosesNoConcurrentAddition checks that no addition of concurrent clients is lost, and that each
// session has at most one record below the counter.
func TestCounter_LosesNoConcurrentAddition(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		const clients, each = 5, 20
		var adding sync.WaitGroup
		for range clients {
			c := newCounter(h)
			for range 2 {
				adding.Go(func() {
					for range each {
						addTo(h, c, 1)
					}
				})
			}
		}
		adding.Wait()
		require.Equal(h, int64(2*clients*each), get(h, newCounter(h)))
		require.Equal(h, clients, countRecords(h))
	})
}

// TestCounter_ReturnsWhenContextIsDone checks that Add and Get return when their context is done. An Add whose
// request was sent returns ErrUnconfirmed, because the server may still apply the addition.
func TestCounter_ReturnsWhenContextIsDone(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		c := newCounter(h)
		addTo(h, c, 1)
		h.Server.Pause()
		ctx, cancel := context.WithTimeout(h.Context(), time.Second)
		defer cancel()
		_, err := c.Add(ctx, 1)
		require.ErrorIs(h, err, context.DeadlineExceeded)
		require.ErrorIs(h, err, recipes.ErrUnconfirmed)
		_, err = c.Get(ctx)
		require.ErrorIs(h, err, context.DeadlineExceeded)
		h.Server.Resume()
		require.Equal(h, int64(3), addTo(h, c, 1), "the first addition was applied")
	})
}

// TestAdd_ReturnsErrUnconfirmedIfConnectionIsClosed checks that Add returns ErrUnconfirmed if the connection is
// closed while a request is in flight, and only ErrConnClosed if Add has sent nothing.
func TestAdd_ReturnsErrUnconfirmedIfConnectionIsClosed(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		conn := h.Connect()
		c := counterOn(h, conn)
		addTo(h, c, 1)
		h.Server.Delay(zktest.ToClient, 100*time.Millisecond)
		result := make(chan error, 1)
		go func() {
			_, err := c.Add(h.Context(), 1)
			result <- err
		}()
		time.Sleep(50 * time.Millisecond)
		conn.Close()
		err := <-result
		require.ErrorIs(h, err, recipes.ErrUnconfirmed)
		require.ErrorIs(h, err, recipes.ErrConnClosed)
		_, err = c.Add(h.Context(), 1)
		require.ErrorIs(h, err, recipes.ErrConnClosed)
		require.NotErrorIs(h, err, recipes.ErrUnconfirmed)
	})
}

// operation is a call of a client: an addition of the number add, or a read if add is 0.
type operation struct{ add int64 }

// result is what a call has returned: the number n, unless the outcome is unknown.
type result struct {
	n       int64
	unknown bool
}

var counterModel = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, output any) (bool, any) {
		next := state.(int64) + input.(operation).add
		r := output.(result)
		return r.unknown || r.n == next, next
	},
}

// recordHistory runs the schedule of a seed: clients add and read while connections break, replies are lost
// and sessions expire. It returns the calls, and the number of additions that succeeded.
func recordHistory(t *testing.T, seed uint64) (calls []porcupine.Operation, added int) {
	bubble.Run(t, func(h *bubble.Test) {
		random := rand.New(rand.NewPCG(seed, 33))
		if random.IntN(2) == 0 {
			create(h, h.Connect(), "/app", "")
		}
		begin := time.Now()
		var mu sync.Mutex
		var clients, faults sync.WaitGroup
		var conns []*zk.Conn
		for id := range 3 {
			conn := h.Connect()
			conns = append(conns, conn)
			r := rand.New(rand.NewPCG(seed, uint64(id)))
			c := counterOn(h, conn)
			clients.Go(func() {
				for range 8 {
					op := operation{int64(r.IntN(3))}
					ctx, cancel := context.WithTimeout(h.Context(), time.Duration(1+r.IntN(20))*time.Second)
					called := time.Since(begin)
					var n int64
					var err error
					if op.add == 0 {
						n, err = c.Get(ctx)
					} else {
						n, err = c.Add(ctx, op.add)
					}
					cancel()
					call := porcupine.Operation{ClientId: id, Input: op, Call: int64(called), Output: result{n: n}, Return: int64(time.Since(begin))}
					switch {
					case errors.Is(err, recipes.ErrUnconfirmed) && op.add != 0:
						// The addition may be applied at any later time, or never.
						call.Output, call.Return = result{unknown: true}, int64(time.Hour)
					case err != nil:
						require.ErrorIs(h, err, context.DeadlineExceeded, "seed %d", seed)
						continue // the addition was not applied
					}
					mu.Lock()
					calls = append(calls, call)
					if err == nil && op.add != 0 {
						added++
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
				h.Server.DropConnections(session)
			case 1:
				h.Server.Before(match, zktest.Cut)
			case 2:
				h.Server.After(match, zktest.Cut)
			case 3:
				_ = h.Server.ExpireSession(session)
			case 4:
				h.Server.After(match, func(q *zktest.Request) zktest.Verdict {
					_ = h.Server.ExpireSession(session)
					return zktest.Cut(q)
				})
			case 5:
				h.Server.Blackhole(zktest.ToClient, session)
				duration := time.Duration(random.IntN(8)) * time.Second
				faults.Go(func() {
					time.Sleep(duration)
					h.Server.Heal(session)
				})
			}
		}
		clients.Wait()
		faults.Wait()
	})
	return calls, added
}

// TestCounter_IsLinearizableUnderRandomFaults checks that the additions and reads of several clients are
// linearizable while faults occur at random.
func TestCounter_IsLinearizableUnderRandomFaults(t *testing.T) {
	total := 0
	for seed := range uint64(200) {
		calls, added := recordHistory(t, seed)
		total += added
		if !porcupine.CheckOperations(counterModel, calls) {
			t.Fatalf("seed %d: the calls are not linearizable: %+v", seed, calls)
		}
	}
	require.Greater(t, total, 1000, "the schedules do nothing")
}
