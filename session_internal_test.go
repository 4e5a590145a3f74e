package leaderelection

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// joinWhileTheSessionEnds has a candidate create its znode, lose the answer to
// its first look at it, and stay cut off until its session is over.
func joinWhileTheSessionEnds(t *testing.T, opts ...Option) (*Election, *zktest.Server) {
	srv := zktest.Start(t)
	conn, _, err := srv.Connect(time.Second)
	require.NoError(t, err)
	opts = append(opts, WithCreateNode(), WithSessionTimeout(time.Second))
	e, err := NewElection(conn, "/election", opts...)
	require.NoError(t, err)
	srv.Before(zktest.Match{Op: zktest.OpGetChildren2, Path: "/election/_c_*", Nth: 1}, func(q *zktest.Request) zktest.Verdict {
		srv.Refuse(true)
		return zktest.Cut(q)
	})
	go e.ElectLeader()
	time.Sleep(3 * time.Second)
	srv.Refuse(false)
	return e, srv
}

func TestSessionEndsBeforeTheFirstLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := joinWhileTheSessionEnds(t)
		var last Status
		for s := range e.Status() {
			last = s
		}
		require.ErrorIs(t, last.Err, ErrSessionExpired)
	})
}

func TestSessionEndsBeforeTheFirstLookAndACandidateRejoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, srv := joinWhileTheSessionEnds(t, WithRejoin())
		for s := range e.Status() {
			require.NoError(t, s.Err)
			if s.Role == Leader {
				break
			}
		}
		require.Contains(t, srv.Tree(), "_c_")
		require.NoError(t, e.Resign())
		require.Equal(t, "/\n  election\n", srv.Tree())
	})
}
