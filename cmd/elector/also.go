package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/migration"
)

const (
	flagAlso         = "also"
	flagAlsoElection = "also-election"
)

// migrationFlags contains the flags --also and --also-election of a migration to a second backend. During a
// migration, an instance leads only while it leads on both backends.
type migrationFlags struct {
	backend  string // the name of the second backend, or of a file with its settings; "" without a migration
	election string // the value of --also-election; "" means the name of --election, or the name in the file

	second *settings // the settings of the second backend; nil without a migration, and before check was called

	candidate atomic.Pointer[migration.Candidate] // the newest candidate, which takes part on both backends
	last      atomic.Pointer[secondToken]         // the last result of the method token
}

// secondToken is the fencing token on the second backend of a leadership that an instance has on both backends.
type secondToken struct {
	leadership *leaderelection.Leadership
	token      int64
}

// token returns the fencing token of l on the second backend, and remembers it. known is false without a migration.
// The last token remains known after l has ended, so that the end command receives that token even if the candidate
// leads again.
func (a *migrationFlags) token(l *leaderelection.Leadership) (token int64, known bool) {
	if c := a.candidate.Load(); c != nil {
		if _, second := c.Leaderships(l); second != nil {
			a.last.Store(&secondToken{l, second.Token()})
		}
	}
	last := a.last.Load()
	if last == nil || last.leadership != l {
		return 0, false
	}
	return last.token, true
}

func (a *migrationFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&a.backend, flagAlso, "", "second backend, to which the election is moved from --backend: this instance leads only while it leads on both. Its servers are given by the flags of that backend; or --also names a file like that of --config with all settings of the second backend, which can be of the same kind")
	flags.StringVar(&a.election, flagAlsoElection, "", "name of the election on the backend of --also (default: that of --election); not with a file, which contains the name")
}

// check returns a usage error if the flags are invalid or unnecessary. Otherwise it sets a.second to the settings of
// the second backend. checkBackend checks the settings of one backend.
func (a *migrationFlags) check(s *settings, checkBackend func(*settings) error) error {
	switch {
	case a.backend == "" && a.election != "":
		return usage("--also-election %s requires --also, for example --also etcd", a.election)
	case a.backend == "":
		return nil
	case a.backend == s.backend:
		return usage("--also %s: --backend already names this backend: name another backend, for example --also %s, or a file with the settings of the second election, for example --also new.yaml", a.backend, otherBackend(s.backend))
	case backendKinds[a.backend].open == nil:
		return a.checkFile(s, checkBackend)
	}
	second := *s
	second.backend, second.election, second.isSecond = a.backend, cmp.Or(a.election, s.election), true
	a.second = &second
	return checkBackend(a.second)
}

// checkFile checks the flags like check, if --also names a file.
func (a *migrationFlags) checkFile(s *settings, checkBackend func(*settings) error) error {
	second, err := a.readFile(s)
	if err != nil {
		return err
	}
	err = checkBackend(second)
	switch {
	case err != nil:
		return second.addFileToError(err)
	case sameElection(s, second):
		return usage("--also %s: the settings of --backend %s already name this election: name an election on other servers, or with another name, for example in the key %q of the file", a.backend, s.backend, flagElection)
	}
	a.second = second
	return nil
}

