package group

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
)

func TestJoin_KazooLayout(t *testing.T) {
	runTest(t, func(w fixture) {
		conn := w.connect()
		g := w.group(conn, recipes.WithKazooLayout())
		m, err := g.Join(w.Context(), "host/7", nil)
		require.NoError(w, err)
		_, err = g.Join(w.Context(), "host/8", []byte("data"))
		require.ErrorIs(w, err, recipes.ErrInvalid)
		require.ErrorIs(w, m.Set(w.Context(), nil), recipes.ErrInvalid)
		require.Regexp(w, `workers container\n      [0-9a-f]{32}__party__ "host/7" ephemeral`, w.srv.Tree())
		_, err = conn.Create(dir+"/other", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(w, err)
		members, err := g.Members(w.Context())
		require.NoError(w, err)
		require.Equal(w, []string{"host/7="}, describe(members))
		require.NoError(w, m.Close())
	})
}

func TestNew_InvalidParameters(t *testing.T) {
	runTest(t, func(w fixture) {
		conn := w.connect()
		_, err := New(nil, dir)
		require.ErrorIs(w, err, recipes.ErrInvalid)
		_, err = New(conn, "workers")
		require.ErrorIs(w, err, recipes.ErrInvalid)
		_, err = NewPersistent(conn, "/", nil)
		require.ErrorIs(w, err, recipes.ErrInvalid)
		for _, id := range []string{"", "a/b", "..", "\x00"} {
			_, err = w.group(conn).Join(w.Context(), id, nil)
			require.ErrorIs(w, err, recipes.ErrInvalid, "%q", id)
		}
		require.Equal(w, "/\n", w.srv.Tree())
	})
}

// Join waits while another member has the ID. Fails if it leaves a znode or a watch behind when its
// context is done.
func TestJoin_ContextIsDone(t *testing.T) {
	runTest(t, func(w fixture) {
		m := w.join(w.connect(), "one", "first")
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		_, err := w.group(w.connect()).Join(ctx, "one", []byte("second"))
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.NoError(w, m.Close())
		settle()
		require.Equal(w, empty, w.srv.Tree())
		require.Empty(w, w.srv.Watches())
	})
}
