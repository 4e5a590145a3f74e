package leaderelection_test

import (
	"context"
	"log/slog"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestWithRejoin_ContinuesAfterExpiryAndDuringOutage checks that a candidate with WithRejoin joins again after
// session expiry, and that its candidacy continues while no server runs for an hour.
func TestWithRejoin_ContinuesAfterExpiryAndDuringOutage(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		c := h.join(conn, leaderelection.WithRejoin(), leaderelection.WithName("again"))
		first, oldID := c.requireLeads(), c.ID()
		follower := h.join(h.connect())
		require.NoError(h, h.srv.ExpireSession(conn.SessionID()))
		h.advance(0)
		second := follower.requireLeads()
		h.advance(timeout)
		require.NoError(h, c.receivedStatuses()[1].Err)
		require.Equal(h, []leaderelection.Role{leaderelection.Leader, leaderelection.Follower, leaderelection.Follower}, withoutSuspended(c))
		require.Error(h, first.Err())
		require.NotEqual(h, oldID, c.ID())
		c.requireFollows(follower)
		data, stat, err := h.operator.Get(c.ID())
		require.NoError(h, err)
		require.Equal(h, "again", string(data))
		require.Equal(h, conn.SessionID(), stat.EphemeralOwner)

		require.NoError(h, follower.Resign())
		h.advance(0)
		third := c.requireLeads()
		require.Greater(h, second.Token(), first.Token())
		require.Greater(h, third.Token(), second.Token())

		// The candidate waits for ZooKeeper without a limit.
		h.srv.Stop()
		h.advance(time.Hour)
		require.Error(h, third.Err())
		require.NoError(h, c.Current().Err)
		h.srv.Restart(zktest.LoseTree)
		_, err = h.operator.Create(node, nil, 0, openACL)
		for err != nil { // repeat until the client of the operator has connected
			h.advance(100 * time.Millisecond)
			_, err = h.operator.Create(node, nil, 0, openACL)
		}
		h.advance(timeout)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrNoElection, "a node that was created again is another election")
	})
}

// withoutSuspended returns the roles of a candidate except Suspended.
func withoutSuspended(c *candidate) (roles []leaderelection.Role) {
	for _, role := range c.receivedRoles() {
		if role != leaderelection.Suspended {
			roles = append(roles, role)
		}
	}
	return roles
}

