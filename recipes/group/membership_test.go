package group

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// TestJoin_CreatesZnodeOfKazooParty checks that Join with WithKazooLayout creates the znode that kazoo's Party
// creates, and rejects data, for which Party has no place.
func TestJoin_CreatesZnodeOfKazooParty(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn := w.Connect()
		g := newGroup(w, conn, recipes.WithKazooLayout())
		m, err := g.Join(w.Context(), "host/7", nil)
		require.NoError(w, err)
		_, err = g.Join(w.Context(), "host/8", []byte("data"))
		require.ErrorIs(w, err, recipes.ErrInvalid)
		require.ErrorIs(w, m.Set(w.Context(), nil), recipes.ErrInvalid)
		require.Regexp(w, `workers container\n      [0-9a-f]{32}__party__ "host/7" ephemeral`, w.Server.Tree())
		_, err = conn.Create(dir+"/other", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(w, err)
		members, err := g.Members(w.Context())
		require.NoError(w, err)
		require.Equal(w, []string{"host/7="}, describe(members))
		require.NoError(w, m.Close())
	})
}

// TestNew_RejectsInvalidParameters checks that New, NewPersistent and Join reject invalid parameters, and create
// no znode.
func TestNew_RejectsInvalidParameters(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		conn := w.Connect()
		_, err := New(nil, dir)
		require.ErrorIs(w, err, recipes.ErrInvalid)
		_, err = New(conn, "workers")
		require.ErrorIs(w, err, recipes.ErrInvalid)
		_, err = NewPersistent(conn, "/", nil)
		require.ErrorIs(w, err, recipes.ErrInvalid)
		for _, id := range []string{"", "a/b", "..", "\x00"} {
			_, err = newGroup(w, conn).Join(w.Context(), id, nil)
			require.ErrorIs(w, err, recipes.ErrInvalid, "%q", id)
		}
		require.Equal(w, "/\n", w.Server.Tree())
	})
}

// TestJoin_LeavesNothingIfContextIsDone checks that Join leaves neither a znode nor a watch behind if its context
// is done while another member has the same ID.
func TestJoin_LeavesNothingIfContextIsDone(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		m := join(w, w.Connect(), "one", "first")
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		_, err := newGroup(w, w.Connect()).Join(ctx, "one", []byte("second"))
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.NoError(w, m.Close())
		bubble.Settle()
		require.Equal(w, emptyTree, w.Server.Tree())
		require.Empty(w, w.Server.Watches())
	})
}
