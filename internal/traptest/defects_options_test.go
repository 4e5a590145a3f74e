package traptest

import (
	"bytes"
	"context"
	"log/slog"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// C18: after the loss of a session there was no way back.
func TestC18_Rejoin(t *testing.T) {
	play(t, 1, func(w *world) {
		conn := w.connect()
		c := w.enlist(conn, leaderelection.WithRejoin(), leaderelection.WithClientName("again"))
		first, oldID := c.leads(), c.ID()
		follower := w.enlist(w.connect())
		require.NoError(w, w.srv.ExpireSession(conn.SessionID()))
		w.pass(0)
		second := follower.leads()
		w.pass(timeout)
		require.NoError(w, c.all()[1].Err)
		require.Equal(w, []leaderelection.Role{leaderelection.Leader, leaderelection.Follower, leaderelection.Follower}, withoutSuspended(c))
		require.Error(w, first.Err())
		require.NotEqual(w, oldID, c.ID())
		c.follows(follower)
		data, stat, err := w.operator.Get(c.ID())
		require.NoError(w, err)
		require.Equal(w, "again", string(data))
		require.Equal(w, conn.SessionID(), stat.EphemeralOwner)

		require.NoError(w, follower.Resign())
		w.pass(0)
		third := c.leads()
		require.Greater(w, second.Token(), first.Token())
		require.Greater(w, third.Token(), second.Token())

		// It waits for ZooKeeper for as long as it takes.
		w.srv.Stop()
		w.pass(time.Hour)
		require.Error(w, third.Err())
		require.NoError(w, c.Current().Err)
		w.srv.Restart(zktest.LoseTree)
		_, err = w.operator.Create(node, nil, 0, anybody)
		for err != nil { // the operator's client has to find the server again
			w.pass(100 * time.Millisecond)
			_, err = w.operator.Create(node, nil, 0, anybody)
		}
		w.pass(timeout)
		require.ErrorIs(w, c.over(), leaderelection.ErrElectionGone, "a node that was created anew is another election")
	})
}

// withoutSuspended are a candidate's roles without times of doubt.
func withoutSuspended(c *candidate) (roles []leaderelection.Role) {
	for _, role := range c.roles() {
		if role != leaderelection.Suspended {
			roles = append(roles, role)
		}
	}
	return roles
}

// C18: there was no fencing token. It grows with each leader, also over an
// election made anew at the same path, where sequence numbers begin again.
func TestC18_Token(t *testing.T) {
	play(t, 1, func(w *world) {
		var last int64
		for i := range 6 {
			c := w.enlist(w.connect())
			grant := c.leads()
			_, stat, err := w.operator.Exists(c.ID())
			require.NoError(w, err)
			require.Equal(w, stat.Czxid, grant.Token())
			require.Greater(w, grant.Token(), last)
			last = grant.Token()
			if i == 2 {
				require.NoError(w, c.EndElection())
				_, err = w.operator.Create(node, nil, 0, anybody)
				require.NoError(w, err)
				continue
			}
			require.NoError(w, c.Resign())
		}
	})
}

// C18: the ACL was fixed.
func TestC18_ACL(t *testing.T) {
	play(t, 1, func(w *world) {
		member := w.connect()
		require.NoError(w, member.AddAuth("digest", []byte("member:secret")))
		acl := zk.DigestACL(zk.PermAll, "member", "secret")
		const below = "/private/of/members"
		options := []leaderelection.Option{leaderelection.WithACL(acl), leaderelection.WithCreateNode()}
		leader, follower := w.candidateAt(below, member, options...), w.candidateAt(below, member, options...)
		leader.begin()
		w.pass(0)
		follower.begin()
		w.pass(0)
		leader.leads()
		for _, id := range []string{leader.ID(), follower.ID(), below, path.Dir(below)} {
			got, _, err := member.GetACL(id)
			require.NoError(w, err)
			require.Equal(w, acl, got)
		}
		// A stranger can neither look, nor end it, nor take part.
		_, err := leaderelection.Candidates(w.operator, below)
		require.ErrorIs(w, err, leaderelection.ErrPermission)
		require.ErrorIs(w, leaderelection.DeleteElection(w.operator, below), leaderelection.ErrPermission)
		stranger := w.candidateAt(below, w.operator)
		stranger.begin()
		w.pass(0)
		require.ErrorIs(w, stranger.over(), leaderelection.ErrPermission)
		follower.follows(leader)
		require.NoError(w, leader.Resign())
		w.pass(10 * time.Millisecond) // of the same session: it looks whether that has ended
		follower.leads()
		require.NoError(w, follower.EndElection())
		w.pass(10 * time.Millisecond)
		require.ErrorIs(w, follower.over(), leaderelection.ErrElectionOver)
	})
}

// C18: the election node had to be there. It is created where that is wanted, by
// many at once, and it is nobody's afterwards.
func TestC18_CreateNode(t *testing.T) {
	play(t, 1, func(w *world) {
		const below = "/of/several/parts"
		_, err := leaderelection.NewElection(w.operator, below)
		require.ErrorIs(w, err, leaderelection.ErrNoElection)
		require.NotContains(w, w.srv.Tree(), "several")

		// Each finds the first part missing before anybody has created it.
		hold, release := w.hold()
		w.srv.Before(zktest.Match{Op: zktest.OpCreate, Path: "/of"}, hold)
		var all [8]*candidate
		var wg sync.WaitGroup
		for i := range all {
			conn := w.connect()
			wg.Go(func() {
				e, err := leaderelection.NewElection(conn, below, leaderelection.WithCreateNode())
				if assert.NoError(w, err) {
					all[i] = &candidate{Election: e, w: w, conn: conn}
					all[i].begin()
				}
			})
		}
		w.pass(0)
		release()
		wg.Wait()
		w.pass(0)
		leaders := 0
		for _, c := range all {
			require.NotNil(w, c)
			if c.last().Role == leaderelection.Leader {
				leaders++
			}
		}
		require.Equal(w, 1, leaders)
		for _, c := range all {
			require.NoError(w, c.Resign())
		}
		children, stat, err := w.operator.Children(below)
		require.NoError(w, err, "the node is the client's")
		require.Empty(w, children)
		require.Zero(w, stat.EphemeralOwner)
	})
}

// C18: parents that are there need not be the client's to write to, such as a root that
// belongs to the operators: a server says "no auth" there before it says "exists".
func TestC18_CreateNodeBelowForeignParents(t *testing.T) {
	play(t, 1, func(w *world) {
		_, err := w.operator.Create("/apps", nil, 0, anybody)
		require.NoError(w, err)
		_, err = w.operator.SetACL("/", zk.WorldACL(zk.PermRead), -1)
		require.NoError(w, err)
		_, err = leaderelection.NewElection(w.connect(), "/apps/mine/election", leaderelection.WithCreateNode())
		require.NoError(w, err)
		_, err = leaderelection.NewElection(w.connect(), "/mine", leaderelection.WithCreateNode())
		require.ErrorIs(w, err, leaderelection.ErrPermission)
	})
}

// C18: nothing took a context. Its end is that of Resign, at every stage.
func TestC18_Context(t *testing.T) {
	play(t, 1, func(w *world) {
		ctx, cancel := context.WithCancel(w.Context())
		c := w.enlist(w.connect(), leaderelection.WithContext(ctx))
		follower := w.enlist(w.connect())
		grant := c.leads()
		done := endOf(grant)
		w.pass(time.Second)
		ended := time.Now()
		cancel()
		w.pass(0)
		require.NoError(w, c.over())
		require.Equal(w, ended, done.time())
		require.ErrorIs(w, grant.Err(), leaderelection.ErrResigned)
		follower.leads()
		require.Equal(w, ended, follower.when(leaderelection.Leader))
		require.NoError(w, c.Resign())

		// One that has ended before there is a place in line.
		ctx, cancel = context.WithCancel(w.Context())
		c = w.candidateAt(node, w.connect(), leaderelection.WithContext(ctx))
		cancel()
		c.begin()
		w.pass(0)
		require.NoError(w, c.over())
		w.stands(line(follower)...)
	})
}

// C18: nor had anything a limit. A request without an answer is given up with
// the context, and by itself after a session timeout.
func TestC18_Limits(t *testing.T) {
	play(t, 1, func(w *world) {
		conn := w.connect()
		c := w.candidateAt(node, conn)
		w.srv.Blackhole(zktest.ToServer, conn.SessionID())
		begin := time.Now()
		ctx, cancel := context.WithTimeoutCause(w.Context(), time.Second, assert.AnError)
		defer cancel()
		limited := []leaderelection.Option{leaderelection.WithContext(ctx), leaderelection.WithSessionTimeout(timeout)}
		_, err := leaderelection.NewElection(conn, node, limited...)
		require.ErrorIs(w, err, assert.AnError)
		require.ErrorIs(w, leaderelection.DeleteElection(conn, node, limited...), assert.AnError)
		require.Equal(w, time.Second, time.Since(begin))
		c.begin()
		w.pass(0)
		asked := time.Now()
		require.ErrorIs(w, c.Resign(), leaderelection.ErrUnconfirmed)
		require.Equal(w, 1500*time.Millisecond, time.Since(asked))
		w.pass(0)
		require.NoError(w, c.over())
	})
}

// lockedBuffer may be read while others write.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// C18: nothing could be logged. Each status and each end is, with who it is
// about, and by default nothing.
func TestC18_Logging(t *testing.T) {
	play(t, 1, func(w *world) {
		var global, out lockedBuffer
		before := slog.Default()
		slog.SetDefault(slog.New(slog.NewTextHandler(&global, &slog.HandlerOptions{Level: slog.LevelDebug})))
		defer slog.SetDefault(before)
		log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
		ahead := w.enlist(w.connect())
		c := w.enlist(w.connect(), leaderelection.WithLogger(log), leaderelection.WithClientName("logger"))
		require.NoError(w, ahead.Resign())
		w.pass(0)
		require.NoError(w, leaderelection.DeleteElection(w.operator, node))
		w.pass(10 * time.Millisecond)
		require.ErrorIs(w, c.over(), leaderelection.ErrElectionOver)
		logged := out.String()
		for _, want := range []string{"follower " + c.ID() + " following " + ahead.ID(), "leader " + c.ID(), leaderelection.ErrElectionOver.Error()} {
			require.Contains(w, logged, want)
		}
		for line := range strings.Lines(logged) {
			require.Contains(w, line, "election="+node)
			require.Contains(w, line, "client=logger")
		}
		require.Empty(w, global.String())
	})
}
