package leaderelection

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Whatever waits, what is left out is a check or a watch as long as there is one,
// and then the oldest.
func TestHookQueueKeepsWhatMatters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var got []string
		q := hookQueue{hooks: []Hooks{{
			Joined:  func(HookEvent) { <-release },
			Elected: func(e HookEvent) { got = append(got, e.ID) },
			Checked: func(e HookEvent) { got = append(got, "check "+e.ID) },
			Missed:  func(e HookEvent) { require.Equal(t, 5, e.Missed); got = append(got, "missed") },
		}}}
		q.add(joinedHook, HookEvent{})
		synctest.Wait()
		q.add(checkedHook, HookEvent{ID: "a"})
		q.add(electedHook, HookEvent{ID: "a"})
		q.add(checkedHook, HookEvent{ID: "b"})
		for range maxHooked - 3 {
			q.add(electedHook, HookEvent{ID: "x"})
		}
		q.add(electedHook, HookEvent{ID: "y"}) // check a goes
		q.add(electedHook, HookEvent{ID: "y"}) // check b
		q.add(electedHook, HookEvent{ID: "y"}) // elected a
		q.add(checkedHook, HookEvent{ID: "c"}) // x
		q.add(electedHook, HookEvent{ID: "z"}) // check c
		q.add(lostHook, HookEvent{ID: "z"})    // nobody wants it
		close(release)
		synctest.Wait()
		require.Len(t, got, 1+maxHooked)
		require.Equal(t, []string{"missed", "x"}, got[:2])
		require.Equal(t, []string{"y", "y", "y", "z"}, got[len(got)-4:])
		require.NotContains(t, got, "a")
	})
}

// A failing assertion in a hook ends its goroutine, and not the others' calls.
func TestHookQueueOutlivesAHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := 0
		q := hookQueue{hooks: []Hooks{{
			Elected: func(HookEvent) { runtime.Goexit() },
			Lost:    func(HookEvent) { lost++ },
		}}}
		q.add(electedHook, HookEvent{})
		q.add(lostHook, HookEvent{})
		q.finish()
		require.Equal(t, 1, lost)
	})
}

func TestHookQueueCallsNothingAfterItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		q := hookQueue{hooks: []Hooks{
			{Elected: func(HookEvent) { <-release }},
			{Elected: func(HookEvent) { t.Error("called") }, Lost: func(HookEvent) { t.Error("called") }},
		}}
		start := time.Now()
		q.add(electedHook, HookEvent{})
		q.add(lostHook, HookEvent{})
		q.finish()
		require.Equal(t, confirmLimit, time.Since(start))
		q.add(lostHook, HookEvent{})
		close(release)
		synctest.Wait()
		require.Nil(t, q.calling)
	})
}