// readFile returns the settings of the second backend, which it reads from the file that --also names. Flags and
// variables do not change these settings. The name of the instance and the log are those of s.
func (a *migrationFlags) readFile(s *settings) (*settings, error) {
	second := &settings{alsoFile: a.backend, log: s.log.With(flagAlso, a.backend)}
	newRootWith(second, newRun(&runCommand{settings: second}))
	warning, err := cmdline.ReadOnlyFile(flagAlso, a.backend, second.keys, isCredential)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, usage("--also %s: not one of this build's backends (%s), and there is no such file", a.backend, backendNames())
	case err != nil && strings.HasPrefix(err.Error(), a.backend+":"): // the error concerns the content of the file
		return nil, usage("%w; the file has the form of --config, for example --also new.yaml", err)
	case err != nil:
		return nil, cmdline.Errorf(cmdline.Usage, "%w", err)
	case a.election != "":
		return nil, usage("--also-election %s: the file of --also contains the name of the election: omit the flag, for example --also %s", a.election, a.backend)
	case !second.keys.Lookup(flagElection).Changed:
		return nil, usage("--also %s: the file must contain the name of the election, which --election does not set for it; for example election: %s", a.backend, s.election)
	}
	for _, key := range []string{flagAlso, flagAlsoElection} {
		if second.keys.Lookup(key).Changed {
			return nil, cmdline.Errorf(cmdline.Usage, "--also %s: the file contains the key %q, but only two backends are possible: remove the key", a.backend, key)
		}
	}
	second.warnOfVariables()
	second.instanceID, second.value = s.instanceID, s.value
	second.warnOnce("--"+flagAlso, warning)
	second.inferBackend()
	return second, nil
}

// addFileToError adds the name of the file of --also to an error, if there is such a file. The error then names flags by
// the keys and lines of the file.
func (s *settings) addFileToError(err error) error {
	if err == nil || s.alsoFile == "" {
		return err
	}
	words := strings.FieldsFunc(err.Error(), func(c rune) bool { return c != '-' && (c < 'a' || c > 'z') })
	named, places := false, ""
	s.keys.VisitAll(func(f *pflag.Flag) {
		if f.Name == flagAlso || !slices.Contains(words, "--"+f.Name) {
			return
		}
		if named = true; cmdline.IsFromFile(f) {
			places += " (" + cmdline.Source(f) + ")"
		}
	})
	if !named {
		return err
	}
	return cmdline.Errorf(exitCode(err), "--also %s, in which keys replace the flags of this backend: %w%s", s.alsoFile, err, places)
}

// warnOfVariables logs a warning for each environment variable that sets another value than a key in the file of
// --also. The first backend may need the variable, but the variable would replace the key as soon as the file is used
// for --config.
func (s *settings) warnOfVariables() {
	s.keys.VisitAll(func(f *pflag.Flag) {
		if !f.Changed || f.Name == keyCommand { // skip the program, which no variable sets
			return
		}
		value := f.Value.String()
		if list, ok := f.Value.(pflag.SliceValue); ok {
			value = strings.Join(list.GetSlice(), ",")
		}
		for _, variable := range configuration.VariablesOf(f.Name) {
			if given := os.Getenv(variable); given != "" && given != value {
				s.log.Warn("a variable has precedence over the file of --also when that becomes the file of --config: remove the variable then", "variable", variable, "key", f.Name)
			}
		}
	})
}

// sameElection reports whether two settings name the same election. It compares the names of servers as text, without
// resolving them.
func sameElection(a, b *settings) bool {
	k := backendKinds[a.backend]
	if a.backend != b.backend || k.electionKeys == nil {
		return false
	}
	return slices.ContainsFunc(k.electionKeys(b), func(key string) bool { return slices.Contains(k.electionKeys(a), key) })
}

// otherBackend returns the name of another backend than the given one, for an example in an error.
func otherBackend(backend string) string {
	if backend == "zookeeper" {
		return "etcd"
	}
	return "zookeeper"
}

// openRun opens the backend for the command run. If there is a second backend, the result is the combination of both:
// a candidate leads only while it leads on both, and observers see the leader on the first backend.
func (a *migrationFlags) openRun(s *settings) (backend, error) {
	first, err := s.openRun()
	if err != nil || a.backend == "" {
		return first, err
	}
	second, err := a.second.openRun()
	if err != nil {
		first.close()
		return backend{}, a.second.addFileToError(err)
	}
	if a.second.alsoFile != "" { // otherwise monitoring s covers the files of the second backend as well
		stop, closeBackend := a.second.monitorFiles(), second.close
		second.close = func() {
			stop()
			closeBackend()
		}
	}
	return a.combineBackends(s, first, second), nil
}

