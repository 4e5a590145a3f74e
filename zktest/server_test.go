package zktest_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest"
)

var open = zk.WorldACL(zk.PermAll)

// allEvents is the client's events without loss: its own channel holds six, and a
// client that is refused fills that with attempts.
func allEvents() (<-chan zk.Event, func(*zk.Conn)) {
	events := make(chan zk.Event, 10000)
	return events, zk.WithEventCallback(func(ev zk.Event) { events <- ev })
}

// connect gives a client with a session.
func connect(t *testing.T, s *zktest.Server, timeout time.Duration) (*zk.Conn, <-chan zk.Event) {
	t.Helper()
	events, tell := allEvents()
	c, _, err := s.Connect(timeout, tell)
	if err != nil {
		t.Fatal(err)
	}
	waitState(t, events, zk.StateHasSession)
	return c, events
}

func waitState(t *testing.T, events <-chan zk.Event, want zk.State) {
	t.Helper()
	late := time.After(time.Minute)
	for {
		select {
		case ev, ok := <-events:
			if !ok {
				t.Fatalf("the client ended before it was %v", want)
			}
			if ev.Type == zk.EventSession && ev.State == want {
				return
			}
		case <-late:
			t.Fatalf("not %v after a minute", want)
		}
	}
}

func mustCreate(t *testing.T, c *zk.Conn, path, data string, flags int32) string {
	t.Helper()
	p, err := c.Create(path, []byte(data), flags, open)
	if err != nil {
		t.Fatalf("create %s: %v", path, err)
	}
	return p
}

func TestBasics(t *testing.T) {
	s := zktest.Start(t)
	c, _ := connect(t, s, 10*time.Second)
	mustCreate(t, c, "/a", "one", 0)
	if p := mustCreate(t, c, "/a/n-", "", zk.FlagSequence); p != "/a/n-0000000000" {
		t.Errorf("first sequential node is %s", p)
	}
	if p := mustCreate(t, c, "/a/n-", "", zk.FlagSequence|zk.FlagEphemeral); p != "/a/n-0000000001" {
		t.Errorf("second sequential node is %s", p)
	}
	if _, err := c.Create("/a", nil, 0, open); err != zk.ErrNodeExists {
		t.Errorf("create again: %v", err)
	}
	data, stat, err := c.Get("/a")
	if err != nil || string(data) != "one" || stat.NumChildren != 2 || stat.Cversion != 2 {
		t.Errorf("get: %q %+v %v", data, stat, err)
	}
	_, _, ch, err := c.GetW("/a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Set("/a", []byte("two"), 0); err != nil {
		t.Fatal(err)
	}
	if ev := <-ch; ev.Type != zk.EventNodeDataChanged || ev.Path != "/a" {
		t.Errorf("event %+v", ev)
	}
	if err := c.Delete("/a", -1); err != zk.ErrNotEmpty {
		t.Errorf("delete with children: %v", err)
	}
	res, err := c.Multi(&zk.CreateRequest{Path: "/b", Acl: open}, &zk.CheckVersionRequest{Path: "/nope", Version: -1})
	if err != zk.ErrNoNode || len(res) != 2 {
		t.Errorf("multi: %v %v", res, err)
	}
	if ok, _, _ := c.Exists("/b"); ok {
		t.Error("half of a multi was applied")
	}
	if _, err := c.Multi(&zk.CreateRequest{Path: "/b", Acl: open}, &zk.SetDataRequest{Path: "/b", Data: []byte("x"), Version: 0}); err != nil {
		t.Errorf("multi: %v", err)
	}
	if _, err := c.Sync("/a"); err != nil {
		t.Error(err)
	}
	if !strings.Contains(s.Tree(), `  a "two"`) {
		t.Errorf("tree:\n%s", s.Tree())
	}
}

func TestAnHourOfSessionLife(t *testing.T) {
	start := time.Now()
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, events := connect(t, s, 10*time.Second)
		mustCreate(t, c, "/e", "", zk.FlagEphemeral)
		id := c.SessionID()
		time.Sleep(time.Hour)
		if c.SessionID() != id {
			t.Fatal("the session did not live for an hour")
		}
		if n := s.Log().Count(zktest.OpPing); n < 1000 {
			t.Errorf("%d pings in an hour", n)
		}
		s.Refuse(true)
		s.DropConnections()
		time.Sleep(11 * time.Second)
		if n := len(s.Sessions()); n != 0 {
			t.Errorf("%d sessions after the timeout", n)
		}
		s.Refuse(false)
		waitState(t, events, zk.StateExpired)
		waitState(t, events, zk.StateHasSession)
		if ok, _, err := c.Exists("/e"); ok || err != nil {
			t.Errorf("the ephemeral node is there: %v %v", ok, err)
		}
	})
	if d := time.Since(start); d > time.Minute {
		t.Errorf("an hour took %v", d)
	}
}

func TestExpireSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		a, events := connect(t, s, 10*time.Second)
		b, _ := connect(t, s, 10*time.Second)
		mustCreate(t, a, "/e", "", zk.FlagEphemeral)
		_, _, gone, err := b.ExistsW("/e")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.ExpireSession(a.SessionID()); err != nil {
			t.Fatal(err)
		}
		if ev := <-gone; ev.Type != zk.EventNodeDeleted {
			t.Errorf("event %+v", ev)
		}
		waitState(t, events, zk.StateExpired)
		if err := s.ExpireSession(1); !errors.Is(err, zktest.ErrNoSession) {
			t.Errorf("an unknown session: %v", err)
		}
	})
}

func TestLostReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, events := connect(t, s, 10*time.Second)
		mustCreate(t, c, "/first", "", 0)
		h := s.After(zktest.Match{Op: zktest.OpCreate, Nth: 2}, zktest.Cut)
		mustCreate(t, c, "/second", "", 0)
		if _, err := c.Create("/third", nil, 0, open); err != zk.ErrConnectionClosed {
			t.Errorf("create with a lost reply: %v", err)
		}
		<-h.Ran()
		waitState(t, events, zk.StateHasSession)
		if ok, _, err := c.Exists("/third"); !ok || err != nil {
			t.Errorf("it was not applied: %v %v", ok, err)
		}
		s.Before(zktest.Match{Op: zktest.OpCreate, Path: "/four*", Nth: 1}, zktest.Cut)
		if _, err := c.Create("/fourth", nil, 0, open); err != zk.ErrConnectionClosed {
			t.Errorf("create that was cut: %v", err)
		}
		waitState(t, events, zk.StateHasSession)
		if ok, _, err := c.Exists("/fourth"); ok || err != nil {
			t.Errorf("it was applied: %v %v", ok, err)
		}
		s.Before(zktest.Match{Op: zktest.OpGetData}, zktest.Fail(zk.ErrNoAuth))
		if _, _, err := c.Get("/first"); err != zk.ErrNoAuth {
			t.Errorf("get: %v", err)
		}
	})
}

func TestStaleReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		a, _ := connect(t, s, 6*time.Second)
		b, _ := connect(t, s, 6*time.Second)
		mustCreate(t, a, "/leader", "a", zk.FlagEphemeral)
		s.Partition(a.SessionID())
		_, _, gone, err := b.ExistsW("/leader")
		if err != nil {
			t.Fatal(err)
		}
		<-gone
		if ok, _, err := a.Exists("/leader"); !ok || err != nil || a.State() != zk.StateHasSession {
			t.Errorf("the cut off client noticed: %v %v %v", ok, err, a.State())
		}
		mustCreate(t, b, "/leader", "b", zk.FlagEphemeral)
		if data, _, err := a.Get("/leader"); string(data) != "a" || err != nil {
			t.Errorf("it reads %q %v", data, err)
		}
		done := make(chan error)
		go func() {
			_, err := a.Set("/leader", []byte("mine"), -1)
			done <- err
		}()
		if err := <-done; err != zk.ErrConnectionClosed {
			t.Errorf("its write: %v", err)
		}
		s.Heal()
		if data, _, err := b.Get("/leader"); string(data) != "b" || err != nil {
			t.Errorf("after all: %q %v", data, err)
		}
	})
}

func tcpDialer(_, addr string, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", addr, timeout)
}

func TestNightOfWork(t *testing.T) { nightOfWork(t) }

// strict is a test that notes how it fails.
type strict struct {
	zktest.TB
	failed, fatal []string
	cleanups      int
}

func (s *strict) Helper()        {}
func (s *strict) Cleanup(func()) { s.cleanups++ }

func (s *strict) Errorf(format string, args ...any) {
	s.failed = append(s.failed, fmt.Sprintf(format, args...))
}

func (s *strict) Fatalf(format string, args ...any) {
	s.fatal = append(s.fatal, fmt.Sprintf(format, args...))
}

// TestStartFailsTheTest: what cannot be started, or listened on, fails the test.
func TestStartFailsTheTest(t *testing.T) {
	var bad strict
	if s := zktest.Start(&bad, zktest.WithTick(-1)); s != nil || len(bad.fatal) != 1 || bad.cleanups != 0 {
		t.Errorf("Start with nonsense: %+v", bad)
	}
	bad = strict{}
	if c := zktest.Cluster(&bad, 3, zktest.WithTick(-1)); c != nil || len(bad.fatal) != 1 || bad.cleanups != 0 {
		t.Errorf("Cluster with nonsense: %+v", bad)
	}
	bad = strict{}
	s := zktest.Start(&bad, zktest.WithAddr("127.0.0.1:-1"))
	defer s.Close()
	if addr := s.Addr(); addr != "" || len(bad.failed) != 1 || bad.cleanups != 1 {
		t.Errorf("Addr %q: %+v", addr, bad)
	}
}

// TestCloseWhileConnecting: Close also closes clients that come at the last moment;
// one that was forgotten would go on dialing.
func TestCloseWhileConnecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 {
			s, err := zktest.New()
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					if _, _, err := s.Connect(time.Second); err != nil && !errors.Is(err, net.ErrClosed) {
						t.Error(err)
					}
				})
			}
			s.Close()
			wg.Wait()
		}
	})
}

// TestAfterClose: nothing changes any more, and what is there can be looked at.
func TestAfterClose(t *testing.T) {
	s := zktest.Start(t)
	c, _ := connect(t, s, 10*time.Second)
	mustCreate(t, c, "/a", "x", 0)
	if _, err := c.CreateContainer("/box", nil, zk.FlagContainer, open); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, c, "/box/a", "", 0)
	if err := c.Delete("/box/a", -1); err != nil {
		t.Fatal(err)
	}
	s.Close()
	before, zxid := s.Tree(), s.Zxid()
	for _, f := range []func(){
		func() { s.Restart(zktest.LoseAll) },
		s.Pause, s.Resume, s.Stop, s.Close,
		func() { s.Partition() },
		func() { s.Blackhole(zktest.BothWays) },
		func() { s.Heal() },
		func() { s.Refuse(true) },
		func() { s.Refuse(false) },
		func() { s.Sweep() },
		func() { s.DropConnections() },
		func() { _ = s.SetSequence("/a", 7) },
	} {
		f()
	}
	if s.Tree() != before || s.Zxid() != zxid || len(s.Log()) == 0 {
		t.Errorf("tree\n%safter\n%s", s.Tree(), before)
	}
	if err := s.ExpireSession(1); !errors.Is(err, zktest.ErrNoSession) {
		t.Error(err)
	}
}
