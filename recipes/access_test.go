package recipes_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/barrier"
	"github.com/go-leaderelection/leaderelection/recipes/discovery"
	"github.com/go-leaderelection/leaderelection/recipes/group"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/recipes/queue"
	"github.com/go-leaderelection/leaderelection/recipes/value"
	"github.com/go-leaderelection/leaderelection/zktest"
)

type recipeUse func(t *testing.T, conn *zk.Conn, path string, options ...recipes.Option) error

// recipeUses contains, by the name of a recipe, a function that uses the recipe so that it writes. The function returns
// the error of the recipe.
var recipeUses = map[string]recipeUse{
	"mutex": func(t *testing.T, conn *zk.Conn, path string, options ...recipes.Option) error {
		m, err := lock.NewMutex(conn, path, convertOptions[lock.Option](options)...)
		require.NoError(t, err)
		h, err := m.Lock(t.Context())
		if err == nil {
			err = h.Release()
		}
		return err
	},
	"single": func(t *testing.T, conn *zk.Conn, path string, options ...recipes.Option) error {
		s, err := lock.NewSingle(conn, path+"/lock", nil, convertOptions[lock.Option](options)...)
		require.NoError(t, err)
		h, err := s.Lock(t.Context())
		if err == nil {
			err = h.Release()
		}
		return err
	},
	"semaphore": func(t *testing.T, conn *zk.Conn, path string, options ...recipes.Option) error {
		s, err := lock.NewSemaphore(conn, path, 2, convertOptions[lock.Option](options)...)
		require.NoError(t, err)
		h, err := s.Acquire(t.Context(), 1)
		if err == nil {
			err = h.Release()
		}
		return err
	},
	"barrier": func(t *testing.T, conn *zk.Conn, path string, options ...recipes.Option) error {
		b, err := barrier.New(conn, path, convertOptions[barrier.Option](options)...)
		require.NoError(t, err)
		return b.Set(t.Context())
	},
	"counter": func(t *testing.T, conn *zk.Conn, path string, options ...recipes.Option) error {
		c, err := value.NewCounter(conn, path, convertOptions[value.CounterOption](options)...)
		require.NoError(t, err)
		_, err = c.Add(t.Context(), 1)
		return err
	},
	"queue, put": func(t *testing.T, conn *zk.Conn, path string, options ...recipes.Option) error {
		_, err := newQueue(t, conn, path, options).Put(t.Context(), []byte("x"))
		return err
	},
	"queue, take": func(t *testing.T, conn *zk.Conn, path string, options ...recipes.Option) error {
		var own []recipes.Option
		if path == "/app/own" {
			own = options
		}
		_, err := newQueue(t, conn, path, own).Put(t.Context(), []byte("x"))
		require.NoError(t, err)
		_, err = newQueue(t, conn, path, options).Take(t.Context())
		return err
	},
	"group": func(t *testing.T, conn *zk.Conn, path string, options ...recipes.Option) error {
		g, err := group.New(conn, path, convertOptions[group.Option](options)...)
		require.NoError(t, err)
		m, err := g.Join(t.Context(), "a", nil)
		if err == nil {
			err = m.Close()
		}
		return err
	},
	"service": func(t *testing.T, conn *zk.Conn, path string, options ...recipes.Option) error {
		d, err := discovery.New(conn, "/app", convertOptions[discovery.Option](options)...)
		require.NoError(t, err)
		r, err := d.Register(t.Context(), discovery.Instance{Name: strings.TrimPrefix(path, "/app/"), Address: "host"})
		if err == nil {
			err = r.Close()
		}
		return err
	},
	"semaphore, limit": func(t *testing.T, conn *zk.Conn, path string, options ...recipes.Option) error {
		s, err := lock.NewSemaphore(conn, path, 2, convertOptions[lock.Option](options)...)
		require.NoError(t, err)
		return s.SetLimit(t.Context(), 3)
	},
	"double barrier": func(t *testing.T, conn *zk.Conn, path string, options ...recipes.Option) error {
		const ended = "/app/open"
		if path == ended { // prepare a round that all participants have left, so that it can end
			_, err := conn.Set(path, nil, -1)
			require.NoError(t, err)
			_, err = conn.Create(path+"/ready-0", []byte("0-"+strings.Repeat("a", 26)), 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, ignoreError(err, zk.ErrNodeExists))
		}
		d, err := barrier.NewDouble(conn, path, 1, convertOptions[barrier.Option](options)...)
		require.NoError(t, err)
		r, err := d.Enter(t.Context())
		if err == nil {
			return r.Leave(t.Context())
		}
		if path != ended {
			return err
		}
		round, _, failed := conn.Get(path)
		require.NoError(t, failed)
		require.Empty(t, round, "the round was ended")
		return err
	},
	"queue, request": func(t *testing.T, conn *zk.Conn, path string, options ...recipes.Option) error {
		_, err := newQueue(t, conn, path, options).PutRequest(t.Context(), []byte("x"))
		return err
	},
	"queue, claims": func(t *testing.T, conn *zk.Conn, path string, options ...recipes.Option) error {
		_, err := newQueue(t, conn, itemsPath(options), options, queue.WithClaims(path)).Put(t.Context(), []byte("x"))
		return err
	},
	"queue, dead letter": func(t *testing.T, conn *zk.Conn, path string, options ...recipes.Option) error {
		q := newQueue(t, conn, itemsPath(options), options, queue.WithDead(path), queue.WithMaxAttempts(1))
		_, err := q.Put(t.Context(), []byte("x"))
		require.NoError(t, err)
		item, err := q.Take(t.Context())
		require.NoError(t, err)
		return item.Return(nil)
	},
	"queue, discard": func(t *testing.T, conn *zk.Conn, path string, options ...recipes.Option) error {
		q := newQueue(t, conn, itemsPath(options), options, queue.WithDead(path))
		return ignoreError(q.Discard(t.Context(), queue.DeadLetter{ID: "queue-0000000000-1"}), recipes.ErrDeleted)
	},
}

