package txn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/zkerror"
	"github.com/go-leaderelection/leaderelection/internal/zk/znode"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const timeout = 4 * time.Second // of sessions

var (
	anybody = zk.WorldACL(zk.PermAll)
	discard = slog.New(slog.DiscardHandler)
)

func connect(srv *zktest.Server) *zk.Conn {
	conn, _, err := srv.Connect(timeout, zk.WithMaxBufferSize(64<<10))
	if err != nil {
		panic(err)
	}
	synctest.Wait()
	return conn
}

func newWriter(conn *zk.Conn) *Writer {
	return New(Config{
		Conn: conn, Dir: "/registers", ACL: anybody,
		MakeDir: func(ctx context.Context) error { return znode.Make(ctx, conn, "/registers", anybody, true) },
		Log:     discard,
	})
}

// put is a transaction that can be told from one that was carried out twice.
func put() Transaction {
	return Transaction{Ops: []any{&zk.CreateRequest{Path: "/n-", Acl: anybody, Flags: zk.FlagSequence}}}
}

// play runs f with a writer that has a register, and sees to it that nothing is
// left in the end.
func play(t *testing.T, f func(srv *zktest.Server, conn *zk.Conn, w *Writer)) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn := connect(srv)
		w := newWriter(conn)
		require.NoError(t, w.Do(Transaction{}).Outcome().Err)
		f(srv, conn, w)
		w.Close()
		<-w.Closed()
		require.NoError(t, w.CloseErr())
		require.NotContains(t, srv.Tree(), "client-")
		require.ErrorIs(t, w.Do(put()).Outcome().Err, ErrClosed)
	})
}

func TestOutcome(t *testing.T) {
	play(t, func(srv *zktest.Server, conn *zk.Conn, w *Writer) {
		o := w.Do(put()).Outcome()
		require.NoError(t, o.Err)
		require.Equal(t, "/n-0000000001", o.Responses[0].String)
		require.Equal(t, conn.SessionID(), o.Session)
		_, stat, err := conn.Get("/n-0000000001")
		require.NoError(t, err)
		require.Equal(t, stat.Czxid, o.Zxid)
		_, stat, err = conn.Get(o.Register)
		require.NoError(t, err)
		require.Equal(t, o.Session, stat.EphemeralOwner)
	})
}

// Calls that come while a request is under way share the next one, and each gets
// its own responses.
func TestCallsShareRequests(t *testing.T) {
	play(t, func(srv *zktest.Server, _ *zk.Conn, w *Writer) {
		srv.ResetLog()
		srv.Delay(zktest.ToClient, time.Millisecond)
		var calls []*Call
		for range 50 {
			calls = append(calls, w.Do(put()))
		}
		seen := map[string]bool{}
		for _, c := range calls {
			o := c.Outcome()
			require.NoError(t, o.Err)
			require.Len(t, o.Responses, 1)
			seen[o.Responses[0].String] = true
		}
		require.Len(t, seen, 50)
		require.LessOrEqual(t, srv.Log().Count(zktest.OpMulti), 2)
	})
}

func TestOneOfABatchFails(t *testing.T) {
	play(t, func(srv *zktest.Server, _ *zk.Conn, w *Writer) {
		srv.Delay(zktest.ToClient, time.Millisecond)
		first := w.Do(put())
		synctest.Wait() // it is under way, the others share a request
		good, another := w.Do(put()), w.Do(put())
		bad := w.Do(Transaction{Ops: []any{
			&zk.CreateRequest{Path: "/other-", Acl: anybody, Flags: zk.FlagSequence},
			&zk.CheckVersionRequest{Path: "/missing", Version: -1},
		}})
		worse := w.Do(Transaction{Ops: []any{&zk.DeleteRequest{Path: "/missing", Version: -1}}})
		for _, c := range []*Call{first, good, another} {
			require.NoError(t, c.Outcome().Err)
		}
		require.ErrorIs(t, bad.Outcome().Err, zk.ErrNoNode)
		require.Equal(t, 1, bad.Outcome().Failed)
		require.ErrorIs(t, worse.Outcome().Err, zk.ErrNoNode)
		require.Equal(t, 0, worse.Outcome().Failed)
		require.Equal(t, 3, strings.Count(srv.Tree(), "n-0"))
		require.NotContains(t, srv.Tree(), "other")
	})
}

