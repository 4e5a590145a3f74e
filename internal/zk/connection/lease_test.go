package connection

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

const timeout = 4 * time.Second

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(d time.Duration) time.Time { return start.Add(d) }

// leaseOf returns a lease with proofs sent at these times after start.
func leaseOf(sent ...time.Duration) *lease {
	l := &lease{timeout: timeout}
	for _, d := range sent {
		l.add(at(d), at(d))
	}
	return l
}

func every(step, until time.Duration) (sent []time.Duration) {
	for d := time.Duration(0); d <= until; d += step {
		sent = append(sent, d)
	}
	return sent
}

func TestLease_Deadline(t *testing.T) {
	for name, c := range map[string]struct {
		sent []time.Duration
		want time.Duration
	}{
		"the first proof, with the pings of the client": {[]time.Duration{0}, timeout / 3},
		"a chain shorter than a quarter of the timeout": {every(timeout/8, timeout/8), timeout/8 + timeout/3},
		"a chain of checks":                             {every(timeout/8, 2*timeout), 2*timeout + timeout/2},
		"other writes between the checks":               {append(every(timeout/100, timeout), timeout), timeout + timeout/2},
		"a gap counts from the proof before it":         {append(every(timeout/8, timeout), 2*timeout-timeout/4), timeout + timeout - timeout/8},
		"a gap of one timeout":                          {append(every(timeout/8, timeout), 2*timeout), timeout + timeout - timeout/8},
		"a new chain after a gap":                       {append(every(timeout/8, timeout), 3*timeout, 3*timeout+timeout/4), 3*timeout + timeout/4 + timeout/2},
		"an older proof that is acknowledged late":      {[]time.Duration{timeout, timeout / 2}, timeout + timeout/3},
		"the same proof twice":                          {[]time.Duration{timeout, timeout}, timeout + timeout/3},
		"many proofs":                                   {every(time.Millisecond, timeout), timeout + timeout/2},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, leaseOf(c.sent...).deadline().Sub(start))
		})
	}
	require.True(t, (&lease{timeout: timeout}).deadline().IsZero(), "no proof")
}

// During a pause of the process the client has sent no pings, so one proof is not sufficient.
func TestLease_AfterPause(t *testing.T) {
	l := leaseOf(0)
	l.paused = at(-timeout / 2)
	require.True(t, l.deadline().IsZero())
	l.add(at(timeout/8), at(timeout/8))
	require.Equal(t, timeout/8+timeout/3, l.deadline().Sub(start), "a pause that was long ago")
	l.paused = at(0)
	require.True(t, l.deadline().IsZero())
	l.add(at(timeout/4), at(timeout/4))
	require.Equal(t, timeout/4+timeout/2, l.deadline().Sub(start), "a chain after the pause")
}

func TestLease_KeepsFewProofs(t *testing.T) {
	l := leaseOf(every(time.Millisecond, 10*timeout)...)
	require.LessOrEqual(t, len(l.proofs), 8)
}

// TestLease_WallClockIsSet fails if a step of the wall clock makes a lease longer, or if a lease is not
// renewed after it.
func TestLease_WallClockIsSet(t *testing.T) {
	for name, c := range map[string]struct{ before, step, pause time.Duration }{
		"forward, in a short chain":       {before: 0, step: timeout / 4},
		"far forward, in a short chain":   {before: timeout / 8, step: time.Hour},
		"forward, after a pause":          {before: 0, step: timeout, pause: timeout / 8},
		"back, in a chain":                {before: timeout, step: -timeout / 16},
		"far back, in a chain":            {before: timeout, step: -time.Hour},
		"far back, after a pause":         {before: timeout, step: -time.Hour, pause: timeout / 8},
		"back by more than the last gap":  {before: timeout, step: -timeout / 4},
		"forward by less than an eighth":  {before: timeout, step: timeout / 16},
		"far forward, with a valid chain": {before: timeout, step: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			unstepped, l := &lease{timeout: timeout}, &lease{timeout: timeout}
			add := func(d time.Duration) time.Duration {
				actual, shown := begin.Add(d), begin.Add(d)
				if d > c.before {
					shown = withWall(actual, c.step)
				}
				unstepped.add(actual, actual)
				l.add(shown, shown)
				// As far as the clock shows that was not set: the lease ends by either clock.
				return l.deadline().Sub(begin)
			}
			if c.pause > 0 {
				l.paused = begin.Add(c.before - c.pause)
				unstepped.paused = l.paused
			}
			for d := time.Duration(0); d < c.before+2*timeout; d += timeout / 8 {
				end := add(d)
				require.LessOrEqual(t, end, max(unstepped.deadline().Sub(begin), 0), "after %v", d)
				require.LessOrEqual(t, len(l.proofs), 8)
			}
			require.Equal(t, unstepped.deadline().Sub(begin), l.deadline().Sub(begin), "the lease is not renewed")
		})
	}
}

// withWall returns t with its wall clock reading changed by d. Package time cannot create a time whose
// clock readings differ.
func withWall(t time.Time, d time.Duration) time.Time {
	u := t.Add(d)
	fields := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&u))
	fields.ext -= int64(d)
	return u
}
