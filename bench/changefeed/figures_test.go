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

// shortHeartbeat is the heartbeat of measurements that would take long with a longer one.
const shortHeartbeat = 200 * time.Millisecond

// measurementInterval is the time between measurements that are compared with each other. Without this pause, the
// processes and goroutines that a measurement has woken would still be running during the next one.
const measurementInterval = 50 * time.Millisecond

// followerCounts are the numbers of followers for which requests are counted. The last number is used
// only for the store in memory.
var followerCounts = []int{1, 10, 100}

// These are the bounds of the duration of a fail-over, in heartbeats, with the default options:
// election timeouts between 2 and 4 heartbeats, and a clock drift of 1/15. A fail-over is shortest if
// the leader has written its last heartbeat one heartbeat before the cut. The mean is for two
// followers.
const (
	drift         = 1.0 / 15
	leastFailOver = 2/(1+drift) - 1
	mostFailOver  = 4 / (1 - drift)
	meanFailOver  = 2 + 2.0/3 - 0.5
)

// BenchmarkFigures measures each store once, regardless of b.N, and adds the figures to the table.
func BenchmarkFigures(b *testing.B) {
	for _, s := range backends {
		b.Run(s.name, func(b *testing.B) { measureStore(b, s) })
	}
}

func measureStore(b *testing.B, s backend) {
	open := s.start(b)
	write, feed := measureWrites(b, open)
	first, handOver := measureHandOver(b, open, true), measureHandOver(b, open, false)
	failOver := measureFailOver(b, open)
	var writes, requests []string
	for _, n := range followerCounts {
		if n > 10 && s.name != "memory" {
			continue
		}
		w, r := measureLoad(b, open, n)
		writes, requests = append(writes, fmt.Sprintf("%.1f", w)), append(requests, fmt.Sprintf("%.1f", r))
		b.ReportMetric(w, fmt.Sprintf("writes/s-%d", n))
		b.ReportMetric(r, fmt.Sprintf("requests/s-%d", n))
	}
	ratio := float64(median(handOver)) / float64(median(feed))
	b.ReportMetric(0, "ns/op") // otherwise the benchmark would report the time of many operations
	b.ReportMetric(milliseconds(median(write)), "ms-write")
	b.ReportMetric(milliseconds(median(feed)), "ms-to-feed")
	b.ReportMetric(milliseconds(median(handOver)), "ms-hand-over")
	b.ReportMetric(milliseconds(median(first)), "ms-hand-over-first")
	b.ReportMetric(inHeartbeats(median(failOver)), "H-fail-over")
	rows = append(rows, row{
		s.name, formatMS(median(write)), formatMS(median(feed)), formatMS(median(handOver)), fmt.Sprintf("%.1f", ratio), formatMS(median(first)),
		fmt.Sprintf("%.2f", inHeartbeats(median(failOver))),
		fmt.Sprintf("%.2f, %.2f", inHeartbeats(slices.Min(failOver)), inHeartbeats(slices.Max(failOver))),
		strings.Join(writes, " / "), strings.Join(requests, " / "),
	})
}

