package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

func newPropose() *cobra.Command {
	var c clientFlags
	var requestID string
	cmd := &cobra.Command{
		Use: "propose [-c FILE] DATA|-", Short: "Propose an update",
		Long:    "Propose an update, and print the index of its entry and its request ID. - reads the data from\nstandard input. An update that is repeated with the same --request-id and data is applied once, and\nprints the same.\n\n" + exitCodes(cmdline.Permanent, cmdline.Unknown),
		Example: "  raftlog propose -c /etc/raftlog.yaml 'an update'",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return newUsageError("expected one argument, the data, such as 'an update', or - for standard input")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseRequestID(requestID)
			if err != nil {
				return err
			}
			data := []byte(args[0])
			if args[0] == "-" {
				if data, err = cmdline.ReadLimited(cmd.InOrStdin(), "standard input", maxData); err != nil {
					return err
				}
			}
			cl, err := c.newClient(nil)
			if err != nil {
				return err
			}
			defer cl.Close()
			ctx, cancel := c.withTimeout(cmd.Context())
			defer cancel()
			index, err := cl.Propose(ctx, id, data)
			switch {
			case errors.Is(err, api.ErrUnknownOutcome):
				return cmdline.Errorf(cmdline.Unknown, "%w; repeat the update with --request-id %v", err, id)
			case err != nil:
				return toUsageError(err)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), index, id)
			return err
		},
	}
	c.register(cmd, 10*time.Second, "time limit")
	c.seedHint = ""
	cmd.Flags().StringVar(&requestID, "request-id", "", "request ID, which raftlog new-id prints (default: a new one)")
	return cmd
}
