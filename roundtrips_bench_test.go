package leaderelection_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// The benchmarks use in-memory connections, so their times are those of the library and of zktest.
// On a network, the numbers of requests and round trips determine the time.

// benchmark repeats a step. step calls measure with the part that is measured, and returns the
// number of requests that it has caused. The round trips are those of the fastest of some steps
// with a latency.
func (f *costFixture) benchmark(b *testing.B, name string, step func(measure func(do func())) (requests int)) {
	requests := 0
	for b.Loop() {
		b.StopTimer()
		requests += step(func(do func()) {
			b.StartTimer()
			do()
			b.StopTimer()
		})
		b.StartTimer()
	}
	b.ReportMetric(float64(requests)/float64(b.N), "requests/"+name)

	const oneWay = 10 * time.Millisecond // of real time; everything else takes less
	f.srv.Delay(zktest.BothWays, oneWay)
	least := time.Duration(math.MaxInt64)
	for range 5 {
		step(func(do func()) {
			start := time.Now()
			do()
			least = min(least, time.Since(start))
		})
	}
	b.ReportMetric(float64(least/(2*oneWay)), "roundtrips/"+name)
}

// BenchmarkJoin joins an election without candidates, directly after its leader, and after nine
// candidates.
func BenchmarkJoin(b *testing.B) {
	for _, x := range []struct {
		name  string
		ahead int
	}{{"free", 0}, {"second", 1}, {"tenth", 9}} {
		b.Run(x.name, func(b *testing.B) {
			f := newCostFixture(b)
			f.joinAll(x.ahead)
			conn := f.connect()
			f.benchmark(b, "join", func(measure func(do func())) int {
				c := f.newCandidate(conn)
				defer f.resign(c)
				f.srv.ResetLog()
				measure(func() {
					f.start(c)
					f.awaitStatus(c)
				})
				return f.requests().Session(conn.SessionID()).Count()
			})
		})
	}
}

// BenchmarkSuccession measures the time from the resignation of the leader of three candidates
// until the next one is the leader. The requests are those of all three candidates, until they are
// idle again.
func BenchmarkSuccession(b *testing.B) {
	f := newCostFixture(b)
	all := f.joinAll(3)
	f.benchmark(b, "succession", func(measure func(do func())) int {
		first := all[0]
		f.srv.ResetLog()
		measure(func() {
			go f.resign(first)
			f.awaitLeader(all[1])
		})
		requests := f.awaitListing(all[2]).Count()
		<-first.over
		again := f.newCandidate(first.conn)
		f.join(again)
		all = append(all[1:], again)
		return requests
	})
}

// awaitListing waits until the third candidate has listed the queue, and so knows that it is the
// second now. It returns the requests until then.
func (f *costFixture) awaitListing(c *costCandidate) zktest.Log {
	f.Helper()
	for end := time.Now().Add(sessionTimeout); ; time.Sleep(20 * time.Microsecond) {
		log := f.requests()
		if log.Session(c.conn.SessionID()).Count(zktest.OpGetChildren2) > 0 {
			return log
		}
		require.True(f, time.Now().Before(end), "it has not listed the queue\n%v", log)
	}
}

// BenchmarkResign measures the resignation of a leader without followers, and of the last of four
// candidates.
func BenchmarkResign(b *testing.B) {
	for _, x := range []struct {
		name  string
		ahead int
	}{{"leader", 0}, {"last", 3}} {
		b.Run(x.name, func(b *testing.B) {
			f := newCostFixture(b)
			f.joinAll(x.ahead)
			conn := f.connect()
			f.benchmark(b, "resign", func(measure func(do func())) int {
				c := f.newCandidate(conn)
				f.start(c)
				f.awaitStatus(c)
				f.srv.ResetLog()
				measure(func() { _ = c.Resign() })
				<-c.over
				return f.requests().Count()
			})
		})
	}
}

// BenchmarkIdle counts the requests of a leader and three idle followers per period of the checks.
func BenchmarkIdle(b *testing.B) {
	f := newCostFixture(b)
	f.timeout = 800 * time.Millisecond
	period := f.timeout / 8
	f.joinAll(4)
	f.srv.ResetLog()
	start := time.Now()
	for b.Loop() {
		time.Sleep(period)
	}
	periods := float64(time.Since(start)) / float64(period)
	b.ReportMetric(float64(f.srv.Log().Requests().Count())/periods, "requests/period")
}
