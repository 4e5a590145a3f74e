package integrationtest

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
)

// The same by EndElection of the leader and of a follower at once, with 1,000
// that come meanwhile: it may take more than the two seconds of one call.
func TestEndElectionRace(t *testing.T) {
	runDeletionRace(t, 20, 1000, func(_ *client, _ string, all []*candidate) {
		var follower sync.WaitGroup
		follower.Go(func() { electiontest.Confirm(t, all[len(all)-1].EndElection) })
		electiontest.Confirm(t, all[0].EndElection)
		follower.Wait()
	})
}

// runDeletionRace keeps the server so busy that no other test should run beside
// it. It has candidates join while an election is
// ended: before of them take part already, meanwhile come during the end.
func runDeletionRace(t *testing.T, before, meanwhile int, end func(*client, string, []*candidate)) {
	t.Helper()
	owner := connect(t)
	node := createElectionNode(t, owner)
	var conns []*client
	for range 10 {
		conns = append(conns, connectDirectly(t))
	}
	enlisted := make([]*candidate, before)
	for i := range enlisted {
		enlisted[i] = newCandidate(t, conns[i%len(conns)], node)
		enlisted[i].startElecting()
	}
	for _, c := range enlisted {
		require.NoError(t, c.nextStatus(t).Err)
	}
	// Half of the others exist already, half are made meanwhile.
	late := make([]*candidate, meanwhile)
	for i := range meanwhile / 2 {
		late[i] = newCandidate(t, conns[i%len(conns)], node)
	}
	refused := make([]error, meanwhile)
	var wg sync.WaitGroup
	for i := range meanwhile {
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
	end(owner, node, enlisted)
	wg.Wait()

	told := 0
	for i, c := range append(late, enlisted...) {
		if c == nil {
			require.ErrorIs(t, refused[i], leaderelection.ErrNoElection)
			continue
		}
		told++
		all := c.remainingStatuses(t)
		require.NotEmpty(t, all)
		require.ErrorIs(t, all[len(all)-1].Err, leaderelection.ErrElectionOver)
		require.ErrorIs(t, c.waitResult(t), leaderelection.ErrElectionOver)
		electiontest.Confirm(t, c.Resign)
	}
	t.Logf("%d candidates were told of the end, %d found no election", told, before+meanwhile-told)
	require.False(t, znodeExists(t, owner, node))
	dump, err := shared.FourLetter(0, "dump")
	require.NoError(t, err)
	require.NotContains(t, dump, node+"/", "a znode is left")
}

// Case: Delete Election Race, 500 candidates and 500 that come meanwhile.
func TestDeleteElectionRace(t *testing.T) {
	runDeletionRace(t, 500, 500, func(conn *client, node string, _ []*candidate) {
		require.NoError(t, leaderelection.DeleteElection(conn.Conn, node))
	})
}
