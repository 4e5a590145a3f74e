package value

import (
	"context"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// firstMulti matches the first transaction.
var firstMulti = zktest.Match{Op: zktest.OpMulti, Nth: 1}

// TestCompareAndSet_WritesOnceAtVersionOverflow checks that CompareAndSet, which skips version -1 by a second
// write in the same transaction, is applied once and returns the version of the znode, even if the reply is lost.
// Scenario 7 of docs/traps.md.
// Scenario 33 of docs/traps.md.
func TestCompareAndSet_WritesOnceAtVersionOverflow(t *testing.T) {
	for name, fault := range map[string]zktest.HookFunc{"reply received": zktest.Pass, "reply lost": zktest.Cut} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(h *bubble.Test) {
				conn := h.Connect()
				v := newValue[int](h, conn, "/n")
				_, err := v.Set(h.Context(), 1)
				require.NoError(h, err)
				require.NoError(h, h.Server.SetVersion("/n", -2))
				_, version, err := v.Get(h.Context())
				require.NoError(h, err)
				h.Server.After(firstMulti, fault)
				version, err = v.CompareAndSet(h.Context(), version, 2)
				require.NoError(h, err)
				_, stat, err := conn.Get("/n")
				require.NoError(h, err)
				require.Zero(h, stat.Version)
				require.Equal(h, versionOf(stat), version)
				version, err = v.CompareAndSet(h.Context(), version, 3)
				require.NoError(h, err)
				require.EqualValues(h, 1, version.version)
			})
		})
	}
}

// TestSet_DoesNotSendTooLargeValue checks that Set and CompareAndSet return ErrTooLarge for a value that is too
// large and send nothing, because the server would close the connection.
// Scenario 37 of docs/traps.md.
func TestSet_DoesNotSendTooLargeValue(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		v := newValue[string](h, h.Connect(zk.WithMaxBufferSize(0)), node)
		begin := time.Now()
		ctx, cancel := context.WithTimeout(h.Context(), time.Minute)
		defer cancel()
		for _, size := range []int{0xfffff, 1200 << 10, 3 << 20} {
			_, err := v.Set(ctx, strings.Repeat("x", size))
			require.ErrorIs(h, err, recipes.ErrTooLarge)
			_, err = v.CompareAndSet(ctx, Version{}, strings.Repeat("x", size))
			require.ErrorIs(h, err, recipes.ErrTooLarge)
		}
		_, err := v.Set(ctx, strings.Repeat("x", 1<<20-8<<10))
		require.NoError(h, err)
		require.Zero(h, time.Since(begin))
	})
}

// TestAdd_AppliesOnceIfReplyIsLost checks that an addition that was applied, and whose reply was lost, neither
// fails nor is repeated if another client has changed the version in the meantime (CURATOR-584, CURATOR-268).
// Scenario 7 of docs/traps.md.
func TestAdd_AppliesOnceIfReplyIsLost(t *testing.T) {
	for name, exists := range map[string]bool{"first change": false, "later change": true} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(h *bubble.Test) {
				c, other := newCounter(h), newCounter(h)
				create(h, h.Connect(), "/app", "")
				want := int64(1)
				if exists {
					addTo(h, c, 1)
					want++
				}
				// Let another client add to the counter while this client reconnects.
				h.Server.After(firstMulti, func(q *zktest.Request) zktest.Verdict {
					go addTo(h, other, 1)
					return zktest.Cut(q)
				})
				require.Equal(h, want, addTo(h, c, 1))
				require.Equal(h, want+1, get(h, c))
			})
		})
	}
}

