package main

// The command propose.

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
)

func newPropose() *cobra.Command {
	var c caller
	var ident string
	cmd := &cobra.Command{
		Use: "propose [-c FILE] DATA|-", Short: "Have an update applied once",
		Long: "Have an update applied once, and print the index of its entry and its request ID. - reads the\ndata from standard input. To repeat it with the same --id and data is safe, and prints the same.\n\n" + exitHelp,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("one argument is needed: the data, or - for standard input")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := requestIDOf(ident)
			if err != nil {
				return err
			}
			data := []byte(args[0])
			if args[0] == "-" {
				if data, err = io.ReadAll(cmd.InOrStdin()); err != nil {
					return err
				}
			}
			cl, _, err := c.client(nil)
			if err != nil {
				return err
			}
			defer cl.Close()
			ctx, cancel := c.within(cmd.Context())
			defer cancel()
			index, err := cl.Propose(ctx, id, data)
			switch {
			case errors.Is(err, raftlog.ErrUnknownOutcome):
				return failure(exitUnknown, "%w; repeat it with --id %v", err, id)
			case isInvalid(err):
				return usage("%w", err)
			case err != nil:
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), index, id)
			return err
		},
	}
	c.register(cmd.Flags(), 10*time.Second, "how long to try")
	c.seeds = ""
	cmd.Flags().StringVar(&ident, "id", "", "request ID, 32 hexadecimal digits; default: a new one")
	return cmd
}
