package electiontest

import (
	"testing"
	"testing/synctest"
)

// Option changes how Run works.
type Option func(*options)

type options struct{ fakeTime bool }

// FakeTime plays each case in a bubble of testing/synctest, for backends inside the test
// process: what takes minutes is over at once then, and a goroutine that is left behind
// fails the test. The factory is called in the bubble.
func FakeTime() Option { return func(o *options) { o.fakeTime = true } }

// Run plays every case as a test of its own.
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

// Case is a part of the suite.
type Case struct {
	Name string
	play func(s *suite)
}

// Run plays the case. The checks go on in t's cleanup, where all candidates resign.
func (c Case) Run(t TB, f Factory) {
	t.Helper()
	g := f(t)
	if g == nil || g.New == nil {
		t.Fatalf("electiontest: the factory has made no group")
		return
	}
	s := newSuite(t, g)
	t.Cleanup(s.close)
	c.play(s)
}

// Cases are the parts of the suite, for whoever has to choose among them or to play them
// with a TB of their own.
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
