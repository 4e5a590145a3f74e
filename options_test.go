package leaderelection

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/line"
	"github.com/go-leaderelection/leaderelection/internal/request"
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
		line.ErrEnded:                     ErrElectionOver,
		line.ErrDeleted:                   ErrCandidateDeleted,
		line.ErrSessionExpired:            ErrSessionExpired,
		request.ErrClosed:                 ErrConnClosed,
		fmt.Errorf("x: %w", zk.ErrNoAuth): ErrPermission,
		zk.ErrInvalidACL:                  ErrPermission,
		line.ErrUnreachable:               ErrUnreachable,
	} {
		err := refine(cause)
		require.ErrorIs(t, err, want)
		require.Equal(t, err, refine(err), "refining twice changes nothing")
	}
	require.NoError(t, refine(nil))
	require.EqualError(t, refine(line.ErrEnded), ErrElectionOver.Error(), "it has nothing to add")
	require.ErrorIs(t, refine(fmt.Errorf("x: %w", zk.ErrNoAuth)), zk.ErrNoAuth, "it has")
	require.ErrorIs(t, refine(zk.ErrBadVersion), zk.ErrBadVersion)
}

func TestRoleAndStatusAreReadable(t *testing.T) {
	require.Equal(t, "follower", Role(0).String())
	require.Equal(t, "Role(9)", Role(9).String())
	grant, _ := NewLeadership(12, nil)
	require.Equal(t, "leader /e/n token 12 (was following /e/m)", Status{CandidateID: "/e/n", Role: Leader, Leadership: grant, WasFollowing: "/e/m"}.String())
	require.Equal(t, "follower /e/n following /e/m: session expired", Status{CandidateID: "/e/n", NowFollowing: "/e/m", Err: ErrSessionExpired}.String())
}
