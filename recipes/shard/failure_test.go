package shard

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestRun_CrashMovesShards checks that the shards of a crashed member have a new owner soon after its session has
// expired. In some of the cases, the leader m0 crashes.
func TestRun_CrashMovesShards(t *testing.T) {
	for _, crashes := range [][]int{{0}, {1}, {0, 1, 2}} {
		t.Run(fmt.Sprint(crashes), func(t *testing.T) {
			bubble.Run(t, func(w *bubble.Test) {
				r := newRecorder(w)
				setShards(w, 60)
				var workers []*worker
				for _, id := range numberedIDs(6) {
					workers = append(workers, r.start(id, 0))
					bubble.Advance(time.Second)
				}
				bubble.Settle()
				r.requireEven(60, numberedIDs(6)...)
				begin := time.Now()
				for _, i := range crashes {
					workers[i].client.SetCut(true)
				}
				tick := 10 * time.Millisecond
				for len(r.currentOwners()) < 60 || slices.ContainsFunc(crashes, func(i int) bool { return r.loads()[workers[i].id] > 0 }) {
					time.Sleep(tick)
					require.Less(t, time.Since(begin), time.Minute)
				}
				t.Logf("%d members crash: owned again after a session timeout and %v", len(crashes), time.Since(begin)-timeout)
				require.LessOrEqual(t, time.Since(begin), timeout+time.Second)
				plan, err := newGroup(w, connect(w)).Plan(w.Context())
				require.NoError(t, err)
				for _, m := range plan.Moves {
					require.Equal(t, Lost, m.Reason)
				}
				for _, i := range crashes {
					workers[i].client.SetCut(false)
				}
				bubble.Settle()
				bubble.Settle()
				r.requireEven(60, numberedIDs(6)...)
				for _, k := range workers {
					k.leave(w)
				}
			})
		})
	}
}

// TestRun_KeepsShardsWhileOtherMemberJoinsAndLeaves checks that two members do not own the same shard while a
// third member joins and leaves repeatedly, and that the two lose no more shards than necessary (kazoo #271, #283,
// #298, #392).
// Scenario 51 of docs/traps.md.
func TestRun_KeepsShardsWhileOtherMemberJoinsAndLeaves(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		r := newRecorder(w)
		setShards(w, 12)
		a, b := r.start("a", 100*time.Millisecond), r.start("b", 100*time.Millisecond)
		bubble.Settle()
		kept := r.currentOwners()
		flapping := connect(w)
		for range 20 {
			c := r.startOn(flapping, "c", 100*time.Millisecond)
			time.Sleep(700 * time.Millisecond)
			c.leave(w)
			for shard, owner := range r.currentOwners() {
				if kept[shard] != owner {
					delete(kept, shard)
				}
			}
		}
		bubble.Settle()
		r.requireEven(12, "a", "b")
		require.GreaterOrEqual(w, len(kept), 8, "shards that have never moved to another member that stays")
		a.leave(w)
		b.leave(w)
	})
}

// TestRun_DividesShardsWithoutLeader checks that the members divide the shards evenly while no member can become
// the leader.
func TestRun_DividesShardsWithoutLeader(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		foreign, err := lock.NewMutex(connect(w), dir+"/leader")
		require.NoError(w, err)
		hold, err := foreign.Lock(w.Context())
		require.NoError(w, err)
		r := newRecorder(w)
		setShards(w, 20)
		var workers []*worker
		for _, id := range numberedIDs(3) {
			workers = append(workers, r.start(id, 0))
		}
		bubble.Settle()
		require.Len(w, r.currentOwners(), 20)
		require.ElementsMatch(w, []int{6, 7, 7}, slices.Collect(maps.Values(r.loads())))
		before := r.currentOwners()
		crashed := workers[2]
		crashed.client.SetCut(true)
		bubble.Settle()
		require.Equal(w, map[string]int{"m0": 10, "m1": 10}, r.loads())
		crashed.client.SetCut(false)
		bubble.Settle()
		require.Len(w, r.currentOwners(), 20)
		require.ElementsMatch(w, []int{6, 7, 7}, slices.Collect(maps.Values(r.loads())))
		require.Equal(w, before, r.currentOwners(), "it is computed from the same plan")
		require.NoError(w, hold.Release())
		bubble.Settle()
		r.requireEven(20, numberedIDs(3)...)
		require.Equal(w, before, r.currentOwners())
		for _, k := range workers {
			k.leave(w)
		}
	})
}

