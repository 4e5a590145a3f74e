package zktest_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestInspect_MethodsReturnState checks the results of the methods that return the tree, the watches, the sessions
// and the log.
func TestInspect_MethodsReturnState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		a, _ := connect(t, s, 10*time.Second)
		b, _ := connect(t, s, 10*time.Second)
		mustCreate(t, a, "/l", "", 0)
		mustCreate(t, a, "/l/n-", "a", zk.FlagEphemeral|zk.FlagSequence)
		mustCreate(t, b, "/l/n-", "b\x00", zk.FlagEphemeral|zk.FlagSequence)
		s.ResetLog()
		_, _, _, err := b.ExistsW("/l/n-0000000000")
		require.NoError(t, err)
		_, _, _, err = b.ChildrenW("/l")
		require.NoError(t, err)
		want := fmt.Sprintf("/\n  l\n    n-0000000000 \"a\" ephemeral=0x%x\n    n-0000000001 \"b\\x00\" ephemeral=0x%x\n", a.SessionID(), b.SessionID())
		assert.Equal(t, want, s.Tree())
		if w := s.Watches(); len(w) != 2 || w[0] != (zktest.Watch{Session: b.SessionID(), Path: "/l", Kind: zktest.ChildWatch}) ||
			w[1] != (zktest.Watch{Session: b.SessionID(), Path: "/l/n-0000000000", Kind: zktest.DataWatch}) {
			t.Errorf("Watches returns %+v", w)
		}
		if w := s.Watches("/l"); len(w) != 1 {
			t.Errorf("Watches for the path /l returns %+v", w)
		}
		all := s.Sessions()
		if len(all) != 2 || all[0].ID != a.SessionID() || all[0].Server != 0 || fmt.Sprint(all[0].Ephemerals) != "[/l/n-0000000000]" {
			t.Errorf("Sessions returns %+v", all)
		}
		require.NoError(t, a.Delete("/l/n-0000000000", -1))
		log := s.Log()
		assert.Equal(t, 2, log.Requests().Session(b.SessionID()).Count(), "round trips")
		if w := log.Woken("/l/n-0000000000"); len(w) != 1 || w[0] != b.SessionID() {
			t.Errorf("Woken returns %x", w)
		}
		assert.Equal(t, 2, log.Count(zktest.OpDelete, zktest.OpExists), "entries")
		assert.Empty(t, s.Watches(), "watches that have fired: %+v", s.Watches())
	})
}