// TestWithStrictACL_RejectsMorePermissiveNode checks that a candidate with WithACL logs a warning if the
// election node permits other clients more than the ACL, and that with WithStrictACL ElectLeader returns an
// error instead, before it creates anything.
func TestWithStrictACL_RejectsMorePermissiveNode(t *testing.T) {
	protected := append(zk.DigestACL(zk.PermAll, "me", "secret"), zk.WorldACL(zk.PermRead)...)
	join := func(h *harness, logged *testenv.Buffer, options ...leaderelection.Option) *candidate {
		conn := h.connect()
		require.NoError(h, conn.AddAuth("digest", []byte("me:secret")))
		c := h.newCandidate(node, conn, append(options,
			leaderelection.WithACL(protected), leaderelection.WithLogger(slog.New(slog.NewTextHandler(logged, nil))))...)
		c.start()
		h.advance(10 * time.Millisecond)
		return c
	}
	const warning = "others=world:anyone:wcda"
	withServers(t, 1, func(h *harness) { // the election node permits everything to everyone
		var logged testenv.Buffer
		first := join(h, &logged)
		first.requireLeads()
		require.Equal(h, 1, strings.Count(logged.String(), warning), logged.String())

		strict := join(h, &logged, leaderelection.WithStrictACL())
		err := strict.requireOver()
		require.ErrorIs(h, err, leaderelection.ErrPermission)
		require.ErrorContains(h, err, "setAcl "+node+" digest:me:")
		require.Zero(h, h.srv.Log().Session(strict.conn.SessionID()).Filter(func(e zktest.Entry) bool { return e.Op == zktest.OpCreate }).Count())

		require.NoError(h, first.Resign())
		_, err = h.operator.SetACL(node, protected, -1)
		require.NoError(h, err)
		logged.Reset()
		join(h, &logged, leaderelection.WithStrictACL()).requireLeads()
		require.NotContains(h, logged.String(), "level=WARN")
	})
	// After the connection has read the ACL of the node, another client creates the node again, and permits
	// everything.
	withServers(t, 1, func(h *harness) {
		var logged testenv.Buffer
		_, err := h.operator.SetACL(node, protected, -1)
		require.NoError(h, err)
		first := join(h, &logged, leaderelection.WithStrictACL())
		first.requireLeads()
		conn := first.conn
		require.NoError(h, first.Resign())
		require.NoError(h, h.operator.Delete(node, -1))
		_, err = h.operator.Create(node, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(h, err)
		second := h.newCandidate(node, conn, leaderelection.WithACL(protected), leaderelection.WithStrictACL())
		second.start()
		h.advance(10 * time.Millisecond)
		require.ErrorIs(h, second.requireOver(), leaderelection.ErrPermission)
	})
}

// TestWithACL_AppliesToAllZnodes checks that each znode has the ACL of the option, and that a client without
// permission can neither read nor change the election.
func TestWithACL_AppliesToAllZnodes(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		member := h.connect()
		require.NoError(h, member.AddAuth("digest", []byte("member:secret")))
		acl := zk.DigestACL(zk.PermAll, "member", "secret")
		const below = "/private/of/members"
		options := []leaderelection.Option{leaderelection.WithACL(acl), leaderelection.WithCreateNode()}
		leader, follower := h.newCandidate(below, member, options...), h.newCandidate(below, member, options...)
		leader.start()
		h.advance(0)
		follower.start()
		h.advance(0)
		leader.requireLeads()
		for _, id := range []string{leader.ID(), follower.ID(), below, path.Dir(below)} {
			got, _, err := member.GetACL(id)
			require.NoError(h, err)
			require.Equal(h, acl, got)
		}
		// A client without permission can neither observe, delete nor join the election.
		_, err := leaderelection.Candidates(h.Context(), h.operator, below)
		require.ErrorIs(h, err, leaderelection.ErrPermission)
		require.ErrorIs(h, leaderelection.DeleteElection(h.operator, below), leaderelection.ErrPermission)
		other := h.newCandidate(below, h.operator)
		other.start()
		h.advance(0)
		require.ErrorIs(h, other.requireOver(), leaderelection.ErrPermission)
		follower.requireFollows(leader)
		require.NoError(h, leader.Resign())
		// The follower has the same session as the leader, so its predecessor may have left because the session has
		// expired. It leads only after a moment.
		h.advance(10 * time.Millisecond)
		follower.requireLeads()
		require.NoError(h, follower.EndElection())
		h.advance(10 * time.Millisecond)
		require.ErrorIs(h, follower.requireOver(), leaderelection.ErrElectionOver)
	})
}

// TestWithContext_ResignsWhenContextIsDone checks that a candidate resigns when its context is done, before or
// after it has joined.
func TestWithContext_ResignsWhenContextIsDone(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		ctx, cancel := context.WithCancel(h.Context())
		c := h.join(h.connect(), leaderelection.WithContext(ctx))
		follower := h.join(h.connect())
		grant := c.requireLeads()
		done := recordDoneTime(grant)
		h.advance(time.Second)
		ended := time.Now()
		cancel()
		h.advance(0)
		require.NoError(h, c.requireOver())
		require.Equal(h, ended, done.time())
		require.ErrorIs(h, grant.Err(), leaderelection.ErrResigned)
		follower.requireLeads()
		require.Equal(h, ended, follower.firstTimeOf(leaderelection.Leader))
		require.NoError(h, c.Resign())

		// In this case the context is done before the candidate has joined.
		ctx, cancel = context.WithCancel(h.Context())
		c = h.newCandidate(node, h.connect(), leaderelection.WithContext(ctx))
		cancel()
		c.start()
		h.advance(0)
		require.NoError(h, c.requireOver())
		h.requireChildren(namesOf(follower)...)
	})
}

