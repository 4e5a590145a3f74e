package interop

import (
	"context"
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/barrier"
	"github.com/go-leaderelection/leaderelection/recipes/counter"
)

// format is one of a counter, in which all who are named count.
type format struct {
	name  string
	peers map[*peer][]string // and what they call it
	open  func(*zk.Conn, string) (*counter.Counter, error)
}

func open(conn *zk.Conn, path string) (*counter.Counter, error) {
	return counter.NewCounter(conn, path)
}

func open32(conn *zk.Conn, path string) (*counter.Counter, error) {
	return counter.NewInt32(conn, path)
}

func openKazoo(conn *zk.Conn, path string) (*counter.Counter, error) {
	return counter.NewCounter(conn, path, recipes.WithLayout(recipes.Kazoo))
}

var formats = []format{
	{"Curator's DistributedAtomicLong", map[*peer][]string{curator: {"long"}}, open},
	{"Curator's SharedCount and DistributedAtomicInteger", map[*peer][]string{curator: {"shared", "int"}}, open32},
	{"kazoo's Counter", map[*peer][]string{kazoo: {"text"}}, openKazoo},
	{"Curator's SharedCount and kazoo's Counter", map[*peer][]string{curator: {"shared"}, kazoo: {"int"}}, open32},
}

// Everybody adds at the same time, and nothing is lost or counted twice. The registers
// of Go are children of the counter, which nobody else minds.
func TestCounter(t *testing.T) {
	const times = 40
	for _, f := range formats {
		t.Run(f.name, func(t *testing.T) {
			path, want := newPath(t), int64(0)
			for p := range f.peers {
				p.use(t)
			}
			conns := []*zk.Conn{connect(t), connect(t)}
			failed := make(chan error, len(conns))
			ctx := waiting(t)
			for i, conn := range conns {
				c, err := f.open(conn, path)
				require.NoError(t, err)
				if i == 0 { // there is one before others seed it
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
					calls = append(calls, p.tell(t, "add", i, kind, path, times, 1000), p.tell(t, "add", 1-i, kind, path, times, -1))
					want += 999 * times
				}
			}
			for range conns {
				require.NoError(t, <-failed)
			}
			for _, c := range calls {
				c.ok(t)
			}
			registers, _, err := conns[0].Children(path)
			require.NoError(t, err)
			require.Len(t, registers, len(conns))
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
					require.Equal(t, fmt.Sprint(want), p.ask(t, "get", kind, path))
				}
			}
		})
	}
}

// A counter that the other side has begun goes on in Go. kazoo makes an empty znode
// before it counts.
func TestCounterBegunByOthers(t *testing.T) {
	for _, f := range formats {
		for p, kinds := range f.peers {
			for _, kind := range kinds {
				for _, begin := range []string{"add", "get"} {
					t.Run(f.name+"/"+kind+"/"+begin, func(t *testing.T) {
						p.use(t)
						path, want := newPath(t), int64(2)
						if begin == "add" {
							p.ask(t, "add", kind, path, 1, 40)
							want += 40
						} else {
							require.Equal(t, "0", p.ask(t, "get", kind, path))
						}
						c, err := f.open(connect(t), path)
						require.NoError(t, err)
						got, err := c.Add(waiting(t), 2)
						require.NoError(t, err)
						require.Equal(t, want, got)
					})
				}
			}
		}
	}
}

// Each sets the barrier, all wait, and another removes it. The znode is all that there
// is, so that all three can meet.
func TestBarrier(t *testing.T) {
	curator.use(t)
	kazoo.use(t)
	conn := connect(t)
	by := func(t *testing.T, who, what, path string) {
		t.Helper()
		switch who {
		case "go":
			b, err := barrier.NewBarrier(conn, path)
			require.NoError(t, err)
			if what == "set" {
				require.NoError(t, b.Set(waiting(t)))
			} else {
				require.NoError(t, b.Remove(waiting(t)))
			}
		case "curator":
			curator.ask(t, "barrier", what, path)
		case "kazoo":
			kazoo.ask(t, "barrier", what, path)
		}
	}
	all := []string{"go", "curator", "kazoo"}
	for i, sets := range all {
		removes := all[(i+1)%len(all)]
		t.Run(sets+" sets and "+removes+" removes", func(t *testing.T) {
			path := newPath(t)
			by(t, sets, "set", path)
			by(t, sets, "set", path) // that it is set already is fine
			passed := make(chan error, 1)
			b, err := barrier.NewBarrier(conn, path)
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			go func() { passed <- b.Wait(ctx) }()
			calls := []*call{curator.tell(t, "barrier", 0, "wait", path), kazoo.tell(t, "barrier", 0, "wait", path)}
			require.Never(t, func() bool { return len(passed) > 0 || len(calls[0].answer) > 0 || len(calls[1].answer) > 0 }, calm, calm/5)
			by(t, removes, "remove", path)
			require.NoError(t, <-passed)
			for _, c := range calls {
				c.ok(t)
			}
		})
	}
}
