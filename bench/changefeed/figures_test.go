//go:build unix

package changefeed_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// quick is the heartbeat of what would take long otherwise.
const quick = 200 * time.Millisecond

// apart is how long measurements that are compared with each other are apart: one that
// follows another at once finds everything awake.
const apart = 50 * time.Millisecond

// followers is how many follow where it is counted what that costs. The last number is
// for the store in memory alone.
var followers = []int{1, 10, 100}

// Bounds of a fail-over in heartbeats, by the default options: election timeouts between
// 2 and 4 heartbeats, clocks that drift by 1/15. The least is by the last heartbeat having
// been written just a heartbeat before the crash. The mean is for two followers.
const (
	drift         = 1.0 / 15
	leastFailOver = 2/(1+drift) - 1
	mostFailOver  = 4 / (1 - drift)
	meanFailOver  = 2 + 2.0/3 - 0.5
)

// BenchmarkFigures measures each store once, whatever b.N is.
func BenchmarkFigures(b *testing.B) {
	for _, s := range backends {
		b.Run(s.name, func(b *testing.B) { figures(b, s) })
	}
}

func figures(b *testing.B, s backend) {
	open := s.start(b)
	write, feed := writeToFeed(b, open)
	first, over := handOver(b, open, true), handOver(b, open, false)
	fail := failOver(b, open)
	var writes, requests []string
	for _, n := range followers {
		if n > 10 && s.name != "memory" {
			continue
		}
		w, r := load(b, open, n)
		writes, requests = append(writes, fmt.Sprintf("%.1f", w)), append(requests, fmt.Sprintf("%.1f", r))
		b.ReportMetric(w, fmt.Sprintf("writes/s-%d", n))
		b.ReportMetric(r, fmt.Sprintf("requests/s-%d", n))
	}
	times := float64(median(over)) / float64(median(feed))
	b.ReportMetric(0, "ns/op") // the work is that of many operations
	b.ReportMetric(ms(median(write)), "ms-write")
	b.ReportMetric(ms(median(feed)), "ms-to-feed")
	b.ReportMetric(ms(median(over)), "ms-hand-over")
	b.ReportMetric(ms(median(first)), "ms-hand-over-first")
	b.ReportMetric(heartbeats(median(fail)), "H-fail-over")
	rows = append(rows, row{
		s.name, inMS(median(write)), inMS(median(feed)), inMS(median(over)), fmt.Sprintf("%.1f", times), inMS(median(first)),
		fmt.Sprintf("%.2f", heartbeats(median(fail))),
		fmt.Sprintf("%.2f, %.2f", heartbeats(slices.Min(fail)), heartbeats(slices.Max(fail))),
		strings.Join(writes, " / "), strings.Join(requests, " / "),
	})
}

// writeToFeed is how long a write takes, and how long after it was sent another client's
// feed has told of it.
func writeToFeed(b *testing.B, open opener) (write, feed []time.Duration) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	one, two := open(b, "writes"), open(b, "writes")
	defer one.end(b)
	defer two.end(b)
	require.NoError(b, one.Start(ctx))
	require.NoError(b, two.Start(ctx))
	require.NoError(b, one.Create(ctx, changefeed.Record{Epoch: "one", Seq: 1, TTL: time.Second}))
	r, err := one.Read(ctx)
	require.NoError(b, err)
	f, err := two.Subscribe(ctx)
	require.NoError(b, err)
	defer f.Close()
	_, err = f.Next(ctx)
	require.NoError(b, err)
	type told struct {
		seq uint64
		at  time.Time
		err error
	}
	events := make(chan told)
	reading, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			e, err := f.Next(reading)
			select {
			case events <- told{e.Record.Seq, time.Now(), err}:
			case <-reading.Done():
			}
			if err != nil {
				return
			}
		}
	}()
	defer func() { stop(); <-ended }()
	pace := time.NewTicker(apart)
	defer pace.Stop()
	for range 50 {
		<-pace.C
		next := r
		next.Seq++
		sent := time.Now()
		answer := make(chan time.Time, 1)
		go func() { // the feed may be quicker than the answer
			r, err = one.Heartbeat(ctx, r, next)
			answer <- time.Now()
		}()
		var e told
		for e.seq != next.Seq {
			e = <-events
			require.NoError(b, e.err)
		}
		at := <-answer
		require.NoError(b, err)
		write, feed = append(write, at.Sub(sent)), append(feed, e.at.Sub(sent))
	}
	return write, feed
}

// handOver is how long after a call of Resign another was told that it leads; there are
// two others. Whoever has resigned stands again: on a new connection, so that each leader
// is one whose connection has never written before, or on the one it had.
func handOver(b *testing.B, open opener, fresh bool) (took []time.Duration) {
	b.Helper()
	c := newCast(b, open, fmt.Sprint("hand-over-", fresh), time.Second, false, 3)
	for range 30 {
		c.settled()
		time.Sleep(apart) // as between the writes that this is compared with
		old := c.settled()
		begin := time.Now()
		c.resign(old)
		_, at := c.next(old)
		took = append(took, at.Sub(begin))
		if fresh {
			old.client.end(b)
			c.join()
		} else {
			c.stand(old.client, nil)
		}
	}
	c.disband()
	return took
}

// failOver is how long after the leader was cut off one of two others was told that it
// leads. The cut comes at any time between two heartbeats.
func failOver(b *testing.B, open opener) (took []time.Duration) {
	b.Helper()
	c := newCast(b, open, "fail-over", quick, true, 3)
	for range 10 {
		c.settled()
		time.Sleep(rand.N(quick)) // where between two heartbeats the leader is cut off
		old := c.settled()
		begin := time.Now()
		heal := old.net.Cut()
		_, at := c.next(old)
		took = append(took, at.Sub(begin))
		heal()
		c.leave(old)
		c.join()
	}
	c.disband()
	return took
}

// load is how many writes a second the store gets from all, and how many requests from
// those who follow.
func load(b *testing.B, open opener, n int) (writes, requests float64) {
	b.Helper()
	c := newCast(b, open, fmt.Sprint("load-", n), quick, false, n+1)
	leader := c.settled()
	require.Positive(b, leader.requests(), "requests are not counted")
	count := func() (requests uint64) {
		for _, p := range c.all {
			if p != leader {
				requests += p.requests()
			}
		}
		return requests
	}
	begin, writesBefore, requestsBefore := time.Now(), c.writes.Load(), count()
	time.Sleep(25 * quick) // that is what is measured
	seconds := time.Since(begin).Seconds()
	writes = float64(c.writes.Load()-writesBefore) / seconds
	requests = float64(count()-requestsBefore) / seconds
	if now := c.settled(); now != leader {
		b.Logf("with %d followers the leader has changed meanwhile: the machine is too busy", n)
	}
	c.disband()
	return writes, requests
}

func median(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func inMS(d time.Duration) string { return fmt.Sprintf("%.2g ms", ms(d)) }

func heartbeats(d time.Duration) float64 { return float64(d) / float64(quick) }
