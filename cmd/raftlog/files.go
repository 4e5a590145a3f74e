package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/offline"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// directoryFlags contains the flags that select the directory of a peer.
type directoryFlags struct{ *settings }

func (f *directoryFlags) register(cmd *cobra.Command) {
	f.settings = newSettings()
	f.addFlags(cmd, cmdline.FlagConfig, "dir", "peer-id")
}

// run returns a function for cobra.Command.RunE that calls do with the argument of the command or, without an
// argument, with the directory in the settings.
func (f *directoryFlags) run(do func(cmd *cobra.Command, dir string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		dir, err := f.directory(args)
		if err != nil {
			return err
		}
		return do(cmd, dir)
	}
}

// directory reads the settings, and returns the first of args or, if args is empty, the directory in the
// settings.
func (f *directoryFlags) directory(args []string) (string, error) {
	switch _, err := f.load(); {
	case err != nil:
		return "", err
	case len(args) > 0:
		return args[0], nil
	case f.Dir == "":
		return "", newUsageError("the directory of the peer is missing: give it as an argument, such as /var/lib/raftlog, or by -d, or by dir in the file of -c")
	}
	return f.expandPath(f.Dir)
}

const filesHelp = `The command only reads files, and the peer may be running. Entries that it is writing may be missing.

`

func newDump() *cobra.Command {
	var f directoryFlags
	var indexes, format string
	cmd := &cobra.Command{
		Use: "dump [DIR]", Short: "Print the entries of the log of a peer",
		Long: "Print the entries of the log in the directory of a peer, including compacted entries whose files\nstill exist. An entry is marked \"uncommitted?\" if the files do not record yet that it is committed.\n\n" + filesHelp + exitCodes(cmdline.Permanent),
		Args: maxArgs(1),
		RunE: f.run(func(cmd *cobra.Command, dir string) error {
			selected, err := parseRanges(indexes)
			if err != nil {
				return err
			}
			p, err := newPrinter(cmd.OutOrStdout(), format)
			if err != nil {
				return err
			}
			if _, err := os.Stat(filepath.Join(dir, offline.LogDir)); err != nil {
				return newUsageError("%s is not the directory of a peer: %w", dir, err)
			}
			return offline.Entries(dir, func(e offline.Entry) error {
				if cmd.Context().Err() != nil || !selected.contains(e.Index) {
					return cmd.Context().Err()
				}
				return p.printEntry(e.Entry, &e.Committed)
			})
		}),
	}
	f.register(cmd)
	cmd.Flags().StringVarP(&indexes, "index", "i", "", "ranges of indexes, such as 1-10,20,30- (default: all)")
	cmd.Flags().StringVar(&format, "format", "text", formats)
	return cmd
}

// listing is the output of the command list in JSON.
type listing struct {
	Owner     offline.Owner     `json:"owner"`
	Log       *offline.Log      `json:"log,omitempty"`
	Snapshots []string          `json:"snapshots,omitempty"`
	Snapshot  *offline.Snapshot `json:"snapshot,omitempty"`
}

