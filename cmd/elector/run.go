package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/console"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/elector"
)

// maxValue is the maximum length of --value in bytes. The limit of the library is higher, but each list of
// candidates contains all values.
const maxValue = 4096

// runCommand contains the flags and the state of the command run.
type runCommand struct {
	settings *settings

	// The following fields are the flags of the command.
	beginCommand, endCommand, errorCommand string
	followerCommand                        string
	beginTimeout, endTimeout, errorTimeout time.Duration
	endTries                               int
	endPause                               time.Duration
	grace, lostGrace                       time.Duration
	listenAddress                          string // the value of --listen; "" disables the HTTP server
	listenHosts                            []string
	timeout                                time.Duration // the value of --timeout; 0 means no limit
	try, stdin                             bool
	also                                   migrationFlags

	program        program
	sessionTimeout func() time.Duration // returns the session timeout that the backend has granted
	attempt        attempt
	leader         leaderView
	follower       *follower              // runs the follower command; nil without followerCommand
	onReport       []func(elector.Report) // functions to call with each report of the Elector
	exiting        atomic.Bool            // whether a signal ends this process as soon as its log was written

	mu       sync.Mutex
	reported map[string]string // the text that reportVariable has last logged, by the name of the variable
}

func newRun(r *runCommand) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [flags] [-- program arguments...]",
		Short: "Join an election, and run a program or commands while leading",
		Long: `run joins an election and stays a candidate until it receives TERM or INT or, without a program,
HUP or QUIT. Then it hands over. Another such signal, at least a second later, ends it immediately.
A program receives HUP, QUIT, USR1, USR2 and WINCH.

When this instance is elected, run starts the begin command, and then the program, which it
stops when the leadership ends. After that it runs the end command. /bin/sh runs the
commands; the program is started without a shell. Each of them has a separate process group,
which does not outlive the leadership. While another instance leads, run starts the follower
command, once for each leader.

If the program exits, run hands over and exits with the program's exit code.

Exit codes: 0 handed over after a signal; 1 any other error; 2 wrong usage; 3 the end command
has failed permanently, or a handler hangs; 4 the election was ended, or the backend refuses
access; 5 this instance was not elected in the time that --timeout or --try allows; 126 or 127 the
program cannot be executed, or was not found; otherwise the program's exit code.`,
		Example: `  elector run --backend zookeeper --zookeeper-servers zk1,zk2,zk3 --election /jobs/report -- report --serve
  elector run --backend zookeeper --zookeeper-servers localhost:2181 \
      --leader-begin-command 'ip addr add 10.0.0.9/24 dev eth0' \
      --leader-end-command 'ip addr del 10.0.0.9/24 dev eth0 || true'
  elector run --backend raftlog --peers a=10.0.0.1:8047,b=10.0.0.2:8047,c=10.0.0.3:8047 --peer-id a \
      --dir /var/lib/elector --secret-file /etc/elector/secret --election report -- report --serve`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.setProgram(cmd, args); err != nil {
				return err
			}
			return r.run(cmd.Context())
		},
	}
	r.register(cmd.Flags())
	cmd.SetFlagErrorFunc(adviseProgram)
	return cmd
}

// adviseProgram returns the error for an invalid flag of a command that accepts a program. If the flag follows an
// argument, the error suggests to put the program after --.
func adviseProgram(cmd *cobra.Command, err error) error {
	if args := cmd.Flags().Args(); len(args) > 0 {
		return usage("%w: the program to run and its flags come after --, for example elector run ... -- %s", err, args[0])
	}
	return cmd.Root().FlagErrorFunc()(cmd, err)
}

// setProgram sets the program to the arguments after --, or, if there are none, to the program of the configuration
// file.
func (r *runCommand) setProgram(cmd *cobra.Command, args []string) error {
	if cmd.ArgsLenAtDash() != 0 && len(args) > 0 {
		return usage("%q: the program to run comes after --, for example elector run ... -- %s", args[0], strings.Join(args, " "))
	}
	r.program.args = args
	if len(args) == 0 {
		r.program.args = r.settings.fileProgram
	}
	return nil
}

