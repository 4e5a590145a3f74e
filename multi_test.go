package leaderelection_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// registerPath is the path of the znode that leaders write.
const registerPath = "/register"

func setRegister(data string) *zk.SetDataRequest {
	return &zk.SetDataRequest{Path: registerPath, Data: []byte(data), Version: -1}
}

func (h *harness) registerData() string {
	h.Helper()
	data, _, err := h.operator.Get(registerPath)
	require.NoError(h, err)
	return string(data)
}

func withRegister(t *testing.T, f func(h *harness)) {
	withServers(t, 1, func(h *harness) {
		_, err := h.operator.Create(registerPath, []byte("initial"), 0, openACL)
		require.NoError(h, err)
		f(h)
	})
}

// TestMulti_AppliesOnlyTransactionsOfLeader checks that Multi applies only the transactions of the leader, and
// each of them completely or not at all.
func TestMulti_AppliesOnlyTransactionsOfLeader(t *testing.T) {
	withRegister(t, func(h *harness) {
		leader, follower := h.join(h.connect()), h.join(h.connect())
		_, err := follower.multi(setRegister("follower"))
		require.ErrorIs(h, err, leaderelection.ErrNotLeader)
		responses, err := leader.multi()
		require.NoError(h, err)
		require.Empty(h, responses)
		responses, err = leader.multi(setRegister("leader"), &zk.CreateRequest{Path: "/a", Acl: openACL})
		require.NoError(h, err)
		require.Len(h, responses, 2, "not one for each operation")
		require.Equal(h, "/a", responses[1].String)
		require.Equal(h, "leader", h.registerData())

		// If an operation of the transaction fails, Multi returns its error, and the leadership continues.
		for _, rejected := range []struct {
			op  any
			err error
		}{
			{&zk.CreateRequest{Path: "/a", Acl: openACL}, zk.ErrNodeExists},
			{&zk.DeleteRequest{Path: "/missing", Version: -1}, zk.ErrNoNode},
			{&zk.CheckVersionRequest{Path: "/a", Version: 7}, zk.ErrBadVersion},
		} {
			responses, err = leader.multi(setRegister("half"), rejected.op)
			require.ErrorIs(h, err, rejected.err)
			require.NotErrorIs(h, err, leaderelection.ErrNotLeader)
			require.Len(h, responses, 2)
		}
		require.Equal(h, "leader", h.registerData())

		require.NoError(h, leader.Resign())
		h.advance(0)
		_, err = leader.multi(setRegister("resigned"))
		require.ErrorIs(h, err, leaderelection.ErrNotLeader)
		_, err = follower.multi(setRegister("next"))
		require.NoError(h, err)
		require.Equal(h, "next", h.registerData())
	})
}

// TestMulti_DoesNotSendInvalidTransaction checks that Multi does not send a transaction of more than a megabyte,
// after which the servers would close the connection, or with operations of an unknown type.
func TestMulti_DoesNotSendInvalidTransaction(t *testing.T) {
	withRegister(t, func(h *harness) {
		leader := h.join(h.connect())
		for _, size := range []int{1<<20 - 8<<10, 1 << 20, 2 << 20} {
			h.srv.ResetLog()
			_, err := leader.multi(setRegister(strings.Repeat("x", size)))
			if size < 1<<20 {
				require.NoError(h, err)
				continue
			}
			require.ErrorIs(h, err, leaderelection.ErrInvalid)
			require.ErrorContains(h, err, "transaction as leader of "+node)
			require.Empty(h, h.srv.Log())
		}
		_, err := leader.multi(zk.SetDataRequest{Path: registerPath})
		require.ErrorIs(h, err, leaderelection.ErrInvalid)
		require.Equal(h, leaderelection.Leader, leader.Current().Role)
	})
}

// TestMulti_TimesOutWithoutReply checks that Multi returns 1.5 s after the leadership has ended if the client
// library neither receives a reply nor reports an error.
func TestMulti_TimesOutWithoutReply(t *testing.T) {
	withRegister(t, func(h *harness) {
		conn, _, err := h.ensemble.ConnectFrom(0, time.Minute)
		require.NoError(h, err)
		leader := h.join(conn)
		h.advance(time.Second)
		grant := leader.requireLeads()
		done := recordDoneTime(grant)
		h.srv.Blackhole(zktest.BothWays, conn.SessionID())
		_, err = leader.multi(setRegister("no answer"))
		require.ErrorIs(h, err, leaderelection.ErrUnconfirmed)
		require.ErrorIs(h, err, leaderelection.ErrLeaseExpired)
		require.Equal(h, grant.Deadline(), done.time())
		require.Equal(h, 1500*time.Millisecond, time.Since(done.time()))
		require.Equal(h, zk.StateHasSession, conn.State())
	})
}

// TestMulti_ErrorNamesOperation checks that the error contains the index, the kind and the path of the
// operation that has failed.
func TestMulti_ErrorNamesOperation(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		c := h.join(h.connect())
		l := c.requireLeads()
		create := &zk.CreateRequest{Path: "/new", Acl: openACL}
		for text, op := range map[string]any{
			"(index 1), set data of /missing":      &zk.SetDataRequest{Path: "/missing", Version: -1},
			"(index 1), delete /missing":           &zk.DeleteRequest{Path: "/missing", Version: -1},
			"(index 1), check version of /missing": &zk.CheckVersionRequest{Path: "/missing", Version: -1},
			"(index 1), create /missing/child":     &zk.CreateRequest{Path: "/missing/child", Acl: openACL},
		} {
			_, err := l.Multi(create, op, create)
			require.ErrorIs(h, err, zk.ErrNoNode)
			require.ErrorContains(h, err, text)
		}
	})
}

