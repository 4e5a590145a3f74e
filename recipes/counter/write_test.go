package counter

import (
	"path"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/value"
	"github.com/go-leaderelection/leaderelection/zktest"
)

var firstMulti = zktest.Match{Op: zktest.OpMulti, Nth: 1}

// CURATOR-584, CURATOR-268: a write is applied and its reply is lost. If the client only compared
// versions, the change of another client in the meantime would make the write fail.
func TestTrap07_ReplyLost(t *testing.T) {
	for name, exists := range map[string]bool{"first change": false, "later change": true} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				c, other := h.counter(), h.counter()
				h.create(h.connect(), "/app", "")
				want := int64(1)
				if exists {
					h.add(c, 1)
					want++
				}
				// Another client adds while this client reconnects.
				h.srv.After(firstMulti, func(q *zktest.Request) zktest.Verdict {
					go h.add(other, 1)
					return zktest.Cut(q)
				})
				require.Equal(h, want, h.add(c, 1))
				require.Equal(h, want+1, h.get(c))
			})
		})
	}
}

// The reply is lost and the session expires, so only the data can show whether the write was
// applied. If the data does not show it, the outcome is unknown, and the write is not retried.
func TestTrap07_SessionExpiresWithReply(t *testing.T) {
	for _, test := range []struct {
		name     string
		applied  bool
		other    int64 // what another client adds in the meantime
		want     error
		wantSum  int64
		wantRead int64
	}{
		{"not applied", false, 0, nil, 2, 2},
		{"not applied, another client added more", false, 5, nil, 7, 7},
		{"applied", true, 0, recipes.ErrUnconfirmed, 0, 2},
		{"not applied, another client added as much", false, 1, recipes.ErrUnconfirmed, 0, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			run(t, func(h *harness) {
				conn := h.connect()
				c, other := h.counterOn(conn), h.counter()
				h.add(c, 1)
				hook := h.srv.Before
				if test.applied {
					hook = h.srv.After
				}
				hook(firstMulti, func(q *zktest.Request) zktest.Verdict {
					require.NoError(h, h.srv.ExpireSession(conn.SessionID()))
					if test.other != 0 {
						go h.add(other, test.other)
					}
					return zktest.Cut(q)
				})
				n, err := c.Add(h.Context(), 1)
				if test.want == nil {
					require.NoError(h, err)
					require.Equal(h, test.wantSum, n)
				} else {
					require.ErrorIs(h, err, test.want)
				}
				require.Equal(h, test.wantRead, h.get(c))
			})
		})
	}
}

// The znode is deleted and created again, and has the same version again. The write must not
// replace the new value by a value that was computed from the old value.
func TestTrap28_ZnodeIsCreatedAgain(t *testing.T) {
	const hundred = "\x00\x00\x00\x00\x00\x00\x00\x64"
	t.Run("after a write", func(t *testing.T) {
		run(t, func(h *harness) {
			conn, operator := h.connect(), h.connect()
			c := h.counterOn(conn)
			h.add(c, 1)
			children, _, err := operator.Children(node)
			require.NoError(h, err)
			for _, name := range children {
				require.NoError(h, operator.Delete(path.Join(node, name), -1))
			}
			require.NoError(h, operator.Delete(node, -1))
			h.create(operator, node, hundred)
			require.Equal(h, int64(101), h.add(c, 1))
		})
	})
	// The session has no record below the old znode, which would prevent its deletion.
	t.Run("after a read", func(t *testing.T) {
		run(t, func(h *harness) {
			conn, operator := h.connect(), h.connect()
			h.create(operator, "/app", "")
			h.create(operator, node, "\x00\x00\x00\x00\x00\x00\x00\x05")
			c := h.counterOn(conn)
			require.Equal(h, int64(5), h.get(c))
			require.NoError(h, operator.Delete(node, -1))
			h.create(operator, node, hundred)
			require.Equal(h, int64(101), h.add(c, 1))
		})
	})
}

// CURATOR-688: a write that expects version -1 is applied at any version, so no write may leave
// the znode at version -1. An addition would be lost.
func TestTrap33_VersionOverflow(t *testing.T) {
	run(t, func(h *harness) {
		h.add(h.counter(), 1)
		require.NoError(h, h.srv.SetVersion(node, -6))
		var counters []*Counter
		for range 4 {
			counters = append(counters, h.counter())
		}
		var adding sync.WaitGroup
		for _, c := range counters {
			adding.Go(func() {
				for range 5 {
					h.add(c, 1)
				}
			})
		}
		adding.Wait()
		require.Equal(h, int64(21), h.get(counters[0]))
		_, stat, err := h.connect().Get(node)
		require.NoError(h, err)
		require.Equal(h, int32(-6+20+1), stat.Version, "one more write than additions")
		for _, e := range h.srv.Log().Filter(func(e zktest.Entry) bool { return e.Op == zktest.OpSetData }) {
			t.Errorf("a write without the record: %v", e)
		}
	})
}

// If another program has left the znode at version -1, writes fail until the znode is written
// again, and nothing is changed.
func TestTrap33_VersionOverflowOfAnotherProgram(t *testing.T) {
	run(t, func(h *harness) {
		conn := h.connect()
		c := h.counterOn(conn)
		h.add(c, 1)
		require.NoError(h, h.srv.SetVersion(node, -1))
		_, err := c.Add(h.Context(), 1)
		require.ErrorIs(h, err, value.ErrVersion)
		require.Equal(h, int64(1), h.get(c))
		data, _, err := conn.Get(node)
		require.NoError(h, err)
		_, err = conn.Set(node, data, -1)
		require.NoError(h, err)
		require.Equal(h, int64(2), h.add(c, 1))
	})
}
