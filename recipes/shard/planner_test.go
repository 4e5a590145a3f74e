package shard

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/group"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/recipes/value"
)

// lockedPlanner returns a planner that has not planned yet, and the hold of the leader's lock, which makes the
// planner the leader.
func lockedPlanner(w *bubble.Test) (*planner, *lock.Hold) {
	g := newGroup(w, connect(w))
	mutex, err := lock.NewMutex(g.setup.Conn, dir+"/leader")
	require.NoError(w, err)
	hold, err := mutex.Lock(context.Background())
	require.NoError(w, err)
	p := newPlanner(g, hold)
	p.members = map[string]record{"a": {Weight: 1}}
	p.spec = &value.Change[Spec]{Value: Spec{Shards: []string{"s"}}}
	return p, hold
}

// TestPlanner_FormerLeaderKeepsPlanOfSuccessor checks that a former leader that has not noticed that its
// term has ended does not replace the plan of its successor.
func TestPlanner_FormerLeaderKeepsPlanOfSuccessor(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		former, hold := lockedPlanner(w)
		require.NoError(w, former.read(w.Context()))
		require.NoError(w, connect(w).Delete(hold.Path(), -1))
		_, err := former.update(w.Context())
		require.ErrorIs(w, err, recipes.ErrNotHeld)
		plan, err := former.group.Plan(w.Context())
		require.NoError(w, err)
		require.Zero(w, plan.Version)
		require.NoError(w, hold.Release())
	})
}

// TestPlanner_LeavingLeaderDoesNotPlan checks that a leader does not plan while it leaves, because the channels
// from which it receives may be closed at that time.
func TestPlanner_LeavingLeaderDoesNotPlan(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		p, hold := lockedPlanner(w)
		require.NoError(w, p.read(w.Context()))
		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		_, err := p.update(ctx)
		require.ErrorIs(w, err, context.Canceled)
		require.ErrorIs(w, p.run(ctx), context.Canceled)
		plan, err := p.group.Plan(w.Context())
		require.NoError(w, err)
		require.Zero(w, plan.Version)
		require.NoError(w, hold.Release())
	})
}

// TestPlanner_DoesNotReplaceUnreadPlan checks that a leader that finds a plan that it has not read reads the plan
// instead of replacing it.
func TestPlanner_DoesNotReplaceUnreadPlan(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		p, hold := lockedPlanner(w)
		require.NoError(w, p.read(w.Context()))
		other := Plan{Version: 7, Members: []PlannedMember{{ID: "a", Weight: 1}}, Owners: map[string]string{"s": "a"}}
		data, err := encodePlan(other)
		require.NoError(w, err)
		_, err = connect(w).Set(dir+"/plan", data, -1)
		require.NoError(w, err)
		at, err := p.update(w.Context())
		require.NoError(w, err)
		require.Less(w, time.Until(at), time.Second)
		plan, err := p.group.Plan(w.Context())
		require.NoError(w, err)
		require.True(w, plan.equal(other))
		_, err = p.update(w.Context())
		require.NoError(w, err)
		require.Equal(w, other.Version, p.plan.Version, "it is read again, and is the same")
		require.NoError(w, bubble.Repeated(hold.Release))
	})
}

// TestPlanner_OmitsRemovedShardsThatDoNotFit checks that a leader can write a plan although the names of all
// removed shards would make the plan too large.
func TestPlanner_OmitsRemovedShardsThatDoNotFit(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		p, hold := lockedPlanner(w)
		require.NoError(w, p.read(w.Context()))
		p.plan.Owners = map[string]string{}
		for i, name := range numberedNames(strings.Repeat("x", 60), 10_000) {
			p.plan.Owners[name] = "a"
			p.spec.Value.Shards = append(p.spec.Value.Shards, fmt.Sprintf("y%s%d", name, i))
		}
		require.NoError(w, p.spec.Value.normalize())
		p.plan.SpecZxid = 1
		_, err := p.update(w.Context())
		require.NoError(w, err)
		plan, err := p.group.Plan(w.Context())
		require.NoError(w, err)
		require.Len(w, plan.Owners, 10_001)
		require.Empty(w, plan.Moves)
		version := plan.Version
		_, err = p.update(w.Context())
		require.NoError(w, err)
		require.Equal(w, version, p.plan.Version, "nothing has changed")
		require.NoError(w, bubble.Repeated(hold.Release))
	})
}

// TestRecordsOf_IgnoresForeignZnodes checks that recordsOf ignores znodes of other programs: such a znode must not
// become an owner, and must not prevent later plans.
func TestRecordsOf_IgnoresForeignZnodes(t *testing.T) {
	all := func(data string, session int64) map[string]record {
		return recordsOf([]group.Member{{ID: "a", Data: []byte(data), Session: session}})
	}
	require.Len(t, all(`{"weight":1,"confirmed":7}`, 1), 1)
	require.Empty(t, all(`{"weight":1}`, 0), "it is persistent")
	for _, data := range []string{
		`?`, `{}`, `{"weight":-1}`, `{"weight":1,"zone":"` + strings.Repeat("z", 257) + `"}`,
		`{"weight":1,"confirmed":-1}`, `{"weight":1,"confirmed":1152921504606846976}`,
	} {
		require.Empty(t, all(data, 1), data)
	}
}

// TestPlanner_ReturnsErrPermission checks that update returns ErrPermission if the leader is not permitted to
// write plans, so that the leader gives up its leadership.
func TestPlanner_ReturnsErrPermission(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		p, hold := lockedPlanner(w)
		_, err := connect(w).Create(dir+"/plan", nil, 0, zk.WorldACL(zk.PermRead))
		require.NoError(w, err)
		_, err = p.update(w.Context())
		require.ErrorIs(w, err, recipes.ErrPermission)
		require.NoError(w, bubble.Repeated(hold.Release))
	})
}
