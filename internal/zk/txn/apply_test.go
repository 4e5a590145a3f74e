package txn

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestBatch_AppliesOtherCallsIfOneFails checks that the writer applies the other calls of a batch if one call
// fails.
func TestBatch_AppliesOtherCallsIfOneFails(t *testing.T) {
	runWithRecord(t, func(h *writerTest) {
		h.Server.Delay(zktest.ToClient, time.Millisecond)
		first := h.w.Start(createItem())
		synctest.Wait() // the request is in flight, so the other calls share a request
		second, third := h.w.Start(createItem()), h.w.Start(createItem())
		failsLast := h.w.Start(Transaction{Ops: []any{
			&zk.CreateRequest{Path: "/other-", Acl: openACL, Flags: zk.FlagSequence},
			&zk.CheckVersionRequest{Path: "/missing", Version: -1},
		}})
		failsFirst := h.w.Start(Transaction{Ops: []any{&zk.DeleteRequest{Path: "/missing", Version: -1}}})
		for _, c := range []*Call{first, second, third} {
			require.NoError(h, c.Outcome().Err)
		}
		require.ErrorIs(h, failsLast.Outcome().Err, zk.ErrNoNode)
		require.Equal(h, 1, failsLast.Outcome().Failed)
		require.ErrorIs(h, failsFirst.Outcome().Err, zk.ErrNoNode)
		require.Equal(h, 0, failsFirst.Outcome().Failed)
		require.Equal(h, 3, h.countItems())
		require.Zero(h, h.countZnodes("other"))
	})
}

// TestTransaction_AppliedOnceIfMessagesAreLost checks that the writer applies a transaction exactly once, and knows
// the outcome, if a request or a reply is lost.
func TestTransaction_AppliedOnceIfMessagesAreLost(t *testing.T) {
	read, write := zktest.Match{Op: zktest.OpGetData, Nth: 1}, zktest.Match{Op: zktest.OpSetData, Nth: 1}
	for name, fault := range map[string]func(srv *zktest.Server){
		"reply":   func(srv *zktest.Server) { srv.After(firstMulti, zktest.Cut) },
		"request": func(srv *zktest.Server) { srv.Before(firstMulti, zktest.Cut) },
		"reply, and reply to the read of the record": func(srv *zktest.Server) {
			srv.After(firstMulti, zktest.Cut)
			srv.After(read, zktest.Cut)
		},
		"request, and reply to the write of another ID": func(srv *zktest.Server) {
			srv.Before(firstMulti, zktest.Cut)
			srv.After(write, zktest.Cut)
		},
		"request, and the write of another ID": func(srv *zktest.Server) {
			srv.Before(firstMulti, zktest.Cut)
			srv.Before(write, zktest.Cut)
		},
		"applied, but session moved":     func(srv *zktest.Server) { srv.After(firstMulti, zktest.Fail(zk.ErrSessionMoved)) },
		"not applied, and session moved": func(srv *zktest.Server) { srv.Before(firstMulti, zktest.Fail(zk.ErrSessionMoved)) },
	} {
		t.Run(name, func(t *testing.T) {
			runWithRecord(t, func(h *writerTest) {
				fault(h.Server)
				o := h.apply(createItem())
				require.Equal(h, h.Conn.SessionID(), o.Session)
				require.Equal(h, 1, h.countItems(), "%s", h.Server.Tree())
				children, _, err := h.Conn.Children("/")
				require.NoError(h, err)
				for _, name := range children {
					if name != "records" && name != "zookeeper" {
						_, stat, err := h.Conn.Get("/" + name)
						require.NoError(h, err)
						require.Equal(h, stat.Czxid, o.Zxid)
					}
				}
			})
		})
	}
}

// TestTransaction_FailsInOtherSession checks that the writer does not apply a transaction with the field Session in
// another session.
func TestTransaction_FailsInOtherSession(t *testing.T) {
	runWithRecord(t, func(h *writerTest) {
		expired := h.Conn.SessionID()
		require.NoError(h, h.Server.ExpireSession(expired))
		time.Sleep(2 * time.Second) // wait until the client has another session
		bound := createItem()
		bound.Session = expired
		require.ErrorIs(h, h.w.Start(bound).Outcome().Err, ErrSession)
		require.NotEqual(h, expired, h.apply(createItem()).Session)
		require.Equal(h, 1, h.countItems())
	})
}

