package main

// Commands that read the files of a peer.

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
)

// folder contains the flags that select the directory of a peer.
type folder struct{ file, dir, id string }

func (f *folder) register(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.file, "config", "c", "", "configuration file, YAML, that contains the directory")
	cmd.Flags().StringVarP(&f.dir, "dir", "d", "", "directory of the data of the peer")
	cmd.Flags().StringVar(&f.id, "peer-id", "", "ID of the peer, for {id} in the file")
}

// path returns the argument, or the directory of the flags.
func (f *folder) path(args []string) (string, error) {
	s, err := loadSettings(f.file)
	if err != nil {
		return "", err
	}
	if f.id != "" {
		s.ID = f.id
	}
	nameless := s.nameless(s.Dir)
	s.place()
	switch {
	case len(args) > 0:
		return args[0], nil
	case f.dir != "":
		return f.dir, nil
	case nameless != nil:
		return "", nameless
	case s.Dir != "":
		return s.Dir, nil
	}
	return "", usage("the directory of the peer is missing: give it as an argument, such as /var/lib/raftlog, or by -d, or by dir in the file of -c")
}

const beside = `Files are only read, and the peer may run. The entries that it is writing may be missing.

`

func newDump() *cobra.Command {
	var f folder
	var which, format string
	cmd := &cobra.Command{
		Use: "dump [DIR]", Short: "Print the entries of the log of a peer",
		Long: "Print the entries of the log in the directory of a peer, including compacted entries whose files\nstill exist. An entry is marked \"uncommitted?\" if the files do not record yet that it is committed.\n\n" + beside + exitHelp,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := f.path(args)
			if err != nil {
				return err
			}
			wanted, err := parseRanges(which)
			if err != nil {
				return err
			}
			p, err := newPrinter(cmd.OutOrStdout(), format)
			if err != nil {
				return err
			}
			if _, err := os.Stat(filepath.Join(dir, offline.LogDir)); err != nil {
				return usage("%s is not the directory of a peer: %w", dir, err)
			}
			return offline.Entries(dir, func(e offline.Entry) error {
				if cmd.Context().Err() != nil || !wanted.has(e.Index) {
					return cmd.Context().Err()
				}
				return p.entry(e.Entry, &e.Committed)
			})
		},
	}
	f.register(cmd)
	cmd.Flags().StringVarP(&which, "index", "i", "", "ranges of indexes, such as 1-10,20,30- (default: all)")
	cmd.Flags().StringVar(&format, "format", "text", formats)
	return cmd
}

// listing is what list and inspect print.
type listing struct {
	Owner     offline.Owner     `json:"owner"`
	Log       *offline.Log      `json:"log,omitempty"`
	Snapshots []string          `json:"snapshots,omitempty"`
	Snapshot  *offline.Snapshot `json:"snapshot,omitempty"`
}

func newList() *cobra.Command {
	var f folder
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list [DIR]", Short: "List the log files and the snapshots of a peer", Long: "List the segments of the log of a peer, and its snapshots.\n\n" + beside + exitHelp, Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := f.path(args)
			if err != nil {
				return err
			}
			l, err := listed(dir)
			if err != nil {
				return err
			}
			if asJSON {
				return printer{out: cmd.OutOrStdout()}.json(l)
			}
			return l.print(cmd.OutOrStdout())
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// readOwner returns the owner of a directory.
func readOwner(dir string) (offline.Owner, error) {
	owner, err := offline.ReadOwner(dir)
	if err != nil && !errors.Is(err, offline.ErrDirectory) {
		err = usage("%s is not the directory of a peer: %w", dir, err)
	}
	return owner, err
}

func listed(dir string) (l listing, err error) {
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
	fmt.Fprintf(out, "peer %s of cluster %s\n", printable(l.Owner.Peer), printable(l.Owner.Cluster))
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
		if _, err := fmt.Fprintln(out, "snapshot", name); err != nil {
			return err
		}
	}
	return nil
}

func newInspect() *cobra.Command {
	var f folder
	var asJSON bool
	cmd := &cobra.Command{
		Use: "inspect [DIR | SNAPSHOT]", Short: "Show the contents of a snapshot",
		Long: "Show the contents of the newest snapshot in the directory of a peer, or of any snapshot file. The\ncommand verifies all of it.\n\n" + beside + exitHelp, Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := f.path(args)
			if err != nil {
				return err
			}
			if info, err := os.Stat(name); err != nil {
				return usage("%w", err)
			} else if info.IsDir() {
				name = filepath.Join(name, offline.SnapshotName)
			}
			s, err := offline.ReadSnapshot(name)
			if err != nil {
				return err
			}
			if asJSON {
				return printer{out: cmd.OutOrStdout()}.json(s)
			}
			return printSnapshot(cmd.OutOrStdout(), s)
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printSnapshot(out io.Writer, s offline.Snapshot) error {
	var b strings.Builder
	fmt.Fprintf(&b, "snapshot of entry %d, term %d, of cluster %s\n", s.Index, s.Term, printable(s.Cluster))
	fmt.Fprintf(&b, "created: %s\n", s.Created.UTC().Format(time.RFC3339))
	fmt.Fprintf(&b, "size: %d bytes, %d of them from the state machine\n", s.Size, s.DataSize)
	fmt.Fprintf(&b, "window: %v, election timeout: %v\n", s.Window, s.ElectionTimeout)
	fmt.Fprintf(&b, "request IDs: %d, prune index: %d, updates not applied: %d\n", s.RequestIDs, s.PruneIndex, len(s.Skipped))
	fmt.Fprintf(&b, "peers, by entry %d:\n", s.Membership.Index)
	for _, p := range s.Membership.Voters {
		fmt.Fprintf(&b, "  %s\n", printable(peerURL(p)))
	}
	for _, p := range s.Membership.Outgoing {
		fmt.Fprintf(&b, "  %s (outgoing)\n", printable(peerURL(p)))
	}
	for _, p := range s.Membership.Learners {
		fmt.Fprintf(&b, "  %s (without a vote)\n", printable(peerURL(p)))
	}
	for _, id := range s.Membership.Removed {
		fmt.Fprintf(&b, "  %s (removed)\n", printable(id))
	}
	for _, e := range s.Elections {
		fmt.Fprintf(&b, "election %s:", printable(e.Name))
		if e.Ended {
			b.WriteString(" ended")
		}
		for _, c := range e.Candidates {
			fmt.Fprintf(&b, " %s(token %d)", printable(c.ID), c.Token)
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}