// measureWrites returns the durations of writes, and the times from the sending of a write until the
// feed of another client has delivered it.
func measureWrites(b *testing.B, open openFunc) (write, feed []time.Duration) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	writer, reader := open(b, "writes"), open(b, "writes")
	defer writer.close(b)
	defer reader.close(b)
	require.NoError(b, writer.Start(ctx))
	require.NoError(b, reader.Start(ctx))
	require.NoError(b, writer.Create(ctx, changefeed.Record{Epoch: "one", Seq: 1, TTL: time.Second}))
	r, err := writer.Read(ctx)
	require.NoError(b, err)
	f, err := reader.Subscribe(ctx)
	require.NoError(b, err)
	defer f.Close()
	_, err = f.Next(ctx)
	require.NoError(b, err)
	type delivery struct {
		seq uint64
		at  time.Time
		err error
	}
	deliveries := make(chan delivery)
	readCtx, stopReading := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			e, err := f.Next(readCtx)
			select {
			case deliveries <- delivery{e.Record.Seq, time.Now(), err}:
			case <-readCtx.Done():
			}
			if err != nil {
				return
			}
		}
	}()
	defer func() { stopReading(); <-stopped }()
	ticker := time.NewTicker(measurementInterval)
	defer ticker.Stop()
	for range 50 {
		<-ticker.C
		next := r
		next.Seq++
		sent := time.Now()
		responded := make(chan time.Time, 1)
		go func() { // on a goroutine, because the feed may deliver the write before the response arrives
			r, err = writer.Heartbeat(ctx, r, next)
			responded <- time.Now()
		}()
		var d delivery
		for d.seq != next.Seq {
			d = <-deliveries
			require.NoError(b, d.err)
		}
		at := <-responded
		require.NoError(b, err)
		write, feed = append(write, at.Sub(sent)), append(feed, d.at.Sub(sent))
	}
	return write, feed
}

// measureHandOver returns the times from the call of Resign until one of two followers receives the
// status of a leader. The candidate that has resigned joins again: if newConnection is set, on a new
// connection, so that the connection of each leader has never written before.
func measureHandOver(b *testing.B, open openFunc, newConnection bool) (durations []time.Duration) {
	b.Helper()
	e := newElection(b, open, fmt.Sprint("hand-over-", newConnection), time.Second, false, 3)
	for range 30 {
		e.awaitSettled()
		time.Sleep(measurementInterval)
		old := e.awaitSettled()
		begin := time.Now()
		e.resign(old)
		_, at := e.awaitNextLeader(old)
		durations = append(durations, at.Sub(begin))
		if newConnection {
			old.client.close(b)
			e.join()
		} else {
			e.joinOn(old.client, nil)
		}
	}
	e.close()
	return durations
}

// measureFailOver returns the times from a cut of the leader's network, at a random time between two
// heartbeats, until one of two followers receives the status of a leader.
func measureFailOver(b *testing.B, open openFunc) (durations []time.Duration) {
	b.Helper()
	e := newElection(b, open, "fail-over", shortHeartbeat, true, 3)
	for range 10 {
		e.awaitSettled()
		time.Sleep(rand.N(shortHeartbeat))
		old := e.awaitSettled()
		begin := time.Now()
		heal := old.network.Cut()
		_, at := e.awaitNextLeader(old)
		durations = append(durations, at.Sub(begin))
		heal()
		e.leave(old)
		e.join()
	}
	e.close()
	return durations
}

// measureLoad returns the number of writes per second by all candidates, and the number of requests per
// second by followers.
func measureLoad(b *testing.B, open openFunc, followers int) (writes, requests float64) {
	b.Helper()
	e := newElection(b, open, fmt.Sprint("load-", followers), shortHeartbeat, false, followers+1)
	leader := e.awaitSettled()
	require.Positive(b, leader.client.requests(), "requests are not counted")
	countRequests := func() (requests uint64) {
		for _, c := range e.candidates {
			if c != leader {
				requests += c.client.requests()
			}
		}
		return requests
	}
	begin, writesBefore, requestsBefore := time.Now(), e.writes.Load(), countRequests()
	time.Sleep(25 * shortHeartbeat)
	seconds := time.Since(begin).Seconds()
	writes = float64(e.writes.Load()-writesBefore) / seconds
	requests = float64(countRequests()-requestsBefore) / seconds
	if now := e.awaitSettled(); now != leader {
		b.Logf("with %d followers the leader has changed during the measurement: the machine is too busy", followers)
	}
	e.close()
	return writes, requests
}

func median(durations []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(durations))
	return sorted[len(sorted)/2]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func formatMS(d time.Duration) string { return fmt.Sprintf("%.2g ms", milliseconds(d)) }

// inHeartbeats returns d as a multiple of the heartbeat that measureFailOver uses.
func inHeartbeats(d time.Duration) float64 { return float64(d) / float64(shortHeartbeat) }
