package counter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const (
	node    = "/app/count"
	timeout = 4 * time.Second
)

// play runs f in a bubble with a server.
func play(t *testing.T, f func(t *testing.T, srv *zktest.Server)) {
	synctest.Test(t, func(t *testing.T) { f(t, zktest.Start(t)) })
}

func connect(t *testing.T, srv *zktest.Server) *zk.Conn {
	conn, _, err := srv.Connect(timeout, zk.WithMaxBufferSize(64<<10))
	require.NoError(t, err)
	synctest.Wait()
	return conn
}

func newTestCounter(t *testing.T, conn *zk.Conn, opts ...recipes.Option) *Counter {
	c, err := NewCounter(conn, node, append(opts, recipes.WithSessionTimeout(timeout))...)
	require.NoError(t, err)
	return c
}

func TestFormats(t *testing.T) {
	play(t, func(t *testing.T, srv *zktest.Server) {
		conn := connect(t, srv)
		integer, err := NewInt32(conn, "/app/int")
		require.NoError(t, err)
		for path, c := range map[string]*Counter{"count": newTestCounter(t, conn), "int": integer} {
			n, err := c.Get(t.Context())
			require.NoError(t, err)
			require.Zero(t, n, "there is no znode")
			n, err = c.Add(t.Context(), -258)
			require.NoError(t, err)
			require.Equal(t, int64(-258), n)
			data, _, err := conn.Get("/app/" + path)
			require.NoError(t, err)
			want := map[string]string{"count": "\xff\xff\xff\xff\xff\xff\xfe\xfe", "int": "\xff\xff\xfe\xfe"}[path]
			require.Equal(t, want, string(data))
		}
		python, err := NewCounter(conn, "/app/kazoo", recipes.WithLayout(recipes.Kazoo))
		require.NoError(t, err)
		require.NoError(t, python.Set(t.Context(), 12))
		data, _, err := conn.Get("/app/kazoo")
		require.NoError(t, err)
		require.Equal(t, "12", string(data))

		_, err = integer.Add(t.Context(), math.MaxInt32+259)
		require.ErrorIs(t, err, ErrOverflow)
		_, err = newTestCounter(t, conn).Add(t.Context(), math.MinInt64)
		require.ErrorIs(t, err, ErrOverflow)
		_, err = conn.Set(node, []byte("words"), -1)
		require.NoError(t, err)
		_, err = newTestCounter(t, conn).Add(t.Context(), 1)
		require.ErrorIs(t, err, ErrFormat)
	})
}

func TestCompareAndSet(t *testing.T) {
	play(t, func(t *testing.T, srv *zktest.Server) {
		ctx, a, b := t.Context(), newTestCounter(t, connect(t, srv)), newTestCounter(t, connect(t, srv))
		require.NoError(t, a.CompareAndSet(ctx, 0, 5))
		require.ErrorIs(t, a.CompareAndSet(ctx, 4, 5), ErrChanged)
		require.NoError(t, b.CompareAndSet(ctx, 5, 6))
		require.NoError(t, a.CompareAndSet(ctx, 6, 7), "what a has seen last is 5")

		v, err := NewValue(connect(t, srv), "/app/words", JSON[[]string]())
		require.NoError(t, err)
		first, err := v.CompareAndSet(ctx, Version{}, []string{"one"})
		require.NoError(t, err)
		require.NotZero(t, first.Zxid())
		_, err = v.CompareAndSet(ctx, Version{}, []string{"two"})
		require.ErrorIs(t, err, ErrChanged)
		second, err := v.CompareAndSet(ctx, first, []string{"two"})
		require.NoError(t, err)
		words, at, err := v.Get(ctx)
		require.NoError(t, err)
		require.Equal(t, []string{"two"}, words)
		require.Equal(t, second, at)
		stop := errors.New("stop")
		_, err = v.Update(ctx, func([]string) ([]string, error) { return nil, stop })
		require.ErrorIs(t, err, stop)
	})
}

// Every client adds, and nothing else than one transaction is sent for it.
func TestCost(t *testing.T) {
	play(t, func(t *testing.T, srv *zktest.Server) {
		c := newTestCounter(t, connect(t, srv))
		_, err := c.Add(t.Context(), 1)
		require.NoError(t, err)
		begin := len(srv.Log())
		for range 10 {
			_, err = c.Add(t.Context(), 1)
			require.NoError(t, err)
		}
		require.Len(t, srv.Log()[begin:], 10, "%v", srv.Log()[begin:])
	})
}

