package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

// settings are the values of the flags, and those that only tests change.
type settings struct {
	rounds     int
	period     benchmark.Period
	clients    []int
	failOvers  int
	operations int
	size       int64 // the size of the state and of the log in the operations, in bytes
	only       *regexp.Regexp
	dir        string
	seed       uint64
	json       string
	limit      time.Duration

	timeouts timeouts      // the timeouts of the clusters, except in the measurements of fail-overs
	syncs    int           // the number of syncs with which the speed of the disk is measured
	pause    time.Duration // the pause after each cell, in which the system writes pending data to the disk
	window   time.Duration // how long measureSpace waits before a compaction, until request IDs have left the window
}

func parseFlags() (settings, error) {
	s := settings{syncs: 500, pause: 250 * time.Millisecond, window: shortWindow + 2*time.Second}
	flag.IntVar(&s.rounds, "rounds", 5, "`number` of rounds of every cell")
	seconds := flag.Float64("seconds", 5, "`seconds` in which a cell is measured, after a warm-up of a quarter of that")
	clients := flag.String("clients", "1,16,256", "`numbers` of concurrent clients")
	flag.IntVar(&s.failOvers, "failovers", 15, "`number` of fail-overs of each library")
	flag.IntVar(&s.operations, "operations", 0, "`number` of rounds of snapshots, restarts, learners, reads and compactions")
	flag.Int64Var(&s.size, "size", 1<<30, "`bytes` of the state and of the log in these")
	only := flag.String("only", "", "measure only cells whose name matches this `pattern`, such as \"etcd.*, 16 clients\" or fail-over")
	flag.StringVar(&s.dir, "dir", os.TempDir(), "`directory` on a real disk, for the files of the nodes")
	flag.Uint64Var(&s.seed, "seed", uint64(time.Now().UnixNano()), "`seed` of the order of cells")
	flag.StringVar(&s.json, "json", "", "write every value to this `file`")
	flag.DurationVar(&s.limit, "limit", 30*time.Minute, "maximum `duration` of the run")
	flag.Parse()
	if flag.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if s.rounds < 0 || *seconds <= 0 || s.failOvers < 0 || s.operations < 0 || s.size < 1<<20 {
		return s, errors.New("-rounds must be 0 or more, -seconds more than 0, -failovers and -operations 0 or more, and -size 1 MiB or more")
	}
	s.period.Length = time.Duration(*seconds * float64(time.Second))
	s.period.Warmup = s.period.Length / 4
	var err error
	if s.clients, err = parseClients(*clients); err != nil {
		return s, err
	}
	s.only, err = regexp.Compile(*only)
	return s, err
}

// parseClients parses a list of numbers of clients.
func parseClients(text string) ([]int, error) {
	var numbers []int
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 1 || n > 10_000 {
			return nil, fmt.Errorf("-clients: %q is not a number from 1 to 10000", part)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

func main() {
	s, err := parseFlags()
	benchmark.Main("raftlog", err, s.limit, func(ctx context.Context) error {
		r, err := runBenchmark(ctx, s, allContestants())
		if err != nil {
			return err
		}
		r.print(os.Stdout, isPeer)
		if s.json != "" {
			return benchmark.WriteJSON(s.json, r)
		}
		return nil
	})
}