// combineBackends returns a backend whose candidates must lead on both backends. It lists and observes the candidates
// of the first backend.
func (a *migrationFlags) combineBackends(s *settings, first, second backend) backend {
	b := first
	b.close = func() {
		second.close()
		first.close()
	}
	b.sessionTimeout = func() time.Duration { return min(first.timeout(s), second.timeout(a.second)) }
	b.awaitSession = func(ctx context.Context) error {
		for _, await := range []func(context.Context) error{first.awaitSession, second.awaitSession} {
			if await == nil {
				continue
			}
			if err := await(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	var met atomic.Bool // whether the second backend was connected before
	b.connected = func() error {
		err := second.checkConnected()
		if err == nil {
			met.Store(true)
		} else if second.start != nil && !met.Load() {
			// Report no error before the second backend was connected once: the majority of its peers may not run
			// yet, and a supervisor starts the next instance only when this instance is ready.
			err = nil
		}
		return errors.Join(first.checkConnected(), err)
	}
	b.healthy = func() error {
		var errs []error
		for _, healthy := range []func() error{first.healthy, second.healthy} {
			if healthy != nil {
				errs = append(errs, healthy())
			}
		}
		return errors.Join(errs...)
	}
	b.newCandidate = func(ctx context.Context) (leaderelection.Candidate, error) {
		// A program that must stop may use the time until its lease expires, and then --lost-grace, which is at
		// most timeout/leaseMargin. The grace covers both.
		timeout := max(first.timeout(s), second.timeout(a.second))
		grace := timeout + timeout/leaseMargin
		if second.start != nil {
			if err := second.start(); err != nil {
				return nil, a.second.addFileToError(err)
			}
		}
		checking, cancel := context.WithTimeout(ctx, differentElectionsLimit)
		defer cancel()
		if err := a.checkDifferentElections(checking, first, second); err != nil {
			return nil, err
		}
		candidate, err := migration.NewCandidate(ctx, first.newCandidate, func(ctx context.Context) (leaderelection.Candidate, error) {
			// Check again, because a backend may not have answered the first check.
			if err := a.checkDifferentElections(ctx, first, second); err != nil {
				return nil, err
			}
			return second.newCandidate(ctx)
		}, migration.WithGrace(grace), migration.WithLogger(s.electionLog()))
		if err != nil {
			return nil, err
		}
		a.candidate.Store(candidate)
		return candidate, nil
	}
	return b
}

// differentElectionsLimit is how long the creation of a candidate waits for the answers that checkDifferentElections needs.
const differentElectionsLimit = 2 * time.Second

// checkDifferentElections returns an error if both backends answer and contain the same election. In one election, no instance
// could lead twice: its second candidate would wait for its first.
func (a *migrationFlags) checkDifferentElections(ctx context.Context, first, second backend) error {
	if first.epoch == nil || second.epoch == nil {
		return nil
	}
	inFirst, err := first.epoch(ctx)
	if err != nil || inFirst == "" {
		return nil // ignore the error, which the candidates report
	}
	if inSecond, err := second.epoch(ctx); err != nil || inSecond != inFirst {
		return nil
	}
	return usage("--also %s: its store contains the election of --store, so it is the same store at another address, or a copy: name another store, or another election, for example in the key %q of the file: %w", a.backend, flagElection, leaderelection.ErrInvalid)
}

// advise adds advice for the user to an error that has ended the command run.
func (a *migrationFlags) advise(s *settings, err error) error {
	if errors.Is(err, migration.ErrNewElection) {
		return a.second.addFileToError(a.second.advise(err))
	}
	return s.advise(err)
}

// timeout returns the session timeout that the servers have granted, or 0 if it is not known yet. If the backend has
// no function sessionTimeout, it returns the timeout of the settings.
func (b backend) timeout(s *settings) time.Duration {
	if b.sessionTimeout == nil {
		return s.requestedTimeout()
	}
	return b.sessionTimeout()
}
