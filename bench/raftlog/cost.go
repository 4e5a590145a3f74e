package main

import (
	"runtime/metrics"
	"time"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

// cost is what the three nodes and the clients use for one update. Unlike the rate, it changes little
// if other programs use the machine. A value that the system does not report is 0.
type cost struct {
	Processor   float64 `json:"processor"`   // processor time in µs, in user mode and in the kernel
	Calls       float64 `json:"calls"`       // the number of reads and writes of files and connections, without syncs
	Switches    float64 `json:"switches"`    // the number of switches between threads
	Wakeups     float64 `json:"wakeups"`     // goroutines that became runnable and then ran, estimated from a sample
	Allocations float64 `json:"allocations"` // the number of allocated objects
	Bytes       float64 `json:"bytes"`       // the size of the allocated objects
}

// wakeupSample is the number of wakeups of goroutines per wakeup that the runtime counts in
// /sched/latencies.
const wakeupSample = 8

// readCosts returns what this process has used since its start.
func readCosts() cost {
	u := processUsage()
	samples := []metrics.Sample{{Name: "/sched/latencies:seconds"}, {Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(samples)
	c := cost{
		Processor: float64(u.processor.Microseconds()), Calls: float64(u.calls), Switches: float64(u.switches),
		Allocations: float64(samples[1].Value.Uint64()), Bytes: float64(samples[2].Value.Uint64()),
	}
	for _, n := range samples[0].Value.Float64Histogram().Counts {
		c.Wakeups += wakeupSample * float64(n)
	}
	return c
}

// perUpdate returns the mean cost of an update if c is the cost of n updates.
func (c cost) perUpdate(n float64) cost {
	return cost{c.Processor / n, c.Calls / n, c.Switches / n, c.Wakeups / n, c.Allocations / n, c.Bytes / n}
}

// usage contains the costs that the system has counted for this process.
type usage struct {
	processor time.Duration
	calls     uint64
	switches  uint64
}

// measureCosts waits until a period that has just started has passed. It returns what this process has used
// during the part of the period that counts.
func measureCosts(p benchmark.Period) cost {
	time.Sleep(p.Warmup)
	from := readCosts()
	time.Sleep(p.Length)
	to := readCosts()
	return cost{
		to.Processor - from.Processor, to.Calls - from.Calls, to.Switches - from.Switches, to.Wakeups - from.Wakeups,
		to.Allocations - from.Allocations, to.Bytes - from.Bytes,
	}
}
