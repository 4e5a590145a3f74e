package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const timeout = 4 * time.Second

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(d time.Duration) time.Time { return start.Add(d) }

// leaseOf returns a lease with proofs sent at these times after start.
func leaseOf(sent ...time.Duration) *lease {
	l := &lease{timeout: timeout}
	for _, d := range sent {
		l.proved(at(d), at(d))
	}
	return l
}

func every(step, until time.Duration) (sent []time.Duration) {
	for d := time.Duration(0); d <= until; d += step {
		sent = append(sent, d)
	}
	return sent
}

func TestLeaseDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		sent []time.Duration
		want time.Duration
	}{
		"a first proof stands on the client's pings":       {[]time.Duration{0}, timeout / 3},
		"so does a chain younger than a quarter":           {every(timeout/8, timeout/8), timeout/8 + timeout/3},
		"a chain of checks is worth half a timeout":        {every(timeout/8, 2*timeout), 2*timeout + timeout/2},
		"whatever else was written in between":             {append(every(timeout/100, timeout), timeout), timeout + timeout/2},
		"a gap counts from what came before it":            {append(every(timeout/8, timeout), 2*timeout-timeout/4), timeout + timeout - timeout/8},
		"after a gap of a timeout nothing is proven":       {append(every(timeout/8, timeout), 2*timeout), timeout + timeout - timeout/8},
		"until what was sent after the gap is old enough":  {append(every(timeout/8, timeout), 3*timeout, 3*timeout+timeout/4), 3*timeout + timeout/4 + timeout/2},
		"an older proof that comes late changes nothing":   {[]time.Duration{timeout, timeout / 2}, timeout + timeout/3},
		"the same proof twice is one":                      {[]time.Duration{timeout, timeout}, timeout + timeout/3},
		"proofs without number do not shorten the history": {every(time.Millisecond, timeout), timeout + timeout/2},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, leaseOf(c.sent...).deadline().Sub(start))
		})
	}
	require.True(t, (&lease{timeout: timeout}).deadline().IsZero(), "nothing proven")
}

// The ensemble's leader expires a session one timeout after the last activity
// that it has heard of. It hears of a write's activity with the answer to its
// next ping, at most a quarter of the timeout later; here it never hears of
// what is younger. No lease may outlast that.
func TestLeaseEndsBeforeTheEnsembleExpires(t *testing.T) {
	patterns := map[string][]time.Duration{
		"steady":     every(timeout/8, 3*timeout),
		"irregular":  {0, 300 * time.Millisecond, 900 * time.Millisecond, 1900 * time.Millisecond, 2 * time.Second, 3500 * time.Millisecond, 5 * time.Second},
		"one pause":  append(every(timeout/8, timeout), timeout+3*time.Second, timeout+3500*time.Millisecond, timeout+4*time.Second),
		"two pauses": {0, 500 * time.Millisecond, time.Second, 3 * time.Second, 5 * time.Second, 5500 * time.Millisecond},
	}
	for name, sent := range patterns {
		t.Run(name, func(t *testing.T) {
			for n := range sent {
				heard := time.Duration(0)
				for _, d := range sent[:n+1] {
					if sent[n]-d >= timeout/4 {
						heard = d
					}
				}
				if heard == 0 {
					continue // the chain is young: the pings are reckoned with
				}
				expiry := at(heard + timeout)
				deadline := leaseOf(sent[:n+1]...).deadline()
				require.LessOrEqual(t, deadline, expiry.Add(-timeout/8), "after %v", sent[:n+1])
			}
		})
	}
}

// After a suspension the client's pings cannot be reckoned with.
func TestLeaseAfterAPauseNeedsAChain(t *testing.T) {
	l := leaseOf(0)
	l.paused = at(-timeout / 2)
	require.True(t, l.deadline().IsZero())
	l.proved(at(timeout/8), at(timeout/8))
	require.Equal(t, timeout/8+timeout/3, l.deadline().Sub(start), "long enough ago")
	l.paused = at(0)
	require.True(t, l.deadline().IsZero())
	l.proved(at(timeout/4), at(timeout/4))
	require.Equal(t, timeout/4+timeout/2, l.deadline().Sub(start), "a chain of its own")
}

func TestLeaseKeepsFewProofs(t *testing.T) {
	l := leaseOf(every(time.Millisecond, 10*timeout)...)
	require.LessOrEqual(t, len(l.proofs), 8)
}

// The monotonic clock stands still while a machine is suspended; the wall clock
// goes on.
func TestElapsedTakesTheLargerClock(t *testing.T) {
	begin := time.Now()
	// There is no way to build a time whose two clocks disagree but this: a
	// time without monotonic reading is compared by the wall alone.
	suspended := begin.Add(time.Second).Round(0).Add(time.Hour)
	require.Equal(t, time.Hour+time.Second, elapsed(begin, suspended))
	require.True(t, Expired(begin.Add(time.Minute), suspended))
	require.False(t, Expired(begin.Add(2*time.Hour), suspended))
	require.Equal(t, time.Second, elapsed(begin, begin.Add(time.Second)))
}
