package zktest_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestHook_RunsForMatchingRequests checks that a hook runs only for requests that match, only once if its Match
// has Nth, and not after Remove.
func TestHook_RunsForMatchingRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		a, _ := connect(t, s, 10*time.Second)
		b, _ := connect(t, s, 10*time.Second)
		var got []string
		note := func(q *zktest.Request) zktest.Verdict {
			got = append(got, fmt.Sprintf("%v %s %s %s", q.Op, q.Path, q.Created, q.Code.String()))
			return zktest.Verdict{}
		}
		s.After(zktest.Match{Path: "/a*", Session: a.SessionID()}, note)
		mustCreate(t, a, "/a", "", zk.FlagSequence)
		mustCreate(t, b, "/a", "", 0)
		_, err := a.Multi(&zk.CreateRequest{Path: "/b", Acl: openACL}, &zk.CheckVersionRequest{Path: "/a", Version: 7})
		assert.ErrorIs(t, err, zk.ErrBadVersion)
		mustCreate(t, a, "/c", "", 0)
		want := []string{"create /a /a0000000000 ok", "multi /b  bad version"}
		assert.Equal(t, fmt.Sprint(want), fmt.Sprint(got), "hooks ran for %q, not %q", got, want)
		n := 0
		h := s.Before(zktest.Match{Op: zktest.OpExists, Nth: 3}, func(*zktest.Request) zktest.Verdict {
			n++
			return zktest.Verdict{}
		})
		for range 6 {
			_, _, err = a.Exists("/a")
			assert.NoError(t, err)
		}
		<-h.Ran()
		assert.Equal(t, 1, n, "a hook for the third request ran %d times", n)
		removed := s.Before(zktest.Match{}, zktest.Cut)
		removed.Remove()
		_, _, err = a.Exists("/a")
		assert.NoError(t, err)
	})
}

// TestHook_CanChangeServer checks that a hook can change the server, and that the client receives the event of the
// change after the reply.
func TestHook_CanChangeServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		a, _ := connect(t, s, 10*time.Second)
		b, _ := connect(t, s, 10*time.Second)
		mustCreate(t, b, "/e", "", zk.FlagEphemeral)
		s.After(zktest.Match{Op: zktest.OpGetData, Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			assert.True(t, q.Session == a.SessionID() && q.Server == s, "request %+v", q)
			assert.NoError(t, s.ExpireSession(b.SessionID()))
			return zktest.Verdict{}
		})
		data, _, ch, err := a.GetW("/e")
		require.NoError(t, err, "%q", data)
		assert.Equal(t, zk.EventNodeDeleted, (<-ch).Type, "event")
	})
}

// TestFail_ReturnsEachErrorUnchanged checks that a client receives exactly the error that the test has passed to
// Fail.
func TestFail_ReturnsEachErrorUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, _ := connect(t, s, 10*time.Second)
		for _, want := range []error{
			zk.ErrAPIError, zk.ErrNoNode, zk.ErrNoAuth, zk.ErrBadVersion, zk.ErrNoChildrenForEphemerals, zk.ErrNodeExists,
			zk.ErrNotEmpty, zk.ErrSessionExpired, zk.ErrInvalidACL, zk.ErrAuthFailed, zk.ErrClosing, zk.ErrNothing,
			zk.ErrSessionMoved, zk.ErrReconfigDisabled, zk.ErrBadArguments,
		} {
			s.Before(zktest.Match{Op: zktest.OpGetData, Nth: 1}, zktest.Fail(want))
			_, _, err := c.Get("/")
			assert.Equal(t, want, err, "the client received %q, not %q", err, want)
		}
	})
}

// TestHook_GoexitClosesConnection checks that the server closes the connection, continues to serve, and closes the
// channel of Ran, when a hook ends its goroutine.
func TestHook_GoexitClosesConnection(t *testing.T) {
	exit := func(*zktest.Request) zktest.Verdict {
		runtime.Goexit()
		return zktest.Verdict{}
	}
	type set func(*zktest.Server, zktest.Match, zktest.HookFunc) *zktest.Hook
	for stage, set := range map[string]set{"before": (*zktest.Server).Before, "after": (*zktest.Server).After} {
		t.Run(stage, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := zktest.Start(t)
				h := set(s, zktest.Match{Op: zktest.OpConnect, Nth: 1}, exit)
				c, _ := connect(t, s, 10*time.Second)
				<-h.Ran()
				h = set(s, zktest.Match{Op: zktest.OpCreate, Nth: 1}, exit)
				_, err := c.Create("/a", nil, 0, openACL)
				assert.ErrorIs(t, err, zk.ErrConnectionClosed, "the client received")
				<-h.Ran()
				_, _, err = c.Exists("/a")
				assert.NoError(t, err)
			})
		})
	}
}

