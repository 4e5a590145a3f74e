package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

func newNewID() *cobra.Command {
	return &cobra.Command{
		Use: "new-id", Short: "Print a new request ID",
		Long: "Print a new request ID for the flag --request-id of propose and config. An ID contains its creation\n" +
			"time. The peers reject an ID that is older than the window and that they have not seen, so create it\n" +
			"right before its first use.\n\n" + exitCodes(),
		Example: "  id=$(raftlog new-id)\n  raftlog propose -c /etc/raftlog.yaml --request-id \"$id\" 'an update'",
		Args:    maxArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), api.NewRequestID())
			return err
		},
	}
}