// TestMulti_RejectsCallsOfEarlierLeadership checks that Multi of an ended leadership returns ErrNotLeader
// during a later leadership of the same candidate, and that Multi of a leadership on another backend is not
// supported.
func TestMulti_RejectsCallsOfEarlierLeadership(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		c := h.join(conn, leaderelection.WithRejoin())
		first := c.requireLeads()
		_, err := first.Multi()
		require.NoError(h, err)
		h.expire(conn)
		h.advance(2 * timeout)
		second := c.requireLeads()
		require.NotEqual(h, first.Token(), second.Token())
		_, err = first.Multi()
		require.ErrorIs(h, err, leaderelection.ErrNotLeader)
		_, err = second.Multi()
		require.NoError(h, err)

		other, end := candidacy.NewLeadership(1, func() time.Time { return time.Time{} })
		defer end(nil)
		_, err = other.Multi()
		require.ErrorIs(h, err, errors.ErrUnsupported)
		require.ErrorContains(h, err, "Leadership.Token")
	})
}

// TestElection_AppliesWriteOnceAfterLostReply checks that a write whose reply was lost is not applied a second
// time, and that no call fails because it repeats a write that was applied (CURATOR-584, CURATOR-268).
// Scenario 7 of docs/traps.md.
func TestElection_AppliesWriteOnceAfterLostReply(t *testing.T) {
	t.Run("of the leader", func(t *testing.T) {
		forEachLoss(t, bubble.LostReplies, 1, func(h *harness, l bubble.Fault) {
			h.create("/register")
			c := h.join(h.connect())
			c.requireLeads()
			lost := l.Set(h.srv, zktest.Match{Op: zktest.OpMulti, Path: "/register", Nth: 1})
			_, err := c.multi(&zk.SetDataRequest{Path: "/register", Data: []byte("1"), Version: -1})
			require.ErrorIs(h, err, leaderelection.ErrUnconfirmed, "the outcome is not known")
			require.NotErrorIs(h, err, leaderelection.ErrNotLeader)
			bubble.RequireRun(h, lost)
			h.advance(timeout)
			want := int32(0)
			if l.Applied {
				want = 1
			}
			require.Equal(h, want, h.stat("/register").Version, "the write was repeated")
		})
	})
	t.Run("of the deletion of an election", func(t *testing.T) {
		forEachLoss(t, bubble.LostReplies, 1, func(h *harness, l bubble.Fault) {
			k := 1
			for met := true; met; k++ {
				c, next := h.join(h.connect()), h.join(h.connect())
				deleter := h.connect()
				lost := l.Set(h.srv, zktest.Match{Session: deleter.SessionID(), Nth: k})
				require.NoError(h, leaderelection.DeleteElection(deleter, node, leaderelection.WithSessionTimeout(timeout)), "request %d", k)
				h.advance(shortTime)
				require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
				require.ErrorIs(h, next.requireOver(), leaderelection.ErrElectionOver)
				found, _, err := h.operator.Exists(node)
				require.NoError(h, err)
				require.False(h, found)
				if met = bubble.HasRun(lost); !met {
					lost.Remove()
				}
				h.create(node)
			}
			require.Greater(h, k, 4, "too few requests")
		})
	})
	t.Run("of the creation of the election node", func(t *testing.T) {
		forEachLoss(t, bubble.LostReplies, 1, func(h *harness, l bubble.Fault) {
			lost := l.Set(h.srv, zktest.Match{Op: zktest.OpCreateContainer, Path: "/x", Nth: 1})
			_, err := leaderelection.NewElection(h.connect(), "/x/y", leaderelection.WithCreateNode(), leaderelection.WithSessionTimeout(timeout))
			require.NoError(h, err)
			bubble.RequireRun(h, lost)
			h.stat("/x/y")
		})
	})
}

// writeRegister writes the register by a transaction that only a leader can execute.
func writeRegister(c *candidate, data string) error {
	_, err := c.multi(setRegister(data))
	return err
}

// TestMulti_RejectsWriteSentInNextSession checks that a transaction that a former leader has sent without a
// connection is not applied, although the client library sends it in the next session.
// Scenario 16 of docs/traps.md.
func TestMulti_RejectsWriteSentInNextSession(t *testing.T) {
	withServers(t, 3, func(h *harness) {
		h.terms.overlap = true
		h.create("/register")
		conn := h.connect()
		connection.RecordOf(conn).Push(connection.Event{Timeout: time.Minute})
		c := h.join(conn, leaderelection.WithSessionTimeout(time.Minute))
		next := h.join(h.connect())
		old, session := c.requireLeads(), c.conn.SessionID()
		h.disconnect(c.conn)
		h.advance(2*timeout + shortTime)
		next.requireLeads()
		require.NoError(h, old.Err(), "the lease of the old leader has expired")
		late := bubble.Async(func() error { return writeRegister(c, "too late") })
		h.reconnect()
		h.advance(timeout)
		require.NotEqual(h, session, c.conn.SessionID())
		require.ErrorIs(h, receive(h, late), leaderelection.ErrNotLeader)
		require.Zero(h, h.stat("/register").Version)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrSessionExpired)
	})
}
