package interop

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes/group"
)

// TestGroup_MembersSeeEachOther checks that a group member in Go sees a member of the peer join and leave, and that
// the peer sees the member in Go. The peers use Curator's GroupMember and kazoo's Party.
func TestGroup_MembersSeeEachOther(t *testing.T) {
	for _, p := range []*peer{kazoo, curator} {
		t.Run(p.name, func(t *testing.T) {
			p.requirePeer(t)
			path := testenv.NewPath(t)
			g, err := group.New(connect(t), path, p.layout())
			require.NoError(t, err)
			var data []byte
			described := map[string]string{"go": "go", "peer": "peer"}
			members := []any{path}
			if p == curator {
				data = []byte("1")
				described = map[string]string{"go": "go(1)", "peer": "peer(2)"}
				members = []any{"member-of" + path}
			}
			ours, err := g.Join(testenv.ContextOf(t), "go", data)
			require.NoError(t, err)
			changes := g.Watch(testenv.ContextOf(t))
			p.runCommand(t, "join", "member-of"+path, path, "peer", "2")
			waitPeerMembers := func(want string) {
				t.Helper()
				testenv.Eventually(t, func() bool { return p.runCommand(t, "members", members...) == want }, "the peer does not see "+want)
			}
			waitPeerMembers(described["go"] + "," + described["peer"])
			waitMembers(t, changes, "go", "peer")
			require.NoError(t, bubble.Repeated(ours.Close))
			waitPeerMembers(described["peer"])
			waitMembers(t, changes, "peer")
			p.runCommand(t, "close", "member-of"+path)
			waitMembers(t, changes)
		})
	}
}

// waitMembers waits for a change after which a group consists of exactly the members in want.
func waitMembers(t *testing.T, changes <-chan group.View, want ...string) {
	t.Helper()
	limit, last := time.After(testenv.WaitLimit), []string(nil)
	for {
		select {
		case v := <-changes:
			require.NoError(t, v.Err)
			last = nil
			for _, m := range v.Members {
				last = append(last, m.ID)
			}
			slices.Sort(last)
			if slices.Equal(last, want) {
				return
			}
		case <-limit:
			require.FailNow(t, "wrong members", "last %v, want %v", last, want)
		}
	}
}