// TestRun_KeepsOwnersDuringRollingRestart checks that no shard changes its owner while 20 members restart one
// after another, and that no member runs a shard whose owner is away.
func TestRun_KeepsOwnersDuringRollingRestart(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		r := newRecorder(w)
		setShards(w, 100, func(s *Spec) { s.RestartDelay = time.Minute })
		workers := map[string]*worker{}
		for i, id := range numberedIDs(20) {
			workers[id] = r.start(id, time.Duration(i%2)*50*time.Millisecond, WithRestart())
		}
		bubble.Settle()
		r.requireEven(100, numberedIDs(20)...)
		before := r.currentOwners()
		require.Equal(w, 100, r.count)
		for _, id := range numberedIDs(20) {
			workers[id].leave(w)
			workers[id].client.Conn.Close()
			time.Sleep(10 * time.Second)
			require.Len(w, r.currentOwners(), 95)
			workers[id] = r.start(id, 50*time.Millisecond, WithRestart())
			time.Sleep(2 * time.Second)
			require.Equal(w, before, r.currentOwners())
		}
		require.Equal(w, 200, r.count, "each shard was granted once more, to the same member")

		// Stop the member m7, which does not return.
		workers["m7"].leave(w)
		time.Sleep(50 * time.Second)
		require.Len(w, r.currentOwners(), 95)
		time.Sleep(12 * time.Second)
		require.Len(w, r.currentOwners(), 100)
		delete(workers, "m7")
		for _, k := range workers {
			k.stop()
		}
		for _, k := range workers {
			require.NoError(w, <-k.done)
		}
	})
}

// TestRun_MaxMovesLimitsMoves checks that no more shards than MaxMoves permits lack an owner at the same time, and
// that a member that cannot lock its shards does not stop all moves.
func TestRun_MaxMovesLimitsMoves(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		r := newRecorder(w)
		setShards(w, 12, func(s *Spec) { s.MaxMoves = 2 })
		operator := connect(w)
		_, err := operator.Create(dir+"/locks", nil, 0, openACL)
		require.NoError(w, err)
		for _, shard := range numberedNames("s", 12) {
			_, err := operator.Create(dir+"/locks/"+shard, nil, 0, openACL)
			require.NoError(w, err)
		}
		a := r.start("a", time.Second)
		bubble.Settle()
		b := r.start("b", time.Second)
		for len(r.loads()) < 2 || r.loads()["b"] < 6 {
			require.GreaterOrEqual(w, len(r.currentOwners()), 10)
			require.LessOrEqual(w, r.countRequested(), 2)
			time.Sleep(100 * time.Millisecond)
		}
		bubble.Settle()
		r.requireEven(12, "a", "b")

		// Forbid the member b to lock the shards of a.
		for shard, owner := range r.currentOwners() {
			if owner == "a" {
				_, err := operator.SetACL(dir+"/locks/"+shard, zk.WorldACL(zk.PermRead|zk.PermDelete|zk.PermWrite|zk.PermAdmin), -1)
				require.NoError(w, err)
			}
		}
		updateSpec(w, func(s *Spec) { s.Drained = []string{"a"} })
		time.Sleep(5 * time.Minute)
		require.Equal(w, map[string]int{"b": 6}, r.loads(), "the rounds continue")
		for _, shard := range numberedNames("s", 12) {
			_, err := operator.SetACL(dir+"/locks/"+shard, openACL, -1)
			require.NoError(w, err)
		}
		time.Sleep(2 * time.Minute)
		require.Equal(w, map[string]int{"b": 12}, r.loads())
		a.leave(w)
		b.leave(w)
	})
}

// TestRun_KeepsShardsDespiteForeignWrites checks that members keep their shards when another program deletes or
// overwrites the plan or the Spec, or creates a znode beside the members, and that the leader repairs the plan.
func TestRun_KeepsShardsDespiteForeignWrites(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		r := newRecorder(w)
		setShards(w, 9)
		a := r.start("a", 0)
		bubble.Settle()
		b := r.start("b", 0)
		bubble.Settle()
		require.Equal(w, 13, r.count)
		operator := connect(w)
		for name, spoil := range map[string]func() error{
			"delete the plan": func() error { return operator.Delete(dir+"/plan", -1) },
			"overwrite the plan": func() error {
				_, err := operator.Set(dir+"/plan", []byte("{"), -1)
				return err
			},
			"overwrite the spec": func() error {
				_, err := operator.Set(dir+"/spec", []byte("{"), -1)
				return err
			},
			"write a spec that is not sorted": func() error {
				shards := append(numberedNames("s", 9), numberedNames("s", 9)...)
				slices.Reverse(shards)
				_, err := newGroup(w, operator).spec.Set(w.Context(), Spec{Shards: shards})
				return err
			},
			"write a spec that is not valid": func() error {
				_, err := newGroup(w, operator).spec.Set(w.Context(), Spec{MaxMoves: -1})
				return err
			},
			"add a record": func() error {
				_, err := operator.Create(dir+"/members/y", []byte(`{"weight":1}`), 0, openACL)
				return err
			},
			"add a member": func() error {
				_, err := operator.Create(dir+"/members/x", []byte("?"), 0, openACL)
				return err
			},
		} {
			require.NoError(w, spoil(), name)
			bubble.Settle()
			bubble.Settle()
			r.requireEven(9, "a", "b")
			require.Equal(w, 13, r.count, name)
		}
		a.leave(w)
		b.leave(w)
	})
}

