package electiontest

import (
	"testing"
	"testing/synctest"
)

// Option configures [Run].
type Option interface{ apply(*options) }

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

type options struct{ fakeTime bool }

// WithFakeTime runs each case in a bubble of testing/synctest, for backends inside the test
// process. Cases that wait for minutes then complete immediately, and a goroutine that is
// left running fails the test. The factory is called inside the bubble.
func WithFakeTime() Option { return optionFunc(func(o *options) { o.fakeTime = true }) }

// Run runs each case as a subtest.
func Run(t *testing.T, f Factory, opts ...Option) {
	var o options
	for _, opt := range opts {
		opt.apply(&o)
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

// Case is one requirement of the suite, which Run tests.
type Case struct {
	Name string
	run  func(s *suite)
}

// Run runs the case. A cleanup function of t resigns all candidates and completes the checks.
func (c Case) Run(t TB, f Factory) {
	t.Helper()
	g := f(t)
	if g == nil || g.New == nil {
		t.Fatalf("electiontest: the factory returned no group")
		return
	}
	s := newSuite(t, g)
	t.Cleanup(s.resignAll)
	c.run(s)
}

// Cases returns the cases of the suite. Callers need it to run only some of them, or with another TB.
func Cases() []Case {
	return []Case{
		{"One", testSingleCandidate},
		{"OneOfMany", testSingleLeader},
		{"HandOver", testHandOver},
		{"Next", testNext},
		{"FollowerLeaves", testFollowerResigns},
		{"Churn", testChurn},
		{"LeaderCrashes", testLeaderCrashes},
		{"FollowerCrashes", testFollowerCrashes},
		{"LeaderIsCutOff", testLeaderCutOff},
		{"BeforeTheStart", testResignBeforeStart},
		{"StartsOnce", testStartsOnce},
		{"ResignsRepeatedly", testRepeatedResign},
		{"LateReader", testLateReader},
		{"EndElection", testEndElection},
		{"EndElectionLateReader", testEndElectionLateReader},
		{"Leaks", testLeaks},
	}
}
