package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// defaults is a configuration file with every key, and its default.
const defaults = `# A peer of a replicated log, for "raftlog serve -c FILE", and for the commands that look
# after it. All peers can share one file, with the ID on the command line: serve -c FILE a.

# The cluster's name, the same at all peers and clients.
cluster: ""

# This peer's own ID, never used by another one, not even one of before: a peer that has lost
# its disk comes back under a new ID. An argument of serve comes first.
id: ""

# Where the others reach this peer, host:port. Default: what peers has for id.
addr: ""

# Where this peer listens, host:port. Default: addr.
listen: ""

# The folder of this peer's data; {id} in it stands for the ID. Relative ones are relative to
# where the command runs, as with all files here.
dir: ""

# The voters with which the cluster begins, the same at all of them, as tcp://host:port/id, or
# as keys id and addr. Once the log exists these say only whom to ask. A peer that is not among
# them joins: start it, and then have it made a voter by "raftlog config --add".
peers: []

# What proves that peers and clients are of the cluster, over TLS 1.3: at least 16 random
# bytes. -k, --secret-file and RAFTLOG_SECRET come first, in this order.
secret: ""
# A file with the secret, without the line's end.
secret-file: ""

# Certificates prove it instead, or besides; PEM files of the authority, and of this process.
ca-file: ""
cert-file: ""
key-file: ""

# Believe everybody who reaches the port, and encrypt nothing.
insecure: false

# A file that is watched: a snapshot that "raftlog compact" puts there is taken over. Its
# folder must be on the disk of dir, and may be in it; {id} stands for the ID.
compact-file: ""

# How long voters wait for their leader before they elect another one, and the longest that a
# leadership lasts without proof. The same at all peers. From 100ms.
election-timeout: 1s

# How often the leader shows itself. 0 is a fifth of election-timeout.
heartbeat: 0s

# For how long IDs of updates are fresh: older ones are refused if they are not known.
window: 7h

# For how long a peer that joins looks for one that gives it a snapshot.
join-timeout: 1m

# How many fresh IDs are remembered, at 20 bytes each; updates are refused while there are
# more.
max-request-ids: 20000000

# How many bytes an update may have; 16777216 at most.
max-data: 1048576

# text or json; debug, info, warn or error; on standard error.
log-format: text
log-level: info
`

func newDefaults() *cobra.Command {
	return &cobra.Command{
		Use: "defaults", Short: "Print a configuration file with every key, explained", Args: atMost(0),
		Long: "Print a configuration file that has every key, with its default, explained.\n\n" + exitHelp,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), defaults)
			return err
		},
	}
}
