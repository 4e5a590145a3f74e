package integrationtest

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
)

// TestEndElection_NotifiesConcurrentCandidates checks that EndElection, which the leader and a follower call while
// 1,000 candidates join, notifies every candidate and leaves no znode. A call that takes longer than two seconds
// returns before the end is confirmed, so the test repeats the call.
func TestEndElection_NotifiesConcurrentCandidates(t *testing.T) {
	runDeletionRace(t, 20, 1000, func(_ *client, _ string, all []*candidate) {
		var follower sync.WaitGroup
		follower.Go(func() { electiontest.Confirm(t, all[len(all)-1].EndElection) })
		electiontest.Confirm(t, all[0].EndElection)
		follower.Wait()
	})
}

// runDeletionRace calls the function end, which ends an election, while candidates take part in the election: some
// have joined before, and others join at the same time. runDeletionRace keeps the server so busy that no other test
// should run in parallel.
func runDeletionRace(t *testing.T, existing, joining int, end func(*client, string, []*candidate)) {
	t.Helper()
	owner := connect(t)
	node := createElectionNode(t, owner)
	var conns []*client
	for range 10 {
		conns = append(conns, connectDirectly(t))
	}
	joined := make([]*candidate, existing)
	for i := range joined {
		joined[i] = newCandidate(t, conns[i%len(conns)], node)
		joined[i].startElecting()
	}
	for _, c := range joined {
		require.NoError(t, c.nextStatus(t).Err)
	}
	// Half of the joining candidates are created before the call of end, and the others while end runs.
	late := make([]*candidate, joining)
	for i := range joining / 2 {
		late[i] = newCandidate(t, conns[i%len(conns)], node)
	}
	refused := make([]error, joining)
	var wg sync.WaitGroup
	for i := range joining {
		wg.Go(func() {
			if late[i] == nil {
				e, err := leaderelection.NewElection(conns[i%len(conns)].Conn, node, leaderelection.WithSessionTimeout(sessionTimeout))
				if err != nil {
					refused[i] = err
					return
				}
				late[i] = &candidate{Election: e, returned: make(chan struct{})}
			}
			late[i].startElecting()
		})
	}
	end(owner, node, joined)
	wg.Wait()

	notified := 0
	for i, c := range append(late, joined...) {
		if c == nil {
			require.ErrorIs(t, refused[i], leaderelection.ErrNoElection)
			continue
		}
		notified++
		all := c.remainingStatuses(t)
		require.NotEmpty(t, all)
		require.ErrorIs(t, all[len(all)-1].Err, leaderelection.ErrElectionOver)
		require.ErrorIs(t, c.waitResult(t), leaderelection.ErrElectionOver)
		electiontest.Confirm(t, c.Resign)
	}
	t.Logf("%d candidates were notified, %d found no election", notified, existing+joining-notified)
	require.False(t, znodeExists(t, owner, node))
	dump, err := shared.FourLetter(0, "dump")
	require.NoError(t, err)
	require.NotContains(t, dump, node+"/", "a znode is left")
}

// TestDeleteElection_NotifiesConcurrentCandidates checks that DeleteElection notifies every candidate and leaves no
// znode, with 500 candidates that have joined before and 500 that join at the same time.
func TestDeleteElection_NotifiesConcurrentCandidates(t *testing.T) {
	runDeletionRace(t, 500, 500, func(conn *client, node string, _ []*candidate) {
		require.NoError(t, leaderelection.DeleteElection(conn.Conn, node))
	})
}
