package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// severity is the importance of a finding.
type severity int

const (
	severityOK      severity = iota
	severityUnknown          // the check of doctor was not possible
	severityWarning          // elector run would work, with a restriction
	severityError            // elector run would fail
)

func (s severity) String() string { return [...]string{"ok", "unknown", "warning", "error"}[s] }

// finding is the result of one check of doctor.
type finding struct {
	severity severity
	about    string // what doctor has checked, in one word
	text     string // the result; for a warning or an error also the consequence, and what the user can do
}

func newFinding(s severity, about, format string, args ...any) finding {
	return finding{s, about, fmt.Sprintf(format, args...)}
}

// doctorLimit is the time limit for all checks of doctor together.
const doctorLimit = 30 * time.Second

// newDoctor returns the command doctor, which has the flags of the command run.
func newDoctor(r *runCommand, run *cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor [flags] [-- program arguments...]",
		Short: "Check the settings of run, and the servers",
		Long: `Check the settings as run does, and then the servers: whether each answers, its version, the session
timeout that they grant, the ACL of the election, quotas, the difference of the clocks, and whether the
servers support containers. Print a line for each check, and say what would fail.

The command does not join the election. It creates two znodes next to the election node and deletes
them. It takes at most half a minute. Only the backend zookeeper supports it. It checks the settings of
the second backend of --also, but not the servers of that one.

Exit codes: 0 no check has found an error; 1 a check has found an error; 2 run rejects the settings;
126 or 127 the program cannot be executed, or was not found.`,
		Example: "  elector doctor --zookeeper-servers zk1,zk2,zk3 --election /jobs/report",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.setProgram(cmd, args); err != nil {
				return err
			}
			if err := r.settings.requireSupport("doctor"); err != nil {
				return err
			}
			check := r.checkServers
			if len(r.program.args) > 0 || r.beginCommand != "" {
				// Check the other settings of run only if the user has given a program or a command.
				check = r.check
			}
			if err := check(); err != nil {
				return err
			}
			b, err := r.settings.open()
			if err != nil {
				return err
			}
			defer b.close()
			ctx, cancel := context.WithTimeout(cmd.Context(), doctorLimit)
			defer cancel()
			findings := b.examine(ctx)
			if b.sessionTimeout != nil && b.sessionTimeout() > 0 {
				if err := r.checkLostGrace(b.sessionTimeout(), "granted"); err != nil {
					findings = append(findings, newFinding(severityError, "lost-grace", "%v", err))
				}
			}
			return printFindings(cmd.OutOrStdout(), findings)
		},
	}
	cmd.Flags().AddFlagSet(run.Flags())
	cmd.SetFlagErrorFunc(adviseProgram)
	return cmd
}

// checkServers returns an error if a setting is invalid for the backend, or for the backend of --also. It does not
// contact servers.
func (r *runCommand) checkServers() error {
	if err := r.settings.check(); err != nil {
		return err
	}
	return r.also.check(r.settings, r.checkBackend)
}

// printFindings prints a line for each finding. It returns an error if the severity of a finding is severityError.
func printFindings(w io.Writer, findings []finding) error {
	failed := 0
	for _, f := range findings {
		if f.severity == severityError {
			failed++
		}
		if _, err := fmt.Fprintf(w, "%-8s %-15s %s\n", f.severity, cmdline.Printable(f.about), cmdline.Printable(f.text)); err != nil {
			return err
		}
	}
	if failed > 0 {
		return cmdline.Errorf(cmdline.Failed, "checks that have found an error: %d", failed)
	}
	return nil
}
