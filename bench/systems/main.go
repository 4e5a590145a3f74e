package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"k8s.io/klog/v2"

	"github.com/go-leaderelection/leaderelection/bench/internal/benchmark"
)

type settings struct {
	handOvers, crashes int
	timeout, limit     time.Duration
	only               *regexp.Regexp
}

func parseFlags() (settings, error) {
	var s settings
	flag.IntVar(&s.handOvers, "handovers", 20, "`number` of hand-overs of each system")
	flag.IntVar(&s.crashes, "crashes", 5, "`number` of crashes of each system")
	flag.DurationVar(&s.timeout, "timeout", 4*time.Second, "session timeout, time to live or lease `duration`: whole seconds, 2 or more")
	flag.DurationVar(&s.limit, "limit", 30*time.Minute, "maximum `duration` of the run")
	only := flag.String("only", "", "measure only systems whose name matches this `pattern`")
	flag.Parse()
	if flag.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if s.handOvers < 1 || s.crashes < 1 {
		return s, errors.New("-handovers and -crashes must be 1 or more")
	}
	if s.timeout < 2*time.Second || s.timeout%time.Second != 0 {
		return s, errors.New("-timeout must be 2s or more, in whole seconds, as etcd requires")
	}
	var err error
	s.only, err = regexp.Compile(*only)
	return s, err
}

func main() {
	s, err := parseFlags()
	// Discard the log of client-go, which contains each lease that it loses.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	benchmark.Main("systems", err, s.limit, func(ctx context.Context) error { return printTable(ctx, s) })
}

func printTable(ctx context.Context, s settings) error {
	fmt.Printf("Load average before: %s.\n\n", benchmark.Load())
	fmt.Println("| system | timeout | hand-over, ms (quartiles) | fail-over after a crash, s (quartiles) |")
	fmt.Println("| --- | --- | --- | --- |")
	for _, sys := range newSystems(s.timeout) {
		if !s.only.MatchString(sys.name) {
			continue
		}
		f, err := measure(ctx, sys, s)
		if err != nil {
			return fmt.Errorf("%s: %w", sys.name, err)
		}
		fmt.Printf("| %s | %v | %s | %s |\n", sys.name, sys.timeout,
			benchmark.Spread("%.3g", f.handOvers), benchmark.Spread("%.3g", f.failOvers))
	}
	fmt.Printf("\nLoad average after: %s.\n", benchmark.Load())
	return nil
}
