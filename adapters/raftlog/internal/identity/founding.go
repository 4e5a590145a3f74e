// Package identity decides which peer may participate in a cluster.
//
// Names do not suffice for that. Two clusters can be founded with the same name, a peer can be
// started with an empty directory or with an old copy of its directory, and two processes can use
// copies of one directory. Each of them could vote twice in a term, or acknowledge entries that it
// does not store. Therefore a peer also has
//
//   - the founding identity, a hash of the configuration with which the cluster was founded;
//   - the instance, a random string that is created with the directory;
//   - the start, the number of processes that have used the directory;
//   - the process, a random string of the running process;
//
// and sends them in each handshake (link.Claim). A [Registry] contains the identities of the peers
// that a peer knows, and decides which of them may connect.
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

// size is the number of bytes of an identity. Each byte is encoded as two hexadecimal digits.
const size = 16

// New returns a random identity of an instance or a process.
func New() string {
	b := make([]byte, size)
	rand.Read(b) //nolint:errcheck // rand.Read never fails
	return hex.EncodeToString(b)
}

// Founding returns the identity of a cluster that is founded with the given configuration. The order
// of the voters does not matter.
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

// maxFounders is the maximum length of the result of Founders, which a handshake can contain.
const maxFounders = 200

// Founders describes the configuration with which a cluster is founded, for messages.
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

// Recovered returns a new identity for a cluster that is recovered from data of the cluster with the
// given identity. Each recovery has another identity.
func Recovered(founding string) string {
	sum := sha256.Sum256([]byte("raftlog recovered " + founding + " " + New()))
	return hex.EncodeToString(sum[:size])
}

// Sorted returns the peers in the order of their IDs.
func Sorted(peers []api.Peer) []api.Peer {
	return slices.SortedFunc(slices.Values(peers), func(a, b api.Peer) int { return cmp.Compare(a.ID, b.ID) })
}
