package lock

import (
	"context"
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestContenders_DescribesContendersOfMutex checks that Contenders returns the path, name, token and state of
// each contender of a mutex, in the order of the queue.
func TestContenders_DescribesContendersOfMutex(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		m := w.mutex(w.operator)
		all, err := m.Contenders(w.Context())
		require.NoError(w, err, "the znode of the lock does not exist")
		require.Empty(w, all)

		first := w.lock(w.connect(), WithName("a"))
		second := w.lock(w.connect(), WithName("b"))
		third := w.lock(w.connect())
		w.create(node + "/foreign")
		all, err = m.Contenders(w.Context())
		require.NoError(w, err)
		require.Len(w, all, 3)
		require.Equal(w, Contender{first.hold.Path(), "a", first.hold.Token(), true, false, 0}, all[0])
		require.Equal(w, "b", all[1].Name)
		require.False(w, all[1].Holds)
		require.Equal(w, processName(), all[2].Name)
		require.NotEmpty(w, processName())

		first.release()
		second.requireHolds()
		require.Equal(w, all[1].Token, second.hold.Token())
		all, err = m.Contenders(w.Context())
		require.NoError(w, err)
		require.Len(w, all, 2)
		require.True(w, all[0].Holds)
		second.release()
		third.release()
		w.remove(node + "/foreign")
	})
}

// TestContenders_ShowsHoldersOfRWMutex checks that Contenders shows which contenders of an RWMutex are readers,
// and which of them hold the lock.
func TestContenders_ShowsHoldersOfRWMutex(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		r1, r2 := w.read(w.connect()), w.read(w.connect())
		x := w.write(w.connect())
		r3 := w.read(w.connect())
		kinds := func() (found []string) {
			all, err := w.rw(w.operator).Contenders(w.Context())
			require.NoError(w, err)
			for _, c := range all {
				found = append(found, fmt.Sprintf("reads %v holds %v", c.Reads, c.Holds))
			}
			return found
		}
		require.Equal(w, []string{"reads true holds true", "reads true holds true", "reads false holds false", "reads true holds false"}, kinds())
		r1.release()
		r2.release()
		require.Equal(w, []string{"reads false holds true", "reads true holds false"}, kinds())
		x.downgrade()
		w.passTime(0)
		require.Equal(w, []string{"reads true holds true", "reads true holds true"}, kinds())
		r3.requireHolds()
	})
}

// TestIsHolder_FindsHoldersByNames checks that isHolder finds out which contenders hold the lock from the names
// of their znodes.
func TestIsHolder_FindsHoldersByNames(t *testing.T) {
	for _, c := range []struct {
		names []string
		want  []bool
	}{
		{[]string{"__WRIT__0000000001", "__READ__0000000002"}, []bool{true, false}},
		{[]string{"__READ__0000000001", "__READ__0000000002", "__WRIT__0000000003", "__READ__0000000004"}, []bool{true, true, false, false}},
		{[]string{"lock-0000000001", "lock-0000000002"}, []bool{true, false}},
		// While a writer of Curator downgrades, its old and its new znode have the same sequence number.
		{[]string{"__WRIT__0000000001", "__READ__0000000001", "__READ__0000000002"}, []bool{true, true, false}},
		{[]string{"__READ__0000000001", "__WRIT__0000000001"}, []bool{true, true}},
	} {
		for i, want := range c.want {
			require.Equal(t, want, isHolder(c.names, i), "%v %d", c.names, i)
		}
	}
}

// TestContenders_OmitsContenderThatLeavesDuringCall checks that Contenders omits a contender, and returns no
// error, if the contender leaves between the listing and the read of its znode (CURATOR-358).
// Scenario 43 of docs/traps.md.
func TestContenders_OmitsContenderThatLeavesDuringCall(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		first, second := w.lock(w.connect()), w.lock(w.connect())
		w.srv.Before(zktest.Match{Op: zktest.OpGetData, Session: w.operator.SessionID(), Path: first.hold.Path(), Nth: 1}, func(q *zktest.Request) zktest.Verdict {
			w.expire(first.conn)
			return zktest.Pass(q)
		})
		all, err := w.mutex(w.operator).Contenders(w.Context())
		require.NoError(w, err)
		require.Len(w, all, 1)
		w.allowOverlap = true
		w.passTime(timeout)
		require.Equal(w, second.requireHolds().Path(), all[0].Path)
	})
}

// TestContenders_FailsAtDeadlineOrWithoutPermission checks that Contenders returns when its context is done,
// and returns ErrPermission if it may not list the lock's znode.
func TestContenders_FailsAtDeadlineOrWithoutPermission(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.lock(w.connect()).requireHolds()
		ctx, cancel := context.WithTimeout(w.Context(), timeout)
		defer cancel()
		conn := w.connect()
		w.cutConnection(conn)
		w.requireElapsed(timeout, func() {
			_, err := w.mutex(conn).Contenders(ctx)
			require.ErrorIs(w, err, context.DeadlineExceeded)
		})
		w.restore()
		_, err := w.operator.SetACL(node, zk.WorldACL(zk.PermAll&^zk.PermRead), -1)
		require.NoError(w, err)
		_, err = w.mutex(conn).Contenders(w.Context())
		require.ErrorIs(w, err, recipes.ErrPermission)
		_, err = w.operator.SetACL(node, zk.WorldACL(zk.PermAll), -1)
		require.NoError(w, err)
		w.allowOverlap, w.allowLeftovers = true, true
	})
}

// TestContenders_ReturnsContextCauseThatIsServerError checks that Contenders and Holder return the cause of
// their context even if the cause is an error that servers return, and do not treat this error as an answer to
// their own requests.
func TestContenders_ReturnsContextCauseThatIsServerError(t *testing.T) {
	runTest(t, 1, func(w *harness) {
		w.lock(w.connect()).requireHolds()
		conn := w.connect()
		single, err := NewSingle(conn, "/single", nil)
		require.NoError(w, err)
		for _, cause := range []error{recipes.ErrTooLarge, zk.ErrNoAuth, zk.ErrNoNode} {
			ctx, cancel := context.WithCancelCause(w.Context())
			cancel(cause)
			_, err := single.Holder(ctx)
			require.ErrorIs(w, err, cause)
			_, err = w.mutex(conn).Contenders(ctx)
			require.ErrorIs(w, err, cause)
		}
	})
}
