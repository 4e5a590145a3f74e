package zktest_test

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestDropKeepsSessionAndWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		a, events := connect(t, s, 10*time.Second)
		b, _ := connect(t, s, 10*time.Second)
		mustCreate(t, a, "/e", "", zk.FlagEphemeral)
		mustCreate(t, a, "/w", "", 0)
		_, _, set, err := a.GetW("/w")
		if err != nil {
			t.Fatal(err)
		}
		_, _, later, err := a.ExistsW("/later")
		if err != nil {
			t.Fatal(err)
		}
		id := a.SessionID()
		gate := s.Before(zktest.Match{Op: zktest.OpConnect, Session: id}, zktest.Cut)
		if n := s.DropConnections(id); n != 1 {
			t.Errorf("%d connections dropped", n)
		}
		<-gate.Ran()
		if n := len(s.Watches()); n != 0 {
			t.Errorf("%d watches without a connection", n)
		}
		if _, err := b.Set("/w", nil, -1); err != nil { // while a is away
			t.Fatal(err)
		}
		gate.Remove()
		waitState(t, events, zk.StateHasSession)
		synctest.Wait() // the client reads its last zxid unguarded while it sets its watches again
		if ev := <-set; ev.Type != zk.EventNodeDataChanged {
			t.Errorf("missed change: %+v", ev)
		}
		mustCreate(t, b, "/later", "", 0)
		if ev := <-later; ev.Type != zk.EventNodeCreated {
			t.Errorf("later: %+v", ev)
		}
		if _, stat, err := a.Exists("/e"); err != nil || stat.EphemeralOwner != id || a.SessionID() != id {
			t.Errorf("the session is not the same: %v %v", stat, err)
		}
		if n := s.Log().Session(id).Count(zktest.OpSetWatches); n != 1 {
			t.Errorf("%d setWatches", n)
		}
	})
}

// After a reconnect the server rejects the request that sets the watches again. The
// client library logs that and continues without these watches; it sets them at the
// next reconnect.
func TestSetWatchesFailsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, _ := connect(t, s, 10*time.Second)
		other, _ := connect(t, s, 10*time.Second)
		_, _, watch, err := c.ExistsW("/x")
		if err != nil {
			t.Fatal(err)
		}
		elsewhere := s.Before(zktest.Match{Op: zktest.OpSetWatches, Path: "/y"}, zktest.Cut)
		s.Before(zktest.Match{Op: zktest.OpSetWatches, Path: "/x", Nth: 1}, zktest.Fail(zk.ErrAPIError))
		s.DropConnections(c.SessionID())
		time.Sleep(3 * time.Second)
		if n := len(s.Watches("/x")); n != 0 || c.State() != zk.StateHasSession {
			t.Errorf("%d watches, client in %v", n, c.State())
		}
		mustCreate(t, other, "/x", "", 0)
		synctest.Wait()
		if len(watch) != 0 {
			t.Error("an event of a watch that the server does not have")
		}
		s.DropConnections(c.SessionID())
		if ev := <-watch; ev.Type != zk.EventNodeCreated {
			t.Errorf("after the second reconnect: %+v", ev)
		}
		select {
		case <-elsewhere.Ran():
			t.Error("a hook for other watches ran")
		default:
		}
	})
}

// A server that never lets watches be set again, and closes the connection instead,
// keeps a client that has watches from using its session.
func TestSetWatchesAlwaysCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, _ := connect(t, s, 10*time.Second)
		if _, _, _, err := c.ExistsW("/x"); err != nil {
			t.Fatal(err)
		}
		hook := s.Before(zktest.Match{Op: zktest.OpSetWatches}, zktest.Cut)
		s.DropConnections()
		time.Sleep(30 * time.Second)
		if n := s.Log().Count(zktest.OpConnect); n < 10 {
			t.Errorf("%d handshakes in 30 s", n)
		}
		hook.Remove()
		time.Sleep(3 * time.Second)
		if n := len(s.Watches("/x")); n != 1 || c.State() != zk.StateHasSession {
			t.Errorf("%d watches, client in %v", n, c.State())
		}
	})
}

