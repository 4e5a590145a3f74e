package group

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
)

// A member whose data the connection cannot receive is reported as such, and its data are
// once they can be.
func TestMemberTooLarge(t *testing.T) {
	play(t, func(w world) {
		big, _, err := w.srv.Connect(timeout)
		require.NoError(w, err)
		large, err := w.group(big).Join(w.Context(), "large", make([]byte, 100<<10))
		require.NoError(w, err)
		g := w.group(w.connect())
		views := g.Changes(w.Context())
		members := (<-views).Members
		require.Len(w, members, 1)
		require.Equal(w, "large", members[0].ID)
		require.Nil(w, members[0].Data)
		require.ErrorIs(w, members[0].Err, recipes.ErrTooLarge)
		require.NotZero(w, members[0].Token)
		members, err = g.Members(w.Context())
		require.NoError(w, err)
		require.ErrorIs(w, members[0].Err, recipes.ErrTooLarge)

		w.join(w.connect(), "small", "data")
		time.Sleep(time.Second)
		members = (<-views).Members
		require.Len(w, members, 2)
		require.NoError(w, members[1].Err)

		err = large.Set(w.Context(), []byte("less"))
		require.NoError(w, err)
		time.Sleep(time.Second)
		members = (<-views).Members
		require.NoError(w, members[0].Err)
		require.Equal(w, "less", string(members[0].Data))
	})
}

// A group that has more members than the connection can receive is an error.
func TestGroupTooLarge(t *testing.T) {
	play(t, func(w world) {
		big, _, err := w.srv.Connect(timeout)
		require.NoError(w, err)
		_, err = w.group(big).Join(w.Context(), "one", nil)
		require.NoError(w, err)
		for range 3000 {
			_, err := big.Create(dir+"/member-with-a-long-name-", nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
			require.NoError(w, err)
		}
		_, err = w.group(w.connect()).Members(w.Context())
		require.ErrorIs(w, err, recipes.ErrTooLarge)
	})
}
