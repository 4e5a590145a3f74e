// Package cmdline contains what the commands elector and raftlog have in common: exit codes,
// errors that have one, help texts, and suggestions for mistyped commands and flags.
package cmdline

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The exit codes of both commands. A code has the same meaning in both. The documentation is in
// docs/elector.md and docs/raftlog.md.
const (
	OK        = 0
	Failed    = 1  // any other error; what was tried was not done
	Usage     = 2  // wrong usage; nothing was done
	Unclean   = 3  // elector run: processes that the begin command started may still run
	Permanent = 4  // a retry is pointless: election ended, access refused, files damaged, a fault
	NoLeader  = 5  // there is no leader, or this instance was not elected in time
	Stays     = 6  // elector resign: the candidate has not left in time
	Other     = 7  // elector status --is-leader: another candidate leads
	Identity  = 9  // raftlog serve: the peer must not participate with the data that it has
	Missing   = 10 // raftlog config: the peer to delete does not exist
	Exists    = 11 // raftlog config: the peer to add exists
	Unknown   = 12 // raftlog: it is unknown whether the update was or will be applied
	Nothing   = 13 // raftlog compact: the snapshot contains the entry already

	Cannot      = 126 // elector run: the program cannot be executed
	NotFound    = 127 // elector run: the program was not found
	Interrupted = 130 // elector demo
)

// Error is an error with an exit code. Without Err nothing is printed.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// suggestionDistance is the number of letters that a mistyped name can differ from a suggestion.
const suggestionDistance = 2

// Prepare makes a root command reject unknown commands and flags, with a suggestion if a similar
// one exists. usage makes the error for wrong usage, as fmt.Errorf does.
func Prepare(root *cobra.Command, usage func(format string, args ...any) error) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SuggestionsMinimumDistance = suggestionDistance
	unknown := func(name string) error {
		if similar := root.SuggestionsFor(name); len(similar) > 0 {
			return usage("unknown command %q: did you mean %s?", name, strings.Join(similar, " or "))
		}
		return usage("unknown command %q (see %s --help)", name, root.Name())
	}
	root.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknown(args[0])
		}
		return nil
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if args := cmd.Flags().Args(); cmd == root && len(args) > 0 {
			return unknown(args[0]) // the flag is one of the command that was meant
		}
		if missing, ok := errors.AsType[*pflag.NotExistError](err); ok && len(missing.GetSpecifiedShortnames()) == 0 {
			name := missing.GetSpecifiedName()
			if nearest, distance := Nearest(name, names(cmd.Flags())); distance <= suggestionDistance {
				return usage("%w: did you mean --%s?", err, nearest)
			}
		}
		if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
			return usage("--%s: %w", wrong.GetFlag().Name, ValueError(err))
		}
		return usage("%w (see %s --help)", err, cmd.CommandPath())
	})
}

// ValueError returns the error for a value that a flag does not accept in words that suit an
// environment variable and a file as well: it has the value and what is expected, and does not
// name the flag. Other errors are returned as they are.
func ValueError(err error) error {
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	switch wrong.GetFlag().Value.Type() {
	case "duration":
		return fmt.Errorf("%q is not a duration such as 10s or 1m30s", wrong.GetValue())
	case "bool":
		return fmt.Errorf("%q is neither true nor false", wrong.GetValue())
	case "int", "int32", "int64", "uint", "uint32", "uint64":
		return fmt.Errorf("%q is not a whole number such as 3", wrong.GetValue())
	case "stringSlice":
		return fmt.Errorf("%q is not a list such as a,b", wrong.GetValue())
	}
	return fmt.Errorf("%q: %w", wrong.GetValue(), wrong.Unwrap())
}

func names(flags *pflag.FlagSet) (all []string) {
	flags.VisitAll(func(f *pflag.Flag) { all = append(all, f.Name) })
	return all
}

// Nearest returns the element of known, which must not be empty, that differs from name by the
// smallest number of inserted, deleted and replaced letters, and that number.
func Nearest(name string, known []string) (nearest string, distance int) {
	nearest = slices.MinFunc(known, func(a, b string) int {
		return levenshtein.ComputeDistance(name, a) - levenshtein.ComputeDistance(name, b)
	})
	return nearest, levenshtein.ComputeDistance(name, nearest)
}

// NoArguments rejects arguments. hint, if it is not empty, tells how to give them instead, with a
// verb for the argument.
func NoArguments(usage func(format string, args ...any) error, hint string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return nil
		case hint == "":
			return usage("unexpected argument %q (see %s --help)", args[0], cmd.CommandPath())
		}
		return usage("unexpected argument %q: %s", args[0], fmt.Sprintf(hint, args[0]))
	}
}

// Version returns the version of the module that the program was built from.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}
