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
	rounds    int
	period    benchmark.Period
	clients   []int
	failOvers int
	only      *regexp.Regexp
	dir       string
	seed      uint64
	json      string
	limit     time.Duration

	timeouts timeouts      // the timeouts of the clusters whose throughput is measured
	syncs    int           // the number of syncs that measure the disk
	pause    time.Duration // the pause between cells, in which pending writes reach the disk
}

func parseFlags() (settings, error) {
	s := settings{syncs: 500, pause: 250 * time.Millisecond}
	flag.IntVar(&s.rounds, "rounds", 5, "`number` of rounds of every cell")
	seconds := flag.Float64("seconds", 5, "`seconds` in which a cell is measured, after a warm-up of a quarter of that")
	clients := flag.String("clients", "1,16,256", "`numbers` of concurrent clients")
	flag.IntVar(&s.failOvers, "failovers", 15, "`number` of fail-overs of each library")
	only := flag.String("only", "", "measure only cells whose name matches this `pattern`, such as \"etcd.*, 16 clients\" or fail-over")
	flag.StringVar(&s.dir, "dir", os.TempDir(), "`directory` on a real disk, for the files of the nodes")
	flag.Uint64Var(&s.seed, "seed", uint64(time.Now().UnixNano()), "`seed` of the order of cells")
	flag.StringVar(&s.json, "json", "", "write every value to this `file`")
	flag.DurationVar(&s.limit, "limit", 30*time.Minute, "maximum `duration` of the run")
	flag.Parse()
	if flag.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if s.rounds < 1 || *seconds <= 0 || s.failOvers < 0 {
		return s, errors.New("-rounds must be 1 or more, -seconds more than 0, and -failovers 0 or more")
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