// convertOptions converts options of package recipes to options of the type O of another package.
func convertOptions[O any](options []recipes.Option) (converted []O) {
	for _, o := range options {
		converted = append(converted, any(o).(O))
	}
	return converted
}

// newQueue returns a queue, which is closed at the end of the test.
func newQueue(t *testing.T, conn *zk.Conn, path string, options []recipes.Option, own ...queue.Option) *queue.Queue {
	q, err := queue.New(conn, path, append(own, convertOptions[queue.Option](options)...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, q.Close()) })
	return q
}

// itemsPath returns the path of the items in tests of the other znodes of a queue. It depends on the number of
// options, so that a queue with an ACL does not use items that a queue without an ACL has created.
func itemsPath(options []recipes.Option) string { return fmt.Sprint("/app/items", len(options)) }

// ignoreError returns nil if err wraps expected, and err otherwise.
func ignoreError(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// protected is an ACL that permits everything to the client of connect, and only reads to other
// clients.
var protected = append(zk.DigestACL(zk.PermAll, "me", "secret"), zk.WorldACL(zk.PermRead)...)

// runTest runs f as a subtest in a bubble with a server.
func runTest(t *testing.T, name string, f func(t *testing.T, srv *zktest.Server)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, zktest.Start(t)) })
	})
}

func connect(t *testing.T, srv *zktest.Server) *zk.Conn {
	conn := bubble.Connect(t, srv, 4*time.Second)
	require.NoError(t, conn.AddAuth("digest", []byte("me:secret")))
	return conn
}