func TestAloneSharesNoRequest(t *testing.T) {
	play(t, func(srv *zktest.Server, _ *zk.Conn, w *Writer) {
		srv.ResetLog()
		srv.Delay(zktest.ToClient, time.Millisecond)
		first := w.Do(put())
		synctest.Wait()
		alone := put()
		alone.Alone = true
		calls := []*Call{first, w.Do(put()), w.Do(alone), w.Do(put()), w.Do(put())}
		for _, c := range calls {
			require.NoError(t, c.Outcome().Err)
		}
		require.Equal(t, 4, srv.Log().Count(zktest.OpMulti), "%v", srv.Log())
	})
}

// What is lost on its way: each time exactly one item is there, and the writer
// knows.
func TestLostOnItsWay(t *testing.T) {
	multi := zktest.Match{Op: zktest.OpMulti, Nth: 1}
	for name, fault := range map[string]func(srv *zktest.Server){
		"the answer":  func(srv *zktest.Server) { srv.After(multi, zktest.Cut) },
		"the request": func(srv *zktest.Server) { srv.Before(multi, zktest.Cut) },
		"the answer, and that of the inquiry": func(srv *zktest.Server) {
			srv.After(multi, zktest.Cut)
			srv.After(zktest.Match{Op: zktest.OpGetData, Nth: 1}, zktest.Cut)
		},
		"the request, and the answer to the fence": func(srv *zktest.Server) {
			srv.Before(multi, zktest.Cut)
			srv.After(zktest.Match{Op: zktest.OpSetData, Nth: 1}, zktest.Cut)
		},
		"the request, and the fence": func(srv *zktest.Server) {
			srv.Before(multi, zktest.Cut)
			srv.Before(zktest.Match{Op: zktest.OpSetData, Nth: 1}, zktest.Cut)
		},
		"the answer, which says that the session has moved": func(srv *zktest.Server) {
			srv.After(multi, zktest.Fail(zk.ErrSessionMoved))
		},
		"nothing, though the session has moved": func(srv *zktest.Server) {
			srv.Before(multi, zktest.Fail(zk.ErrSessionMoved))
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(srv *zktest.Server, conn *zk.Conn, w *Writer) {
				fault(srv)
				o := w.Do(put()).Outcome()
				require.NoError(t, o.Err)
				require.Equal(t, 1, strings.Count(srv.Tree(), "n-0"), "%s", srv.Tree())
				children, _, err := conn.Children("/")
				require.NoError(t, err)
				for _, name := range children {
					if strings.HasPrefix(name, "n-") {
						_, stat, err := conn.Get("/" + name)
						require.NoError(t, err)
						require.Equal(t, stat.Czxid, o.Zxid)
					}
				}
				require.Equal(t, conn.SessionID(), o.Session)
			})
		})
	}
}

// A server may read a request when the client has long been back and has asked
// for it. Then it must fail. Here somebody else sends it once more.
func TestRequestThatComesLate(t *testing.T) {
	play(t, func(srv *zktest.Server, conn *zk.Conn, w *Writer) {
		register := w.Do(Transaction{}).Outcome().Register
		data, stat, err := conn.Get(register)
		require.NoError(t, err)
		id, err := strconv.Atoi(string(data))
		require.NoError(t, err)
		operator := connect(srv)
		late := append([]any{&zk.SetDataRequest{Path: register, Data: strconv.AppendInt(nil, int64(id+1), 10), Version: stat.Version}}, put().Ops...)

		srv.Before(zktest.Match{Op: zktest.OpMulti, Nth: 1}, zktest.Cut)
		fenced := srv.After(zktest.Match{Op: zktest.OpSetData, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			_, err := operator.Multi(late...)
			require.ErrorIs(t, err, zk.ErrBadVersion)
			return zktest.Pass(q)
		})
		require.NoError(t, w.Do(put()).Outcome().Err)
		<-fenced.Ran()
		require.Equal(t, 1, strings.Count(srv.Tree(), "n-0"), "%s", srv.Tree())
	})
}

func TestSessionEnds(t *testing.T) {
	play(t, func(srv *zktest.Server, conn *zk.Conn, w *Writer) {
		old := conn.SessionID()
		require.NoError(t, srv.ExpireSession(old))
		time.Sleep(2 * time.Second) // until the client has a new one
		bound := put()
		bound.Session = old
		require.ErrorIs(t, w.Do(bound).Outcome().Err, ErrSession)
		o := w.Do(put()).Outcome()
		require.NoError(t, o.Err)
		require.NotEqual(t, old, o.Session)
		require.Equal(t, 1, strings.Count(srv.Tree(), "n-0"))
	})
}

