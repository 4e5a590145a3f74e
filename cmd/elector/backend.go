package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// backend contains the functions of an opened backend. Functions that the backend does not support are nil, except
// for close, which every backend has. requirements lists the functions that each command needs.
type backend struct {
	// close releases the resources of the backend. It returns within seconds.
	close func()

	// start, which is optional, starts what each instance of the command run must provide to other instances, such
	// as a peer of a Raft log. With --also, other instances need it even before this instance joins the election.
	start func() error
	// newCandidate creates a candidate. It waits for the backend until ctx is done. Only backends that openRun has
	// returned have this function.
	newCandidate func(ctx context.Context) (leaderelection.Candidate, error)
	// sessionTimeout returns the session timeout, or 0 if it is not known yet. If sessionTimeout is nil, the timeout
	// of the settings applies.
	sessionTimeout func() time.Duration
	// awaitSession waits until the servers have granted a session timeout. It is nil if the servers always use the
	// timeout of the settings.
	awaitSession func(ctx context.Context) error
	// connected returns an error if the backend is not connected. It may be nil: callers use checkConnected.
	connected func() error
	// healthy returns an error if the backend cannot recover without a restart of this process.
	healthy func() error

	// epoch returns a text that identifies the election and differs for each election, even at the same name. It
	// returns "" if the election does not exist.
	epoch func(ctx context.Context) (string, error)

	// list returns the candidates in the order of succession, the leader first. Its error wraps
	// leaderelection.ErrNoElection if the election does not exist.
	list func(ctx context.Context, election string) ([]candidateInfo, error)
	// watch sends the current leader and each change of the leader, until ctx is done. The last
	// observation before the channel is closed may be an error.
	watch func(ctx context.Context, election string) (<-chan observation, error)
	// requestResignation requests a candidate to resign. It returns nil after the candidate has
	// left, and an error that wraps the cause of ctx if it has not left when ctx is done.
	requestResignation func(ctx context.Context, election string, candidate candidateInfo) error
	// transfer makes the candidate with the given name the leader, and returns nil when that candidate leads. The
	// error wraps leaderelection.ErrNotTransferred if the candidate does not take over, and the cause of ctx if ctx
	// was done first. transfer is nil if the candidates wait in a queue.
	transfer func(ctx context.Context, election, to string) error
	// anyElection is true if the functions with the parameter election accept elections other than --election.
	anyElection bool
	// find returns the elections below a znode. complete is false if there may be more elections.
	find func(ctx context.Context, parent string) (elections []string, complete bool, err error)

	// examine checks the servers and the election. If some checks were not possible, the last findings contain the
	// reason.
	examine func(ctx context.Context) []finding

	// endElection ends the election, so that all candidates leave. It returns an error if the election does not
	// exist.
	endElection func(ctx context.Context) error
	// deleteElection ends the election, and returns nil if the election does not exist. Some backends also delete the
	// data of the election.
	deleteElection func(ctx context.Context) error
}

const (
	topOtherElection = "top of another election than --election"
	topUnder         = "top --under"
)

// requirements contains, for each command or form of a command, a function that reports whether a backend supports
// the command.
var requirements = map[string]func(backend) bool{
	"status":         func(b backend) bool { return b.list != nil },
	"watch":          func(b backend) bool { return b.watch != nil },
	"top":            func(b backend) bool { return b.list != nil && b.watch != nil },
	topOtherElection: func(b backend) bool { return b.anyElection },
	topUnder:         func(b backend) bool { return b.find != nil },
	"resign":         func(b backend) bool { return b.list != nil && b.requestResignation != nil },
	"transfer":       func(b backend) bool { return b.transfer != nil || b.list != nil && b.requestResignation != nil },
	"doctor":         func(b backend) bool { return b.examine != nil },
	"end":            func(b backend) bool { return b.endElection != nil },
	"delete":         func(b backend) bool { return b.deleteElection != nil },
}

// checkConnected returns an error if the backend reports that it is not connected.
func (b backend) checkConnected() error {
	if b.connected == nil {
		return nil
	}
	return b.connected()
}

