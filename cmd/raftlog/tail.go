package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/client"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

const tailHelp = `Print the entries of the log, and continue as it grows. If entries were compacted, a line that starts
with # names the snapshot that contains them.

With --once the command ends at the last committed entry. Only a peer that is in contact with a
leader of a majority knows this entry. If no entry is received for --timeout, and no peer confirms
that there are no more, the command fails with exit code 1.

`

func newTail() *cobra.Command {
	var c clientFlags
	var from uint64
	var format string
	var once bool
	cmd := &cobra.Command{
		Use: "tail [-c FILE] [HOST:PORT...]", Short: "Print the log, and follow it", Long: tailHelp + exitCodes(cmdline.Permanent),
		Example: "  raftlog tail -c /etc/raftlog.yaml\n  raftlog tail -c /etc/raftlog.yaml --once --format json",
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := newPrinter(cmd.OutOrStdout(), format)
			if err != nil {
				return err
			}
			cl, err := c.newClient(args)
			if err != nil {
				return err
			}
			defer cl.Close()
			ctx, cancel := context.WithCancelCause(cmd.Context())
			defer cancel(nil)
			sub := cl.Subscribe(ctx, from)
			defer sub.Close()
			err = printEvents(sub, cancel, time.Duration(c.timeout), once, func(e client.Event) error { return p.printEvent(e, cmd.ErrOrStderr()) })
			if cmd.Context().Err() != nil {
				return nil // a signal is the normal end of tail
			}
			return err
		},
	}
	c.register(cmd, 10*time.Second, "time limit for the first answer of a peer; with --once, for each entry")
	cmd.Flags().Uint64Var(&from, "from", 1, "index of the first entry")
	cmd.Flags().BoolVarP(&once, "once", "1", false, "exit at the last committed entry")
	cmd.Flags().StringVar(&format, "format", "text", formats)
	return cmd
}

// eventSource is the part of a [client.Subscription] that printEvents uses.
type eventSource interface {
	Events() <-chan client.Event
	Err() error
}

// printEvents prints the events of a subscription until it ends, and returns its error. Without
// once, the timeout applies only to the first answer of a peer. With once, it restarts with each
// entry and snapshot, and printEvents returns nil at the first EventFresh. When the timeout
// expires, printEvents cancels the subscription.
func printEvents(sub eventSource, cancel context.CancelCauseFunc, timeout time.Duration, once bool, show func(client.Event) error) error {
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	answered := false
	for {
		select {
		case e, ok := <-sub.Events():
			if !ok {
				return sub.Err()
			}
			if err := show(e); err != nil {
				return err
			}
			switch e.Kind {
			case client.EventEntry, client.EventSnapshot:
				answered = true
				if limit.Stop(); once {
					limit.Reset(timeout)
				}
			case client.EventFresh:
				answered = true
				if limit.Stop(); once {
					return nil
				}
			}
		case <-limit.C:
			err := fmt.Errorf("no peer has answered within %v (--timeout)", timeout)
			if answered {
				err = fmt.Errorf("entries may be missing: within %v (--timeout) no entry was received, and no peer knows a leader with a majority: are a majority of the peers running?", timeout)
			}
			cancel(err)
		}
	}
}

// printEvent prints entries and snapshots to p.out, and EventStale and EventTimeout to notes. It prints
// nothing for EventFresh.
func (p entryPrinter) printEvent(e client.Event, notes io.Writer) error {
	switch e.Kind {
	case client.EventEntry:
		return p.printEntry(*e.Entry, nil)
	case client.EventSnapshot:
		s := e.Snapshot
		_, err := io.Copy(io.Discard, s.Data)
		if err = errors.Join(err, s.Data.Close()); err != nil {
			fmt.Fprintln(notes, "the snapshot was not read completely, and is requested again:", cmdline.Printable(err.Error()))
			return nil
		}
		if p.format == "json" {
			return p.printJSON(map[string]any{"snapshot": s.Index, "term": s.Term, "size": s.Size})
		}
		_, err = fmt.Fprintf(p.out, "# snapshot through %d, term %d, %d bytes of state\n", s.Index, s.Term, s.Size)
		return err
	case client.EventStale, client.EventTimeout:
		fmt.Fprintln(notes, cmdline.Printable(fmt.Sprintf("%v: peer %v: %v", e.Kind, e.Peer, e.Err)))
	}
	return nil
}
