package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection/zktest"
)

func newDevServer() *cobra.Command {
	cmd := &cobra.Command{
		Use: "dev-server", Short: "Run a ZooKeeper server for development",
		Long:    "dev-server runs the embedded ZooKeeper of package zktest until TERM or INT. It keeps\neverything in memory, in one process, and is not for production.",
		Example: "  elector dev-server --listen 127.0.0.1:2181",
		Args:    noArguments,
	}
	listen := cmd.Flags().String("listen", "127.0.0.1:2181", "host:port to listen on")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := untilSignal(cmd.Context())
		defer cancel()
		srv, err := zktest.New(zktest.WithAddr(*listen), zktest.WithLogLimit(0))
		if err != nil {
			return usage("--listen %s: %w", *listen, err)
		}
		defer srv.Close()
		addr, err := srv.Listen()
		if err != nil {
			return fmt.Errorf("dev-server: %w", err)
		}
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), "listening on", addr); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}
	return cmd
}
