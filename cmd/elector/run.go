package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/cmd/internal/child"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/elector"
)

// maxValue bounds --value, in bytes: the library's limit is higher, but each list of candidates
// has all values.
const maxValue = 4096

// runner is the command run.
type runner struct {
	*settings
	beginCommand, endCommand string
	errorCommand             string
	followerCommand          string
	program                  []string // nil without

	beginTimeout, endTimeout, errorTimeout time.Duration
	endTries                               int
	endPause                               time.Duration
	grace, lostGrace                       time.Duration
	listenOn                               string        // "" for nowhere
	timeout                                time.Duration // 0 for none
	try, stdin                             bool

	granted  func() time.Duration // the session timeout
	attempt  attempt
	leader   leaderView
	follower *follower              // nil without followerCommand
	onReport []func(elector.Report) // called with each report of the Elector

	mu      sync.Mutex
	process *child.Process // of program, while it runs
	// starting: program is being started, and may run already; early are the signals
	// that have come meanwhile.
	starting bool
	early    []syscall.Signal
	exit     *int // of program, when it has ended by itself while leading
}

func newRun(r *runner) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [flags] [-- program arguments...]",
		Short: "Join an election, and run a program or commands while leading",
		Long: `run joins an election and stays a candidate until it receives TERM or INT.

When this instance is elected, run starts the begin command, and then the program, which it
stops when the leadership ends. After that it runs the end command. /bin/sh runs the
commands; the program is started without a shell. Each of them has a separate process group,
which does not outlive the leadership. While another instance leads, run starts the follower
command, once for each leader.

If the program exits, run hands over and exits with the program's exit code.

Exit codes: 0 handed over after TERM or INT; 1 any other error; 2 wrong usage; 3 the end command
has failed permanently, or a handler hangs; 4 the election was ended, or the backend refuses
access; 5 this instance was not elected in the time that --timeout or --try allows; 126 or 127 the
program cannot be executed, or was not found; otherwise the program's exit code.`,
		Example: `  elector run --backend zookeeper --zookeeper-servers zk1,zk2,zk3 --election /jobs/report -- report --daily
  elector run --backend zookeeper --zookeeper-servers localhost:2181 \
      --leader-begin-command 'ip addr add 10.0.0.9/24 dev eth0' \
      --leader-end-command 'ip addr del 10.0.0.9/24 dev eth0 || true'
  elector run --backend raftlog --peers a=10.0.0.1:8047,b=10.0.0.2:8047,c=10.0.0.3:8047 --peer-id a \
      --data /var/lib/elector --secret-file /etc/elector/secret --election report -- report --daily`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.takeProgram(cmd, args); err != nil {
				return err
			}
			return r.run(cmd.Context())
		},
	}
	r.registerRun(cmd.Flags())
	return cmd
}

// takeProgram takes what follows --, or else what the file has.
func (r *runner) takeProgram(cmd *cobra.Command, args []string) error {
	if cmd.ArgsLenAtDash() != 0 && len(args) > 0 {
		return usage("%q: the program to run comes after --, for example elector run ... -- %s", args[0], strings.Join(args, " "))
	}
	r.program = args
	if len(args) == 0 {
		r.program = r.fileProgram
	}
	return nil
}