// TestMember_EndsWhenConnectionIsClosed checks that a member ends and its shards become invalid when the
// connection is closed.
func TestMember_EndsWhenConnectionIsClosed(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		setShards(w, 3)
		conn := connect(w)
		m, err := newGroup(w, conn).Join(w.Context(), "a")
		require.NoError(w, err)
		bubble.Settle()
		all := (<-m.Owned()).Shards
		require.Len(w, all, 3)
		conn.Close()
		<-m.Done()
		require.ErrorIs(w, m.Err(), recipes.ErrConnClosed)
		for _, s := range all {
			require.Error(w, s.Err())
		}
		bubble.Settle() // wait until the goroutines of the contenders have ended
	})
}

// TestWatch_DeliversPlansWithFewWatches checks that Watch delivers the changes of the plan to a router, that the
// number of its watches does not grow with the number of shards or members, and that members that have left leave
// few watches behind.
func TestWatch_DeliversPlansWithFewWatches(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		r := newRecorder(w)
		setShards(w, 50)
		router := connect(w)
		maps := newGroup(w, router).Watch(w.Context())
		require.Zero(w, (<-maps).Version)
		conn := connect(w)
		for range 20 {
			k := r.startOn(conn, "a", 0)
			bubble.Settle()
			seen := <-maps
			require.NoError(w, seen.Cause)
			require.Len(w, seen.Owners, 50)
			require.LessOrEqual(w, bubble.Watches(router), 4)
			k.leave(w)
			bubble.Settle()
			<-maps
			// Allow eight channels for the watch of the Spec, which the leader sets again in each
			// term: docs/design.md explains this limit.
			require.LessOrEqual(w, bubble.Watches(conn), 9)
			require.LessOrEqual(w, len(w.Server.Watches()), 3)
		}
		router.Close()
		require.ErrorIs(w, (<-maps).Err, recipes.ErrConnClosed)
	})
}

// TestGroup_IdleMembersSendFewRequests checks that an idle member does not send more requests when there are more
// shards. The test does not count reads that verify watches.
func TestGroup_IdleMembersSendFewRequests(t *testing.T) {
	costs := map[int]float64{}
	for _, shards := range []int{10, 200} {
		bubble.Run(t, func(w *bubble.Test) {
			r := newRecorder(w)
			setShards(w, shards)
			var workers []*worker
			for _, id := range numberedIDs(5) {
				workers = append(workers, r.start(id, 0))
			}
			bubble.Settle()
			w.Server.ResetLog()
			time.Sleep(10 * time.Minute)
			requests, verified := 0, 0
			for _, e := range w.Server.Log() {
				switch {
				case e.Op == zktest.OpExists && e.Path != dir+"/spec":
					verified++
				case e.Op != zktest.OpPing:
					requests++
				}
			}
			// Allow one read of every watched znode in three minutes, by which the library verifies watches. An
			// owner watches the znodes of its locks.
			require.LessOrEqual(w, float64(verified)/10, float64(shards+5*4)/3)
			costs[shards] = float64(requests) / 10 / 5
			for _, k := range workers {
				k.leave(w)
			}
		})
	}
	t.Logf("requests per idle member and minute: %v; the session timeout is %v", costs, timeout)
	require.InDelta(t, costs[10], costs[200], 1)
}

// TestUpdate_UnchangedSpecIsNotWritten checks that Update writes nothing if its function changes nothing.
func TestUpdate_UnchangedSpecIsNotWritten(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		setShards(w, 3)
		g := newGroup(w, connect(w))
		spec, err := g.Spec(w.Context())
		require.NoError(w, err)
		require.Equal(w, numberedNames("s", 3), spec.Shards)
		before, _, err := g.spec.Get(w.Context())
		require.NoError(w, err)
		setShards(w, 3)
		_, version, err := g.spec.Get(w.Context())
		require.NoError(w, err)
		after, again, err := g.spec.Get(w.Context())
		require.NoError(w, err)
		require.Equal(w, before, after)
		require.Equal(w, version, again)
		_, err = g.Update(w.Context(), func(s *Spec) error { s.Pins, s.Drained = map[string]string{}, []string{}; return nil })
		require.NoError(w, err)
		_, again, err = g.spec.Get(w.Context())
		require.NoError(w, err)
		require.Equal(w, version, again)
		_, err = g.Update(w.Context(), func(s *Spec) error { s.MaxMoves = -1; return nil })
		require.ErrorIs(w, err, recipes.ErrInvalid)
		synctest.Wait()
	})
}