// backendKind describes a kind of backend. Functions that are marked as optional may be nil.
type backendKind struct {
	// functions contains the functions of an opened backend. They have no receiver, so they are only compared with
	// nil, and never called.
	functions backend
	// flags, which is optional, registers the flags of the backend.
	flags func(*settings, *pflag.FlagSet)
	// servers returns the servers in the settings, without passwords, or "" if the settings contain no servers.
	servers func(*settings) string
	// electionKeys returns a text for each server. Two settings that check has accepted name the same election if they have
	// one of these texts in common. electionKeys is nil for a backend whose elections exist within one process.
	electionKeys func(*settings) []string
	// check returns an error if the settings are invalid. It does not contact servers.
	check func(*settings) error
	// checkRun, which is optional, checks the settings that only the command run needs.
	checkRun func(*settings) error
	// open opens the backend with settings that check has accepted, without waiting for servers.
	open func(*settings) (backend, error)
	// openRun opens the backend for the command run. If openRun is nil, the command run uses open.
	openRun func(*settings) (backend, error)
	// sessionTimeout returns the session timeout that the settings request. sessionTimeout is nil if the backend has
	// no sessions.
	sessionTimeout func(*settings) time.Duration
	// supportsValues reports whether candidates can advertise a value (--value).
	supportsValues bool
	// advise adds advice for the user to an error that the backend has returned. It is optional.
	advise func(*settings, error) error
}

// backendKinds contains the backends of this build. The file of each backend adds its kind. Build tags
// exclude some of these files; docs/elector.md lists the tags.
var backendKinds = map[string]backendKind{}

func backendNames() string { return strings.Join(allBackends(), ", ") }

func allBackends() []string { return slices.Sorted(maps.Keys(backendKinds)) }

// inferBackend sets the name of the backend, if the user has not set it, and the settings contain the servers of
// exactly one backend.
func (s *settings) inferBackend() {
	if s.backend != "" {
		return
	}
	var given []string
	for name, k := range backendKinds {
		if k.servers(s) != "" {
			given = append(given, name)
		}
	}
	if len(given) == 1 {
		s.backend = given[0]
	}
}

// backendKindOf returns the kind of the backend that the settings name, or a usage error.
func (s *settings) backendKindOf() (backendKind, error) {
	k, found := backendKinds[s.backend]
	switch {
	case s.backend == "":
		return k, usage("--backend is required: one of %s", backendNames())
	case !found:
		return k, usage("--backend %s: not one of this build's backends: %s", s.backend, backendNames())
	}
	return k, nil
}

// check returns a usage error if the settings of the backend are invalid. It does not contact servers.
func (s *settings) check() error {
	k, err := s.backendKindOf()
	if err != nil {
		return err
	}
	return k.check(s)
}

// checkElection returns a usage error if the function check rejects the name of the election.
func (s *settings) checkElection(check func(name string) error) error {
	if err := check(s.election); err != nil {
		return usage("--%s: %w", s.electionFlag(), err)
	}
	return nil
}

// electionKeysAt returns a text for each server, which contains the server and the election. Two settings name the same
// election if they have one of these texts in common.
func (s *settings) electionKeysAt(servers []string) []string {
	var all []string
	for _, server := range servers {
		all = append(all, strings.ToLower(server)+" "+s.election)
	}
	return all
}

// electionFlag returns the name of the flag for the name of the election. The backend of --also has a separate flag.
func (s *settings) electionFlag() string {
	if s.isSecond {
		return flagAlsoElection
	}
	return flagElection
}

func (s *settings) open() (backend, error) {
	if err := s.check(); err != nil {
		return backend{}, err
	}
	return backendKinds[s.backend].open(s)
}

// openRun opens the backend for the command run. The check of run must have accepted the settings.
func (s *settings) openRun() (backend, error) {
	if open := backendKinds[s.backend].openRun; open != nil {
		return open(s)
	}
	return backendKinds[s.backend].open(s)
}

// openFor opens the backend for a command, which must be a key of the map requirements.
func (s *settings) openFor(command string) (backend, error) {
	if err := s.requireSupport(command); err != nil {
		return backend{}, err
	}
	return s.open()
}

// withBackend opens the backend for a command, calls f with a context that is limited by timeout, and
// closes the backend.
func (s *settings) withBackend(cmd *cobra.Command, timeout time.Duration, f func(context.Context, backend) error) error {
	b, err := s.openFor(cmd.Name())
	if err != nil {
		return err
	}
	defer b.close()
	ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
	defer cancel()
	return f(ctx, b)
}

