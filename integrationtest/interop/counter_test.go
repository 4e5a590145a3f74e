package interop

import (
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/value"
)

// counterFormat is a data format of counters, with the recipes of the peers that use this format.
type counterFormat struct {
	name  string
	peers map[*peer][]string // the names of the recipe in the commands of each peer
	open  func(*zk.Conn, string) (*value.Counter, error)
}

func openInt64(conn *zk.Conn, path string) (*value.Counter, error) {
	return value.NewCounter(conn, path)
}

func openInt32(conn *zk.Conn, path string) (*value.Counter, error) {
	return value.NewCounter(conn, path, value.WithInt32())
}

func openText(conn *zk.Conn, path string) (*value.Counter, error) {
	return value.NewCounter(conn, path, recipes.WithKazooLayout())
}

var counterFormats = []counterFormat{
	{"Curator's DistributedAtomicLong", map[*peer][]string{curator: {"long"}}, openInt64},
	{"Curator's SharedCount and DistributedAtomicInteger", map[*peer][]string{curator: {"shared", "int"}}, openInt32},
	{"kazoo's Counter", map[*peer][]string{kazoo: {"text"}}, openText},
	{"Curator's SharedCount and kazoo's Counter", map[*peer][]string{curator: {"shared"}, kazoo: {"int"}}, openInt32},
}

// TestCounter_AppliesConcurrentAdditionsOnce checks that each of the additions that Go and a peer apply concurrently
// changes the counter once. Go's idempotency znodes are children of the counter, which the other libraries ignore.
func TestCounter_AppliesConcurrentAdditionsOnce(t *testing.T) {
	const times = 40
	for _, f := range counterFormats {
		t.Run(f.name, func(t *testing.T) {
			path, want := testenv.NewPath(t), int64(0)
			for p := range f.peers {
				p.requirePeer(t)
			}
			conns := []*zk.Conn{connect(t), connect(t)}
			failed := make(chan error, len(conns))
			ctx := testenv.ContextOf(t)
			for i, conn := range conns {
				c, err := f.open(conn, path)
				require.NoError(t, err)
				if i == 0 { // a client in Go creates the counter before a peer does
					_, err = c.Add(ctx, 5)
					require.NoError(t, err)
					want += 5
				}
				delta := int64(3 - 7*i)
				want += delta * times
				go func() {
					var err error
					for n := 0; n < times && err == nil; n++ {
						_, err = c.Add(ctx, delta)
					}
					failed <- err
				}()
			}
			var calls []*call
			for p, kinds := range f.peers {
				for i, kind := range kinds {
					calls = append(calls, p.sendCommand(t, "add", i, kind, path, times, 1000), p.sendCommand(t, "add", 1-i, kind, path, times, -1))
					want += 999 * times
				}
			}
			for range conns {
				require.NoError(t, <-failed)
			}
			for _, c := range calls {
				c.wait(t)
			}
			idempotencyNodes, _, err := conns[0].Children(path)
			require.NoError(t, err)
			require.Len(t, idempotencyNodes, len(conns))
			for _, conn := range conns {
				c, err := f.open(conn, path)
				require.NoError(t, err)
				_, err = conn.Sync(path)
				require.NoError(t, err)
				got, err := c.Get(ctx)
				require.NoError(t, err)
				require.Equal(t, want, got)
			}
			for p, kinds := range f.peers {
				for _, kind := range kinds {
					require.Equal(t, fmt.Sprint(want), p.runCommand(t, "get", kind, path))
				}
			}
		})
	}
}

// TestCounter_AddsToCounterOfPeer checks that Go can add to a counter that a peer has created. kazoo creates an empty
// znode when it only reads a counter.
func TestCounter_AddsToCounterOfPeer(t *testing.T) {
	for _, f := range counterFormats {
		for p, kinds := range f.peers {
			for _, kind := range kinds {
				for _, first := range []string{"add", "get"} {
					t.Run(f.name+"/"+kind+"/"+first, func(t *testing.T) {
						p.requirePeer(t)
						path, want := testenv.NewPath(t), int64(2)
						if first == "add" {
							p.runCommand(t, "add", kind, path, 1, 40)
							want += 40
						} else {
							require.Equal(t, "0", p.runCommand(t, "get", kind, path))
						}
						c, err := f.open(connect(t), path)
						require.NoError(t, err)
						got, err := c.Add(testenv.ContextOf(t), 2)
						require.NoError(t, err)
						require.Equal(t, want, got)
					})
				}
			}
		}
	}
}
