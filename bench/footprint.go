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

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
)

// footprint is the number of goroutines and the memory of a process, divided by the number of idle candidates.
type footprint struct {
	Goroutines float64 `json:"goroutines"`
	HeapKiB    float64 `json:"heap_kib"`  // the live heap, after a collection
	StackKiB   float64 `json:"stack_kib"` // the size of the stacks of goroutines
	// PeakKiB is the resident memory before the Go runtime has gradually returned freed memory to the system. It
	// includes memory that was used only while candidates joined. ResidentKiB is the resident memory afterwards.
	ResidentKiB float64 `json:"resident_kib"`
	PeakKiB     float64 `json:"peak_kib"`
}

// footprintRows are the rows for the values of a footprint.
type footprintRows struct{ goroutines, heap, stacks, resident, peak *row }

// waiting names the participants that wait while the memory is measured. Only for this library the three values
// differ: the other contestants always add the same candidates.
type waiting string

const (
	// waitingUnobserved means candidates that have no goroutine except that of ElectLeader.
	waitingUnobserved waiting = "candidate"
	// waitingObserved means candidates with different names, each with a goroutine that receives its statuses.
	waitingObserved waiting = "observed candidate"
	// waitingForMutex means goroutines that wait for a mutex.
	waitingForMutex waiting = "contender for a mutex"
)

// measureFootprints measures the memory of contestants in Go, each in a separate process.
func (b *bench) measureFootprints(ctx context.Context, rows footprintRows, w waiting) error {
	all := []*row{rows.goroutines, rows.heap, rows.stacks, rows.resident, rows.peak}
	for _, c := range b.contestants {
		if _, ok := c.(*localContestant); !ok {
			for _, r := range all {
				r.Missing[c.name()] = "not measured in other languages"
			}
			continue
		}
		f, err := runFootprint(ctx, c.name(), b.server.addr, b.candidates, w)
		if err != nil {
			if err := b.exclude(ctx, all, c.name(), err); err != nil {
				return err
			}
			continue
		}
		addValues(all, c.name(), []float64{f.Goroutines, f.HeapKiB, f.StackKiB, f.ResidentKiB, f.PeakKiB})
	}
	return nil
}

// runFootprint starts this program again, to measure the memory of a single contestant.
func runFootprint(ctx context.Context, name, addr string, n int, w waiting) (footprint, error) {
	var f footprint
	program, err := os.Executable()
	if err != nil {
		return f, err
	}
	cmd := exec.CommandContext(ctx, program, "-footprint", name, "-addr", addr, "-candidates", strconv.Itoa(n), "-waiting", string(w))
	// The child process exits when its standard input is closed, which also happens when this process exits.
	in, err := cmd.StdinPipe()
	if err != nil {
		return f, err
	}
	defer in.Close()
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		return f, fmt.Errorf("%w: %s", err, stderr.String())
	}
	return f, json.Unmarshal(out.Bytes(), &f)
}

