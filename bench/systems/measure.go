package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

// system is one way of electing a leader.
type system struct {
	name    string
	timeout time.Duration // the time after which a leader that crashed is replaced
	start   systemStarter
}

// systemStarter starts the servers of a system, which stop stops.
type systemStarter func(ctx context.Context) (join candidateJoiner, stop func(), err error)

// candidateJoiner adds a candidate with the given name to the election. It does not wait until the candidate leads or
// follows.
type candidateJoiner func(name string) (*candidate, error)

// candidate is a candidate of one of the systems.
type candidate struct {
	leads  chan time.Time // receives the time at which the candidate's program learns of its leadership; capacity 1
	resign func() error   // makes the candidate leave the election
	crash  func()         // closes the candidate's connections, and prevents new ones
	close  func()         // releases all resources, after resign or crash
}

// measuredFigures are the durations that were measured: hand-overs in ms, fail-overs in s.
type measuredFigures struct{ handOvers, failOvers []float64 }

// measure replaces the leader of a system as often as s requires, first by resignations, then by
// crashes.
func measure(ctx context.Context, sys system, s settings) (f measuredFigures, err error) {
	join, stop, err := sys.start(ctx)
	if err != nil {
		return f, fmt.Errorf("start servers: %w", err)
	}
	defer stop()
	leader, err := join("0")
	if err != nil {
		return f, fmt.Errorf("join: %w", err)
	}
	defer func() { leader.close() }()
	if _, err := waitLeader(ctx, leader, sys.timeout); err != nil {
		return f, err
	}
	for i := range s.handOvers + s.crashes {
		next, err := join(fmt.Sprint(i + 1))
		if err != nil {
			return f, fmt.Errorf("join: %w", err)
		}
		took, err := replaceLeader(ctx, sys, leader, next, i >= s.handOvers)
		leader.close()
		leader = next
		if err != nil {
			return f, err
		}
		if i < s.handOvers {
			f.handOvers = append(f.handOvers, benchmark.Milliseconds(took))
		} else {
			f.failOvers = append(f.failOvers, took.Seconds())
		}
	}
	return f, leader.resign()
}

// replaceLeader ends the leadership of leader by a resignation or a crash, and returns the time until next leads.
func replaceLeader(ctx context.Context, sys system, leader, next *candidate, crash bool) (time.Duration, error) {
	// The next candidate joins during this pause. The length of the pause is random, so that the timers
	// of both candidates have random phases.
	time.Sleep(500*time.Millisecond + rand.N(sys.timeout/2))
	select {
	case <-next.leads:
		return 0, errors.New("two candidates lead at the same time")
	default:
	}
	resigned := make(chan error, 1)
	start := time.Now()
	if crash {
		leader.crash()
		resigned <- nil
	} else {
		go func() { resigned <- leader.resign() }()
	}
	led, err := waitLeader(ctx, next, sys.timeout)
	if err := errors.Join(err, <-resigned); err != nil {
		return 0, err
	}
	return led.Sub(start), nil
}

// waitLeader waits until c leads, and returns the time at which the program of c learned this.
func waitLeader(ctx context.Context, c *candidate, timeout time.Duration) (time.Time, error) {
	limit := 5*timeout + 10*time.Second
	select {
	case led := <-c.leads:
		return led, nil
	case <-time.After(limit):
		return time.Time{}, fmt.Errorf("no candidate was elected within %v", limit)
	case <-ctx.Done():
		return time.Time{}, context.Cause(ctx)
	}
}
