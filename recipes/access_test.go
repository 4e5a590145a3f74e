package recipes_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/barrier"
	"github.com/go-leaderelection/leaderelection/recipes/counter"
	"github.com/go-leaderelection/leaderelection/recipes/discovery"
	"github.com/go-leaderelection/leaderelection/recipes/group"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/recipes/queue"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// Each recipe logs a warning, or returns an error with WithStrictACL, if the ACL of its node permits
// others more than WithACL does. A recipe without WithACL does not read the ACL.
func TestWithStrictACL(t *testing.T) {
	type use func(ctx context.Context, conn *zk.Conn, path string, options ...recipes.Option) error
	for name, use := range map[string]use{
		"mutex": func(ctx context.Context, conn *zk.Conn, path string, options ...recipes.Option) error {
			m, err := lock.NewMutex(conn, path, options...)
			require.NoError(t, err)
			h, err := m.Lock(ctx)
			if err == nil {
				err = h.Release()
			}
			return err
		},
		"semaphore": func(ctx context.Context, conn *zk.Conn, path string, options ...recipes.Option) error {
			s, err := lock.NewSemaphore(conn, path, 2, options...)
			require.NoError(t, err)
			h, err := s.Acquire(ctx, 1)
			if err == nil {
				err = h.Release()
			}
			return err
		},
		"barrier": func(ctx context.Context, conn *zk.Conn, path string, options ...recipes.Option) error {
			b, err := barrier.NewBarrier(conn, path, options...)
			require.NoError(t, err)
			return b.Set(ctx)
		},
		"counter": func(ctx context.Context, conn *zk.Conn, path string, options ...recipes.Option) error {
			c, err := counter.NewCounter(conn, path, options...)
			require.NoError(t, err)
			_, err = c.Add(ctx, 1)
			return err
		},
		"queue, put": func(ctx context.Context, conn *zk.Conn, path string, options ...recipes.Option) error {
			q, err := queue.New(conn, path, queue.Config{}, options...)
			require.NoError(t, err)
			defer func() { require.NoError(t, q.Close(ctx)) }()
			return q.Put(ctx, []byte("x"))
		},
		"queue, take": func(ctx context.Context, conn *zk.Conn, path string, options ...recipes.Option) error {
			var own []recipes.Option
			if path == "/app/own" {
				own = options
			}
			put, err := queue.New(conn, path, queue.Config{}, own...)
			require.NoError(t, err)
			require.NoError(t, put.Put(ctx, []byte("x")))
			require.NoError(t, put.Close(ctx))
			q, err := queue.New(conn, path, queue.Config{}, options...)
			require.NoError(t, err)
			defer func() { require.NoError(t, q.Close(ctx)) }()
			_, err = q.Take(ctx)
			return err
		},
		"group": func(ctx context.Context, conn *zk.Conn, path string, options ...recipes.Option) error {
			g, err := group.NewGroup(conn, path, options...)
			require.NoError(t, err)
			m, err := g.Join(ctx, "a", nil)
			if err == nil {
				err = m.Close(ctx)
			}
			return err
		},
		"service": func(ctx context.Context, conn *zk.Conn, path string, options ...recipes.Option) error {
			d, err := discovery.New(conn, "/app", options...)
			require.NoError(t, err)
			r, err := d.Register(ctx, discovery.Instance{Name: strings.TrimPrefix(path, "/app/"), Address: "host"})
			if err == nil {
				err = r.Close(ctx)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := zktest.Start(t)
			conn, _, err := srv.Connect(4 * time.Second)
			require.NoError(t, err)
			require.NoError(t, conn.AddAuth("digest", []byte("me:secret")))
			for _, path := range []string{"/app", "/app/open"} {
				_, err = conn.Create(path, make([]byte, 8), 0, zk.WorldACL(zk.PermAll)) // the data of a counter
				require.NoError(t, err)
			}
			isRead := func(e zktest.Entry) bool { return e.Op == zktest.OpGetACL }

			require.NoError(t, use(t.Context(), conn, "/app/open"))
			require.Zero(t, srv.Log().Requests().Filter(isRead).Count())
			protected := recipes.WithACL(append(zk.DigestACL(zk.PermAll, "me", "secret"), zk.WorldACL(zk.PermRead)...))
			err = use(t.Context(), conn, "/app/open", protected, recipes.WithStrictACL())
			require.ErrorIs(t, err, recipes.ErrPermission)
			require.ErrorContains(t, err, "setAcl /app/open")
			var logged testenv.Buffer
			require.NoError(t, use(t.Context(), conn, "/app/open", protected, recipes.WithLogger(slog.New(slog.NewTextHandler(&logged, nil)))))
			require.Contains(t, logged.String(), "others=world:anyone:wcda")
			require.NoError(t, use(t.Context(), conn, "/app/own", protected, recipes.WithStrictACL()))
			if name != "mutex" {
				return
			}
			// The node is created again, by a client that permits everything.
			require.NoError(t, use(t.Context(), conn, "/app/own", protected, recipes.WithStrictACL()))
			require.NoError(t, conn.Delete("/app/own", -1))
			_, err = conn.Create("/app/own", nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			require.ErrorIs(t, use(t.Context(), conn, "/app/own", protected, recipes.WithStrictACL()), recipes.ErrPermission)
		})
	}
}
