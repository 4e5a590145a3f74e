package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	run := flag.String("run", "", "run only the mutants whose names match this regular `expression`")
	list := flag.Bool("list", false, "print the table and run nothing")
	limit := flag.Duration("timeout", 5*time.Minute, "how long the tests of one mutant may take")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := runMutants(ctx, os.Stdout, *run, *list, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		os.Exit(1)
	}
}

// runMutants runs the mutants whose names match pattern, and writes a line for each of them. It returns an error
// unless the tests kill every mutant.
func runMutants(ctx context.Context, w io.Writer, pattern string, list bool, limit time.Duration) error {
	selected, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	root, err := filepath.Abs("..") // the root of the repository
	if err != nil {
		return err
	}
	r := runner{root: root, limit: limit, passing: map[string]bool{}}
	var killed, equivalent int
	var failed []string
	for _, m := range table() {
		if !selected.MatchString(m.name) {
			continue
		}
		switch {
		case m.equivalent != "":
			equivalent++
			fmt.Fprintf(w, "equivalent  %s: %s\n", m.name, m.equivalent)
			continue
		case list:
			fmt.Fprintf(w, "%-44s %s\n", m.name, m.breaks)
			continue
		}
		begin := time.Now()
		by, err := r.runMutant(ctx, &m)
		if err != nil {
			failed = append(failed, m.name)
			fmt.Fprintf(w, "FAILED      %s: %v (%s)\n", m.name, err, m.breaks)
			continue
		}
		killed++
		fmt.Fprintf(w, "killed      %s by %s in %.1fs\n", m.name, by, time.Since(begin).Seconds())
	}
	if list {
		return nil
	}
	fmt.Fprintf(w, "%d killed, %d equivalent, %d failed\n", killed, equivalent, len(failed))
	if len(failed) > 0 {
		return fmt.Errorf("not killed: %s", strings.Join(failed, ", "))
	}
	return ctx.Err()
}

// runner runs the tests of mutants.
type runner struct {
	root    string
	limit   time.Duration
	passing map[string]bool // the arguments of go test with which the tests pass without an edit
}

var (
	errSurvived   = errors.New("survived: the tests pass with the edit")
	errHung       = errors.New("the tests hang instead of failing")
	errDoesNotRun = errors.New("the tests do not build or do not run")
)

var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// runMutant runs the tests of a mutant, and returns the name of the first test that fails.
func (r *runner) runMutant(ctx context.Context, m *mutant) (by string, err error) {
	text, err := m.mutate(r.root)
	if err != nil {
		return "", err
	}
	if !r.passing[m.tests] {
		if out, err := r.runTests(ctx, m.tests, ""); err != nil {
			return "", fmt.Errorf("the tests fail even without the edit: %w\n%s", err, out)
		}
		r.passing[m.tests] = true
	}
	dir, err := os.MkdirTemp("", "mutation")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	edited, overlay := filepath.Join(dir, filepath.Base(m.file)), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(r.root, m.file): edited}})
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.WriteFile(edited, text, 0o600), os.WriteFile(overlay, replace, 0o600)); err != nil {
		return "", err
	}
	out, err := r.runTests(ctx, m.tests, overlay)
	switch failed := failure.FindSubmatch(out); {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err == nil && strings.Contains(string(out), "no tests to run"):
		return "", fmt.Errorf("%w: no test matches %s", errDoesNotRun, m.tests)
	case err == nil:
		return "", errSurvived
	case strings.Contains(string(out), "panic: test timed out"):
		return "", errHung
	case failed == nil && !strings.Contains(string(out), "panic: "):
		return "", fmt.Errorf("%w:\n%s", errDoesNotRun, out)
	case failed == nil:
		return "a panic", nil
	default:
		return string(failed[1]), nil
	}
}

// runTests runs go test, with the file overlay for the compiler unless overlay is empty. The overlay also applies to
// programs that the tests build.
func (r *runner) runTests(ctx context.Context, tests, overlay string) ([]byte, error) {
	args := []string{"test", "-vet=off", "-count=1", "-cpu=1", "-failfast", "-timeout=" + r.limit.String()}
	cmd := exec.CommandContext(ctx, "go", append(args, strings.Fields(tests)...)...)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "GOWORK=auto") // this command runs with GOWORK=off, but the tests need the workspace
	if overlay != "" {
		cmd.Env = append(cmd.Env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	return cmd.CombinedOutput()
}
