package integrationtest

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

// closes is the number of rounds of TestClose_EndsLeadershipBeforeSuccessorLeads.
var closes = flag.Int("closes", 20, "number of connections that TestClose_EndsLeadershipBeforeSuccessorLeads closes")

// openConn opens a connection of zkdial to all servers, and waits until the connection has a session.
func openConn(t *testing.T, e *ensemble.Ensemble) *zk.Conn {
	conn, _, err := zkdial.Connect(e.Addrs(), sessionTimeout)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = zkdial.Wait(ctx, conn)
	require.NoError(t, err)
	return conn
}

// TestClose_EndsLeadershipBeforeSuccessorLeads checks that the leadership of a leader whose connection is closed has
// ended, as its Err reports, when the successor becomes leader.
func TestClose_EndsLeadershipBeforeSuccessorLeads(t *testing.T) {
	t.Parallel()
	e := threeServers.acquire(t)
	other := openConn(t, e)
	defer other.Close()
	await := func(e *leaderelection.Election, role leaderelection.Role) leaderelection.Status {
		for s := range e.Status() {
			if s.Role == role && (s.Leadership != nil || s.NowFollowing != "") {
				return s
			}
		}
		require.Fail(t, "the candidacy is over", "%v", e.ElectLeader())
		return leaderelection.Status{}
	}
	overlaps := 0
	for i := range *closes {
		node := fmt.Sprintf("/closed%d", i)
		join := func(conn *zk.Conn) *leaderelection.Election {
			candidate, err := leaderelection.NewElection(conn, node, leaderelection.WithCreateNode())
			require.NoError(t, err)
			go candidate.ElectLeader()
			return candidate
		}
		conn := openConn(t, e)
		old := await(join(conn), leaderelection.Leader).Leadership
		successor := join(other)
		await(successor, leaderelection.Follower)
		go conn.Close()
		await(successor, leaderelection.Leader)
		switch err := old.Err(); {
		case err == nil:
			overlaps++
		default:
			require.ErrorIs(t, err, leaderelection.ErrConnClosed, "round %d", i)
		}
		require.NoError(t, successor.Resign())
	}
	require.Zero(t, overlaps, "of %d closes", *closes)
}