func TestManyAdd(t *testing.T) {
	play(t, func(t *testing.T, srv *zktest.Server) {
		const clients, each = 5, 20
		var wg sync.WaitGroup
		for range clients {
			c := newTestCounter(t, connect(t, srv))
			for range 2 {
				wg.Go(func() {
					for range each {
						_, err := c.Add(t.Context(), 1)
						require.NoError(t, err)
					}
				})
			}
		}
		wg.Wait()
		n, err := newTestCounter(t, connect(t, srv)).Get(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(2*clients*each), n)
		registers := strings.Count(srv.Tree(), "_r_")
		require.Equal(t, clients, registers)
	})
}

// CURATOR-584, CURATOR-268: a set was carried out, the reply is lost, the repetition
// finds another version.
func TestTrap07_ReplyLost(t *testing.T) {
	for _, op := range []string{"the first change", "a later one"} {
		t.Run(op, func(t *testing.T) {
			play(t, func(t *testing.T, srv *zktest.Server) {
				c, other := newTestCounter(t, connect(t, srv)), newTestCounter(t, connect(t, srv))
				_, err := connect(t, srv).Create("/app", nil, 0, zk.WorldACL(zk.PermAll))
				require.NoError(t, err)
				want := int64(1)
				if op != "the first change" {
					_, err := c.Add(t.Context(), 1)
					require.NoError(t, err)
					want++
				}
				// While the client reconnects somebody else adds as well.
				srv.After(zktest.Match{Op: zktest.OpMulti, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
					go func() {
						_, err := other.Add(t.Context(), 1)
						require.NoError(t, err)
					}()
					return zktest.Cut(q)
				})
				n, err := c.Add(t.Context(), 1)
				require.NoError(t, err)
				require.Equal(t, want, n)
				n, err = c.Get(t.Context())
				require.NoError(t, err)
				require.Equal(t, want+1, n)
			})
		})
	}
}

// The session ends with the reply: what the data tell is all there is.
func TestTrap07_SessionEndsWithTheReply(t *testing.T) {
	for _, test := range []struct {
		name     string
		applied  bool
		others   int64 // added by somebody else while the client is away
		want     error
		wantSum  int64
		wantRead int64
	}{
		{"not carried out", false, 0, nil, 2, 2},
		{"not carried out, others added more", false, 5, nil, 7, 7},
		{"carried out", true, 0, recipes.ErrUnconfirmed, 0, 2},
		{"not carried out, others added as much", false, 1, recipes.ErrUnconfirmed, 0, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			play(t, func(t *testing.T, srv *zktest.Server) {
				conn := connect(t, srv)
				c, other := newTestCounter(t, conn), newTestCounter(t, connect(t, srv))
				_, err := c.Add(t.Context(), 1)
				require.NoError(t, err)
				hook := srv.Before
				if test.applied {
					hook = srv.After
				}
				hook(zktest.Match{Op: zktest.OpMulti, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
					require.NoError(t, srv.ExpireSession(conn.SessionID()))
					if test.others != 0 {
						go func() {
							_, err := other.Add(t.Context(), test.others)
							require.NoError(t, err)
						}()
					}
					return zktest.Cut(q)
				})
				n, err := c.Add(t.Context(), 1)
				require.ErrorIs(t, err, test.want)
				if test.want == nil {
					require.NoError(t, err)
					require.Equal(t, test.wantSum, n)
				}
				n, err = c.Get(t.Context())
				require.NoError(t, err)
				require.Equal(t, test.wantRead, n)
			})
		})
	}
}

// CURATOR-688: a set that expects version -1 is carried out at any version.
func TestTrap33_VersionOverflow(t *testing.T) {
	play(t, func(t *testing.T, srv *zktest.Server) {
		var counters []*Counter
		for range 4 {
			counters = append(counters, newTestCounter(t, connect(t, srv)))
		}
		_, err := counters[0].Add(t.Context(), 1)
		require.NoError(t, err)
		require.NoError(t, srv.SetVersion(node, -6))
		var wg sync.WaitGroup
		for _, c := range counters {
			wg.Go(func() {
				for range 5 {
					_, err := c.Add(t.Context(), 1)
					require.NoError(t, err)
				}
			})
		}
		wg.Wait()
		n, err := counters[0].Get(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(21), n)
		_, stat, err := connect(t, srv).Get(node)
		require.NoError(t, err)
		require.Equal(t, int32(-6+20+1), stat.Version, "one write more than additions")
		require.NotContains(t, srv.Tree(), "_skip")
		for _, e := range srv.Log().Filter(func(e zktest.Entry) bool { return e.Op == zktest.OpSetData }) {
			t.Errorf("a set without a write to a register: %v", e)
		}
	})
}

