package electiontest_test

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
)

// recorder is a TB that notes failures.
type recorder struct {
	mu       sync.Mutex
	failures []string
	cleanups []func()
	skipped  bool
}

func (r *recorder) Helper()              {}
func (r *recorder) Logf(string, ...any)  {}
func (r *recorder) Skipf(string, ...any) { r.skipped = true; runtime.Goexit() }

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// record plays a case in a bubble and returns its failures.
func record(t *testing.T, c electiontest.Case, f electiontest.Factory) []string {
	r := &recorder{}
	synctest.Test(t, func(*testing.T) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.Run(r, f)
		}()
		<-done
		for len(r.cleanups) > 0 {
			last := r.cleanups[len(r.cleanups)-1]
			r.cleanups = r.cleanups[:len(r.cleanups)-1]
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				last()
			}()
			<-ended
		}
		time.Sleep(time.Hour) // what was too slow comes to its end
	})
	return r.failures
}

func TestMemory(t *testing.T) {
	electiontest.Run(t, inMemory(defects{}), electiontest.FakeTime())
}

func TestMemoryThatCannotEnd(t *testing.T) {
	electiontest.Run(t, inMemory(defects{cannotEnd: true}), electiontest.FakeTime())
}

func TestMemoryInRealTime(t *testing.T) {
	electiontest.Run(t, inMemory(defects{}))
}

// Every defect is found, and called what it is by one case at least.
func TestDefectsAreFound(t *testing.T) {
	messages := map[string]string{
		"TwoLead":          "more than one leader",
		"NobodyFollows":    "a candidate becomes leader: not within",
		"RevokesLate":      "more than one leader",
		"RevokesNever":     "its leadership has not ended",
		"TokensRepeat":     "token 1 follows token 1",
		"TokensFall":       "token -2 follows token -1",
		"NoLeadership":     "role and leadership do not match",
		"NoFirstStatus":    "first status of program 1: not within",
		"NoID":             "a leader must have an ID",
		"IDTooEarly":       "before the candidate has joined, and ",
		"OtherChannel":     "a different channel for each call",
		"BlocksOnReader":   "first status of program 2: not within",
		"KeepsStale":       "after Resign there is still a status",
		"NeverCloses":      "after Resign the channel is not closed",
		"TellsOfResign":    "a final status after Resign",
		"ResignFails":      "Resign: " + leaderelection.ErrCandidacyOver.Error(),
		"ResignHangs":      "Resign of a candidate that has not started has not returned",
		"NoReturn":         "ElectLeader has not returned",
		"ReturnsError":     "ElectLeader returns " + leaderelection.ErrResigned.Error(),
		"StartsTwice":      "want error: " + leaderelection.ErrAlreadyStarted.Error(),
		"StartsWhenOver":   "want " + leaderelection.ErrCandidacyOver.Error(),
		"LeadsAfterwards":  "role leader after the candidacy",
		"CrashStops":       "another candidate becomes leader after a crash: not within",
		"CrashedLeads":     "more than one leader",
		"FollowerStops":    "the leader remains leader when a follower leaves: not long enough",
		"EndsForItself":    "the channel is closed when the election was ended: not within",
		"EndsNotForNew":    "want error: " + leaderelection.ErrElectionOver.Error(),
		"EndFails":         "EndElection: " + leaderelection.ErrNoElection.Error(),
		"EndIsForgotten":   "the final status does not have",
		"WrongReason":      "after Resign Err of the leadership is",
		"StatusAfterFinal": "a status after the final status",
		"Flaps":            "without the end of the previous one",
		"Leaks":            "additional goroutines",
		"NoEvents":         "the channel of events is not closed",
		"NoElectedEvent":   "no event reports its leadership",
		"NoEndedEvent":     "the last event is",
		"NoLostReason":     "has the reason <nil>",
		"LostEarly":        "while the leadership lasts",
	}
	kinds := reflect.TypeFor[defects]()
	for name, message := range messages {
		t.Run(name, func(t *testing.T) {
			var d defects
			reflect.ValueOf(&d).Elem().FieldByName(name).SetBool(true)
			var found []string
			for _, c := range electiontest.Cases() {
				found = append(found, record(t, c, inMemory(d))...)
			}
			require.Contains(t, strings.Join(found, "\n"), message)
		})
	}
	require.Len(t, messages, kinds.NumField()-1, "each has a message")
}
