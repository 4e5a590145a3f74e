package lock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestWithNamePrefix_ExcludesProgramsWithSameNames checks that a mutex with the names of a hand-written lock,
// or of zk.Lock, and clients of that lock exclude each other, in the order of arrival.
func TestWithNamePrefix_ExcludesProgramsWithSameNames(t *testing.T) {
	for prefix, create := range map[string]func(*zk.Conn) (string, error){
		"guard-": func(conn *zk.Conn) (string, error) {
			return conn.Create("/lock/guard-", []byte("theirs"), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		},
		"_c_*-lock-": func(conn *zk.Conn) (string, error) {
			return conn.CreateProtectedEphemeralSequential("/lock/lock-", []byte("theirs"), zk.WorldACL(zk.PermAll))
		},
	} {
		t.Run(prefix, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.Start(t)
				conn, theirs := bubble.Connect(t, srv, timeout), bubble.Connect(t, srv, timeout)
				m, err := NewMutex(conn, "/lock", WithNamePrefix(prefix), recipes.WithSessionTimeout(timeout))
				require.NoError(t, err)
				first, err := m.Lock(t.Context())
				require.NoError(t, err)
				second, err := create(theirs)
				require.NoError(t, err)
				children, _, err := theirs.Children("/lock")
				require.NoError(t, err)
				require.Len(t, children, 2)
				for _, child := range children { // programs with zk.Lock recognize both znodes, because their names have the same form
					require.Regexp(t, map[string]string{"guard-": `^guard-\d{10}$`, "_c_*-lock-": `^_c_[0-9a-f]{32}-lock-\d{10}$`}[prefix], child)
				}

				third := make(chan *Hold, 1)
				srv.After(zktest.Match{Op: zktest.OpCreate, Session: conn.SessionID(), Nth: 1}, zktest.Cut)
				go func() {
					h, err := m.Lock(t.Context())
					require.NoError(t, err)
					third <- h
				}()
				time.Sleep(time.Minute)
				require.NoError(t, first.Release())
				time.Sleep(time.Minute)
				require.Empty(t, third, "the other program holds the lock")
				require.NoError(t, theirs.Delete(second, -1))
				h := <-third
				_, err = h.Multi()
				require.NoError(t, err)
				require.NoError(t, h.Release())
				children, _, err = theirs.Children("/lock")
				require.NoError(t, err)
				require.Empty(t, children)
			})
		})
	}
}

// TestWithNamePrefix_RejectsInvalidPrefixOrCombination checks that WithNamePrefix is rejected with an invalid
// prefix, and together with an option that requires other names.
func TestWithNamePrefix_RejectsInvalidPrefixOrCombination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := bubble.Connect(t, zktest.Start(t), timeout)
		for _, opts := range [][]Option{
			{WithNamePrefix("a/b")},
			{WithNamePrefix("held-w-\x00")},
			{WithNamePrefix("x-"), WithLockDelay(time.Second)},
			{WithNamePrefix("x-"), recipes.WithKazooLayout()},
		} {
			_, err := NewMutex(conn, "/lock", opts...)
			require.ErrorIs(t, err, recipes.ErrInvalid)
			require.ErrorContains(t, err, "WithNamePrefix")
		}
		_, err := NewRWMutex(conn, "/lock", WithNamePrefix("x-"))
		require.ErrorIs(t, err, recipes.ErrInvalid)
	})
}