func TestBlackhole(t *testing.T) {
	for _, dir := range []zktest.Direction{zktest.ToServer, zktest.ToClient, zktest.BothWays} {
		synctest.Test(t, func(t *testing.T) {
			s := zktest.Start(t)
			a, events := connect(t, s, 6*time.Second)
			b, _ := connect(t, s, 6*time.Second)
			mustCreate(t, a, "/e", "", zk.FlagEphemeral)
			_, _, gone, err := b.ExistsW("/e")
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			s.Blackhole(dir, a.SessionID())
			waitState(t, events, zk.StateDisconnected)
			// go-zookeeper notices after 2/3 of the timeout, counted from the last packet.
			if d := time.Since(start); d < 2*time.Second || d > 4*time.Second {
				t.Errorf("direction %d: disconnected after %v", dir, d)
			}
			if dir&zktest.ToServer != 0 {
				s.Refuse(true)
				<-gone
				if d := time.Since(start); d < 4*time.Second || d > 7*time.Second {
					t.Errorf("direction %d: expired after %v", dir, d)
				}
			}
		})
	}
}

// A black hole for a session is for the connection that it has; a hook keeps the
// client from making another one.
func TestBlackholeOfOneConnection(t *testing.T) {
	for _, keepOut := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := zktest.Start(t)
			a, events := connect(t, s, 6*time.Second)
			id := a.SessionID()
			if keepOut {
				s.Before(zktest.Match{Op: zktest.OpConnect, Session: id}, zktest.Cut)
			}
			s.Blackhole(zktest.BothWays, id)
			waitState(t, events, zk.StateDisconnected)
			time.Sleep(30 * time.Second)
			back := a.State() == zk.StateHasSession && a.SessionID() == id
			if alive := len(s.Sessions()) == 1; back == keepOut || alive == keepOut {
				t.Errorf("kept out %v: back %v, alive %v", keepOut, back, alive)
			}
		})
	}
}

func TestBlackholeHealsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, _ := connect(t, s, 30*time.Second)
		s.Blackhole(zktest.ToClient)
		done := make(chan error, 1)
		go func() {
			_, err := c.Create("/a", nil, 0, open)
			done <- err
		}()
		synctest.Wait()
		if !strings.Contains(s.Tree(), "  a\n") {
			t.Error("the request did not arrive")
		}
		s.Heal()
		if err := <-done; err != nil {
			t.Errorf("the answer that was held up: %v", err)
		}
		s.Blackhole(zktest.ToServer)
		go func() {
			_, err := c.Create("/b", nil, 0, open)
			done <- err
		}()
		synctest.Wait()
		if strings.Contains(s.Tree(), "  b\n") {
			t.Error("the request did arrive")
		}
		s.Heal()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, _ := connect(t, s, 30*time.Second)
		s.Delay(zktest.ToServer, 20*time.Millisecond)
		s.Delay(zktest.ToClient, 30*time.Millisecond)
		start := time.Now()
		mustCreate(t, c, "/a", "", 0)
		if d := time.Since(start); d != 50*time.Millisecond {
			t.Errorf("a round trip takes %v", d)
		}
		// Packets on their way do not wait for each other.
		start = time.Now()
		done := make(chan error)
		for range 10 {
			go func() {
				_, _, err := c.Get("/a")
				done <- err
			}()
		}
		for range 10 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if d := time.Since(start); d != 50*time.Millisecond {
			t.Errorf("ten at once take %v", d)
		}
		s.Delay(zktest.BothWays, 0)
		start = time.Now()
		if _, _, err := c.Get("/a"); err != nil || time.Since(start) != 0 {
			t.Errorf("after all: %v, %v", err, time.Since(start))
		}
	})
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, _ := connect(t, s, 6*time.Second)
		mustCreate(t, c, "/e", "", zk.FlagEphemeral)
		s.Pause()
		done := make(chan error, 1)
		go func() {
			_, err := c.Create("/a", nil, 0, open)
			done <- err
		}()
		time.Sleep(time.Second)
		s.Resume()
		if err := <-done; err != nil {
			t.Errorf("a short pause: %v", err)
		}
		s.Pause()
		time.Sleep(time.Minute)
		if len(s.Sessions()) != 1 {
			t.Error("a paused server ended a session")
		}
		s.Resume()
		time.Sleep(30 * time.Second)
		if _, stat, err := c.Exists("/a"); err != nil || stat == nil {
			t.Errorf("after a long pause: %v", err)
		}
	})
}

