// Package identity decides which peer may participate in a cluster.
//
// Names do not suffice for that. Two clusters can be founded with the same name, a peer can be started
// with an empty directory or with an old copy of its directory, and two processes can use copies of one
// directory. Each of these peers could vote twice in a term, or acknowledge entries that it does not
// store. Therefore a peer has the following identities in addition to its name:
//
//   - the founding identity, a hash of the configuration with which the cluster was founded;
//   - the instance, a random string that is created with the directory;
//   - the start, the number of processes that have used the directory;
//   - the process, a random string of the running process.
//
// A peer sends its identities in each handshake (link.Claim). A [Registry] contains the identities of
// the peers that a peer knows, and decides which of these peers may connect.
package identity

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// size is the number of random bytes of an identity. Each byte is encoded as two hexadecimal digits.
const size = 16

// New returns a new random identity for an instance or a process.
func New() string {
	b := make([]byte, size)
	rand.Read(b) //nolint:errcheck // rand.Read never fails
	return hex.EncodeToString(b)
}

// Founding returns the identity of a cluster that is founded with the given configuration. It does not
// depend on the order of the voters.
func Founding(cluster string, voters []api.Peer, window, election time.Duration) string {
	h := sha256.New()
	text := func(s string) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	text("raftlog founding 1")
	text(cluster)
	for _, v := range Sorted(voters) {
		text(v.ID)
		text(v.Addr)
	}
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(window)))
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(election)))
	return hex.EncodeToString(h.Sum(nil)[:size])
}

// maxFounders is the maximum length of the result of Founders, so that it fits into a handshake.
const maxFounders = 200

// Founders describes the configuration with which a cluster is founded, for error messages.
func Founders(voters []api.Peer, window, election time.Duration) string {
	var list []string
	for _, v := range Sorted(voters) {
		list = append(list, v.Addr+"/"+v.ID)
	}
	s := strings.Join(list, " ")
	if len(s) > maxFounders {
		s = strings.ToValidUTF8(s[:maxFounders], "") + " ..."
	}
	return fmt.Sprintf("%s, window %v, election-timeout %v", s, window, election)
}

// Recovered returns a new identity for a cluster that an operator recovers from data of the cluster
// with the identity founding. Each recovery results in another identity.
func Recovered(founding string) string {
	sum := sha256.Sum256([]byte("raftlog recovered " + founding + " " + New()))
	return hex.EncodeToString(sum[:size])
}

// Sorted returns a copy of peers, sorted by ID.
func Sorted(peers []api.Peer) []api.Peer {
	return slices.SortedFunc(slices.Values(peers), func(a, b api.Peer) int { return cmp.Compare(a.ID, b.ID) })
}
