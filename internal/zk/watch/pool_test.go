package watch

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// Fails if a change whose event is lost is noticed later than after MaxDelay, by some of the readers
// only, or with more than one read for all of them, or if the next change is not noticed immediately.
func TestVerify_LostEvent(t *testing.T) {
	create := func(w *harness, path string) { w.create(path, "") }
	remove := func(w *harness, path string) { require.NoError(w, w.other.Delete(path, -1)) }
	write := func(w *harness, path string) { w.set(path, "2") }
	for _, x := range []struct {
		name  string
		what  What
		child bool // the changes are those of a child
		do    []func(w *harness, path string)
	}{
		{"data", Data, false, []func(*harness, string){create, write, write}},
		{"deletion", DataOrCreation, false, []func(*harness, string){create, remove, create}},
		{"creation", DataOrCreation, false, []func(*harness, string){nil, create, remove}},
		{"deletion and creation", Existence, false, []func(*harness, string){
			create, func(w *harness, path string) { remove(w, path); create(w, path) }, remove,
		}},
		{"new child", Children, true, []func(*harness, string){nil, create, remove}},
		{"deleted child", Children, true, []func(*harness, string){create, remove, create}},
	} {
		t.Run(x.name, func(t *testing.T) {
			runTest(t, func(w *harness) {
				path, changed := "/a", "/a"
				if x.child {
					w.create(path, "")
					changed += "/b"
				}
				if x.do[0] != nil {
					x.do[0](w, changed)
				}
				var all []*follower
				for range 20 {
					all = append(all, w.follower(path, x.what))
				}
				time.Sleep(maxRound / 2)
				seen := len(all[0].seen)
				w.srv.Drop(zktest.Match{Op: zktest.OpNotification, Session: w.conn.SessionID(), Nth: 1})
				w.srv.Delay(zktest.BothWays, time.Millisecond, w.conn.SessionID())
				w.srv.ResetLog()
				x.do[1](w, changed)
				time.Sleep(MaxDelay)
				synctest.Wait()
				require.LessOrEqual(w, w.reads(), int(MaxDelay/minRound)+2, "verifications and reads")
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

// Fails if the watches on a znode cost more than 20 requests per hour, or fewer than 12, however many
// readers and kinds of watches there are, or if a watch that was not lost fires.
func TestVerify_Cost(t *testing.T) {
	runTest(t, func(w *harness) {
		w.create("/a", "1")
		var all []*follower
		for _, what := range []What{Data, Children, Existence, Data, Data} {
			all = append(all, w.follower("/a", what))
		}
		w.reads()
		time.Sleep(time.Hour)
		n := w.reads()
		require.LessOrEqual(w, n, 20)
		require.GreaterOrEqual(w, n, 11) // the first round has begun before the watches were set
		for _, u := range all {
			require.Len(w, u.seen, 1)
			u.end()
		}
		time.Sleep(time.Hour)
		require.Zero(w, w.reads(), "no reader waits")
	})
}

// Fails if a connection with thousands of watched znodes sends more than ten verifications per second.
func TestVerify_ManyZnodes(t *testing.T) {
	runTest(t, func(w *harness) {
		p := pools.Of(w.conn)
		u := w.follower("/none", DataOrCreation)
		for i := range 10_000 {
			p.add(key{fmt.Sprint("/", i), data}, nil, 0, nil)
		}
		time.Sleep(maxRound)
		w.reads()
		time.Sleep(time.Minute)
		require.InDelta(w, 600, w.reads(), 1)
		u.end()
	})
}
