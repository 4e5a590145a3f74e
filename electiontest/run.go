package electiontest

import (
	"testing"
	"testing/synctest"
)

// Option configures [Run].
type Option func(*options)

type options struct{ fakeTime bool }

// FakeTime runs each case in a bubble of testing/synctest, for backends inside the test
// process. Cases that wait for minutes then complete immediately, and a goroutine that is
// left running fails the test. The factory is called inside the bubble.
func FakeTime() Option { return func(o *options) { o.fakeTime = true } }

// Run runs every case as a subtest.
func Run(t *testing.T, f Factory, opts ...Option) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			if o.fakeTime {
				synctest.Test(t, func(t *testing.T) { c.Run(t, f) })
			} else {
				c.Run(t, f)
			}
		})
	}
}

// Case is one case of the suite.
type Case struct {
	Name string
	play func(s *suite)
}

// Run runs the case. The checks continue in t's cleanup, in which all candidates resign.
func (c Case) Run(t TB, f Factory) {
	t.Helper()
	g := f(t)
	if g == nil || g.New == nil {
		t.Fatalf("electiontest: the factory returned no group")
		return
	}
	s := newSuite(t, g)
	t.Cleanup(s.close)
	c.play(s)
}

// Cases returns the cases of the suite, for callers that run some of them or use a TB of
// their own.
func Cases() []Case {
	return []Case{
		{"One", one},
		{"OneOfMany", oneOfMany},
		{"HandOver", handOver},
		{"FollowerLeaves", followerLeaves},
		{"Churn", churn},
		{"LeaderCrashes", leaderCrashes},
		{"FollowerCrashes", followerCrashes},
		{"LeaderIsCutOff", leaderIsCutOff},
		{"BeforeTheStart", beforeTheStart},
		{"StartsOnce", startsOnce},
		{"ResignsRepeatedly", resignsRepeatedly},
		{"LateReader", lateReader},
		{"EndElection", endElection},
		{"EndElectionLateReader", endElectionLateReader},
		{"Leaks", leaks},
	}
}
