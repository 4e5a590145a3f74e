package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"time"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
	"github.com/go-leaderelection/leaderelection/bench/internal/zookeeper"
)

// settings are what the flags say.
type settings struct {
	rounds     int
	candidates int
	seed       uint64
	only       *regexp.Regexp
	json       string
	limit      time.Duration

	warmJoins       int
	pause, bigPause time.Duration
	warmSpells      int
	spell           spell

	footprint, addr, heapProfile string // of a process that measures itself
}

func parse() (settings, error) {
	s := settings{
		warmJoins: 150, pause: 25 * time.Millisecond, bigPause: 250 * time.Millisecond,
		warmSpells: 2, spell: spell{lead: 250 * time.Millisecond, length: time.Second},
	}
	flag.IntVar(&s.rounds, "rounds", 80, "`rounds` of joins, hand-overs and take-overs; lines of thousands have a quarter of them")
	flag.IntVar(&s.candidates, "candidates", 2000, "`length` of the longest line")
	flag.Uint64Var(&s.seed, "seed", uint64(time.Now().UnixNano()), "`seed` of the order of turns")
	only := flag.String("only", "", "measure only rows whose name matches this `pattern`")
	flag.StringVar(&s.json, "json", "", "write every value to this `file`")
	flag.DurationVar(&s.limit, "limit", 20*time.Minute, "give up after this `time`")
	quick := flag.Bool("quick", false, "see that everything works, in a minute or two: the figures are worth little")
	flag.StringVar(&s.footprint, "footprint", "", "measure only what a candidate of this `contestant` costs this process, on the server at -addr")
	flag.StringVar(&s.addr, "addr", "", "`host:port` of a server, for -footprint")
	flag.StringVar(&s.heapProfile, "heapprofile", "", "write a heap profile to this `file`, with -footprint")
	flag.Parse()
	if flag.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if *quick {
		s.rounds, s.candidates, s.warmJoins = 8, min(s.candidates, 200), 10
		s.warmSpells, s.spell.length = 1, 500*time.Millisecond
	}
	if s.rounds < 1 || s.candidates < 2 {
		return s, errors.New("-rounds must be 1 or more, and -candidates 2 or more")
	}
	var err error
	s.only, err = regexp.Compile(*only)
	return s, err
}

func main() {
	s, err := parse()
	benchmark.Main("bench", err, s.limit, func(ctx context.Context) error {
		if s.footprint != "" {
			return footprintMain(ctx, s.footprint, s.addr, s.candidates, s.heapProfile)
		}
		return run(ctx, s)
	})
}

func run(ctx context.Context, s settings) (err error) {
	r := report{Seed: s.seed, Environment: newEnvironment(), Absent: never}
	server, err := zookeeper.Start(ctx, sessionTimeout/10)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	addr := server.Addr(0)
	control, err := newControl(addr)
	if err != nil {
		return err
	}
	defer control.close()
	r.Environment.Server = server.Backend().String()
	if r.Environment.ZooKeeper, err = control.version(); err != nil {
		return err
	}

	dir, err := os.MkdirTemp("", "leaderelection-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{
		settings: s, control: control, random: rand.New(rand.NewPCG(s.seed, 0)),
		contestants: []contestant{newFloor(addr), newLibrary(addr), newZKLock(addr)},
	}
	for _, other := range []struct {
		name  string
		start func(ctx context.Context, addr, dir string) (*peer, error)
	}{{kazooName, startKazoo}, {curatorName, startCurator}} {
		p, err := other.start(ctx, addr, dir)
		if err != nil {
			r.Absent = append(r.Absent, absent{other.name, err.Error()})
			continue
		}
		b.contestants = append(b.contestants, p)
		r.Environment.Machine.Versions[other.name] = p.version
	}
	defer func() {
		for _, c := range b.contestants {
			err = errors.Join(err, c.close())
		}
	}()
	for _, c := range b.contestants {
		r.Contestants = append(r.Contestants, c.name())
	}

	if err := b.measure(ctx); err != nil {
		return err
	}
	r.Rows = b.rows
	r.Environment.Machine.LoadAfter = benchmark.Load()
	r.print(os.Stdout, s)
	if s.json == "" {
		return nil
	}
	return r.writeJSON(s.json)
}
