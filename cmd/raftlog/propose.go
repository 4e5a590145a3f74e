package main

// To write to the log, and to follow it.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/client"
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

func newTail() *cobra.Command {
	var c caller
	var from uint64
	var format string
	var once bool
	cmd := &cobra.Command{
		Use: "tail [-c FILE] [HOST:PORT...]", Short: "Follow the log",
		Long: "Print the entries of the log, and go on as it grows. Where entries are gone, a line that begins\nwith # tells which snapshot has them.\n\n" + exitHelp,
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
			limit := time.NewTimer(time.Duration(c.timeout))
			defer limit.Stop()
			for {
				select {
				case e, ok := <-sub.Events():
					if !ok {
						if cmd.Context().Err() != nil {
							return nil // that is how it ends
						}
						return sub.Err()
					}
					if e.Kind == client.EventEntry || e.Kind == client.EventSnapshot || e.Kind == client.EventFresh {
						limit.Stop() // somebody answers
					}
					if err := p.event(e, cmd.ErrOrStderr()); err != nil {
						return err
					}
					if once && e.Kind == client.EventFresh {
						return nil
					}
				case <-limit.C:
					cancel(fmt.Errorf("no peer has answered within %v (--timeout)", time.Duration(c.timeout)))
				}
			}
		},
	}
	c.register(cmd.Flags(), 10*time.Second, "how long to look for a peer")
	cmd.Flags().Uint64Var(&from, "from", 1, "index to begin with")
	cmd.Flags().BoolVarP(&once, "once", "1", false, "end where the log ends now")
	cmd.Flags().StringVar(&format, "format", "text", formats)
	return cmd
}

// event prints what a subscription tells; what is not of the log goes to notes.
func (p printer) event(e client.Event, notes io.Writer) error {
	switch e.Kind {
	case client.EventEntry:
		return p.entry(*e.Entry, nil)
	case client.EventSnapshot:
		s := e.Snapshot
		_, err := io.Copy(io.Discard, s.Data)
		if err = errors.Join(err, s.Data.Close()); err != nil {
			fmt.Fprintln(notes, "the snapshot was not read to its end, and comes again:", err)
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