// TestWithStrictACL_RejectsNodesOpenToOthers checks that a recipe with WithACL logs a warning if the ACL of its
// node permits other clients more than the option does, that it returns an error with WithStrictACL, and that it
// reads no ACL without WithACL.
func TestWithStrictACL_RejectsNodesOpenToOthers(t *testing.T) {
	for name, use := range recipeUses {
		runTest(t, name, func(t *testing.T, srv *zktest.Server) {
			conn := connect(t, srv)
			for _, path := range []string{"/app", "/app/open"} {
				// Write 8 bytes, because the data must be valid for a counter too.
				_, err := conn.Create(path, make([]byte, 8), 0, zk.WorldACL(zk.PermAll))
				require.NoError(t, err)
			}
			isRead := func(e zktest.Entry) bool { return e.Op == zktest.OpGetACL }

			require.NoError(t, use(t, conn, "/app/open"))
			require.Zero(t, srv.Log().Requests().Filter(isRead).Count())
			protected := recipes.WithACL(protected)
			err := use(t, conn, "/app/open", protected, recipes.WithStrictACL())
			require.ErrorIs(t, err, recipes.ErrPermission)
			require.ErrorContains(t, err, "setAcl /app/open ")
			var logged testenv.Buffer
			require.NoError(t, use(t, conn, "/app/open", protected, recipes.WithLogger(slog.New(slog.NewTextHandler(&logged, nil)))))
			require.Contains(t, logged.String(), "others=world:anyone:wcda")
			require.NoError(t, use(t, conn, "/app/own", protected, recipes.WithStrictACL()))
			if name != "mutex" {
				return
			}
			// Let the recipe create its node. If the node is deleted and created again with permissions for
			// everyone, the recipe must read the new ACL.
			require.NoError(t, use(t, conn, "/app/own", protected, recipes.WithStrictACL()))
			require.NoError(t, conn.Delete("/app/own", -1))
			_, err = conn.Create("/app/own", nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			require.ErrorIs(t, use(t, conn, "/app/own", protected, recipes.WithStrictACL()), recipes.ErrPermission)
		})
	}
}

// TestWithStrictACL_RejectsZnodeCreatedAfterCheck checks that a recipe does not use a znode that another client
// has created with permissions for everyone, after the recipe has read the ACL and has found no znode.
func TestWithStrictACL_RejectsZnodeCreatedAfterCheck(t *testing.T) {
	for _, name := range []string{"mutex", "single", "semaphore", "counter", "queue, put", "queue, claims", "queue, dead letter", "group", "service"} {
		runTest(t, name, func(t *testing.T, srv *zktest.Server) {
			conn, other := connect(t, srv), connect(t, srv)
			_, err := conn.Create("/app", nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			created := srv.After(zktest.Match{Op: zktest.OpGetACL, Path: "/app/late", Nth: 1}, func(*zktest.Request) zktest.Verdict {
				_, err := other.Create("/app/late", make([]byte, 8), 0, zk.WorldACL(zk.PermAll))
				require.NoError(t, err)
				return zktest.Verdict{}
			})
			require.ErrorIs(t, recipeUses[name](t, conn, "/app/late", recipes.WithACL(protected), recipes.WithStrictACL()), recipes.ErrPermission)
			<-created.Ran()
		})
	}
}

// TestWithACL_ReportsUnreadableACL checks that a client that is not permitted to read the ACL of a znode logs a
// warning, and returns an error with WithStrictACL.
func TestWithACL_ReportsUnreadableACL(t *testing.T) {
	for _, name := range []string{
		"mutex", "single", "semaphore", "semaphore, limit", "barrier", "double barrier", "counter", "queue, put", "queue, take", "group", "service",
	} {
		use := recipeUses[name]
		runTest(t, name, func(t *testing.T, srv *zktest.Server) {
			conn := connect(t, srv)
			_, err := conn.Create("/app", nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			require.NoError(t, use(t, conn, "/app/node", recipes.WithACL(protected)))
			srv.Before(zktest.Match{Op: zktest.OpGetACL}, zktest.Fail(zk.ErrNoAuth))
			conn = connect(t, srv)
			var logged testenv.Buffer
			require.NoError(t, use(t, conn, "/app/node", recipes.WithACL(protected), recipes.WithLogger(slog.New(slog.NewTextHandler(&logged, nil)))))
			require.Contains(t, logged.String(), "cannot be read")
			require.Contains(t, logged.String(), "path=/app/node")
			err = use(t, conn, "/app/node", recipes.WithACL(protected), recipes.WithStrictACL())
			require.ErrorIs(t, err, recipes.ErrPermission)
			require.ErrorContains(t, err, "read the ACL of /app/node")
		})
	}
}