// TestFail_ReturnsErrorAndLogsFate checks that a client receives the error of Fail instead of the reply, and that
// the log contains the fate of each request.
func TestFail_ReturnsErrorAndLogsFate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, events := connect(t, s, 10*time.Second)
		s.After(zktest.Match{Op: zktest.OpCreate, Nth: 1}, zktest.Fail(zk.ErrNodeExists))
		_, err := c.Create("/a", nil, 0, openACL)
		assert.ErrorIs(t, err, zk.ErrNodeExists)
		assertExists(t, true, c, "/a", "the create was not applied")
		s.Before(zktest.Match{Op: zktest.OpDelete, Nth: 1}, zktest.Fail(zktest.Code(-127)))
		if err := c.Delete("/a", -1); err == nil || err.Error() != "unknown error: -127" {
			t.Error(err)
		}
		s.Before(zktest.Match{Op: zktest.OpSync, Nth: 1}, zktest.Fail(zk.ErrSessionExpired))
		_, err = c.Sync("/a")
		assert.ErrorIs(t, err, zk.ErrSessionExpired)
		id := c.SessionID()
		s.After(zktest.Match{Op: zktest.OpConnect, Nth: 1}, zktest.Cut)
		s.DropConnections()
		waitState(t, events, zk.StateHasSession)
		assert.Equal(t, id, c.SessionID(), "the session has changed")
		log := s.Log()
		fates := map[zktest.Fate]int{}
		for _, x := range log {
			fates[x.Fate]++
		}
		assert.True(t, fates[zktest.Failed] == 3 && fates[zktest.CutAfter] == 1, "unexpected log:\n%v", log)
	})
}

// TestHook_BlocksOnlyItsClient checks that a hook that blocks does not delay another client.
func TestHook_BlocksOnlyItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		a, _ := connect(t, s, 30*time.Second)
		b, _ := connect(t, s, 30*time.Second)
		release := make(chan struct{})
		s.Before(zktest.Match{Op: zktest.OpCreate, Session: a.SessionID(), Nth: 1}, func(*zktest.Request) zktest.Verdict {
			<-release
			return zktest.Verdict{}
		})
		done := make(chan error, 1)
		go func() {
			_, err := a.Create("/a", []byte("a"), 0, openACL)
			done <- err
		}()
		synctest.Wait()
		mustCreate(t, b, "/a", "b", 0)
		close(release)
		assert.Equal(t, zk.ErrNodeExists, <-done, "create after the hook")
	})
}

// TestCut_LosesRequestOrReply checks that the server does not apply a request if a Before hook cuts the
// connection, and has applied the request if an After hook cuts the connection.
func TestCut_LosesRequestOrReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, events := connect(t, s, 10*time.Second)
		mustCreate(t, c, "/first", "", 0)
		h := s.After(zktest.Match{Op: zktest.OpCreate, Nth: 2}, zktest.Cut)
		mustCreate(t, c, "/second", "", 0)
		_, err := c.Create("/third", nil, 0, openACL)
		assert.ErrorIs(t, err, zk.ErrConnectionClosed, "create with a lost reply")
		<-h.Ran()
		waitState(t, events, zk.StateHasSession)
		assertExists(t, true, c, "/third", "the create was not applied")
		s.Before(zktest.Match{Op: zktest.OpCreate, Path: "/four*", Nth: 1}, zktest.Cut)
		_, err = c.Create("/fourth", nil, 0, openACL)
		assert.ErrorIs(t, err, zk.ErrConnectionClosed, "create that was cut")
		waitState(t, events, zk.StateHasSession)
		assertExists(t, false, c, "/fourth", "the create was applied")
		s.Before(zktest.Match{Op: zktest.OpGetData}, zktest.Fail(zk.ErrNoAuth))
		_, _, err = c.Get("/first")
		assert.ErrorIs(t, err, zk.ErrNoAuth, "get")
	})
}

// TestHook_DelaysReplyToCloseSession checks that a hook can delay the reply to closeSession.
func TestHook_DelaysReplyToCloseSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, _ := connect(t, s, 10*time.Second)
		mustCreate(t, c, "/e", "", zk.FlagEphemeral)
		h := s.After(zktest.Match{Op: zktest.OpCloseSession, Nth: 1}, func(*zktest.Request) zktest.Verdict {
			time.Sleep(100 * time.Millisecond)
			return zktest.Verdict{}
		})
		start := time.Now()
		c.Close()
		<-h.Ran()
		assert.Equal(t, 100*time.Millisecond, time.Since(start), "Close took")
		assert.Empty(t, s.Sessions(), "sessions")
		assert.Equal(t, 1, s.Log().Count(zktest.OpCloseSession), "log entries for one closed session")
	})
}
