package raftlog

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// Config configures a peer. Cluster, ID, Addr, Dir, Peers and one of Secret, TLS and
// Insecure are required.
type Config struct {
	// Cluster is the name of the cluster, the same at all peers and clients.
	Cluster string
	// ID is the unique ID of this peer. It must never have been used by another peer: a
	// peer that has lost its disk rejoins under a new ID.
	ID string
	// Addr is the address, host:port, at which other peers reach this peer. If it has
	// changed since the last start, the cluster learns the new address when a majority of
	// the peers is reachable.
	Addr string
	// Listen is the address at which this peer listens. The default is Addr.
	Listen string
	// Dir is the directory for the peer's data. It is created if necessary. No other
	// process may use it.
	Dir string
	// Peers are the initial voters of the cluster, the same at all of them. A mistake can be corrected, and the
	// peer started again, until the peer has voted or stored an entry. After that, Peers only lists addresses
	// to contact, in addition to the addresses in the log. A peer that is not in Peers joins the cluster: it
	// fetches a snapshot and receives the log, and votes after ChangePeers has made it a voter.
	Peers []api.Peer
	// JoinTimeout is the time for which Open of a joining peer tries to fetch a snapshot, one
	// of Peers after another. Open tries the next peer if a peer does not accept a connection
	// within five seconds, or sends nothing for half of JoinTimeout. The default is one
	// minute.
	JoinTimeout time.Duration

	// Secret authenticates the peers of the cluster to each other, over TLS 1.3. It must have at
	// least 16 random bytes.
	Secret []byte
	// ClientSecret is another secret, which authenticates clients and permits no process to act as a
	// peer. Without it, clients are refused if Secret is set.
	ClientSecret []byte
	// Secrets, if not nil, returns the secrets, which it can change while the peer runs. It is used
	// instead of Secret and ClientSecret. It is called for each new connection, and every five
	// seconds, by several goroutines; it must return soon. Connections that were authenticated by a
	// secret that it does not return any more are closed.
	Secrets func() api.Secrets
	// TLS authenticates peers and clients by certificates, instead of or in addition to
	// secrets. The certificate of a peer must contain its ID, as an alternative name, or the host
	// of the address, a name or an IP address, that the log or Peers contains for its ID. If TLS
	// contains a ServerName, the certificates of all peers must contain that instead.
	TLS *tls.Config
	// AllowedNames lists the names of the certificates of peers: DNS names, IP addresses, URIs or
	// common names of subjects. This condition is in addition to those of TLS. A peer that is in
	// neither the log nor Peers may then also use a certificate for the host of its own address.
	AllowedNames []string
	// AllowedClientNames lists the names of the certificates of clients. The default is AllowedNames.
	// If both are empty, every certificate of the authority is accepted from clients.
	AllowedClientNames []string
	// Insecure disables authentication and encryption.
	Insecure bool

	// StateMachine applies the updates. Without it the log can be used only by subscribers
	// and elections.
	StateMachine StateMachine

	// ElectionTimeout is the time without contact after which voters elect another leader
	// of the log, and the longest time for which a leadership lasts without confirmation.
	// All peers of a cluster must use the same value, from its start. The minimum is 100
	// ms, the default is one second. Use 200 ms only if disks and networks never stall for
	// longer.
	ElectionTimeout time.Duration
	// Heartbeat is the interval at which the leader sends heartbeats and leases are
	// renewed. The default is a fifth of ElectionTimeout. Useful values are at most a third
	// of it.
	Heartbeat time.Duration

	// Window is the deduplication window, in which IDs of updates are remembered. Unknown
	// IDs that are older are rejected. The default is 7 hours, the minimum one minute.
	// The window of a cluster is set when the cluster is created; a leader with a longer
	// Window in its Config extends it. A peer with a shorter Window logs a warning and
	// uses the window of the cluster.
	Window time.Duration
	// MaxRequestIDs is the maximum number of IDs in the deduplication window, at 20 bytes
	// each. When this number is reached, updates are rejected with [api.ErrTooManyIDs]. The
	// default is 20,000,000.
	MaxRequestIDs int
	// MaxData is the maximum size of an update in bytes. The default is 1 MiB, the maximum
	// 16 MiB.
	MaxData int

	// CompactFile is the path of a file in which another program can place a snapshot of this peer's log,
	// created by [CompactOffline]. The peer watches the path and installs the snapshot, unless the snapshot has
	// no data and StateMachine is set. The file must belong to the user of this process or to root, no other
	// user may be able to write it, and it must not be a link. Let no other user write its directory. See the
	// command raftlog compact. If CompactFile is empty, the peer watches no file.
	CompactFile string

	// Logger receives messages for operators. If Logger is nil, the messages are discarded.
	Logger *slog.Logger
	// Listener, if not nil, is used instead of Listen, for tests and for other kinds of networks. The node
	// closes the Listener when it stops, and Open closes it when it fails.
	Listener net.Listener
	// Dial, if not nil, is used instead of net.Dialer.
	Dial func(ctx context.Context, addr string) (net.Conn, error)

	fs      disk.FS // the disk that tests use instead of Dir
	segment int64   // the size of the files of the log, which tests change; 0 means the default size
}