// Only when the session ends before the writer can ask it does not know.
func TestUnknown(t *testing.T) {
	for _, applied := range []bool{true, false} {
		t.Run(fmt.Sprint(applied), func(t *testing.T) {
			play(t, func(srv *zktest.Server, conn *zk.Conn, w *Writer) {
				expire := func(q *zktest.Request) zktest.Verdict {
					_ = srv.ExpireSession(q.Session)
					return zktest.Cut(q)
				}
				if applied {
					srv.After(zktest.Match{Op: zktest.OpMulti, Nth: 1}, expire)
				} else {
					srv.Before(zktest.Match{Op: zktest.OpMulti, Nth: 1}, expire)
				}
				require.ErrorIs(t, w.Do(put()).Outcome().Err, ErrUnknown)
				require.NoError(t, w.Do(put()).Outcome().Err)
			})
		})
	}
}

// What was never sent is no reason for doubt, whatever became of the session.
func TestNeverSent(t *testing.T) {
	play(t, func(srv *zktest.Server, conn *zk.Conn, w *Writer) {
		srv.Refuse(true)
		srv.DropConnections()
		synctest.Wait()
		call := w.Do(put())
		time.Sleep(2 * timeout)
		srv.Refuse(false)
		require.NoError(t, call.Outcome().Err)
		require.Equal(t, 1, strings.Count(srv.Tree(), "n-0"))
	})
}

func TestRegisterIsMadeAnew(t *testing.T) {
	play(t, func(srv *zktest.Server, conn *zk.Conn, w *Writer) {
		children, _, err := conn.Children("/registers")
		require.NoError(t, err)
		require.NoError(t, conn.Delete("/registers/"+children[0], -1))
		require.NoError(t, w.Do(put()).Outcome().Err)
		require.Equal(t, 1, strings.Count(srv.Tree(), "n-0"))
	})
}

// The answer to the making of the register is lost: there is one all the same,
// and not two.
func TestLostWhileOpening(t *testing.T) {
	for name, set := range map[string]func(*zktest.Server) func(zktest.Match, zktest.HookFunc) *zktest.Hook{
		"answer":  func(s *zktest.Server) func(zktest.Match, zktest.HookFunc) *zktest.Hook { return s.After },
		"request": func(s *zktest.Server) func(zktest.Match, zktest.HookFunc) *zktest.Hook { return s.Before },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.Start(t)
				w := newWriter(connect(srv))
				set(srv)(zktest.Match{Op: zktest.OpMulti, Nth: 2}, zktest.Cut) // the first finds no directory
				require.NoError(t, w.Do(put()).Outcome().Err)
				require.Equal(t, 1, strings.Count(srv.Tree(), "client-"), "%s", srv.Tree())
				w.Close()
				<-w.Closed()
				require.NotContains(t, srv.Tree(), "client-")
			})
		})
	}
}

// TestTrap33_DataVersionOverflow: a register is replaced long before its version
// is -1, which would stand for any.
func TestTrap33_DataVersionOverflow(t *testing.T) {
	defer func(n int32) { renewAt = n }(renewAt)
	renewAt = 4
	play(t, func(srv *zktest.Server, conn *zk.Conn, w *Writer) {
		registers := map[string]bool{}
		for range 10 {
			o := w.Do(put()).Outcome()
			require.NoError(t, o.Err)
			registers[o.Register] = true
			_, stat, err := conn.Get(o.Register)
			require.NoError(t, err)
			require.LessOrEqual(t, stat.Version, renewAt)
		}
		require.Greater(t, len(registers), 2)
		require.Equal(t, 1, strings.Count(srv.Tree(), "client-"), "%s", srv.Tree())
		require.Equal(t, 10, strings.Count(srv.Tree(), "n-0"))
	})
}

func TestRefused(t *testing.T) {
	play(t, func(srv *zktest.Server, _ *zk.Conn, w *Writer) {
		srv.ResetLog()
		large := Transaction{Ops: []any{&zk.CreateRequest{Path: "/n", Data: make([]byte, maxBytes)}}}
		require.ErrorIs(t, w.Do(large).Outcome().Err, ErrTooLarge)
		require.ErrorIs(t, w.Do(Transaction{Ops: []any{42}}).Outcome().Err, ErrOperation)
		require.Empty(t, srv.Log().Requests())

		large.Ops[0].(*zk.CreateRequest).Data = make([]byte, maxBytes-100)
		large.Ops[0].(*zk.CreateRequest).Acl = anybody
		require.NoError(t, w.Do(large).Outcome().Err, "nearly as large")
	})
}

