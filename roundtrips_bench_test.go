package leaderelection_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// The benchmarks run over pipes, so their times are those of the library and of
// zktest. What counts on a network are the requests and the round trips.

// bench repeats a turn, in which play is what is measured. turn returns how many
// requests that has led to. The round trips are those of the quickest of some turns
// on a slow network.
func (l *line) bench(b *testing.B, name string, turn func(play func(do func())) (requests int)) {
	requests := 0
	for b.Loop() {
		b.StopTimer()
		requests += turn(func(do func()) {
			b.StartTimer()
			do()
			b.StopTimer()
		})
		b.StartTimer()
	}
	b.ReportMetric(float64(requests)/float64(b.N), "requests/"+name)

	const oneWay = 10 * time.Millisecond // of real time: longer than everything else together
	l.srv.Delay(zktest.BothWays, oneWay)
	least := time.Duration(math.MaxInt64)
	for range 5 {
		turn(func(do func()) {
			start := time.Now()
			do()
			least = min(least, time.Since(start))
		})
	}
	b.ReportMetric(float64(least/(2*oneWay)), "roundtrips/"+name)
}

// BenchmarkJoin joins an election without others, directly behind its leader, and at
// the end of a line of nine.
func BenchmarkJoin(b *testing.B) {
	for _, x := range []struct {
		name  string
		ahead int
	}{{"free", 0}, {"second", 1}, {"tenth", 9}} {
		b.Run(x.name, func(b *testing.B) {
			l := newLine(b)
			leaderConn, conn := l.connect(), l.connect()
			if x.ahead > 1 {
				l.stand(x.ahead)
			}
			l.bench(b, "join", func(play func(do func())) int {
				if x.ahead == 1 { // another leader each time, as a follower that leaves writes to it
					leader := l.enlist(leaderConn)
					l.start(leader)
					l.placed(leader)
					defer l.resign(leader)
				}
				c := l.enlist(conn)
				defer l.resign(c)
				l.srv.ResetLog()
				play(func() {
					l.start(c)
					l.placed(c)
				})
				return l.requests().Session(conn.SessionID()).Count()
			})
		})
	}
}

// BenchmarkSuccession has the leader of a line of three resign until the next one
// leads. Its requests are those of all three, until the line is at rest again.
func BenchmarkSuccession(b *testing.B) {
	l := newLine(b)
	all := l.stand(3)
	l.bench(b, "succession", func(play func(do func())) int {
		first := all[0]
		l.srv.ResetLog()
		play(func() {
			go l.resign(first)
			l.leads(all[1])
		})
		requests := l.told(all[2]).Count()
		<-first.over
		again := l.enlist(first.conn)
		l.join(again)
		all = append(all[1:], again)
		return requests
	})
}

// told waits until c, the third in line, has been told that it is the second now, and
// has seen that for itself. It returns what was asked until then.
func (l *line) told(c *contender) zktest.Log {
	l.Helper()
	for end := time.Now().Add(sessionTimeout); ; time.Sleep(20 * time.Microsecond) {
		log := l.requests()
		if log.Session(c.conn.SessionID()).Count(zktest.OpGetChildren2) > 0 {
			return log
		}
		require.True(l, time.Now().Before(end), "it was not told\n%v", log)
	}
}

// BenchmarkResign has a leader without followers, and the last of a line, resign.
func BenchmarkResign(b *testing.B) {
	for _, x := range []struct {
		name  string
		ahead int
	}{{"leader", 0}, {"last", 3}} {
		b.Run(x.name, func(b *testing.B) {
			l := newLine(b)
			l.stand(x.ahead)
			conn := l.connect()
			l.bench(b, "resign", func(play func(do func())) int {
				c := l.enlist(conn)
				l.start(c)
				l.placed(c)
				l.srv.ResetLog()
				play(func() { _ = c.Resign() })
				<-c.over
				return l.requests().Count()
			})
		})
	}
}

// BenchmarkRest lets a leader and three followers stand for a period of the lease at
// a time: what is asked then goes on for ever.
func BenchmarkRest(b *testing.B) {
	l := newLine(b)
	l.timeout = 800 * time.Millisecond
	period := l.timeout / 8
	l.stand(4)
	l.srv.ResetLog()
	start := time.Now()
	for b.Loop() {
		time.Sleep(period)
	}
	periods := float64(time.Since(start)) / float64(period)
	b.ReportMetric(float64(l.srv.Log().Requests().Count())/periods, "requests/period")
}
