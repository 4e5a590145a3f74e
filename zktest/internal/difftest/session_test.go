package difftest

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/zktest"
	"github.com/go-leaderelection/leaderelection/zktest/internal/wire"
)

// TestSessionOfTwoServers compares what becomes of the older of two connections of
// one session, at different servers of an ensemble.
func TestSessionOfTwoServers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e, err := ensemble.Start(ctx, ensemble.Config{Backend: ensemble.Process, Servers: 3, TickTime: 500 * time.Millisecond})
	if err != nil {
		if os.Getenv("ZKTEST_REAL") == "required" {
			t.Fatalf("no Apache ZooKeeper to compare with: %v", err)
		}
		t.Skipf("NOT COMPARED with Apache ZooKeeper: %v", err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	var out [2][]string
	for i, addrs := range [][]string{e.Addrs(), zktest.Cluster(t, 3).Addrs()} {
		out[i] = twoConnections(t, addrs)
	}
	if !slices.Equal(out[0], out[1]) {
		t.Errorf("real   %q\nzktest %q", out[0], out[1])
	}
	t.Logf("%q", out[0])
}

// twoConnections says what a session hears that connects to one server and then to
// another. Numbers of transactions are left out: elections have made some.
func twoConnections(t *testing.T, addrs []string) (lines []string) {
	one, other := &target{addr: addrs[0], sessions: make(map[int64]string)}, &target{addr: addrs[1], sessions: make(map[int64]string)}
	old, moved := new(client), new(client)
	open := func(x *target, c *client) {
		t.Helper()
		if _, err := x.open(c, 10*time.Second); err != nil || c.session == 0 {
			t.Fatalf("no session: %v", err)
		}
		t.Cleanup(func() { c.nc.Close() })
	}
	say := func(who string, c *client, o wire.Op, path string) {
		t.Helper()
		got, err := c.do(op(o, path))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range got {
			if line != "closed" {
				line = "answered"
			}
			lines = append(lines, who+" "+o.String()+" "+path+" "+line)
		}
	}
	open(one, old)
	say("old", old, wire.Create, "/before")
	moved.session, moved.passwd = old.session, old.passwd
	open(other, moved)
	if moved.session != old.session {
		t.Fatal("the other server gave another session")
	}
	say("moved", moved, wire.Sync, "/")
	say("old", old, wire.Ping, "")
	say("old", old, wire.Exists, "/before")
	say("old", old, wire.Create, "/old")
	say("moved", moved, wire.Create, "/moved")
	got, err := moved.do(op(wire.GetChildren, "/"))
	if err != nil {
		t.Fatal(err)
	}
	_, children, _ := strings.Cut(got[0], "code=")
	lines = append(lines, children)
	say("moved", moved, wire.CloseSession, "")
	return lines
}