// TestWithContext_UnregistersAfterEnd checks that the context of WithContext keeps no registration of a call
// that has failed or of a candidacy that is over.
func TestWithContext_UnregistersAfterEnd(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		ctx := testenv.NewContext()
		_, err := leaderelection.NewElection(h.connect(), "/missing", leaderelection.WithContext(ctx))
		require.ErrorIs(h, err, leaderelection.ErrNoElection)
		require.Zero(h, ctx.Registered())
		c := h.join(h.connect(), leaderelection.WithContext(ctx))
		require.NotZero(h, ctx.Registered())
		c.resign()
		require.Zero(h, ctx.Registered())
	})
}

// TestWithContext_InterruptsUnansweredRequest checks that a call whose request is not answered returns when its
// context is done.
func TestWithContext_InterruptsUnansweredRequest(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn := h.connect()
		c := h.newCandidate(node, conn)
		h.srv.Blackhole(zktest.ToServer, conn.SessionID())
		begin := time.Now()
		ctx, cancel := context.WithTimeoutCause(h.Context(), time.Second, assert.AnError)
		defer cancel()
		limited := []leaderelection.Option{leaderelection.WithContext(ctx), leaderelection.WithSessionTimeout(timeout)}
		_, err := leaderelection.NewElection(conn, node, limited...)
		require.ErrorIs(h, err, assert.AnError)
		require.ErrorIs(h, leaderelection.DeleteElection(conn, node, limited...), assert.AnError)
		require.Equal(h, time.Second, time.Since(begin))
		c.start()
		h.advance(0)
		start := time.Now()
		require.ErrorIs(h, c.Resign(), leaderelection.ErrUnconfirmed)
		require.Equal(h, confirmLimit, time.Since(start))
		h.advance(0)
		require.NoError(h, c.requireOver())
	})
}

// TestWithLogger_LogsStatuses checks that changes of the status and the end of the candidacy are logged, that
// each message names the candidate, and that nothing is logged without WithLogger.
func TestWithLogger_LogsStatuses(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		var global, out testenv.Buffer
		before := slog.Default()
		slog.SetDefault(slog.New(slog.NewTextHandler(&global, &slog.HandlerOptions{Level: slog.LevelDebug})))
		defer slog.SetDefault(before)
		log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
		ahead := h.join(h.connect())
		c := h.join(h.connect(), leaderelection.WithLogger(log), leaderelection.WithName("logger"))
		require.NoError(h, ahead.Resign())
		h.advance(0)
		require.NoError(h, leaderelection.DeleteElection(h.operator, node))
		h.advance(10 * time.Millisecond)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
		logged := out.String()
		for _, want := range []string{"follower " + c.ID() + " following " + ahead.ID(), "leader " + c.ID(), leaderelection.ErrElectionOver.Error()} {
			require.Contains(h, logged, want)
		}
		for line := range strings.Lines(logged) {
			require.Contains(h, line, "election="+node)
			require.Contains(h, line, "client=logger")
		}
		require.Empty(h, global.String())
	})
}

// TestWithContext_DeadlineLimitsWholeCall checks that a deadline limits the whole call, however many requests
// it sends. kazoo and Curator's MultiLock apply a timeout to each of their waits.
// Scenario 46 of docs/traps.md.
func TestWithContext_DeadlineLimitsWholeCall(t *testing.T) {
	const limit = 3 * time.Second
	slow := func(h *harness) *zk.Conn {
		conn := h.connect()
		h.srv.Delay(zktest.ToServer, time.Second, conn.SessionID())
		return conn
	}
	limited := func(h *harness) context.Context {
		ctx, cancel := context.WithTimeout(h.Context(), limit)
		h.Cleanup(cancel)
		return ctx
	}
	within := func(h *harness) leaderelection.Option { return leaderelection.WithContext(limited(h)) }
	runWithServers(t, "NewElection", 1, func(h *harness) {
		conn := slow(h)
		bubble.RequireDuration(h, limit, func() {
			_, err := leaderelection.NewElection(conn, "/a/b/c/d", leaderelection.WithCreateNode(), within(h))
			require.ErrorIs(h, err, context.DeadlineExceeded)
		})
	})
	runWithServers(t, "DeleteElection", 1, func(h *harness) {
		conn := slow(h)
		c := h.join(h.connect())
		bubble.RequireDuration(h, limit, func() {
			err := leaderelection.DeleteElection(conn, node, within(h))
			require.ErrorIs(h, err, leaderelection.ErrUnconfirmed)
			require.ErrorIs(h, err, context.DeadlineExceeded)
		})
		h.advance(timeout)
		require.NoError(h, leaderelection.DeleteElection(h.operator, node))
		h.advance(shortTime)
		require.ErrorIs(h, c.requireOver(), leaderelection.ErrElectionOver)
	})
	runWithServers(t, "Candidates", 1, func(h *harness) {
		for range 200 {
			h.createContender()
		}
		conn := slow(h)
		bubble.RequireDuration(h, limit, func() {
			_, err := leaderelection.Candidates(limited(h), conn, node)
			require.ErrorIs(h, err, context.DeadlineExceeded)
		})
	})
	runWithServers(t, "Resign and EndElection", 1, func(h *harness) {
		c, d := h.join(h.connect()), h.join(h.connect())
		h.srv.Blackhole(zktest.BothWays, c.conn.SessionID(), d.conn.SessionID())
		bubble.RequireDuration(h, confirmLimit, func() { require.ErrorIs(h, c.Resign(), leaderelection.ErrUnconfirmed) })
		bubble.RequireDuration(h, confirmLimit+confirmLimit/15, func() { require.ErrorIs(h, d.EndElection(), leaderelection.ErrUnconfirmed) })
		h.advance(0)
		require.ErrorIs(h, d.requireOver(), leaderelection.ErrElectionOver)
	})
}