func newList() *cobra.Command {
	var f directoryFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list [DIR]", Short: "List the log files and the snapshots of a peer", Long: "List the segments of the log of a peer, and its snapshots.\n\n" + filesHelp + exitCodes(cmdline.Permanent), Args: maxArgs(1),
		RunE: f.run(func(cmd *cobra.Command, dir string) error {
			l, err := readListing(dir)
			if err != nil {
				return err
			}
			if asJSON {
				return entryPrinter{out: cmd.OutOrStdout()}.printJSON(l)
			}
			return l.print(cmd.OutOrStdout())
		}),
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// readOwner returns the owner of a directory, or an error of wrong usage if the directory is not that of a
// peer.
func readOwner(dir string) (offline.Owner, error) {
	owner, err := offline.ReadOwner(dir)
	if err != nil && !errors.Is(err, offline.ErrDirectory) {
		err = newUsageError("%s is not the directory of a peer: %w", dir, err)
	}
	return owner, err
}

// readListing returns the owner, the log and the snapshots of a directory.
func readListing(dir string) (l listing, err error) {
	if l.Owner, err = readOwner(dir); err != nil {
		return l, err
	}
	log, err := offline.ReadLog(dir)
	if err != nil {
		return l, err
	}
	l.Log = &log
	l.Snapshots, err = offline.Snapshots(dir)
	return l, err
}

func (l listing) print(out io.Writer) error {
	fmt.Fprintf(out, "peer %s of cluster %s\n", cmdline.Printable(l.Owner.Peer), cmdline.Printable(l.Owner.Cluster))
	fmt.Fprintf(out, "log: entries %d to %d, committed through %d, compacted through %d\n", l.Log.First, l.Log.Last, l.Log.Commit, l.Log.Compacted)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SEGMENT\tENTRIES\tCOUNT\tREPLACED\tBYTES\tSTATE")
	for _, s := range l.Log.Segments {
		state := "open"
		if s.Sealed {
			state = "sealed"
		}
		fmt.Fprintf(t, "%s\t%d-%d\t%d\t%d\t%d\t%s\n", s.Name, s.First, s.Last, s.Entries, s.Replaced, s.Used, state)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, name := range l.Snapshots {
		if _, err := fmt.Fprintln(out, "snapshot", cmdline.Printable(name)); err != nil {
			return err
		}
	}
	return nil
}

func newInspect() *cobra.Command {
	var f directoryFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use: "inspect [DIR | SNAPSHOT]", Short: "Show the contents of a snapshot",
		Long: "Show the contents of the newest snapshot in the directory of a peer, or of any snapshot file. The\ncommand verifies all of it.\n\n" + filesHelp + exitCodes(cmdline.Permanent), Args: maxArgs(1),
		RunE: f.run(func(cmd *cobra.Command, name string) error {
			if info, err := os.Stat(name); err != nil {
				return newUsageError("%w", err)
			} else if info.IsDir() {
				name = filepath.Join(name, offline.SnapshotName)
			}
			s, err := offline.ReadSnapshot(name)
			if err != nil {
				return err
			}
			if asJSON {
				return entryPrinter{out: cmd.OutOrStdout()}.printJSON(s)
			}
			return printSnapshot(cmd.OutOrStdout(), s)
		}),
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printSnapshot(out io.Writer, s offline.Snapshot) error {
	var b strings.Builder
	fmt.Fprintf(&b, "snapshot of entry %d, term %d, of cluster %s\n", s.Index, s.Term, cmdline.Printable(s.Cluster))
	fmt.Fprintf(&b, "created: %s\n", s.Created.UTC().Format(time.RFC3339))
	fmt.Fprintf(&b, "size: %d bytes, %d of them from the state machine\n", s.Size, s.DataSize)
	fmt.Fprintf(&b, "window: %v, election timeout: %v\n", s.Window, s.ElectionTimeout)
	fmt.Fprintf(&b, "request IDs: %d, prune index: %d, updates not applied: %d\n", s.RequestIDs, s.PruneIndex, len(s.Skipped))
	fmt.Fprintf(&b, "peers, by entry %d:\n", s.Membership.Index)
	for _, p := range s.Membership.Voters {
		fmt.Fprintf(&b, "  %s\n", cmdline.Printable(cmdline.PeerURL(p)))
	}
	for _, p := range s.Membership.Outgoing {
		fmt.Fprintf(&b, "  %s (outgoing)\n", cmdline.Printable(cmdline.PeerURL(p)))
	}
	for _, p := range s.Membership.Learners {
		fmt.Fprintf(&b, "  %s (without a vote)\n", cmdline.Printable(cmdline.PeerURL(p)))
	}
	for _, id := range s.Membership.Removed {
		fmt.Fprintf(&b, "  %s (removed)\n", cmdline.Printable(id))
	}
	for _, e := range s.Elections {
		fmt.Fprintf(&b, "election %s:", cmdline.Printable(e.Name))
		if e.Ended {
			b.WriteString(" ended")
		}
		for _, c := range e.Candidates {
			fmt.Fprintf(&b, " %s(token %d)", cmdline.Printable(c.ID), c.Token)
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}