// registerRun makes the flags that are run's own.
func (r *runner) registerRun(flags *pflag.FlagSet) {
	flags.SetNormalizeFunc(aliases)
	flags.StringVar(&r.beginCommand, "leader-begin-command", "", "shell command to run when this instance is elected; also --leader-start-command (ELECTOR_START_COMMAND)")
	flags.StringVar(&r.endCommand, "leader-end-command", "", "shell command to run after the leadership was lost, and before it is handed over (ELECTOR_STOP_COMMAND)")
	flags.StringVar(&r.errorCommand, "leader-error-command", "", "shell command to run after an error (ELECTOR_ERROR_COMMAND)")
	flags.StringVar(&r.followerCommand, "follower-command", "", "shell command to run when this instance begins to follow, and again when the leader changes; ELECTOR_LEADER is the name of the leader")
	flags.DurationVar(&r.beginTimeout, "begin-timeout", time.Minute, "time limit of the begin command, and of the follower command")
	flags.DurationVar(&r.endTimeout, "end-timeout", 30*time.Second, "time limit of each run of the end command")
	flags.IntVar(&r.endTries, "end-tries", 12, "maximum number of runs of the end command, which is repeated if it fails")
	flags.DurationVar(&r.endPause, "end-pause", 5*time.Second, "time between two runs of the end command")
	flags.DurationVar(&r.errorTimeout, "error-timeout", 30*time.Second, "time limit of the error command, and time between an error and the next candidacy")
	flags.DurationVar(&r.grace, "grace", 10*time.Second, "time between TERM and KILL when a command or the program is stopped")
	flags.DurationVar(&r.lostGrace, "lost-grace", 0, "the same if the leadership is lost, counted from the end of the lease; at most an eighth of the session timeout (default: a tenth)")
	flags.StringVar(&r.listenOn, "listen", "", "host:port of an HTTP server for /healthz, /readyz, /leader and /metrics (default: none)")
	flags.StringVar(&r.value, "value", "", "text that this instance advertises, for example its address; status, watch, /leader and ELECTOR_LEADER_VALUE show it to others; backends zookeeper, etcd and raftlog only")
	flags.BoolVar(&r.stdin, "stdin", false, "pass standard input, which must not be a terminal, to the program; otherwise the program's input is empty")
	flags.DurationVar(&r.timeout, "timeout", 0, "give up with exit code 5 if this instance is not elected within this time (default: no limit)")
	flags.BoolVar(&r.try, "try", false, "give up with exit code 5 if another candidate is ahead, and with code 1 after an error, until this instance is elected; combine it with --timeout if the backend may be unreachable")
}

// check refuses what cannot work.
func (r *runner) check() error {
	if len(r.program) == 0 && r.beginCommand == "" {
		return usage("nothing to run: neither --leader-begin-command nor a program after --, for example elector run ... -- report --daily")
	}
	if r.endTries < 1 {
		return usage("--end-tries %d: it must be at least 1", r.endTries)
	}
	for name, d := range map[string]time.Duration{
		"begin-timeout": r.beginTimeout, "end-timeout": r.endTimeout, "end-pause": r.endPause,
		"error-timeout": r.errorTimeout, "grace": r.grace,
	} {
		if d <= 0 {
			return usage("--%s %v: it must be more than zero", name, d)
		}
	}
	if r.lostGrace < 0 {
		return usage("--lost-grace %v: it must not be negative; for example --lost-grace 200ms", r.lostGrace)
	}
	switch {
	case r.stdin && len(r.program) == 0:
		return usage("--stdin: there is no program that could read it; give one after --, for example elector run --stdin ... -- report < input")
	case r.stdin && r.backend == "console":
		return usage("--stdin: the backend console reads standard input itself; use another backend, for example --backend zookeeper")
	}
	if r.listenOn != "" {
		if err := checkAddress("listen", r.listenOn); err != nil {
			return err
		}
	}
	if len(r.program) > 0 {
		if _, err := exec.LookPath(r.program[0]); err != nil {
			code := exitCannot
			if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
				code = exitNotFound
			}
			return &cmdline.Error{Code: code, Err: err}
		}
	}
	if err := r.settings.check(); err != nil {
		return err
	}
	if check := kinds[r.backend].checkRun; check != nil {
		if err := check(r.settings); err != nil {
			return err
		}
	}
	if err := r.checkValue(); err != nil {
		return err
	}
	if session := kinds[r.backend].session; session != nil {
		return r.allows(session(r.settings), "that is asked for")
	}
	return nil
}

func (r *runner) checkValue() error {
	if r.value != "" && !kinds[r.backend].values {
		return usage("--value: backend %s cannot advertise a value; use backend zookeeper, etcd or raftlog, or leave the flag out, for example elector run ... -- report", r.backend)
	}
	return checkText("value", r.value, maxValue)
}

