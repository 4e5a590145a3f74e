package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// idleTimeout is the session timeout of contestants in measurements of idle candidates.
const idleTimeout = 4 * time.Second

// measureIdle counts the transactions per minute that idle candidates of one election cause. Each row is for one
// candidate, beginning with the leader, and each candidate uses a separate session. All contestants are measured at
// the same time.
func (b *bench) measureIdle(ctx context.Context, rows []*row) error {
	return b.throughProxy(ctx, idleTimeout, func(proxy *zkproxy.Proxy, contestants []contestant) error {
		connections := map[string][]int{}
		for _, c := range contestants {
			dir, err := b.server.newDir()
			if err != nil {
				return err
			}
			for candidate := range rows {
				proxy.ResetLog()
				if err := c.connect(candidate); err != nil {
					return fmt.Errorf("%s: %w", c.name(), err)
				}
				connections[c.name()] = append(connections[c.name()], newestConnection(proxy.Log()))
				c.join(election, candidate, candidate, dir)
				if err := b.server.waitChildren(ctx, dir, candidate+1); err != nil {
					return fmt.Errorf("%s: %w", c.name(), err)
				}
			}
		}
		sleep(ctx, idleTimeout/2) // wait until the candidates have sent all requests for joining
		proxy.ResetLog()
		sleep(ctx, b.idle)
		transactions := map[int]int{}
		for _, r := range proxy.Log() {
			if r.Kind == zkproxy.Request && isTransaction(r.Op) {
				transactions[r.Conn]++
			}
		}
		for _, c := range contestants {
			for i, connection := range connections[c.name()] {
				rows[i].Values[c.name()] = []float64{float64(transactions[connection]) / b.idle.Minutes()}
			}
		}
		return ctx.Err()
	})
}

// newestConnection returns the number of the connection that a client has opened last, or 0 if log contains none.
func newestConnection(log []zkproxy.Record) int {
	newest := 0
	for _, r := range log {
		if r.Op == zktest.OpConnect {
			newest = max(newest, r.Conn)
		}
	}
	return newest
}

// isTransaction reports whether servers write a request with this operation to their log, and sync the log.
func isTransaction(op zktest.Op) bool {
	switch op {
	case zktest.OpCreate, zktest.OpCreate2, zktest.OpCreateContainer, zktest.OpCreateTTL, zktest.OpDelete,
		zktest.OpDeleteContainer, zktest.OpSetData, zktest.OpSetACL, zktest.OpMulti, zktest.OpCheck:
		return true
	default:
		return false
	}
}