// The counter's node is deleted and made again, and has come to the same version.
func TestTrap28_CounterIsAnother(t *testing.T) {
	play(t, func(t *testing.T, srv *zktest.Server) {
		conn, operator := connect(t, srv), connect(t, srv)
		c := newTestCounter(t, conn)
		_, err := c.Add(t.Context(), 1)
		require.NoError(t, err)
		children, _, err := operator.Children(node)
		require.NoError(t, err)
		for _, name := range children {
			require.NoError(t, operator.Delete(path.Join(node, name), -1))
		}
		require.NoError(t, operator.Delete(node, -1))
		_, err = operator.Create(node, []byte("\x00\x00\x00\x00\x00\x00\x00\x64"), 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		n, err := c.Add(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, int64(101), n)
	})
}

// The same for one that was only read: nothing of this session was below it.
func TestTrap28_CounterThatWasReadIsAnother(t *testing.T) {
	play(t, func(t *testing.T, srv *zktest.Server) {
		conn, operator := connect(t, srv), connect(t, srv)
		recreate := func(n byte) {
			_ = operator.Delete(node, -1) // at first there is none
			_, err := operator.Create(node, []byte{0, 0, 0, 0, 0, 0, 0, n}, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		}
		_, err := operator.Create("/app", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		recreate(5)
		c := newTestCounter(t, conn)
		n, err := c.Get(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(5), n)
		recreate(100)
		n, err = c.Add(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, int64(101), n)
	})
}

func TestIDsAreHandedOutOnce(t *testing.T) {
	play(t, func(t *testing.T, srv *zktest.Server) {
		var mu sync.Mutex
		seen := map[int64]bool{}
		var wg sync.WaitGroup
		for range 3 {
			ids, err := NewIDs(newTestCounter(t, connect(t, srv)), 10)
			require.NoError(t, err)
			for range 2 {
				wg.Go(func() {
					for range 25 {
						id, err := ids.Next(t.Context())
						require.NoError(t, err)
						mu.Lock()
						require.False(t, seen[id], "%d twice", id)
						seen[id] = true
						mu.Unlock()
					}
				})
			}
		}
		wg.Wait()
		require.True(t, seen[1])
		// 15 blocks, and the registers of the two that have not created the counter.
		require.Equal(t, 15+2, strings.Count(fmt.Sprint(srv.Log().Filter(func(e zktest.Entry) bool { return e.Op == zktest.OpMulti && e.Code == 0 })), "multi"))
		_, err := NewIDs(newTestCounter(t, connect(t, srv)), 0)
		require.ErrorIs(t, err, recipes.ErrInvalidOption)
	})
}

func TestContextEnds(t *testing.T) {
	play(t, func(t *testing.T, srv *zktest.Server) {
		c := newTestCounter(t, connect(t, srv))
		_, err := c.Add(t.Context(), 1)
		require.NoError(t, err)
		srv.Pause()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.Add(ctx, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, recipes.ErrUnconfirmed)
		_, err = c.Get(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		srv.Resume()
		n, err := c.Add(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, int64(3), n, "the one given up was carried out")
	})
}

func TestChanges(t *testing.T) {
	play(t, func(t *testing.T, srv *zktest.Server) {
		conn := connect(t, srv)
		v, err := NewValue(conn, "/app/words", JSON[string](), recipes.WithSessionTimeout(timeout))
		require.NoError(t, err)
		w, err := NewValue(connect(t, srv), "/app/words", JSON[string]())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		changes := v.Changes(ctx)
		require.Equal(t, Change[string]{}, <-changes)
		set := func(s string) {
			_, err := w.Set(t.Context(), s)
			require.NoError(t, err)
		}
		set("one")
		require.Equal(t, "one", (<-changes).Value)
		// Late: only the newest.
		set("two")
		synctest.Wait()
		set("three")
		synctest.Wait()
		require.Equal(t, "three", (<-changes).Value)
		// While out of reach, with the same session, and with another one.
		srv.Blackhole(zktest.BothWays, conn.SessionID())
		set("four")
		time.Sleep(timeout / 4)
		srv.DropConnections(conn.SessionID())
		require.Equal(t, "four", (<-changes).Value)
		require.NoError(t, srv.ExpireSession(conn.SessionID()))
		set("five")
		require.Equal(t, "five", (<-changes).Value)
		_, err = connect(t, srv).Set("/app/words", []byte("no JSON"), -1)
		require.NoError(t, err)
		require.ErrorIs(t, (<-changes).Err, ErrFormat)
		set("six")
		require.Equal(t, "six", (<-changes).Value)
		cancel()
		_, open := <-changes
		require.False(t, open)

		changes = v.Changes(t.Context())
		<-changes
		conn.Close()
		require.ErrorIs(t, (<-changes).Err, recipes.ErrConnClosed)
		_, open = <-changes
		require.False(t, open)
	})
}

func TestBadInput(t *testing.T) {
	play(t, func(t *testing.T, srv *zktest.Server) {
		_, err := NewCounter(nil, node)
		require.ErrorIs(t, err, recipes.ErrNilConn)
		_, err = NewCounter(connect(t, srv), "count")
		require.ErrorIs(t, err, recipes.ErrInvalidPath)
		_, err = NewValue(connect(t, srv), node, Codec[int]{})
		require.ErrorIs(t, err, recipes.ErrInvalidOption)
		c, err := NewCounter(connect(t, srv), node, recipes.WithACL([]zk.ACL{{Perms: zk.PermRead, Scheme: "world", ID: "anyone"}}))
		require.NoError(t, err)
		_, err = c.Add(t.Context(), 1)
		require.ErrorIs(t, err, recipes.ErrPermission)
	})
}

// A server closes the connection at a request that is too large, each time anew.
func TestTrap37_ValueTooLarge(t *testing.T) {
	play(t, func(t *testing.T, srv *zktest.Server) {
		conn, _, err := srv.Connect(timeout) // with room for the answers
		require.NoError(t, err)
		synctest.Wait()
		v, err := NewValue(conn, node, JSON[string](), recipes.WithSessionTimeout(timeout))
		require.NoError(t, err)
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, size := range []int{0xfffff, 1200 << 10, 3 << 20} {
			_, err = v.Set(ctx, strings.Repeat("x", size))
			require.ErrorIs(t, err, ErrTooLarge)
			_, err = v.CompareAndSet(ctx, Version{}, strings.Repeat("x", size))
			require.ErrorIs(t, err, ErrTooLarge)
		}
		_, err = v.Set(ctx, strings.Repeat("x", 1<<20-8<<10))
		require.NoError(t, err)
		require.Zero(t, time.Since(begin))
	})
}

// Whoever gives up at the version that nothing can expect leaves nothing behind that
// keeps the others from going on.
func TestTrap06_33_ContextEndsAtTheOverflow(t *testing.T) {
	for name, match := range map[string]zktest.Match{
		"while the guard is created": {Op: zktest.OpCreate, Nth: 1},
		"while the guard is held":    {Op: zktest.OpSync, Nth: 1},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, srv *zktest.Server) {
				conn := connect(t, srv)
				c, other := newTestCounter(t, conn), newTestCounter(t, connect(t, srv))
				for _, x := range []*Counter{c, other} {
					_, err := x.Add(t.Context(), 1)
					require.NoError(t, err)
				}
				require.NoError(t, srv.SetVersion(node, -1))
				_, err := c.Get(t.Context())
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				match.Session = conn.SessionID()
				srv.After(match, func(r *zktest.Request) zktest.Verdict {
					time.Sleep(1500 * time.Millisecond)
					return zktest.Pass(r)
				})
				_, err = c.Add(ctx, 1)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				n, err := other.Add(ctx, 1)
				require.NoError(t, err)
				require.Equal(t, int64(3), n)
				time.Sleep(time.Second)
				require.NotContains(t, srv.Tree(), "_skip")
			})
		})
	}
}

