package electiontest_test

import (
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// runCase runs a case in a bubble and returns its failures.
func runCase(t *testing.T, c electiontest.Case, f electiontest.Factory) []string {
	var r *testenv.Recorder
	synctest.Test(t, func(*testing.T) {
		r = testenv.Record(func(t testing.TB) { c.Run(t, f) })
		time.Sleep(time.Hour) // gives late goroutines the time to end
	})
	return r.Failures()
}

// TestRun_AcceptsMemoryElection checks that the suite accepts a correct implementation.
func TestRun_AcceptsMemoryElection(t *testing.T) {
	electiontest.Run(t, memoryFactory(defects{}), electiontest.WithFakeTime())
}

// TestRun_AcceptsBackendThatCannotEndElections checks that the suite accepts an implementation that cannot end
// elections.
func TestRun_AcceptsBackendThatCannotEndElections(t *testing.T) {
	electiontest.Run(t, memoryFactory(defects{noEnd: true}), electiontest.WithFakeTime())
}

// TestRun_AcceptsMemoryElectionInRealTime checks that the suite accepts a correct implementation in real time.
func TestRun_AcceptsMemoryElectionInRealTime(t *testing.T) {
	electiontest.Run(t, memoryFactory(defects{}))
}

// TestCases_FindDefects checks that the suite finds each defect of an implementation, and reports it with the
// right message.
func TestCases_FindDefects(t *testing.T) {
	messages := map[string]string{
		"TwoLeaders":            "more than one leader",
		"NoSuccessor":           "a candidate becomes leader: not within",
		"LateRevocation":        "more than one leader",
		"NoRevocation":          "its leadership has not ended",
		"RepeatedTokens":        "token 1 follows token 1",
		"DecreasingTokens":      "token -2 follows token -1",
		"NoLeadership":          "role and leadership do not match",
		"NoFirstStatus":         "first status of program 1: not within",
		"NoID":                  "a leader must have an ID",
		"EarlyID":               "before the candidate has joined, and ",
		"NewChannelPerCall":     "a different channel for each call",
		"BlocksOnReader":        "first status of program 2: not within",
		"KeepsStaleStatuses":    "after Resign there is still a status",
		"NoChannelClose":        "after Resign the channel is not closed",
		"StatusAfterResign":     "a final status after Resign",
		"RepeatedResignFails":   "Resign: " + leaderelection.ErrAlreadyStarted.Error(),
		"ResignHangs":           "Resign of a candidate that has not started has not returned",
		"ElectLeaderHangs":      "ElectLeader has not returned",
		"ElectLeaderFails":      "ElectLeader returns " + leaderelection.ErrResigned.Error(),
		"StartsTwice":           "want error: " + leaderelection.ErrAlreadyStarted.Error(),
		"StartsAfterEnd":        "want " + leaderelection.ErrAlreadyStarted.Error(),
		"LeaderAfterEnd":        "role leader after the candidacy",
		"CrashStopsElection":    "another candidate becomes leader after a crash: not within",
		"LeaderAfterCrash":      "more than one leader",
		"NoDoneAtDeadline":      "more than one leader",
		"FollowerEndsLeader":    "the leader remains leader when a follower leaves: not long enough",
		"EndsOnlyItself":        "the channel is closed when the election was ended: not within",
		"AcceptsAfterEnd":       "want error: " + leaderelection.ErrElectionOver.Error(),
		"RepeatedEndFails":      "EndElection: " + leaderelection.ErrNoElection.Error(),
		"NoFinalStatus":         "the final status does not have",
		"WrongReason":           "after Resign Err of the leadership is",
		"StatusAfterFinal":      "a status after the final status",
		"LeadershipWithoutLoss": "without the end of the previous one",
		"LeaksGoroutine":        "additional goroutines",
		"NoEvents":              "the channel of events is not closed",
		"NoElectedEvent":        "no event reports its leadership",
		"NoEndedEvent":          "the last event is",
		"NoLostReason":          "has the reason <nil>",
		"EarlyLostEvent":        "while the leadership lasts",
		"NeverNext":             "at most one candidate is next: not within",
		"AllNext":               "at most one candidate is next: not within",
		"LastNext":              "which was next",
		"LeaderNext":            "only a follower can be next",
		"ResignationForgotten":  "after each Resign, FormerErr of the next leader is",
		"CrashForgotten":        "after each crash, FormerErr of the next leader is",
		"OtherFormerErr":        "a status that cannot have the FormerErr",
	}
	kinds := reflect.TypeFor[defects]()
	for name, message := range messages {
		t.Run(name, func(t *testing.T) {
			var d defects
			reflect.ValueOf(&d).Elem().FieldByName(name).SetBool(true)
			var found []string
			for _, c := range electiontest.Cases() {
				found = append(found, runCase(t, c, memoryFactory(d))...)
			}
			require.Contains(t, strings.Join(found, "\n"), message)
		})
	}
	require.Len(t, messages, kinds.NumField()-1, "each has a message")
}