// TestNewElection_RejectsInvalidOptions checks that NewElection and DeleteElection reject an invalid option
// before they use the connection.
func TestNewElection_RejectsInvalidOptions(t *testing.T) {
	var noContext context.Context
	conn := new(zk.Conn) // a connection that cannot send requests, because NewElection must not send one
	for name, opt := range map[string]leaderelection.Option{
		"nil":              nil,
		"nil context":      leaderelection.WithContext(noContext),
		"nil logger":       leaderelection.WithLogger(nil),
		"nothing to check": leaderelection.WithStrictACL(),
		"no ACL":           leaderelection.WithACL(nil),
		"large ACL":        leaderelection.WithACL([]zk.ACL{{Perms: zk.PermAll, Scheme: "digest", ID: strings.Repeat("a", 64<<10)}}),
		"no timeout":       leaderelection.WithSessionTimeout(0),
		"negative timeout": leaderelection.WithSessionTimeout(-time.Second),
		"no interval":      leaderelection.WithCheckInterval(0),
		"slash in prefix":  leaderelection.WithNamePrefix("a/b"),
		"reserved prefix":  leaderelection.WithNamePrefix("held-w-"),
		"null in name":     leaderelection.WithName("a\x00b"),
		"newline in name":  leaderelection.WithName("a\nb"),
		"C1 in name":       leaderelection.WithName("a\u009bb"),
		"null in value":    leaderelection.WithValue("a\x00b"),
		"large value":      leaderelection.WithValue(strings.Repeat("v", 64<<10+1)),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := leaderelection.NewElection(conn, node, opt)
			require.ErrorIs(t, err, leaderelection.ErrInvalid)
			require.ErrorIs(t, leaderelection.DeleteElection(conn, node, opt), leaderelection.ErrInvalid)
		})
	}
}

// TestWithSessionTimeout_RejectsLongerThanGranted checks that NewElection and Observe reject a session timeout
// that is longer than the timeout that the servers have granted.
func TestWithSessionTimeout_RejectsLongerThanGranted(t *testing.T) {
	withServers(t, 1, func(h *harness) {
		conn, _, err := h.srv.Connect(time.Minute)
		require.NoError(h, err)
		h.advance(time.Second)
		long := leaderelection.WithSessionTimeout(20*time.Second + time.Millisecond)
		_, err = leaderelection.NewElection(conn, node, long)
		require.ErrorIs(h, err, leaderelection.ErrInvalid)
		require.ErrorContains(h, err, "the servers have granted 20s")
		_, err = leaderelection.Observe(h.Context(), conn, node, long)
		require.ErrorIs(h, err, leaderelection.ErrInvalid)
		_, err = leaderelection.NewElection(conn, node, leaderelection.WithSessionTimeout(20*time.Second))
		require.NoError(h, err)
	}, zktest.WithSessionTimeouts(time.Second, 20*time.Second))
}