// A server that refuses what it cannot do at the moment is not asked again and again
// without a pause.
func TestBusyServer(t *testing.T) {
	play(t, func(t *testing.T, srv *zktest.Server) {
		c := newTestCounter(t, connect(t, srv))
		_, err := c.Add(t.Context(), 1)
		require.NoError(t, err)
		begin, tries := time.Now(), 0
		srv.Before(zktest.Match{Op: zktest.OpMulti}, func(r *zktest.Request) zktest.Verdict {
			if tries++; time.Since(begin) < time.Second && tries < 1000 {
				return zktest.Fail(zktest.Code(-127))(r) // throttled
			}
			return zktest.Pass(r)
		})
		n, err := c.Add(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, int64(2), n)
		require.Less(t, tries, 50)
	})
}

// The number of watches does not grow with the number of calls.
func TestChangesLeaveOneWatch(t *testing.T) {
	play(t, func(t *testing.T, srv *zktest.Server) {
		conn := connect(t, srv)
		v, err := NewValue(conn, "/n", JSON[int]())
		require.NoError(t, err)
		for i := range 2 {
			for range 1000 {
				ctx, cancel := context.WithCancel(t.Context())
				c := v.Changes(ctx)
				require.Equal(t, i, (<-c).Value)
				cancel()
				for range c {
				}
			}
			n := 0
			for it := reflect.ValueOf(conn).Elem().FieldByName("watchers").MapRange(); it.Next(); {
				n += it.Value().Len()
			}
			require.Equal(t, 1, n)
			_, err = v.Set(t.Context(), i+1)
			require.NoError(t, err)
			synctest.Wait()
		}
	})
}
