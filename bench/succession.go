package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// measureSuccessions measures an election with size candidates in which n leaders in a row resign as
// soon as they lead. For each of them a new candidate joins: if joining is set, as soon as the leader
// resigns; otherwise after the n successions. The value is the time for one succession.
func (b *bench) measureSuccessions(ctx context.Context, r *row, size, n, rounds int, joining bool) error {
	defer reset(b.contestants)
	var turns []contestantTurn
	for _, c := range b.eligibleContestants([]*row{r}, b.contestants, size) {
		q, err := newQueue(b.server, c, election, size, 0)
		if err == nil {
			err = q.fillQueue(ctx, size, 1)
		}
		if err != nil {
			if err := b.exclude(ctx, []*row{r}, c.name(), err); err != nil {
				return err
			}
			continue
		}
		turns = append(turns, newTurn(c, func(ctx context.Context) (time.Duration, error) {
			took, err := q.replaceHeads(ctx, n, joining)
			if err == nil && !joining {
				err = q.addCandidates(ctx, n)
			}
			return took / time.Duration(n), err
		}))
	}
	sleep(ctx, b.longPause)
	return b.interleaveTurns(ctx, []*row{r}, 1, rounds, b.longPause, turns)
}

// measureDraining measures an election with size candidates in which every leader resigns as soon as
// it leads, and no other candidates join. The value is the time for one succession.
func (b *bench) measureDraining(ctx context.Context, r *row, size, rounds int) error {
	defer reset(b.contestants)
	var turns []contestantTurn
	for _, c := range b.eligibleContestants([]*row{r}, b.contestants, size) {
		q, err := newQueue(b.server, c, election, size, 0)
		if err != nil {
			return err
		}
		turns = append(turns, newTurn(c, func(ctx context.Context) (time.Duration, error) {
			if err := q.fillQueue(ctx, size, 1); err != nil {
				return 0, err
			}
			sleep(ctx, b.longPause)
			took, err := q.replaceHeads(ctx, size-1, false)
			if err != nil {
				return 0, err
			}
			return took / time.Duration(size-1), q.removeLast(ctx)
		}))
	}
	return b.interleaveTurns(ctx, []*row{r}, 2, rounds, b.pause, turns)
}

// measureRequests counts the requests that the server receives, and the watches that fire, per
// succession while an election with size candidates drains. Leaders resign after the given pause, or
// as soon as they lead if it is 0. The contestants connect through a proxy that records the messages.
func (b *bench) measureRequests(ctx context.Context, requests, watches *row, size, rounds int, pause time.Duration) error {
	return b.throughProxy(ctx, sessionTimeout, func(proxy *zkproxy.Proxy, contestants []contestant) error {
		rows := []*row{requests, watches}
		var turns []contestantTurn
		for _, c := range b.eligibleContestants(rows, contestants, size) {
			q, err := newQueue(b.server, c, election, size, 0)
			if err != nil {
				return err
			}
			turns = append(turns, contestantTurn{c.name(), func(ctx context.Context) ([]float64, error) {
				if err := q.fillQueue(ctx, size, 1); err != nil {
					return nil, err
				}
				sleep(ctx, b.longPause)
				proxy.ResetLog()
				if err := drain(ctx, q, size, pause); err != nil {
					return nil, err
				}
				sleep(ctx, b.longPause) // time for requests that follow the last succession
				sent, fired := countMessages(proxy.Log())
				sent.divideBy(float64(size - 1))
				fired.divideBy(float64(size - 1))
				requests.Details[c.name()], watches.Details[c.name()] = sent.String(), fired.String()
				return []float64{sent.total(), fired.total()}, q.removeLast(ctx)
			}})
		}
		return b.interleaveTurns(ctx, rows, 0, rounds, b.pause, turns)
	})
}

// drain replaces the head of a queue with size candidates until one candidate is left.
func drain(ctx context.Context, q *queue, size int, pause time.Duration) error {
	if pause == 0 {
		_, err := q.replaceHeads(ctx, size-1, false)
		return err
	}
	for range size - 1 {
		if _, err := q.replaceHeads(ctx, 1, false); err != nil {
			return err
		}
		sleep(ctx, pause)
	}
	return nil
}

// throughProxy calls measure with contestants that connect through a proxy.
func (b *bench) throughProxy(ctx context.Context, timeout time.Duration, measure func(*zkproxy.Proxy, []contestant) error) error {
	proxy, err := zkproxy.New(b.server.addr)
	if err != nil {
		return err
	}
	defer proxy.Close()
	contestants, _ := b.startContestants(ctx, proxy.Addr(), timeout)
	defer closeContestants(contestants)
	return measure(proxy, contestants)
}

// messageCounts contains numbers of messages by kind.
type messageCounts map[string]float64

// countMessages counts the requests except pings and handshakes, and the events of watches.
func countMessages(log []zkproxy.Record) (requests, events messageCounts) {
	requests, events = messageCounts{}, messageCounts{}
	for _, r := range log {
		switch {
		case r.Kind == zkproxy.Event:
			events[eventNames[r.EventType]]++
		case r.Kind == zkproxy.Request && r.Op != zktest.OpPing && r.Op != zktest.OpConnect:
			requests[requestName(r.Op)]++
		}
	}
	return requests, events
}

func (c messageCounts) total() float64 {
	total := 0.0
	for _, n := range c {
		total += n
	}
	return total
}

func (c messageCounts) divideBy(by float64) {
	for kind := range c {
		c[kind] /= by
	}
}

// String lists the numbers, the largest first.
func (c messageCounts) String() string {
	kinds := slices.SortedFunc(maps.Keys(c), func(a, b string) int {
		if c[a] != c[b] {
			return int(1000 * (c[b] - c[a]))
		}
		return strings.Compare(a, b)
	})
	for i, kind := range kinds {
		kinds[i] = fmt.Sprintf("%s %.2f", kind, c[kind])
	}
	return strings.Join(kinds, ", ")
}

// eventNames are the types of the events of watches.
var eventNames = map[int32]string{1: "created", 2: "deleted", 3: "data changed", 4: "children changed"}

// requestNames are the requests that contestants send, by operation code.
var requestNames = map[zktest.Op]string{
	zktest.OpCreate: "create", zktest.OpCreate2: "create", zktest.OpCreateContainer: "create container",
	zktest.OpDelete: "delete", zktest.OpExists: "exists", zktest.OpGetData: "get data", zktest.OpSetData: "set data",
	zktest.OpGetChildren: "get children", zktest.OpGetChildren2: "get children", zktest.OpSync: "sync",
	zktest.OpMulti: "multi", zktest.OpRemoveWatches: "remove watches", zktest.OpCloseSession: "close session",
}

func requestName(op zktest.Op) string {
	if name, ok := requestNames[op]; ok {
		return name
	}
	return fmt.Sprintf("operation %d", op)
}