func (r *runner) run(ctx context.Context) error {
	if err := r.check(); err != nil {
		return err
	}
	if r.stdin && term.IsTerminal(int(os.Stdin.Fd())) {
		return usage("--stdin: standard input is a terminal, from which a program in a separate process group cannot read; use a file or a pipe, for example elector run --stdin ... -- report < input")
	}
	// Signals are handled before the backend is opened, which may take time.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.attempt.cancel = cancel
	defer r.listen(cancel)()
	b, err := r.openRun()
	if err != nil {
		return err
	}
	defer b.close()
	r.granted = func() time.Duration { return r.zookeeper.session }
	if b.session != nil {
		r.granted = b.session
	}

	e := &elector.Elector{
		NewCandidate: r.candidate(b),
		Begin:        r.begin, End: r.end, Error: r.failed,
		BeginTimeout: r.beginTimeout, EndTimeout: r.endTimeout, ErrorTimeout: r.errorTimeout,
		EndTries: r.endTries, EndPause: r.endPause, ErrorWait: r.errorTimeout,
		// What outlives its context is killed after the grace, and then it is over.
		Grace:    r.grace + 5*time.Second,
		Terminal: func(err error) bool { return ended(err) || elector.IsTerminal(err) },
		Log:      r.log,
	}
	if len(r.program) > 0 {
		e.Work = r.work
	}
	stop, err := r.serve(ctx, e, b)
	if err != nil {
		return err
	}
	defer stop()
	defer r.observe(ctx, e, b)()
	if r.timeout > 0 {
		defer time.AfterFunc(r.timeout, func() { r.late(b) }).Stop()
	}
	if r.try {
		r.onReport = append(r.onReport, r.tried)
	}
	defer r.passReports(e)()
	r.log.Info("joining election", "backend", r.backend, "election", r.election, "instance", r.instanceID)
	return r.result(ctx, e.Run(ctx))
}

// result is what run returns for what the Elector has returned.
func (r *runner) result(ctx context.Context, err error) error {
	switch {
	case ended(err) && exitCode(err) == exitBackend:
		r.log.Info("election or input ended", "err", err)
	case errors.Is(err, leaderelection.ErrUnconfirmed) && exitCode(err) == exitFailed:
		r.log.Warn("resignation not confirmed", "err", err)
	case err != nil:
		return r.advise(err)
	}
	if err := r.attempt.gaveUp(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.exit != nil && *r.exit != 0 && ctx.Err() == nil {
		return &cmdline.Error{Code: *r.exit}
	}
	return nil
}

// observe watches the leader and runs the follower command, as far as the flags need it, until
// stop is called.
func (r *runner) observe(ctx context.Context, e *elector.Elector, b backend) (stop func()) {
	watch := b.watch
	r.follower = r.newFollower(e, watch != nil)
	var all sync.WaitGroup
	following, unfollow := context.WithCancel(ctx)
	if r.follower != nil {
		all.Go(func() { r.follower.run(following) })
	}
	// The pages show the leader while this instance hands over.
	watching, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	if watch != nil && (r.follower != nil || r.listenOn != "") {
		all.Go(func() { r.watchLeader(watching, watch) })
	}
	return func() {
		unfollow()
		unwatch()
		all.Wait()
	}
}

// passReports calls onReport until the Run of e has returned. wait waits for that.
func (r *runner) passReports(e *elector.Elector) (wait func()) {
	var reading sync.WaitGroup
	reports := e.Reports()
	reading.Go(func() {
		for report := range reports {
			for _, f := range r.onReport {
				f(report)
			}
		}
	})
	return reading.Wait
}

// listen hears signals, until the function that it returns is called: the first TERM or
// INT hands over, the second ends this process as it is. Others are for the program.
func (r *runner) listen(cancel func()) (stop func()) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if len(r.program) > 0 {
		signal.Notify(signals, passedOn...)
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ending := false
		for {
			select {
			case s := <-signals:
				sig, _ := s.(syscall.Signal)
				switch {
				case s != os.Interrupt && s != syscall.SIGTERM:
					r.pass(sig)
				case ending:
					r.log.Error("exiting immediately: commands and programs are killed, and the end command does not run", "signal", s)
					os.Exit(128 + int(sig))
				default:
					ending = true
					r.log.Info("resigning", "signal", s)
					cancel()
				}
			case <-quit:
				return
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(quit)
		<-done
	}
}

// pass passes a signal on to the program, if it runs.
func (r *runner) pass(sig syscall.Signal) {
	r.mu.Lock()
	p := r.process
	if r.starting {
		r.early = append(r.early, sig)
	}
	r.mu.Unlock()
	if p != nil {
		_ = p.Signal(sig) // it may have ended
	}
}

// starts notes that the program is about to be started.
func (r *runner) starts() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.starting = true
}

// running notes that the program runs, or, by nil, that it does not, and passes on what
// has come while it was being started.
func (r *runner) running(p *child.Process) {
	r.mu.Lock()
	early := r.early
	r.process, r.starting, r.early = p, false, nil
	r.mu.Unlock()
	if p == nil {
		return
	}
	for _, sig := range early {
		_ = p.Signal(sig)
	}
}
