package watch

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestVerify_FindsChangeWhoseEventIsLost checks that all readers notice a change whose event is lost within
// MaxDelay, with one read for all of them, and notice the next change immediately.
func TestVerify_FindsChangeWhoseEventIsLost(t *testing.T) {
	create := func(w *bubble.Test, path string) { createZnode(w, path, "") }
	remove := func(w *bubble.Test, path string) { require.NoError(w, w.Operator.Delete(path, -1)) }
	write := func(w *bubble.Test, path string) { set(w, path, "2") }
	for _, x := range []struct {
		name  string
		what  What
		child bool // the test changes a child of the watched znode
		do    []func(w *bubble.Test, path string)
	}{
		{"data", Data, false, []func(*bubble.Test, string){create, write, write}},
		{"deletion", DataOrCreation, false, []func(*bubble.Test, string){create, remove, create}},
		{"creation", DataOrCreation, false, []func(*bubble.Test, string){nil, create, remove}},
		{"deletion and creation", Existence, false, []func(*bubble.Test, string){
			create, func(w *bubble.Test, path string) { remove(w, path); create(w, path) }, remove,
		}},
		{"new child", Children, true, []func(*bubble.Test, string){nil, create, remove}},
		{"deleted child", Children, true, []func(*bubble.Test, string){create, remove, create}},
	} {
		t.Run(x.name, func(t *testing.T) {
			runTest(t, func(w *bubble.Test) {
				path, changed := "/a", "/a"
				if x.child {
					createZnode(w, path, "")
					changed += "/b"
				}
				if x.do[0] != nil {
					x.do[0](w, changed)
				}
				var all []*follower
				for range 20 {
					all = append(all, follow(w, path, x.what))
				}
				time.Sleep(maxRound / 2)
				seen := len(all[0].seen)
				w.Server.Drop(zktest.Match{Op: zktest.OpNotification, Session: w.Conn.SessionID(), Nth: 1})
				w.Server.Delay(zktest.BothWays, time.Millisecond, w.Conn.SessionID())
				w.Server.ResetLog()
				x.do[1](w, changed)
				time.Sleep(MaxDelay)
				synctest.Wait()
				require.LessOrEqual(w, countReads(w), int(MaxDelay/minRound)+2, "verifications and reads")
				for _, u := range all {
					require.Len(w, u.seen, seen+1)
				}
				x.do[2](w, changed)
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
				for _, u := range all {
					require.Len(w, u.seen, seen+2)
					u.end()
				}
			})
		})
	}
}

// TestVerify_SendsFewRequestsPerHour checks that the verification of the watches on a znode costs at most 20
// requests per hour, with any number of readers and kinds of watches, and that a watch that was not lost does not
// fire.
func TestVerify_SendsFewRequestsPerHour(t *testing.T) {
	runTest(t, func(w *bubble.Test) {
		createZnode(w, "/a", "1")
		var all []*follower
		for _, what := range []What{Data, Children, Existence, Data, Data} {
			all = append(all, follow(w, "/a", what))
		}
		countReads(w)
		time.Sleep(time.Hour)
		n := countReads(w)
		require.LessOrEqual(w, n, 20)
		require.GreaterOrEqual(w, n, 11) // the first round has begun before the test has set the watches
		for _, u := range all {
			require.Len(w, u.seen, 1)
			u.end()
		}
		time.Sleep(time.Hour)
		require.Zero(w, countReads(w), "no reader waits")
	})
}

// TestVerify_LimitsRateForManyZnodes checks that a connection with thousands of watched znodes sends at most ten
// verifications per second.
func TestVerify_LimitsRateForManyZnodes(t *testing.T) {
	runTest(t, func(w *bubble.Test) {
		p := pools.Of(w.Conn)
		u := follow(w, "/none", DataOrCreation)
		p.mu.Lock()
		for i := range 10_000 {
			p.add(key{fmt.Sprint("/", i), data}, nil, 0, nil)
		}
		p.mu.Unlock()
		time.Sleep(maxRound)
		countReads(w)
		time.Sleep(time.Minute)
		require.InDelta(w, 600, countReads(w), 1)
		u.end()
	})
}