// requireSupport returns a usage error that wraps [errors.ErrUnsupported] if the backend does not support a command.
// It does not check other settings, because correcting them would not help the user.
func (s *settings) requireSupport(command string) error {
	k, err := s.backendKindOf()
	if err != nil {
		return err
	}
	meets := requirements[command]
	if meets(k.functions) {
		return nil
	}
	var supporting []string
	for _, name := range slices.Sorted(maps.Keys(backendKinds)) {
		if meets(backendKinds[name].functions) {
			supporting = append(supporting, name)
		}
	}
	advice := ""
	if command == "resign" && s.backend != "console" {
		advice = "; use elector transfer, or send TERM to the leading elector: it hands over, and exits"
	}
	return usage("%s: %w of backend %s, only of %s%s", command, errors.ErrUnsupported, s.backend, strings.Join(supporting, ", "), advice)
}

// advise adds advice for the user to an error that the backend has returned.
func (s *settings) advise(err error) error {
	if k := backendKinds[s.backend]; err != nil && k.advise != nil {
		return k.advise(s, err)
	}
	return err
}

// describeTimeout adds the timeout and the servers to err if ctx is done. Otherwise it adds advice for the user.
func (s *settings) describeTimeout(ctx context.Context, timeout time.Duration, err error) error {
	if err == nil || ctx.Err() == nil {
		return s.advise(err)
	}
	// Remove the prefix ErrUnreachable and the cause, with which the errors of zkdial.Wait and of the
	// etcd backend begin.
	reason := ": " + err.Error()
	for _, repeated := range []error{leaderelection.ErrUnreachable, context.Cause(ctx)} {
		reason = strings.TrimPrefix(reason, ": "+repeated.Error())
	}
	text := fmt.Sprintf("no answer from %s at %s within %v", s.backend, backendKinds[s.backend].servers(s), timeout)
	return &timeoutError{text + reason, err}
}

// timeoutError is the error of a command whose backend has not answered in time. Its text omits the parts of err that
// only repeat this fact.
type timeoutError struct {
	text string
	err  error
}

func (e *timeoutError) Error() string { return e.text }

func (e *timeoutError) Unwrap() error { return e.err }

// adviseCredentials adds to an error the names of the settings for credentials, or the name of the file of --also
// that contains all settings. given reports whether the user has set credentials.
func (s *settings) adviseCredentials(err error, given bool, names string) error {
	place, missing := names, ": set "+names
	if s.alsoFile != "" {
		place = "the file of --also, " + s.alsoFile
		missing = " in " + place
	}
	if !given {
		return fmt.Errorf("%w; there are no credentials%s", err, missing)
	}
	return fmt.Errorf("%w; check the credentials in %s", err, place)
}

// retryCandidate calls create once a second until create succeeds, ctx is done, or the error is not transient,
// because electors may start before their servers. It logs message with each error.
func (s *settings) retryCandidate(ctx context.Context, message string, transient func(error) bool, create func() (leaderelection.Candidate, error)) (leaderelection.Candidate, error) {
	log := s.limitedLog()
	for {
		c, err := create()
		switch {
		case err == nil:
			return c, nil
		case ctx.Err() != nil || !transient(err):
			return nil, err
		}
		log.Warn(message, "err", s.advise(err))
		if done := limit.Pause(ctx, time.Second); done != nil {
			return nil, fmt.Errorf("%w: %w", err, done)
		}
	}
}

// lazy is a value that is created when it is needed for the first time.
type lazy[T any] struct {
	mu    sync.Mutex // mu is held while the value is created
	value atomic.Pointer[T]
}

// get returns the value. It calls create if no earlier call of get has created the value.
func (l *lazy[T]) get(create func() (*T, error)) (*T, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v := l.value.Load(); v != nil {
		return v, nil
	}
	v, err := create()
	if err != nil {
		return nil, err
	}
	l.value.Store(v)
	return v, nil
}

// created returns the value, or nil if get has not created it yet. It does not wait while get creates the value.
func (l *lazy[T]) created() *T { return l.value.Load() }

// close calls f with the value if get has created it.
func (l *lazy[T]) close(f func(*T)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v := l.value.Load(); v != nil {
		f(v)
	}
}
