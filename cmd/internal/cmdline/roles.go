package cmdline

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"sync"
)

// Roles contains the secrets of peers and of clients. The two roles must not have a secret in common, because a
// client could then act as a peer. The methods of Roles can be called concurrently.
type Roles struct {
	peers, clients *Secrets
	log            *slog.Logger

	mu          sync.Mutex
	lastPeers   [][]byte // the secrets of peers when the roles last had no secret in common
	lastClients [][]byte
	common      bool // whether the roles had a secret in common in the last call of Current
}

// NewRoles returns an error if peers and clients have a secret in common. peers, clients and log may be nil.
func NewRoles(peers, clients *Secrets, log *slog.Logger) (*Roles, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r := &Roles{peers: peers, clients: clients, log: log, lastPeers: peers.Current(), lastClients: clients.Current()}
	if haveCommonSecret(r.lastPeers, r.lastClients) {
		return nil, fmt.Errorf("%s, %s: peers and clients have the same secret, so that a client could act as a peer: use another secret for clients, for example the output of head -c 32 /dev/urandom | base64", peers.flags, clients.flags)
	}
	return r, nil
}

// Current returns the secrets of both roles. If the roles have a secret in common after one of their files was
// replaced, Current returns the earlier secrets, and logs an error.
func (r *Roles) Current() (peers, clients [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	peers, clients = r.peers.Current(), r.clients.Current()
	common := haveCommonSecret(peers, clients)
	if common && !r.common {
		r.log.Error("the secrets before the replacement are still used: peers and clients have the same secret, so that a client could act as a peer", "files", r.peers.flags+", "+r.clients.flags)
	}
	if r.common = common; !common {
		r.lastPeers, r.lastClients = peers, clients
	}
	return r.lastPeers, r.lastClients
}

// haveCommonSecret reports whether a secret is in both lists.
func haveCommonSecret(a, b [][]byte) bool {
	return slices.ContainsFunc(a, func(secret []byte) bool {
		return slices.ContainsFunc(b, func(other []byte) bool { return bytes.Equal(secret, other) })
	})
}