func TestSetSequence(t *testing.T) {
	s := zktest.Start(t)
	c, _ := connect(t, s, 10*time.Second)
	mustCreate(t, c, "/q", "", 0)
	if err := s.SetSequence("/q", 2147483646); err != nil {
		t.Fatal(err)
	}
	if p := mustCreate(t, c, "/q/n-", "", zk.FlagSequence); p != "/q/n-2147483646" {
		t.Error(p)
	}
	if p := mustCreate(t, c, "/q/n-", "", zk.FlagSequence); p != "/q/n-2147483647" {
		t.Error(p)
	}
	if _, err := c.Create("/q/n-", nil, zk.FlagSequence, open); err != zk.ErrNodeExists {
		t.Errorf("after the largest: %v", err)
	}
	if err := s.SetSequence("/q", -5); err != nil {
		t.Fatal(err)
	}
	if p := mustCreate(t, c, "/q/n-", "", zk.FlagSequence); p != "/q/n--000000005" {
		t.Error(p)
	}
	if err := s.SetSequence("/none", 1); !errors.Is(err, zk.ErrNoNode) {
		t.Error(err)
	}
}

func TestManualClock(t *testing.T) {
	s := zktest.Start(t, zktest.WithManualClock(), zktest.WithTick(time.Second))
	a, _ := connect(t, s, 10*time.Second)
	mustCreate(t, a, "/e", "", zk.FlagEphemeral)
	if _, err := a.CreateTTL("/ttl", nil, zk.FlagTTL, open, 90*time.Second); err != nil {
		t.Fatal(err)
	}
	if _, err := a.CreateContainer("/box", nil, zk.FlagContainer, open); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, a, "/box/a", "", 0)
	if err := a.Delete("/box/a", -1); err != nil {
		t.Fatal(err)
	}
	b, _ := connect(t, s, time.Minute)
	_, _, gone, err := b.ExistsW("/e")
	if err != nil {
		t.Fatal(err)
	}
	left := s.Sessions()[0].ExpiresIn
	if left < 10*time.Second || left > 11*time.Second {
		t.Errorf("%v are left", left)
	}
	s.Advance(left - time.Millisecond)
	if n := len(s.Sessions()); n != 2 {
		t.Fatalf("%d sessions a moment before", n)
	}
	s.Advance(time.Millisecond)
	if ids := s.Sessions(); len(ids) != 1 || ids[0].ID != b.SessionID() {
		t.Errorf("sessions %+v", ids)
	}
	<-gone
	if _, _, err := b.Get("/ttl"); err != nil { // which also keeps b alive
		t.Error(err)
	}
	s.Advance(50 * time.Second)
	if tree := s.Tree(); strings.Contains(tree, "box") || !strings.Contains(tree, "ttl") {
		t.Errorf("after a minute:\n%s", tree)
	}
	if _, _, err := b.Get("/ttl"); err != nil {
		t.Error(err)
	}
	s.Advance(time.Minute)
	if tree := s.Tree(); strings.Contains(tree, "ttl") {
		t.Errorf("after two minutes:\n%s", tree)
	}
}

