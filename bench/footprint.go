package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"
)

// footprint is what a candidate at rest costs its process.
type footprint struct {
	Goroutines float64 `json:"goroutines"`
	HeapKiB    float64 `json:"heap_kib"`  // live, after a collection
	StackKiB   float64 `json:"stack_kib"` // in use
	// ResidentKiB is measured after freed memory was given back, which the
	// runtime does by and by; PeakKiB before, so that it has what enlisting
	// has left.
	ResidentKiB float64 `json:"resident_kib"`
	PeakKiB     float64 `json:"peak_kib"`
}

// measureFootprint runs this program again with a single contestant, so that
// nothing of others is counted.
func measureFootprint(ctx context.Context, name, addr string, n int) (footprint, error) {
	var f footprint
	self, err := os.Executable()
	if err != nil {
		return f, err
	}
	cmd := exec.CommandContext(ctx, self, "-footprint", name, "-addr", addr, "-candidates", strconv.Itoa(n))
	// Its input ends with this process, and it with its input.
	in, err := cmd.StdinPipe()
	if err != nil {
		return f, err
	}
	defer in.Close()
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return f, fmt.Errorf("%w: %s", err, complaints.String())
	}
	return f, json.Unmarshal(out.Bytes(), &f)
}

// footprintMain is the program that measureFootprint runs.
func footprintMain(ctx context.Context, name, addr string, n int, profile string) error {
	go func() {
		os.Stdin.Read(make([]byte, 1))
		os.Exit(1)
	}()
	control, err := newControl(addr)
	if err != nil {
		return err
	}
	defer control.close()
	dir, err := control.newDir()
	if err != nil {
		return err
	}
	var c contestant
	var stand func(candidate, session int) error
	// Candidates as a program has them that only wants to know what they cost:
	// nobody reads what they say.
	switch name {
	case libraryName:
		l := newLibrary(addr)
		c, stand = l, func(candidate, session int) error {
			election, err := l.newElection(session, dir)
			l.elections[candidate] = election
			if err == nil {
				go election.ElectLeader()
			}
			return err
		}
	case zkLockName:
		z := newZKLock(addr)
		c, stand = z, func(candidate, session int) error {
			z.stand(candidate, session, dir)
			return nil
		}
	default:
		return fmt.Errorf("no contestant %q to measure", name)
	}
	for session := range sharedSessions {
		if err := c.connect(session); err != nil {
			return err
		}
	}
	before, err := takeUsage(ctx, control)
	if err != nil {
		return err
	}
	watches, err := control.watches()
	if err != nil {
		return err
	}
	for candidate := range n {
		if err := stand(candidate, candidate%sharedSessions); err != nil {
			return err
		}
	}
	if err := control.waitWatches(ctx, watches+n-1); err != nil {
		return err
	}
	after, err := takeUsage(ctx, control)
	if err != nil {
		return err
	}
	per := func(get func(usage) float64) float64 { return (get(after) - get(before)) / float64(n) }
	err = json.NewEncoder(os.Stdout).Encode(footprint{
		Goroutines:  per(func(u usage) float64 { return u.goroutines }),
		HeapKiB:     per(func(u usage) float64 { return u.heap }),
		StackKiB:    per(func(u usage) float64 { return u.stack }),
		ResidentKiB: per(func(u usage) float64 { return u.resident }),
		PeakKiB:     per(func(u usage) float64 { return u.peak }),
	})
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(c)
	if profile == "" {
		return nil
	}
	return writeHeapProfile(profile)
}

// usage is what the process uses; memory in KiB.
type usage struct{ goroutines, heap, stack, resident, peak float64 }

func takeUsage(ctx context.Context, control *control) (u usage, err error) {
	if _, err := control.settledWatches(ctx); err != nil {
		return u, err
	}
	sleep(ctx, 2*time.Second)
	if u.peak, err = resident(); err != nil {
		return u, err
	}
	for range 3 { // finalizers and pools take more than one collection
		debug.FreeOSMemory()
		sleep(ctx, 100*time.Millisecond)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.goroutines = float64(runtime.NumGoroutine())
	u.heap, u.stack = float64(m.HeapAlloc)/1024, float64(m.StackInuse)/1024
	u.resident, err = resident()
	return u, err
}

// resident is the memory of the process that is in the machine's.
func resident() (float64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("resident memory is measured on Linux only: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 64)
		}
	}
	return 0, errors.New("the kernel does not tell the resident memory")
}

func writeHeapProfile(name string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("heap").WriteTo(file, 0), file.Close())
}
