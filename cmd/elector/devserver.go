package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// devServer is the command dev-server. Its fields are the values of the flags.
type devServer struct {
	servers                int
	listen                 []string
	tick                   time.Duration
	minSession, maxSession time.Duration // the range of the session timeouts that the servers grant
	super                  string
	ttl                    bool
	control                string // the address for HTTP requests that inject faults; "" for none
}

func newDevServer() *cobra.Command {
	cmd := &cobra.Command{
		Use: "dev-server", Short: "Run a ZooKeeper server or ensemble for development",
		Long: "Run the embedded ZooKeeper server of package zktest until TERM or INT. It stores all data in\n" +
			"memory, in one process, and is not for production.\n\n" +
			"With --control it serves HTTP requests that expire sessions, and stop, pause or partition\n" +
			"servers. GET / on that address lists the requests. There is no authentication, but requests of\n" +
			"web pages are rejected; therefore POST requests need the header X-Elector.\n\n" +
			"Exit codes: 0 after TERM or INT; 1 an address cannot be used; 2 wrong usage.",
		Example: "  elector dev-server --listen 127.0.0.1:2181\n" +
			"  elector dev-server --servers 3 --tick 2s --control 127.0.0.1:2180\n" +
			"  curl -H 'X-Elector: 1' -X POST http://127.0.0.1:2180/servers/1/partition",
		Args: noArguments,

		Annotations: map[string]string{withoutBackend: "true"},
	}
	var d devServer
	flags := cmd.Flags()
	flags.IntVar(&d.servers, "servers", 1, "number of servers of the ensemble")
	flags.StringSliceVar(&d.listen, "listen", []string{"127.0.0.1:2181"}, "addresses to listen on, host:port, one for each server; further servers use the ports after the last one")
	flags.DurationVar(&d.tick, "tick", 100*time.Millisecond, "granularity of session timeouts; the default of a real server is 2s")
	flags.DurationVar(&d.minSession, "min-session-timeout", 0, "minimum granted session timeout (default 2 ticks)")
	flags.DurationVar(&d.maxSession, "max-session-timeout", 0, "maximum granted session timeout (default 1m, or 20 ticks if that is longer)")
	flags.StringVar(&d.super, "super", "", "digest credential user:password of a super user")
	flags.BoolVar(&d.ttl, "ttl", true, "allow znodes with a time to live; a real server does not allow them by default")
	flags.StringVar(&d.control, "control", "", "address for HTTP requests that inject faults, host:port (default: none)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return d.serve(cmd) }
	return cmd
}

// addresses returns the address of each server.
func (d *devServer) addresses() ([]string, error) {
	if d.servers < 1 {
		return nil, usage("--servers %d: an ensemble has at least one server", d.servers)
	}
	if len(d.listen) == 0 || len(d.listen) > d.servers {
		return nil, usage("--listen %s: %d addresses for %d servers; give at most one for each", strings.Join(d.listen, ","), len(d.listen), d.servers)
	}
	var addresses []string
	for i := range d.servers {
		given := d.listen[min(i, len(d.listen)-1)]
		host, text, err := net.SplitHostPort(given)
		port, portErr := strconv.ParseUint(text, 10, 16)
		if err = errors.Join(err, portErr); err != nil {
			return nil, usage("--listen %s: not of the form host:port: %w", given, err)
		}
		if further := i - len(d.listen) + 1; further > 0 && port > 0 {
			if port += uint64(further); port > 65535 {
				return nil, usage("--listen %s: no ports are left for %d servers", given, d.servers)
			}
		}
		addresses = append(addresses, net.JoinHostPort(host, strconv.FormatUint(port, 10)))
	}
	return addresses, nil
}

// serve runs the servers until the process receives a signal that stops it.
func (d *devServer) serve(cmd *cobra.Command) error {
	ctx, cancel := cmdline.UntilSignal(cmd.Context())
	defer cancel()
	addresses, err := d.addresses()
	if err != nil {
		return err
	}
	if _, password, ok := strings.Cut(d.super, ":"); d.super != "" && (!ok || password == "") {
		return usage("--super: not of the form user:password")
	}
	options := []zktest.Option{
		zktest.WithAddr(addresses...), zktest.WithTick(d.tick), zktest.WithSessionTimeouts(d.minSession, d.maxSession),
		zktest.WithSuperUser(d.super), zktest.WithLogLimit(0),
	}
	if !d.ttl {
		options = append(options, zktest.WithoutTTL())
	}
	ensemble, err := zktest.NewEnsemble(d.servers, options...)
	if err != nil {
		return usage("dev-server: %w", err)
	}
	defer ensemble.Close()
	if _, err := ensemble.Server(0).Listen(); err != nil {
		return fmt.Errorf("dev-server: %w", err)
	}
	control, err := startFaultServer(d.control, ensemble)
	if err != nil {
		return fmt.Errorf("dev-server: --control: %w", err)
	}
	defer control.close()
	if control.address != "" {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), "control on", control.address); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(cmd.OutOrStdout(), "listening on", strings.Join(ensemble.Addrs(), ",")); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
