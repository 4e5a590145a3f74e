package leaderelection

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

func TestInvalidOptionsAreRefused(t *testing.T) {
	var none context.Context
	for name, opt := range map[string]Option{
		"nil":              nil,
		"nil context":      WithContext(none),
		"nil logger":       WithLogger(nil),
		"no ACL":           WithACL(nil),
		"no timeout":       WithSessionTimeout(0),
		"negative timeout": WithSessionTimeout(-time.Second),
		"no interval":      WithCheckInterval(0),
		"unknown naming":   WithNaming("7"),
		"null in name":     WithClientName("a\x00b"),
		"large value":      WithValue(strings.Repeat("v", 64<<10+1)),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newOptions(nil, []Option{opt})
			require.ErrorIs(t, err, ErrInvalidOption)
			// Refused before the connection is even looked at.
			_, err = NewElection(nil, "/election", opt)
			require.ErrorIs(t, err, ErrInvalidOption)
			require.ErrorIs(t, DeleteElection(nil, "/election", opt), ErrInvalidOption)
		})
	}
}

func TestEmptyClientNameIsNamed(t *testing.T) {
	o, err := newOptions(nil, []Option{WithClientName("")})
	require.NoError(t, err)
	require.Equal(t, "name-not-provided", o.clientName)
}

func TestNodesThatCannotBeAreRefused(t *testing.T) {
	require.ErrorIs(t, checkNode(nil, "/election"), ErrNilConn)
	conn := new(zk.Conn)
	for _, node := range []string{"", "/", "election", "/a/", "//a", "/a//b", "/a/./b", "/a/../b", "/a/..", "/a\x00b", "/a\u0085b", "/\ufff0"} {
		require.ErrorIs(t, checkNode(conn, node), ErrInvalidPath, "%q", node)
	}
	for _, node := range []string{"/election", "/a/b.c/..d", "/käse/選挙", "/a b"} {
		require.NoError(t, checkNode(conn, node), "%q", node)
	}
}

func TestErrorsAreRefined(t *testing.T) {
	for cause, want := range map[error]error{
		fmt.Errorf("x: %w", zk.ErrNoAuth): ErrPermission,
		zk.ErrAuthFailed:                  ErrPermission,
		zk.ErrInvalidACL:                  ErrPermission,
		zk.ErrInvalidPath:                 ErrInvalidPath,
	} {
		err := refine(cause)
		require.ErrorIs(t, err, want)
		require.ErrorIs(t, err, cause)
		require.Equal(t, err, refine(err), "refining twice changes nothing")
	}
	for _, err := range []error{nil, zk.ErrBadVersion, ErrElectionOver} {
		require.Equal(t, err, refine(err), "there is nothing to add")
	}
}

func TestRoleAndStatusAreReadable(t *testing.T) {
	require.Equal(t, "follower", Role(0).String())
	require.Equal(t, "Role(9)", Role(9).String())
	grant, _ := NewLeadership(12, nil)
	require.Equal(t, "leader /e/n token 12 (was following /e/m)", Status{CandidateID: "/e/n", Role: Leader, Leadership: grant, WasFollowing: "/e/m"}.String())
	require.Equal(t, "follower /e/n following /e/m: session expired", Status{CandidateID: "/e/n", NowFollowing: "/e/m", Err: ErrSessionExpired}.String())
}
