package raftlog_test

// Disks that have no space for a while. No peer stops, and none needs a restart.

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// fill proposes updates until even the shortest one is rejected, and returns those that were applied.
func fill(t *testing.T, n *raftlog.Node, before ...string) (applied []string) {
	t.Helper()
	applied = before
	size := 1000
	for i := range 1000 {
		update := fmt.Sprintf("%0*d", size, i)
		_, err := n.Propose(within(t, time.Minute), requestid.New(), []byte(update))
		if errors.Is(err, api.ErrNoSpace) {
			require.NotErrorIs(t, err, api.ErrUnknownOutcome)
			if size == 1 {
				return applied
			}
			size = 1 // what is left
			continue
		}
		require.NoError(t, err)
		applied = append(applied, update)
	}
	t.Fatal("it has room for ever")
	return nil
}

// TestDisksAreFull: equal disks are full at the same time. Updates are rejected; elections, the
// log's too, go on in the rest of the segment.
func TestDisksAreFull(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		leader := w.leader(t)
		c := stand(t, w.node(leader), "e")
		c.awaitLeader(t)
		for _, p := range w.peers { // for small files, and not for a segment
			w.disks[p.ID].SetSpace(w.disks[p.ID].Used() + 16<<10)
		}
		applied := fill(t, w.node(w.others(leader)[0]))
		require.Greater(t, len(applied), 40, "of a segment of 64 KiB most was used")
		require.True(t, c.leads())
		other := stand(t, w.node(w.others(leader)[0]), "e")
		require.NoError(t, c.Resign())
		other.awaitLeader(t)

		require.NoError(t, w.stop(leader))
		w.start(leader)
		leader = w.leader(t)
		require.NoError(t, w.node(w.others(leader)[0]).Sync(within(t, time.Minute)))
		applied = fill(t, w.node(leader), applied...) // it may have some room left
		// Nor do they stop when all of the segment is used.
		for i := range 300 {
			if err := raftlog.DeleteElection(within(t, 300*time.Millisecond), w.node(leader), fmt.Sprint("job ", i)); err != nil {
				break
			}
			require.Less(t, i, 299)
		}
		time.Sleep(10 * time.Second)
		for _, n := range w.all() {
			require.NoError(t, n.Err())
		}
		for _, p := range w.peers {
			w.disks[p.ID].SetSpace(-1)
		}
		time.Sleep(2 * time.Second)
		w.propose(t, w.peers[0], "there is space")
		w.has(t, w.peers, append(applied, "there is space")...)
	})
}

// TestLeadersDiskIsFull: the leader's disk alone.
func TestLeadersDiskIsFull(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		leader := w.leader(t)
		w.disks[leader.ID].SetSpace(0)
		applied := fill(t, w.node(leader))
		require.NoError(t, w.node(leader).Err())
		w.disks[leader.ID].SetSpace(-1)
		time.Sleep(2 * time.Second)
		w.propose(t, leader, "there is space")
		w.has(t, w.peers, append(applied, "there is space")...)
	})
}

// TestFollowersDiskIsFull: a peer that cannot write the log neither stops nor stands in the way of the
// others, and votes. When there is space it gets what it lacks.
func TestFollowersDiskIsFull(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		leader := w.leader(t)
		p := w.others(leader)[0]
		w.disks[p.ID].SetSpace(0)
		var updates []string
		for i := range 200 {
			updates = append(updates, fmt.Sprintf("%01000d", i))
		}
		w.propose(t, leader, updates...)
		require.NoError(t, w.node(p).Err())
		time.Sleep(5 * time.Second)
		has := len(w.sm(p).all())
		require.Less(t, has, 200)

		// The two that are left elect a leader with the full one's vote. It can commit nothing.
		w.crash(leader)
		second := w.others(leader, p)[0]
		await(t, "the other one is elected", func() bool { return w.node(second).Info().Role == "leader" })
		require.Equal(t, has, len(w.sm(p).all()))
		_, err := w.node(second).Propose(within(t, 5*time.Second), requestid.New(), []byte("no majority has space"))
		require.Error(t, err)

		w.disks[p.ID].SetSpace(-1)
		w.leader(t)
		w.start(leader)
		w.propose(t, leader, "there is space")
		for _, p := range w.peers {
			require.NoError(t, w.node(p).Sync(within(t, time.Minute)))
			all := w.sm(p).all()
			require.Equal(t, updates, all[:200])
			require.Equal(t, "there is space", all[len(all)-1])
		}
	})
}