// TestTransaction_FailsWithOtherRecord checks that the writer does not apply a transaction with the field Record if
// the session has another record: the directory may have been deleted and created again, and may have the same
// version again.
func TestTransaction_FailsWithOtherRecord(t *testing.T) {
	for name, replace := range map[string]func(h *writerTest){
		"directory is created again": func(h *writerTest) {
			require.NoError(h, h.Conn.Delete(h.w.RecordOf(h.Conn.SessionID()), -1))
			require.NoError(h, h.Conn.Delete("/n", -1))
			_, err := h.Conn.Create("/n", nil, 0, openACL)
			require.NoError(h, err)
		},
		"session expires": func(h *writerTest) {
			require.NoError(h, h.Server.ExpireSession(h.Conn.SessionID()))
			time.Sleep(3 * time.Second) // wait until the client has another session
		},
	} {
		t.Run(name, func(t *testing.T) {
			runShared(t, func(h *writerTest) {
				h.apply(createN)
				bound := setN(0)
				bound.Record = h.w.RecordOf(h.Conn.SessionID())
				replace(h)
				require.ErrorIs(h, h.w.Start(bound).Outcome().Err, ErrRecord)
				require.Zero(h, h.versionOfN())
				require.NotEqual(h, bound.Record, h.w.RecordOf(h.Conn.SessionID()))
				bound.Record = h.w.RecordOf(h.Conn.SessionID())
				h.apply(bound)
			})
		})
	}
}

// TestTransaction_OutcomeIsUnknownIfSessionExpires checks that a transaction returns ErrUnknown if the session
// expires before the writer can read the record.
func TestTransaction_OutcomeIsUnknownIfSessionExpires(t *testing.T) {
	for name, hook := range map[string]func(*zktest.Server, zktest.Match, zktest.HookFunc) *zktest.Hook{
		"applied": (*zktest.Server).After, "not applied": (*zktest.Server).Before,
	} {
		t.Run(name, func(t *testing.T) {
			runWithRecord(t, func(h *writerTest) {
				hook(h.Server, firstMulti, func(q *zktest.Request) zktest.Verdict {
					_ = h.Server.ExpireSession(q.Session)
					return zktest.Cut(q)
				})
				require.ErrorIs(h, h.w.Start(createItem()).Outcome().Err, ErrUnknown)
				h.apply(createItem())
			})
		})
	}
}

// TestTransaction_SucceedsInNextSessionIfNotSent checks that the writer sends a transaction in the next session if
// it could not send the transaction in the expired session, because the outcome is then known.
func TestTransaction_SucceedsInNextSessionIfNotSent(t *testing.T) {
	runWithRecord(t, func(h *writerTest) {
		h.Server.Refuse(true)
		h.Server.DropConnections()
		synctest.Wait()
		call := h.w.Start(createItem())
		time.Sleep(2 * sessionTimeout)
		h.Server.Refuse(false)
		require.NoError(h, call.Outcome().Err)
		require.Equal(h, 1, h.countItems())
	})
}

// TestTransactions_AppliedOnceUnderRandomFaults checks that the writer applies each transaction exactly once if
// requests and replies are lost at random. The session does not expire, so every outcome is known.
func TestTransactions_AppliedOnceUnderRandomFaults(t *testing.T) {
	for seed := range 20 {
		run(t, func(h *writerTest) {
			h.Server.Delay(zktest.BothWays, time.Millisecond)
			hooks := []func(zktest.Match, zktest.HookFunc) *zktest.Hook{h.Server.Before, h.Server.After}
			ops := []zktest.Op{zktest.OpMulti, zktest.OpAny, zktest.OpSetData}
			for i := range 8 {
				hooks[(seed>>(i%4)+i)%2](zktest.Match{Op: ops[(seed+i)%3], Nth: 1 + (seed*7+i*5)%11}, zktest.Cut)
			}
			var calls []*Call
			for range 40 {
				calls = append(calls, h.w.Start(createItem()))
				time.Sleep(3 * time.Millisecond)
			}
			applied := 0
			for _, c := range calls {
				err := c.Outcome().Err
				require.True(h, err == nil || errors.Is(err, ErrUnknown), "%v", err)
				if err == nil {
					applied++
				}
			}
			require.Equal(h, applied, h.countItems(), "no session has ended, so every outcome is known")
			require.Equal(h, 40, applied)
		})
	}
}
