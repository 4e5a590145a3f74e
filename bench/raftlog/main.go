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

	"github.com/go-leaderelection/leaderelection/bench/internal/command"
)

// settings are what the flags say.
type settings struct {
	rounds    int
	spell     spell
	clients   []int
	failOvers int
	only      *regexp.Regexp
	dir       string
	seed      uint64
	json      string
	limit     time.Duration
	timeouts  timeouts      // of clusters that are not there to fail over
	syncs     int           // how many to measure the disk with
	pause     time.Duration // between cells, for the disk to settle
}

func parse() (settings, error) {
	s := settings{syncs: 500, pause: 250 * time.Millisecond}
	flag.IntVar(&s.rounds, "rounds", 5, "`rounds` of every cell")
	seconds := flag.Float64("seconds", 5, "`seconds` that a cell is measured, after a quarter as long that does not count")
	clients := flag.String("clients", "1,16,256", "`numbers` of concurrent clients")
	flag.IntVar(&s.failOvers, "failovers", 15, "`number` of fail-overs of each contestant")
	only := flag.String("only", "", "measure only cells whose name matches this `pattern`, such as \"etcd.*, 16 clients\" or fail-over")
	flag.StringVar(&s.dir, "dir", os.TempDir(), "`directory` on a real disk, for the nodes' files")
	flag.Uint64Var(&s.seed, "seed", uint64(time.Now().UnixNano()), "`seed` of the order of cells")
	flag.StringVar(&s.json, "json", "", "write every value to this `file`")
	flag.DurationVar(&s.limit, "limit", 30*time.Minute, "give up after this `time`")
	flag.Parse()
	if flag.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if s.rounds < 1 || *seconds <= 0 || s.failOvers < 0 {
		return s, errors.New("-rounds must be 1 or more, -seconds more than 0, and -failovers 0 or more")
	}
	s.spell.length = time.Duration(*seconds * float64(time.Second))
	s.spell.lead = s.spell.length / 4
	var err error
	if s.clients, err = levels(*clients); err != nil {
		return s, err
	}
	s.only, err = regexp.Compile(*only)
	return s, err
}

// levels reads numbers of clients.
func levels(text string) ([]int, error) {
	var levels []int
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 1 || n > 10_000 {
			return nil, fmt.Errorf("-clients: %q is not a number from 1 to 10000", part)
		}
		levels = append(levels, n)
	}
	return levels, nil
}

func main() {
	s, err := parse()
	command.Main("raftlog", err, s.limit, func(ctx context.Context) error {
		r, err := run(ctx, s, peers())
		if err != nil {
			return err
		}
		r.print(os.Stdout, isPeer)
		if s.json != "" {
			return r.writeJSON(s.json)
		}
		return nil
	})
}
