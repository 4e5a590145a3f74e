package difftest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/internal/wire"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestCompare_OlderConnectionHasEqualReplies checks that the older of two connections of a session, at different
// servers of an ensemble, receives the same replies from zktest as from ZooKeeper.
func TestCompare_OlderConnectionHasEqualReplies(t *testing.T) {
	e := startEnsemble(t, ensemble.Config{Servers: 3, TickTime: 500 * time.Millisecond})
	var out [2][]string
	for i, addrs := range [][]string{e.Addrs(), zktest.StartEnsemble(t, 3).Addrs()} {
		out[i] = runTwoConnections(t, addrs)
	}
	assert.True(t, slices.Equal(out[0], out[1]), "real   %q\nzktest %q", out[0], out[1])
	t.Logf("%q", out[0])
}

// runTwoConnections connects a session to one server and then to another, and returns the packets
// without zxids, because elections have changed them.
func runTwoConnections(t *testing.T, addrs []string) (lines []string) {
	first, second := &target{addr: addrs[0], sessions: make(map[int64]string)}, &target{addr: addrs[1], sessions: make(map[int64]string)}
	old, moved := new(client), new(client)
	open := func(x *target, c *client) {
		t.Helper()
		_, err := x.connect(c, 10*time.Second)
		require.True(t, err == nil && c.session != 0, "no session")
		t.Cleanup(func() { c.nc.Close() })
	}
	exchange := func(name string, c *client, o wire.Op, path string) {
		t.Helper()
		got, err := c.exchange(request(o, path))
		require.NoError(t, err)
		for _, line := range got {
			if line != "closed" {
				line = "answered"
			}
			lines = append(lines, name+" "+o.String()+" "+path+" "+line)
		}
	}
	open(first, old)
	exchange("old", old, wire.Create, "/before")
	moved.session, moved.passwd = old.session, old.passwd
	open(second, moved)
	require.Equal(t, old.session, moved.session, "the second server has not resumed the session")
	exchange("new", moved, wire.Sync, "/")
	exchange("old", old, wire.Ping, "")
	exchange("old", old, wire.Exists, "/before")
	exchange("old", old, wire.Create, "/old")
	exchange("new", moved, wire.Create, "/moved")
	got, err := moved.exchange(request(wire.GetChildren, "/"))
	require.NoError(t, err)
	_, children, _ := strings.Cut(got[0], "code=")
	lines = append(lines, children)
	exchange("new", moved, wire.CloseSession, "")
	return lines
}
