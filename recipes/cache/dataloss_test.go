package cache

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zkdial"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// dialServer opens a connection with package zkdial, which recovers if the servers have lost their data.
func dialServer(h *bubble.Test) *zk.Conn {
	h.Helper()
	conn, _, err := zkdial.Connect([]string{h.Server.Name()}, bubble.SessionTimeout, zkdial.WithDialer(h.Server.Dialer()))
	require.NoError(h, err)
	h.Cleanup(func() {
		conn.Close()
		time.Sleep(time.Second) // wait until the goroutines that wait for the connection have ended
	})
	_, err = zkdial.Wait(h.Context(), conn)
	require.NoError(h, err)
	return conn
}

// createZnodesUntil creates znodes until the last zxid of the server is at least until. It returns the last zxid.
func createZnodesUntil(h *bubble.Test, until int64) int64 {
	h.Helper()
	for {
		_, stat, err := h.Operator.Exists("/")
		require.NoError(h, err)
		if stat.Pzxid >= until {
			return stat.Pzxid
		}
		_, err = h.Operator.Create("/n", nil, zk.FlagSequence, openACL)
		require.NoError(h, err)
	}
}

// TestCache_ReplacesOldZnodesAfterDataLoss checks that a cache does not keep old znodes after the servers have
// lost their data, when znodes with the same paths exist again with smaller zxids. In a restored backup, even the
// czxids are equal.
func TestCache_ReplacesOldZnodesAfterDataLoss(t *testing.T) {
	for name, scope := range map[string]Scope{"node": Node, "children": Children, "subtree": Subtree} {
		for _, restored := range []bool{false, true} {
			if restored {
				name += ", restored backup"
			}
			t.Run(name, func(t *testing.T) {
				runInBubble(t, func(h *bubble.Test) {
					h.Conn = dialServer(h)
					begin := createZnodesUntil(h, 0) + 50
					createZnodesUntil(h, begin)
					create(h, "/a", "/a/b", "/a/lost")
					for range 20 {
						set(h, "/a", "old")
						set(h, "/a/b", "old")
					}
					c := openCache(h, "/a", scope)
					events := make(chan string, 100)
					go func() {
						for e := range c.Events() {
							events <- eventText(e)
						}
					}()
					<-c.Filled()
					old, _ := c.Get("/a")
					require.Equal(h, "old", string(old.Data))
					synctest.Wait()
					for len(events) > 0 {
						<-events
					}

					session := cacheSession(h)
					h.Server.Restart(zktest.LoseAll)
					h.Operator = h.Connect()
					if restored {
						createZnodesUntil(h, begin)
					}
					createWith(h, "/a", "new")
					createWith(h, "/a/b", "new")
					time.Sleep(time.Minute)
					require.NotEqual(h, session, cacheSession(h))
					require.True(h, c.Fresh())
					require.NoError(h, c.Sync(h.Context()))
					require.NoError(h, compareWithServer(h.Operator, c, scope))
					z, _ := c.Get("/a")
					require.Equal(h, "new", string(z.Data))
					require.Equal(h, restored, z.Stat.Czxid == old.Stat.Czxid)
					require.Less(h, z.Stat.Mzxid, old.Stat.Mzxid)
					idle := requestsDuring(h, func() { time.Sleep(time.Minute) })
					require.Equal(h, idle.Count(zktest.OpExists), idle.Count(), "more than verifications of watches: %v", idle)
					synctest.Wait()
					var got []string
					for len(events) > 0 {
						got = append(got, <-events)
					}
					want := []string{"deleted /a", "created /a=new"}
					switch {
					case restored && scope == Node:
						want = []string{"changed /a=new"}
					case restored:
						want = []string{"changed /a=new", "changed /a/b=new", "deleted /a/lost"}
					case scope != Node:
						want = append(want, "deleted /a/b", "deleted /a/lost", "created /a/b=new")
					}
					require.ElementsMatch(h, append(want, "stale", "fresh"), got)

					// Write again: after the recovery the cache must compare changes by their zxids
					// as before.
					set(h, "/a", "newer")
					synctest.Wait()
					require.NoError(h, compareWithServer(h.Operator, c, scope))
				})
			})
		}
	}
}
