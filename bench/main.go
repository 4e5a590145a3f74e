package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
	_ "github.com/go-leaderelection/leaderelection/integrationtest/docker" // registers Docker, for machines without the Debian package
)

// settings contains the values of the flags, and durations that the flag -quick changes.
type settings struct {
	rounds     int
	candidates int
	elections  int // the number of elections on one connection
	seed       uint64
	passes     int // how often all rows are measured, one after the other
	only       *regexp.Regexp
	list       bool
	json       string
	limit      time.Duration
	quantile   float64
	delay      time.Duration

	record, compare string // the names of files with recordings
	curve           string
	patience        time.Duration // a curve skips a size whose measurement is expected to take longer

	peers *regexp.Regexp // matches the names of the other libraries that are measured
	// bounds is set if the verified baselines are measured as well.
	bounds bool
	busy   bool

	warmJoins        int
	pause, longPause time.Duration // a short and a long pause after each turn
	warmPeriods      int
	period           benchmark.Period
	idle             time.Duration // how long idle connections are observed

	footprint, waiting, addr, heapProfile string // settings of the process that measures its own memory
}

// maxDelay is the maximum of -delay. It is far below the session timeout, so that delays do not cause sessions to
// expire.
const maxDelay = sessionTimeout / 20

func parseFlags() (settings, error) {
	s := settings{
		passes: 1, elections: 10000, warmJoins: 150, pause: 25 * time.Millisecond, longPause: 250 * time.Millisecond, warmPeriods: 2,
		period: benchmark.Period{Warmup: 250 * time.Millisecond, Length: time.Second}, idle: 30 * time.Second,
	}
	flag.IntVar(&s.rounds, "rounds", 80, "`number` of rounds of joins and hand-overs; slower rows have a fraction of them")
	flag.IntVar(&s.candidates, "candidates", 2000, "`number` of candidates of the largest queues")
	flag.Uint64Var(&s.seed, "seed", uint64(time.Now().UnixNano()), "`seed` of the order of turns")
	only := flag.String("only", "", "measure only rows whose name matches this `pattern`")
	flag.BoolVar(&s.list, "list", false, "print the names of the rows and their goals instead of measuring")
	flag.StringVar(&s.json, "json", "", "write every value to this `file`")
	flag.Float64Var(&s.quantile, "quantile", 0.5, "compare this `quantile` of the values, from the best to the worst; 0.1 is less affected by other programs on the machine than the median")
	flag.DurationVar(&s.limit, "limit", 2*time.Hour, "maximum `duration` of the run")
	flag.DurationVar(&s.delay, "delay", 0, "simulated network delay: every message between contestants and the server takes this `duration` longer")
	peers := flag.String("peers", "", "measure, beside the baseline and this library, only libraries whose name matches this `pattern`")
	flag.BoolVar(&s.bounds, "bounds", false, "measure also the shortest loops that verify their turn by a listing, without and with a fencing token")
	flag.BoolVar(&s.busy, "busy", false, "measure times and rates although other programs use the processor")
	quick := flag.Bool("quick", false, "a run of two minutes that shows that everything works; its figures mean little")
	short := flag.Bool("short", false, "a run of five minutes with fewer rows and rounds: all rows twice, for -record and -compare, without other libraries")
	flag.StringVar(&s.record, "record", "", "write the results of this library to this `file`, in the format of Go benchmarks")
	flag.StringVar(&s.compare, "compare", "", "compare the results of this library with this `file`, which -record has written with the same options")
	flag.StringVar(&s.curve, "curve", "", "print how costs grow with the number of candidates, elections, contenders, znodes of a cache, or items or consumers of a queue: `candidates, elections, contenders, cache, items or consumers`")
	flag.DurationVar(&s.patience, "patience", 10*time.Minute, "`duration` that one size of -curve can take")
	flag.StringVar(&s.footprint, "footprint", "", "measure only the memory of this process per candidate of the `contestant`, with the server at -addr")
	flag.StringVar(&s.waiting, "waiting", string(waitingUnobserved), "what waits while the memory is measured: the `kind` in the names of the rows, with -footprint")
	flag.StringVar(&s.addr, "addr", "", "`host:port` of a server, for -footprint")
	flag.StringVar(&s.heapProfile, "heapprofile", "", "write a heap profile to this `file`, with -footprint")
	flag.Parse()
	if flag.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if *quick {
		s.rounds, s.candidates, s.elections, s.warmJoins = 8, min(s.candidates, 200), 500, 10
		s.warmPeriods, s.period.Length, s.idle = 1, 500*time.Millisecond, 5*time.Second
	}
	if *short {
		s.applyShort()
		*peers = "^$"
		if *only == "" {
			*only = strings.Join(shortRows, "|")
		}
	}
	if s.curve != "" && *peers == "" {
		*peers = "^" + zkLockName + "$" // of the other libraries, measure only zk.Lock
	}
	if s.rounds < 1 || s.candidates < 4 {
		return s, errors.New("-rounds must be 1 or more, and -candidates 4 or more")
	}
	if s.delay < 0 || s.delay > maxDelay {
		return s, fmt.Errorf("-delay must be from 0 to %v", maxDelay)
	}
	if s.quantile < 0 || s.quantile > 1 {
		return s, errors.New("-quantile must be from 0 to 1")
	}
	var err, peersErr error
	s.only, err = regexp.Compile(*only)
	s.peers, peersErr = regexp.Compile(*peers)
	return s, errors.Join(err, peersErr)
}