// register registers the flags of the command.
func (r *runCommand) register(flags *pflag.FlagSet) {
	flags.SetNormalizeFunc(configuration.Normalize)
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
	flags.DurationVar(&r.lostGrace, flagLostGrace, 0, "the same if the leadership is lost, counted from the expiry of the lease; at most a twelfth of the session timeout (default: a sixteenth)")
	flags.StringVar(&r.listenAddress, "listen", "", "host:port of an HTTP server for a page that shows the election, /healthz, /readyz, /leader and /metrics (default: none)")
	flags.StringSliceVar(&r.listenHosts, "listen-hosts", nil, "names that clients of --listen may use for this machine; they may also use IP addresses and localhost (default: any name, or none if --listen is a loopback address)")
	r.also.register(flags)
	flags.StringVar(&r.settings.value, "value", "", "text that this instance advertises, for example its address; status, watch, /leader and ELECTOR_LEADER_VALUE show it to others; backends zookeeper, etcd and raftlog only")
	flags.BoolVar(&r.stdin, "stdin", false, "pass standard input, which must not be a terminal, to the program; otherwise the program's input is empty")
	flags.DurationVar(&r.timeout, "timeout", 0, "give up with exit code 5 if this instance is not elected within this time (default: no limit)")
	flags.BoolVar(&r.try, "try", false, "give up with exit code 5 if another candidate is ahead, and with code 1 after an error, until this instance is elected; combine it with --timeout if the backend may be unreachable")
}

// check returns an error if a setting of run is invalid. It does not contact servers.
func (r *runCommand) check() error {
	s := r.settings
	hasProgram := len(r.program.args) > 0
	if !hasProgram && r.beginCommand == "" {
		return usage("nothing to run: neither --leader-begin-command nor a program after --, for example elector run ... -- report --serve")
	}
	if r.endTries < 1 {
		return usage("--end-tries %d: must be at least 1", r.endTries)
	}
	for name, d := range map[string]time.Duration{
		"begin-timeout": r.beginTimeout, "end-timeout": r.endTimeout, "end-pause": r.endPause,
		"error-timeout": r.errorTimeout, "grace": r.grace,
	} {
		if d <= 0 {
			return usage("--%s %v: must be more than zero", name, d)
		}
	}
	switch {
	case r.lostGrace < 0:
		return usage("--lost-grace %v: must not be negative; for example --lost-grace 200ms", r.lostGrace)
	case r.stdin && !hasProgram:
		return usage("--stdin: there is no program that could read it; give one after --, for example elector run --stdin ... -- report < input")
	case r.stdin && s.backend == "console":
		return usage("--stdin: the backend console reads standard input itself; use another backend, for example --backend zookeeper")
	}
	if r.listenAddress != "" {
		if err := checkAddress("listen", r.listenAddress); err != nil {
			return err
		}
	}
	if hasProgram {
		if _, err := exec.LookPath(r.program.args[0]); err != nil {
			code := cmdline.NotExecutable
			if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
				code = cmdline.NotFound
			}
			return &cmdline.Error{Code: code, Err: err}
		}
	}
	if err := checkText("value", s.value, maxValue); err != nil {
		return err
	}
	if err := r.checkBackend(s); err != nil {
		return err
	}
	return r.also.check(s, r.checkBackend)
}

// checkBackend returns an error if a setting of run is invalid for the backend in s. It does not contact servers.
func (r *runCommand) checkBackend(s *settings) error {
	if err := s.check(); err != nil {
		return err
	}
	kind := backendKinds[s.backend]
	if kind.checkRun != nil {
		if err := kind.checkRun(s); err != nil {
			return err
		}
	}
	if s.value != "" && !kind.supportsValues {
		return usage("--value: backend %s cannot advertise a value; use backend zookeeper, etcd or raftlog, or omit the flag, for example elector run ... -- report", s.backend)
	}
	if kind.sessionTimeout != nil {
		return r.checkLostGrace(kind.sessionTimeout(s), "requested")
	}
	return nil
}