func TestWithdraw(t *testing.T) {
	play(t, func(srv *zktest.Server, _ *zk.Conn, w *Writer) {
		srv.Delay(zktest.ToClient, time.Second)
		first := w.Do(put())
		synctest.Wait()
		second, third := w.Do(put()), w.Do(put())
		require.False(t, w.Withdraw(first), "it is under way")
		require.True(t, w.Withdraw(second))
		require.False(t, w.Withdraw(second))
		require.NoError(t, first.Outcome().Err)
		require.NoError(t, third.Outcome().Err)
		require.Equal(t, 2, strings.Count(srv.Tree(), "n-0"))
	})
}

func TestConnectionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn := connect(srv)
		w := newWriter(conn)
		require.NoError(t, w.Do(put()).Outcome().Err)
		srv.Delay(zktest.ToClient, 100*time.Millisecond)
		call := w.Do(put())
		synctest.Wait()
		waiting := w.Do(put())
		conn.Close()
		require.ErrorIs(t, call.Outcome().Err, ErrUnknown)
		require.ErrorIs(t, call.Outcome().Err, zkerror.ErrConnClosed)
		require.ErrorIs(t, waiting.Outcome().Err, zkerror.ErrConnClosed)
		require.NotErrorIs(t, waiting.Outcome().Err, ErrUnknown)
		require.ErrorIs(t, w.Do(put()).Outcome().Err, zkerror.ErrConnClosed)
		w.Close()
		<-w.Closed()
		require.ErrorIs(t, w.CloseErr(), zkerror.ErrConnClosed)
	})
}

// Close waits until what was asked for is carried out, and the register is
// deleted, also while nothing answers.
func TestCloseWhileDisconnected(t *testing.T) {
	play(t, func(srv *zktest.Server, _ *zk.Conn, w *Writer) {
		srv.Refuse(true)
		srv.DropConnections()
		synctest.Wait()
		call := w.Do(put())
		w.Close()
		w.Close()
		time.Sleep(time.Second)
		select {
		case <-w.Closed():
			t.Fatal("closed while nothing answers")
		default:
		}
		srv.Refuse(false)
		require.NoError(t, call.Outcome().Err)
		<-w.Closed()
	})
}

func TestNotPermitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t)
		conn := connect(srv)
		_, err := conn.Create("/registers", nil, 0, zk.WorldACL(zk.PermRead))
		require.NoError(t, err)
		w := newWriter(conn)
		require.ErrorIs(t, w.Do(put()).Outcome().Err, zk.ErrNoAuth)
		require.NotContains(t, srv.Tree(), "n-0")
	})
}

func TestClock(t *testing.T) {
	begin := time.UnixMilli(1_000_000)
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	ms := time.Millisecond
	var c clock
	c.told(1_000_600, at(0), at(200))
	require.Equal(t, 500*ms, c.offset)
	c.told(1_009_000, at(1000), at(9000)) // took long: it may have been at any time between
	require.Equal(t, 500*ms, c.offset)
	c.told(1_010_410, at(10_000), at(10_020))
	require.Equal(t, 400*ms, c.offset)
	c.told(1_200_000, at(100_000), at(103_000)) // the good one is old by now
	require.Equal(t, 98_500*ms, c.offset)
}

func TestOffset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(connect(zktest.Start(t)))
		_, ok := w.Offset()
		require.False(t, ok)
		require.NoError(t, w.Do(Transaction{}).Outcome().Err)
		offset, ok := w.Offset()
		require.True(t, ok)
		require.InDelta(t, 0, offset, float64(2*time.Millisecond))
	})
}

// Whatever is lost, each transaction of many is carried out once, or
// not at all where the writer says so.
func TestManyFaults(t *testing.T) {
	for seed := range 20 {
		synctest.Test(t, func(t *testing.T) {
			srv := zktest.Start(t)
			w := newWriter(connect(srv))
			srv.Delay(zktest.BothWays, time.Millisecond)
			set := []func(zktest.Match, zktest.HookFunc) *zktest.Hook{srv.Before, srv.After}
			for i := range 8 {
				set[(seed>>(i%4)+i)%2](zktest.Match{Op: []zktest.Op{zktest.OpMulti, zktest.OpAny, zktest.OpSetData}[(seed+i)%3], Nth: 1 + (seed*7+i*5)%11}, zktest.Cut)
			}
			var calls []*Call
			for range 40 {
				calls = append(calls, w.Do(put()))
				time.Sleep(3 * time.Millisecond)
			}
			done := 0
			for _, c := range calls {
				if err := c.Outcome().Err; err == nil {
					done++
				} else {
					require.True(t, errors.Is(err, ErrUnknown), "%v", err)
				}
			}
			require.Equal(t, done, strings.Count(srv.Tree(), "n-0"), "no session has ended, so nothing is unknown")
			require.Equal(t, 40, done)
		})
	}
}
