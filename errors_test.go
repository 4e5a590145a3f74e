package leaderelection

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// TestRefine fails if an error of the client library is not wrapped by the error that describes it,
// or is wrapped twice.
func TestRefine(t *testing.T) {
	for cause, want := range map[error]error{
		fmt.Errorf("x: %w", zk.ErrNoAuth): ErrPermission,
		zk.ErrAuthFailed:                  ErrPermission,
		zk.ErrInvalidACL:                  ErrPermission,
		zk.ErrInvalidPath:                 ErrInvalid,
	} {
		err := refine(cause)
		require.ErrorIs(t, err, want)
		require.ErrorIs(t, err, cause)
		require.Equal(t, err, refine(err))
	}
	for _, err := range []error{nil, zk.ErrBadVersion, ErrElectionOver} {
		require.Equal(t, err, refine(err))
	}
}

// TestCheckNode fails if a path is accepted that ZooKeeper rejects, or the other way round.
func TestCheckNode(t *testing.T) {
	require.ErrorIs(t, checkNode(nil, "/election"), ErrInvalid)
	conn := new(zk.Conn)
	for _, node := range []string{"", "/", "election", "/a/", "//a", "/a//b", "/a/./b", "/a/../b", "/a/..", "/a\x00b", "/a\u0085b", "/\ufff0", "/a/\U0001f402", "/a\xffb", "/" + strings.Repeat("a", 4096)} {
		require.ErrorIs(t, checkNode(conn, node), ErrInvalid, "%q", node)
	}
	for _, node := range []string{"/election", "/a/b.c/..d", "/käse/選挙", "/a b", "/" + strings.Repeat("a", 4095)} {
		require.NoError(t, checkNode(conn, node), "%q", node)
	}
}