// run joins the election, and runs the commands and the program until this instance has handed over.
func (r *runCommand) run(ctx context.Context) error {
	if err := r.check(); err != nil {
		return err
	}
	if r.stdin && term.IsTerminal(int(os.Stdin.Fd())) {
		return usage("--stdin: standard input is a terminal, from which a program in a separate process group cannot read; use a file or a pipe, for example elector run --stdin ... -- report < input")
	}
	if r.settings.hasCredentials() || r.also.second != nil && r.also.second.hasCredentials() {
		if err := protectMemory(); err != nil {
			r.settings.log.Warn("programs of the same user can read the credentials of this process", "err", err)
		}
	}
	// Handle signals before the backend is opened, because opening it may take time.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.attempt.cancel = cancel
	cmdline.IgnoreBrokenPipe()
	defer r.signalReactions(cancel).Handle()()
	s := r.settings
	connections := reserveDescriptors()
	b, err := r.also.openRun(s)
	if err != nil {
		return err
	}
	defer b.close()
	defer s.monitorFiles()()
	r.sessionTimeout = s.requestedTimeout
	if b.sessionTimeout != nil {
		r.sessionTimeout = b.sessionTimeout
	}

	e := &elector.Elector{
		NewCandidate: r.newCandidate(b),
		Begin:        r.handleBegin, End: r.handleEnd, Error: r.handleError,
		BeginTimeout: r.beginTimeout, EndTimeout: r.endTimeout, ErrorTimeout: r.errorTimeout,
		EndTries: r.endTries, EndPause: r.endPause, ErrorWait: r.errorTimeout,
		// After r.grace the watchdog kills the processes that elector has started, and then the handler returns.
		Grace:    r.grace + 5*time.Second,
		Terminal: func(err error) bool { return errors.Is(err, console.ErrEndOfInput) || elector.IsTerminal(err) },
		Logger:   s.log,
	}
	if len(r.program.args) > 0 {
		e.Work = r.handleWork
	}
	stopWeb, err := r.startWeb(ctx, e, b, connections)
	if err != nil {
		return err
	}
	defer stopWeb()
	defer r.observeLeader(ctx, e, b)()
	if r.timeout > 0 {
		defer time.AfterFunc(r.timeout, func() { r.giveUpAfterTimeout(b) }).Stop()
	}
	if r.try {
		r.onReport = append(r.onReport, r.giveUpIfNotElected)
	}
	defer r.forwardReports(e)()
	s.log.Info("joining election", "backend", s.backend, "election", s.election, "instance", s.instanceID)
	return r.result(ctx, e.Run(ctx))
}

// signalReactions returns the reactions to signals. The first signal that stops elector calls cancel, which makes
// this instance hand over. If there is a program, elector forwards the other signals to it.
func (r *runCommand) signalReactions(cancel func()) cmdline.Signals {
	log := r.settings.log
	signals := cmdline.Signals{
		Stop: func(s os.Signal) {
			log.Info("resigning", "signal", s)
			cancel()
		},
		Exit: func(s os.Signal) {
			r.exiting.Store(true)
			log.Error("exiting immediately: commands and programs are killed, and the end command does not run", "signal", s)
		},
	}
	if len(r.program.args) > 0 {
		signals.Forward = r.program.forwardSignal
	}
	return signals
}

// result returns the error of the command run after the Elector has returned err. It returns nil if the election or
// the input has ended, or if only the resignation is unconfirmed.
func (r *runCommand) result(ctx context.Context, err error) error {
	log := r.settings.log
	switch {
	case errors.Is(err, console.ErrEndOfInput) && exitCode(err) == cmdline.Permanent:
		log.Info("election or input ended", "err", err)
	case errors.Is(err, leaderelection.ErrUnconfirmed) && exitCode(err) == cmdline.Failed:
		log.Warn("resignation not confirmed", "err", err)
	case err != nil:
		return r.also.advise(r.settings, err)
	}
	if err := r.attempt.failure(); err != nil {
		return err
	}
	if code, exited := r.program.exitCode(); exited && code != cmdline.OK && ctx.Err() == nil {
		return &cmdline.Error{Code: code}
	}
	return nil
}

// observeLeader watches the leader and runs the follower command, if flags require this, until stop is called.
func (r *runCommand) observeLeader(ctx context.Context, e *elector.Elector, b backend) (stop func()) {
	r.follower = r.newFollower(e, b.watch != nil)
	var tasks sync.WaitGroup
	following, stopFollowing := context.WithCancel(ctx)
	if r.follower != nil {
		tasks.Go(func() { r.follower.runCommands(following) })
	}
	// Watch until stop is called, because the page /leader shows the leader even while this instance
	// hands over.
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	if b.watch != nil && (r.follower != nil || r.listenAddress != "") {
		tasks.Go(func() { r.watchLeader(watching, b.watch) })
	}
	return func() {
		stopFollowing()
		stopWatching()
		tasks.Wait()
	}
}

// forwardReports calls the functions of onReport with each report of e until its Run has returned. The function wait
// waits for that.
func (r *runCommand) forwardReports(e *elector.Elector) (wait func()) {
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
