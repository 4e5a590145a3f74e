// Package cmdline implements the parts of a command line that the commands elector and raftlog share:
// settings from flags, the environment and a file, those of peers of a Raft log, certificates, keys and
// secrets in files that can be replaced at any time, exit codes, help texts, the command reference,
// suggestions for mistyped commands and flags, signals, and a log that does not block.
package cmdline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// suggestionDistance is the maximum number of letters in which a suggestion differs from a mistyped
// name.
const suggestionDistance = 2

// Prepare makes a root command reject unknown commands and flags, and suggest similar ones. usage
// creates a usage error; it has the parameters of fmt.Errorf.
func Prepare(root *cobra.Command, usage func(format string, args ...any) error) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SuggestionsMinimumDistance = suggestionDistance
	unknown := func(cmd *cobra.Command, name string) error {
		if similar := cmd.SuggestionsFor(name); len(similar) > 0 {
			return usage("unknown command %q: did you mean %s?", name, strings.Join(similar, " or "))
		}
		return usage("unknown command %q (see %s --help)", name, cmd.CommandPath())
	}
	root.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknown(cmd, args[0])
		}
		return nil
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if args := cmd.Flags().Args(); cmd == root && len(args) > 0 {
			return unknown(root, args[0]) // report the unknown command first, because its flag may be valid for another command
		}
		if missing, ok := errors.AsType[*pflag.NotExistError](err); ok && len(missing.GetSpecifiedShortnames()) == 0 {
			name := missing.GetSpecifiedName()
			if nearest, distance := Nearest(name, flagNames(cmd.Flags())); distance <= suggestionDistance {
				return usage("%w: did you mean --%s?", err, nearest)
			}
		}
		if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
			return usage("--%s: %w", wrong.GetFlag().Name, ValueError(err))
		}
		return usage("%w (see %s --help)", err, cmd.CommandPath())
	})
}

// Execute executes a root command. It rejects an unknown command even if the line contains --help, which cobra obeys
// before it checks arguments, and also as the argument of the commands help and completion.
func Execute(ctx context.Context, root *cobra.Command) error {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Run, cmd.RunE = nil, func(_ *cobra.Command, args []string) error {
				found, rest, err := root.Find(args)
				if err == nil && found.HasSubCommands() {
					err = found.ValidateArgs(rest)
				}
				if err != nil {
					return err
				}
				return found.Help()
			}
		case "completion": // cobra does not check the arguments of a command without a function
			cmd.Args, cmd.RunE = root.Args, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			for _, shell := range cmd.Commands() {
				shell.Args = root.Args
			}
		}
	}
	var unknown error
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd.HasSubCommands() {
			unknown = cmd.ValidateArgs(cmd.Flags().Args())
		}
		if unknown == nil {
			help(cmd, args)
		}
	})
	return cmp.Or(root.ExecuteContext(ctx), unknown)
}

// ValueError returns an error that quotes the value and describes what a flag accepts, with an example. The error
// does not contain the name of the flag, because the value may come from an environment variable or a file. If err is
// not a [pflag.InvalidValueError], ValueError returns err unchanged.
func ValueError(err error) error {
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	return fmt.Errorf("%q%w", wrong.GetValue(), describeMismatch(wrong))
}

// describeMismatch returns the last part of the message of an error of [pflag.FlagSet.Set]: the text that follows the
// value or the name of the flag.
func describeMismatch(err error) error {
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return fmt.Errorf(": %w", err)
	}
	switch wrong.GetFlag().Value.Type() {
	case "duration":
		return errors.New(" is not a duration such as 10s or 1m30s")
	case "bool":
		return errors.New(" is neither true nor false")
	case "int", "int32", "int64", "uint", "uint32", "uint64":
		return errors.New(" is not a whole number such as 3")
	case "stringSlice":
		return errors.New(" is not a list such as a,b")
	}
	return fmt.Errorf(": %w", wrong.Unwrap())
}

func flagNames(flags *pflag.FlagSet) (all []string) {
	flags.VisitAll(func(f *pflag.Flag) { all = append(all, f.Name) })
	return all
}

// Nearest returns the name in known that is most similar to name, and the distance between both: the number of
// letters to insert, delete or replace. known must not be empty.
func Nearest(name string, known []string) (nearest string, distance int) {
	nearest = slices.MinFunc(known, func(a, b string) int {
		return levenshtein.ComputeDistance(name, a) - levenshtein.ComputeDistance(name, b)
	})
	return nearest, levenshtein.ComputeDistance(name, nearest)
}

// NoArguments returns a function that rejects all arguments of a command. hint is empty, or a format string that
// describes the correct usage and has one verb, for the rejected argument.
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

// CompleteValues lets shells complete the values of the flags of root and its subcommands. The values are those of
// the flags of [RegisterLog], and the map from names of flags to values. Call CompleteValues after all commands were
// added.
func CompleteValues(root *cobra.Command, values map[string][]string) {
	for _, cmd := range append(root.Commands(), root) {
		for _, all := range []map[string][]string{logValues, values} {
			for name, choice := range all {
				if cmd.Flags().Lookup(name) != nil || cmd.PersistentFlags().Lookup(name) != nil {
					// Ignore the error: the values were registered before.
					_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(choice, cobra.ShellCompDirectiveNoFileComp))
				}
			}
		}
	}
}

// Version returns the version of the module that the program was built from.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}