// The defaults and limits of the fields of Config.
const (
	DefaultElectionTimeout = time.Second
	DefaultWindow          = 7 * time.Hour
	DefaultMaxRequestIDs   = 20_000_000
	DefaultMaxData         = 1 << 20
	DefaultJoinTimeout     = time.Minute
)

// ticksPerTimeout is the number of ticks in an election timeout. The core measures time in ticks.
const ticksPerTimeout = 20

// withDefaults returns the configuration with its defaults, and an error if the configuration is invalid.
func (c Config) withDefaults() (Config, error) {
	setDefault := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	setDefault(&c.ElectionTimeout, DefaultElectionTimeout)
	setDefault(&c.Heartbeat, c.ElectionTimeout/5)
	setDefault(&c.Window, DefaultWindow)
	setDefault(&c.JoinTimeout, DefaultJoinTimeout)
	if c.MaxRequestIDs == 0 {
		c.MaxRequestIDs = DefaultMaxRequestIDs
	}
	if c.MaxData == 0 {
		c.MaxData = DefaultMaxData
	}
	if c.Listen == "" {
		c.Listen = c.Addr
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Dial == nil {
		var d net.Dialer
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }
	}
	return c, c.validate()
}

func (c Config) validate() error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: Config: %s", api.ErrInvalid, fmt.Sprintf(format, args...))
	}
	current := api.Secrets{Peers: [][]byte{c.Secret}, Clients: [][]byte{c.ClientSecret}}
	if c.Secrets != nil {
		current = c.Secrets()
	}
	if _, _, err := net.SplitHostPort(c.Addr); err != nil {
		return invalid("Addr %q: %v", c.Addr, err)
	}
	switch {
	case c.Cluster == "":
		return invalid("Cluster is empty")
	case c.ID == "":
		return invalid("ID is empty")
	case !utf8.ValidString(c.Cluster), !utf8.ValidString(c.ID), !utf8.ValidString(c.Addr):
		return invalid("Cluster %q, ID %q and Addr %q must be UTF-8", c.Cluster, c.ID, c.Addr)
	case c.Dir == "" && c.fs == nil:
		return invalid("Dir is empty")
	case len(c.Peers) == 0:
		return invalid("Peers is empty")
	case c.ElectionTimeout < 100*time.Millisecond || c.ElectionTimeout > time.Hour:
		return invalid("ElectionTimeout is %v: must be from 100ms to 1h", c.ElectionTimeout)
	case c.Heartbeat < c.ElectionTimeout/ticksPerTimeout || c.Heartbeat > c.ElectionTimeout/2:
		return invalid("Heartbeat is %v: must be from a twentieth to half of ElectionTimeout (%v)", c.Heartbeat, c.ElectionTimeout)
	case c.Window < time.Minute || c.Window > 10*365*24*time.Hour:
		return invalid("Window is %v: must be from one minute to ten years", c.Window)
	case c.JoinTimeout < 0:
		return invalid("JoinTimeout is %v: must not be negative", c.JoinTimeout)
	case c.MaxRequestIDs < 1:
		return invalid("MaxRequestIDs is %d: must be positive", c.MaxRequestIDs)
	case c.MaxData < 1 || c.MaxData > replica.MaxData:
		return invalid("MaxData is %d: must be from 1 to %d", c.MaxData, replica.MaxData)
	}
	for _, role := range []struct {
		name    string
		secrets [][]byte
	}{{"Secret", current.Peers}, {"ClientSecret", current.Clients}} {
		for _, secret := range role.secrets {
			if n := len(secret); n > 0 && n < link.MinSecret {
				return invalid("%s has %d bytes: at least %d random bytes are required", role.name, n, link.MinSecret)
			}
		}
	}
	for i, p := range c.Peers {
		if _, _, err := net.SplitHostPort(p.Addr); err != nil || p.ID == "" || !utf8.ValidString(p.ID) || !utf8.ValidString(p.Addr) {
			return invalid("peer %q at %q: an ID and an address host:port are required, in UTF-8", p.ID, p.Addr)
		}
		for _, q := range c.Peers[:i] {
			if q.ID == p.ID || q.Addr == p.Addr {
				return invalid("%v and %v have the same ID or address", q, p)
			}
		}
		if p.ID == c.ID && p.Addr != c.Addr {
			return invalid("Peers lists this peer with address %s, but Addr is %s", p.Addr, c.Addr)
		}
	}
	return c.linkIdentity().Validate()
}

func (c Config) linkIdentity() link.Identity {
	return link.Identity{
		Cluster: c.Cluster, ID: c.ID, Peer: true, Addr: c.Addr, TLS: c.TLS, Insecure: c.Insecure,
		Secret: c.Secret, ClientSecret: c.ClientSecret, Secrets: c.Secrets, PeerNames: c.AllowedNames, ClientNames: c.AllowedClientNames,
	}
}

func (c Config) ownPeer() api.Peer { return api.Peer{ID: c.ID, Addr: c.Addr} }

// isFounder reports whether this peer is one of the initial voters.
func (c Config) isFounder() bool { return slices.Contains(c.Peers, c.ownPeer()) }
