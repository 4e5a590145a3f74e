package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// defaults is a configuration file with all keys and their defaults.
const defaults = `# A peer of a replicated log, for "raftlog serve -c FILE" and the commands that manage it. All
# peers can share one file if the ID is given on the command line: serve -c FILE --peer-id a.

# The name of the cluster, the same for all peers and clients.
cluster: ""

# The ID of this peer. An ID must not be used again: a peer that has lost its data returns with a
# new ID. --peer-id overrides it.
peer-id: ""

# The address at which others reach this peer, host:port. Default: its address in peers.
addr: ""

# The address on which this peer listens, host:port. Default: addr.
listen: ""

# The directory of the data of this peer; {id} stands for the ID. A relative path is relative to the
# working directory of the command, like all paths in this file.
dir: ""

# The voters that start the cluster, the same for all of them, as tcp://host:port/id, or as a mapping
# of id and addr. If the log exists, these are only the peers to contact. A peer that is not listed
# joins: start it, and then make it a voter by "raftlog config --add".
peers: []

# The secret that authenticates peers, over TLS 1.3: at least 16 random bytes. -k, --secret-file and
# RAFTLOG_SECRET override it, in this order. Only "raftlog serve" needs it.
secret: ""
# A file that contains the secret, or two secrets on separate lines: the peer connects with the first, and
# accepts both. The file can be replaced while the peer runs, so that a secret is replaced in steps. The
# files of secrets, this file and key-file must be writable by their owners only, and there is a warning if
# all users can read a secret.
secret-file: ""
# The same for clients, that is for all other commands: a secret with which a process cannot act as a
# peer. It must differ from secret. --client-secret-file and RAFTLOG_CLIENT_SECRET override it. Peers with
# a secret and without a client-secret accept no clients.
client-secret: ""
client-secret-file: ""

# Certificates, instead of the secret or in addition: PEM files of the authority and of this process.
ca-file: ""
cert-file: ""
key-file: ""
# The certificate of a peer must contain the ID of the peer, or the host of the address that the log or
# peers contains for this ID. allowed-names is an additional condition: the names of the certificates of
# peers, each a DNS name, an IP address, a URI or the common name. allowed-client-names is the same for
# clients that connect to this peer. If it is [], allowed-names applies to clients, too; if both are [],
# clients can use every certificate of the authority.
allowed-names: []
allowed-client-names: []

# No authentication and no encryption.
insecure: false

# The file in which this peer expects snapshots of "raftlog compact". Its directory must be on the
# same file system as dir, and may be in dir; {id} stands for the ID.
# The peer installs only a file that belongs to its user or to root, that no other user can write, and
# that is not a link. Let no other user write the directory.
compact-file: ""

# The time after which voters that receive nothing from the leader elect another one, and the
# maximum of a lease. The same for all peers. At least 100ms.
election-timeout: 1s

# The interval of the leader's heartbeats. 0 is a fifth of election-timeout.
heartbeat: 0s

# The time for which request IDs are remembered. Older unknown IDs are rejected. The same for all
# peers: a leader with a longer window extends it, and a shorter one is ignored with a warning.
window: 7h

# The time in which a peer that joins must find another peer that sends it a snapshot.
join-timeout: 1m

# The maximum number of request IDs within the window, 20 bytes each. Updates are rejected while
# there are more.
max-request-ids: 20000000

# The maximum size of an update in bytes, up to 16777216.
max-data: 1048576

# text or json; debug, info, warn or error; on standard error.
log-format: text
log-level: info
`

func newDefaults() *cobra.Command {
	return &cobra.Command{
		Use: "defaults", Short: "Print a configuration file that explains every key", Args: maxArgs(0),
		Long: "Print a configuration file that contains every key with its default and an explanation.\n\n" + exitCodes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), defaults)
			return err
		},
	}
}