// TestAdd_ReportsOutcomeIfReplyAndSessionAreLost checks that an addition whose reply is lost with the session
// returns ErrUnconfirmed if the value does not show whether the addition was applied, and is repeated only if the
// value shows that it was not applied.
// Scenario 7 of docs/traps.md.
func TestAdd_ReportsOutcomeIfReplyAndSessionAreLost(t *testing.T) {
	for _, test := range []struct {
		name     string
		applied  bool
		other    int64 // what another client adds before the retry
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
			bubble.Run(t, func(h *bubble.Test) {
				conn := h.Connect()
				c, other := counterOn(h, conn), newCounter(h)
				addTo(h, c, 1)
				hook := h.Server.Before
				if test.applied {
					hook = h.Server.After
				}
				hook(firstMulti, func(q *zktest.Request) zktest.Verdict {
					require.NoError(h, h.Server.ExpireSession(conn.SessionID()))
					if test.other != 0 {
						go addTo(h, other, test.other)
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
				require.Equal(h, test.wantRead, get(h, c))
			})
		})
	}
}

// TestAdd_UsesValueOfRecreatedZnode checks that a sum that was computed from an old value does not replace a new
// value that has the same version because another client has deleted the znode and created it again.
// Scenario 28 of docs/traps.md.
func TestAdd_UsesValueOfRecreatedZnode(t *testing.T) {
	const hundred = "\x00\x00\x00\x00\x00\x00\x00\x64"
	t.Run("after a write", func(t *testing.T) {
		bubble.Run(t, func(h *bubble.Test) {
			conn, operator := h.Connect(), h.Connect()
			c := counterOn(h, conn)
			addTo(h, c, 1)
			children, _, err := operator.Children(node)
			require.NoError(h, err)
			for _, name := range children {
				require.NoError(h, operator.Delete(path.Join(node, name), -1))
			}
			require.NoError(h, operator.Delete(node, -1))
			create(h, operator, node, hundred)
			require.Equal(h, int64(101), addTo(h, c, 1))
		})
	})
	// Read without a write, so that the session has no record below the old znode, which would
	// prevent the deletion.
	t.Run("after a read", func(t *testing.T) {
		bubble.Run(t, func(h *bubble.Test) {
			conn, operator := h.Connect(), h.Connect()
			create(h, operator, "/app", "")
			create(h, operator, node, "\x00\x00\x00\x00\x00\x00\x00\x05")
			c := counterOn(h, conn)
			require.Equal(h, int64(5), get(h, c))
			require.NoError(h, operator.Delete(node, -1))
			create(h, operator, node, hundred)
			require.Equal(h, int64(101), addTo(h, c, 1))
		})
	})
}

// TestAdd_SkipsVersionMinusOne checks that Add does not leave the znode at version -1. A write that expects
// version -1 is applied at any version, so that an addition would be lost (CURATOR-688).
// Scenario 33 of docs/traps.md.
func TestAdd_SkipsVersionMinusOne(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		addTo(h, newCounter(h), 1)
		require.NoError(h, h.Server.SetVersion(node, -6))
		var counters []*Counter
		for range 4 {
			counters = append(counters, newCounter(h))
		}
		var adding sync.WaitGroup
		for _, c := range counters {
			adding.Go(func() {
				for range 5 {
					addTo(h, c, 1)
				}
			})
		}
		adding.Wait()
		require.Equal(h, int64(21), get(h, counters[0]))
		_, stat, err := h.Connect().Get(node)
		require.NoError(h, err)
		require.Equal(h, int32(-6+20+1), stat.Version, "one more write than additions")
		for _, e := range h.Server.Log().Filter(func(e zktest.Entry) bool { return e.Op == zktest.OpSetData }) {
			t.Errorf("a write is not in a transaction with the record of its session: %v", e)
		}
	})
}

// TestAdd_FailsAtForeignVersionMinusOne checks that Add returns ErrVersion and changes nothing if another program
// has left the znode at version -1, until the znode is written again.
// Scenario 33 of docs/traps.md.
func TestAdd_FailsAtForeignVersionMinusOne(t *testing.T) {
	bubble.Run(t, func(h *bubble.Test) {
		conn := h.Connect()
		c := counterOn(h, conn)
		addTo(h, c, 1)
		require.NoError(h, h.Server.SetVersion(node, -1))
		_, err := c.Add(h.Context(), 1)
		require.ErrorIs(h, err, ErrVersion)
		require.Equal(h, int64(1), get(h, c))
		data, _, err := conn.Get(node)
		require.NoError(h, err)
		_, err = conn.Set(node, data, -1)
		require.NoError(h, err)
		require.Equal(h, int64(2), addTo(h, c, 1))
	})
}