// TestRun_ContinuesDespiteInvalidShardName checks that a member does not end when another program has written a
// name of a shard that cannot be locked, and that Update rejects such a name.
func TestRun_ContinuesDespiteInvalidShardName(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		r := newRecorder(w)
		setShards(w, 3)
		a, b := r.start("a", 0), r.start("b", 0)
		bubble.Settle()
		r.requireEven(3, "a", "b")
		g := newGroup(w, connect(w))
		long := strings.Repeat("%", 2000)
		_, err := g.Update(w.Context(), func(s *Spec) error { s.Shards = append(s.Shards, long); return nil })
		require.ErrorIs(w, err, recipes.ErrInvalid)
		_, err = g.spec.Set(w.Context(), Spec{Shards: append([]string{long}, numberedNames("s", 3)...)})
		require.NoError(w, err)
		bubble.Settle()
		require.Len(w, r.currentOwners(), 3)
		setShards(w, 4)
		bubble.Settle()
		bubble.Settle()
		r.requireEven(4, "a", "b")
		a.leave(w)
		b.leave(w)
	})
}

// TestRun_DividesShardsIfLeaderCannotWrite checks that a leader that is not permitted to write plans follows the
// same plan as the other members, which compute it.
func TestRun_DividesShardsIfLeaderCannotWrite(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		r := newRecorder(w)
		setShards(w, 6)
		_, err := connect(w).Create(dir+"/plan", nil, 0, zk.WorldACL(zk.PermRead))
		require.NoError(w, err)
		a, b := r.start("a", 0), r.start("b", 0)
		bubble.Settle()
		require.Equal(w, map[string]int{"a": 3, "b": 3}, r.loads())
		a.leave(w)
		b.leave(w)
	})
}

// TestGroup_CompareIgnoresForeignZnodes checks that compare does not consider a plan outdated because of a znode
// beside the members that does not belong to a member.
func TestGroup_CompareIgnoresForeignZnodes(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		r := newRecorder(w)
		setShards(w, 6)
		a := r.start("a", 0)
		bubble.Settle()
		_, err := connect(w).Create(dir+"/members/x", []byte("?"), 0, openACL)
		require.NoError(w, err)
		g := newGroup(w, connect(w))
		plan, err := g.Plan(w.Context())
		require.NoError(w, err)
		require.Equal(w, comparison{version: plan.Version}, g.compare(w.Context(), plan, true))
		updateSpec(w, func(s *Spec) { s.Shards = s.Shards[1:] })
		require.True(w, g.compare(w.Context(), plan, true).differs)
		a.leave(w)
	})
}

// TestRun_WaitsWhileOtherProcessHasSameID checks that a process does not contend for shards while another process
// is the member with the same ID, and continues when the other process has left.
func TestRun_WaitsWhileOtherProcessHasSameID(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		r := newRecorder(w)
		setShards(w, 3)
		first := r.start("a", 0)
		bubble.Settle()
		first.client.SetCut(true)
		second := r.start("a", 0)
		bubble.Settle()
		first.client.SetCut(false)
		bubble.Settle()
		r.requireEven(3, "a")
		for _, shard := range numberedNames("s", 3) {
			mutex, err := newGroup(w, connect(w)).mutex(shard, "")
			require.NoError(w, err)
			contenders, err := mutex.Contenders(w.Context())
			require.NoError(w, err)
			require.Len(w, contenders, 1, "only the second process contends")
		}
		second.leave(w)
		bubble.Settle()
		r.requireEven(3, "a")
		first.leave(w)
	})
}

// TestMember_LostShardsAreNotOwned checks that Owned omits shards that the member has lost, even if the member has
// not confirmed their release.
func TestMember_LostShardsAreNotOwned(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		setShards(w, 2)
		m, err := newGroup(w, connect(w), WithGrace(0)).Join(w.Context(), "a")
		require.NoError(w, err)
		bubble.Settle()
		require.Len(w, (<-m.Owned()).Shards, 2)
		w.Server.Blackhole(zktest.BothWays)
		time.Sleep(timeout)
		w.Server.Refuse(true)
		bubble.Settle()
		select {
		case owned := <-m.Owned():
			require.NoError(w, owned.Err)
			require.Empty(w, owned.Shards)
		default:
			require.Fail(w, "Owned does not report the loss of the shards")
		}
		w.Server.Refuse(false)
		w.Server.Heal()
		bubble.Settle()
		require.Len(w, (<-m.Owned()).Shards, 2)
		require.NoError(w, m.Close())
	})
}