func TestSweepNow(t *testing.T) {
	s := zktest.Start(t)
	c, _ := connect(t, s, 10*time.Second)
	for _, p := range []string{"/used", "/unused"} {
		if _, err := c.CreateContainer(p, nil, zk.FlagContainer, open); err != nil {
			t.Fatal(err)
		}
	}
	mustCreate(t, c, "/used/a", "", 0)
	if n := s.Sweep(); n != 0 {
		t.Errorf("%d nodes swept that are in use", n)
	}
	if err := c.Delete("/used/a", -1); err != nil {
		t.Fatal(err)
	}
	if n := s.Sweep(); n != 1 {
		t.Errorf("%d nodes swept", n)
	}
}

func TestWithoutTTL(t *testing.T) {
	s := zktest.Start(t, zktest.WithoutTTL())
	c, _ := connect(t, s, 10*time.Second)
	if _, err := c.CreateTTL("/ttl", nil, zk.FlagTTL, open, time.Hour); err == nil || !strings.Contains(err.Error(), "-6") {
		t.Errorf("create with TTL: %v", err)
	}
	mustCreate(t, c, "/a", "", 0)
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	for _, o := range []zktest.Option{
		zktest.WithTick(0), zktest.WithMaxPacket(10), zktest.WithSessionTimeouts(time.Minute, time.Second), zktest.WithAddr("nowhere"),
	} {
		s, err := zktest.New(o)
		if err == nil {
			_, err = s.Listen()
			s.Close()
		}
		if err == nil {
			t.Error("no error")
		}
	}
}

func TestTimeoutNegotiation(t *testing.T) {
	s := zktest.Start(t, zktest.WithSessionTimeouts(2*time.Second, 5*time.Second))
	for ask, want := range map[time.Duration]time.Duration{
		time.Second: 2 * time.Second, 3 * time.Second: 3 * time.Second, time.Hour: 5 * time.Second,
	} {
		c, _ := connect(t, s, ask)
		all := s.Sessions()
		i := slices.IndexFunc(all, func(x zktest.Session) bool { return x.ID == c.SessionID() })
		if all[i].Timeout != want {
			t.Errorf("%v becomes %v", ask, all[i].Timeout)
		}
	}
}

func TestRefuseOverTCP(t *testing.T) {
	s := zktest.Start(t)
	addr := s.Addr()
	s.Refuse(true)
	if nc, err := net.Dial("tcp", addr); err == nil {
		nc.Close()
		t.Error("it accepts")
	}
	s.Refuse(false)
	c, events, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithLogInfo(false), zk.WithHostProvider(zktest.HostProvider()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	waitState(t, events, zk.StateHasSession)
	if s.Addr() != addr {
		t.Errorf("%s became %s", addr, s.Addr())
	}
}

func TestMemory(t *testing.T) {
	if used := heapOf100k(t); used > 100e6 {
		t.Errorf("100,000 znodes take %d bytes", used)
	}
}

// TestFaultsHoldWords: four-letter words are subject to faults as packets are.
func TestFaultsHoldWords(t *testing.T) {
	for name, fault := range map[string]struct{ begin, end func(*zktest.Server) }{
		"black hole": {func(s *zktest.Server) { s.Blackhole(zktest.ToServer) }, func(s *zktest.Server) { s.Heal() }},
		"pause":      {(*zktest.Server).Pause, (*zktest.Server).Resume},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := zktest.Start(t)
			fault.begin(s)
			nc, err := s.Dialer()("", "", 0)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			if _, err := nc.Write([]byte("ruok")); err != nil {
				t.Fatal(err)
			}
			nc.SetReadDeadline(time.Now().Add(9 * time.Second)) // later the server closes a silent connection
			if n, err := nc.Read(make([]byte, 8)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: %d bytes, %v", name, n, err)
			}
			fault.end(s)
			nc.SetReadDeadline(time.Now().Add(time.Minute))
			if b, err := io.ReadAll(nc); string(b) != "imok" || err != nil {
				t.Errorf("%s: %q %v", name, b, err)
			}
		})
	}
}
