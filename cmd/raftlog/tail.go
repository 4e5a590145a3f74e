package main

// The command tail.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/client"
)

const aboutTail = `Print the entries of the log, and continue as it grows. If entries were compacted, a line that
begins with # names the snapshot that has them.

With --once the command ends at the last committed entry. Only a peer that is in contact with a
leader of a majority knows which one that is: if no entry comes for --timeout, and no peer
confirms that there are no more, the command fails with exit code 1.

`

func newTail() *cobra.Command {
	var c caller
	var from uint64
	var format string
	var once bool
	cmd := &cobra.Command{
		Use: "tail [-c FILE] [HOST:PORT...]", Short: "Print the log, and follow it", Long: aboutTail + exitHelp,
		Example: "  raftlog tail -c /etc/raftlog.yaml\n  raftlog tail -c /etc/raftlog.yaml --once --format json",
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := newPrinter(cmd.OutOrStdout(), format)
			if err != nil {
				return err
			}
			cl, _, err := c.client(args)
			if err != nil {
				return err
			}
			defer cl.Close()
			ctx, cancel := context.WithCancelCause(cmd.Context())
			defer cancel(nil)
			sub := cl.Subscribe(ctx, from)
			defer sub.Close()
			err = tail(sub, cancel, time.Duration(c.timeout), once, func(e client.Event) error { return p.event(e, cmd.ErrOrStderr()) })
			if cmd.Context().Err() != nil {
				return nil // interrupted, which is how tail usually ends
			}
			return err
		},
	}
	c.register(cmd.Flags(), 10*time.Second, "time limit for the first answer of a peer; with --once, for each entry")
	cmd.Flags().Uint64Var(&from, "from", 1, "index of the first entry")
	cmd.Flags().BoolVarP(&once, "once", "1", false, "exit at the last committed entry")
	cmd.Flags().StringVar(&format, "format", "text", formats)
	return cmd
}

// subscription is a [client.Subscription].
type subscription interface {
	Events() <-chan client.Event
	Err() error
}

// tail prints the events of a subscription until it ends, and returns its error. Without once, the
// timeout ends when the first peer answers. With once, it restarts with each entry and snapshot,
// and tail returns nil at the first EventFresh. When the timeout expires, tail cancels the
// subscription.
func tail(sub subscription, cancel context.CancelCauseFunc, timeout time.Duration, once bool, show func(client.Event) error) error {
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
				err = fmt.Errorf("entries may be missing: within %v (--timeout) no entry has come, and no peer that knows a leader with a majority: does a majority of the peers run?", timeout)
			}
			cancel(err)
		}
	}
}

// event prints an event of a subscription: entries and snapshots to p.out, the others to notes.
func (p printer) event(e client.Event, notes io.Writer) error {
	switch e.Kind {
	case client.EventEntry:
		return p.entry(*e.Entry, nil)
	case client.EventSnapshot:
		s := e.Snapshot
		_, err := io.Copy(io.Discard, s.Data)
		if err = errors.Join(err, s.Data.Close()); err != nil {
			fmt.Fprintln(notes, "the snapshot was not read completely, and is requested again:", err)
			return nil
		}
		if p.format == "json" {
			return p.json(map[string]any{"snapshot": s.Index, "term": s.Term, "size": s.Size})
		}
		_, err = fmt.Fprintf(p.out, "# snapshot through %d, term %d, %d bytes of state\n", s.Index, s.Term, s.Size)
		return err
	case client.EventStale, client.EventTimeout:
		fmt.Fprintf(notes, "%v: peer %v: %v\n", e.Kind, e.Peer, e.Err)
	}
	return nil
}
