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

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

// Config is what a peer is. Cluster, ID, Addr, Dir, Peers and one of Secret, TLS and Insecure
// have to be set.
type Config struct {
	// Cluster is the cluster's name, the same at all peers and clients.
	Cluster string
	// ID is this peer's own, never used by another one, not even one of before: a peer that
	// has lost its disk comes back under a new ID.
	ID string
	// Addr is where the others reach this peer: host:port. A peer that is started with another
	// address than before is known there soon, if a majority of the peers is reachable.
	Addr string
	// Listen is where this peer listens; Addr by default.
	Listen string
	// Dir is the folder of its data, which no other process may use. It is made if it is
	// missing.
	Dir string
	// Peers are the voters with which the cluster begins, the same at all of them. Once the
	// log exists this says only whom to ask; those that have never come are tried for ever.
	// A peer that is not among them joins the cluster: it fetches a snapshot from them, gets
	// the log, and votes when it is made a voter by ChangePeers.
	Peers []Peer
	// JoinTimeout is for how long Open of such a peer looks for one that gives it a snapshot.
	// The default is a minute.
	JoinTimeout time.Duration

	// Secret proves that peers and clients are of the cluster, over TLS 1.3; at least 16
	// random bytes.
	Secret []byte
	// TLS has them proven by certificates instead, or besides.
	TLS *tls.Config
	// Insecure has everybody believed who reaches the port, and nothing encrypted.
	Insecure bool

	// StateMachine gets the updates. Without it the log is for subscribers, and for
	// elections.
	StateMachine StateMachine

	// ElectionTimeout is how long the log's voters wait for their leader before they elect
	// another one, and the longest that a leadership lasts without proof. All peers of a
	// cluster have the same, from its beginning on. At least 100 ms; the default is a second.
	// 200 ms is for disks and networks that never stall for longer.
	ElectionTimeout time.Duration
	// Heartbeat is how often the leader shows itself, and leases are renewed. The default is
	// a fifth of ElectionTimeout, and a third is the most that makes sense.
	Heartbeat time.Duration

	// Window is for how long IDs of updates are fresh: what is older is refused, if it is not
	// known. The default is 7 hours, and a minute the least. It is set when the cluster
	// begins; a leader that is configured with a longer one lengthens it.
	Window time.Duration
	// MaxRequestIDs is how many fresh IDs are remembered, at 20 bytes each. Updates are
	// refused with ErrTooManyIDs while there are so many. The default is 20,000,000.
	MaxRequestIDs int
	// MaxData is how many bytes an update may have; the default is 1 MiB, 16 MiB the most.
	MaxData int

	// CompactFile, if set, is watched: a snapshot that another program has put there, made
	// of this peer's own log by CompactOffline, is taken over; not one without data if there
	// is a StateMachine. See the command raftlog compact.
	CompactFile string

	// Logger gets what an operator should know; by default nobody does.
	Logger *slog.Logger
	// Listener takes the place of Listen, and Dial that of net.Dialer; for tests, and for
	// networks of other kinds. The listener is closed with the node, and by an
	// Open that fails.
	Listener net.Listener
	Dial     func(ctx context.Context, addr string) (net.Conn, error)

	fs      disk.FS // for tests
	segment int64   // the size of the log's files, for tests; 0 is the default
}

// The defaults of Config.
const (
	DefaultElectionTimeout = time.Second
	DefaultWindow          = 7 * time.Hour
	DefaultMaxRequestIDs   = 20_000_000
	DefaultMaxData         = 1 << 20
	DefaultJoinTimeout     = time.Minute
)

// ticksPerTimeout is how finely an election timeout is counted.
const ticksPerTimeout = 20

// withDefaults returns the configuration to work with.
func (c Config) withDefaults() (Config, error) {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.ElectionTimeout, DefaultElectionTimeout)
	def(&c.Heartbeat, c.ElectionTimeout/5)
	def(&c.Window, DefaultWindow)
	def(&c.JoinTimeout, DefaultJoinTimeout)
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
	return c, c.check()
}

func (c Config) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: Config: %s", ErrInvalid, fmt.Sprintf(format, args...))
	}
	if _, _, err := net.SplitHostPort(c.Addr); err != nil {
		return bad("Addr %q: %v", c.Addr, err)
	}
	switch {
	case c.Cluster == "":
		return bad("no Cluster")
	case c.ID == "":
		return bad("no ID")
	case !utf8.ValidString(c.Cluster), !utf8.ValidString(c.ID), !utf8.ValidString(c.Addr):
		return bad("Cluster %q, ID %q and Addr %q have to be UTF-8", c.Cluster, c.ID, c.Addr)
	case c.Dir == "" && c.fs == nil:
		return bad("no Dir")
	case len(c.Peers) == 0:
		return bad("no Peers")
	case len(c.Secret) > 0 && len(c.Secret) < api.MinSecret:
		return bad("Secret has %d bytes; at least %d are needed, random ones", len(c.Secret), api.MinSecret)
	case c.ElectionTimeout < 100*time.Millisecond || c.ElectionTimeout > time.Hour:
		return bad("ElectionTimeout is %v; from 100ms to 1h", c.ElectionTimeout)
	case c.Heartbeat < c.ElectionTimeout/ticksPerTimeout || c.Heartbeat > c.ElectionTimeout/2:
		return bad("Heartbeat is %v; from a twentieth to half of ElectionTimeout (%v)", c.Heartbeat, c.ElectionTimeout)
	case c.Window < time.Minute || c.Window > 10*365*24*time.Hour:
		return bad("Window is %v; from a minute to ten years", c.Window)
	case c.JoinTimeout < 0:
		return bad("JoinTimeout is %v", c.JoinTimeout)
	case c.MaxRequestIDs < 1:
		return bad("MaxRequestIDs is %d", c.MaxRequestIDs)
	case c.MaxData < 1 || c.MaxData > entry.MaxData:
		return bad("MaxData is %d; from 1 to %d", c.MaxData, entry.MaxData)
	}
	for i, p := range c.Peers {
		if _, _, err := net.SplitHostPort(p.Addr); err != nil || p.ID == "" || !utf8.ValidString(p.ID) || !utf8.ValidString(p.Addr) {
			return bad("peer %q at %q: an ID and host:port are needed, in UTF-8", p.ID, p.Addr)
		}
		for _, q := range c.Peers[:i] {
			if q.ID == p.ID || q.Addr == p.Addr {
				return bad("%v and %v have the same ID or address", q, p)
			}
		}
		if p.ID == c.ID && p.Addr != c.Addr {
			return bad("Peers has this peer at %s, and Addr is %s", p.Addr, c.Addr)
		}
	}
	return c.identity().Validate()
}

func (c Config) identity() link.Identity {
	return link.Identity{
		Cluster: c.Cluster, ID: c.ID, Peer: true, Addr: c.Addr, Secret: c.Secret, TLS: c.TLS, Insecure: c.Insecure,
	}
}

func (c Config) self() Peer { return Peer{ID: c.ID, Addr: c.Addr} }

// founds tells whether this peer is one of those that begin the cluster.
func (c Config) founds() bool { return slices.Contains(c.Peers, c.self()) }