// printFootprint implements the flag -footprint: it prints the footprint of this process with n
// candidates as JSON.
func printFootprint(ctx context.Context, name, addr string, n int, w waiting, profile string) error {
	go func() {
		os.Stdin.Read(make([]byte, 1))
		os.Exit(1)
	}()
	if profile != "" {
		runtime.MemProfileRate = 1 // record each allocation; this costs little, because candidates allocate little
	}
	s, err := connectServer(addr)
	if err != nil {
		return err
	}
	defer s.close()
	dir, err := s.newDir()
	if err != nil {
		return err
	}
	constructors := map[string]func(string, time.Duration) *localContestant{
		baselineName: newBaseline, libraryName: newLibrary, zkLockName: newZKLock,
	}
	newContestant := constructors[name]
	if newContestant == nil {
		return fmt.Errorf("-footprint %q: only the memory of contestants in Go can be measured", name)
	}
	c := newContestant(addr, sessionTimeout)
	defer runtime.KeepAlive(c)
	if err := connectSessions(c, sharedSessions); err != nil {
		return err
	}
	before, err := measureUsage(ctx, s)
	if err != nil {
		return err
	}
	watches, err := s.watches()
	if err != nil {
		return err
	}
	if err := joinIdle(c, n, dir, w); err != nil {
		return err
	}
	if err := s.waitWatches(ctx, watches+n-1); err != nil {
		return err
	}
	if w == waitingForMutex {
		// A contender of this library waits a few milliseconds for each contender ahead of it, and then prepares for
		// its turn. Measure when all contenders have done so.
		sleep(ctx, time.Duration(n)*10*time.Millisecond)
	}
	after, err := measureUsage(ctx, s)
	if err != nil {
		return err
	}
	perCandidate := func(get func(usage) float64) float64 { return (get(after) - get(before)) / float64(n) }
	err = json.NewEncoder(os.Stdout).Encode(footprint{
		Goroutines:  perCandidate(func(u usage) float64 { return u.goroutines }),
		HeapKiB:     perCandidate(func(u usage) float64 { return u.heap }),
		StackKiB:    perCandidate(func(u usage) float64 { return u.stack }),
		ResidentKiB: perCandidate(func(u usage) float64 { return u.resident }),
		PeakKiB:     perCandidate(func(u usage) float64 { return u.peak }),
	})
	if err != nil || profile == "" {
		return err
	}
	return writeHeapProfile(profile)
}

// joinIdle adds n participants of the kind w, which then wait.
func joinIdle(c *localContestant, n int, dir string, w waiting) error {
	predecessor := ""
	for candidate := range n {
		session := candidate % sharedSessions
		var err error
		switch {
		case c.name() == baselineName:
			predecessor, err = joinIdleBaseline(c.conn(session), dir, predecessor)
		case c.name() == libraryName && w != waitingForMutex:
			err = joinIdleLibrary(c.conn(session), dir, candidate, w == waitingObserved)
		default:
			c.join(mutex, candidate, session, dir)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// joinIdleLibrary adds a candidate of this library, which then waits.
func joinIdleLibrary(conn *zk.Conn, dir string, candidate int, observed bool) error {
	options := []leaderelection.Option{leaderelection.WithSessionTimeout(sessionTimeout)}
	if observed {
		options = append(options, leaderelection.WithName(fmt.Sprintf("candidate-%04d.example.org", candidate)))
	}
	e, err := leaderelection.NewElection(conn, dir, options...)
	if err != nil {
		return err
	}
	go e.ElectLeader()
	if observed {
		go func() {
			for range e.Status() {
			}
		}()
	}
	return nil
}

// joinIdleBaseline adds a candidate of the baseline and returns its znode. The candidate is a goroutine that waits
// for the watch on its predecessor. It does not list the queue, because garbage from listings would increase the
// resident memory.
func joinIdleBaseline(conn *zk.Conn, dir, predecessor string) (string, error) {
	znode, err := conn.Create(dir+"/"+baselinePrefix, nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	if err != nil || predecessor == "" {
		return znode, err
	}
	_, _, watch, err := conn.GetW(predecessor)
	go func() { <-watch }()
	return znode, err
}

// usage contains the number of goroutines and the memory of this process in KiB.
type usage struct{ goroutines, heap, stack, resident, peak float64 }

// measureUsage measures this process two seconds after the candidates have set their last watch.
func measureUsage(ctx context.Context, s *server) (u usage, err error) {
	if _, err := s.settledWatches(ctx); err != nil {
		return u, err
	}
	sleep(ctx, 2*time.Second)
	if u.peak, err = residentMemory(); err != nil {
		return u, err
	}
	for range 3 { // more than once, because finalizers and pools keep memory until a later collection
		debug.FreeOSMemory()
		sleep(ctx, 100*time.Millisecond)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.goroutines = float64(runtime.NumGoroutine())
	u.heap, u.stack = float64(m.HeapAlloc)/1024, float64(m.StackInuse)/1024
	u.resident, err = residentMemory()
	return u, err
}

// residentMemory returns the resident memory of this process in KiB.
func residentMemory() (float64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("resident memory is measured only on Linux: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 64)
		}
	}
	return 0, errors.New("/proc/self/status has no VmRSS")
}

func writeHeapProfile(name string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("heap").WriteTo(file, 0), file.Close())
}