// shortRows are regular expressions that match the rows of -short, some of each kind.
var shortRows = []string{
	"^first join", "^join of", "^leading", "^election hand-over", "^mutex", "^immediate.*draining", "^requests", "^watches fired",
	"^locks per second", "^hand-over of a contended lock, 8 contenders", "^processor time per lock, (client|server), (8|64) contenders$",
	"^counter.*8", "^queue.*8", "^cache", "^goroutines", "^memory, (live|resident per)",
}

// applyShort changes the settings that the flag -short implies.
func (s *settings) applyShort() {
	s.rounds, s.candidates, s.elections, s.passes, s.warmJoins = 40, 500, 1000, 2, 20
	s.longPause, s.warmPeriods = 100*time.Millisecond, 1
	s.period = benchmark.Period{Warmup: 100 * time.Millisecond, Length: 400 * time.Millisecond}
}

func main() {
	s, err := parseFlags()
	benchmark.Main("bench", err, s.limit, func(ctx context.Context) error {
		switch {
		case s.footprint != "":
			return printFootprint(ctx, s.footprint, s.addr, s.candidates, waiting(s.waiting), s.heapProfile)
		case s.list:
			(&bench{settings: s}).printNames()
			return nil
		default:
			return runBenchmark(ctx, s)
		}
	})
}

func runBenchmark(ctx context.Context, s settings) (err error) {
	var recorded recording
	if s.compare != "" {
		if recorded, err = readRecordingFile(s.compare); err != nil {
			return err
		}
	}
	r := report{Seed: s.seed, Delay: s.delay.String(), Environment: newEnvironment()}
	dir, err := os.MkdirTemp("", "leaderelection-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{settings: s, dir: dir, random: rand.New(rand.NewPCG(s.seed, 0)), installation: installation{startServers: startServers}}
	if err := b.requireQuiet(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.open(ctx, 1); err != nil {
		return err
	}
	r.Environment.Server, r.Absent = b.backend, b.absent
	if r.Environment.ZooKeeper, err = b.server.version(); err != nil {
		return err
	}
	for _, c := range b.contestants {
		r.Contestants = append(r.Contestants, c.name())
		if p, ok := c.(*process); ok {
			r.Environment.Machine.Versions[c.name()] = p.version
		}
	}

	if s.curve != "" {
		return b.runCurve(ctx, os.Stdout, s.curve)
	}
	if err := b.measureAll(ctx); err != nil {
		return err
	}
	r.Rows = b.results
	r.Environment.Machine.LoadAfter = benchmark.Load()
	r.print(os.Stdout, s)
	now := newRecording(ctx, &r, time.Now())
	if s.compare != "" {
		printComparison(os.Stdout, s.compare, recorded, now)
	}
	if s.json != "" {
		err = benchmark.WriteJSON(s.json, &r)
	}
	if s.record != "" {
		err = errors.Join(err, now.writeFile(s.record))
	}
	return err
}
