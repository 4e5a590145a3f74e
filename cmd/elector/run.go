package main

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/elector"
	"github.com/go-leaderelection/leaderelection/internal/child"
)

// runner is the command run.
type runner struct {
	*settings
	beginCommand, endCommand, errorCommand string
	program                                []string // nil without

	beginTimeout, endTimeout, errorTimeout time.Duration
	endTries                               int
	endPause                               time.Duration
	grace, lostGrace                       time.Duration
	listenOn                               string // "" for nowhere

	granted func() time.Duration // the session timeout

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
		Short: "Take part in an election, and run something while leading",
		Long: `run takes part in an election until it is told to end by TERM or INT.

When elected it runs the begin command, and then the program until leadership ends;
afterwards the end command. Commands are run by /bin/sh, and programs as they are. Each
has a process group of its own, which does not outlive the leadership.`,
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
		return usage("%q: the program to run comes after --", args[0])
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
	flags.StringVar(&r.beginCommand, "leader-begin-command", "", "shell command to run when elected; also --leader-start-command (ELECTOR_START_COMMAND)")
	flags.StringVar(&r.endCommand, "leader-end-command", "", "shell command to run when leadership has ended, or is about to be given up (ELECTOR_STOP_COMMAND)")
	flags.StringVar(&r.errorCommand, "leader-error-command", "", "shell command to run after an error (ELECTOR_ERROR_COMMAND)")
	flags.DurationVar(&r.beginTimeout, "begin-timeout", time.Minute, "how long the begin command may take")
	flags.DurationVar(&r.endTimeout, "end-timeout", 30*time.Second, "how long each try of the end command may take")
	flags.IntVar(&r.endTries, "end-tries", 12, "how often the end command is tried")
	flags.DurationVar(&r.endPause, "end-pause", 5*time.Second, "time between two tries of the end command")
	flags.DurationVar(&r.errorTimeout, "error-timeout", 30*time.Second, "how long to wait after an error before taking part again")
	flags.DurationVar(&r.grace, "grace", 10*time.Second, "time between TERM and KILL for what is stopped")
	flags.DurationVar(&r.lostGrace, "lost-grace", 0, "the same when leadership is lost, from the end of the lease; by default a tenth of the session timeout, an eighth at most")
	flags.StringVar(&r.listenOn, "listen", "", "host:port for /healthz, /readyz, /leader and /metrics; nowhere if empty")
}

// check refuses what cannot work.
func (r *runner) check() error {
	if len(r.program) == 0 && r.beginCommand == "" {
		return usage("nothing to run: neither --leader-begin-command nor a program after --")
	}
	if r.endTries < 1 {
		return usage("--end-tries %d: less than one", r.endTries)
	}
	for name, d := range map[string]time.Duration{
		"begin-timeout": r.beginTimeout, "end-timeout": r.endTimeout, "end-pause": r.endPause,
		"error-timeout": r.errorTimeout, "grace": r.grace,
	} {
		if d <= 0 {
			return usage("--%s %v: not more than zero", name, d)
		}
	}
	if r.lostGrace < 0 {
		return usage("--lost-grace %v: less than zero", r.lostGrace)
	}
	if r.listenOn != "" {
		if _, port, err := net.SplitHostPort(r.listenOn); err != nil || port == "" {
			return usage("--listen %s: not of the form host:port", r.listenOn)
		}
	}
	if len(r.program) > 0 {
		if _, err := exec.LookPath(r.program[0]); err != nil {
			code := exitCannot
			if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
				code = exitNotFound
			}
			return &codeError{code, err}
		}
	}
	if err := r.settings.check(); err != nil {
		return err
	}
	if session := kinds[r.backend].session; session != nil {
		return r.allows(session(r.settings), "that is asked for")
	}
	return nil
}

func (r *runner) run(ctx context.Context) error {
	if err := r.check(); err != nil {
		return err
	}
	b, err := r.open()
	if err != nil {
		return err
	}
	defer b.close()
	r.granted = func() time.Duration { return r.zookeeper.session }
	if b, ok := b.(timed); ok {
		r.granted = b.session
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer r.listen(cancel)()

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
	r.log.Info("joining election", "backend", r.backend, "election", r.election, "instance", r.instanceID)
	return r.result(ctx, e.Run(ctx))
}

// result is what run returns for what the Elector has returned.
func (r *runner) result(ctx context.Context, err error) error {
	switch {
	case ended(err) && exitCode(err) == exitBackend:
		r.log.Info("the election or the input has ended", "err", err)
	case errors.Is(err, leaderelection.ErrUnconfirmed) && exitCode(err) == exitFailed:
		r.log.Warn("the resignation is not confirmed", "err", err)
	case err != nil:
		return r.advise(advised(err))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.exit != nil && *r.exit != 0 && ctx.Err() == nil {
		return &codeError{*r.exit, nil}
	}
	return nil
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
